"""The choice of the runs that are taken so that a tenant below its share gets its places."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tradewind.tenancy.fairness.base import Fairness
from tradewind.tenancy.node_pool import NodePool
from tradewind.tenancy.preemption.policy import PreemptionPolicy
from tradewind.tenancy.priority.base import Priority
from tradewind.tenancy.request_queue import QueuedSearch, ResourceRequest, Tenant
from tradewind.tenancy.resources import SLACK, Amounts, add_amounts, dominant_share, fits_within


@dataclass(frozen=True, slots=True)
class Taking:
    """A decision: some runs of a node are ended, and a place there is kept for another one.

    Attributes:
        request: The run that gets the place.
        node: The node.
        victims: The runs that are taken.
        policy: That of the tenant that takes them.
    """

    request: ResourceRequest
    node: str
    victims: tuple[ResourceRequest, ...]
    policy: PreemptionPolicy


class Preemptor:
    """Decides which runs are taken, and when.

    A tenant's share is its weight among those that have work. Whoever comes, and has not reached it yet, waits for runs
    to end by themselves; shortly before the time of its policy is over, runs are taken for what is still missing:

    - only of tenants above their share, and only where the one that gets the place stays below what the other one had
      for its weight: each taking makes the largest shares smaller, so no two tenants take from each other in turns;
    - only those that can be repeated, and that had their place for a while;
    - those that were never taken first, and of these the youngest.

    Once it has had its share, the rule between tenants alone says what it gets, until it has been away.

    Args:
        tenants: The tenants, by name, as they are at any time.
        pool: The nodes.
        rules: The rule between tenants, and the one within a tenant.
        grace: Seconds that a run may take to end.
    """

    def __init__(
        self, tenants: Mapping[str, Tenant], pool: NodePool, rules: tuple[Fairness, Priority], grace: float
    ) -> None:
        self._tenants, self._pool = tenants, pool
        self._fairness, self._priority = rules
        self._grace = grace

    def next(self, now: float) -> tuple[Taking | None, float | None]:
        """The decision that is due, if there is one, and the time of the next one where none is due."""
        takers = [tenant for tenant in self._tenants.values() if tenant.preempt is not None]
        if not takers:
            return None, None
        shares = self._due_shares()
        for tenant in takers:
            below = self._share(tenant) < shares.get(tenant.view.name, 0.0) - SLACK
            tenant.claims = tenant.view.name not in shares or (tenant.claims and below)
            waits = below and tenant.claims and _wants(tenant)
            tenant.below = (now if tenant.below is None else tenant.below) if waits else None
        later: list[float] = []
        for tenant in sorted(takers, key=lambda each: (self._fairness.key(each.view), each.number)):
            if tenant.below is None or tenant.preempt is None:
                continue
            due = tenant.below + max(0.0, tenant.preempt.within - self._grace)
            if now < due:
                later.append(due)
            elif (found := self._take_for(tenant, tenant.preempt, shares, now)) is not None:
                return found, None
            else:
                later += self._exempt_until(tenant, tenant.preempt, now)
        return None, min(later, default=None)

    def keeps_places(self, tenant: Tenant, now: float) -> bool:
        """True for a newcomer so near the end of its time that a run begun now would still be exempt when it is over.

        Places are kept for it then, whatever the rule between tenants: else others' runs that end shortly before would
        make room for more of theirs, of which none may be taken in time.
        """
        if tenant.preempt is None or tenant.below is None:
            return False
        return now >= tenant.below + tenant.preempt.within - self._grace - tenant.preempt.exempt - SLACK

    def _due_shares(self) -> dict[str, float]:
        """The share that is due to each tenant that has work, by its weight."""
        busy = [tenant for tenant in self._tenants.values() if tenant.waits or any(tenant.used)]
        weights = sum(tenant.view.weight for tenant in busy)
        return {tenant.view.name: tenant.view.weight / weights for tenant in busy}

    def _share(self, tenant: Tenant, without: Sequence[float] = (), more: Sequence[float] = ()) -> float:
        """The dominant share of a tenant as it is when all that is being taken has changed hands.

        Places that are only kept until runs end by themselves are not counted.

        Args:
            tenant: The tenant.
            without: What else is taken.
            more: What it gets.
        """
        kept = [each.demand for job in tenant.jobs.values() for each in job.booked.values() if not each.promised]
        used = tenant.used
        for sign, amounts in ((-1, tenant.taken), *((-1, each) for each in kept), (-1, without), (1, more)):
            if amounts:
                used = [u + sign * a for u, a in zip(used, amounts, strict=True)]
        return dominant_share(used, self._pool.total)

    def _exempt_until(self, tenant: Tenant, policy: PreemptionPolicy, now: float) -> list[float]:
        """The first time after now at which a run of another tenant is exempt no more."""
        ends = [
            run.since + policy.exempt
            for other in self._tenants.values()
            if other is not tenant
            for run in _takeable(other)
        ]
        return [min(later)] if (later := [end for end in ends if end > now]) else []

    def _take_for(
        self, tenant: Tenant, policy: PreemptionPolicy, shares: Mapping[str, float], now: float
    ) -> Taking | None:
        found, leaving = self._candidates(tenant, policy, shares, now), self._leaving()
        for request in self._wanted(tenant):
            best: tuple[float, str, tuple[ResourceRequest, ...]] | None = None
            for node in {**found, **leaving}:
                victims = self._victims(request, node, found.get(node, []), leaving.get(node), shares)
                if victims is None:
                    continue
                lost = _lost(victims, self._pool.total, now)
                if best is None or lost < best[0]:
                    best = lost, node, victims
            if best is not None:
                return Taking(request, best[1], best[2], policy)
        return None

    def _candidates(
        self, tenant: Tenant, policy: PreemptionPolicy, shares: Mapping[str, float], now: float
    ) -> dict[str, list[ResourceRequest]]:
        """The runs that a tenant may take, by node, in the order in which they are taken."""
        found: dict[str, list[ResourceRequest]] = {}
        for other in self._tenants.values():
            if other is tenant or not self._fairness.may_take(tenant.view, other.view):
                continue
            if self._share(other) <= shares.get(other.view.name, 0.0) + SLACK:
                continue
            for run in _takeable(other):
                if run.node is not None and now - run.since >= policy.exempt - SLACK:
                    found.setdefault(run.node, []).append(run)
        return {node: sorted(runs, key=lambda run: (run.taken, -run.since, run.id)) for node, runs in found.items()}

    def _leaving(self) -> dict[str, list[float]]:
        """Amounts on each node that are being taken, and not gone yet."""
        found: dict[str, list[float]] = {}
        for tenant in self._tenants.values():
            if any(tenant.taken):
                for run in (run for job in tenant.jobs.values() for run in job.running.values()):
                    if run.taken_for is not None and run.node is not None:
                        found[run.node] = add_amounts(found.get(run.node, [0.0] * len(run.demand)), run.demand)
        return found

    def _wanted(self, tenant: Tenant) -> Iterator[ResourceRequest]:
        """The next runs of a tenant for which places may be taken: one of each of its searches, in their order."""
        jobs = [job for job in tenant.jobs.values() if job.admitted and not job.paused]
        for job in sorted(jobs, key=lambda job: (job.nice, *self._priority.key(job.view), job.view.number)):
            if self._priority.declines(job.view) or (request := _first(job)) is None:
                continue
            if request.booked or fits_within(add_amounts(tenant.used, request.demand), tenant.quota):
                yield request

    def _victims(
        self,
        request: ResourceRequest,
        node: str,
        runs: Sequence[ResourceRequest],
        leaving: Sequence[float] | None,
        shares: Mapping[str, float],
    ) -> tuple[ResourceRequest, ...] | None:
        """The runs of a node that are to be taken so that another one has room; None where there is no such choice.

        There are none where what is being taken there in any case leaves enough.
        """
        if not self._pool.holds(node, request.demand):
            return None
        tenant, demand = request.job.tenant, request.demand
        mine = self._share(tenant, more=demand) / tenant.view.weight
        free = self._pool.free_amounts(node)
        if request.booked == node:
            free = tuple(add_amounts(free, demand))
        if leaving is not None:
            free = tuple(add_amounts(free, leaving))
        room = [max(0.0, amount) for amount in free]  # what is kept for others stays theirs
        taken: dict[str, list[float]] = {}
        victims: list[ResourceRequest] = []
        for run in runs:
            if _enough(room, demand):
                break
            owner = run.job.tenant
            lost = taken.setdefault(owner.view.name, [0.0] * len(demand))
            share = self._share(owner, without=lost)
            if share <= shares.get(owner.view.name, 0.0) + SLACK or share / owner.view.weight <= mine + SLACK:
                continue
            if not any(has < wanted - SLACK and d > 0 for has, wanted, d in zip(room, demand, run.demand, strict=True)):
                continue  # what it has is not what is missing
            victims.append(run)
            taken[owner.view.name] = add_amounts(lost, run.demand)
            room = add_amounts(room, run.demand)
        if not _enough(room, demand) or (not victims and leaving is None):
            return None
        for run in list(victims):  # the first ones may be superfluous once a large one is taken
            less = [r - d for r, d in zip(room, run.demand, strict=True)]
            if len(victims) > 1 and _enough(less, demand):
                victims.remove(run)
                room = less
        return tuple(victims)


def _wants(tenant: Tenant) -> bool:
    return any(_first(job) is not None for job in tenant.jobs.values() if job.admitted and not job.paused)


def _first(job: QueuedSearch) -> ResourceRequest | None:
    """The next run of a search that has no place, and for which none is being taken."""
    booked = next((request for request in job.booked.values() if not request.promised), None)
    return booked or (job.waiting[0] if job.waiting else None)


def _takeable(tenant: Tenant) -> Iterator[ResourceRequest]:
    return (run for job in tenant.jobs.values() for run in job.running.values() if run.repeatable and not run.stopping)


def _enough(room: Sequence[float], demand: Amounts) -> bool:
    return not any(wanted > 0 and wanted > has + SLACK for has, wanted in zip(room, demand, strict=True))


def _lost(victims: Sequence[ResourceRequest], total: Amounts, now: float) -> float:
    """The work that is lost: dominant share times seconds."""
    return sum(dominant_share(run.demand, total) * (now - run.since) for run in victims)
