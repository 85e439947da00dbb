"""Large runs among small ones: a node is kept for what has waited too long."""

from __future__ import annotations

from collections.abc import Set

from tradewind.tenancy.node_pool import NodePool
from tradewind.tenancy.resources import Amounts


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
