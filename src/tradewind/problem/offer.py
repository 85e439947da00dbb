"""An offer: what a provider sells, and how it bills."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

NANO = 1_000_000_000
"""Nano-dollars in a dollar: money is added up in whole nano-dollars, so that no cent is lost to rounding."""


def round_money(usd: float) -> float:
    """Round an amount of money to the nano-dollar."""
    return round(usd * NANO) / NANO


@dataclass(frozen=True, slots=True)
class Offer:
    """A priced choice of machines: so many nodes of one instance type, of one provider, in one region.

    Attributes:
        provider: ``aws``, ``gcp``, ``azure``, ``local``, ... as the catalogue is named.
        instance_type: The provider's own name for it.
        vcpu: Virtual CPUs of one node; a part of one is allowed.
        memory_gib: Memory of one node, in GiB.
        price_per_hour: USD per node and hour.
        region: The provider's region, or empty.
        category: ``general``, ``compute``, ``memory``, ``storage``, ``accelerated`` or ``burstable``.
        family: The provider's family (``c7i``), or empty.
        arch: ``x86_64``, ``arm64``, or empty where unknown.
        gpus: Accelerators of one node.
        spot: True for capacity that may be taken back.
        nodes: How many machines.
        price_date: ISO date on which the price was read, or empty.
        source: Where the price is from.
        facts: Further facts by name; numbers become features of the model.
    """

    provider: str
    instance_type: str
    vcpu: float
    memory_gib: float
    price_per_hour: float
    region: str = ""
    category: str = "general"
    family: str = ""
    arch: str = ""
    gpus: int = 0
    spot: bool = False
    nodes: int = 1
    price_date: str = ""
    source: str = ""
    facts: Mapping[str, float | str] = field(default_factory=dict)

    @property
    def hourly(self) -> float:
        """USD per hour for all nodes together."""
        return self.price_per_hour * self.nodes

    @property
    def key(self) -> str:
        """What makes two offers the same machines, whatever their price today."""
        kind = "/spot" if self.spot else ""
        return f"{self.provider}/{self.region}/{self.instance_type}{kind}x{self.nodes}"

    def times(self, nodes: int) -> Offer:
        """The same offer for ``nodes`` machines."""
        return replace(self, nodes=nodes)

    def attribute(self, name: str) -> float | str | None:
        """A fact by the name that YAML, filters and constraints use (``vcpu``, ``memory``, ``price``, ...)."""
        aliases = {"memory": "memory_gib", "price": "price_per_hour", "type": "instance_type", "gpu": "gpus"}
        name = aliases.get(name, name)
        if name in _ATTRIBUTES:
            value: float | str = getattr(self, name)
            return value
        return self.facts.get(name)

    def to_json(self) -> dict[str, Any]:
        """A JSON-able document."""
        return {**asdict(self), "facts": dict(self.facts)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Offer:
        """The offer of a document that `to_json` made; keys of newer versions are ignored."""
        return cls(**{k: v for k, v in document.items() if k in cls.__dataclass_fields__})


_ATTRIBUTES = frozenset(Offer.__dataclass_fields__) - {"facts"}


@dataclass(frozen=True, slots=True)
class Billing:
    """How a provider turns time into money.

    Attributes:
        setup_seconds: Seconds billed for each run before the job starts (boot and installation).
        minimum_seconds: The least that is billed for a run.
        granularity_seconds: Time is rounded up to a multiple of this; it must be above zero.
    """

    setup_seconds: float = 0.0
    minimum_seconds: float = 0.0
    granularity_seconds: float = 1.0

    def billed_seconds(self, runtime: float) -> float:
        """Seconds that a run of ``runtime`` seconds is billed for."""
        total = max(self.setup_seconds + max(0.0, runtime), self.minimum_seconds)
        # Without the tolerance, 0.1 + 0.2 seconds at a granularity of 0.1 would be billed as 0.4.
        units = total / self.granularity_seconds
        units = math.ceil(units - min(0.5, 1e-9 * max(1.0, units)))
        return units * self.granularity_seconds

    @property
    def shortest_billed(self) -> float:
        """The least seconds that a run is billed for, however short it is."""
        return self.billed_seconds(0.0) or self.granularity_seconds

    def cost(self, runtime: float, hourly: float) -> float:
        """USD that a run costs.

        Args:
            runtime: Seconds that the job ran.
            hourly: USD per hour for all nodes together.
        """
        return round_money(self.billed_seconds(runtime) / 3600.0 * hourly)

    def costs(self, runtimes: Iterable[float], hourly: Iterable[float]) -> list[float]:
        """USD of several runs, each with its own seconds and USD per hour; see `cost`."""
        return [self.cost(float(seconds), float(rate)) for seconds, rate in zip(runtimes, hourly, strict=True)]

    def longest_run(self, money: float, hourly: float) -> float:
        """The longest run, in seconds, that costs at most ``money`` USD; below zero if none does."""
        if hourly <= 0 or money == math.inf:
            return math.inf
        unit = self.granularity_seconds / 3600.0 * hourly
        # Amounts are rounded to the nano-dollar: what was computed as the price of n units must pay n units.
        units = math.floor(money / unit + max(1e-9, min(0.5, 0.5 / NANO / unit)))
        while units > 0 and round_money(units * unit) > round_money(money):
            units -= 1
        billed = units * self.granularity_seconds
        return billed - self.setup_seconds if billed >= max(self.minimum_seconds, self.setup_seconds) else -1.0

    def unit_cost(self, hourly: float) -> float:
        """USD of the smallest billing unit."""
        return round_money(self.granularity_seconds / 3600.0 * hourly)
