"""Reasons, shares and waits of an allocator, in words and numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tradewind.tenancy.node_pool import NodePool
from tradewind.tenancy.request_queue import QueuedSearch, Tenant, require_known
from tradewind.tenancy.resources import Amounts, add_amounts, dominant_share, fits_within, format_amounts

if TYPE_CHECKING:
    from tradewind.tenancy.allocator import Allocator


def impossible_reason(job: QueuedSearch, demand: Amounts, pool: NodePool, *, grows: bool) -> str:
    """The reason why a run can never be started, in words; empty where it can, or could on more or larger nodes.

    Args:
        job: The search.
        demand: What the run takes.
        pool: The nodes.
        grows: There may be other nodes later.
    """
    name = pool.kinds.mapping
    wanted = f"it takes {format_amounts(name(demand))}"
    if any(job.core):
        wanted += f" beside the {format_amounts(name(job.core))} of its Core"
    if not fits_within(add_amounts(demand, job.core), job.tenant.quota):
        return f"{wanted}, and {_quota_words(job.tenant, pool)}"
    begun = job.running or job.view.values  # it found room before: a node is gone that may come back
    nothing = (0.0,) * len(demand)
    if not begun and pool.could_ever_hold(demand, nothing) and not pool.could_ever_hold(demand, job.core):
        return f"{wanted}, and no node is large enough for both"
    if not grows and any(pool) and not pool.could_ever_hold(demand, nothing):
        return f"{wanted}, and this cluster has no node that is large enough"
    return ""


def impossible_core_reason(core: Amounts, tenant: Tenant, pool: NodePool, *, grows: bool) -> str:
    """The reason why a Core can never be started, in words; empty where it can, or could on more or larger nodes.

    Args:
        core: What it takes.
        tenant: Whose it is.
        pool: The nodes.
        grows: There may be other nodes later.
    """
    wanted = f"its Core takes {format_amounts(pool.kinds.mapping(core))}"
    if not fits_within(core, tenant.quota):
        return f"{wanted}, and {_quota_words(tenant, pool)}"
    if not grows and any(pool) and not pool.could_ever_hold(core, (0.0,) * len(core)):
        return f"{wanted}, and this cluster has no node that is large enough"
    return ""


def _quota_words(tenant: Tenant, pool: NodePool) -> str:
    quota = pool.kinds.mapping([most if most < float("inf") else 0.0 for most in tenant.quota])
    return f"tenant {tenant.view.name} has a quota of {format_amounts(quota)}"


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


def longest_wait(allocator: Allocator, tenant: str, now: float) -> float | None:
    """Seconds after which the next run of a tenant that fits the cluster starts at the latest; None where not known.

    What runs ends, and so does what was started beside a place that is kept; then come the runs that go before it, as
    many at a time as the nodes hold of the largest. None takes longer than the longest one so far, or than it may. Who
    comes later is not counted, nor is a quota of the tenant. Other rules than those that keep places know no such time.

    Raises:
        InputError: There is no such tenant.
    """
    it, policy = require_known(allocator.tenants, tenant, "tenant"), allocator.policy
    jobs = [job for job in allocator.jobs.values() if job.running or ((job.waits) and job.admitted and not job.paused)]
    longest = [allocator.times.longest(job) for job in jobs]
    if (
        not policy.fairness.keeps_places
        or not longest
        or None in longest
        or not any(job.waits for job in it.jobs.values())
    ):
        return None
    before = sum(len(job.booked) for job in jobs)
    sizes: list[Amounts] = []
    for other in allocator.tenants.values():
        runs = [(job, job.waiting[0]) for job in other.jobs.values() if job.ready]
        sizes += [request.demand for _, request in runs]
        if other is it or not runs:
            continue
        amounts = [
            dominant_share(request.demand, allocator.pool.total) * allocator.times.foresee(request)
            for _, request in runs
        ]
        if (most := policy.fairness.runs_before(it.view, other.view, min(amounts), now)) is None:
            return None
        before += most
    largest = tuple(max(each) for each in zip(*sizes, strict=True)) if sizes else ()
    at_once = max(1, allocator.pool.holds_of(largest)) if sizes else 1
    return (2 + math.ceil(before / at_once)) * max(each for each in longest if each is not None)


def used_now(tenant: Tenant) -> list[float]:
    """The amounts that the runs and Cores of a tenant take; places that are only kept for it are still of others."""
    used = list(tenant.used)
    for job in tenant.jobs.values():
        for request in job.booked.values():
            used = [max(0.0, u - d) for u, d in zip(used, request.demand, strict=True)]
    return used


def dominant_shares(allocator: Allocator) -> dict[str, float]:
    """The dominant share of each tenant now."""
    return {name: tenant.view.share for name, tenant in allocator.tenants.items()}


def why_waiting(allocator: Allocator, job: str) -> str:
    """The reason why requests of a search wait, in words; empty where none waits.

    Raises:
        InputError: There is no such search.
    """
    it = require_known(allocator.jobs, job, "search")
    if it.paused:
        return "it is paused"
    if not it.admitted:
        return "its Core waits for a place"
    promised = [request.takes_at for request in it.booked.values() if request.promised]
    if None in promised:
        return "runs of others are being ended for it"
    if promised:
        last = f" (the last time none was: {it.tenant.why_not})" if it.tenant.why_not else ""
        return f"a place is kept for it, and runs of others that are still there are ended soon{last}"
    if not it.waiting:
        return "a place is kept for it, which is not free yet" if it.booked else ""
    demand = it.waiting[0].demand
    wanted = format_amounts(allocator.policy.kinds.mapping(demand))
    if not allocator.pool.could_hold(demand):
        if allocator.pool.could_ever_hold(demand, (0.0,) * len(demand)):
            return f"Cores leave no node that is large enough for {wanted}"
        return f"no node is large enough for {wanted}"
    if not fits_within(add_amounts(it.tenant.used, demand), it.tenant.quota):
        return f"tenant {it.tenant.view.name} uses its quota"
    if it.tenant.why_not:
        return f"it takes no runs of others: {it.tenant.why_not}"
    if allocator.takes_too_early(it.tenant.view.name):
        return "it takes no runs of others before they have used as much as its tenant has"
    if allocator.policy.priority.declines(it.view):
        return "it has stopped improving and gives way"
    return "others are due before it, or no node has room"
