"""Turns offers of the catalogue into machines of a workflow, and bounds the time and cost of a set of them."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from tradewind.errors import WorkflowError
from tradewind.problem import Billing, Offer, round_money
from tradewind.utils.units import count
from tradewind.workflow.graph import MOST, Demand, Numbers, Workflow
from tradewind.workflow.platform import (
    RESOURCES,
    Marks,
    Platform,
    Storage,
    Vm,
    counted,
    describe_demand,
    disk_bytes,
    gpus_for_tasks,
    holds,
)

SPEED = "speed"
"""The fact of an offer that says how fast one of its vCPUs is."""

_JUST = 1e-9
"""Seconds that a machine is kept at least: one without any use costs its minimum, too."""

_POWERS = (4.0, 1.2, 1.5, 2.0, 3.0, 6.0, 10.0, 30.0)
"""Powers of the mean that makes a makespan of the path and the work; the first one before anything is known."""


@dataclass(frozen=True)
class MachineAssumptions:
    """Assumptions that turn offers into machines of a workflow: speeds, slots, start and files.

    Attributes:
        speeds: Speed of one vCPU by instance type, family or pattern of types; the first that fits counts, in this
            order. Without one it is the offer's fact ``speed``, else 1: the machine that run times are for.
        slots: Cores of a machine that tasks may use; its vCPUs without it. What runs there fits into its memory and
            its GPUs, too.
        boot_seconds: Seconds from the order of a machine until it can run a task.
        storage: As in `Platform`.
        bandwidth: MB/s, as in `Platform`.
        latency: Seconds, as in `Platform`.
        billing: Rule that turns time into money.
    """

    speeds: Mapping[str, float] = field(default_factory=dict)
    slots: int | None = None
    boot_seconds: float = 0.0
    storage: Storage = "none"
    bandwidth: float = 15.0
    latency: float = 0.0
    billing: Billing = field(default_factory=Billing)

    def speed(self, offer: Offer) -> float:
        """Speed of one vCPU of an offer.

        Raises:
            WorkflowError: Its fact ``speed`` is no number above 0.
        """
        for name in (offer.instance_type, offer.family):
            if name and name in self.speeds:
                return self.speeds[name]
        for pattern, factor in self.speeds.items():
            if fnmatch.fnmatchcase(offer.instance_type, pattern):
                return factor
        fact = offer.facts.get(SPEED, 1.0)
        if not (isinstance(fact, int | float) and 0 < fact < math.inf):
            raise WorkflowError(f"the speed of {offer.instance_type} is {fact!r}", hint="it is a number above 0")
        return float(fact)

    def known(self, offer: Offer) -> bool:
        """True when the speed of an offer is stated."""
        by_pattern = any(fnmatch.fnmatchcase(offer.instance_type, pattern) for pattern in self.speeds)
        return by_pattern or offer.family in self.speeds or SPEED in offer.facts

    def room(self, offer: Offer, flow: Workflow) -> int:
        """Slots of one machine of an offer; 0 where a task does not fit it."""
        return self.some_room(offer, flow) if all(self.takes(offer, flow)) else 0

    def some_room(self, offer: Offer, flow: Workflow) -> int:
        """Slots of one machine of an offer for the tasks that fit it; 0 where none does."""
        return counted(self.size(offer), flow)[0]

    def sure_room(self, offer: Offer, flow: Workflow) -> int:
        """Slots of one machine of an offer that can be in use at a time whatever runs there; 0 where nothing does."""
        return holds(self.size(offer), flow)

    def amounts(self, offer: Offer, flow: Workflow) -> tuple[float, float, float]:
        """Bytes of memory, GPUs and bytes of disk of one machine; those without end that need not be counted."""
        each = zip(self.size(offer)[1:], counted(self.size(offer), flow)[1], strict=True)
        memory, gpus, disk = (float(has) if matters and has < MOST else math.inf for has, matters in each)
        return memory, gpus, disk

    def size(self, offer: Offer) -> Demand:
        """Slots, bytes of memory, GPUs and bytes of disk of one machine; of what is unknown, more than any has."""
        cores = int(offer.vcpu) if self.slots is None else self.slots
        memory, disk = int(offer.memory_gib * 2**30) or MOST, disk_bytes(offer)
        return cores, memory, gpus_for_tasks(offer), MOST if disk is None else disk

    def takes(self, offer: Offer, flow: Workflow) -> tuple[bool, ...]:
        """Mask of the `Workflow.largest` demands that fit one machine of an offer: with all, every task does."""
        return tuple(self.takes_one(offer, flow, demand) for demand in flow.largest)

    def takes_one(self, offer: Offer, flow: Workflow, demand: Demand) -> bool:
        """True where a task of such a demand fits one machine of an offer."""
        has = (self.some_room(offer, flow), *self.size(offer)[1:])
        return all(needs <= there for needs, there in zip(demand, has, strict=True))

    def fitting(self, offer: Offer, flow: Workflow) -> Marks:
        """Mask of the `Workflow.demands` that fit one machine of an offer."""
        has = (self.some_room(offer, flow), *self.size(offer)[1:])
        return np.asarray((flow.demands <= np.array(has)).all(axis=1))

    def platform(self, offer: Offer, flow: Workflow) -> Platform:
        """Make the machines of an offer, as many as it has nodes.

        Raises:
            WorkflowError: A task of the workflow fits none of them.
        """
        if not self.room(offer, flow):
            gpus = f" and {count(gpus_for_tasks(offer), 'GPU')}" if flow.needs[2] else ""
            has = f"{offer.vcpu:g} vCPU and {offer.memory_gib:g} GiB{gpus}"
            raise WorkflowError(f"a task needs {describe_demand(flow.needs)}, and {offer.instance_type} has {has}")
        return self.together((offer,), flow)

    def together(self, offers: Sequence[Offer], flow: Workflow) -> Platform:
        """Make the machines of several offers as one set, of each as many as it has nodes.

        Where some tasks do not fit some of them, or memory or disk is counted, the machines say what they have of it.

        Raises:
            WorkflowError: A task of the workflow fits the machines of none of them.
        """
        said = not all(self.room(offer, flow) and min(self.amounts(offer, flow)) == math.inf for offer in offers)
        vms = tuple(vm for offer in offers for vm in self._vms(offer, flow, said=said))
        platform = Platform(vms, self.storage, self.bandwidth, self.latency, self.billing)
        platform.check(flow)
        return platform

    def _vms(self, offer: Offer, flow: Workflow, *, said: bool) -> tuple[Vm, ...]:
        one = offer.times(1)
        return tuple(
            Vm(
                name=f"{offer.instance_type}-{place + 1}",
                speed=self.speed(offer),
                slots=self.some_room(offer, flow),
                price_per_hour=offer.price_per_hour,
                kind=offer.instance_type,
                boot_seconds=self.boot_seconds,
                memory_bytes=int(offer.memory_gib * 2**30) if said and offer.memory_gib else None,
                offer=one,
                gpus=gpus_for_tasks(offer),
                disk_bytes=disk_bytes(offer) if said else None,
            )
            for place in range(offer.nodes)
        )


def kept_cost(platform: Platform, makespan: float) -> float:
    """USD for machines that are all kept from their order until the workflow has ended.

    Args:
        platform: The machines.
        makespan: Seconds from the order to the end of the last task.
    """
    return platform.cost(np.array([max(makespan - vm.boot_seconds, _JUST) for vm in platform.vms]))


def worth_trying(
    offers: Sequence[Offer], flow: Workflow, terms: MachineAssumptions, *, partly: bool = False
) -> list[Offer]:
    """Pick the offers that can be part of a best set: the cheapest of each speed, number of slots, memory and the rest.

    Machines with the same of all run the same schedule, so nothing is lost. Slots beyond the cores of all tasks
    together are none, and so is memory beyond theirs, or where it is not counted; GPUs and disk likewise.

    Args:
        offers: One node each.
        flow: The workflow.
        terms: Assumptions that turn offers into machines.
        partly: Take those that only some tasks fit, too; machines alike are then those that the same tasks fit.

    Returns:
        The offers, the smallest first; none where no task would fit.
    """
    most, all_amounts = sum(task.cores for task in flow.tasks), amounts_of_all(flow)
    found: dict[tuple[float, int, tuple[float, ...], bytes], Offer] = {}
    for offer in sorted(offers, key=lambda each: (each.price_per_hour, each.key)):
        slots = terms.some_room(offer, flow) if partly else terms.room(offer, flow)
        if slots:
            amounts = tuple(map(min, terms.amounts(offer, flow), all_amounts))
            key = terms.speed(offer), min(slots, most), amounts, terms.fitting(offer, flow).tobytes()
            found.setdefault(key, offer)
    return [found[key] for key in sorted(found, key=lambda key: (key[1], key[0], key[2]))]


def amounts_of_all(flow: Workflow) -> tuple[int, int, int]:
    """Bytes of memory, GPUs and bytes of disk that all tasks of a workflow take together."""
    memory, gpus, disk = (sum(each) for each in zip((0, 0, 0), *(task.amounts for task in flow.tasks), strict=True))
    return memory, gpus, disk


class MachineSetBounds:
    """Lower bounds of the time and the cost of a workflow on sets of machines, for any planner.

    A makespan is at least the longest path at the set's speed, and all work over all slots, or all that tasks hold of
    memory, GPUs or disk over all of that. They follow from the definition; `tradewind.workflow.bounds.lower_bound` is
    closer and takes a thousand times longer.

    Args:
        flow: The workflow.
        terms: Assumptions that turn offers into machines.
    """

    def __init__(self, flow: Workflow, terms: MachineAssumptions) -> None:
        self._flow, self._terms = flow, terms
        self._by_speed: dict[float, tuple[float, float, Numbers]] = {}
        self._cores = np.array([task.cores for task in flow.tasks], dtype=float)
        self._amounts = np.array([task.amounts for task in flow.tasks], dtype=float).reshape(-1, len(RESOURCES))
        self.most = int(self._cores.sum())

    @cached_property
    def _reading(self) -> Numbers:
        terms = self._terms
        return Platform((Vm("any"),), terms.storage, terms.bandwidth, terms.latency).reading(self._flow)

    def _path_and_work(self, speed: float) -> tuple[float, float, Numbers]:
        """Seconds of the longest path, of work on one slot, and seconds times amounts that are held."""
        if speed not in self._by_speed:
            seconds = self._flow.runtimes / speed + self._reading
            path = self._flow.critical_path(seconds)[0]
            self._by_speed[speed] = path, float(seconds @ self._cores), seconds @ self._amounts
        return self._by_speed[speed]

    @property
    def boot(self) -> float:
        """Seconds from the order of the machines until they can run a task."""
        return self._terms.boot_seconds

    def parts(self, offer: Offer) -> tuple[float, float]:
        """Seconds of the longest path, and of the work over all slots or all memory and the like; without boot.

        Of the latter whatever is more. Infinite where a task does not fit.
        """
        slots = self._terms.room(offer, self._flow)
        if not slots:
            return math.inf, math.inf
        path, work, held = self._path_and_work(self._terms.speed(offer))
        there = np.maximum(self._terms.amounts(offer, self._flow), _JUST)  # of what there is none, none is held
        return path, max(work / (slots * offer.nodes), float((held / (there * offer.nodes)).max()))

    def parts_together(
        self, speeds: Numbers, slots: Numbers, amounts: Mapping[int, Numbers] | None = None
    ) -> tuple[Numbers, Numbers]:
        """As `parts`, for many sets of several kinds of machines at once.

        The path runs at the speed of the fastest kind. For the work, an hour of a slot is given the worth of its speed:
        a task that takes ``runtime / speed + reading`` seconds on a kind is then worth ``runtime + reading * speed``,
        and at least that on the slowest kind; all slots together offer the sum of their speeds each second. Memory
        and the like that is held is counted in the same way.

        Args:
            speeds: Speed of each kind; shape (sets, kinds).
            slots: Slots of all machines of each kind, 0 where it is not in the set; the same shape.
            amounts: What all machines of each kind have likewise of a resource, infinite where it is not known, by the
                place of each counted resource in `RESOURCES`.
        """
        used = slots > 0
        best, least = np.where(used, speeds, 0.0).max(axis=1), np.where(used, speeds, math.inf).min(axis=1)
        steps, place = np.unique(best, return_inverse=True)
        path = np.array([self._path_and_work(float(speed))[0] for speed in steps])[place.reshape(-1)]
        work = self._worth(self._cores, least) / (slots * speeds).sum(axis=1)
        for column, there in (amounts or {}).items():
            with np.errstate(divide="ignore"):
                held = self._worth(self._amounts[:, column], least) / (there * speeds).sum(axis=1)
            work = np.maximum(work, held)
        return path, work

    def _worth(self, each: Numbers, least: Numbers) -> Numbers:
        """Least worth of running all tasks, where a second of each counts so much and all have this speed."""
        return np.asarray(float(self._flow.runtimes @ each) + float(self._reading @ each) * least)

    def makespan(self, offer: Offer) -> float:
        """Seconds that the machines of an offer need at least; infinite where a task does not fit."""
        return self._terms.boot_seconds + max(self.parts(offer))

    def cost(self, offer: Offer) -> float:
        """USD that the machines of an offer cost at least for the whole workflow."""
        return self.cost_of(offer, self.makespan(offer))

    def cost_of(self, offer: Offer, makespan: float) -> float:
        """USD for the machines of an offer that are kept for so many seconds."""
        if makespan == math.inf:
            return math.inf
        return round_money(self._terms.billing.cost(makespan, offer.price_per_hour) * offer.nodes)

    def idle(self, offer: Offer) -> bool:
        """True where one machine less has room for all tasks at once, so that it is as good and cheaper."""
        # A task finds no room on a machine only where fewer slots than its own are free.
        room = self._terms.sure_room(offer, self._flow) - (self._flow.needs[0] - 1)
        return offer.nodes > 1 and room > 0 and (offer.nodes - 1) * room >= self.most


def probable_makespan(path: Numbers, work: Numbers, power: float) -> Numbers:
    """Estimate the seconds that plans take: ``(path**k + work**k) ** (1/k)``, between bound and sum of the parts.

    Args:
        path: Seconds of the longest path.
        work: Seconds of the work over all slots.
        power: The k; plans of a workflow that is hard to pack have a smaller one.
    """
    longest = np.maximum(np.maximum(path, work), _JUST)
    return np.asarray(longest * ((path / longest) ** power + (work / longest) ** power) ** (1.0 / power))


def fitting_power(path: Numbers, work: Numbers, seconds: Numbers, boot: float) -> float:
    """Fit the power of `probable_makespan` to the plans that were made.

    Args:
        path: Seconds of the longest path, for each set.
        work: Seconds of its work over all slots.
        seconds: Its makespan, boot included.
        boot: Seconds from the order of the machines until they can run a task.
    """
    seen = seconds > 0
    times = np.log(seconds[seen])

    def error(power: float) -> float:
        return float(np.abs(np.log(boot + probable_makespan(path[seen], work[seen], power)) - times).sum())

    return min(_POWERS, key=error)


def billable_seconds(billing: Billing, seconds: Numbers) -> Numbers:
    """Apply `Billing.billed_seconds` to many times at once."""
    units = np.maximum(billing.setup_seconds + seconds, billing.minimum_seconds) / billing.granularity_seconds
    return np.asarray(np.ceil(units - np.minimum(0.5, 1e-9 * np.maximum(1.0, units))) * billing.granularity_seconds)
