"""Offers of the catalogue as machines of a workflow, and what a set of them must take and cost at least."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from tradewind.errors import WorkflowError
from tradewind.problem import Billing, Offer, round_money
from tradewind.units import count
from tradewind.workflow.graph import Numbers, Workflow
from tradewind.workflow.platform import Marks, Platform, Storage, Vm, holds

SPEED = "speed"
"""The fact of an offer that says how fast one of its vCPUs is."""

_JUST = 1e-9
"""Seconds that a machine is kept at least: one without any use costs its minimum, too."""

_POWERS = (4.0, 1.2, 1.5, 2.0, 3.0, 6.0, 10.0, 30.0)
"""Powers of the mean that makes a makespan of the path and the work; the first one before anything is known."""


@dataclass(frozen=True)
class Terms:
    """What turns offers into machines of a workflow.

    Attributes:
        speeds: Speed of one vCPU by instance type, family or pattern of types; the first that fits counts, in this
            order. Without one it is the offer's fact ``speed``, else 1: the machine that run times are for.
        slots: Tasks of one core that a machine runs at a time; its vCPUs, or what its memory holds, without it.
        boot_seconds: Seconds from the order of a machine until it can run a task.
        storage: As in `Platform`.
        bandwidth: MB/s, as in `Platform`.
        latency: Seconds, as in `Platform`.
        billing: How time becomes money.
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
        """True when something is said of an offer's speed."""
        by_pattern = any(fnmatch.fnmatchcase(offer.instance_type, pattern) for pattern in self.speeds)
        return by_pattern or offer.family in self.speeds or SPEED in offer.facts

    def room(self, offer: Offer, flow: Workflow) -> int:
        """Slots of one machine of an offer; 0 where a task does not fit it."""
        return self.some_room(offer, flow) if all(self.takes(offer, flow)) else 0

    def some_room(self, offer: Offer, flow: Workflow) -> int:
        """Slots of one machine of an offer for the tasks that fit it; 0 where none does."""
        slots = int(offer.vcpu) if self.slots is None else self.slots
        return holds(slots, offer.memory_gib * 2**30, flow) if offer.memory_gib else slots

    def takes(self, offer: Offer, flow: Workflow) -> tuple[bool, ...]:
        """Which of the `Workflow.largest` demands fit one machine of an offer: with all of them, every task does."""
        slots, memory = self.some_room(offer, flow), offer.memory_gib * 2**30 or math.inf
        return tuple(cores <= slots and needs <= memory for cores, needs in flow.largest)

    def fitting(self, offer: Offer, flow: Workflow) -> Marks:
        """Which of the `Workflow.demands` fit one machine of an offer."""
        cores, needs = flow.demands.T
        return np.asarray((cores <= self.some_room(offer, flow)) & (needs <= (offer.memory_gib * 2**30 or math.inf)))

    def platform(self, offer: Offer, flow: Workflow) -> Platform:
        """The machines of an offer, as many as it has nodes.

        Raises:
            WorkflowError: A task of the workflow fits none of them.
        """
        if not self.room(offer, flow):
            has = f"{offer.vcpu:g} vCPU and {offer.memory_gib:g} GiB"
            raise WorkflowError(f"a task needs {need(flow)}, and {offer.instance_type} has {has}")
        return self.together((offer,), flow)

    def together(self, offers: Sequence[Offer], flow: Workflow) -> Platform:
        """The machines of several offers as one set, of each as many as it has nodes.

        Where some tasks do not fit some of them, the machines say what memory they have.

        Raises:
            WorkflowError: A task of the workflow fits the machines of none of them.
        """
        mixed = not all(self.room(offer, flow) for offer in offers)
        vms = tuple(vm for offer in offers for vm in self._vms(offer, flow, mixed=mixed))
        platform = Platform(vms, self.storage, self.bandwidth, self.latency, self.billing)
        platform.check(flow)
        return platform

    def _vms(self, offer: Offer, flow: Workflow, *, mixed: bool) -> tuple[Vm, ...]:
        return tuple(
            Vm(
                name=f"{offer.instance_type}-{place + 1}",
                speed=self.speed(offer),
                slots=self.some_room(offer, flow),
                price_per_hour=offer.price_per_hour,
                kind=offer.instance_type,
                boot_seconds=self.boot_seconds,
                memory_bytes=int(offer.memory_gib * 2**30) if mixed and offer.memory_gib else None,
            )
            for place in range(offer.nodes)
        )


def need(flow: Workflow) -> str:
    """What a machine must have so that every task fits it, in words."""
    cores, memory = flow.needs
    return count(cores, "core") + (f" and {memory / 2**30:.3g} GiB" if memory else "")


def kept_cost(platform: Platform, makespan: float) -> float:
    """USD for machines that are all kept from their order until the workflow has ended.

    Args:
        platform: The machines.
        makespan: Seconds from the order to the end of the last task.
    """
    return platform.cost(np.array([max(makespan - vm.boot_seconds, _JUST) for vm in platform.vms]))


def worth_trying(offers: Sequence[Offer], flow: Workflow, terms: Terms, *, partly: bool = False) -> list[Offer]:
    """The offers that can be part of a best set: of those with the same speed and slots, only the cheapest.

    Machines with the same speed and slots run the same schedule, so nothing is lost. Slots beyond the cores of all
    tasks together are none.

    Args:
        offers: One node each.
        flow: The workflow.
        terms: What makes machines of them.
        partly: Take those that only some tasks fit, too; machines alike are then those that the same tasks fit.

    Returns:
        The offers, the smallest first; none where no task would fit.
    """
    most = sum(task.cores for task in flow.tasks)
    found: dict[tuple[float, int, bytes], Offer] = {}
    for offer in sorted(offers, key=lambda each: (each.price_per_hour, each.key)):
        slots = terms.some_room(offer, flow) if partly else terms.room(offer, flow)
        if slots:
            found.setdefault((terms.speed(offer), min(slots, most), terms.fitting(offer, flow).tobytes()), offer)
    return [found[key] for key in sorted(found, key=lambda key: (key[1], key[0]))]


class Outlook:
    """What sets of machines must take and cost at least, whoever plans.

    A makespan is at least the longest path at the set's speed, and all work over all slots. Both follow from the
    definition; `tradewind.workflow.bounds.lower_bound` is closer and takes a thousand times longer.

    Args:
        flow: The workflow.
        terms: What makes machines of offers.
    """

    def __init__(self, flow: Workflow, terms: Terms) -> None:
        self._flow, self._terms = flow, terms
        self._by_speed: dict[float, tuple[float, float]] = {}
        self._cores = np.array([task.cores for task in flow.tasks], dtype=float)
        self.most = int(self._cores.sum())

    @cached_property
    def _reading(self) -> Numbers:
        terms = self._terms
        return Platform((Vm("any"),), terms.storage, terms.bandwidth, terms.latency).reading(self._flow)

    def _path_and_work(self, speed: float) -> tuple[float, float]:
        if speed not in self._by_speed:
            seconds = self._flow.runtimes / speed + self._reading
            self._by_speed[speed] = self._flow.critical_path(seconds)[0], float(seconds @ self._cores)
        return self._by_speed[speed]

    @property
    def boot(self) -> float:
        """Seconds from the order of the machines until they can run a task."""
        return self._terms.boot_seconds

    def parts(self, offer: Offer) -> tuple[float, float]:
        """Seconds of the longest path, and of the work over all slots, without boot; infinite where it does not fit."""
        slots = self._terms.room(offer, self._flow)
        if not slots:
            return math.inf, math.inf
        path, work = self._path_and_work(self._terms.speed(offer))
        return path, work / (slots * offer.nodes)

    def parts_together(self, speeds: Numbers, slots: Numbers) -> tuple[Numbers, Numbers]:
        """As `parts`, for many sets of several kinds of machines at once.

        The path runs at the speed of the fastest kind. For the work, an hour of a slot is given the worth of its speed:
        a task that takes ``runtime / speed + reading`` seconds on a kind is then worth ``runtime + reading * speed``,
        and at least that on the slowest kind; all slots together offer the sum of their speeds each second.

        Args:
            speeds: Speed of each kind; shape (sets, kinds).
            slots: Slots of all machines of each kind, 0 where it is not in the set; the same shape.
        """
        used = slots > 0
        best, least = np.where(used, speeds, 0.0).max(axis=1), np.where(used, speeds, math.inf).min(axis=1)
        steps, place = np.unique(best, return_inverse=True)
        path = np.array([self._path_and_work(float(speed))[0] for speed in steps])[place.reshape(-1)]
        run, read = float(self._flow.runtimes @ self._cores), float(self._reading @ self._cores)
        return path, (run + read * least) / (slots * speeds).sum(axis=1)

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
        return offer.nodes > 1 and (offer.nodes - 1) * self._terms.room(offer, self._flow) >= self.most


def probable(path: Numbers, work: Numbers, power: float) -> Numbers:
    """Seconds that plans probably take: ``(path**k + work**k) ** (1/k)``, between the bound and the sum of the parts.

    Args:
        path: Seconds of the longest path.
        work: Seconds of the work over all slots.
        power: The k; plans of a workflow that is hard to pack have a smaller one.
    """
    longest = np.maximum(np.maximum(path, work), _JUST)
    return np.asarray(longest * ((path / longest) ** power + (work / longest) ** power) ** (1.0 / power))


def fitting_power(path: Numbers, work: Numbers, seconds: Numbers, boot: float) -> float:
    """The power of `probable` that fits best what was planned.

    Args:
        path: Seconds of the longest path, for each set.
        work: Seconds of its work over all slots.
        seconds: Its makespan, boot included.
        boot: Seconds from the order of the machines until they can run a task.
    """
    seen = seconds > 0
    times = np.log(seconds[seen])

    def error(power: float) -> float:
        return float(np.abs(np.log(boot + probable(path[seen], work[seen], power)) - times).sum())

    return min(_POWERS, key=error)


def billed(billing: Billing, seconds: Numbers) -> Numbers:
    """As `Billing.billed_seconds`, for many times at once."""
    units = np.maximum(billing.setup_seconds + seconds, billing.minimum_seconds) / billing.granularity_seconds
    return np.asarray(np.ceil(units - np.minimum(0.5, 1e-9 * np.maximum(1.0, units))) * billing.granularity_seconds)
