"""Amounts of CPU, memory, accelerators and whatever else a cluster shares."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tradewind.errors import InputError
from tradewind.problem import Configuration, Offer, Problem
from tradewind.utils.units import format_memory

Amounts = tuple[float, ...]
"""One number for each kind of resource, in the order of `ResourceKinds.names`."""

DEFAULT_RESOURCES = ("cpu", "memory", "gpu")

SLACK = 1e-9
"""Sums of fractions of a CPU may miss a whole one by so much."""


@dataclass(frozen=True, slots=True)
class ResourceKinds:
    """The kinds of resource of a cluster.

    Attributes:
        names: ``cpu`` in CPUs, ``memory`` in GiB, ``gpu`` in devices, and further ones in units of their own.
    """

    names: tuple[str, ...] = DEFAULT_RESOURCES

    def amounts(self, given: Mapping[str, float]) -> Amounts:
        """Amounts by name as a tuple; what is not named is 0.

        Raises:
            InputError: A name is not one of this cluster's, or an amount is below zero or no number.
        """
        for name, amount in given.items():
            if name not in self.names:
                raise InputError(
                    f"there is no resource {name!r} in this cluster", hint=f"it has {', '.join(self.names)}"
                )
            if not 0 <= amount < float("inf"):
                raise InputError(f"{amount!r} of resource {name!r} is no amount", hint="write a number of 0 or more")
        return tuple(float(given.get(name, 0.0)) for name in self.names)

    def mapping(self, amounts: Sequence[float]) -> dict[str, float]:
        """The amounts by name, without those that are 0."""
        return {name: amount for name, amount in zip(self.names, amounts, strict=True) if amount}


_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
"""What a resource may be called."""


def check_demand(demand: object, option: str = "demand") -> dict[str, float]:
    """The amounts that each run of a search takes: of resources of any name, which only the cluster knows.

    Args:
        demand: The amounts by name.
        option: Its name where it was given.

    Raises:
        InputError: They are none.
    """
    if not isinstance(demand, Mapping):
        raise InputError(f"{option} {demand!r:.60} is none", hint='give amounts by name: {"cpu": 2, "memory": 4}')
    for name, amount in demand.items():
        if not isinstance(name, str) or (name not in DEFAULT_RESOURCES and not _NAME.fullmatch(name)):
            hint = f"write small letters, digits and _, as in {option} licence=1"
            raise InputError(f"{option}: {name!r} is no name of a resource", hint=hint)
        if isinstance(amount, bool) or not isinstance(amount, int | float):
            raise InputError(f"{option}: {amount!r:.60} of {name} is no amount", hint="write a number of 0 or more")
    ResourceKinds((*DEFAULT_RESOURCES, *(name for name in demand if name not in DEFAULT_RESOURCES))).amounts(demand)
    return {name: float(amount) for name, amount in demand.items()}


def demand_of(offer: Offer) -> dict[str, float]:
    """The demand of a run on an offer: CPUs, GiB of memory and accelerators of all its nodes together."""
    each = {"cpu": offer.vcpu, "memory": offer.memory_gib, "gpu": float(offer.gpus)}
    return {name: amount * offer.nodes for name, amount in each.items() if amount}


def demand_of_run(offer: Offer, options: Mapping[str, Any]) -> dict[str, float]:
    """The demand of a run: what its offer has, but for what its search's options say of every run (``demand``)."""
    return {**demand_of(offer), **options.get("demand", {})}


def largest_demand(problem: Problem) -> dict[str, float]:
    """The most that a run of a search may take of each resource; empty where its offers cannot be listed."""
    if problem.space.enumerable:
        found = problem.candidates
        offers = list({offer.key: offer for offer in map(found.offer, range(len(found)))}.values())
    elif not problem.resolver.machine_parameters:
        offers = [problem.resolver.resolve(Configuration({}))]
    else:
        return {}
    largest: dict[str, float] = {}
    for offer in offers:
        for kind, amount in demand_of(offer).items():
            largest[kind] = max(amount, largest.get(kind, 0.0))
    return largest


def dominant_share(used: Sequence[float], total: Sequence[float]) -> float:
    """The largest share of any resource that is used: Ghodsi et al., "Dominant resource fairness", NSDI 2011."""
    return max((u / t for u, t in zip(used, total, strict=True) if t > 0), default=0.0)


def fits_within(demand: Sequence[float], limit: Sequence[float]) -> bool:
    """True when no amount is above its limit."""
    return all(d <= most + SLACK for d, most in zip(demand, limit, strict=True))


def add_amounts(used: Sequence[float], demand: Sequence[float]) -> list[float]:
    """The sums of amounts used and of a demand, by resource."""
    return [u + d for u, d in zip(used, demand, strict=True)]


def format_amounts(amounts: Mapping[str, float]) -> str:
    """Amounts by name, in words: ``2 CPUs, 900 MiB of memory``."""
    return ", ".join(_in_words(name, amount) for name, amount in amounts.items()) or "nothing"


def _in_words(name: str, amount: float) -> str:
    match name:
        case "cpu":
            return "1 CPU" if amount == 1 else f"{amount:g} CPUs"
        case "gpu":
            return "1 GPU" if amount == 1 else f"{amount:g} GPUs"
        case "memory":
            return f"{format_memory(amount * 2**30)} of memory"
        case _:
            return f"{amount:g} {name}"


TENANT_WIDE_LIMITS = ("dollars", "requests")
"""Limits of a tenant that are no resources of a cluster: USD in all, and requests carried out at a time.

The service keeps them; where a search is submitted, the dollars are looked at too (`tradewind.tenancy.billing`).
"""


def check_quota(quota: Mapping[str, float]) -> None:
    """Refuse a quota that nothing keeps.

    Raises:
        InputError: It limits something that neither clusters nor the service know, or an amount is no number.
    """
    known = (*DEFAULT_RESOURCES, *TENANT_WIDE_LIMITS)
    if (unknown := next((name for name in quota if name not in known), None)) is not None:
        raise InputError(f"a quota cannot limit {unknown[:40]!r}", hint=f"it may limit {', '.join(known)}")
    ResourceKinds(known).amounts(quota)


def cluster_quota(quota: Mapping[str, float]) -> dict[str, float]:
    """The part of a quota that a cluster keeps."""
    return {name: amount for name, amount in quota.items() if name not in TENANT_WIDE_LIMITS}
