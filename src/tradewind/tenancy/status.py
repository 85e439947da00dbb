"""What people ask an allocator: who uses what, and why something waits."""

from __future__ import annotations

from tradewind.tenancy.allocator import Allocator
from tradewind.tenancy.request_queue import require_known
from tradewind.tenancy.resources import add_amounts, fits_within, format_amounts


def usage(allocator: Allocator, tenant: str, now: float) -> dict[str, float]:
    """Amount times seconds of each resource that a tenant's runs have used, running ones up to now included.

    Raises:
        InputError: There is no such tenant.
    """
    it = require_known(allocator.tenants, tenant, "tenant")
    total = list(it.spent)
    for job in it.jobs.values():
        for request in job.running.values():
            total = [t + d * (now - request.since) for t, d in zip(total, request.demand, strict=True)]
    return allocator.policy.kinds.mapping(total)


def dominant_shares(allocator: Allocator) -> dict[str, float]:
    """The dominant share of each tenant now."""
    return {name: tenant.view.share for name, tenant in allocator.tenants.items()}


def why_waiting(allocator: Allocator, job: str) -> str:
    """Why a search has nothing running or no more of it, in words; empty where nothing of it waits.

    Raises:
        InputError: There is no such search.
    """
    it = require_known(allocator.jobs, job, "search")
    if it.paused:
        return "it is paused"
    if not it.admitted:
        return "its Core waits for a place"
    if not it.waiting:
        return ""
    demand = it.waiting[0].demand
    wanted = format_amounts(allocator.policy.kinds.mapping(demand))
    if not allocator.pool.could_hold(demand):
        if allocator.pool.could_ever_hold(demand, (0.0,) * len(demand)):
            return f"Cores leave no node that is large enough for {wanted}"
        return f"no node is large enough for {wanted}"
    if not fits_within(add_amounts(it.tenant.used, demand), it.tenant.quota):
        return f"tenant {it.tenant.view.name} uses its quota"
    if allocator.policy.priority.declines(it.view):
        return "it has stopped improving and gives way"
    return "others are due before it, or no node has room"
