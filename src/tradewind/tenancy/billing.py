"""Bills of tenants, in resource-seconds and dollars, from the runs that the store keeps; and their quota in dollars."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tradewind.deployer.compatibility import is_simulated
from tradewind.errors import QuotaError
from tradewind.store.base import Store
from tradewind.store.clusters.cluster_store import ClusterStore, JobRow, TenantRow
from tradewind.tenancy.resources import demand_of_run
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


def tenant_bills(clusters: ClusterStore, studies: Store) -> list[dict[str, Any]]:
    """One JSON-able row for each tenant, by name.

    Each run of its searches and of its requests to the service counts for as long as it ran with the resources of its
    trial's offer, or those that its search was submitted with, and with what it cost unless it was simulated; those
    on their way count up to what was stored of them last. A run that was taken for another tenant is on the bill of
    who pays it. Nothing is kept twice: what the store has of the runs is the account.

    Args:
        clusters: The tables of clusters.
        studies: The studies of the same store.
    """
    options: defaultdict[str, dict[int, Mapping[str, Any]]] = defaultdict(dict)
    searches, requests = Counter[str](), Counter[str]()
    bills: defaultdict[str, _Bill] = defaultdict(_Bill)
    for name, study in clusters.studies_of_requests():
        requests[name] += 1
        if study is not None:
            options[name][study] = {}
    for job in clusters.jobs():
        searches[job.tenant] += 1
        if job.study_id is not None:  # a request may have asked for it
            options[job.tenant][job.study_id] = job.options
    for name, of_studies in options.items():
        _charge(bills, name, studies, of_studies)
    return [
        {
            "tenant": tenant.name,
            "weight": tenant.weight,
            "priority": tenant.priority,
            "quota": dict(tenant.quota),
            "searches": searches[tenant.name],
            "requests": requests[tenant.name],
            "preempt": dict(tenant.preempt),
            **bills[tenant.name].document(),
        }
        for tenant in clusters.tenants()
    ]


@dataclass
class _Bill:
    runs: int = 0
    dollars: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)
    taken: int = 0

    def document(self) -> dict[str, Any]:
        used = {kind: amount for kind, amount in self.seconds.items() if amount}
        return {"runs": self.runs, "dollars": round(self.dollars, 9), "seconds": used, "taken": self.taken}


def _charge(bills: dict[str, _Bill], tenant: str, studies: Store, options: Mapping[int, Mapping[str, Any]]) -> None:
    """Put the runs of a tenant's studies on the bills of those who pay them."""
    for study, how in options.items():
        paid = not is_simulated(studies.study(study).spec)
        offers = {trial.number: trial.offer for trial in studies.trials(study)}
        for run in studies.runs(study):
            bill, taken = bills[tenant], run.preemption
            bill.runs += 1
            bill.dollars += run.cost if paid else 0.0
            if taken is not None and run.state.ended:
                bill.taken += 1
                if taken.pays == "cluster":
                    continue
                if taken.pays == "taker":
                    bill = bills[taken.tenant]
                    bill.dollars += taken.cost if paid else 0.0
            if (offer := offers.get(run.trial)) is not None:
                for kind, amount in demand_of_run(offer, how).items():
                    bill.seconds[kind] = bill.seconds.get(kind, 0.0) + amount * run.runtime
