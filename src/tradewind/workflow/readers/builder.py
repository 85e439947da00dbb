"""Builds a workflow from the content of a file, and counts what the file leaves open."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tradewind.errors import WorkflowError
from tradewind.utils.units import shortened
from tradewind.workflow.graph import Task, Workflow

_MOST_BYTES = 1 << 63
"""Bytes that no file has."""

_NAMED, _LONGEST = 4, 60
"""Tasks or files that a warning names, and the characters of each."""


@dataclass
class WorkflowBuilder:
    """Collects tasks, files and edges.

    Decisions, each counted in `Workflow.warnings`:

    - A file that is declared with several sizes has the first one declared for it as an input, else the first.
    - A size or a run time below zero is an error; a lenient reader takes a size without its sign, and a time as 0 s.
    - Of a file without a size nothing is transferred.
    - A task without a run time takes 0 s.
    - A file that a task lists twice counts once. Several producers of one file stay, as the file has them.

    Args:
        file: The file, for messages.
        name: Name of the workflow.
        lenient: True to accept sizes and run times below zero.
        text: The file's content, where lines are not known as it is read: errors look them up.
    """

    file: str
    name: str
    lenient: bool = False
    text: bytes = b""
    tasks: list[Task] = field(default_factory=list)
    lines: list[int | None] = field(default_factory=list)
    _places: dict[str, int] = field(default_factory=dict)
    _edges: list[tuple[str, str, int | None]] = field(default_factory=list)
    _as_input: dict[str, int] = field(default_factory=dict)
    _as_output: dict[str, int] = field(default_factory=dict)
    _declared: dict[str, set[int]] = field(default_factory=dict)
    _unsized: set[str] = field(default_factory=set)
    _counts: Counter[str] = field(default_factory=Counter)
    _noted: dict[str, dict[str, None]] = field(default_factory=dict)

    def fail(
        self, message: str, line: int | None = None, hint: str | None = None, about: str | None = None
    ) -> WorkflowError:
        """Make an error with the place in the file.

        Args:
            message: The mistake.
            line: The line, where it is known.
            hint: Advice what to do about it.
            about: The task or file that it is about, to look for the line.
        """
        if line is None and about is not None:
            line = self.lines[self._places[about]] if about in self._places else None
            line = line or self._line_of(about)
        return WorkflowError(message, file=self.file, line=line, hint=hint)

    def _line_of(self, name: str) -> int | None:
        """The line of a JSON text that gives something this name, or else that names it first."""
        quoted = re.escape(json.dumps(name, ensure_ascii=name.isascii()).encode())
        found = re.search(rb'"(?:id|name)"\s*:\s*(?=' + quoted + b")", self.text) or re.search(quoted, self.text)
        return self.text[: found.end()].count(b"\n") + 1 if found else None

    def task(self, task: Task, line: int | None = None) -> None:
        """Add a task.

        Raises:
            WorkflowError: Its id is taken, or its run time is no time.
        """
        if task.id in self._places:
            raise self.fail(f"there are two tasks {task.id!r}", line, about=task.id)
        if not math.isfinite(task.runtime) or (task.runtime < 0 and not self.lenient):
            words = f"the run time of task {task.id!r} is {task.runtime!r}, not a number of 0 or more"
            hint = "read it with --lenient to take times below zero as 0" if task.runtime < 0 else None
            raise self.fail(words, line, hint, task.id)
        if task.runtime < 0:
            self.count("run times below zero, taken as 0 s")
            task = replace(task, runtime=0.0)
        if task.cores < 1:
            raise self.fail(f"task {task.id!r} uses {task.cores} cores", line, "it uses 1 or more", task.id)
        self._places[task.id] = len(self.tasks)
        self.tasks.append(task)
        self.lines.append(line)

    def size(self, name: str, size: float | None, task: str, *, output: bool, line: int | None = None) -> None:
        """Note the size that a file is declared with at one task.

        Raises:
            WorkflowError: The size is below zero, or no number of bytes.
        """
        if size is None:
            self._unsized.add(name)
            return
        # A reader of JSON passes on what is in the file.
        if not isinstance(size, int | float) or not abs(size) < _MOST_BYTES:
            hint = "a size is a number of bytes"
            raise self.fail(f"file {name!r} of task {task!r} has a size of {size!r}", line, hint, name)
        size = int(size)
        if size < 0 and not self.lenient:
            hint = "a size is 0 or more; read it with --lenient to take sizes without their sign"
            raise self.fail(f"file {name!r} of task {task!r} has a size of {size}", line, hint, name)
        if size < 0:
            self.count("sizes below zero, taken without their sign")
            size = -size
        (self._as_output if output else self._as_input).setdefault(name, size)
        self._declared.setdefault(name, set()).add(size)

    def edge(self, parent: str, child: str, line: int | None = None) -> None:
        """Let one task wait for another; both may be added later."""
        self._edges.append((parent, child, line))

    def count(self, what: str, number: int = 1) -> None:
        """Count something that the user should know of; ``what`` is its plural, and goes before the number."""
        self._counts[what] += number

    def note(self, what: str, *names: str) -> None:
        """Note something that the user should know of, and the tasks or files it is about; ``what`` is its plural."""
        self._noted.setdefault(what, {}).update(dict.fromkeys(names))

    def workflow(self) -> Workflow:
        """Build the workflow.

        Raises:
            WorkflowError: An edge names a task that is not there, a task waits for itself, there is no task, or there
                is a cycle.
        """
        if not self.tasks:
            raise self.fail("there is no task in it")
        parents: list[set[int]] = [set() for _ in self.tasks]
        for parent, child, line in self._edges:
            for name in (parent, child):
                if name not in self._places:
                    raise self.fail(f"an edge names task {name!r}, which is not there", line, about=name)
            if parent == child:
                raise self.fail(f"task {parent!r} waits for itself", line, about=parent)
            parents[self._places[child]].add(self._places[parent])
        sizes = {**self._as_output, **self._as_input}
        conflicts = sum(len(found) > 1 for found in self._declared.values())
        if conflicts:
            self.count("files declared with several sizes, of which the first as an input holds", conflicts)
        unsized = len(self._unsized.difference(sizes))
        if unsized:
            self.count("files without a size, which count as empty", unsized)
        made = Counter(name for task in self.tasks for name in task.outputs)
        several = sum(count > 1 for count in made.values())
        if several:
            self.count("files written by several tasks", several)
        self._implied(parents)
        try:
            return Workflow(
                self.name,
                tuple(self.tasks),
                tuple(tuple(sorted(each)) for each in parents),
                sizes,
                (*(f"{what}: {number}" for what, number in self._counts.items()), *self._warnings()),
            )
        except WorkflowError as error:
            first = error.message.rpartition("circle: ")[2].split(" -> ")[0]
            raise self.fail(error.message, about=first) from None

    def _warnings(self) -> tuple[str, ...]:
        return tuple(f"{what}: {_listed(list(names))}" for what, names in self._noted.items() if names)

    def _implied(self, parents: Sequence[set[int]]) -> None:
        """Count the files that a task reads although it does not wait for the one that writes them."""
        producers: dict[str, list[int]] = {}
        for place, task in enumerate(self.tasks):
            for name in task.outputs:
                producers.setdefault(name, []).append(place)
        missing = 0
        above: dict[int, frozenset[int]] = {}
        for place, task in enumerate(self.tasks):
            for name in task.inputs:
                makers = [maker for maker in producers.get(name, ()) if maker != place]
                if makers and not parents[place].intersection(makers):
                    if place not in above:
                        above[place] = _ancestors(place, parents)
                    missing += not above[place].intersection(makers)
        if missing:
            self.count("files read by tasks that do not wait for the one that writes them", missing)


def _listed(names: Sequence[str]) -> str:
    """Some names, and how many more there are."""
    most = _NAMED if len(names) > _NAMED + 1 else len(names)
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(shortened(name, _LONGEST) for name in names[:most]) + more


def _ancestors(task: int, parents: Sequence[set[int]]) -> frozenset[int]:
    seen: set[int] = set()
    waiting = [task]
    while waiting:
        for parent in parents[waiting.pop()]:
            if parent not in seen:
                seen.add(parent)
                waiting.append(parent)
    return frozenset(seen)
