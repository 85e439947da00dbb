"""Reads Pegasus DAX files, versions 2.1 to 3.6, with or without their XML namespace."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.readers.builder import WorkflowBuilder


def read_dax(text: bytes, file: str, *, lenient: bool = False) -> Workflow:
    """Read the workflow of a DAX file.

    Run times are those of the ``runtime`` attribute, or of a ``<profile key="runtime">``; edges are those of
    ``<child>`` and ``<parent>``.

    Args:
        text: The file's content.
        file: Its name, for messages.
        lenient: Accept sizes and run times below zero, as `WorkflowBuilder` says.

    Raises:
        WorkflowError: The text is no DAX file, or something in it is wrong; with the line.
    """
    builder = WorkflowBuilder(file, Path(file).name.removesuffix(".gz").rsplit(".", 1)[0], lenient)
    root = True
    for name, attributes, children, line in _elements(text, builder):
        if root:
            if name != "adag":
                raise builder.fail(f"it is no DAX file: the first element is <{name}>, not <adag>", line)
            root = False
        elif name in ("job", "dag", "dax"):
            if name != "job":
                builder.count("tasks that are workflows of their own, each taken as one task")
            _job(builder, attributes, children, line)
        elif name == "child":
            for kind, given, _, place in children:
                if kind == "parent":
                    builder.edge(_needed(builder, given, "ref", kind, place), attributes.get("ref", ""), place)
    if root:
        raise builder.fail("it is empty")
    return builder.workflow()


_Element = tuple[str, dict[str, str], list[Any], int]


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


def _job(builder: WorkflowBuilder, attributes: dict[str, str], children: list[_Element], line: int) -> None:
    task_id = _needed(builder, attributes, "id", "job", line)
    inputs: dict[str, None] = {}
    outputs: dict[str, None] = {}
    runtime, words = attributes.get("runtime"), []
    for name, given, inner, place in children:
        if name == "uses":
            _use(builder, task_id, given, place, inputs, outputs)
        elif name == "profile" and given.get("key") == "runtime":
            runtime = runtime or given.get("#", "").strip()
        elif name == "argument":
            words += given.get("#", "").split()
            words += [each[1].get("name", "") for each in inner]
    if not runtime:
        builder.count("tasks without a run time, which count as 0 s")
    task = Task(
        task_id,
        attributes.get("name") or task_id,
        _number(builder, runtime or "0", f"the run time of task {task_id!r}", line),
        tuple(inputs),
        tuple(outputs),
        _whole(builder, attributes.get("cores") or "1", f"the cores of task {task_id!r}", line),
    )
    builder.task(task, line)


def _use(
    builder: WorkflowBuilder,
    task: str,
    attributes: dict[str, str],
    line: int,
    inputs: dict[str, None],
    outputs: dict[str, None],
) -> None:
    name = attributes.get("file") or attributes.get("name") or ""
    if not name:
        raise builder.fail(f"a <uses> of task {task!r} names no file", line)
    link = attributes.get("link", "input").lower()
    size = attributes.get("size")
    number = None if size is None else _whole(builder, size, f"the size of file {name!r}", line)
    if link == "executable" or attributes.get("executable") == "true":
        return
    listed = outputs if link == "output" else inputs
    if name in listed:
        builder.count("files listed twice by one task, which count once")
    listed[name] = None
    builder.size(name, number, task, output=link == "output", line=line)
    if link == "inout":
        outputs[name] = None


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
