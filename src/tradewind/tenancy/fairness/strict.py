"""Strict priority."""

from __future__ import annotations

from tradewind.tenancy.fairness.base import Fairness
from tradewind.tenancy.views import TenantView


class StrictFairness(Fairness):
    """Strict priority: the tenant of the largest priority is next, whatever it has; equal ones share by weight."""

    name = "strict"

    def key(self, tenant: TenantView) -> tuple[float, ...]:
        """See `Fairness.key`."""
        return (-float(tenant.priority), tenant.share / tenant.weight)

    def may_take(self, tenant: TenantView, other: TenantView) -> bool:
        """Never of a tenant that goes before."""
        return other.priority <= tenant.priority
