"""Weighted shares over time."""

from __future__ import annotations

import math

from pydantic import Field

from tradewind.deployer.runner.warden.weighted_use import HALF_LIFE, WeightedUse
from tradewind.plugins import Settings
from tradewind.tenancy.fairness.base import Fairness
from tradewind.tenancy.views import TenantView

_LEAD = 4.0
"""Runs by which a tenant may be ahead of one that waits, and still take the room beside it for longer than it waits."""


class FairShareSettings(Settings):
    """Settings of shares over time."""

    half_life: float = Field(HALF_LIFE, gt=0, description="Seconds after which a use counts half as much as one of now")
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
        self._use = WeightedUse(settings.half_life)

    def key(self, tenant: TenantView) -> tuple[float, ...]:
        """See `Fairness.key`."""
        return (self._use.level(tenant.name),)

    def came(self, tenant: TenantView) -> None:
        """Lift it to where the one stood that was next last."""
        self._use.came(tenant.name, self.settings.credit)

    def began(self, turn: tuple[float, ...]) -> None:
        """See `Fairness.began`."""
        self._use.began(turn[0])

    def used(self, tenant: TenantView, amount: float, since: float) -> None:
        """See `Fairness.used`."""
        self._use.used(tenant.name, amount / tenant.weight, since)

    def precedes(self, turn: tuple[float, ...], other: TenantView) -> bool:
        """True when it has used no more than the other one, as that stood if its work came now."""
        return turn[0] <= max(self._use.level(other.name), self._use.passed)

    def may_pass(self, tenant: TenantView, other: TenantView, amount: float, now: float) -> bool:
        """True while it is ahead by a few runs at most.

        It delays no run that has its place kept, but takes room on which those after it count: small runs that take
        long would always be there, and large ones of others never beside each other.
        """
        return self._use.difference(tenant.name, other.name, now) <= _LEAD * amount

    def runs_before(self, tenant: TenantView, other: TenantView, amount: float, now: float) -> int | None:
        """See `Fairness.runs_before`."""
        ahead = self._use.difference(tenant.name, other.name, now)
        # Equal ones go by arrival; and the one that passes it is started before.
        return 1 + max(0, math.ceil(ahead * other.weight / amount - 1e-9))
