"""Reads workflows of the Common Workflow Language, versions 1.0 to 1.2: packed, or with their tools beside them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tradewind.utils.yaml_lines import YamlMapping
from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.readers.builder import WorkflowBuilder
from tradewind.workflow.readers.subworkflows import MOST_FILES
from tradewind.workflow.readers.yaml_lines import read_yaml_lines

_VERSIONS = re.compile(r"v1\.[0-2](\.\d.*)?")
_MEBIBYTE = 2**20
_MOST_LEVELS = 20
_TOOLS = ("CommandLineTool", "ExpressionTool", "Operation")


def is_cwl(document: Mapping[str, Any]) -> bool:
    """True for a document with the keys that all of CWL have."""
    return "cwlVersion" in document and ("class" in document or "$graph" in document)


def read_cwl(
    document: Mapping[str, Any], file: str, *, lenient: bool = False, declared_edges: bool = False
) -> Workflow:
    """Read a workflow.

    Each step is a task that waits for the steps that its inputs come from; a step that runs a workflow is the steps of
    that workflow, called ``step/inner``. A scattered step is one task, because only its inputs say how many it is.
    Cores, memory and disk are ``coresMin``, ``ramMin`` and ``tmpdirMin`` with ``outdirMin`` of the nearest
    ``ResourceRequirement``: of the tool, the step, or the workflows around it; GPUs are those of ``CUDARequirement``. A
    tool of its own is a workflow of one task.

    Args:
        document: The document.
        file: Its path; a tool that it does not hold is looked for beside it.
        lenient: As `WorkflowBuilder` has it.
        declared_edges: Likewise.

    Raises:
        WorkflowError: It is of another version, a step is wrong, or it uses what is not supported.
    """
    name = Path(file).name.removesuffix(".gz").rsplit(".", 1)[0]
    return _CwlReader(WorkflowBuilder(file, name, lenient, declared_edges)).read(document)


@dataclass
class _Process:
    """A process with the file that it is in."""

    body: Mapping[str, Any]
    folder: Path
    graph: Mapping[str, Mapping[str, Any]]


@dataclass
class _Ends:
    """Tasks of a step of a workflow: all of it, and for each of its outputs those that write it."""

    tasks: list[str] = field(default_factory=list)
    outputs: dict[str, list[str]] = field(default_factory=dict)


class _CwlReader:
    def __init__(self, builder: WorkflowBuilder) -> None:
        self._builder = builder
        self._absent: list[str] = []
        self._opened = 0

    def read(self, document: Mapping[str, Any]) -> Workflow:
        builder = self._builder
        main = self._main(document, Path(builder.file).parent)
        if main.body.get("class") == "Workflow":
            self._steps(main, "", {}, [], 0)
        else:
            self._task(main, "main", [], None)
        builder.note("steps whose tools are not there, and what they need is not known", *self._absent)
        return builder.workflow()

    def _main(self, document: Mapping[str, Any], folder: Path, name: str = "") -> _Process:
        builder = self._builder
        version = str(document.get("cwlVersion", ""))
        if not _VERSIONS.fullmatch(version) and not (name and not version):
            raise builder.fail(f"cwlVersion {version!r} is not read", _line(document, "cwlVersion"),
                               "v1.0, v1.1 and v1.2 are; cwl-upgrader rewrites older ones")  # fmt: skip
        if "$graph" not in document:
            return _Process(document, folder, {})
        given = document["$graph"]
        if not isinstance(given, list) or not all(isinstance(each, Mapping) for each in given):
            raise builder.fail("its '$graph' is no list of processes")
        graph = {_last(str(each.get("id", ""))): each for each in given}
        flows = [each for each in given if each.get("class") == "Workflow"]
        wanted = graph.get(name or "main") or (flows[0] if len(flows) == 1 else None)
        if wanted is None:
            words = f"no process {name!r} in its '$graph'" if name else "no process 'main' in its '$graph'"
            raise builder.fail(f"there is {words}")
        return _Process(wanted, folder, graph)

    def _steps(
        self,
        process: _Process,
        prefix: str,
        sources: Mapping[str, list[str]],
        around: list[Mapping[str, Any]],
        level: int,
    ) -> _Ends:
        """Add the steps of a workflow, whose inputs come from the tasks in ``sources``."""
        builder, body = self._builder, process.body
        if level > _MOST_LEVELS:
            raise builder.fail("its workflows are nested too deeply, or hold each other")
        steps = {_last(name): step for name, step in _named(builder, body.get("steps"), "steps").items()}
        if not steps:
            raise builder.fail(f"workflow {prefix or 'main'!r} has no steps")
        around = [body, *around]
        done: dict[str, _Ends] = {}
        for name in self._ordered(process, steps, prefix):
            done[name] = self._step(process, steps[name], prefix + name, (sources, done), around, level)
        outputs = {}
        for name, output in _named(builder, body.get("outputs"), "outputs").items():
            given = output.get("outputSource", []) if isinstance(output, Mapping) else []
            outputs[_last(name)] = self._tasks_of(given, process, sources, done)
        return _Ends([task for ends in done.values() for task in ends.tasks], outputs)

    def _ordered(self, process: _Process, steps: Mapping[str, Any], prefix: str) -> list[str]:
        """Steps in an order in which each comes after those that it reads from."""
        from graphlib import CycleError, TopologicalSorter

        before = {}
        for name, step in steps.items():
            if not isinstance(step, Mapping):
                raise self._builder.fail(f"step {prefix + name!r} is no mapping", _line(steps, name))
            origins = [_origin(each, process) for given in self._inputs(step).values() for each in given]
            before[name] = [first for first, _ in origins if first in steps]
        try:
            return list(TopologicalSorter(before).static_order())
        except CycleError as error:
            circle = " -> ".join(prefix + each for each in error.args[1])
            raise self._builder.fail(f"its steps wait for each other in a circle: {circle}") from None

    def _inputs(self, step: Mapping[str, Any]) -> dict[str, list[str]]:
        """Sources of each input of a step."""
        found = {}
        for name, given in _named(self._builder, step.get("in"), "in").items():
            value = given.get("source", []) if isinstance(given, Mapping) else given
            found[_last(name)] = [
                str(each) for each in (value if isinstance(value, list) else [value]) if each is not None
            ]
        return found

    def _step(
        self,
        process: _Process,
        step: Mapping[str, Any],
        name: str,
        known: tuple[Mapping[str, list[str]], Mapping[str, _Ends]],
        around: list[Mapping[str, Any]],
        level: int,
    ) -> _Ends:
        builder = self._builder
        inputs = {key: self._tasks_of(given, process, *known) for key, given in self._inputs(step).items()}
        if step.get("scatter"):
            builder.note("scattered steps, each taken as one task, because their inputs say how many they are", name)
        if step.get("when"):
            builder.note("steps with a condition (when), which are taken to run", name)
        inner = self._run(process, step, name)
        if inner is not None and inner.body.get("class") == "Workflow":
            return self._steps(inner, f"{name}/", inputs, [step, *around], level + 1)
        self._task(inner, name, [step, *around], _line(step, "run"))
        for parent in dict.fromkeys(task for tasks in inputs.values() for task in tasks):
            builder.edge(parent, name, _line(step, "in"))
        outputs = [each.get("id", "") if isinstance(each, Mapping) else each for each in step.get("out") or []]
        return _Ends([name], {_last(str(each)): [name] for each in outputs})

    def _tasks_of(
        self, given: Any, process: _Process, sources: Mapping[str, list[str]], done: Mapping[str, _Ends]
    ) -> list[str]:
        """Tasks that write what some sources name."""
        found: list[str] = []
        for each in given if isinstance(given, list) else [given]:
            first, output = _origin(str(each), process)
            if first in done:
                found += done[first].outputs.get(output, done[first].tasks)
            elif first in sources:
                found += sources[first]
            elif output:
                raise self._builder.fail(f"source {str(each)!r} names step {first!r}, which is not there")
        return list(dict.fromkeys(found))

    def _run(self, process: _Process, step: Mapping[str, Any], name: str) -> _Process | None:
        """The process that a step runs; None where its file is not there."""
        run = step.get("run")
        if isinstance(run, Mapping):
            if "class" not in run:
                raise self._builder.fail(f"step {name!r} runs {next(iter(run), '')!r}, which is not supported",
                                         _line(step, "run"), "cwltool --pack writes one file with all")  # fmt: skip
            return _Process(run, process.folder, process.graph)
        if not isinstance(run, str) or not run:
            raise self._builder.fail(f"step {name!r} runs nothing", _line(step, "id"))
        path, _, part = run.partition("#")
        if not path or _last(run) in process.graph:
            if _last(part or path) not in process.graph:
                raise self._builder.fail(f"step {name!r} runs {run!r}, which is not there", _line(step, "run"))
            return _Process(process.graph[_last(part or path)], process.folder, process.graph)
        file = process.folder / path.removeprefix("file://")
        if "://" in path.removeprefix("file://") or not file.is_file():
            self._absent.append(path)
            return None
        self._opened += 1
        if self._opened > MOST_FILES:
            raise self._builder.fail(f"its steps name more than {MOST_FILES:,} files", _line(step, "run"))
        return self._main(read_yaml_lines(file.read_text("utf-8-sig"), str(file)), file.parent, part or "main")

    def _task(self, process: _Process | None, name: str, around: list[Mapping[str, Any]], line: int | None) -> None:
        builder = self._builder
        body = process.body if process is not None else {}
        if body and body.get("class") not in _TOOLS:
            raise builder.fail(f"{name!r} is of class {body.get('class')!r}, which is not supported", line)
        cores, memory, disk = self._resources([body, *around], name)
        gpus = self._gpus([body, *around], name)
        base = body.get("baseCommand") or []
        words = [str(each) for each in (base if isinstance(base, list) else [base])]
        builder.note("tasks without a run time, which count as 0 s", name)
        builder.task(Task(name, Path(words[0]).name if words else name, 0.0, cores=cores, memory_bytes=memory,
                          gpus=gpus, disk_bytes=disk), line)  # fmt: skip

    def _gpus(self, around: list[Mapping[str, Any]], name: str) -> int:
        """GPUs of a task, by the extension of cwltool that other engines have taken over."""
        found = self._nearest(around, "CUDARequirement")
        number = None if found is None else self._number(found, "cudaDeviceCountMin", "cudaDeviceCountMax", name)
        return 0 if found is None else math.ceil(1 if number is None else number)

    def _nearest(self, around: list[Mapping[str, Any]], kind: str) -> Mapping[str, Any] | None:
        """The nearest requirement of a class, or else the nearest hint."""
        each = (
            _requirement(self._builder, holder, key, kind) for key in ("requirements", "hints") for holder in around
        )
        return next((found for found in each if found is not None), None)

    def _resources(self, around: list[Mapping[str, Any]], name: str) -> tuple[int, int | None, int | None]:
        """Cores, memory and disk of a task."""
        found = self._nearest(around, "ResourceRequirement")
        if found is None:
            return 1, None, None
        cores = self._number(found, "coresMin", "coresMax", name) or 1
        memory = self._number(found, "ramMin", "ramMax", name)
        parts = [self._number(found, f"{where}Min", f"{where}Max", name) for where in ("tmpdir", "outdir")]
        disk = sum(part or 0 for part in parts)
        size, room = (math.ceil(each * _MEBIBYTE) if each else None for each in (memory, disk))
        return max(1, math.ceil(cores)), size, room

    def _number(self, given: Mapping[str, Any], least: str, most: str, name: str) -> float | None:
        key = least if given.get(least) is not None else most
        value = given.get(key)
        if value is None:
            return None
        if "$(" in str(value) or "${" in str(value):
            self._builder.note("requirements that are expressions, which are not evaluated", f"{key} of {name}")
            return None
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not 0 <= number < 2**40:
            what = f"{key} of {name!r} is {value!r}, not a number of 0 or more"
            raise self._builder.fail(what, _line(given, key))
        return number


def _requirement(builder: WorkflowBuilder, holder: Mapping[str, Any], key: str, kind: str) -> Mapping[str, Any] | None:
    """The requirement of a class; the prefix of an extension's name does not count."""
    given = holder.get(key)
    if isinstance(given, Mapping):
        found = next((each for name, each in given.items() if _is_of(name, kind)), None)
        return found if isinstance(found, Mapping) else None
    if given is not None and not isinstance(given, list):
        raise builder.fail(f"{key!r} is no list", _line(holder, key))
    listed = [each for each in given or () if isinstance(each, Mapping)]
    return next((each for each in listed if _is_of(each.get("class"), kind)), None)


def _is_of(name: Any, kind: str) -> bool:
    return re.split(r"[:#/]", str(name))[-1] == kind


def _named(builder: WorkflowBuilder, given: Any, what: str) -> dict[str, Any]:
    """Items by their ids, of a mapping or of a list whose items have an ``id``."""
    if given is None:
        return {}
    if isinstance(given, Mapping):
        return {str(name): value for name, value in given.items()}
    if not isinstance(given, list) or not all(isinstance(each, Mapping) and each.get("id") for each in given):
        raise builder.fail(f"{what!r} is no mapping, and no list of mappings with an id")
    return {str(each["id"]): each for each in given}


def _last(name: str) -> str:
    """The last part of an id: ``#main/step`` is ``step``."""
    return name.rpartition("#")[2].rpartition("/")[2]


def _origin(source: str, process: _Process) -> tuple[str, str]:
    """The step and its output that a source names; of an input of the workflow, its name and nothing."""
    name = source.rpartition("#")[2]
    own = str(process.body.get("id", "")).rpartition("#")[2]
    parts = (name.removeprefix(f"{own}/") if own else name).split("/")
    return (parts[-2], parts[-1]) if len(parts) > 1 else (parts[0], "")


def _line(given: Mapping[str, Any], key: str) -> int | None:
    return given.at(key) if isinstance(given, YamlMapping) and key in given else None
