"""Reads Pegasus DAX files, versions 2.1 to 3.6, with or without their XML namespace."""

from __future__ import annotations

import io
import math
import shlex
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.readers.builder import WorkflowBuilder
from tradewind.workflow.readers.command_words import with_streams
from tradewind.workflow.readers.pegasus_catalogues import (
    PegasusCatalogues,
    ProgramEntry,
    ProgramKey,
    find_file,
    local_path,
)
from tradewind.workflow.readers.profiles import METADATA, ProfileLevel, file_size, read_requirements
from tradewind.workflow.readers.subworkflows import WorkflowOpener
from tradewind.workflow.readers.xml_faults import xml_fault


def read_dax(
    text: bytes,
    file: str,
    *,
    lenient: bool = False,
    declared_edges: bool = False,
    opener: WorkflowOpener | None = None,
    properties: Path | None = None,
) -> Workflow:
    """Read the workflow of a DAX file.

    Run times are those of the ``runtime`` attribute, else of profiles, which give all else that a task
    needs, too; sizes those of
    the ``size`` attribute or of ``<metadata key="size">``, at the use or at the file. Edges are those of ``<child>``
    and ``<parent>``, and those that files imply. Jobs have commands where any of them has arguments or streams, or
    where a catalogue has the path of its program. Catalogues are those within the document, then those in files beside
    it; see `PegasusCatalogues`. A ``<dax>`` or ``<dag>`` is the tasks of its workflow, where its file is there.

    Args:
        text: The file's content.
        file: Its name, for messages.
        lenient: Accept sizes and run times below zero, as `WorkflowBuilder` says.
        declared_edges: Keep the declared edges only.
        opener: Opens workflows that jobs stand for; without it each is one task, and no file beside is read.
        properties: The properties of Pegasus that hold for it; those beside it without them.

    Raises:
        WorkflowError: The text is no DAX file, or something in it is wrong; with the line.
    """
    name = Path(file).name.removesuffix(".gz").rsplit(".", 1)[0]
    builder = WorkflowBuilder(file, name, lenient, declared_edges)
    elements = list(_elements(text, builder))
    if not elements:
        raise builder.fail("it is empty")
    root, attributes, _, line = elements[0]
    if root != "adag":
        raise builder.fail(f"it is no DAX file: the first element is <{root}>, not <adag>", line)
    builder.name = attributes.get("name") or name
    catalogues = PegasusCatalogues(builder)
    reader = _DaxReader(builder, elements, catalogues, opener)
    if opener is not None:
        catalogues.read_beside(Path(file).parent, properties)
    for element in elements[1:]:
        kind, given, children, line = element
        if kind in _JOBS:
            reader.job(element)
        nested = list(_jobs(children))
        for each in nested:
            builder.note("tasks within another element, read as tasks of their own", each[1].get("id", ""))
            reader.job(each)
        if nested and kind not in _JOBS:
            builder.group(_needed(builder, given, "id", kind, line), [each[1]["id"] for each in nested])
        if kind == "child":
            for inner, parent, _, place in children:
                if inner == "parent":
                    builder.edge(_needed(builder, parent, "ref", inner, place), given.get("ref", ""), place)
    return builder.workflow()


_Element = tuple[str, dict[str, str], list[Any], int]
_JOBS = ("job", "dag", "dax")
_STREAMS = ("stdin", "stdout", "stderr")


def _jobs(elements: Sequence[_Element]) -> Iterator[_Element]:
    """The jobs among some elements and within them, such as those of a ``<dflow>``."""
    for element in elements:
        if element[0] in _JOBS:
            yield element
        yield from _jobs(element[2])


def _elements(text: bytes, builder: WorkflowBuilder) -> Iterator[_Element]:
    """The root, then each element below it: name, attributes, its own elements, and line."""
    from xml.parsers import expat

    parser = expat.ParserCreate()
    stack: list[_Element] = []
    done: list[_Element] = []

    def start(name: str, attributes: dict[str, str]) -> None:
        element: _Element = (name.rpartition(":")[2], attributes, [], parser.CurrentLineNumber)
        if not stack:
            done.append(element)
        elif len(stack) > 1:
            stack[-1][2].append(element)
        if stack and stack[-1][0] == "argument" and element[0] in ("file", "filename"):
            # The name of a file within the words of an argument.
            stack[-1][1]["#"] = stack[-1][1].get("#", "") + _name(attributes)
        stack.append(element)

    def words(data: str) -> None:
        if stack and (data.strip() or stack[-1][0] == "argument"):
            stack[-1][1]["#"] = stack[-1][1].get("#", "") + data

    def end(_name: str) -> None:
        element = stack.pop()
        if len(stack) == 1:
            done.append(element)

    def refused(*_: Any) -> None:
        raise builder.fail("it declares entities, which are not read", parser.CurrentLineNumber)

    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, words
    parser.EntityDeclHandler = refused  # a file of a few lines could grow to gigabytes
    if fault := xml_fault(lambda: parser.ParseFile(io.BytesIO(text)), lambda: bool(done)):
        raise builder.fail(*fault)
    yield from done


def _needed(builder: WorkflowBuilder, attributes: dict[str, str], key: str, name: str, line: int) -> str:
    if not attributes.get(key):
        raise builder.fail(f"<{name}> has no {key}", line)
    return attributes[key]


class _DaxReader:
    """Reads the jobs of a document, with the catalogues within it."""

    def __init__(
        self,
        builder: WorkflowBuilder,
        elements: Sequence[_Element],
        catalogues: PegasusCatalogues,
        opener: WorkflowOpener | None,
    ) -> None:
        self._builder, self._catalogues, self._opener = builder, catalogues, opener
        self._folder = Path(builder.file).parent
        self._made: set[str] = set()
        for kind, given, children, line in elements[1:]:
            if kind == "file":
                urls = [pfn.get("url", "") for inner, pfn, _, _ in children if inner == "pfn"]
                size = self._size(given, children, line)
                catalogues.add_replica(given.get("name", ""), urls, self._folder, size=size, regex=False)
            elif kind == "executable":
                catalogues.add_program(_key(given), self._program(children))
        # Generators write jobs without command lines; where any job has one, those without arguments have theirs, too.
        self._commands = any(
            kind in ("argument", *_STREAMS) for _, _, children, _ in _jobs(elements[1:]) for kind, *_ in children
        )
        for _, _, children, _ in _jobs(elements[1:]):
            uses = (use for inner, use, _, _ in children if inner == "uses")
            self._made.update(_name(use) for use in uses if _link(use) in ("output", "inout"))

    def _program(self, children: Sequence[_Element]) -> ProgramEntry:
        """A program of the document's own catalogue."""
        for kind, given, inner, _ in children:
            path = local_path(given.get("url", ""), self._folder, bare=True) if kind == "pfn" else ""
            if path:
                return ProgramEntry(path, (_profiles(inner), _profiles(children)), given.get("site", ""))
        return ProgramEntry("", (_profiles(children),))

    def job(self, element: _Element) -> None:
        """Add one job, or the tasks of the workflow that it stands for."""
        kind, attributes, children, line = element
        builder = self._builder
        task_id = _needed(builder, attributes, "id", kind, line)
        inputs: dict[str, None] = {}
        outputs: dict[str, None] = {}
        optional: dict[str, None] = {}
        for name, given, inner, place in children:
            if name == "uses":
                self._use(task_id, given, inner, place, (inputs, outputs, optional))
        if kind != "job" and self._opened(element, inputs, outputs):
            return
        command = self._command(element, inputs, outputs) if kind == "job" else ()
        needs = read_requirements(builder, task_id, (_profiles(children), *self._catalogues.levels(_key(attributes))))
        runtime = needs.runtime
        if attributes.get("runtime"):
            runtime = _number(builder, attributes["runtime"], f"the run time of task {task_id!r}", line)
        if runtime is None:
            builder.note("tasks without a run time, which count as 0 s", task_id)
        cores = needs.cores or 1
        if attributes.get("cores"):
            cores = _whole(builder, attributes["cores"], f"the cores of task {task_id!r}", line)
        task = Task(
            task_id,
            attributes.get("name") or task_id,
            runtime or 0.0,
            tuple(inputs),
            tuple(outputs),
            cores,
            needs.memory_bytes,
            command,
            tuple(name for name in optional if name in inputs),
            "" if kind == "job" else attributes.get("file") or attributes.get("name") or kind,
            needs.gpus or 0,
            needs.disk_bytes,
            needs.priority or 0,
        )
        for name in inputs:
            if location := self._catalogues.location(name):
                builder.locations[name] = location
        builder.task(task, line)

    def _opened(self, element: _Element, inputs: dict[str, None], outputs: dict[str, None]) -> bool:
        """Add the tasks of a workflow within this one, where its file is there."""
        _, attributes, children, line = element
        name, task_id = attributes.get("file") or attributes.get("name") or "", attributes["id"]
        path = find_file(name, self._catalogues, self._folder) if self._opener is not None else None
        if self._opener is None or path is None:
            self._builder.note("tasks that are workflows of their own, each taken as one task", task_id)
            return False
        words = _arguments(children)
        told = [after for word, after in pairwise(words) if word == "--conf"]
        told += [word.removeprefix("--conf=") for word in words if word.startswith("--conf=")]
        inner = self._opener(path, find_file(told[0], self._catalogues, self._folder) if told else None)
        used = [each for each in inputs if each != name]
        self._builder.include(task_id, inner, line, inputs=used, outputs=tuple(outputs))
        return True

    def _command(self, element: _Element, inputs: dict[str, None], outputs: dict[str, None]) -> tuple[str, ...]:
        """The words of a job's command line, if it has one; its streams are among its files then."""
        _, attributes, children, line = element
        key, builder = _key(attributes), self._builder
        path, streams = self._catalogues.program(key), dict.fromkeys(_STREAMS, "")
        for kind, given, _, _ in children:
            if kind in streams:
                streams[kind] = _name(given)
        words = _arguments(children)
        program = path or attributes.get("name", "")
        if not program or not (path or self._commands):
            return ()
        if container := self._catalogues.container(key):
            builder.note(
                "programs in containers, which are run without them", f"{attributes.get('name', program)} ({container})"
            )
        for kind, name in streams.items():
            listed = inputs if kind == "stdin" else outputs
            if name and name not in listed:
                listed[name] = None
                size = self._catalogues.sizes.get(name)
                builder.size(name, size, attributes["id"], output=kind != "stdin", line=line)
        return tuple(with_streams([program, *words], *streams.values()))

    def _use(
        self,
        task: str,
        given: dict[str, str],
        children: list[_Element],
        line: int,
        lists: tuple[dict[str, None], dict[str, None], dict[str, None]],
    ) -> None:
        """Add one file that a job uses to its inputs or outputs."""
        builder, (inputs, outputs, optional), name, link = self._builder, lists, _name(given), _link(given)
        if not name:
            raise builder.fail(f"a <uses> of task {task!r} names no file", line)
        size = self._size(given, children, line)
        if link == "none":
            return
        if link == "checkpoint":
            builder.note("files that are checkpoints and are left out", name)
            return
        if link not in ("input", "output", "inout", "executable"):
            hint = "it is input, output, inout, checkpoint or none"
            raise builder.fail(f"the use of file {name!r} by task {task!r} is {link!r}", line, hint)
        program = "executable" in (link, given.get("type", "").lower()) or _true(given, "executable")
        if program and link != "output" and name not in self._made:
            return
        listed = outputs if link == "output" else inputs
        if name in listed:
            builder.note("files listed twice by one task, which count once", name)
        listed[name] = None
        if _true(given, "optional"):
            optional[name] = None
        builder.size(
            name, self._catalogues.sizes.get(name) if size is None else size, task, output=link == "output", line=line
        )
        if link == "inout":
            outputs[name] = None

    def _size(self, given: dict[str, str], children: list[_Element], line: int) -> int | None:
        """The size of a file, of an attribute or of metadata."""
        texts = [given.get("size", "")]
        texts += [each[1].get("#", "") for each in children if each[0] == METADATA and each[1].get("key") == "size"]
        text = next((text.strip() for text in texts if text.strip()), None)
        try:
            return None if text is None else file_size(text)
        except (ValueError, OverflowError):
            words = f"the size of file {_name(given)!r} is {text!r}, not a number"
            raise self._builder.fail(words, line, "write bytes, or an amount such as 12 MB") from None


def _name(given: dict[str, str]) -> str:
    return given.get("file") or given.get("name") or ""


def _link(given: dict[str, str]) -> str:
    return given.get("link", "input").lower()


def _true(given: dict[str, str], key: str) -> bool:
    return given.get(key, "").lower() in ("true", "1")


def _key(given: dict[str, str]) -> ProgramKey:
    return given.get("namespace", ""), given.get("name", ""), given.get("version", "")


def _arguments(children: Sequence[_Element]) -> list[str]:
    """The words of a job's arguments, with the names of files in their places."""
    text = "".join(given.get("#", "") for kind, given, _, _ in children if kind == "argument")
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _profiles(children: Sequence[_Element]) -> ProfileLevel:
    """The profiles and the metadata among the elements of a job or of a program."""
    found = {}
    for kind, given, _, line in children:
        if kind in ("profile", METADATA):
            space = METADATA if kind == METADATA else given.get("namespace", "").lower()
            found[space, given.get("key", "")] = given.get("#", "").strip(), line
    return found


def _number(builder: WorkflowBuilder, text: str, what: str, line: int) -> float:
    try:
        return float(text)
    except ValueError:
        raise builder.fail(f"{what} is {text!r}, not a number", line) from None


def _whole(builder: WorkflowBuilder, text: str, what: str, line: int) -> int:
    """A whole number, of a text that may give it as 1e6 or 10.0."""
    number = _number(builder, text, what, line)
    if not math.isfinite(number):
        raise builder.fail(f"{what} is {text!r}, not a number", line)
    return int(number)
