"""A workflow and its machines as the arrays of the general loops: tasks of several cores, files on machines."""

from __future__ import annotations

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


def is_plain(flow: Workflow, platform: Platform) -> bool:
    """True when every task uses one core and no memory that could run out, wherever files are."""
    return platform.storage != "local" and flow.needs[0] == 1 and not platform.tight(flow)


class MachineArrays:
    """A workflow and its machines as arrays.

    In all schedules machines run their tasks in order, each as soon as it can, as who follows one does in
    `tradewind.workflow.simulator.reference`.

    Args:
        flow: The workflow.
        platform: Its machines.

    Attributes:
        seconds: Of each task on each machine, infinite where it does not fit; what is fetched under local storage is
            left out; shape (tasks, machines).

    Raises:
        WorkflowError: A task fits on no machine.
    """

    def __init__(self, flow: Workflow, platform: Platform) -> None:
        self.flow, self.platform = flow, platform
        self._slots = np.array([vm.slots for vm in platform.vms], dtype=np.int64)
        needs, rooms = platform.memory(flow)
        self._needs = np.array([task.cores for task in flow.tasks], dtype=np.int64), needs
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
            ]
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
