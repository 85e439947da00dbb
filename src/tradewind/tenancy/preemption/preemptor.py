"""The choice of the runs that are taken so that a tenant whose work comes gets places."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from tradewind.tenancy.fairness.base import Fairness
from tradewind.tenancy.node_pool import NodePool
from tradewind.tenancy.preemption.policy import PreemptionPolicy
from tradewind.tenancy.priority.base import Priority
from tradewind.tenancy.request_queue import QueuedSearch, ResourceRequest, Tenant
from tradewind.tenancy.resources import SLACK, Amounts, add_amounts, dominant_share, fits_within
from tradewind.utils.units import format_duration

OFTEN_TAKEN = 10
"""A trial that was taken so often is exempt for longer each time: so it ends also where its program saves nothing."""

_MOST_DOUBLINGS = 40


@dataclass(frozen=True, slots=True)
class Taking:
    """A decision: a place on a node is kept for a run, and runs there are ended for it, now or later.

    Attributes:
        request: The run that gets the place.
        node: The node.
        victims: The runs that are taken; none where there is room by others that go, or where it is not time yet.
        policy: That of the tenant that takes them.
        at: When runs are taken; later than now where the place is only kept until then.
        why: Why its tenant may, in words that follow its name.
    """

    request: ResourceRequest
    node: str
    victims: tuple[ResourceRequest, ...]
    policy: PreemptionPolicy
    at: float
    why: str


@dataclass(frozen=True, slots=True)
class _Plan:
    """A way to make room: from when on it is one, what is lost by it, on which node, and the runs that go."""

    at: float
    lost: float
    node: str
    victims: tuple[ResourceRequest, ...]


_Deserved = tuple[ResourceRequest, bool, bool]
"""A run that its tenant has a claim to a place for, whether it is the first one, and whether it fits its share."""


@dataclass(slots=True)
class _Moment:
    """Figures of a moment at which nothing changes: takers ask for the same one after the other.

    Attributes:
        weights: The sum of the weights of the tenants that have work.
        deserved: By taker, the runs that it has a claim to a place for.
        above: The tenants above their share, once somebody has asked.
        nodes: By demand, the nodes on which it may have room at all, whatever is taken.
        beside: By demand, whether there is room for it that is only kept.
        room: By the time until which runs are taken for others, what is free then.
    """

    weights: float
    deserved: dict[str, Sequence[_Deserved]] = field(default_factory=dict)
    above: list[Tenant] | None = None
    nodes: dict[Amounts, Set[str]] = field(default_factory=dict)
    beside: dict[Amounts, bool] = field(default_factory=dict)
    room: dict[float, dict[str, list[float]]] = field(default_factory=dict)

    def due(self, tenant: Tenant) -> float:
        """The share that is due to a tenant by its weight; none without work."""
        return tenant.view.weight / self.weights if _has_work(tenant) else 0.0


class Preemptor:
    """Decides which runs are taken, and when.

    Whoever comes waits for runs to end by themselves; shortly before the time of its policy is over, runs are taken:

    - for its first place of any tenant, first of those above their share, unless the rule between tenants would serve
      the other one before;
    - for further places only of tenants above their share, and only as far as they fit the share of who gets them: a
      share is the weight among the tenants that have work.

    So each arrival takes places for its share, or one, and no more: what is taken comes to an end, and no two tenants
    take from each other in turns. Runs are taken that can be repeated, never taken ones first, of these the youngest.
    A run is exempt for a while after it began, and for twice as long each time that one of its trial was taken after
    the tenth: so each trial comes to its end, whatever comes.

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
        # What was found out of a tenant, as long as it is as it was then.
        self._shares: dict[str, tuple[int, Amounts, float]] = {}
        self._claims: dict[str, tuple[int, Amounts, float, Sequence[_Deserved]]] = {}

    def forget(self, tenant: Tenant) -> None:
        """Something has changed of a tenant, or of its claim, with which it was not entered into the queue again."""
        self._shares.pop(tenant.view.name, None)
        self._claims.pop(tenant.view.name, None)

    def next(self, now: float) -> tuple[Taking | None, float | None]:
        """The decision that is due, if there is one, and the time of the next one where none is due."""
        takers = [tenant for tenant in self._tenants.values() if tenant.preempt is not None]
        for tenant in takers:
            if not tenant.claim.open:
                tenant.claim.since = None
        takers = [tenant for tenant in takers if tenant.claim.open]
        if not takers:
            return None, None
        moment = self._moment()
        for tenant in takers:
            self._look(tenant, moment, now)
        later: list[float] = []
        for tenant in sorted(takers, key=lambda each: (self._fairness.key(each.view), each.number)):
            if tenant.preempt is None:
                continue
            if tenant.claim.since is None:
                later += [now + max(1.0, tenant.preempt.within / 10)] if self.is_early(tenant) else []
                continue
            due = self._due(tenant, tenant.preempt)
            opens = due - tenant.preempt.exempt
            if now < opens:
                later.append(opens)
            for request, first, fits in self._deserved(tenant, moment):
                # Room that is kept for others only is kept for it at once: what comes may be none that can be taken.
                if now < opens and (request.takes_at is not None or not self._beside(request.demand, moment)):
                    continue
                plan = self._plan(request, due, moment, first=first, fits=fits)
                if plan is None or (now < opens and plan.victims):
                    continue
                if plan.at > now and request.takes_at is not None:
                    later.append(plan.at)
                    continue
                victims = plan.victims if plan.at <= now else ()
                why = self._why(tenant, moment, now, first=first)
                return Taking(request, plan.node, victims, tenant.preempt, max(now, plan.at), why), None
        return None, min(later, default=None)

    def may_keep(self, request: ResourceRequest) -> bool:
        """True while the tenant of a run for which a place is kept still waits for it."""
        tenant = request.job.tenant
        return tenant.preempt is not None and tenant.claim.since is not None

    def is_early(self, tenant: Tenant) -> bool:
        """True of a tenant without a place for which nothing is taken yet: it has used more than others over time."""
        claim = tenant.claim
        waits = tenant.preempt is not None and claim.open and not claim.placed and claim.since is None
        return waits and not any(map(_is_taken_for, _booked(tenant))) and any(True for _ in self._wanted(tenant))

    def bound(self, tenant: Tenant, now: float) -> float | None:
        """Seconds within which a tenant has its first place, with the tenants and runs of now; None without a promise.

        Args:
            tenant: The tenant.
            now: The time.
        """
        if tenant.preempt is None or tenant.claim.placed:
            return None
        if (on_its_way := next(filter(_is_taken_for, _booked(tenant)), None)) is not None:
            return max(0.0, on_its_way.opens - now)
        if tenant.claim.since is None:
            return None
        moment, due = self._moment(), self._due(tenant, tenant.preempt)
        deserved = self._deserved(tenant, moment)
        plans = [self._plan(request, due, moment, first=first, fits=fits) for request, first, fits in deserved]
        at = min((plan.at for plan in plans if plan is not None), default=None)
        return None if at is None else max(0.0, at - now) + self._grace

    def _look(self, tenant: Tenant, moment: _Moment, now: float) -> None:
        """See what has become of the claim of a tenant."""
        claim = tenant.claim
        if claim.placed and _has_work(tenant) and self._share(tenant) >= moment.due(tenant) - SLACK:
            claim.open = False
        waits = claim.open and bool(self._deserved(tenant, moment))
        claim.since = (now if claim.since is None else claim.since) if waits else None

    def _due(self, tenant: Tenant, policy: PreemptionPolicy) -> float:
        """The time at which runs are taken for a tenant that waits."""
        return (tenant.claim.since or 0.0) + max(0.0, policy.within - self._grace)

    def _moment(self) -> _Moment:
        return _Moment(sum(tenant.view.weight for tenant in self._tenants.values() if _has_work(tenant)))

    def _share(self, tenant: Tenant, without: Sequence[float] = ()) -> float:
        """The dominant share of a tenant as it is when all that is being taken has changed hands.

        Places that are only kept are not counted.

        Args:
            tenant: The tenant.
            without: What else is taken.
        """
        name, total = tenant.view.name, self._pool.total
        if not without and (known := self._shares.get(name)) is not None and known[:2] == (tenant.version, total):
            return known[2]
        kept = [request.demand for request in _booked(tenant) if not _is_taken_for(request)]
        used = tenant.used
        for amounts in (tenant.taken, *kept, without):
            if amounts:
                used = [u - a for u, a in zip(used, amounts, strict=True)]
        share = dominant_share(used, total)
        if not without:
            self._shares[name] = tenant.version, total, share
        return share

    def _deserved(self, tenant: Tenant, moment: _Moment) -> Sequence[_Deserved]:
        """The next runs of a tenant that it has a claim to a place for."""
        name, as_it_is = tenant.view.name, (tenant.version, self._pool.total, moment.weights)
        if (found := moment.deserved.get(name)) is None:
            known = self._claims.get(name)
            if known is not None and known[:3] == as_it_is:
                found = known[3]
            else:
                found = list(self._find_deserved(tenant, moment))
                if tenant.claim.placed:  # otherwise it depends on what others have used
                    self._claims[name] = *as_it_is, found
            moment.deserved[name] = found
        return found

    def _find_deserved(self, tenant: Tenant, moment: _Moment) -> Iterator[_Deserved]:
        share, claim, due = self._share(tenant), tenant.claim, moment.due(tenant)
        first = not claim.placed and not any(map(_is_taken_for, _booked(tenant)))
        got = 0.0
        for request in self._wanted(tenant):
            more = dominant_share(request.demand, self._pool.total)
            fits = max(share, claim.taken) + got + more <= due + SLACK
            if fits or (first and any(self._precedes(tenant, other) for other in self._tenants.values())):
                yield request, first, fits
                first, got = False, got + more

    def _wanted(self, tenant: Tenant) -> Iterator[ResourceRequest]:
        """The next runs of a tenant: of each search those that have places kept, and one more, in their order."""
        jobs = [job for job in tenant.jobs.values() if job.admitted and not job.paused]
        for job in sorted(jobs, key=lambda job: (job.nice, *self._priority.key(job.view), job.view.number)):
            if self._priority.declines(job.view):
                continue
            yield from (request for request in job.booked.values() if request.takes_at is not None)
            request = _first(job)
            if request is None:
                continue
            if request.booked or fits_within(add_amounts(tenant.used, request.demand), tenant.quota):
                yield request

    def _why(self, tenant: Tenant, moment: _Moment, now: float, *, first: bool) -> str:
        if first:
            return f"had no place {format_duration(now - (tenant.claim.since or now))} after its work came"
        return f"had {self._share(tenant):.0%} of the cluster, and {moment.due(tenant):.0%} are due to it"

    # ------------------------------------------------------------------ how to make room

    def _precedes(self, tenant: Tenant, other: Tenant) -> bool:
        """True when the rule between tenants would not serve another one before the first place of a tenant."""
        turn = tenant.claim.turn
        return (
            other is not tenant and any(other.used) and turn is not None and self._fairness.precedes(turn, other.view)
        )

    def _beside(self, demand: Amounts, moment: _Moment) -> bool:
        """True when there is room for a demand that is only kept."""
        if demand not in moment.beside:
            moment.beside[demand] = bool(self._pool.beside_bookings(demand, 1))
        return moment.beside[demand]

    def _above(self, moment: _Moment) -> list[Tenant]:
        """The tenants above their share."""
        if moment.above is None:
            every = self._tenants.values()
            moment.above = [each for each in every if self._share(each) > moment.due(each) + SLACK]
        return moment.above

    def _plan(self, request: ResourceRequest, due: float, moment: _Moment, *, first: bool, fits: bool) -> _Plan | None:
        """The best way to make room for a run: as early as possible from when it is due, with as little lost."""
        tenant, demand = request.job.tenant, request.demand
        if demand not in moment.nodes:
            moment.nodes[demand] = frozenset(self._pool.may_have_room(demand))
        if not moment.nodes[demand]:
            return None
        above = [each for each in self._above(moment) if self._fairness.may_take(tenant.view, each.view)]
        if not fits:
            above = [each for each in above if self._precedes(tenant, each)]
        # A further place is none that is kept for another.
        room = self._room(request, due if first else math.inf, moment)
        plans = [self._plan_from(request, due, above, moment, room, above_only=True)]
        if first and (plans[0] is None or plans[0].at > due):
            others = [each for each in self._tenants.values() if self._fairness.may_take(tenant.view, each.view)]
            all_of = [each for each in others if self._precedes(tenant, each)]
            plans.append(self._plan_from(request, due, all_of, moment, room, above_only=False))
        return min((plan for plan in plans if plan is not None), key=lambda plan: plan.at, default=None)

    def _plan_from(
        self,
        request: ResourceRequest,
        due: float,
        owners: Sequence[Tenant],
        moment: _Moment,
        room: Mapping[str, Sequence[float]],
        *,
        above_only: bool,
    ) -> _Plan | None:
        """The best way to make room for a run by those of some owners, if so only while they are above their shares."""
        nodes = moment.nodes[request.demand]
        found = self._candidates(request.job.tenant, owners, nodes)
        best: _Plan | None = None
        for node in {**found, **room}:
            if node not in nodes or not self._pool.holds(node, request.demand):
                continue
            runs = found.get(node, [])
            free = room.get(node) or self._pool.free_amounts(node, booked=False)
            plan = self._plan_on(node, request.demand, free, runs, moment if above_only else None, due)
            if plan is not None and (best is None or (plan.at, plan.lost) < (best.at, best.lost)):
                best = plan
        return best

    def _plan_on(
        self,
        node: str,
        demand: Amounts,
        free: Sequence[float],
        runs: Sequence[tuple[float, ResourceRequest]],
        shares: _Moment | None,
        due: float,
    ) -> _Plan | None:
        """The earliest way to make room on a node: the more time passes, the more of its runs are exempt no more."""

        def victims(at: float) -> tuple[ResourceRequest, ...] | None:
            return self._victims(demand, free, [run for until, run in runs if until <= at + SLACK], shares)

        times = sorted({due, *(until for until, _ in runs if until > due)})
        if (place := bisect_left(times, True, key=lambda at: victims(at) is not None)) == len(times):
            return None
        taken = victims(times[place]) or ()
        lost = sum(dominant_share(run.demand, self._pool.total) * (times[place] - run.since) for run in taken)
        return _Plan(times[place], lost, node, taken)

    def _candidates(
        self, tenant: Tenant, owners: Sequence[Tenant], nodes: Set[str]
    ) -> dict[str, list[tuple[float, ResourceRequest]]]:
        """The runs that a tenant may take, by node, in the order of their taking, and until when each is exempt."""
        found: dict[str, list[tuple[float, ResourceRequest]]] = {}
        for job in (job for other in owners if other is not tenant for job in other.jobs.values()):
            for run in job.running.values():
                if run.repeatable and not run.stopping and run.node is not None and run.node in nodes:
                    found.setdefault(run.node, []).append((run.since + self._exempt(run, tenant.preempt), run))
        return {
            node: sorted(runs, key=lambda each: (each[1].taken, -each[1].since, each[1].id))
            for node, runs in found.items()
        }

    def _exempt(self, run: ResourceRequest, policy: PreemptionPolicy | None) -> float:
        """Seconds for which a run is exempt: twice as long each time that its trial was taken after the tenth."""
        exempt, more = 0.0 if policy is None else policy.exempt, run.taken - OFTEN_TAKEN + 1
        return exempt if more <= 0 else max(exempt, self._grace) * 2.0 ** min(more, _MOST_DOUBLINGS)

    def _room(self, request: ResourceRequest, until: float, moment: _Moment) -> dict[str, list[float]]:
        """Amounts that are free on nodes where runs are being taken or places are kept, when all that is done.

        What waits for runs to end by themselves goes behind.

        Args:
            request: The run that is to have room; what is kept for it is free.
            until: The places count that are kept for others with runs that are taken until then.
            moment: What is known.
        """
        if request.promised:
            return self._find_room(request, until)
        if until not in moment.room:
            moment.room[until] = self._find_room(request, until)
        return moment.room[until]

    def _find_room(self, request: ResourceRequest, until: float) -> dict[str, list[float]]:
        found: dict[str, list[float]] = {}
        for job in (job for tenant in self._tenants.values() for job in tenant.jobs.values()):
            for run in job.running.values():
                if run.taken_for is not None and run.node is not None:
                    found[run.node] = add_amounts(self._free(found, run.node), run.demand)
            for other in job.booked.values():
                if other.booked is None or other.booked not in self._pool:
                    continue
                kept = other.promised and other is not request and (other.takes_at is None or other.takes_at <= until)
                sign = -1.0 if kept else 0.0
                found[other.booked] = add_amounts(
                    self._free(found, other.booked), [sign * amount for amount in other.demand]
                )
        return found

    def _free(self, found: Mapping[str, list[float]], node: str) -> list[float]:
        return found[node] if node in found else list(self._pool.free_amounts(node, booked=False))

    def _victims(
        self,
        demand: Amounts,
        free: Sequence[float],
        runs: Sequence[ResourceRequest],
        shares: _Moment | None,
    ) -> tuple[ResourceRequest, ...] | None:
        """The runs of a node that are to be taken so that another one has room; None where there is no such choice.

        Args:
            demand: What is to have room.
            free: What is free there in any case.
            runs: Those that may be taken, in their order.
            shares: The shares that are due to tenants, where only those above theirs lose runs.
        """
        room = list(free)
        taken: dict[str, list[float]] = {}
        victims: list[ResourceRequest] = []
        for run in runs:
            if _enough(room, demand):
                break
            owner = run.job.tenant
            lost = taken.setdefault(owner.view.name, [0.0] * len(demand))
            if shares is not None and self._share(owner, lost) <= shares.due(owner) + SLACK:
                continue
            if not any(has < wanted - SLACK and d > 0 for has, wanted, d in zip(room, demand, run.demand, strict=True)):
                continue  # what it has is not what is missing
            victims.append(run)
            taken[owner.view.name] = add_amounts(lost, run.demand)
            room = add_amounts(room, run.demand)
        if not _enough(room, demand):
            return None
        for run in list(victims):  # the first ones may be superfluous once a large one is taken
            less = [r - d for r, d in zip(room, run.demand, strict=True)]
            if len(victims) > 1 and _enough(less, demand):
                victims.remove(run)
                room = less
        return tuple(victims)


def _has_work(tenant: Tenant) -> bool:
    return tenant.waits or any(tenant.used)


def _first(job: QueuedSearch) -> ResourceRequest | None:
    """The next run of a search that has no place, and for which none is kept or taken by a claim."""
    booked = next((request for request in job.booked.values() if not request.promised), None)
    return booked or (job.waiting[0] if job.waiting else None)


def _booked(tenant: Tenant) -> Iterator[ResourceRequest]:
    return (request for job in tenant.jobs.values() for request in job.booked.values())


def _is_taken_for(request: ResourceRequest) -> bool:
    """True of a run that waits for runs that are being ended."""
    return request.promised and request.takes_at is None


def _enough(room: Sequence[float], demand: Amounts) -> bool:
    return not any(wanted > 0 and wanted > has + SLACK for has, wanted in zip(room, demand, strict=True))
