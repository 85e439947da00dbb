"""The nodes of a cluster and what is free on each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tradewind.tenancy.resources import SLACK, Amounts, ResourceKinds


class NodePool:
    """The nodes, as columns of arrays: finding a place is a few operations over all of them.

    Args:
        kinds: The kinds of resource.

    Attributes:
        total: What all nodes that take work have together.
    """

    def __init__(self, kinds: ResourceKinds) -> None:
        self.kinds = kinds
        self.total: Amounts = (0.0,) * len(kinds.names)
        self._names: list[str] = []
        self._places: dict[str, int] = {}
        self._capacity = np.zeros((len(kinds.names), 0))
        self._free = np.zeros((len(kinds.names), 0))
        self._cores = np.zeros((len(kinds.names), 0))
        self._booked = np.zeros((len(kinds.names), 0))  # of what is not free, that nothing uses yet
        self._repeatable = np.zeros((len(kinds.names), 0))  # of what is used, by runs that may be taken
        self._any_booked = np.zeros(0, dtype=bool)
        self._open = np.zeros(0, dtype=bool)  # takes new work
        self._kept: set[str] = set()  # for one demand

    def __contains__(self, node: object) -> bool:
        return node in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def join(self, node: str, capacity: Amounts) -> None:
        """Add a node; one that is there already gets another capacity, and takes work (again)."""
        place = self._places.get(node)
        if place is None:
            self.join_all([(node, capacity)])
            return
        amounts = np.array(capacity)
        self._free[:, place] += amounts - self._capacity[:, place]
        self._capacity[:, place] = amounts
        self._open[place] = True
        self._sum()

    def join_all(self, nodes: Sequence[tuple[str, Amounts]]) -> None:
        """Add many new nodes at once."""
        first = len(self._names)
        columns = np.array([capacity for _, capacity in nodes]).reshape(len(nodes), -1).T
        self._names += [name for name, _ in nodes]
        self._places.update({name: first + place for place, (name, _) in enumerate(nodes)})
        self._capacity = np.hstack([self._capacity, columns])
        self._free = np.hstack([self._free, columns])
        self._cores = np.hstack([self._cores, np.zeros_like(columns)])
        self._booked = np.hstack([self._booked, np.zeros_like(columns)])
        self._repeatable = np.hstack([self._repeatable, np.zeros_like(columns)])
        self._open = np.append(self._open, np.ones(len(nodes), dtype=bool))
        self._any_booked = np.append(self._any_booked, np.zeros(len(nodes), dtype=bool))
        self._sum()

    def lose(self, node: str) -> None:
        """Take a node away; what was placed there is given back before."""
        place = self._places.pop(node, None)
        if place is None:
            return
        last = len(self._names) - 1
        for array in (self._capacity, self._free, self._cores, self._booked, self._repeatable):
            array[:, place] = array[:, last]
        self._open[place], self._any_booked[place] = self._open[last], self._any_booked[last]
        self._names[place] = self._names[last]
        if place != last:
            self._places[self._names[place]] = place
        self._names.pop()
        self._kept.discard(node)
        self._capacity, self._free, self._cores, self._booked, self._repeatable = (
            array[:, :last] for array in (self._capacity, self._free, self._cores, self._booked, self._repeatable)
        )
        self._open, self._any_booked = self._open[:last], self._any_booked[:last]
        self._sum()

    def close(self, node: str) -> None:
        """Place nothing more on a node, until it joins again."""
        self._open[self._places[node]] = False

    def keep(self, node: str) -> None:
        """Keep a node for what asks for it by name; `fit` passes it over."""
        self._kept.add(node)

    def unkeep(self, node: str) -> None:
        """A node is there for all again."""
        self._kept.discard(node)

    def fit(self, demand: Amounts) -> str | None:
        """The node that has room and would have least left, in shares of the cluster; None where none has."""
        place = _tightest(self._free, demand, self._usable(), self.total)
        return None if place < 0 else self._names[place]

    def fits_on(self, node: str, demand: Amounts) -> bool:
        """True when a node that takes work has room for a demand."""
        place = self._places[node]
        return bool(self._open[place] and _enough(self._free[:, place : place + 1], demand)[0])

    def roomy(self, demand: Amounts, most: int) -> list[str]:
        """The nodes that could hold the demand once their work ends, those that have most of it free first.

        Args:
            demand: What is to find room.
            most: So many at most.
        """
        could = self._usable() & _enough(self._capacity - self._cores, demand)
        free = np.where(could, self._share_free(demand), -np.inf)
        order = np.argsort(-free, kind="stable")[: min(most, int(np.count_nonzero(could)))]
        return [self._names[place] for place in map(int, order)]

    def holds(self, node: str, demand: Amounts) -> bool:
        """True when a node that takes work could hold a demand beside the Cores that are there."""
        place = self._places.get(node)
        if place is None or not self._open[place]:
            return False
        each = slice(place, place + 1)
        return bool(_enough(self._capacity[:, each] - self._cores[:, each], demand)[0])

    def free_amounts(self, node: str, *, booked: bool = True) -> Amounts:
        """Amounts that are free on a node; below 0 where more is placed than it has.

        Args:
            node: Its name.
            booked: What is booked is not free.
        """
        place = self._places[node]
        free = self._free[:, place] if booked else self._free[:, place] + self._booked[:, place]
        return tuple(map(float, free))

    def book(self, node: str, demand: Amounts) -> None:
        """Keep what a demand takes on a node: nothing else finds it free, though nothing uses it yet."""
        place = self._places[node]
        self._free[:, place] -= demand
        self._booked[:, place] += demand
        self._any_booked[place] = True

    def unbook(self, node: str, demand: Amounts) -> None:
        """Undo `book`; on a node that is gone, nothing."""
        place = self._places.get(node)
        if place is None:
            return
        self._free[:, place] += demand
        self._booked[:, place] -= demand
        self._any_booked[place] = bool((self._booked[:, place] > SLACK).any())

    def fits_beside(self, node: str, demand: Amounts) -> bool:
        """True when a node that takes work has room for a demand, what is only booked there not counted."""
        place = self._places[node]
        each = slice(place, place + 1)
        return bool(self._open[place] and _enough(self._free[:, each] + self._booked[:, each], demand)[0])

    def beside_bookings(self, demand: Amounts, most: int) -> list[str]:
        """The nodes on which something is booked and a demand has room beside what is used now.

        Args:
            demand: What is to find room.
            most: So many at most.
        """
        fits = np.flatnonzero(self._open & self._any_booked & _enough(self._free + self._booked, demand))
        return [self._names[place] for place in map(int, fits[:most])]

    def roomiest(self, demand: Amounts) -> str | None:
        """The node that could hold the demand once its work ends, and has most of it free; None where none can."""
        return self._roomiest(demand, self._usable() & _enough(self._capacity - self._cores, demand))

    def ahead(self, demand: Amounts, count: int) -> str | None:
        """The roomiest node for which fewer such demands wait than some number; None where none has room for that.

        Args:
            demand: What has no room now.
            count: How many may wait for a node; of another size, as many as come to the same amounts.
        """
        if count < 1:
            return None
        few = _enough(self._free + count * np.array(demand)[:, None], demand)
        return self._roomiest(demand, self._usable() & few & _enough(self._capacity - self._cores, demand))

    def _roomiest(self, demand: Amounts, could: NDArray[np.bool_]) -> str | None:
        if not could.any():
            return None
        return self._names[int(np.argmax(np.where(could, self._share_free(demand), -np.inf)))]

    def _share_free(self, demand: Amounts) -> NDArray[np.float64]:
        """The part of a demand that is free on each node; below 0 where more is placed than it has."""
        free = np.full(len(self._names), 1.0)
        for row, wanted in zip(self._free, demand, strict=True):
            if wanted > 0:
                np.minimum(free, row / wanted, out=free)
        return free

    def fit_core(self, demand: Amounts, must_fit: Sequence[Amounts]) -> str | None:
        """A node for a Core beside which each of some demands still has a node that could hold it; None if none.

        Args:
            demand: Of the Core.
            must_fit: Demands of runs; each must fit on some node when only Cores are there.
        """
        free = np.where(self._usable(), self._free + self._booked, -1.0)
        order = np.argsort(_left(free, demand, self.total), kind="stable")
        room = self._capacity - self._cores
        fits = _enough(free, demand)
        for place in map(int, order):
            if not fits[place]:
                continue
            room[:, place] -= demand
            if all(_enough(room, each).any() for each in must_fit):
                return self._names[place]
            room[:, place] += demand
        return None

    def could_hold(self, demand: Amounts) -> bool:
        """True when some node has the capacity for a demand beside the Cores that are there."""
        return bool(_enough(self._capacity - self._cores, demand).any())

    def holds_of(self, demand: Amounts) -> int:
        """The number of such demands that all nodes hold at a time beside the Cores that are there."""
        most = np.full(len(self._names), np.inf)
        for row, wanted in zip(self._capacity - self._cores, demand, strict=True):
            if wanted > 0:
                np.minimum(most, np.floor((row + SLACK) / wanted), out=most)
        return int(most.sum()) if len(most) and np.isfinite(most).all() else len(most)

    def could_ever_hold(self, demand: Amounts, core: Amounts) -> bool:
        """True when a demand and a Core would have room together on nodes where nothing else is."""
        for_run, for_core = _enough(self._capacity, demand), _enough(self._capacity, core)
        both = _enough(self._capacity, tuple(d + c for d, c in zip(demand, core, strict=True)))
        apart = for_run.any() and for_core.any() and np.count_nonzero(for_run | for_core) > 1
        return bool(both.any() or apart)

    def may_have_room(self, demand: Amounts) -> list[str]:
        """The nodes on which a demand has room if all is gone that may be taken, and nothing is kept; or nearly so."""
        most = self._free + self._booked + self._repeatable + SLACK
        return [self._names[place] for place in map(int, np.flatnonzero(self._open & _enough(most, demand)))]

    def take(self, node: str, demand: Amounts, *, core: bool = False, repeatable: bool = False) -> None:
        """Use up what a demand takes on a node, for a Core or a run that may be taken."""
        place = self._places[node]
        self._free[:, place] -= demand
        if core:
            self._cores[:, place] += demand
        if repeatable:
            self._repeatable[:, place] += demand

    def give_back(self, node: str, demand: Amounts, *, core: bool = False, repeatable: bool = False) -> None:
        """Undo `take`; on a node that is gone, nothing."""
        place = self._places.get(node)
        if place is None:
            return
        self._free[:, place] += demand
        if core:
            self._cores[:, place] -= demand
        if repeatable:
            self._repeatable[:, place] -= demand

    def free(self, node: str) -> dict[str, float]:
        """The free amounts of a node, by name, those kept among them; 0 where more is placed than it has."""
        return self.kinds.mapping([max(0.0, round(amount, 9)) for amount in self.free_amounts(node, booked=False)])

    def capacity(self, node: str) -> dict[str, float]:
        """The capacity of a node, by name."""
        return self.kinds.mapping([float(amount) for amount in self._capacity[:, self._places[node]]])

    def _usable(self) -> NDArray[np.bool_]:
        if not self._kept:
            return self._open
        usable = self._open.copy()
        usable[[self._places[node] for node in self._kept]] = False
        return usable

    def _sum(self) -> None:
        self.total = tuple(float(amount) for amount in self._capacity.sum(axis=1))


Matrix = NDArray[np.float64]


def _enough(free: Matrix, demand: Amounts) -> NDArray[np.bool_]:
    """True for each node that has all amounts of a demand free; shape (nodes,)."""
    found: NDArray[np.bool_] | None = None
    for row, wanted in zip(free, demand, strict=True):
        if wanted > 0:
            enough = row >= wanted - SLACK
            found = enough if found is None else found & enough
    return np.ones(free.shape[1], dtype=bool) if found is None else found


def _left(free: Matrix, demand: Amounts, total: Amounts) -> NDArray[np.float64]:
    """The sum over resources of the share of the cluster that would be left free on each node."""
    left = np.zeros(free.shape[1])
    for row, wanted, whole in zip(free, demand, total, strict=True):
        if whole > 0:
            left += (row - wanted) / whole
    return left


def _tightest(free: Matrix, demand: Amounts, open_: NDArray[np.bool_], total: Amounts) -> int:
    places = np.flatnonzero(open_ & _enough(free, demand))
    if not len(places):
        return -1
    if len(places) == free.shape[1]:
        return int(np.argmin(_left(free, demand, total)))  # they are all of them, in their order
    return int(places[np.argmin(_left(free[:, places], demand, total))])
