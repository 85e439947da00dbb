"""What a cluster looks like at a moment, as a document for screens, pages and monitoring."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from tradewind.store.clusters.cluster_store import JobRow
from tradewind.tenancy.allocator import Allocator
from tradewind.tenancy.status import usage, why_waiting


def cluster_snapshot(
    allocator: Allocator, jobs: Mapping[int, JobRow], shown: Mapping[int, Mapping[str, Any]], now: float
) -> dict[str, Any]:
    """A JSON-able document of nodes, tenants and searches.

    Args:
        allocator: The allocator.
        jobs: The searches that are not over.
        shown: What their Cores said last.
        now: The time on the allocator's clock.
    """
    kinds = allocator.policy.kinds
    nodes = {name: {"has": allocator.pool.capacity(name), "free": allocator.pool.free(name)} for name in allocator.pool}
    tenants = {
        name: {
            "weight": tenant.view.weight,
            "share": tenant.view.share,
            "used": kinds.mapping(tenant.used),
            "usage": usage(allocator, name, now),
            "running": sum(len(job.running) for job in tenant.jobs.values()),
            "waiting": sum(len(job.waiting) for job in tenant.jobs.values()),
        }
        for name, tenant in allocator.tenants.items()
    }
    return {
        "total": kinds.mapping(allocator.pool.total),
        "nodes": nodes,
        "tenants": tenants,
        "decisions": allocator.decisions,
        "jobs": [_job_document(allocator, job, shown.get(job.id, {})) for job in jobs.values()],
    }


def _job_document(allocator: Allocator, job: JobRow, shown: Mapping[str, Any]) -> dict[str, Any]:
    it = allocator.jobs.get(str(job.id))
    found: dict[str, Any] = {
        "id": job.id,
        "tenant": job.tenant,
        "name": job.name,
        "state": job.state,
        "nice": job.nice,
        "submitted": job.submitted,
        "running": 0 if it is None else len(it.running),
        "waiting": 0 if it is None else len(it.waiting),
        "why": "" if it is None else why_waiting(allocator, str(job.id)),
    }
    if it is not None and it.view.earlier:
        found["usual"] = {"searches": len(it.view.earlier), "results": statistics.median(it.view.earlier)}
    return {**found, **shown}
