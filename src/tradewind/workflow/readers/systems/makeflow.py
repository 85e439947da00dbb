"""Reads Makeflow: its rules in the syntax of make, and in JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from tradewind.errors import WorkflowError
from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.readers.builder import WorkflowBuilder
from tradewind.workflow.readers.subworkflows import SubworkflowOpener, WorkflowOpener

_VARIABLE = re.compile(r"\$(?:\$|\((\w+)\)|\{(\w+)\}|(\w+))")
_ASSIGNED = re.compile(r"(?:export\s+)?\s*(?:\.MAKEFLOW\s+)?(\w+)\s*(\+?=)\s*(.*)")
_RULE = re.compile(r"(?P<outputs>[^:]*?(?::(?!\s|$)[^:]*?)*?)\s*:(?:\s+(?P<inputs>.*))?")
_METRIC = re.compile(r"(\d{1,15}(?:\.\d+)?)([KMGTPkmgtp]?)[Bb]?")
"""A size as Makeflow writes it: units are powers of 1024."""

_MEBIBYTE = 2**20


@dataclass
class MakeflowRule:
    """One rule.

    Attributes:
        command: Its command, without ``LOCAL``.
        inputs: Files that it reads.
        outputs: Files that it writes.
        line: Its line; None in JSON.
        resources: What it takes, by Makeflow's names in capitals: ``CORES``, ``MEMORY`` in MiB.
        inner: File of the Makeflow that it stands for; empty for a command.
    """

    command: str
    inputs: list[str]
    outputs: list[str]
    line: int | None = None
    resources: dict[str, str] = field(default_factory=dict)
    inner: str = ""


def is_makeflow(text: str) -> bool:
    """True for a text with a rule: a line of files with a colon, and a command behind a tab on the next line."""
    head = text[:200_000]
    return (
        re.search(r"^(?![ \t#])[^\n]*\S[ \t]*:(?=\s)[^\n]*\n(?:[ \t]*#[^\n]*\n)*\t[ \t]*[^\s#]", head, re.M) is not None
    )


def read_makeflow(
    text: str,
    file: str,
    *,
    lenient: bool = False,
    declared_edges: bool = False,
    opener: WorkflowOpener | None = None,
) -> Workflow:
    """Read a Makeflow. A task is called as its first output; it waits for those that write its inputs.

    A rule that runs another Makeflow is the tasks of that one, where its file is there.

    Args:
        text: The text.
        file: Its path, for messages and the workflow's name.
        lenient: As `WorkflowBuilder` has it.
        declared_edges: Likewise.
        opener: Opens the Makeflows in it; one of its own without it.

    Raises:
        WorkflowError: A line is no rule, two rules write one file, or rules wait for each other; with the line.
    """
    builder = WorkflowBuilder(file, _stem(file), lenient, declared_edges)
    parser = _MakeflowParser(builder)
    return _workflow(builder, parser.rules(text), opener or _opener(builder), parser.sizes)


def read_makeflow_json(
    document: Mapping[str, Any],
    file: str,
    *,
    lenient: bool = False,
    declared_edges: bool = False,
    opener: WorkflowOpener | None = None,
) -> Workflow:
    """Read a Makeflow in JSON, as ``makeflow --json`` takes it and ``jx2json`` writes it; see `read_makeflow`.

    Args:
        document: The document.
        file: Its path, for messages and the workflow's name.
        lenient: As `WorkflowBuilder` has it.
        declared_edges: Likewise.
        opener: Opens the Makeflows in it; one of its own without it.

    Raises:
        WorkflowError: It is not as Makeflow has it, or its rules wait for each other.
    """
    builder = WorkflowBuilder(file, _stem(file), lenient, declared_edges)
    rules = document.get("rules")
    if not isinstance(rules, list) or not all(isinstance(rule, Mapping) for rule in rules):
        raise builder.fail("its 'rules' are no list of mappings")
    categories = document.get("categories")
    found = []
    for number, rule in enumerate(rules, 1):
        command = rule.get("command", "")
        inner = rule.get("workflow", rule.get("makeflow", ""))
        if not isinstance(inner, str):
            inner = str(inner.get("path", f"rule {number}")) if isinstance(inner, Mapping) else f"rule {number}"
        if not isinstance(command, str):
            raise builder.fail(f"the command of rule {number} is no text")
        category = categories.get(rule.get("category"), {}) if isinstance(categories, Mapping) else {}
        resources: dict[str, str] = {}
        for given in (category.get("resources") if isinstance(category, Mapping) else None, rule.get("resources")):
            if isinstance(given, Mapping):
                resources |= {str(key).upper(): str(value) for key, value in given.items()}
        inputs = _files(builder, rule, number, "inputs")
        outputs = _files(builder, rule, number, "outputs" if "outputs" in rule else "output")
        found.append(MakeflowRule(command, inputs, outputs, None, resources, inner))
    return _workflow(builder, found, opener or _opener(builder), {})


def _files(builder: WorkflowBuilder, rule: Mapping[str, Any], number: int, key: str) -> list[str]:
    given = rule.get(key, [])
    found = []
    for each in given if isinstance(given, list) else [given]:
        name = each.get("dag_name", each.get("path")) if isinstance(each, Mapping) else each
        if not isinstance(name, str) or not name:
            raise builder.fail(f"{key} of rule {number} has {each!r}, which names no file")
        found.append(name)
    return found


def _stem(file: str) -> str:
    return Path(file).name.removesuffix(".gz").rsplit(".", 1)[0]


class _MakeflowParser:
    def __init__(self, builder: WorkflowBuilder) -> None:
        self._builder = builder
        self._variables: dict[str, str] = {}
        self._category = ""
        self._by_category: dict[str, dict[str, str]] = {}
        self.sizes: dict[str, float] = {}

    def rules(self, text: str) -> list[MakeflowRule]:
        """The rules of a text, in its order."""
        found: list[MakeflowRule] = []
        head: tuple[list[str], list[str], int, dict[str, str]] | None = None
        for number, line in _lines(text):
            if line.startswith("\t") or (head is not None and line.startswith(" ")):
                if head is None:
                    raise self._builder.fail(f"a command has no rule before it: {line.strip()[:60]!r}", number)
                outputs, inputs, at, own = head
                if _ASSIGNED.fullmatch(line.strip().removeprefix("@")) and line.strip().startswith("@"):
                    self._assign(line.strip().removeprefix("@"), own)
                    continue
                if self._directive(line, number, own):
                    continue
                command, inner = self._command(line)
                found.append(MakeflowRule(command, inputs, outputs, at, {**self._resources(), **own}, inner))
                head = None
                continue
            if head is not None:
                raise self._builder.fail("a rule has no command", head[2], "write it on the next line, behind a tab")
            if _ASSIGNED.fullmatch(line.strip()):
                self._assign(line.strip(), self._variables)
            elif self._directive(line, number, self._variables) or line.split()[0] == "export":
                continue
            else:
                head = self._head(line, number)
        if head is not None:
            raise self._builder.fail("a rule has no command", head[2], "write it on the next line, behind a tab")
        return found

    def _directive(self, line: str, number: int, into: dict[str, str]) -> bool:
        """True for a line that begins with a directive: ``.SIZE data 5G``, ``.MAKEFLOW CORES 2``, ``.UMBRELA``.

        Raises:
            WorkflowError: It is none that Makeflow has, or says no size; with the line.
        """
        words = line.split()
        name, *rest = words
        if not re.fullmatch(r"\.[A-Z]+", name) or ":" in words or any(word.endswith(":") for word in words):
            return False  # such as a rule that makes files of these names
        if name == ".MAKEFLOW" and len(rest) > 1 and rest[0] == "SIZE":
            name, rest = ".SIZE", rest[1:]
        if name == ".SIZE":
            size = _METRIC.fullmatch(rest[1]) if len(rest) == 2 else None
            if size is None:
                raise self._builder.fail(f"{line.strip()[:60]!r} says no size of a file", number, "write .SIZE data 5G")
            self.sizes[self._expanded(rest[0])] = float(size[1]) * 1024.0 ** " KMGTP".index(size[2].upper() or " ")
        elif name == ".MAKEFLOW" and len(rest) == 2:
            self._assign(f"{rest[0]}={rest[1]}", into)
        elif name not in (".MAKEFLOW", ".UMBRELA", ".UMBRELLA"):
            raise self._builder.fail(f"{name} is no directive of Makeflow: {line.strip()[:60]!r}", number)
        return True

    def _head(self, line: str, number: int) -> tuple[list[str], list[str], int, dict[str, str]]:
        found = _RULE.fullmatch(line.strip())
        if found is None:
            raise self._builder.fail(f"it is no rule of Makeflow: {line.strip()[:60]!r}", number)
        outputs, inputs = self._names(found["outputs"]), self._names(found["inputs"] or "")
        if not outputs:
            raise self._builder.fail("a rule has no output", number)
        return outputs, inputs, number, {}

    def _assign(self, line: str, into: dict[str, str]) -> None:
        found = _ASSIGNED.fullmatch(line)
        if found is None:
            return
        name, sign, value = found[1], found[2], found[3].strip()
        value = value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value
        value = self._expanded(value)
        if name in ("CATEGORY", "MAKEFLOW_CATEGORY"):
            self._category = value
        elif into is self._variables and name in ("CORES", "MEMORY", "DISK", "GPUS"):
            self._by_category.setdefault(self._category, {})[name] = value
        into[name] = f"{into.get(name, '')} {value}".strip() if sign == "+=" else value

    def _resources(self) -> dict[str, str]:
        return self._by_category.get(self._category, {})

    def _names(self, text: str) -> list[str]:
        names = self._expanded(text).split()
        # The name of a file here and its name for the task: local->remote.
        return [name.partition("->")[0] for name in names]

    def _command(self, line: str) -> tuple[str, str]:
        """The command of a rule; or the file of the Makeflow that it runs."""
        command = line.strip()
        first, _, rest = command.partition(" ")
        if first == "MAKEFLOW":
            return "", (self._expanded(rest).split() or [command])[0]
        return self._expanded(rest.strip() if first == "LOCAL" else command), ""

    def _expanded(self, text: str) -> str:
        """A text with the variables that are set; others are the shell's."""

        def value(found: re.Match[str]) -> str:
            name = found[1] or found[2] or found[3]
            return "$" if name is None else self._variables.get(name, found[0])

        return _VARIABLE.sub(value, text)


def _lines(text: str) -> list[tuple[int, str]]:
    """Lines with something in them, of which those that end with a backslash are joined."""
    found: list[tuple[int, str]] = []
    before, begun = "", 0
    for number, raw in enumerate(text.lstrip("\ufeff").splitlines(), 1):
        line = before + (raw.strip() if before else raw.rstrip())
        begun = begun if before else number
        before = ""
        if line.endswith("\\"):
            before = line[:-1].rstrip() + " "
        elif line.strip() and not line.lstrip().startswith("#"):
            found.append((begun, line))
    return found


def _opener(builder: WorkflowBuilder) -> WorkflowOpener:
    """Make what opens the Makeflows within one."""

    def read(path: Path, _: Path | None, opener: WorkflowOpener) -> Workflow:
        text = _text(path)
        lenient, declared = builder.lenient, builder.declared_edges
        if text.lstrip().startswith("{"):
            return read_makeflow_json(
                json.loads(text), str(path), lenient=lenient, declared_edges=declared, opener=opener
            )
        return read_makeflow(text, str(path), lenient=lenient, declared_edges=declared, opener=opener)

    return SubworkflowOpener(read, (Path(builder.file),))


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise WorkflowError(f"cannot read {path}: {error}") from None


def _opened(builder: WorkflowBuilder, rule: MakeflowRule, task_id: str, opener: WorkflowOpener) -> bool:
    """Add the tasks of the Makeflow that a rule runs, where its file is there and needs no evaluation."""
    path = Path(builder.file).parent / rule.inner
    readable = path.is_file()
    if readable and _text(path).lstrip().startswith("{"):
        try:
            json.loads(_text(path))
        except (ValueError, RecursionError):
            readable = False
    if not readable:
        builder.note("tasks that are workflows of their own, each taken as one task", task_id)
        return False
    builder.include(task_id, opener(path), rule.line, inputs=[each for each in rule.inputs if each != rule.inner],
                    outputs=rule.outputs)  # fmt: skip
    return True


def _workflow(
    builder: WorkflowBuilder, rules: list[MakeflowRule], opener: WorkflowOpener, sizes: Mapping[str, float]
) -> Workflow:
    writers: dict[str, str] = {}
    for number, rule in enumerate(rules, 1):
        task_id = rule.outputs[0] if rule.outputs else f"rule {number}"
        for name in rule.outputs:
            if name in writers:
                raise builder.fail(f"two rules write file {name!r}", rule.line)
            writers[name] = task_id
        if rule.inner and _opened(builder, rule, task_id, opener):
            continue
        inputs, outputs = tuple(dict.fromkeys(rule.inputs)), tuple(dict.fromkeys(rule.outputs))
        builder.note("tasks without a run time, which count as 0 s", task_id)
        memory, disk = _number(builder, rule, "MEMORY"), _number(builder, rule, "DISK")
        words = ("/bin/sh", "-c", rule.command) if rule.command else ()
        builder.task(Task(task_id, _activity(rule.command, task_id), 0.0, inputs, outputs,
                          max(1, int(_number(builder, rule, "CORES"))), int(memory * _MEBIBYTE) or None, words,
                          subworkflow=rule.inner, gpus=int(_number(builder, rule, "GPUS")),
                          disk_bytes=int(disk * _MEBIBYTE) or None), rule.line)  # fmt: skip
        for names, output in ((inputs, False), (outputs, True)):
            for name in names:
                builder.size(name, sizes.get(name), task_id, output=output)
    for number, rule in enumerate(rules, 1):
        for name in rule.inputs:
            if name in writers:
                reader = rule.outputs[0] if rule.outputs else f"rule {number}"
                builder.edge(writers[name], reader, rule.line, by_file=name)
    return builder.workflow()


def _number(builder: WorkflowBuilder, rule: MakeflowRule, key: str) -> float:
    text = rule.resources.get(key, "0")
    if not re.fullmatch(r"\d{1,15}(\.\d+)?", text):
        raise builder.fail(f"{key} is {text!r}, not a number", rule.line)
    return float(text)


def _activity(command: str, task_id: str) -> str:
    """The program of a command."""
    words = command.split()
    interpreters = ("perl", "python", "python3", "sh", "bash", "Rscript", "java")
    if len(words) > 1 and words[0] in interpreters and not words[1].startswith("-"):
        words = words[1:]
    return (PurePosixPath(words[0]).name if words else "") or task_id
