"""Dominant resource fairness."""

from __future__ import annotations

from tradewind.tenancy.fairness.base import Fairness
from tradewind.tenancy.views import TenantView


class DrfFairness(Fairness):
    """Weighted dominant resource fairness: the tenant with the smallest dominant share for its weight is next.

    Progressive filling as Algorithm 1 of Ghodsi et al., "Dominant resource fairness: fair allocation of multiple
    resource types", NSDI 2011, for tasks that cannot be divided; the first level of paper 4's scheduling.
    """

    name = "drf"

    def key(self, tenant: TenantView) -> tuple[float, ...]:
        """See `Fairness.key`."""
        return (tenant.share / tenant.weight,)
