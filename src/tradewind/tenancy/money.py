"""The dollars of a tenant's quota: what its searches may still promise to spend."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tradewind.errors import QuotaError
from tradewind.store.clusters.cluster_store import JobRow, TenantRow
from tradewind.utils.units import format_money


def check_dollar_quota(tenant: TenantRow, searches: Mapping[int, float], requests: float, wanted: JobRow) -> None:
    """Refuse a search that could take its tenant beyond the dollars of the tenant's quota.

    The budget of a search is a cap, so budgets that fit together keep the quota.

    Args:
        tenant: The tenant; without dollars in its quota anything is allowed.
        searches: USD that its other searches have spent or may spend, by number; see `ClusterStore.spending`.
        requests: USD that its requests have cost or may cost.
        wanted: The search.

    Raises:
        QuotaError: It has no budget, another one that is not over has none, or not enough is left.
    """
    quota = tenant.quota.get("dollars")
    if quota is None:
        return
    budget = (wanted.spec.get("budget") or {}).get("dollars")
    most = f"tenant {tenant.name} may spend {format_money(quota)} in all"
    if budget is None:
        raise QuotaError(f"{most}, and the search has no budget", hint="write budget: {dollars: 2}")
    for number, dollars in searches.items():
        if math.isinf(dollars):
            raise QuotaError(
                f"{most}, and search {number}, which is not over, has no budget", hint=f"tradewind cancel {number}"
            )
    left = max(0.0, quota - sum(searches.values()) - requests)
    if budget > left + 1e-9:
        raise QuotaError(
            f"{most}, and {format_money(left)} of it are neither spent nor promised to searches and requests: less "
            f"than the budget of {format_money(budget)}",
            hint="give the search a smaller budget; tradewind tenant list shows what was spent",
        )
