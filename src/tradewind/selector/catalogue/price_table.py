"""Tables with the prices of many machine types, filtered as columns, and the base of the catalogues that read them."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np

from tradewind.problem import Offer, OfferQuery
from tradewind.selector.catalogue.base import Catalogue

_EVERYTHING = OfferQuery(gpus=(0, None), spot=None)
_COMPUTE, _MEMORY = 2.5, 6.0
"""GiB per vCPU up to which a type is for computing, and from which it is for memory."""


class PriceRow(NamedTuple):
    """One price of one machine type.

    Attributes:
        machine: The place of its type among the table's machines.
        region: The provider's region.
        spot: True for capacity that may be taken back.
        price: USD per node and hour, above zero.
        date: ISO date on which the price was read, or empty.
        zone: The zone of the region that has the price, or empty.
    """

    machine: int
    region: str
    spot: bool
    price: float
    date: str = ""
    zone: str = ""


class PriceTable:
    """Prices by machine type, region and market; an `Offer` is made only of those that are asked for.

    Where a type has several prices in a region (one for each zone), the lowest stands. That of spot capacity has its
    zone among its facts.

    Args:
        machines: The machine types, without region and price.
        rows: Their prices.
    """

    def __init__(self, machines: Sequence[Offer], rows: Iterable[PriceRow]) -> None:
        kinds: dict[tuple[str, str], int] = {}
        self._kinds = kinds
        self._machines = machines
        kind_of = [kinds.setdefault((one.provider, one.instance_type), len(kinds)) for one in machines]
        cheapest: dict[tuple[int, str, bool], PriceRow] = {}
        for row in rows:
            place = kind_of[row.machine], row.region, row.spot
            if place not in cheapest or row.price < cheapest[place].price:
                cheapest[place] = row
        self._places = tuple(cheapest)
        kept = cheapest.values()
        self._machine = np.array([row.machine for row in kept], dtype=np.int32)
        self._price = np.array([row.price for row in kept], dtype=np.float64)
        self._spot = np.array([row.spot for row in kept], dtype=np.bool_)
        self._zones = [row.zone if row.spot else "" for row in kept]
        self._dates = [row.date for row in kept]
        self._regions: dict[str, int] = {}
        self._region = np.array(
            [self._regions.setdefault(row.region, len(self._regions)) for row in kept], dtype=np.int32
        )

    def __len__(self) -> int:
        return len(self._places)

    def matching(self, query: OfferQuery) -> list[Offer]:
        """The offers within a query's bounds; its limit is passed over."""
        alike = of_types(query)
        wanted = np.fromiter((alike.matches(one) for one in self._machines), np.bool_, len(self._machines))
        mask = wanted[self._machine]
        if query.region:
            mask &= np.isin(self._region, [self._regions.get(name, -1) for name in query.region])
        if query.spot is not None:
            mask &= self._spot == query.spot
        low, high = query.price
        if low is not None:
            mask &= self._price >= low
        if high is not None:
            mask &= self._price <= high
        return [self._offer(place) for place in np.flatnonzero(mask).tolist()]

    def also_sells(self, offers: Iterable[Offer]) -> set[str]:
        """Keys of those of some offers whose type the table has in their region and market."""
        return {
            offer.key
            for offer in offers
            if (self._kinds.get((offer.provider, offer.instance_type), -1), offer.region, offer.spot) in self._known
        }

    @cached_property
    def _known(self) -> frozenset[tuple[int, str, bool]]:
        return frozenset(self._places)

    def _offer(self, place: int) -> Offer:
        _, region, spot = self._places[place]
        machine, zone = self._machines[int(self._machine[place])], self._zones[place]
        return Offer(
            machine.provider,
            machine.instance_type,
            machine.vcpu,
            machine.memory_gib,
            float(self._price[place]),
            region,
            machine.category,
            machine.family,
            machine.arch,
            machine.gpus,
            spot,
            1,
            self._dates[place],
            machine.source,
            {**machine.facts, "zone": zone} if zone else machine.facts,
        )


class PriceTableCatalogue(Catalogue):
    """Sells the offers of a table that others keep; it is asked where a job or a command names it."""

    on_request: ClassVar[bool] = True

    @abstractmethod
    def table(self, query: OfferQuery) -> PriceTable:
        """The table, with at least the rows within a query; it is kept as long as its file stays the same."""

    def offers(self) -> Sequence[Offer]:
        """All offers of the table.

        Raises:
            CatalogueError: The table cannot be read.
        """
        return self.matching(_EVERYTHING)

    def matching(self, query: OfferQuery) -> Sequence[Offer]:
        """The offers within a query, without making the others."""
        return self.table(query).matching(query)

    def also_sells(self, offers: Sequence[Offer]) -> set[str]:
        """Keys of those of some offers that the table has too."""
        if not offers:
            return set()
        regions, providers = (tuple(sorted({getattr(one, name) for one in offers})) for name in ("region", "provider"))
        return self.table(replace(_EVERYTHING, provider=providers, region=regions)).also_sells(offers)


def of_types(query: OfferQuery) -> OfferQuery:
    """The bounds of a query that machine types alone are within or not, wherever and however they are sold."""
    return replace(query, region=(), price=(None, None), spot=None, limit=None)


def usual_category(vcpu: float, memory_gib: float, *, gpus: int = 0, burstable: bool = False) -> str:
    """The category of a machine type whose list names none: by its accelerators, and by its memory per vCPU."""
    if gpus:
        return "accelerated"
    if burstable:
        return "burstable"
    ratio = memory_gib / vcpu
    return "compute" if ratio <= _COMPUTE else "memory" if ratio >= _MEMORY else "general"


def accelerators(count: float, name: str) -> tuple[int, dict[str, float | str]]:
    """Accelerators of a machine, and its facts on them: a part of one counts as one, and the part is a fact."""
    facts: dict[str, float | str] = {"accelerator": name} if count > 0 and name else {}
    if 0 < count < 1:
        facts["accelerator_share"] = count
    return math.ceil(count), facts
