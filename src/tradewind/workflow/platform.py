"""The machines of a workflow: how fast they are, how files reach them, and what they cost."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np

from tradewind.errors import WorkflowError
from tradewind.problem import Billing, round_money
from tradewind.units import count, format_memory
from tradewind.workflow.graph import Indices, Numbers, Workflow

Storage = Literal["none", "shared", "local"]

MEGABYTE = 1_000_000.0


@dataclass(frozen=True, slots=True)
class Vm:
    """One machine that tasks run on.

    Attributes:
        name: Its name, unique on its platform.
        speed: Speed of one core; 1 is the machine that run times are for.
        slots: Cores, each of which runs one task, or a share of a task of several cores.
        price_per_hour: USD for the whole machine.
        kind: Its instance type; machines of one kind are alike.
        boot_seconds: Seconds from its order until it can run a task; they are paid.
        memory_bytes: Its memory, or None where unknown; `Platform.holding` turns it into slots.
    """

    name: str
    speed: float = 1.0
    slots: int = 1
    price_per_hour: float = 0.0
    kind: str = ""
    boot_seconds: float = 0.0
    memory_bytes: int | None = None


def holds(slots: int, memory_bytes: float, flow: Workflow) -> int:
    """How many of a machine's slots can be in use at a time whatever tasks run there; 0 where one task does not fit.

    Args:
        slots: Its cores.
        memory_bytes: Its memory.
        flow: The workflow; its tasks may say what memory they need.
    """
    if flow.densest is None:
        return slots
    # Which tasks meet on a machine is not known: each slot must hold a core of the task that takes the most for one.
    return min(slots, int(memory_bytes * flow.densest.cores // (flow.densest.memory_bytes or 1)))


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
            system. ``local``: a file lies where it was written, and is fetched once by each machine that reads it;
            files that no task writes come from outside.
        bandwidth: MB/s (10⁶ bytes) at which one machine reads; there is no contention.
        latency: Seconds for each file that is read.
        billing: How the time of a machine becomes money.
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

    def reading(self, flow: Workflow) -> Numbers:
        """Seconds that each task reads before it runs, under shared storage; without it, zero.

        Under local storage what is read depends on where files lie; see `transfers`.
        """
        if self.storage != "shared":
            return np.zeros(len(flow))
        files = np.array([len(names) for names in flow.real_inputs])
        return np.asarray(flow.input_bytes / MEGABYTE / self.bandwidth + files * self.latency)

    def fetching(self, size: int) -> float:
        """Seconds that a machine takes to fetch one file of so many bytes."""
        return size / MEGABYTE / self.bandwidth + self.latency

    def local_files(self, flow: Workflow) -> tuple[Indices, Indices, Indices, Indices, Numbers]:
        """What tasks read and what they write under local storage, by number, and the seconds to fetch each file.

        Returns:
            Where the files that each task reads begin, and those files; the same for those that it writes; and the
            seconds of each. Nothing is read or written where storage is not local.
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

    def check(self, flow: Workflow) -> None:
        """See that every task fits on some machine.

        Raises:
            WorkflowError: One uses more cores than any machine has, or more memory than one of them has.
        """
        self._check_memory(flow)
        most = max(vm.slots for vm in self.vms)
        for task in flow.tasks:
            if task.cores > most:
                raise WorkflowError(
                    f"task {task.id!r} uses {count(task.cores, 'core')}, and no machine has as many",
                    hint="give larger machines, or read the workflow with one core a task",
                )

    def _check_memory(self, flow: Workflow) -> None:
        # Planners know slots, not memory: a machine that is too small for one task cannot be there for the others.
        for vm in self.vms if flow.densest else ():
            if vm.memory_bytes is not None and holds(vm.slots, vm.memory_bytes, flow) < 1:
                assert flow.densest is not None
                task, needs = flow.densest, format_memory(flow.densest.memory_bytes or 0)
                several = f" for its {task.cores} cores" if task.cores > 1 else ""
                raise WorkflowError(
                    f"task {task.id!r} needs {needs} of memory{several}, and machine {vm.name!r} has "
                    f"{format_memory(vm.memory_bytes)}",
                    hint="give larger machines, and none that is too small for a task",
                )

    def holding(self, flow: Workflow) -> Platform:
        """The same machines, each with no more slots than its memory holds: whatever runs there at a time fits.

        Args:
            flow: The workflow; where its tasks do not say what they need, and of a machine whose memory is unknown,
                slots stay as they are.

        Raises:
            WorkflowError: A machine does not hold some task, or no machine has the slots for one any more.
        """
        if flow.densest is None or all(vm.memory_bytes is None for vm in self.vms):
            return self
        self._check_memory(flow)
        vms = tuple(
            vm if vm.memory_bytes is None else replace(vm, slots=holds(vm.slots, vm.memory_bytes, flow))
            for vm in self.vms
        )
        before, after = (max(vm.slots for vm in each) for each in (self.vms, vms))
        if before >= flow.needs[0] > after:
            raise WorkflowError(
                f"a task uses {flow.needs[0]} cores, and no machine has the memory to run as many tasks like "
                f"{flow.densest.id!r} at a time",
                hint="give machines with more memory: which tasks meet on a machine is not known",
            )
        return replace(self, vms=vms)

    def seconds(self, flow: Workflow) -> Numbers:
        """Seconds of each task on each machine, reading from shared storage included; shape (tasks, machines).

        Raises:
            WorkflowError: A task fits on no machine.
        """
        self.check(flow)
        return np.asarray(flow.runtimes[:, None] / self.speeds[None, :] + self.reading(flow)[:, None])

    def cost(self, busy: Numbers) -> float:
        """USD for machines that are kept for so many seconds each; one that is never used costs nothing."""
        each = (
            self.billing.cost(float(seconds) + vm.boot_seconds, vm.price_per_hour)
            for seconds, vm in zip(busy, self.vms, strict=True)
            if seconds > 0
        )
        return round_money(sum(each))
