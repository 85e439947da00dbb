"""Tables with the prices of many machine types, filtered as rows, and the base of the catalogues that read them."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import ClassVar, NamedTuple, overload

from tradewind.problem import Offer, OfferQuery
from tradewind.selector.catalogue.base import Catalogue

OfferKind = tuple[str, str, bool]
"""Provider, instance type and spot of an offer, wherever it is sold."""

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
        listed = list(rows)
        places = [(kind_of[row[0]], row[1], row[2]) for row in listed]
        cheapest = dict(zip(places, listed, strict=True))
        if len(cheapest) < len(listed):
            cheapest = {}
            for place, row in zip(places, listed, strict=True):
                known = cheapest.get(place)
                if known is None or row[3] < known[3]:
                    cheapest[place] = row
        self._places = cheapest.keys()
        self._rows = list(cheapest.values())

    def __len__(self) -> int:
        return len(self._rows)

    def matching(self, query: OfferQuery) -> TableOffers:
        """The offers within a query's bounds; its limit is passed over."""
        alike = of_types(query)
        wanted = {place for place, one in enumerate(self._machines) if alike.matches(one)}
        rows: Iterable[PriceRow] = self._rows
        if len(wanted) < len(self._machines):
            rows = (row for row in rows if row[0] in wanted)
        if query.region:
            regions = frozenset(query.region)
            rows = (row for row in rows if row[1] in regions)
        if query.spot is not None:
            rows = (row for row in rows if row[2] == query.spot)
        low, high = query.price
        if low is not None:
            rows = (row for row in rows if row[3] >= low)
        if high is not None:
            rows = (row for row in rows if row[3] <= high)
        return TableOffers(self._machines, list(rows))

    def also_sells(self, offers: Iterable[Offer]) -> set[str]:
        """Keys of those of some offers whose type the table has in their region and market."""
        return {
            offer.key
            for offer in offers
            if (self._kinds.get((offer.provider, offer.instance_type), -1), offer.region, offer.spot) in self._places
        }


class TableOffers(Sequence[Offer]):
    """Some offers of a table, each made when it is looked at: of a hundred thousand, most people see twenty.

    Args:
        machines: The machine types of the table.
        rows: The prices of the offers.
    """

    def __init__(self, machines: Sequence[Offer], rows: Sequence[PriceRow]) -> None:
        self._machines = machines
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, place: int) -> Offer: ...

    @overload
    def __getitem__(self, place: slice) -> TableOffers: ...

    def __getitem__(self, place: int | slice) -> Offer | TableOffers:
        if isinstance(place, slice):
            return TableOffers(self._machines, self._rows[place])
        return self._made(self._rows[place])

    def __iter__(self) -> Iterator[Offer]:
        return map(self._made, self._rows)

    def _made(self, row: PriceRow) -> Offer:
        number, region, spot, price, date, zone = row
        machine = self._machines[number]
        return Offer(
            machine.provider,
            machine.instance_type,
            machine.vcpu,
            machine.memory_gib,
            price,
            region,
            machine.category,
            machine.family,
            machine.arch,
            machine.gpus,
            spot,
            1,
            date,
            machine.source,
            {**machine.facts, "zone": zone} if zone and spot else machine.facts,
        )

    def cheapest_first(self) -> TableOffers:
        """The same offers by price, and by `Offer.key` where it is the same."""
        ordered = sorted(self._rows, key=itemgetter(3))
        start = 0
        for end in range(1, len(ordered) + 1):
            if end == len(ordered) or ordered[end][3] != ordered[start][3]:
                if end - start > 1:
                    ordered[start:end] = self._by_key(ordered[start:end])
                start = end
        return TableOffers(self._machines, ordered)

    def kinds(self) -> list[OfferKind]:
        """The kind of each offer."""
        machines = self._machines
        return [(machines[row[0]].provider, machines[row[0]].instance_type, row[2]) for row in self._rows]

    def _by_key(self, rows: Sequence[PriceRow]) -> list[PriceRow]:
        by_key = sorted((offer.key, place) for place, offer in enumerate(TableOffers(self._machines, rows)))
        return [rows[place] for _, place in by_key]


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

    def matching(self, query: OfferQuery) -> TableOffers:
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
