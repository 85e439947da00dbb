"""A scientific workflow: a graph of tasks, and the files between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tradewind.errors import WorkflowError

Indices = NDArray[np.int32]
Numbers = NDArray[np.float64]

Demand = tuple[int, int, int, int]
"""Cores, bytes of memory, GPUs and bytes of disk."""

MOST = 2**62
"""Amount of anything that no machine has, and that fits into the numbers of arrays."""


_BLOCK = 4096
"""Tasks that `Workflow.waiting` looks for at a time, each a bit of one number."""

_MOST_SECONDS = 1e15
"""Thirty million years: sums of such run times are still exact to the second."""


@dataclass(frozen=True, slots=True)
class Task:
    """One task of a workflow.

    Attributes:
        id: Name of the task, unique within the workflow.
        activity: Kind of the task; tasks of one activity run the same program.
        runtime: Seconds on one core of the reference machine (speed 1).
        inputs: Files that it reads, each once.
        outputs: Files that it writes, each once.
        cores: Cores that it uses at the same time.
        memory_bytes: Memory that it needs, or None where unknown.
        command: The words of its command line, where it is to be run for real; empty otherwise.
        optional: Inputs that may be missing when it is run for real.
        subworkflow: File of the workflow that the task stands for, where it was not there to be opened; else empty.
        gpus: GPUs that it has to itself while it runs.
        disk_bytes: Disk of its machine that it needs while it runs, or None where unknown.
        priority: Of tasks that could start as well as each other, the one of the highest priority goes first.
    """

    id: str
    activity: str
    runtime: float
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    cores: int = 1
    memory_bytes: int | None = None
    command: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    subworkflow: str = ""
    gpus: int = 0
    disk_bytes: int | None = None
    priority: int = 0

    @property
    def amounts(self) -> tuple[int, int, int]:
        """Bytes of memory, GPUs and bytes of disk that it takes; 0 where it does not say."""
        return self.memory_bytes or 0, self.gpus, self.disk_bytes or 0


def _beyond(task: Task) -> str:
    """Name the demand of a task that is too large for the numbers of arrays; empty if none is."""
    if task.cores > MOST:
        return f"uses {task.cores:.3g} cores"
    if (task.memory_bytes or 0) > MOST:
        return f"uses {(task.memory_bytes or 0) / 2**30:.3g} GiB of memory"
    if task.gpus > MOST:
        return f"uses {task.gpus:.3g} GPUs"
    if (task.disk_bytes or 0) > MOST:
        return f"uses {(task.disk_bytes or 0) / 2**30:.3g} GiB of disk"
    if abs(task.priority) > MOST:
        return f"has a priority of {task.priority:.3g}"
    return f"takes {task.runtime:.3g} s" if task.runtime > _MOST_SECONDS else ""


@dataclass(frozen=True)
class Workflow:
    """An acyclic graph of tasks, as arrays over the tasks in the order of the file.

    Attributes:
        name: Name of the workflow.
        tasks: The tasks.
        parents: For each task the tasks that it waits for, sorted.
        sizes: Bytes of each file; each file has one size.
        warnings: Decisions of the reader where the file left something open, in words.
        locations: Paths of files from outside, where they are known.
    """

    name: str
    tasks: tuple[Task, ...]
    parents: tuple[tuple[int, ...], ...]
    sizes: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    locations: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _ = self.order  # a cycle is an error of the input: raise it at once
        for task in self.tasks:
            if why := _beyond(task):
                raise WorkflowError(f"workflow {self.name}: task {task.id!r} {why}", hint="see its unit")

    def __len__(self) -> int:
        return len(self.tasks)

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """For each task the tasks that wait for it, sorted."""
        return _children(self.parents)

    @cached_property
    def order(self) -> Indices:
        """The tasks in an order in which every parent comes before its children.

        Of tasks as far from the beginning, those of a higher priority come first; otherwise they are as in the file.

        Raises:
            WorkflowError: There is a cycle.
        """
        order, waiting = _ordered(self.parents, self.children, self.priorities)
        if len(order) < len(self.tasks):
            names = " -> ".join(self.tasks[place].id for place in _cycle(self.parents, waiting))
            raise WorkflowError(f"workflow {self.name}: its tasks wait for each other in a circle: {names}")
        return np.array(order, dtype=np.int32)

    @cached_property
    def places(self) -> Indices:
        """The place of each task in `order`."""
        places = np.empty(len(self), dtype=np.int32)
        places[self.order] = np.arange(len(self))
        return places

    @cached_property
    def depth(self) -> Indices:
        """For each task the length of the longest path of tasks before it; 0 for those that wait for nothing."""
        depth = np.zeros(len(self), dtype=np.int32)
        for task in self.order:
            for parent in self.parents[task]:
                depth[task] = max(depth[task], depth[parent] + 1)
        return depth

    @cached_property
    def runtimes(self) -> Numbers:
        """Seconds of each task on one core of the reference machine."""
        return np.array([task.runtime for task in self.tasks], dtype=np.float64)

    @cached_property
    def priorities(self) -> tuple[int, ...]:
        """Priority of each task; empty where all have the same."""
        found = tuple(task.priority for task in self.tasks)
        return found if len(set(found)) > 1 else ()

    @cached_property
    def needs(self) -> Demand:
        """The most of everything that any task takes; of cores 1 at least, of others 0 where none says."""
        rows = self.demands
        return tuple(rows.max(axis=0).tolist()) if len(rows) else (1, 0, 0, 0)

    @cached_property
    def demands(self) -> NDArray[np.int64]:
        """Cores and `Task.amounts` that tasks take, each row once, sorted."""
        rows = sorted({(task.cores, *task.amounts) for task in self.tasks})
        return np.array(rows, dtype=np.int64).reshape(-1, 4)

    @cached_property
    def largest(self) -> tuple[Demand, ...]:
        """The `demands` that no other one exceeds in all: where they fit, every task fits."""
        found = np.empty_like(self.demands)
        count = 0
        for row in self.demands[::-1]:
            if not (found[:count] >= row).all(axis=1).any():
                found[count] = row
                count += 1
        return tuple(tuple(row) for row in found[:count].tolist())

    @cached_property
    def densest(self) -> Task | None:
        """The task that needs the most memory for each of its cores; None where none says what it needs."""
        saying = [task for task in self.tasks if task.memory_bytes]
        return max(saying, key=lambda task: (task.memory_bytes or 0) / task.cores, default=None)

    @cached_property
    def edges(self) -> int:
        """Number of pairs of parent and child."""
        return sum(len(parents) for parents in self.parents)

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Number of tasks at each depth."""
        return tuple(int(count) for count in np.bincount(self.depth)) if len(self) else ()

    @cached_property
    def index(self) -> Mapping[str, int]:
        """The place of each task by its id."""
        return {task.id: place for place, task in enumerate(self.tasks)}

    @cached_property
    def real_inputs(self) -> tuple[tuple[str, ...], ...]:
        """For each task the files that it reads and does not write itself."""
        return tuple(tuple(name for name in task.inputs if name not in frozenset(task.outputs)) for task in self.tasks)

    @cached_property
    def input_bytes(self) -> Numbers:
        """Bytes that each task has to be given: of the files that it reads and does not write itself."""
        return np.array([sum(self.sizes.get(name, 0) for name in names) for names in self.real_inputs], dtype=float)

    @cached_property
    def producers(self) -> Mapping[str, tuple[int, ...]]:
        """The tasks that write each file, in the order of the file; usually one."""
        found: dict[str, list[int]] = {}
        for place, task in enumerate(self.tasks):
            for name in task.outputs:
                found.setdefault(name, []).append(place)
        return {name: tuple(places) for name, places in found.items()}

    @cached_property
    def from_outside(self) -> tuple[tuple[str, ...], ...]:
        """For each task the files that it reads and no task before it writes; it may write them itself, in place."""
        return tuple(
            tuple(name for name in task.inputs if not self._made_before(place, self.producers.get(name, ())))
            for place, task in enumerate(self.tasks)
        )

    def _made_before(self, task: int, makers: Sequence[int]) -> bool:
        """True where one of some tasks has ended when a task begins."""
        others = set(makers) - {task}
        seen: set[int] = set()
        waiting = [task] if others else []
        while waiting:
            new = set(self.parents[waiting.pop()]) - seen
            if not others.isdisjoint(new):
                return True
            seen |= new
            waiting.extend(new)
        return False

    @cached_property
    def first_reads(self) -> tuple[tuple[str, ...], ...]:
        """For each task the files that no other task writes, and that others read only after it has ended."""
        readers: dict[str, list[int]] = {}
        for place in self.order.tolist():
            for name in self.real_inputs[place]:
                if name not in self.producers:
                    readers.setdefault(name, []).append(place)
        later = self.waiting({(each[0], place) for each in readers.values() for place in each[1:]})
        found: list[list[str]] = [[] for _ in self.tasks]
        for name, each in readers.items():
            if all((each[0], place) in later for place in each[1:]):
                found[each[0]].append(name)
        return tuple(map(tuple, found))

    def waiting(self, pairs: Set[tuple[int, int]]) -> set[tuple[int, int]]:
        """Find the pairs of tasks of which the second waits for the first, by way of others or not."""
        found: set[tuple[int, int]] = set()
        firsts = sorted({first for first, _ in pairs})
        order: Sequence[int] = self.order.tolist() if firsts else ()
        for begin in range(0, len(firsts), _BLOCK):
            bits = {task: 1 << place for place, task in enumerate(firsts[begin : begin + _BLOCK])}
            above = [0] * len(self)
            for task in order:
                for parent in self.parents[task]:
                    above[task] |= above[parent] | bits.get(parent, 0)
            found.update(pair for pair in pairs if above[pair[1]] & bits.get(pair[0], 0))
        return found

    def critical_path(self, seconds: Sequence[float] | Numbers | None = None) -> tuple[float, tuple[int, ...]]:
        """Find the longest path through the graph.

        Args:
            seconds: Seconds of each task; its run time on the reference machine without it.

        Returns:
            The length of the path in seconds, and its tasks in order.
        """
        weights = self.runtimes if seconds is None else np.asarray(seconds, dtype=np.float64)
        ends = np.zeros(len(self))
        before = np.full(len(self), -1, dtype=np.int32)
        for task in self.order:
            for parent in self.parents[task]:
                if ends[parent] > ends[task]:
                    ends[task], before[task] = ends[parent], parent
            ends[task] += weights[task]
        if not len(self):
            return 0.0, ()
        last = int(np.argmax(ends))
        path = [last]
        while before[path[-1]] >= 0:
            path.append(int(before[path[-1]]))
        return float(ends[last]), tuple(reversed(path))

    def csr(self, lists: Sequence[Sequence[int]]) -> tuple[Indices, Indices]:
        """Lists of tasks as the two arrays of a compressed sparse row matrix: where each begins, and all of them."""
        starts = np.zeros(len(lists) + 1, dtype=np.int32)
        np.cumsum([len(each) for each in lists], out=starts[1:])
        flat = np.fromiter((place for each in lists for place in each), dtype=np.int32, count=int(starts[-1]))
        return starts, flat


def find_cycle(parents: Sequence[Sequence[int]]) -> list[int]:
    """Find tasks that wait for each other in a circle, in their order, the first one again at the end; [] if none."""
    order, waiting = _ordered(parents, _children(parents))
    return _cycle(parents, waiting) if len(order) < len(parents) else []


def _children(parents: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    found: list[list[int]] = [[] for _ in parents]
    for child, each in enumerate(parents):
        for parent in each:
            found[parent].append(child)
    return tuple(tuple(each) for each in found)


def _ordered(
    parents: Sequence[Sequence[int]], children: Sequence[Sequence[int]], priorities: Sequence[int] = ()
) -> tuple[list[int], list[int]]:
    """Tasks in an order in which parents come first, without those on or after a cycle; and what each waits for."""
    key = (lambda task: (-priorities[task], task)) if priorities else None
    waiting = [len(each) for each in parents]
    ready = sorted((task for task, count in enumerate(waiting) if not count), key=key)
    order: list[int] = []
    while ready:
        following: list[int] = []
        for task in ready:
            order.append(task)
            for child in children[task]:
                waiting[child] -= 1
                if not waiting[child]:
                    following.append(child)
        ready = sorted(following, key=key)
    return order, waiting


def _cycle(parents: Sequence[Sequence[int]], waiting: Sequence[int]) -> list[int]:
    """One cycle among the tasks that could not be ordered."""
    task = next(place for place, count in enumerate(waiting) if count)
    seen: dict[int, int] = {}
    path: list[int] = []
    while task not in seen:
        seen[task] = len(path)
        path.append(task)
        task = next(parent for parent in parents[task] if waiting[parent])
    return [*reversed(path[seen[task] :]), path[-1]]
