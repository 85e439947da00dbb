"""The offers that many configurations come to, as columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tradewind.problem.offer import Offer, attributes_of, fact_names_of, keys_of

Places = NDArray[np.intp]


class ResolvedOffers:
    """The different offers of some configurations, in the order in which they are first met.

    One is made when it is asked for: so many nodes of a machine type are two numbers until then.

    Args:
        machines: Offers of one node, each key once.
        machine_of: The place of each configuration's machine among them, -1 where no provider sells it.
        nodes_of: Its number of nodes, from 1 upwards.

    Attributes:
        place: The place of each configuration's offer among the different ones, -1 where there is none.
        hourly: USD per hour of all nodes together of each different offer.
    """

    def __init__(self, machines: Sequence[Offer], machine_of: Places, nodes_of: Places) -> None:
        self._machines = machines
        sold = machine_of >= 0
        self._stride = int(nodes_of.max(initial=0)) + 1
        numbers, first, which = np.unique(
            machine_of[sold] * self._stride + nodes_of[sold], return_index=True, return_inverse=True
        )
        order = np.argsort(first)
        rank = np.empty(len(order), dtype=np.intp)
        rank[order] = np.arange(len(order))
        self.place: Places = np.full(len(machine_of), -1, dtype=np.intp)
        self.place[sold] = rank[which]
        self._numbers, self._rank = numbers, rank
        self._machine, self._nodes = np.divmod(numbers[order], self._stride)
        prices = np.array(attributes_of(machines, "price_per_hour"), dtype=float)
        self.hourly: NDArray[np.float64] = prices[self._machine] * self._nodes
        self._made: dict[int, Offer] = {}

    @property
    def sizes(self) -> NDArray[np.float64]:
        """USD per hour, vCPUs and GiB of all nodes together of each different offer, shape (n, 3)."""
        columns = [np.array(attributes_of(self._machines, name), dtype=float) for name in ("vcpu", "memory_gib")]
        return np.column_stack([self.hourly, *(column[self._machine] * self._nodes for column in columns)])

    @property
    def fact_names(self) -> set[str]:
        """The names of all facts of the machines."""
        return fact_names_of(self._machines)

    @classmethod
    def of_offers(cls, found: Iterable[Offer | None]) -> ResolvedOffers:
        """The different ones of some offers, None where no provider sells a configuration."""
        machines: list[Offer] = []
        places: dict[str, int] = {}
        machine_of, nodes_of = [], []
        for offer in found:
            if offer is None:
                machine_of.append(-1)
                nodes_of.append(1)
                continue
            one = offer.times(1)
            place = places.setdefault(one.key, len(machines))
            if place == len(machines):
                machines.append(one)
            machine_of.append(place)
            nodes_of.append(offer.nodes)
        return cls(machines, np.array(machine_of, dtype=np.intp), np.array(nodes_of, dtype=np.intp))

    def __len__(self) -> int:
        return len(self._machine)

    def __getitem__(self, place: int) -> Offer:
        if place not in self._made:
            self._made[place] = self._machines[int(self._machine[place])].times(int(self._nodes[place]))
        return self._made[place]

    def index(self, offer: Offer) -> int | None:
        """The place of the offer with another one's key; None where it is not among these."""
        machine = self._machine_places.get(offer.times(1).key)
        if machine is None or offer.nodes >= self._stride:
            return None
        number = machine * self._stride + offer.nodes
        at = int(np.searchsorted(self._numbers, number))
        return int(self._rank[at]) if at < len(self._numbers) and self._numbers[at] == number else None

    @cached_property
    def _machine_places(self) -> dict[str, int]:
        return {key: place for place, key in enumerate(keys_of(self._machines))}
