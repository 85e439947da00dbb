"""The machines of a workflow: their speed, the way of files to them, and their cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tradewind.errors import WorkflowError
from tradewind.problem import Billing, Offer, round_money
from tradewind.utils.units import count, format_memory
from tradewind.workflow.graph import MOST, Indices, Numbers, Task, Workflow

Storage = Literal["none", "shared", "local"]

Marks = NDArray[np.bool_]

Places = NDArray[np.int64]

MEGABYTE = 1_000_000.0


@dataclass(frozen=True, slots=True)
class Vm:
    """One machine that tasks run on.

    Attributes:
        name: Name of the machine, unique on its platform.
        speed: Speed of one core; 1 is the machine that run times are for.
        slots: Cores, each of which runs one task, or a share of a task of several cores.
        price_per_hour: USD for the whole machine.
        kind: Instance type; machines of one kind are alike.
        boot_seconds: Seconds from its order until it can run a task; they are paid.
        memory_bytes: Bytes of memory, or None where unknown.
        offer: Offer that it is bought by, one node of it; None where nothing is known of that.
    """

    name: str
    speed: float = 1.0
    slots: int = 1
    price_per_hour: float = 0.0
    kind: str = ""
    boot_seconds: float = 0.0
    memory_bytes: int | None = None
    offer: Offer | None = field(default=None, compare=False, repr=False)


def holds(slots: int, memory_bytes: float, flow: Workflow) -> int:
    """Count the slots of a machine that can be in use at a time, whatever runs there of the tasks that fit on it.

    Args:
        slots: Cores of the machine.
        memory_bytes: Memory of the machine in bytes.
        flow: The workflow; its tasks may say what memory they need. Those that need more cores or memory than the
            machine has do not run there.

    Returns:
        The number of slots; 0 where no task fits.
    """
    if flow.densest is None:
        return slots
    cores, memory = flow.densest.cores, flow.densest.memory_bytes or 0
    if flow.needs[0] > slots or flow.needs[1] > memory_bytes:
        fitting = flow.demands[(flow.demands[:, 0] <= slots) & (flow.demands[:, 1] <= memory_bytes)]
        if not len(fitting):
            return 0
        cores, memory = fitting[np.argmax(fitting[:, 1] / fitting[:, 0])].tolist()
    # Which tasks meet on a machine is not known: each slot must hold a core of the task that takes the most for one.
    return min(slots, int(memory_bytes * cores // memory)) if memory else slots


def counted(slots: int, memory_bytes: float, flow: Workflow) -> tuple[int, bool]:
    """Choose the slots with which a machine is planned, and say if its memory has to be counted beside them.

    Args:
        slots: Cores of the machine.
        memory_bytes: Memory of the machine in bytes.
        flow: The workflow; its tasks may say what memory they need.

    Returns:
        All of them where memory cannot run out before them, or where tasks take different shares of both: then both
        are counted. Where all tasks that fit take the same, the slots that its memory holds of them: nothing is lost
        by that. From 0, where no task fits.
    """
    held = holds(slots, memory_bytes, flow)
    if not 0 < held < slots:
        return held, False
    cores, needs = flow.demands.T
    alike = np.count_nonzero((cores <= slots) & (needs <= memory_bytes)) == 1
    return (held, False) if alike else (slots, True)


def needs_of_slot(flow: Workflow) -> int:
    """Bytes of memory that each slot of a machine needs so that whatever runs there at a time fits; 0 where none says.

    Args:
        flow: The workflow; its tasks may say what memory they need.
    """
    return 0 if flow.densest is None else -(-(flow.densest.memory_bytes or 0) // flow.densest.cores)


@dataclass(frozen=True)
class Platform:
    """Machines, and the way of files between them.

    Attributes:
        vms: The machines, in order.
        storage: ``none``: files cost nothing. ``shared``: before each task its inputs are read from a common file
            system. ``local``: a file lies where it was written, and is fetched once by each machine that reads it
            (tasks that start there at the same moment all wait for it); files that no task writes come from outside.
        bandwidth: MB/s (10⁶ bytes) at which one machine reads; there is no contention.
        latency: Seconds for each file that is read.
        billing: Rule that turns the time of a machine into money.
    """

    vms: tuple[Vm, ...]
    storage: Storage = "none"
    bandwidth: float = 15.0
    latency: float = 0.0
    billing: Billing = field(default_factory=Billing)

    def __post_init__(self) -> None:
        if not self.vms:
            raise WorkflowError("there is no machine to run the workflow on")
        for name, times in Counter(vm.name for vm in self.vms).items():
            if times > 1:
                raise WorkflowError(f"two machines are called {name!r}")
        for vm in self.vms:
            if not (vm.speed > 0 and vm.slots >= 1 and vm.price_per_hour >= 0 and vm.boot_seconds >= 0):
                raise WorkflowError(
                    f"machine {vm.name!r} has speed {vm.speed:g}, {vm.slots} slots, price {vm.price_per_hour:g}",
                    hint="speed is above 0, slots are 1 or more, price and boot are 0 or more",
                )
        if not (self.bandwidth > 0 and self.latency >= 0):
            raise WorkflowError(f"a bandwidth of {self.bandwidth:g} MB/s and a latency of {self.latency:g} s are none")

    @cached_property
    def speeds(self) -> Numbers:
        """Speed of one core of each machine."""
        return np.array([vm.speed for vm in self.vms])

    @cached_property
    def classes(self) -> tuple[tuple[int, ...], ...]:
        """Machines that are alike to a planner (speed, slots, boot and price), the fastest class first."""
        found: dict[tuple[float, int, float, float], list[int]] = {}
        for place, vm in enumerate(self.vms):
            found.setdefault((-vm.speed, vm.slots, vm.boot_seconds, vm.price_per_hour), []).append(place)
        return tuple(tuple(found[key]) for key in sorted(found))

    def classes_for(self, flow: Workflow) -> tuple[tuple[int, ...], ...]:
        """As `classes`, those apart that other tasks of the workflow fit on, or more of them where memory runs out."""
        tight = self.tight(flow)
        if self.suits(flow) and not tight:
            return self.classes
        fits = self.fits(flow)
        found: list[tuple[int, ...]] = []
        for alike in self.classes:
            split: dict[tuple[bytes, float], list[int]] = {}
            for place in alike:
                memory = _memory(self.vms[place]) if tight else 0.0
                split.setdefault((fits[:, place].tobytes(), memory), []).append(place)
            found += map(tuple, split.values())
        return tuple(found)

    def reading(self, flow: Workflow) -> Numbers:
        """Seconds that each task reads before it runs, under shared storage; without it, zero.

        Under local storage what is read depends on where files lie; see `fetching`.
        """
        if self.storage != "shared":
            return np.zeros(len(flow))
        files = np.array([len(names) for names in flow.real_inputs])
        return np.asarray(flow.input_bytes / MEGABYTE / self.bandwidth + files * self.latency)

    def fetching(self, size: int) -> float:
        """Seconds that a machine takes to fetch one file of so many bytes."""
        return size / MEGABYTE / self.bandwidth + self.latency

    def local_files(self, flow: Workflow) -> tuple[Indices, Indices, Indices, Indices, Numbers]:
        """Number the files that tasks read and write under local storage, with the seconds to fetch each.

        Returns:
            The index at which the files that each task reads begin, and those files; the same for those that it writes;
            and the seconds of each. Nothing is read or written where storage is not local.
        """
        none = np.zeros(len(flow) + 1, dtype=np.int32)
        if self.storage != "local":
            return none, none[:0], none, none[:0], np.zeros(0)
        number: dict[str, int] = {}
        for names in (*flow.real_inputs, *(task.outputs for task in flow.tasks)):
            for name in names:
                number.setdefault(name, len(number))
        fetch = np.array([self.fetching(flow.sizes.get(name, 0)) for name in number])
        reads = flow.csr([[number[name] for name in names] for names in flow.real_inputs])
        writes = flow.csr([[number[name] for name in task.outputs] for task in flow.tasks])
        return *reads, *writes, fetch

    @cached_property
    def _least(self) -> tuple[int, float]:
        return min(vm.slots for vm in self.vms), min(_memory(vm) for vm in self.vms)

    def suits(self, flow: Workflow) -> bool:
        """True where every task fits on every machine; quicker than `fits`."""
        return flow.needs[0] <= self._least[0] and flow.needs[1] <= self._least[1]

    def fits(self, flow: Workflow) -> Marks:
        """Mask of the machines that each task fits on, by its cores and its memory; shape (tasks, machines).

        A machine whose memory is unknown has enough. Of several tasks that meet there, see `tight`.
        """
        cores = np.array([task.cores for task in flow.tasks], dtype=np.int64)
        found = cores[:, None] <= np.array([vm.slots for vm in self.vms])[None, :]
        if flow.densest is not None and any(vm.memory_bytes is not None for vm in self.vms):
            needs = np.array([task.memory_bytes or 0 for task in flow.tasks], dtype=float)
            found &= needs[:, None] <= np.array([_memory(vm) for vm in self.vms])[None, :]
        return np.asarray(found)

    def check(self, flow: Workflow) -> None:
        """Check that every task fits on some machine.

        Raises:
            WorkflowError: A task uses more cores than any machine has, or more memory, or more of both.
        """
        if not self.suits(flow):
            self._check(flow, self.fits(flow))

    def _check(self, flow: Workflow, fits: Marks) -> None:
        lost = np.flatnonzero(~fits.any(axis=1))
        if len(lost):
            raise WorkflowError(
                self._nowhere(flow.tasks[lost[0]]),
                hint="give a larger machine",
            )

    def _nowhere(self, task: Task) -> str:
        """Explain that a task fits on no machine, with its needs and the largest machine."""
        memory = task.memory_bytes or 0
        needs = f"task {task.id!r} uses {count(task.cores, 'core')}"
        able = [vm for vm in self.vms if vm.slots >= task.cores]
        if not able:
            widest = max(self.vms, key=lambda vm: vm.slots)
            return (
                f"{needs}, and no machine has as many: the largest, {widest.name!r}, has {count(widest.slots, 'slot')}"
            )
        largest = max(self.vms, key=_memory)
        if memory > _memory(largest):
            has = format_memory(largest.memory_bytes or 0)
            needs = f"task {task.id!r} needs {format_memory(memory)} of memory"
            return f"{needs}, and no machine has as much: the largest, {largest.name!r}, has {has}"
        most = max(able, key=_memory)
        return (
            f"{needs} and {format_memory(memory)} of memory, and no machine has both: the largest with the cores, "
            f"{most.name!r}, has {format_memory(most.memory_bytes or 0)}"
        )

    def misfit(self, flow: Workflow, task: int, vm: int) -> str:
        """Explain that a task does not fit on a machine, in words to follow its name; empty where it fits.

        Args:
            flow: The workflow.
            task: The place of the task.
            vm: The place of the machine.
        """
        it, machine = flow.tasks[task], self.vms[vm]
        if it.cores > machine.slots:
            return f"it uses {count(it.cores, 'core')}, and the machine has {count(machine.slots, 'slot')}"
        if (it.memory_bytes or 0) > _memory(machine):
            has = format_memory(machine.memory_bytes or 0)
            return f"it needs {format_memory(it.memory_bytes or 0)} of memory, and the machine has {has}"
        return ""

    def tight(self, flow: Workflow) -> bool:
        """True where tasks that fit by their cores can be too much for a machine's memory: then both are counted."""
        if flow.densest is None:
            return False
        known = {(vm.slots, vm.memory_bytes) for vm in self.vms if vm.memory_bytes is not None}
        return any(0 < holds(slots, memory, flow) < slots for slots, memory in known)

    def memory(self, flow: Workflow) -> tuple[Places, Places]:
        """Bytes of memory that each task takes, and that each machine has; all zero where it is not `tight`."""
        if not self.tight(flow):
            return np.zeros(len(flow), dtype=np.int64), np.zeros(len(self.vms), dtype=np.int64)
        needs = [task.memory_bytes or 0 for task in flow.tasks]
        return np.array(needs, dtype=np.int64), np.array(self.memories, dtype=np.int64)

    @cached_property
    def memories(self) -> tuple[int, ...]:
        """Bytes of memory of each machine; more than any has where it is unknown."""
        return tuple(MOST if vm.memory_bytes is None else min(vm.memory_bytes, MOST) for vm in self.vms)

    def holding(self, flow: Workflow) -> Platform:
        """The same machines, those of which all tasks take the same with only the slots that their memory holds.

        Nothing is lost by that, and memory need not be counted; where tasks differ, it is, see `tight`.

        Raises:
            WorkflowError: A task fits on no machine.
        """
        self.check(flow)
        if not self.tight(flow):
            return self
        vms = tuple(
            replace(vm, slots=counted(vm.slots, memory, flow)[0] or vm.slots)
            for vm, memory in zip(self.vms, self.memories, strict=True)
        )
        return replace(self, vms=vms)

    def seconds(self, flow: Workflow) -> Numbers:
        """Seconds of each task on each machine, reading from shared storage included; shape (tasks, machines).

        Infinite where a task does not fit: whoever takes the machine where a task ends first never takes that one.

        Raises:
            WorkflowError: A task fits on no machine.
        """
        times = self.times(flow)
        if self.suits(flow):
            return times
        fits = self.fits(flow)
        self._check(flow, fits)
        return np.where(fits, times, np.inf)

    def times(self, flow: Workflow) -> Numbers:
        """As `seconds`, of each task on each machine as if it fitted there."""
        return np.asarray(flow.runtimes[:, None] / self.speeds[None, :] + self.reading(flow)[:, None])

    def cost(self, busy: Numbers) -> float:
        """USD for machines that are kept for so many seconds each; one that is never used costs nothing."""
        return self.bill((vm, float(seconds)) for vm, seconds in enumerate(busy) if seconds > 0)

    def bill(self, stays: Iterable[tuple[int, float]]) -> float:
        """USD for stays of machines, each with its own start and its own bill.

        Args:
            stays: Pairs of a machine and the seconds that it was there from the end of its start on.
        """
        each = (self.billing.cost(s + self.vms[vm].boot_seconds, self.vms[vm].price_per_hour) for vm, s in stays)
        return round_money(sum(each))


def _memory(vm: Vm) -> float:
    """Bytes of memory of a machine; without end where it is unknown."""
    return float("inf") if vm.memory_bytes is None else vm.memory_bytes
