"""The machines of a workflow: their speed, the way of files to them, and their cost."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tradewind.errors import WorkflowError
from tradewind.problem import Billing, Offer, round_money
from tradewind.problem.offer import DISK
from tradewind.utils.units import count, format_memory
from tradewind.workflow.graph import MOST, Demand, Indices, Numbers, Task, Workflow

Storage = Literal["none", "shared", "local"]

Marks = NDArray[np.bool_]

Places = NDArray[np.int64]

Amounts = NDArray[np.int64]
"""Whole numbers in two dimensions: of each task or machine, and of each counted resource."""

MEGABYTE = 1_000_000.0

RESOURCES = ("memory", "GPUs", "disk")
"""Resources of a machine that tasks take amounts of, besides cores; in the order of `Task.amounts`."""


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
        gpus: GPUs, each of which one task has to itself.
        disk_bytes: Bytes of disk for tasks, or None where unknown.
    """

    name: str
    speed: float = 1.0
    slots: int = 1
    price_per_hour: float = 0.0
    kind: str = ""
    boot_seconds: float = 0.0
    memory_bytes: int | None = None
    offer: Offer | None = field(default=None, compare=False, repr=False)
    gpus: int = 0
    disk_bytes: int | None = None

    @property
    def size(self) -> Demand:
        """Cores, bytes of memory, GPUs and bytes of disk; of what is unknown, more than any machine has."""
        memory, disk = (MOST if each is None else min(each, MOST) for each in (self.memory_bytes, self.disk_bytes))
        return self.slots, memory, self.gpus, disk


_NO_GPU = re.compile(r"inferentia|trainium|\btpu|gaudi|fpga|xilinx|alveo|qualcomm|\bu30\b", re.IGNORECASE)
"""Names of accelerators that no program for GPUs runs on."""


def gpus_for_tasks(offer: Offer) -> int:
    """GPUs of one machine of an offer; its accelerators of other kinds (Inferentia, Trainium, TPU) are none."""
    return 0 if _NO_GPU.search(str(offer.facts.get("accelerator", ""))) else offer.gpus


def disk_bytes(offer: Offer) -> int | None:
    """Bytes of disk of one machine of an offer, by its fact ``disk_gib``; None where nobody knows."""
    fact = offer.facts.get(DISK)
    known = isinstance(fact, int | float) and 0 <= fact < math.inf
    return min(int(fact * 2**30), MOST) if known and isinstance(fact, int | float) else None


def _disk_of(vm: Vm) -> int | None:
    return None if vm.offer is None else disk_bytes(vm.offer)


def holds(size: Demand, flow: Workflow) -> int:
    """Count the slots of a machine that can be in use at a time, whatever runs there of the tasks that fit on it.

    Args:
        size: What the machine has, as `Vm.size`.
        flow: The workflow; its tasks may say what they need. Those that need more of anything than the machine has do
            not run there.

    Returns:
        The number of slots; 0 where no task fits.
    """
    return min(_held(size, flow))


def _held(size: Demand, flow: Workflow) -> tuple[int, int, int]:
    """As `holds`, by each of `RESOURCES` alone."""
    slots = size[0]
    if not any(flow.needs[1:]):
        return slots, slots, slots
    fitting = flow.demands[(flow.demands <= np.array(size)).all(axis=1)]
    if not len(fitting):
        return 0, 0, 0
    found = []
    for place in (1, 2, 3):
        # Which tasks meet on a machine is not known: each slot must hold a core of the task that takes the most for
        # one.
        cores, takes = fitting[np.argmax(fitting[:, place] / fitting[:, 0])][[0, place]].tolist()
        found.append(min(slots, size[place] * cores // takes) if takes else slots)
    return found[0], found[1], found[2]


def counted(size: Demand, flow: Workflow) -> tuple[int, tuple[bool, bool, bool]]:
    """Choose the slots with which a machine is planned, and say which `RESOURCES` have to be counted beside them.

    Args:
        size: What the machine has, as `Vm.size`.
        flow: The workflow; its tasks may say what they need.

    Returns:
        All of them where nothing can run out before them, or where tasks take different shares: then what can run out
        is counted. Where all tasks that fit take the same, the slots that the machine holds of them: nothing is lost
        by that. From 0, where no task fits.
    """
    each = _held(size, flow)
    held = min(each)
    if not 0 < held < size[0]:
        return held, (False, False, False)
    if np.count_nonzero((flow.demands <= np.array(size)).all(axis=1)) == 1:
        return held, (False, False, False)
    return size[0], (each[0] < size[0], each[1] < size[0], each[2] < size[0])


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
        """As `classes`, those apart that other tasks fit on, or more of them where something can run out."""
        rooms = self.scarce(flow)[1]
        if self.suits(flow) and not rooms.size:
            return self.classes
        fits = self.fits(flow)
        found: list[tuple[int, ...]] = []
        for alike in self.classes:
            split: dict[tuple[bytes, bytes], list[int]] = {}
            for place in alike:
                split.setdefault((fits[:, place].tobytes(), rooms[place].tobytes()), []).append(place)
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
    def sizes(self) -> Places:
        """Cores, bytes of memory, GPUs and bytes of disk of each machine; shape (machines, 4)."""
        return np.array([vm.size for vm in self.vms], dtype=np.int64)

    @cached_property
    def _least(self) -> tuple[int, ...]:
        return tuple(self.sizes.min(axis=0).tolist())

    def suits(self, flow: Workflow) -> bool:
        """True where every task fits on every machine; quicker than `fits`."""
        return all(takes <= has for takes, has in zip(flow.needs, self._least, strict=True))

    def fits(self, flow: Workflow) -> Marks:
        """Mask of the machines that each task fits on, by all that it needs; shape (tasks, machines).

        A machine whose memory or disk is unknown has enough. Of several tasks that meet there, see `scarce`.
        """
        cores = np.array([task.cores for task in flow.tasks], dtype=np.int64)
        found = cores[:, None] <= self.sizes[:, 0][None, :]
        for place in np.flatnonzero(flow.needs[1:]):
            needs = np.array([task.amounts[place] for task in flow.tasks], dtype=np.int64)
            found &= needs[:, None] <= self.sizes[:, place + 1][None, :]
        return np.asarray(found)

    def check(self, flow: Workflow) -> None:
        """Check that every task fits on some machine.

        Raises:
            WorkflowError: A task needs more of something than any machine has, or no machine has all of it together.
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
        takes = (task.cores, *task.amounts)
        for place in range(4):
            largest = max(self.vms, key=lambda vm: vm.size[place])
            if takes[place] > largest.size[place]:
                needs = f"task {task.id!r} {_verb(place)} {_amount(place, takes[place])}, and no machine has"
                if not largest.size[place]:
                    return f"{needs} any"
                has = _has(place, largest.size[place])
                return f"{needs} as {_MANY[place]}: the largest, {largest.name!r}, has {has}"
        # Each is to be had, and not together: the last one that no machine with those before has.
        able = [*self.vms]
        for place in range(4):
            most = max(able, key=lambda vm: vm.size[place])
            able = [vm for vm in able if vm.size[place] >= takes[place]]
            if not able:
                break
        wanted = [_amount(each, takes[each]) for each in range(4) if takes[each]]
        before = sum(takes[each] > 0 for each in range(place))
        first = "the cores" if before == 1 else "the others"
        return (
            f"task {task.id!r} uses {', '.join(wanted[:-1])} and {wanted[-1]}, and no machine has "
            f"{'both' if len(wanted) == 2 else 'all of it'}: the largest with {first}, {most.name!r}, has "
            f"{_has(place, most.size[place])}"
        )

    def disk_note(self, flow: Workflow) -> str:
        """Say which machines' disk is not known while tasks need some; empty where nothing is to be said.

        Nobody is refused for that: such a machine counts as if it had enough.
        """
        lacking = {vm.kind or vm.name for vm in self.vms if vm.disk_bytes is None and _disk_of(vm) is None}
        if not flow.needs[3] or not lacking:
            return ""
        task = max(flow.tasks, key=lambda each: each.disk_bytes or 0)
        names = sorted(lacking)
        which = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        needs = _amount(3, task.disk_bytes or 0)
        have = "has" if len(names) == 1 else "have"
        return (
            f"task {task.id!r} needs {needs}, and nothing says how much {which} {have}: "
            "it is not checked there; say it with disk of a machine, or a column Disk GiB of a list of offers"
        )

    def misfit(self, flow: Workflow, task: int, vm: int) -> str:
        """Explain that a task does not fit on a machine, in words to follow its name; empty where it fits.

        Args:
            flow: The workflow.
            task: The place of the task.
            vm: The place of the machine.
        """
        it, has = flow.tasks[task], self.vms[vm].size
        for place, takes in enumerate((it.cores, *it.amounts)):
            if takes > has[place]:
                return f"it {_verb(place)} {_amount(place, takes)}, and the machine has {_has(place, has[place])}"
        return ""

    def _can_run_out(self, flow: Workflow) -> tuple[int, ...]:
        """The places in `RESOURCES` of those that tasks which fit by their cores can use up."""
        if not any(flow.needs[1:]):
            return ()
        out = [False, False, False]
        for size in {vm.size for vm in self.vms}:
            each = _held(size, flow)
            if min(each) > 0:
                out = [known or held < size[0] for known, held in zip(out, each, strict=True)]
        return tuple(int(place) for place in np.flatnonzero(out))

    def tight(self, flow: Workflow) -> bool:
        """True where tasks that fit by their cores can be too much for a machine: then the rest is counted, too."""
        return bool(self._can_run_out(flow))

    def scarce(self, flow: Workflow) -> tuple[Amounts, Amounts]:
        """Amounts that each task takes, and that each machine has, of the resources that can run out besides slots.

        Each has a column for each of them, none where the platform is not `tight`; see `scarce_names`.
        """
        places = list(self._can_run_out(flow))
        needs = np.array([task.amounts for task in flow.tasks] if places else [], dtype=np.int64)
        needs = needs[:, places] if places else np.zeros((len(flow), 0), dtype=np.int64)
        return np.ascontiguousarray(needs), np.ascontiguousarray(self.sizes[:, [place + 1 for place in places]])

    def scarce_names(self, flow: Workflow) -> tuple[str, ...]:
        """The names of the columns of `scarce`, as in `RESOURCES`."""
        return tuple(RESOURCES[place] for place in self._can_run_out(flow))

    def holding(self, flow: Workflow) -> Platform:
        """The same machines, those of which all tasks take the same with only the slots that they hold of them.

        Nothing is lost by that, and nothing else need be counted; where tasks differ, it is, see `tight`.

        Raises:
            WorkflowError: A task fits on no machine.
        """
        self.check(flow)
        if not self.tight(flow):
            return self
        vms = tuple(replace(vm, slots=counted(vm.size, flow)[0] or vm.slots) for vm in self.vms)
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


def describe_demand(demand: Demand) -> str:
    """A demand in words: ``2 cores and 4 GiB of memory``."""
    parts = [_amount(place, amount) for place, amount in enumerate(demand) if amount]
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


_MANY = ("many", "much", "many", "much")
"""After cores and `RESOURCES`: as many, as much."""


def _verb(place: int) -> str:
    return "uses" if place in (0, 2) else "needs"


def _has(place: int, amount: int) -> str:
    """The same of a machine, whose resource has been named before."""
    if place in (0, 2):
        return count(amount, "slot" if place == 0 else "GPU") if amount else "none"
    return format_memory(amount)


def _amount(place: int, amount: int) -> str:
    """An amount of cores or of one of `RESOURCES`, in words."""
    if place == 0:
        return count(amount, "core")
    return count(amount, "GPU") if place == 2 else f"{format_memory(amount)} of {RESOURCES[place - 1]}"
