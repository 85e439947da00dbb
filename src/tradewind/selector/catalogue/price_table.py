"""Tables with the prices of many machine types, filtered as rows, and the base of the catalogues that read them."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import ClassVar, NamedTuple

from tradewind.problem import Offer, OfferQuery
from tradewind.problem.columns.table_offers import TableNames, TableOffers, TableRow
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

    Where a type has several prices in a region (one for each zone), the lowest stands, the first where they are alike.
    That of spot capacity has its zone among its facts.

    Args:
        names: What the numbers of the rows stand for.
        rows: The prices.
    """

    def __init__(self, names: TableNames, rows: Iterable[TableRow]) -> None:
        kinds: dict[tuple[str, str], int] = {}
        kind_of = [kinds.setdefault((one.provider, one.instance_type), len(kinds)) for one in names.machines]
        self._kinds, self._names = kinds, names
        self._regions = {region: place for place, region in enumerate(names.regions)}
        width = names.width
        cheapest: dict[int, TableRow] = {}
        get = cheapest.get
        if len(kinds) == len(kind_of):
            for row in rows:
                known = get(row[0])
                if known is None or row[1] < known[1]:
                    cheapest[row[0]] = row
        else:
            for row in rows:
                place = kind_of[row[0] // width] * width + row[0] % width
                known = get(place)
                if known is None or row[1] < known[1]:
                    cheapest[place] = row
        self._cheapest = cheapest

    @classmethod
    def of_prices(cls, machines: Sequence[Offer], prices: Iterable[PriceRow]) -> PriceTable:
        """A table of prices with the names of their regions and zones.

        Args:
            machines: The machine types, without region and price.
            prices: Their prices.
        """
        listed = list(prices)
        regions = {name: place for place, name in enumerate(dict.fromkeys(row[1] for row in listed))}
        zones = {name: place for place, name in enumerate(dict.fromkeys(row[5] for row in listed))}
        names = TableNames(machines, list(regions), list(zones))
        return cls(
            names,
            (
                (names.number(machine, regions[region], spot), price, zones[zone], date)
                for machine, region, spot, price, date, zone in listed
            ),
        )

    def __len__(self) -> int:
        return len(self._cheapest)

    def matching(self, query: OfferQuery) -> TableOffers:
        """The offers within a query's bounds; its limit is passed over."""
        machines, width = self._names.machines, self._names.width
        alike = of_types(query)
        wanted = {place for place, one in enumerate(machines) if alike.matches(one)}
        rows: Iterable[TableRow] = self._cheapest.values()
        if len(wanted) < len(machines):
            rows = (row for row in rows if row[0] // width in wanted)
        if query.region:
            regions = {self._regions[name] for name in query.region if name in self._regions}
            rows = (row for row in rows if (row[0] % width >> 1) in regions)
        if query.spot is not None:
            market = int(query.spot)
            rows = (row for row in rows if row[0] & 1 == market)
        low, high = query.price
        if low is not None:
            rows = (row for row in rows if row[1] >= low)
        if high is not None:
            rows = (row for row in rows if row[1] <= high)
        return TableOffers(self._names, list(rows))

    def also_sells(self, offers: Iterable[Offer]) -> set[str]:
        """Keys of those of some offers whose type the table has in their region and market."""
        return {offer.key for offer in offers if self._place(offer) in self._cheapest}

    def _place(self, offer: Offer) -> int:
        """The number that the offer of another one's type, region and market has; -1 where there is none."""
        kind, region = self._kinds.get((offer.provider, offer.instance_type)), self._regions.get(offer.region)
        return -1 if kind is None or region is None else self._names.number(kind, region, offer.spot)


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
