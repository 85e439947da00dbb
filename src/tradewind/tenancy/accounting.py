"""What tenants have used: resource-seconds and dollars, from the runs that the store keeps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tradewind.store.base import Store
from tradewind.store.cluster import ClusterStore, JobRow
from tradewind.tenancy.resources import demand_of_run


def bills(clusters: ClusterStore, studies: Store) -> list[dict[str, Any]]:
    """One JSON-able row for each tenant, by name.

    Each run counts for as long as it ran with the resources of its trial's offer, or those that its search was
    submitted with, and with what it cost; those on their way count up to what was stored of them last. Nothing is kept
    twice: what the store has of the runs is the account.

    Args:
        clusters: The tables of clusters.
        studies: The studies of the same store.
    """
    jobs: dict[str, list[JobRow]] = {tenant.name: [] for tenant in clusters.tenants()}
    counts: Counter[str] = Counter()
    for job in clusters.jobs():
        counts[job.tenant] += 1
        if job.study_id is not None:
            jobs[job.tenant].append(job)
    return [
        {
            "tenant": tenant.name,
            "weight": tenant.weight,
            "priority": tenant.priority,
            "quota": dict(tenant.quota),
            "searches": counts[tenant.name],
            **_used(studies, jobs[tenant.name]),
        }
        for tenant in clusters.tenants()
    ]


def _used(studies: Store, jobs: Sequence[JobRow]) -> dict[str, Any]:
    seconds: dict[str, float] = {}
    dollars, runs = 0.0, 0
    for job in jobs:
        assert job.study_id is not None
        offers = {trial.number: trial.offer for trial in studies.trials(job.study_id)}
        for run in studies.runs(job.study_id):
            runs += 1
            dollars += run.cost
            if (offer := offers.get(run.trial)) is not None:
                for kind, amount in demand_of_run(offer, job.options).items():
                    seconds[kind] = seconds.get(kind, 0.0) + amount * run.runtime
    return {"runs": runs, "dollars": round(dollars, 9), "seconds": {k: v for k, v in seconds.items() if v}}
