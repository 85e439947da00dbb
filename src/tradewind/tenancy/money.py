"""The dollars of a tenant's quota: what its searches may still promise to spend."""

from __future__ import annotations

from collections.abc import Sequence

from tradewind.errors import QuotaError
from tradewind.store.base import Store
from tradewind.store.cluster import OPEN, JobRow, TenantRow
from tradewind.units import format_money


def check_money(tenant: TenantRow, jobs: Sequence[JobRow], studies: Store, wanted: JobRow) -> None:
    """Refuse a search that could take its tenant beyond the dollars of the tenant's quota.

    The budget of a search is a cap, so budgets that fit together keep the quota: a search that is not over counts with
    its budget, one that is over with what it has spent.

    Args:
        tenant: The tenant; without dollars in its quota anything is allowed.
        jobs: Its other searches, over or not.
        studies: The studies of the same store.
        wanted: The search.

    Raises:
        QuotaError: It has no budget, another one that is not over has none, or not enough is left.
    """
    quota = tenant.quota.get("dollars")
    if quota is None:
        return
    budget = _budget(wanted)
    most = f"tenant {tenant.name} may spend {format_money(quota)} in all"
    if budget is None:
        raise QuotaError(f"{most}, and the search has no budget", hint="write budget: {dollars: 2}")
    taken = 0.0
    for job in jobs:
        spent = 0.0 if job.study_id is None else sum(run.cost for run in studies.runs(job.study_id))
        if job.state not in OPEN:
            taken += spent
            continue
        promised = _budget(job)
        if promised is None:
            raise QuotaError(
                f"{most}, and search {job.id}, which is not over, has no budget", hint=f"tradewind cancel {job.id}"
            )
        taken += max(promised, spent)
    left = max(0.0, quota - taken)
    if budget > left + 1e-9:
        raise QuotaError(
            f"{most}, and {format_money(left)} of it are neither spent nor promised to searches: less than "
            f"the budget of {format_money(budget)}",
            hint="give the search a smaller budget; tradewind tenant list shows what was spent",
        )


def _budget(job: JobRow) -> float | None:
    dollars = (job.spec.get("budget") or {}).get("dollars")
    return None if dollars is None else float(dollars)
