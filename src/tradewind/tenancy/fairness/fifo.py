"""First come, first served."""

from __future__ import annotations

from tradewind.tenancy.fairness.base import Fairness
from tradewind.tenancy.views import TenantView


class FifoFairness(Fairness):
    """First come, first served over all tenants: the tenant of the oldest search that waits is next."""

    name = "fifo"

    def key(self, tenant: TenantView) -> tuple[float, ...]:
        """See `Fairness.key`."""
        return (float(tenant.oldest),)
