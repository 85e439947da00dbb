"""Reads Pegasus DAX files, versions 2.1 to 3.6, with or without their XML namespace."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.readers.builder import WorkflowBuilder
from tradewind.workflow.readers.profiles import METADATA, ProfileLevel, file_size, read_requirements


def read_dax(text: bytes, file: str, *, lenient: bool = False, declared_edges: bool = False) -> Workflow:
    """Read the workflow of a DAX file.

    Run times are those of the ``runtime`` attribute, else of profiles, which give cores and memory, too; sizes those of
    the ``size`` attribute or of ``<metadata key="size">``, at the use or at the file. Edges are those of ``<child>``
    and ``<parent>``, and those that files imply.

    Args:
        text: The file's content.
        file: Its name, for messages.
        lenient: Accept sizes and run times below zero, as `WorkflowBuilder` says.
        declared_edges: Keep the declared edges only.

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
    reader = _DaxReader(builder, elements)
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
        stack.append(element)

    def words(data: str) -> None:
        if stack and data.strip():
            stack[-1][1]["#"] = stack[-1][1].get("#", "") + data

    def end(_name: str) -> None:
        element = stack.pop()
        if len(stack) == 1:
            done.append(element)

    def refused(*_: Any) -> None:
        raise builder.fail("it declares entities, which are not read", parser.CurrentLineNumber)

    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, words
    parser.EntityDeclHandler = refused  # a file of a few lines could grow to gigabytes
    try:
        parser.ParseFile(io.BytesIO(text))
    except expat.ExpatError as error:
        raise builder.fail(f"it is no XML: {expat.errors.messages[error.code]}", error.lineno) from None
    yield from done


def _needed(builder: WorkflowBuilder, attributes: dict[str, str], key: str, name: str, line: int) -> str:
    if not attributes.get(key):
        raise builder.fail(f"<{name}> has no {key}", line)
    return attributes[key]


class _DaxReader:
    """Reads the jobs of a document, with the catalogues within it."""

    def __init__(self, builder: WorkflowBuilder, elements: Sequence[_Element]) -> None:
        self._builder = builder
        self._sizes: dict[str, int] = {}
        self._programs: dict[tuple[str, ...], ProfileLevel] = {}
        self._made: set[str] = set()
        for kind, given, children, line in elements[1:]:
            if kind == "file":
                size = self._size(given, children, line)
                if size is not None:
                    self._sizes[given.get("name", "")] = size
            elif kind == "executable":
                self._programs[_key(given)] = _profiles(children)
        for _, _, children, _ in _jobs(elements[1:]):
            uses = (use for inner, use, _, _ in children if inner == "uses")
            self._made.update(_name(use) for use in uses if _link(use) in ("output", "inout"))

    def job(self, element: _Element) -> None:
        """Add one job."""
        kind, attributes, children, line = element
        builder = self._builder
        if kind != "job":
            builder.note("tasks that are workflows of their own, each taken as one task", attributes.get("id", ""))
        task_id = _needed(builder, attributes, "id", "job", line)
        inputs: dict[str, None] = {}
        outputs: dict[str, None] = {}
        optional: dict[str, None] = {}
        for name, given, inner, place in children:
            if name == "uses":
                self._use(task_id, given, inner, place, (inputs, outputs, optional))
        needs = read_requirements(builder, task_id, (_profiles(children), self._programs.get(_key(attributes), {})))
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
            optional=tuple(name for name in optional if name in inputs),
        )
        builder.task(task, line)

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
        builder.size(name, self._sizes.get(name) if size is None else size, task, output=link == "output", line=line)
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


def _key(given: dict[str, str]) -> tuple[str, ...]:
    return tuple(given.get(part, "") for part in ("namespace", "name", "version"))


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
