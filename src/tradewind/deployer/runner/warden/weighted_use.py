"""The use of tenants over time by their weights: who has used least is next.

The arithmetic of start-time fair queueing with a half-life, for the allocator of clusters and for the slots of a
machine, whose wardens have the standard library only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

NEVER = -math.inf
"""The level of who has used nothing."""

HALF_LIFE = 7 * 86400.0
"""Seconds after which a use usually counts half as much as one of now."""


def raised(level: float, amount: float, inflation: float) -> float:
    """The logarithm of 2 ** level + amount * 2 ** inflation; of nothing where less than nothing is left."""
    if not amount:
        return level
    change = math.log2(abs(amount)) + inflation
    if level == NEVER:
        return change if amount > 0 else NEVER
    high, low = max(level, change), min(level, change)
    ratio = 2.0 ** max(low - high, -1100.0)
    if amount > 0:
        return high + math.log1p(ratio) / math.log(2.0)
    return high + math.log1p(-ratio) / math.log(2.0) if level > change and ratio < 1.0 else NEVER


class WeightedUse:
    """Levels of tenants: use, divided by the weight. The one with the lowest is next.

    What a tenant used while nobody else had work that waits is not held against it: whoever comes begins where the
    tenant stood that was next last.

    Args:
        half_life: Seconds after which a use counts half as much as one of now.
        levels: By name; none at the beginning.
        passed: The level of the tenant that was next last.

    Attributes:
        levels: Logarithms to base 2 of sums that grow by 2 ** (time / half_life): so their order changes by use alone.
        passed: See above.
    """

    def __init__(self, half_life: float, levels: Mapping[str, float] | None = None, passed: float = NEVER) -> None:
        self._half_life = half_life
        self._inflation = 0.0
        self.levels: dict[str, float] = dict(levels or {})
        self.passed = passed

    def level(self, name: str) -> float:
        """The level of a tenant."""
        return self.levels.get(name, NEVER)

    def came(self, name: str, credit: float = 0.0) -> None:
        """Lift a tenant that had no work that waits to where the one stood that was next last.

        Args:
            name: The tenant.
            credit: So much of what it left to others it may use before them.
        """
        floor = self.passed
        if credit and floor > NEVER:
            floor = raised(floor, -credit, self._inflation)
        self.levels[name] = max(self.level(name), floor)

    def began(self, level: float) -> None:
        """A tenant of that level was next."""
        self.passed = max(self.passed, level)

    def used(self, name: str, amount: float, since: float) -> None:
        """Count a use, divided by the weight: it counts as one that began at a time; less than nothing takes back."""
        self._inflation = since / self._half_life
        self.levels[name] = raised(self.level(name), amount, self._inflation)

    def difference(self, more: str, less: str, now: float) -> float:
        """The use of a time by which one tenant is above another."""

        def of(name: str) -> float:
            found: float = 2.0 ** max(min(self.level(name) - now / self._half_life, 1000.0), -1000.0)
            return found

        return of(more) - of(less)
