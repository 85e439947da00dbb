"""Turns a workflow and its machines into the arrays of the list-scheduling loops, and orders its tasks.

`SlotArrays` serves tasks of one core (`tradewind.workflow.kernel_plain`), `MachineArrays` tasks of several cores and
files on machines (`tradewind.workflow.kernel_general`).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tradewind.workflow.graph import Indices, Numbers, Workflow
from tradewind.workflow.platform import Platform
from tradewind.workflow.schedule import Schedule

Ints = NDArray[np.integer[Any]]
"""Whole numbers of any size, one dimension."""


def mean_of_fitting(seconds: Numbers) -> Numbers:
    """The mean of each row over what is not infinite."""
    mean = np.asarray(seconds.mean(axis=1))
    if np.isfinite(mean).all():
        return mean
    fits = np.isfinite(seconds)
    return np.asarray(np.where(fits, seconds, 0.0).sum(axis=1) / fits.sum(axis=1))


class LocalSearchState:
    """State of a local search over priorities.

    Args:
        ranks: The priorities to begin with.
        makespan: Makespan of the plan that they give.
        seed: Seed of the random changes.

    Attributes:
        now: Priorities and leanings to fast machines that the next change begins with; shape (2, tasks).
        best: The best ones so far.
        past: The makespan of ``now``, that of ``best``, and the turn of the last gain.
        turn: Number of changes that were tried.
        state: State of the random numbers.
    """

    def __init__(self, ranks: Numbers, makespan: float, seed: int) -> None:
        self.now = np.stack([ranks, np.zeros_like(ranks)])
        self.best = self.now.copy()
        self.past = np.array([makespan, makespan, 0.0])
        self.turn = 0
        self.state = np.array([1 + seed * 7919 % 2147483646])


class SlotArrays:
    """A workflow and its machines as arrays: a lane is a slot of a machine.

    Args:
        flow: The workflow; each of its tasks uses one core.
        platform: The machines that its tasks run on.

    Attributes:
        seconds: Seconds of each task on each machine, infinite where it does not fit; shape (tasks, machines).
    """

    def __init__(self, flow: Workflow, platform: Platform) -> None:
        self.flow, self.platform = flow, platform
        self.seconds = platform.seconds(flow)
        self._parent_starts, self._parents = flow.csr(flow.parents)
        self._child_starts, self._children = flow.csr(flow.children)
        self._waiting = np.diff(self._parent_starts)
        self._vm = np.repeat(np.arange(len(platform.vms)), [vm.slots for vm in platform.vms])
        self._ready_at = np.array([platform.vms[vm].boot_seconds for vm in self._vm])

    def mean_ranks(self) -> Numbers:
        """The upward rank of each task: the longest path to the end, at the mean over the lanes that each fits on."""
        return self.ranks(mean_of_fitting(self.seconds[:, self._vm]))

    def ranks(self, weights: Numbers) -> Numbers:
        """The longest path from each task to the end, its own weight included."""
        from tradewind.workflow import kernel_plain

        return kernel_plain.upward_ranks(self.flow.order, self._child_starts, self._children, weights)

    def place(self, sequence: Indices, lean: Numbers | None = None) -> Schedule:
        """Place the tasks of a sequence one after the other where each ends first, gaps included.

        Args:
            sequence: Parents before children.
            lean: Leaning of each task to fast machines, see `tradewind.workflow.kernel_plain.insert_all`; None for
                no leaning.
        """
        from tradewind.workflow import kernel_plain

        leaning = np.zeros(len(self.flow)) if lean is None else lean
        lane, start, finish = kernel_plain.insert_all(
            sequence, self._parent_starts, self._parents, self.seconds, self._vm, self._ready_at, leaning
        )
        return Schedule(self._vm[lane].astype(np.int32), start, finish)

    def simulate(self, keys: Numbers, preference: Indices) -> Schedule:
        """Simulate an online policy: the ready task of the smallest key goes to the first idle machine listed.

        Every task must fit on every machine.
        """
        from tradewind.workflow import kernel_plain

        rank = np.empty(len(self.platform.vms), dtype=np.int64)
        rank[preference] = np.arange(len(preference))
        lanes = np.lexsort((np.arange(len(self._vm)), rank[self._vm]))
        lane, start, finish = kernel_plain.simulate_online(
            self._child_starts, self._children, self._waiting, self.seconds, keys, self._vm, lanes, self._ready_at
        )
        return Schedule(self._vm[lane].astype(np.int32), start, finish)

    def climb(self, search: LocalSearchState, goal: float, turns: int) -> None:
        """Change priorities and leanings at random; see `tradewind.workflow.kernel_plain.climb`."""
        from tradewind.workflow import kernel_plain

        search.turn = kernel_plain.climb(
            self.flow.order, self._child_starts, self._children, self._parent_starts, self._parents, self.seconds,
            self._vm, self._ready_at, search.now, search.best, search.past, goal, turns, search.turn, search.state,
        )  # fmt: skip


def by_rank(flow: Workflow, ranks: Numbers) -> Indices:
    """The tasks in descending order of ranks that never rise from parent to child; of equal ones, parents first."""
    return np.lexsort((flow.places, -ranks)).astype(np.int32)


def by_priority(flow: Workflow, priorities: Numbers) -> Indices:
    """At each step, of the tasks whose parents were taken, the one of the highest priority; ties by arrival."""
    left = [len(parents) for parents in flow.parents]
    heap = [(-priorities[task], int(flow.places[task]), task) for task, count in enumerate(left) if not count]
    heapq.heapify(heap)
    found: list[int] = []
    while heap:
        task = heapq.heappop(heap)[2]
        found.append(task)
        for child in flow.children[task]:
            left[child] -= 1
            if not left[child]:
                heapq.heappush(heap, (-priorities[child], int(flow.places[child]), child))
    return np.array(found, dtype=np.int32)


def above_children(flow: Workflow, ranks: Numbers) -> Numbers:
    """Ranks of which none is below a child's."""
    for task in flow.order[::-1]:
        for child in flow.children[task]:
            ranks[task] = max(ranks[task], ranks[child])
    return ranks


def is_plain(flow: Workflow, platform: Platform) -> bool:
    """True when every task uses one core and nothing else that could run out, wherever files are."""
    return platform.storage != "local" and flow.needs[0] == 1 and not platform.tight(flow)


class MachineArrays:
    """A workflow and its machines as arrays.

    In all schedules machines run their tasks in order, each as soon as it can, like a run that follows a plan in
    `tradewind.workflow.simulator.reference`.

    Args:
        flow: The workflow.
        platform: The machines that its tasks run on.

    Attributes:
        seconds: Seconds of each task on each machine, infinite where it does not fit; what is fetched under local
            storage is left out; shape (tasks, machines).

    Raises:
        WorkflowError: A task fits on no machine.
    """

    def __init__(self, flow: Workflow, platform: Platform) -> None:
        self.flow, self.platform = flow, platform
        self._slots = np.array([vm.slots for vm in platform.vms], dtype=np.int64)
        amounts, rooms = platform.scarce(flow)
        self._needs = np.array([task.cores for task in flow.tasks], dtype=np.int64), amounts
        self._sizes = self._slots, rooms
        self.seconds = platform.seconds(flow)
        self._ready_at = np.array([vm.boot_seconds for vm in platform.vms])
        self._parents = flow.csr(flow.parents)
        self._children = flow.csr(flow.children)
        self._nothing = np.zeros_like(self.seconds)

    @cached_property
    def _files(self) -> tuple[Indices, Indices, Indices, Indices, Numbers]:
        return self.platform.local_files(self.flow)

    def _local(self) -> tuple[Ints, Ints, Ints, Ints, Numbers, Numbers]:
        """The files, and where they are: at first on no machine."""
        return *self._files, np.full((len(self._files[4]), len(self._slots)), np.inf)

    @cached_property
    def sending(self) -> Numbers:
        """Seconds that the files from a task to each of its children need between two machines; one an edge."""
        if self.platform.storage != "local":
            return np.zeros(len(self._children[1]))
        flow = self.flow
        inputs = [frozenset(names) for names in flow.real_inputs]
        return np.array(
            [
                sum(self.platform.fetching(flow.sizes.get(name, 0)) for name in task.outputs if name in inputs[child])
                for task, children in zip(flow.tasks, flow.children, strict=True)
                for child in children
            ],
            dtype=np.float64,  # without files each is the number 0: whole numbers would be compiled for anew
        )

    def longest(self) -> Numbers:
        """As `seconds`, with the time to fetch every file that a task reads under local storage."""
        if self.platform.storage != "local":
            return self.seconds
        sizes = self.flow.sizes
        fetching = [
            sum(self.platform.fetching(sizes.get(name, 0)) for name in names) for names in self.flow.real_inputs
        ]
        return np.asarray(self.seconds + np.array(fetching)[:, None])

    @cached_property
    def means(self) -> Numbers:
        """Mean seconds of each task over the slots that it may run on."""
        weights = np.where(np.isfinite(self.seconds), self._slots[None, :], 0)
        total = np.where(weights > 0, self.seconds, 0.0) * weights
        return np.asarray(total.sum(axis=1) / weights.sum(axis=1))

    def upward(self, weights: Numbers) -> Numbers:
        """The longest way from each task to the end, its own weight and the files on the way included."""
        starts, children = self._children
        ranks = np.zeros(len(self.flow))
        for task in self.flow.order[::-1]:
            below = slice(starts[task], starts[task + 1])
            ranks[task] = weights[task] + max((ranks[children[below]] + self.sending[below]), default=0.0)
        return ranks

    def downward(self, weights: Numbers) -> Numbers:
        """The longest way from the beginning to each task, itself left out."""
        starts, children = self._children
        ranks = np.zeros(len(self.flow))
        for task in self.flow.order:
            for at in range(starts[task], starts[task + 1]):
                ranks[children[at]] = max(ranks[children[at]], ranks[task] + weights[task] + self.sending[at])
        return ranks

    def cost_table(self) -> Numbers:
        """PEFT's optimistic cost table; see `tradewind.workflow.kernel_bounds.cost_table`."""
        from tradewind.workflow import kernel_bounds

        return kernel_bounds.cost_table(self.flow.order, *self._children, self.sending, self.seconds)

    def insert(self, sequence: Ints, bonus: Numbers | None = None) -> Schedule:
        """Place the tasks of a sequence one after the other where each ends first, gaps included.

        Args:
            sequence: Parents before children.
            bonus: Added to a task's end where machines are compared; infinite where it must not go.
        """
        from tradewind.workflow import kernel_general

        return self._settled(
            *kernel_general.insert_general(
                sequence, *self._parents, self.seconds, self._nothing if bonus is None else bonus, self._needs,
                self._sizes, self._ready_at, self._local(),
            )
        )  # fmt: skip

    def append(self, sequence: Ints, given: Sequence[int] | Ints | None = None) -> Schedule:
        """Place tasks one after the other behind what is on each machine, where each ends first or where it is given.

        Args:
            sequence: Parents before children.
            given: The machine of each task, or -1 where it is chosen.
        """
        machines = np.full(len(self.flow), -1) if given is None else np.asarray(given)
        return self._settled(*self._append(sequence, machines, in_turn=False))

    def _append(self, sequence: Ints, given: Ints, *, in_turn: bool) -> tuple[Ints, Numbers, Numbers]:
        from tradewind.workflow import kernel_general

        return kernel_general.append_all(
            sequence, *self._parents, self.seconds, given.astype(np.int64), in_turn, self._needs, self._sizes,
            self._ready_at, self._local(),
        )  # fmt: skip

    def batch(self, rule: int) -> Schedule:
        """Place the tasks by a rule for batches; see `tradewind.workflow.kernel_general.batch_all`."""
        from tradewind.workflow import kernel_general

        waiting = np.diff(self._parents[0])
        return self._settled(
            *kernel_general.batch_all(
                rule, self.flow.places, *self._children, waiting, self.seconds, self._needs, self._sizes,
                self._ready_at, self._local(),
            )
        )  # fmt: skip

    def follow(self, schedule: Schedule) -> Schedule:
        """The same machines and order, each task as soon as it can: a file may have come earlier than was thought."""
        vm, start, finish = self._append(schedule.sequence(self.flow), schedule.vm, in_turn=True)
        return Schedule(vm.astype(np.int32), start, finish)

    def _settled(self, vm: Ints, start: Numbers, finish: Numbers) -> Schedule:
        return self.follow(Schedule(vm.astype(np.int32), start, finish))
