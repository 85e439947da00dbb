"""Reads DAGs of HTCondor's DAGMan, with the submit descriptions of their nodes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tradewind.errors import WorkflowError
from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.readers.builder import WorkflowBuilder
from tradewind.workflow.readers.subworkflows import MOST_FILES, check_nesting
from tradewind.workflow.readers.systems.submit_file import SubmittedJob, parse_submit

_NODES = ("JOB", "DATA", "SUBDAG", "SPLICE", "FINAL")
_WITHOUT_MEANING = frozenset(
    ("ABORT-DAG-ON", "CATEGORY", "CONFIG", "DOT", "ENV", "JOBSTATE_LOG", "MAXJOBS", "NODE_STATUS_FILE", "PRE_SKIP",
     "REJECT", "RETRY", "SAVE_POINT_FILE", "SCRIPT", "SET_JOB_ATTR", "DONE")
)  # fmt: skip
"""Commands that change neither the tasks, nor their order, nor what they need."""
_UNREAD = frozenset(("CONNECT", "PIN_IN", "PIN_OUT", "PROVISIONER", "SERVICE"))
"""Commands that do, in ways that are not read."""


def is_dag(text: str) -> bool:
    """True for a text whose first line that is no comment is a command of DAGMan, or one of Pegasus MPI Cluster."""
    for line in text.lstrip("\ufeff").splitlines():
        if line.strip() and not line.strip().startswith("#"):
            words = line.split()
            known = {*_NODES, *_WITHOUT_MEANING, *_UNREAD, "PARENT", "VARS", "INCLUDE", "SUBMIT-DESCRIPTION"}
            if words[0].upper() in known:
                return ":" not in words[0] and len(words) > 1 and words[1] != "=" and not words[0].endswith("=")
            return words[0] in ("TASK", "EDGE") and len(words) > 2
    return False


def read_dag(text: str, file: str, *, lenient: bool = False, declared_edges: bool = False) -> Workflow:
    """Read a DAG.

    Each node is a task. What it needs, its files and its program are those of its submit description, which is found
    in the folder of the DAG or that of ``DIR``; cores are ``request_cpus``, memory ``request_memory``, GPUs and disk
    likewise; its priority is that of ``PRIORITY`` in the DAG, else the job's own. Splices,
    ``SUBDAG EXTERNAL`` and ``INCLUDE`` are opened; a node in a splice or a sub-DAG ``s`` is ``s+node``. A node of
    ``FINAL`` waits for all others.

    Args:
        text: The DAG.
        file: Its path.
        lenient: As `WorkflowBuilder` has it.
        declared_edges: Likewise.

    Raises:
        WorkflowError: A line is none of DAGMan, or names what is not supported; with the line.
    """
    builder = WorkflowBuilder(file, Path(file).name.removesuffix(".gz").rsplit(".", 1)[0], lenient, declared_edges)
    reader = _DagReader(builder)
    reader.read(text, Path(file))
    reader.finish()
    return builder.workflow()


@dataclass
class _Node:
    """A node of a DAG: its first and last tasks are its own, or those of the DAG that it stands for."""

    first: list[str]
    last: list[str]


@dataclass
class _Scope:
    """One DAG file, with the names in it."""

    path: Path
    prefix: str
    folder: Path
    chain: tuple[Path, ...]
    nodes: dict[str, _Node] = field(default_factory=dict)
    macros: dict[str, dict[str, str]] = field(default_factory=dict)
    submitted: dict[str, str] = field(default_factory=dict)
    jobs: list[tuple[str, str, Path, bool, int]] = field(default_factory=list)
    edges: list[tuple[list[str], list[str], int]] = field(default_factory=list)
    final: list[str] = field(default_factory=list)
    priorities: dict[str, int] = field(default_factory=dict)


class _DagReader:
    def __init__(self, builder: WorkflowBuilder) -> None:
        self._builder = builder
        self._missing: list[str] = []
        self._unopened: list[str] = []
        self._several: list[str] = []
        self._expressions: list[str] = []
        self._opened = 0

    def read(self, text: str, path: Path) -> _Node:
        return self._scope(text, _Scope(path, "", path.parent, (path,)), 0)

    def finish(self) -> None:
        """Say what was not found."""
        for what, names in (
            ("submit descriptions that are not there", self._missing),
            ("sub-DAGs that are not there, each taken as one task", self._unopened),
            ("nodes that queue several jobs, each taken as one task", self._several),
            ("requests that are expressions, which are not read", self._expressions),
        ):
            self._builder.note(what, *names)

    def _fail(self, scope: _Scope, message: str, line: int, hint: str | None = None) -> WorkflowError:
        return WorkflowError(message, file=str(scope.path), line=line, hint=hint)

    def _scope(self, text: str, scope: _Scope, level: int) -> _Node:
        self._lines(text, scope, level)
        for name, submit, folder, noop, line in scope.jobs:
            self._task(scope, name, submit, folder, noop, line)
        waits: set[str] = set()
        leads: set[str] = set()
        for parents, children, line in scope.edges:
            for parent in self._named(scope, parents, line):
                for child in self._named(scope, children, line):
                    leads.update(scope.nodes[parent].last)
                    waits.update(scope.nodes[child].first)
                    for before in scope.nodes[parent].last:
                        for after in scope.nodes[child].first:
                            self._builder.edge(before, after, line if level == 0 else None)
        inner = [node for name, node in scope.nodes.items() if name not in scope.final]
        first = [task for node in inner for task in node.first if task not in waits]
        last = [task for node in inner for task in node.last if task not in leads]
        for name in scope.final:
            for task in last:
                self._builder.edge(task, scope.nodes[name].first[0])
        return _Node(first, [task for name in scope.final for task in scope.nodes[name].last] or last)

    def _named(self, scope: _Scope, names: Sequence[str], line: int) -> list[str]:
        if [name.upper() for name in names] == ["ALL_NODES"]:
            return [name for name in scope.nodes if name not in scope.final]
        for name in names:
            if name not in scope.nodes:
                raise self._fail(scope, f"PARENT or CHILD names node {name!r}, which is not there", line)
        return list(names)

    def _lines(self, text: str, scope: _Scope, level: int) -> None:
        lines = text.lstrip("\ufeff").splitlines()
        place = 0
        while place < len(lines):
            line, number = lines[place].strip(), place + 1
            place += 1
            while line.endswith("\\") and place < len(lines):
                line = line[:-1] + " " + lines[place].strip()
                place += 1
            if not line or line.startswith("#"):
                continue
            block = None
            if line.endswith("{"):
                end = next((at for at in range(place, len(lines)) if lines[at].strip() == "}"), None)
                if end is None:
                    raise self._fail(scope, "a submit description in { has no }", number)
                block, place, line = "\n".join(lines[place:end]), end + 1, line[:-1].strip()
            self._command(scope, line, block, number, level)

    def _command(self, scope: _Scope, line: str, block: str | None, number: int, level: int) -> None:
        words = line.split()
        command = words[0].upper()
        if command in ("TASK", "EDGE"):
            raise self._fail(scope, "it is a DAG of Pegasus MPI Cluster (TASK, EDGE), which is not read", number,
                             "give the workflow that Pegasus made it of")  # fmt: skip
        if command in _UNREAD:
            raise self._fail(scope, f"{command} of DAGMan is not supported", number, "take it out to read the rest")
        if command in _WITHOUT_MEANING:
            return
        readers: dict[str, Callable[[], None]] = {
            "PARENT": lambda: self._edges(scope, words, number),
            "VARS": lambda: self._vars(scope, line, number),
            "INCLUDE": lambda: self._include(scope, words, number, level),
            "PRIORITY": lambda: self._priority(scope, words, number),
            "SUBMIT-DESCRIPTION": lambda: scope.submitted.update({words[1]: block or ""}),
        }
        if command in _NODES:
            self._node(scope, words, block, number, level)
        elif command in readers and len(words) > 1:
            readers[command]()
        else:
            raise self._fail(scope, f"it is no command of DAGMan: {line[:60]!r}", number)

    def _node(self, scope: _Scope, words: list[str], block: str | None, number: int, level: int) -> None:
        command = words[0].upper()
        if command == "SUBDAG":
            del words[1:2]
        if len(words) < (2 if block is not None else 3):
            raise self._fail(scope, f"{command} has no name and file", number)
        name = words[1]
        if name in scope.nodes:
            raise self._fail(scope, f"there are two nodes {name!r}", number)
        upper = [word.upper() for word in words]
        folder = scope.folder / words[upper.index("DIR", 2) + 1] if "DIR" in upper[2:-1] else scope.folder
        if command in ("SPLICE", "SUBDAG"):
            scope.nodes[name] = self._inner(scope, name, folder / words[2], folder, command, number, level)
            return
        if block is not None:
            scope.submitted[f"\n{name}"] = block
        submit = f"\n{name}" if block is not None else words[2]
        scope.jobs.append((name, submit, folder, "NOOP" in upper[2:], number))
        scope.nodes[name] = _Node([scope.prefix + name], [scope.prefix + name])
        if command == "FINAL":
            scope.final.append(name)

    def _inner(
        self, scope: _Scope, name: str, path: Path, folder: Path, command: str, number: int, level: int
    ) -> _Node:
        if not path.is_file():
            if command == "SPLICE":
                raise self._fail(scope, f"there is no file {path} of SPLICE {name!r}", number)
            self._unopened.append(name)
            self._builder.note("tasks without a run time, which count as 0 s", scope.prefix + name)
            self._builder.task(Task(scope.prefix + name, "subdag", 0.0, subworkflow=path.name), number)
            return _Node([scope.prefix + name], [scope.prefix + name])
        chain = self._open(scope.chain, path)
        return self._scope(_text(path), _Scope(path, f"{scope.prefix}{name}+", folder, chain), level + 1)

    def _open(self, outer: tuple[Path, ...], path: Path) -> tuple[Path, ...]:
        self._opened += 1
        if self._opened > MOST_FILES:
            raise WorkflowError(f"it names more than {MOST_FILES:,} files of DAGs", file=self._builder.file)
        return check_nesting(outer, path)

    def _edges(self, scope: _Scope, words: list[str], number: int) -> None:
        child = next((place for place, word in enumerate(words) if word.upper() == "CHILD"), 0)
        if child < 2 or child == len(words) - 1:
            raise self._fail(scope, "PARENT names no parents and children", number, "write PARENT a b CHILD c d")
        scope.edges.append((words[1:child], words[child + 1 :], number))

    def _vars(self, scope: _Scope, line: str, number: int) -> None:
        try:
            name, *rest = shlex.split(line)[1:]
        except ValueError:
            raise self._fail(scope, "quotes of VARS are not closed", number) from None
        given = scope.macros.setdefault(name, {})
        given.update((key.lower(), value) for key, _, value in (word.partition("=") for word in rest) if key)

    def _priority(self, scope: _Scope, words: list[str], number: int) -> None:
        if len(words) < 3 or not re.fullmatch(r"[+-]?\d{1,9}", words[2]):
            raise self._fail(scope, "PRIORITY has no whole number", number, "write PRIORITY node 10")
        scope.priorities[words[1]] = int(words[2])

    def _include(self, scope: _Scope, words: list[str], number: int, level: int) -> None:
        path = scope.folder / words[1]
        if not path.is_file():
            raise self._fail(scope, f"there is no file {path} to INCLUDE", number)
        outer, scope.chain = scope.chain, self._open(scope.chain, path)
        self._lines(_text(path), scope, level + 1)
        scope.chain = outer

    def _task(self, scope: _Scope, name: str, submit: str, folder: Path, noop: bool, line: int) -> None:
        builder = self._builder
        text = scope.submitted.get(submit)
        path = folder / submit if text is None else None
        if path is not None and path.is_file():
            text = _text(path)
        if text is None:
            self._missing.append(submit)
            builder.note("tasks without a run time, which count as 0 s", scope.prefix + name)
            builder.task(Task(scope.prefix + name, _activity(name), 0.0), line)
            return
        macros = {**scope.macros.get("ALL_NODES", {}), **scope.macros.get(name, {}), "job": name}
        inside = folder.is_relative_to(scope.folder)
        below = "" if folder == scope.folder else str(folder.relative_to(scope.folder) if inside else folder)
        job = parse_submit(text, macros, below)
        if job.jobs > 1:
            self._several.append(name)
        self._expressions += [f"{each} of {name}" for each in job.expressions]
        if job.runtime is None and not noop:
            time = "which count as 0 s" if job.limit is None else "for which their time limit is taken"
            builder.note(f"tasks without a run time, {time}", scope.prefix + (job.task or name))
        words = (job.executable, *job.arguments) if job.executable and not noop else ()
        runtime = 0.0 if noop else job.runtime or job.limit or 0.0
        task_id = scope.prefix + (job.task or name)
        scope.nodes[name] = _Node([task_id], [task_id])
        builder.task(Task(task_id, job.activity or _activity(name), runtime, job.inputs, job.outputs, job.cores,
                          job.memory_bytes, words, gpus=job.gpus, disk_bytes=job.disk_bytes,
                          priority=self._priority_of(scope, name, job)), line)  # fmt: skip
        for names, output in ((job.inputs, False), (job.outputs, True)):
            for each in names:
                builder.size(each, job.sizes.get(each), task_id, output=output)

    @staticmethod
    def _priority_of(scope: _Scope, name: str, job: SubmittedJob) -> int:
        """Of a plan, the numbers in the DAG are its order, and the priorities of tasks are in their descriptions."""
        node = scope.priorities.get(name, scope.priorities.get("ALL_NODES"))
        return (job.priority if job.planned or node is None else node) or 0


def _activity(name: str) -> str:
    return re.sub(r"[_.-]?(ID)?\d+$", "", name) or name


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise WorkflowError(f"cannot read {path}: {error}") from None
