"""Weighted shares over time."""

from __future__ import annotations

import math

from pydantic import Field

from tradewind.plugins import Settings
from tradewind.tenancy.fairness.base import Fairness
from tradewind.tenancy.views import TenantView

_NEVER = -math.inf

_LEAD = 4.0
"""Runs by which a tenant may be ahead of one that waits, and still take the room beside it for longer than it waits."""


class FairShareSettings(Settings):
    """Settings of shares over time."""

    half_life: float = Field(
        7 * 86400.0, gt=0, description="Seconds after which a use counts half as much as one of now"
    )
    credit: float = Field(
        0.0,
        ge=0,
        description="Seconds of the whole cluster, for a weight of 1, by which a tenant that comes back may go before"
        " others for what it left to them; 0 for none",
    )


class FairShareFairness(Fairness):
    """Weighted shares over time: the tenant that has used least for its weight is next, and a place is kept for it.

    A run counts with its dominant share of the cluster times its seconds, divided by its tenant's weight: from its
    start for as long as it is expected to take, and in the end as it was. So sizes and lengths of runs make no
    difference, and weights hold with one run each, which takes turns. Use that is past counts with a half-life, as in
    Slurm's fair share. What a tenant used while nobody else had work that waits is not held against it: whoever comes
    begins where the tenant stood that was next last, as in start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM
    1996).

    A place that is too small for the run that is due is kept for it, and other runs start there if they are expected
    to end before or leave it enough room: EASY backfilling (Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995).
    """

    name = "fair_share"
    keeps_places = True
    Settings = FairShareSettings
    settings: FairShareSettings

    def __init__(self, *, settings: FairShareSettings) -> None:
        super().__init__(settings=settings)
        # Logarithms to base 2 of sums that grow by 2 ** (time / half_life): so their order changes by use alone.
        self._levels: dict[str, float] = {}
        self._passed = _NEVER
        self._inflation = 0.0

    def key(self, tenant: TenantView) -> tuple[float, ...]:
        """See `Fairness.key`."""
        return (self._levels.get(tenant.name, _NEVER),)

    def came(self, tenant: TenantView) -> None:
        """Lift it to where the one stood that was next last."""
        level, floor = self._levels.get(tenant.name, _NEVER), self._passed
        if self.settings.credit and floor > _NEVER:
            floor = _add(floor, -self.settings.credit, self._inflation)
        self._levels[tenant.name] = max(level, floor)

    def began(self, turn: tuple[float, ...]) -> None:
        """See `Fairness.began`."""
        self._passed = max(self._passed, turn[0])

    def used(self, tenant: TenantView, amount: float, since: float) -> None:
        """See `Fairness.used`."""
        self._inflation = since / self.settings.half_life
        level = self._levels.get(tenant.name, _NEVER)
        self._levels[tenant.name] = _add(level, amount / tenant.weight, self._inflation)

    def precedes(self, turn: tuple[float, ...], other: TenantView) -> bool:
        """True when it has used no more than the other one, as that stood if its work came now."""
        return turn[0] <= max(self._levels.get(other.name, _NEVER), self._passed)

    def may_pass(self, tenant: TenantView, other: TenantView, amount: float, now: float) -> bool:
        """True while it is ahead by a few runs at most.

        It delays no run that has its place kept, but takes room on which those after it count: small runs that take
        long would always be there, and large ones of others never beside each other.
        """
        return self._lead(tenant, other, now) <= _LEAD * amount

    def _lead(self, tenant: TenantView, other: TenantView, now: float) -> float:
        """Dominant share times seconds for a weight of 1, as of now, that a tenant has used more than another one."""
        mine, its = self.key(tenant)[0], self.key(other)[0]
        ahead: float = 2.0 ** max(min(mine - now / self.settings.half_life, 1000.0), -1000.0)
        ahead -= 2.0 ** max(min(its - now / self.settings.half_life, 1000.0), -1000.0)
        return ahead

    def runs_before(self, tenant: TenantView, other: TenantView, amount: float, now: float) -> int | None:
        """See `Fairness.runs_before`."""
        ahead = self._lead(tenant, other, now)
        # Equal ones go by arrival; and the one that passes it is started before.
        return 1 + max(0, math.ceil(ahead * other.weight / amount - 1e-9))


def _add(level: float, amount: float, inflation: float) -> float:
    """The logarithm of 2 ** level + amount * 2 ** inflation; of nothing where less than nothing is left."""
    if not amount:
        return level
    change = math.log2(abs(amount)) + inflation
    if level == _NEVER:
        return change if amount > 0 else _NEVER
    high, low = max(level, change), min(level, change)
    ratio = 2.0 ** max(low - high, -1100.0)
    if amount > 0:
        return high + math.log1p(ratio) / math.log(2.0)
    return high + math.log1p(-ratio) / math.log(2.0) if level > change and ratio < 1.0 else _NEVER
