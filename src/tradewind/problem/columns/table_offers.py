"""Offers of a price table: the machine types and a row of numbers for each price, until somebody looks at one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any, overload

from tradewind.problem.offer import ALIASES, Offer, OfferColumns

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

OfferKind = tuple[str, str, bool]
"""Provider, instance type and spot of an offer, wherever it is sold."""

TableRow = tuple[int, float, int, str]
"""The number of a machine type in a region and market (`TableNames.number`), its price, its zone and its date."""

_ROW = frozenset({"region", "spot", "nodes", "price_per_hour", "price_date", "interruptions_per_hour"})
"""Attributes that are of the row; the others are of its machine type."""


@dataclass(frozen=True, slots=True)
class TableNames:
    """The names that the numbers of rows stand for.

    Attributes:
        machines: The machine types, without region and price.
        regions: The regions.
        zones: The zones.
    """

    machines: Sequence[Offer]
    regions: Sequence[str]
    zones: Sequence[str]

    @property
    def width(self) -> int:
        """Numbers that each machine type has: two for each region."""
        return 2 * len(self.regions)

    def number(self, machine: int, region: int, spot: bool) -> int:
        """The number of a machine type in a region and market."""
        return machine * self.width + 2 * region + spot


class TableOffers(OfferColumns):
    """Some offers of a table, each made when it is looked at: of a hundred thousand, most people see twenty.

    Each machine type is there once in each region and market, so that no two offers have the same key.

    Args:
        names: What the numbers of the rows stand for.
        rows: The prices of the offers.
        per_hour: Interruptions per hour of a spot machine, or None where nobody knows.
        cheapest_first: True where the rows are in that order.
    """

    def __init__(
        self,
        names: TableNames,
        rows: Sequence[TableRow],
        *,
        per_hour: float | None = None,
        cheapest_first: bool = False,
    ) -> None:
        self.names = names
        self.rows = rows
        self._width = names.width
        self._per_hour = per_hour
        self._cheapest_first = cheapest_first

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, place: int) -> Offer: ...

    @overload
    def __getitem__(self, place: slice) -> TableOffers: ...

    def __getitem__(self, place: int | slice) -> Offer | TableOffers:
        if isinstance(place, slice):
            return self._of(self.rows[place], cheapest_first=self._cheapest_first and (place.step or 1) > 0)
        return self._made(self.rows[place])

    def __iter__(self) -> Iterator[Offer]:
        return map(self._made, self.rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and not isinstance(other, str) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # as of a list

    def _of(self, rows: Sequence[TableRow], *, cheapest_first: bool = False) -> TableOffers:
        return TableOffers(self.names, rows, per_hour=self._per_hour, cheapest_first=cheapest_first)

    def _made(self, row: TableRow) -> Offer:
        number, price, zone, date = row
        place, rest = divmod(number, self._width)
        machine, spot = self.names.machines[place], bool(rest & 1)
        return Offer(
            machine.provider,
            machine.instance_type,
            machine.vcpu,
            machine.memory_gib,
            price,
            self.names.regions[rest >> 1],
            machine.category,
            machine.family,
            machine.arch,
            machine.gpus,
            spot,
            1,
            date[:10],
            machine.source,
            {**machine.facts, "zone": name} if spot and (name := self.names.zones[zone]) else machine.facts,
            self._per_hour if spot else None,
        )

    # ------------------------------------------------------------------ columns

    def attributes(self, name: str) -> list[float | str | None]:
        """A fact of each offer, as `Offer.attribute` has it."""
        name = ALIASES.get(name, name)
        rows, regions = self.rows, self.names.regions
        if name == "price_per_hour":
            return [row[1] for row in rows]
        if name == "price_date":
            return [row[3][:10] for row in rows]
        if name == "region":
            width = self.names.width
            return [regions[row[0] % width >> 1] for row in rows]
        if name in _ROW:
            of_market = self._of_markets(name)
            return [of_market[row[0] & 1] for row in rows]
        found = self.of_machines(lambda machine: machine.attribute(name))
        if name == "zone":
            zones = self.names.zones
            found = [(row[0] & 1 and zones[row[2]]) or fact for row, fact in zip(rows, found, strict=True)]
        return found

    def coded(self, name: str) -> tuple[list[float | str | None], NDArray[np.intp]]:
        """Values of a fact, and the place of each offer's among them: of few machine types there are few values."""
        name = ALIASES.get(name, name)
        number = self._numbers
        if name in ("price_per_hour", "price_date", "zone"):
            import numpy as np

            return self.attributes(name), np.arange(len(number))
        if name == "region":
            return list(self.names.regions), number % self.names.width >> 1
        if name in _ROW:
            return self._of_markets(name), number & 1
        return [machine.attribute(name) for machine in self.names.machines], number // self.names.width

    @cached_property
    def _numbers(self) -> NDArray[np.intp]:
        # Here and not above: a program that only lists offers does not pay for numpy.
        import numpy as np

        return np.fromiter((row[0] for row in self.rows), dtype=np.intp, count=len(self.rows))

    def _of_markets(self, name: str) -> list[float | str | None]:
        """A fact of an offer on demand, and on spot."""
        if name == "spot":
            return [False, True]
        return [1, 1] if name == "nodes" else [None, self._per_hour]

    def of_machines(self, value: Callable[[Offer], Any]) -> list[Any]:
        """Something of the machine type of each offer.

        Args:
            value: Finds it; the offer has neither region nor price.
        """
        width = self.names.width
        values = [value(machine) for machine in self.names.machines]
        return [values[row[0] // width] for row in self.rows]

    def fact_names(self) -> set[str]:
        """The names of all facts of these offers."""
        machines, zones = self.names.machines, self.names.zones
        used = set(self.machine_places())
        found = {name for place in used for name in machines[place].facts}
        return found | ({"zone"} if any(row[0] & 1 and zones[row[2]] for row in self.rows) else set())

    def machine_places(self) -> list[int]:
        """The place of the machine type of each offer among those of the table."""
        width = self.names.width
        return [row[0] // width for row in self.rows]

    def keys(self) -> list[str]:
        """The key of each offer, as `Offer.key` has it."""
        width, regions = self.names.width, self.names.regions
        starts = [f"{machine.provider}/" for machine in self.names.machines]
        ends = [(f"/{one.instance_type}x1", f"/{one.instance_type}/spotx1") for one in self.names.machines]
        return [
            f"{starts[(place := row[0] // width)]}{regions[row[0] % width >> 1]}{ends[place][row[0] & 1]}"
            for row in self.rows
        ]

    def key_ranks(self) -> NDArray[np.int64]:
        """Numbers that are in the order of the keys."""
        import numpy as np

        machines, regions = self.names.machines, self.names.regions
        providers = {name: place for place, name in enumerate(dict.fromkeys(one.provider for one in machines))}
        if any("/" in name for name in (*providers, *regions)):
            ranks = np.empty(len(self), dtype=np.int64)
            keys = self.keys()
            ranks[sorted(range(len(self)), key=keys.__getitem__)] = np.arange(len(self))
            return ranks
        # No "provider/region/" is the beginning of another one: the first part decides, and then the second.
        first = _ranks([f"{provider}/{region}/" for provider in providers for region in regions])
        second = _ranks([f"{one.instance_type}{kind}x1" for one in machines for kind in ("", "/spot")])
        machine, rest = np.divmod(self._numbers, self.names.width)
        provider = np.array([providers[one.provider] for one in machines], dtype=np.int64)[machine]
        place = provider * len(regions) + (rest >> 1)
        found: NDArray[np.int64] = first[place] * (2 * len(machines)) + second[2 * machine + (rest & 1)]
        return found

    def kinds(self) -> list[OfferKind]:
        """The kind of each offer."""
        width, machines = self.names.width, self.names.machines
        both = [tuple((one.provider, one.instance_type, spot) for spot in (False, True)) for one in machines]
        return [both[row[0] // width][row[0] & 1] for row in self.rows]

    # ------------------------------------------------------------------ other orders, other facts

    def take(self, places: Iterable[int]) -> TableOffers:
        """The offers at some places, in that order."""
        rows = self.rows
        return self._of([rows[place] for place in places])

    def cheapest_first(self) -> TableOffers:
        """The same offers by price, and by `Offer.key` where it is the same."""
        if self._cheapest_first:
            return self
        ordered = sorted(self.rows, key=itemgetter(1))
        start = 0
        for end in range(1, len(ordered) + 1):
            if end == len(ordered) or ordered[end][1] != ordered[start][1]:
                if end - start > 1:
                    ordered[start:end] = self._by_key(ordered[start:end])
                start = end
        return self._of(ordered, cheapest_first=True)

    def _by_key(self, rows: Sequence[TableRow]) -> list[TableRow]:
        keyed = sorted((key, place) for place, key in enumerate(self._of(rows).keys()))
        return [rows[place] for _, place in keyed]

    def with_interruptions(self, per_hour: float) -> TableOffers:
        """The same offers, where spot machines are taken back so many times per hour."""
        return TableOffers(self.names, self.rows, per_hour=per_hour, cheapest_first=self._cheapest_first)


def _ranks(texts: Sequence[str]) -> NDArray[np.int64]:
    """The place of each text among the different ones in their order."""
    import numpy as np

    place = {text: place for place, text in enumerate(sorted(set(texts)))}
    return np.array([place[text] for text in texts], dtype=np.int64)
