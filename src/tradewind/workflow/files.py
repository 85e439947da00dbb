"""Reads the files of workflows, machines and plans by their content, and writes plans."""

from __future__ import annotations

import json
import re
import zlib
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict

from tradewind.errors import WorkflowError
from tradewind.utils.atomic_files import atomic_user_path
from tradewind.utils.interrupts import without_collection
from tradewind.utils.yaml_lines import YamlMapping
from tradewind.workflow.graph import Workflow
from tradewind.workflow.platform import Platform
from tradewind.workflow.readers import platform_yaml, tradewind_yaml
from tradewind.workflow.readers.subworkflows import SubworkflowOpener, WorkflowOpener
from tradewind.workflow.readers.systems import detection
from tradewind.workflow.readers.yaml_lines import plain, read_yaml_lines
from tradewind.workflow.schedule import FORMAT, Schedule, check, dump, from_json, to_json

_MOST = 1 << 30
"""Most bytes of a file, unpacked."""

_WIDE = b"<\0", b"\0<"
"""How XML in UTF-16 begins."""

_PLANS = FORMAT.rstrip("0123456789")
_MARK = re.compile(rb'"format"\s*:\s*"' + re.escape(FORMAT.encode()) + b'"')
"""Pattern of a JSON object that is a plan; other programs may have written it anew, with other blanks and order."""

KNOWN = f"Pegasus DAX (XML), WfFormat (JSON), Pegasus 5 (YAML), {detection.KNOWN}, Tradewind's own YAML, or a plan"


@dataclass(frozen=True)
class Plan:
    """A schedule with all that it is about.

    Attributes:
        flow: The workflow.
        platform: The machines.
        schedule: Which machine runs which task, and when.
        planner: Name of the planner that made it.
        folder: Folder of the files that come from outside, which is that of the workflow's file; None if it is not
            known.
    """

    flow: Workflow
    platform: Platform
    schedule: Schedule
    planner: str
    folder: Path | None = None


def read_workflow(
    path: Path, *, lenient: bool = False, declared_edges: bool = False, workflowsim: bool = False
) -> Workflow:
    """Read the workflow of a file, whatever its format; a file packed with gzip is unpacked.

    Args:
        path: A file of a format in `KNOWN`; what other systems keep beside it is read with it.
        lenient: Accept sizes and run times below zero: sizes without their sign, times as 0 s.
        declared_edges: Keep the edges that the file declares, without those that follow from files: by default a task
            waits for those that write what it reads. A plan keeps the edges that it has.
        workflowsim: Read files of other systems as WorkflowSim does, with their declared edges only.

    Raises:
        WorkflowError: The file is not there, is none of these, or something in it is wrong; with the place.
    """

    def read(file: Path, properties: Path | None, opener: WorkflowOpener) -> Workflow:
        return _read(file, _Reading(lenient, declared_edges, workflowsim, opener, properties))

    with without_collection():
        return read(path, None, SubworkflowOpener(read, (path,)))


class _ReadingOptions(TypedDict):
    lenient: bool
    declared_edges: bool


class _PegasusOptions(_ReadingOptions):
    opener: WorkflowOpener
    properties: Path | None


@dataclass(frozen=True, slots=True)
class _Reading:
    """Options of `read_workflow`, and what is needed for workflows within others."""

    lenient: bool
    declared_edges: bool
    workflowsim: bool
    opener: WorkflowOpener
    properties: Path | None

    @property
    def own(self) -> _ReadingOptions:
        """Options for Tradewind's own YAML, whose edges are declared by files."""
        return {"lenient": self.lenient, "declared_edges": self.declared_edges}

    @property
    def others(self) -> _ReadingOptions:
        """Options for the formats of other systems."""
        return {"lenient": self.lenient, "declared_edges": self.declared_edges or self.workflowsim}

    @property
    def pegasus(self) -> _PegasusOptions:
        """Options for Pegasus' formats, whose sub-workflows and catalogues are files of their own."""
        return {**self.others, "opener": self.opener, "properties": self.properties}


def _read(path: Path, reading: _Reading) -> Workflow:
    text, file = read_bytes(path), str(path)
    name = path.name.removesuffix(".gz").rsplit(".", 1)[0] or path.name
    start = text[:4096].lstrip(b"\xef\xbb\xbf \t\r\n")
    if (not start.startswith((b"{", b"<")) and b"\0" not in start) or b"flowchart" in text[:20000]:
        found = detection.read_system_text(_decoded(text, file), file, **reading.others)
        if found is not None:
            return found
    # XML may be in UTF-16, with its mark or without, and the parser finds out.
    if start.startswith(b"<") or start.removeprefix(BOM_UTF16_LE).removeprefix(BOM_UTF16_BE)[:2] in _WIDE:
        from tradewind.workflow.readers.dax import read_dax

        return read_dax(text, file, **reading.pegasus)
    if start.startswith(b"{"):
        return _from_json(text, file, name, reading)
    try:
        document = read_yaml_lines(_decoded(text, file), file)
    except WorkflowError as error:
        if path.name.removesuffix(".gz").endswith((".yml", ".yaml", ".cwl")):
            raise
        raise WorkflowError(error.message, file=file, line=error.line, hint=f"known are {KNOWN}") from None
    return _from_fields(document, file, name, reading)


def _from_json(text: bytes, file: str, name: str, reading: _Reading) -> Workflow:
    from tradewind.workflow.readers.wfformat import from_document

    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        # A YAML document may begin with a brace, too.
        if isinstance(error, json.JSONDecodeError) and error.pos < 3:
            return _from_fields(read_yaml_lines(_decoded(text, file), file), file, name, reading)
        if b'"rules"' in text and re.search(rb"\b(template|format|range|join)\(", text):
            words = "it is JX of Makeflow, whose expressions are not evaluated"
            raise WorkflowError(words, file=file, hint=f"write it as JSON: jx2json {file}") from None
        words = f"it is no JSON: {_json_fault(error)}"
        raise WorkflowError(words, file=file, line=getattr(error, "lineno", None)) from None
    if document.get("format") == FORMAT:
        return _plan(document, file).flow
    if "workflow" in document:
        return from_document(document, file, text=text, **reading.others)
    return _from_fields(plain(document), file, name, reading)


def _json_fault(error: ValueError | RecursionError) -> str:
    """Return the words of the decoder, without those that are meant for programmers."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    return str(error) if isinstance(error, json.JSONDecodeError) else "a number has too many digits"


def _from_fields(document: YamlMapping, file: str, name: str, reading: _Reading) -> Workflow:
    found = detection.read_system_document(document, file, **reading.others)
    if found is not None:
        return found
    if "pegasus" in document or "jobs" in document:
        from tradewind.workflow.readers.pegasus import read_pegasus

        return read_pegasus(document, file, name, **reading.pegasus)
    if "tasks" in document:
        return tradewind_yaml.read_tradewind_yaml(document, file, name, **reading.own)
    if "vms" in document:
        raise WorkflowError("these are machines, not a workflow", file=file, hint="give it with --vms")
    raise WorkflowError("it is no workflow: it has neither 'tasks' nor 'jobs'", file=file, hint=f"known are {KNOWN}")


def is_plan(path: Path) -> bool:
    """True for a file of `write_plan`.

    Raises:
        WorkflowError: The file is not there or cannot be read.
    """
    text = read_bytes(path)
    return text.lstrip().startswith(b"{") and _MARK.search(text) is not None


def folder_of(path: Path) -> Path:
    """Find the folder that a workflow's inputs are in: that of its file, or the one that a plan remembers.

    Raises:
        WorkflowError: The file is not there or cannot be read.
    """
    remembered = read_plan(path).folder if is_plan(path) else None
    return remembered or path.absolute().parent


def read_platform(path: Path) -> Platform:
    """Read the machines of a YAML file, or of a plan.

    Raises:
        WorkflowError: The file is not there, or something in it is wrong; with the line.
    """
    text, file = read_bytes(path), str(path)
    if text.lstrip().startswith(b"{"):
        try:
            document = json.loads(text)
        except ValueError:
            document = None
        if isinstance(document, dict) and document.get("format") == FORMAT:
            return _plan(document, file).platform
    return platform_yaml.read_platform_yaml(read_yaml_lines(_decoded(text, file), file), file)


def open_platform(text: str) -> Platform:
    """Read the machines of ``--vms``: a file, or a set by its name such as ``paper3:16``.

    Raises:
        WorkflowError: There is no such file or set, or something in it is wrong.
    """
    name, colon, size = text.partition(":")
    if name == "paper3" and colon:
        if not size.isdecimal():
            raise WorkflowError(f"paper3 has no set {size!r}", hint="write paper3:16, or 8, 32, 64 or 128")
        return platform_yaml.paper3(int(size))
    return read_platform(Path(text))


def write_plan(path: Path, plan: Plan) -> None:
    """Write a plan to a JSON file that holds the workflow and the machines, too.

    Raises:
        WorkflowError: The file cannot be written.
    """
    write_text(path, dump(plan_document(plan)))


def plan_document(plan: Plan) -> dict[str, Any]:
    """Turn a plan into a document: `tradewind.workflow.schedule.to_json`, the machines and the graph."""
    document = to_json(plan.flow, plan.platform, plan.schedule, plan.planner)
    tasks = document.pop("tasks")
    if plan.folder is not None:
        document["folder"] = str(plan.folder)
    return {
        **document,
        **platform_yaml.to_document(plan.platform),
        "graph": tradewind_yaml.to_document(plan.flow),
        "tasks": tasks,
    }


def read_plan(path: Path) -> Plan:
    """Read the plan of a file of `write_plan`.

    Raises:
        WorkflowError: The file is not there, is no plan, or something in it is wrong.
    """
    with without_collection():
        return parse_plan(read_bytes(path), str(path))


def parse_plan(text: bytes, file: str) -> Plan:
    """Parse the plan that `write_plan` has written.

    Args:
        text: Content of the file.
        file: Name of the file, for messages.

    Raises:
        WorkflowError: The file is no plan, or something in it is wrong.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WorkflowError(
            f"it is no plan, not even JSON: {_json_fault(error)}",
            file=file,
            line=getattr(error, "lineno", None),
            hint="tradewind workflow plan writes one",
        ) from None
    return _plan(document, file)


def _plan(document: Any, file: str) -> Plan:
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        found = document.get("format") if isinstance(document, dict) else None
        if isinstance(found, str) and found.startswith(_PLANS):
            words = f"it is a plan of another version of Tradewind: its 'format' is {found}, and {FORMAT} is read"
            raise WorkflowError(words, file=file, hint="plan again with tradewind workflow plan or advise")
        hint = "tradewind workflow plan writes one"
        raise WorkflowError(f"it is no plan: its 'format' is not {FORMAT}", file=file, hint=hint)
    graph = plain(document.get("graph"))
    if not isinstance(graph, YamlMapping):
        raise WorkflowError("it has no 'graph' with the workflow's tasks", file=file)
    flow = tradewind_yaml.read_tradewind_yaml(graph, file, str(document.get("workflow")))
    platform = platform_yaml.from_document(document, file)
    schedule = from_json(document, flow, platform, file=file)
    folder = document.get("folder")
    if folder is not None and (not isinstance(folder, str) or not folder):
        raise WorkflowError("its 'folder' is not the name of one", file=file, hint="leave it out")
    return Plan(flow, platform, schedule, str(document.get("planner", "")), None if folder is None else Path(folder))


def read_bytes(path: Path) -> bytes:
    """Read a file, unpacked where it is packed with gzip.

    Raises:
        WorkflowError: The file is not there, cannot be read, or is too large.
    """
    try:
        if path.is_dir():
            raise WorkflowError(f"{path} is a folder, not a file")
        with path.open("rb") as stream:
            text = stream.read(_MOST + 1)
    except FileNotFoundError:
        raise WorkflowError(f"there is no file {path}") from None
    except (OSError, ValueError) as error:
        raise WorkflowError(f"cannot read {str(path)!r}: {getattr(error, 'strerror', None) or error}") from None
    if text[:2] == b"\x1f\x8b":
        text = _unpacked(text, str(path))
    if len(text) > _MOST:
        raise WorkflowError(f"it is larger than {_MOST >> 20} MiB", file=str(path))
    if not text.strip():
        raise WorkflowError("it is empty", file=str(path), hint=f"known are {KNOWN}")
    return text


def _unpacked(text: bytes, file: str) -> bytes:
    """All members of a gzip file, up to one byte more than is taken."""
    found, rest = b"", text
    try:
        while rest[:2] == b"\x1f\x8b" and len(found) <= _MOST:
            machine = zlib.decompressobj(wbits=31)
            found += machine.decompress(rest, _MOST + 1 - len(found))
            if not machine.eof and len(found) <= _MOST:
                raise WorkflowError("its gzip stream ends too early", file=file)
            rest = machine.unused_data
    except zlib.error as error:
        raise WorkflowError(f"it is no gzip file: {error}", file=file) from None
    return found


def _decoded(text: bytes, file: str) -> str:
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = text[: error.start].count(b"\n") + 1
        raise WorkflowError("it is not UTF-8 text", file=file, line=line, hint=f"known are {KNOWN}") from None


def write_text(path: Path, text: str) -> None:
    """Write a file in one step: a reader sees all of it or nothing; pipes and devices are written to.

    Raises:
        WorkflowError: The file cannot be written.
    """
    try:
        with atomic_user_path(path) as part:
            part.write_bytes(text.encode())
    except OSError as error:
        raise WorkflowError(f"cannot write {path}: {error.strerror or error}") from None


def with_feasible_times(plan: Plan) -> tuple[Plan, str]:
    """Correct the times of a plan, so that they keep every rule.

    Args:
        plan: A plan; one edited by hand has a changed order of starts, and seldom all times that follow from it.

    Returns:
        The plan and a message: where its own times break a rule, those of following its order are in their place; ""
        where they hold.

    Raises:
        WorkflowError: Its order contradicts the graph.
    """
    try:
        check(plan.flow, plan.platform, plan.schedule)
    except WorkflowError as error:
        from tradewind.workflow.simulator.compiled import CompiledSimulator

        schedule = CompiledSimulator(plan.flow, plan.platform).follow(plan.schedule)
        return replace(plan, schedule=schedule), f"computed anew from its order: in the file {error.message}"
    return plan, ""


def without_commands(plan: Plan) -> Plan:
    """Remove the commands of a plan's tasks, which then only take their time, sub-workflows included.

    Args:
        plan: A plan; that of a workflow which ran elsewhere has commands whose programs and files are not here.
    """
    tasks = tuple(replace(task, command=(), subworkflow="") for task in plan.flow.tasks)
    return replace(plan, flow=replace(plan.flow, tasks=tasks))
