"""Places that are kept for runs that have no room."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from tradewind.tenancy.node_pool import NodePool
from tradewind.tenancy.request_queue import ResourceRequest
from tradewind.tenancy.resources import SLACK, Amounts, add_amounts
from tradewind.tenancy.run_times import RunTimes

_LOOKED_AT = 16
"""Nodes, those with most room, among which the one is chosen that is expected to be free first."""


class NodeReservations:
    """Nodes that are kept free for demands that found no room for a while.

    Without them a run of a whole node would wait for ever beside a stream of small ones that take each gap at once. One
    node is kept for each demand that waits too long: nothing else starts there until it fits.

    Args:
        pool: The nodes.
        patience: Seconds without room after which a node is kept.
    """

    def __init__(self, pool: NodePool, patience: float) -> None:
        self._pool, self._patience = pool, patience
        self._until: dict[Amounts, float] = {}
        self._kept: dict[Amounts, str] = {}

    def find(self, demand: Amounts) -> str | None:
        """The node for a demand: one that is open to all, or the one that is kept for it."""
        node = self._pool.fit(demand)
        if node is not None or demand not in self._kept:
            return node
        kept = self._kept[demand]
        return kept if self._pool.fits_on(kept, demand) else None

    def placed(self, demand: Amounts) -> None:
        """A demand has found room: what was kept for it is open again."""
        self._until.pop(demand, None)
        kept = self._kept.pop(demand, None)
        if kept is not None:
            self._pool.unkeep(kept)

    def blocked(self, demands: Set[Amounts], now: float) -> float | None:
        """Note which demands wait without room; keep nodes for those that have waited too long.

        Returns:
            When the next of them has waited too long, or None.
        """
        for gone in [demand for demand in self._until if demand not in demands]:
            self.placed(gone)
        due: list[float] = []
        for demand in demands:
            until = self._until.setdefault(demand, now + self._patience)
            if demand in self._kept:
                continue
            if now < until:
                due.append(until)
            elif (node := self._pool.roomiest(demand)) is not None:
                self._pool.keep(node)
                self._kept[demand] = node
        return min(due, default=None)

    def lose(self, node: str) -> None:
        """A node is gone."""
        self._kept = {demand: kept for demand, kept in self._kept.items() if kept != node}


class PlaceBookings:
    """Places that are kept for runs that are due and have no room yet: on which node each starts, in which order.

    A place is booked where it is expected to be free first. From then on nothing takes it but what is expected to end
    before, or leaves it enough room: EASY backfilling. When the place was not free by then, nothing more goes before: so
    a run waits for what was there before it, and for what ran there longer than it was expected to.

    Args:
        pool: The nodes.
        times: How long runs take.
    """

    def __init__(self, pool: NodePool, times: RunTimes) -> None:
        self._pool, self._times = pool, times
        self._on: dict[str, list[ResourceRequest]] = {}

    def book(self, request: ResourceRequest, now: float) -> bool:
        """Keep a place for a run; False where no node can hold it when what runs there has ended.

        Args:
            request: The run; it uses up what it takes on its node from now on.
            now: The time.
        """
        best: tuple[float, str] | None = None
        for node in self._pool.roomy(request.demand, _LOOKED_AT):
            opens = self._opening(node, self._pool.free_amounts(node), request.demand, now)[0]
            if opens < float("inf") and (best is None or opens < best[0]):
                best = opens, node
        if best is None:
            return False
        request.opens, request.booked = best
        self._on.setdefault(request.booked, []).append(request)
        self._pool.book(request.booked, request.demand)
        return True

    def cancel(self, request: ResourceRequest) -> None:
        """Give up the place that is kept for a run."""
        node, request.booked = request.booked, None
        here = self._on.get(node or "", [])
        if node is None or request not in here:
            return
        here.remove(request)
        self._pool.unbook(node, request.demand)
        if not here:
            del self._on[node]

    def ready(self, node: str) -> Iterator[tuple[ResourceRequest, str]]:
        """The runs for which places on a node were kept that have room now; the places are no longer kept."""
        while (here := self._on.get(node)) and self._pool.fits_beside(node, here[0].demand):
            request = here[0]
            self.cancel(request)
            yield request, node

    def on(self, node: str) -> list[ResourceRequest]:
        """The runs that have a place on a node booked, in their order."""
        return list(self._on.get(node, ()))

    def backfill(self, demand: Amounts, seconds: float | None, now: float) -> str | None:
        """A node on which places are kept and a run delays none of them; None where there is none.

        Args:
            demand: What is to start.
            seconds: How long it is expected to take; None where that is not known.
            now: The time.
        """
        for node in self._pool.beside_bookings(demand, _LOOKED_AT):
            first = self._on[node][0]
            if seconds is not None and now + seconds <= first.opens:
                return node
            free = self._pool.free_amounts(node, booked=False)
            opens, free = self._opening(node, free, first.demand, now)
            wanted = demand
            for each in self._on[node]:
                wanted = tuple(add_amounts(wanted, each.demand))
            if opens < float("inf") and _enough(free, wanted):
                return node
        return None

    def _opening(self, node: str, free: Amounts, demand: Amounts, now: float) -> tuple[float, Amounts]:
        """The time at which a demand is expected to have room on a node, and what is free there by then."""
        opens = now
        for run in self._times.ends_on(node):
            if _enough(free, demand):
                break
            opens, free = max(now, run.since + run.foreseen), tuple(add_amounts(free, run.demand))
        return (opens if _enough(free, demand) else float("inf")), free


def _enough(free: Sequence[float], demand: Sequence[float]) -> bool:
    """True when all amounts of a demand are free; of what it does not take, more may be placed than there is."""
    return all(wanted <= 0 or wanted <= has + SLACK for wanted, has in zip(demand, free, strict=True))
