"""Builds a workflow from the content of a file, and names what the file leaves open."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tradewind.errors import WorkflowError
from tradewind.utils.units import listed
from tradewind.workflow.graph import Task, Workflow, find_cycle
from tradewind.workflow.readers.file_edges import implied_edges

_MOST_BYTES = 1 << 63
"""Bytes that no file has."""

_MOST_TASKS = 1_000_000
"""Tasks of a workflow: sub-workflows that hold others several times could come to any number."""

_MOST_WARNINGS = 10
"""Warnings of sub-workflows that are passed on."""

_RECOUNTED = ("files declared with several sizes", "files without a size", "files written by several tasks")
"""Beginnings of warnings about files, which are made anew for a workflow with its sub-workflows."""


@dataclass(frozen=True, slots=True)
class _Group:
    """Tasks that edges may name as one.

    Attributes:
        first: Those that an edge to the group leads to.
        last: Those that an edge from the group comes from.
        inputs: Files that the group as a whole reads.
        outputs: Files that the group as a whole writes.
        inside: Places of its tasks.
    """

    first: tuple[str, ...]
    last: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    inside: range = range(0)


@dataclass
class WorkflowBuilder:
    """Collects tasks, files and edges.

    Decisions, each in `Workflow.warnings` with the tasks or files that it is about:

    - A file that is declared with several sizes has the first one declared for it as an input, else the first.
    - A size or a run time below zero is an error; a lenient reader takes a size without its sign, and a time as 0 s.
    - Of a file without a size nothing is transferred.
    - A task without a run time takes 0 s.
    - A task waits for those that write what it reads, as `implied_edges` says.
    - A file that a task lists twice counts once. Several producers of one file stay, as the file has them.

    Args:
        file: The file, for messages.
        name: Name of the workflow.
        lenient: True to accept sizes and run times below zero.
        declared_edges: True to keep the declared edges only, without those that files imply.
        text: The file's content, where lines are not known as it is read: errors look them up.
    """

    file: str
    name: str
    lenient: bool = False
    declared_edges: bool = False
    text: bytes = b""
    tasks: list[Task] = field(default_factory=list)
    lines: list[int | None] = field(default_factory=list)
    _places: dict[str, int] = field(default_factory=dict)
    _edges: list[tuple[str, str, int | None]] = field(default_factory=list)
    _by_files: dict[tuple[str, str], str] = field(default_factory=dict)
    _as_input: dict[str, int] = field(default_factory=dict)
    _as_output: dict[str, int] = field(default_factory=dict)
    _declared: dict[str, set[int]] = field(default_factory=dict)
    _unsized: set[str] = field(default_factory=set)
    _groups: dict[str, _Group] = field(default_factory=dict)
    _from_inner: dict[str, None] = field(default_factory=dict)
    locations: dict[str, str] = field(default_factory=dict)
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
        if task.id in self._places or (task.id in self._groups and self._groups[task.id].inside):
            before = self.lines[self._places[task.id]] if task.id in self._places else None
            first = f"; the first is in line {before}" if before and line else ""
            twice = f"there are two tasks {task.id!r}"
            raise self.fail(twice, line, f"each needs an id of its own{first}", about=task.id)
        if not math.isfinite(task.runtime) or (task.runtime < 0 and not self.lenient):
            words = f"the run time of task {task.id!r} is {task.runtime!r}, not a number of 0 or more"
            hint = "read it with --lenient to take times below zero as 0" if task.runtime < 0 else None
            raise self.fail(words, line, hint, task.id)
        if task.runtime < 0:
            self.note("tasks with a run time below zero, taken as 0 s", task.id)
            task = replace(task, runtime=0.0)
        if task.cores < 1:
            raise self.fail(f"task {task.id!r} uses {task.cores} cores", line, "it uses 1 or more", task.id)
        if task.gpus < 0:
            raise self.fail(f"task {task.id!r} uses {task.gpus} GPUs", line, "it uses 0 or more", task.id)
        if len(self.tasks) >= _MOST_TASKS:
            raise self.fail(f"with its sub-workflows it has more than {_MOST_TASKS:,} tasks", line)
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
            self.note("files with a size below zero, taken without its sign", name)
            size = -size
        (self._as_output if output else self._as_input).setdefault(name, size)
        self._declared.setdefault(name, set()).add(size)

    def edge(self, parent: str, child: str, line: int | None = None, *, by_file: str | None = None) -> None:
        """Let one task wait for another; both may be added later.

        Args:
            parent: The task to wait for.
            child: The task that waits.
            line: Where the file says so.
            by_file: The file that one writes and the other reads, where that is the reason.
        """
        self._edges.append((parent, child, line))
        if by_file is not None:
            self._by_files.setdefault((parent, child), by_file)

    def group(self, name: str, tasks: Sequence[str]) -> None:
        """Let edges that name ``name`` be edges of all of these tasks."""
        self._groups[name] = _Group(tuple(tasks), tuple(tasks))

    def include(
        self, name: str, inner: Workflow, line: int | None = None, *, inputs: Sequence[str] = (),
        outputs: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """Add the tasks of another workflow in the place of a task.

        Its task ``t`` is ``name/t``. What the whole waits for, its first tasks wait for; what waits for it, waits for
        its last ones.

        Args:
            name: The id of the task that it stands in for; edges may name it.
            inner: The other workflow.
            line: Where the file has it.
            inputs: Files that the whole reads, as the file lists them.
            outputs: Files that the whole writes.

        Raises:
            WorkflowError: The id is taken, or there are too many tasks.
        """
        if name in self._places or name in self._groups:
            raise self.fail(f"there are two tasks {name!r}", line, "each needs an id of its own", about=name)
        begin = len(self.tasks)
        ids = [f"{name}/{task.id}" for task in inner.tasks]
        for task_id, task in zip(ids, inner.tasks, strict=True):
            self.task(replace(task, id=task_id), line)
            self._unsized.update(each for each in (*task.inputs, *task.outputs) if each not in inner.sizes)
        for child, parents in enumerate(inner.parents):
            self._edges.extend((ids[parent], ids[child], line) for parent in parents)
        for each, size in inner.sizes.items():
            self._as_output.setdefault(each, size)
            self._declared.setdefault(each, set()).add(size)
        for each, path in inner.locations.items():
            self.locations.setdefault(each, path)
        first = tuple(ids[place] for place, parents in enumerate(inner.parents) if not parents)
        last = tuple(ids[place] for place, children in enumerate(inner.children) if not children)
        inside = range(begin, len(self.tasks))
        self._groups[name] = _Group(first, last, tuple(inputs), tuple(outputs), inside)
        self._from_inner |= {f"{name}: {each}": None for each in inner.warnings if not each.startswith(_RECOUNTED)}

    def note(self, what: str, *names: str) -> None:
        """Note something that the user should know of, and the tasks or files it is about; ``what`` is its plural."""
        self._noted.setdefault(what, {}).update(dict.fromkeys(names))

    def noted(self, what: str) -> bool:
        """True where something of this kind was noted."""
        return bool(self._noted.get(what))

    def workflow(self) -> Workflow:
        """Build the workflow.

        Raises:
            WorkflowError: An edge names a task that is not there, a task waits for itself, there is no task, or there
                is a cycle.
        """
        if not self.tasks:
            raise self.fail("there is no task in it")
        sizes = {**self._as_output, **self._as_input}
        self.note(
            "files declared with several sizes, of which the first as an input holds",
            *(name for name, found in self._declared.items() if len(found) > 1),
        )
        made = Counter(name for task in self.tasks for name in task.outputs)
        read = {name for task in self.tasks for name in task.inputs}
        if self._groups:  # files that a sub-workflow as a whole lists may be none of its tasks'
            sizes = {name: size for name, size in sizes.items() if name in made or name in read}
            self._unsized = {name for name in self._unsized if name in made or name in read}
        self.note("files without a size, which count as empty", *sorted(self._unsized.difference(sizes)))
        self.note("files written by several tasks", *(name for name, count in made.items() if count > 1))
        parents = self._parents()
        if not self.declared_edges:
            self._edges_of_groups(parents)
        flow = self._made(parents, sizes)
        try:
            implied = implied_edges(flow, some=self.declared_edges)
        except WorkflowError as error:
            raise self.fail(error.message, hint=error.hint) from None
        ids = [task.id for task in self.tasks]
        if implied and self.declared_edges:
            said = [f"{name} by {ids[child]}" for (_, child), name in implied.items()]
            self.note("files read by tasks that do not wait for the one that writes them", *said)
        elif implied:
            for (parent, child), name in implied.items():
                parents[child].add(parent)
                self._by_files[ids[parent], ids[child]] = name
            flow = self._made(parents, sizes)
        locations = {name: path for name, path in self.locations.items() if name in read and name not in made}
        return replace(flow, warnings=self._warnings(), locations=locations)

    def _edges_of_groups(self, parents: list[set[int]]) -> None:
        """Add the edges of files that a sub-workflow as a whole reads or writes."""
        groups = [group for group in self._groups.values() if group.inputs or group.outputs]
        listed = {name for group in groups for name in (*group.inputs, *group.outputs)}
        makers: dict[str, list[int]] = {}
        readers: dict[str, list[int]] = {}
        for place, task in enumerate(self.tasks) if listed else ():
            for names, found in ((task.outputs, makers), (task.inputs, readers)):
                for name in listed.intersection(names):
                    found.setdefault(name, []).append(place)
        for group in groups:
            for name in group.inputs:
                outside = [place for place in makers.get(name, ()) if place not in group.inside]
                self._link(parents, outside, [self._places[task] for task in group.first], name)
            for name in group.outputs:
                if all(place in group.inside for place in makers.get(name, ())):
                    outside = [place for place in readers.get(name, ()) if place not in group.inside]
                    self._link(parents, [self._places[task] for task in group.last], outside, name)

    def _link(self, parents: list[set[int]], before: Sequence[int], after: Sequence[int], name: str) -> None:
        for child in after:
            for parent in before:
                if parent not in parents[child]:
                    parents[child].add(parent)
                    self._by_files[self.tasks[parent].id, self.tasks[child].id] = name

    def _parents(self) -> list[set[int]]:
        """For each task those that it waits for by what the file says."""
        parents: list[set[int]] = [set() for _ in self.tasks]
        edges = self._edges
        if self._groups:
            first = {name: group.first for name, group in self._groups.items() if name not in self._places}
            last = {name: group.last for name, group in self._groups.items() if name not in self._places}
            for parent, child, line in edges:
                if parent == child:
                    raise self.fail(f"task {parent!r} waits for itself", line, about=parent)
            edges = [
                (one, other, line)
                for parent, child, line in edges
                for one in last.get(parent, (parent,))
                for other in first.get(child, (child,))
            ]
        for parent, child, line in edges:
            for name in (parent, child):
                if name not in self._places:
                    raise self.fail(f"an edge names task {name!r}, which is not there", line, about=name)
            if parent == child:
                raise self.fail(f"task {parent!r} waits for itself", line, about=parent)
            parents[self._places[child]].add(self._places[parent])
        return parents

    def _made(self, parents: Sequence[set[int]], sizes: Mapping[str, int]) -> Workflow:
        above = tuple(tuple(sorted(each)) for each in parents)
        try:
            return Workflow(self.name, tuple(self.tasks), above, sizes)
        except WorkflowError as error:
            cycle = [self.tasks[place].id for place in find_cycle(above)]
            if not cycle:
                raise self.fail(error.message, hint=error.hint) from None
            files = [self._by_files.get(pair) for pair in itertools.pairwise(cycle)]
            reasons = ["", *(f" (reads {file!r})" if file is not None else "" for file in files)]
            steps = " -> ".join(map("".join, zip(cycle, reasons, strict=True)))
            words = f"workflow {self.name}: its tasks wait for each other in a circle: {steps}"
            useful = any(files) and not self.declared_edges
            hint = "read it with --declared-edges to leave out what files imply" if useful else None
            raise self.fail(words, hint=hint, about=cycle[0]) from None

    def _warnings(self) -> tuple[str, ...]:
        own = [f"{what}: {listed(list(names))}" for what, names in self._noted.items() if names]
        inner = list(self._from_inner)
        if len(inner) > _MOST_WARNINGS:
            inner[_MOST_WARNINGS:] = [f"and {len(inner) - _MOST_WARNINGS:,} more warnings of sub-workflows"]
        return (*own, *inner)
