"""The allocator: which search gets which resources, as a state machine without input and output.

Events in, instructions out. Whoever carries out the instructions feeds back what happens as further events: the
cluster does it with an engine and real processes, the simulator with a clock of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from tradewind.errors import InputError
from tradewind.tenancy import events as ev
from tradewind.tenancy.events import AllocatorEvent, AllocatorInstruction
from tradewind.tenancy.fairness.base import Fairness
from tradewind.tenancy.inspection.reasons import impossible_reason
from tradewind.tenancy.node_pool import NodePool
from tradewind.tenancy.preemption.place_claim import PlaceClaim
from tradewind.tenancy.preemption.preemptor import Preemptor, Taking
from tradewind.tenancy.priority.base import Priority
from tradewind.tenancy.request_queue import Queue, QueuedSearch, ResourceRequest, Tenant, require_known
from tradewind.tenancy.reservations import CoreAdmission, NodeReservations, PlaceBookings
from tradewind.tenancy.resources import (
    SLACK,
    Amounts,
    ResourceKinds,
    add_amounts,
    dominant_share,
    fits_within,
)
from tradewind.tenancy.run_times import RunTimes
from tradewind.tenancy.views import JobView, TenantView, valid_chance, valid_seconds


@dataclass(frozen=True, slots=True)
class AllocationPolicy:
    """The rules and limits by which an allocator decides.

    Attributes:
        fairness: The rule between tenants.
        priority: The rule between the searches of a tenant.
        kinds: The kinds of resource.
        core_reserve: The largest share of any resource of the cluster that Cores may take together.
        patience: Seconds after which a request that fits nowhere has a node kept for it; at once where the rule between
            tenants keeps places.
        offer_seconds: What searches have declined is offered again after so many seconds.
        ahead: How many runs may be started on each node beyond what it has room for. They wait in the engine's own
            queue, which begins them the moment that another one ends; who is next is decided so much earlier.
        grows: Other nodes may join than those that are there: a run that none can hold waits for them. Otherwise its
            search is refused.
        grace: Seconds that a run which is taken for another tenant may take to end.
    """

    fairness: Fairness
    priority: Priority
    kinds: ResourceKinds = field(default_factory=ResourceKinds)
    core_reserve: float = 0.25
    patience: float = 30.0
    offer_seconds: float = 1.0
    ahead: int = 0
    grows: bool = True
    grace: float = 10.0


class Allocator:
    """Shares a cluster between the searches of its tenants.

    Args:
        policy: How it decides.

    Attributes:
        pool: The nodes.
        tenants: By name.
        jobs: The searches that are not over, by id.
        requests: The runs that wait or run, by id.
        decisions: How many runs it has started.
        times: How long runs take.
        bookings: The places that are kept for runs that are due.
    """

    def __init__(self, policy: AllocationPolicy) -> None:
        self.policy = policy
        self.pool = NodePool(policy.kinds)
        self.tenants: dict[str, Tenant] = {}
        self.jobs: dict[str, QueuedSearch] = {}
        self.requests: dict[str, ResourceRequest] = {}
        self.decisions = 0
        self.times = RunTimes()
        self.bookings = PlaceBookings(self.pool, self.times)
        self._queue = Queue(policy.fairness.key, policy.priority.key, policy.fairness.came)
        self._admission = CoreAdmission(self.pool, policy.core_reserve)
        self._reservations = NodeReservations(self.pool, policy.patience)
        self._unbookable: set[Amounts] = set()  # demands that are due, and for which no place can be kept
        self._preemptor = Preemptor(self.tenants, self.pool, (policy.fairness, policy.priority), policy.grace)
        self._now = 0.0
        self._numbers = 0
        self._freed: dict[str, None] = {}  # nodes on which something has ended, in this order
        self._dirty = False  # something may be started that could not before

    def handle(self, event: AllocatorEvent, now: float) -> list[AllocatorInstruction]:
        """Take an event and say what is to be done.

        Args:
            event: What happened.
            now: Seconds on any clock that never goes back.

        Raises:
            InputError: It names a tenant, a search or a resource that is not known, or a search that is.
        """
        return self.handle_all((event,), now)

    def handle_all(self, events: Sequence[AllocatorEvent], now: float) -> list[AllocatorInstruction]:
        """Take what happened at one moment before anything is decided; see `handle`."""
        self._now = max(self._now, now)
        out = [instruction for event in events for instruction in _HANDLERS[type(event)](self, event)]
        if self._dirty:
            self._dirty = False
            for request in self.times.late(self._now):
                self._charge(request, request.foreseen)
                self._queue.enter_tenant(request.job.tenant)
            out += self._admit()
            out += self._fill()
            out += self._preempt()
        return out

    def promised(self, tenant: str) -> float | None:
        """Seconds within which a tenant has its first place by its preemption policy; None where nothing promises that.

        Raises:
            InputError: There is no such tenant.
        """
        return self._preemptor.bound(self._tenant(tenant), self._now)

    def takes_too_early(self, tenant: str) -> bool:
        """True of a tenant without a place that takes none yet: it has used more than the others over time.

        Raises:
            InputError: There is no such tenant.
        """
        return self._preemptor.is_early(self._tenant(tenant))

    # ------------------------------------------------------------------ events

    def _node_joined(self, event: ev.NodeJoined) -> list[AllocatorInstruction]:
        self.pool.join(event.node, self.policy.kinds.amounts(event.capacity))
        self._unbook(self.bookings.on(event.node))  # it may hold less than before
        self._rescale()
        return []

    def _node_drained(self, event: ev.NodeDrained) -> list[AllocatorInstruction]:
        self.pool.close(event.node)
        self._unbook(self.bookings.on(event.node))
        self._dirty = True
        return []

    def _node_lost(self, event: ev.NodeLost) -> list[AllocatorInstruction]:
        out: list[AllocatorInstruction] = []
        for request in [each for each in self.requests.values() if each.node == event.node]:
            request.stopping = True  # how long it ran says nothing
            self._release(request)
            self._drop_if_over(request.job)
            out.append(ev.RunLost(request.id, request.job.view.job, event.node))
        for job in [each for each in self.jobs.values() if each.core_node == event.node]:
            self._end_core(job)
            job.admitted = False
            self._admission.wait(job)
            out.append(ev.CoreLost(job.view.job, event.node))
        self._unbook(self.bookings.on(event.node))
        self._reservations.lose(event.node)
        self.pool.lose(event.node)
        self._rescale()
        return out

    def _tenant_set(self, event: ev.TenantSet) -> list[AllocatorInstruction]:
        if not (event.weight > 0 and event.weight < float("inf")):
            raise InputError(f"tenant {event.tenant}: a weight of {event.weight!r} is none", hint="it is above 0")
        kinds = self.policy.kinds
        kinds.amounts(event.quota)
        quota = tuple(float(event.quota.get(name, float("inf"))) for name in kinds.names)
        tenant = self.tenants.get(event.tenant)
        if tenant is None:
            zero = [0.0] * len(kinds.names)
            tenant = Tenant(TenantView(event.tenant), quota, zero, len(self.tenants), spent=[*zero], taken=[*zero])
            self.tenants[event.tenant] = tenant
        if tenant.quota != quota:
            self._unbook([request for job in tenant.jobs.values() for request in job.booked.values()])
        tenant.quota = quota
        tenant.view.weight, tenant.view.priority = event.weight, event.priority
        tenant.preempt, tenant.claim.since, tenant.why_not = event.preempt, None, ""
        self._queue.enter_tenant(tenant)
        self._dirty = True
        return []

    def _job_submitted(self, event: ev.JobSubmitted) -> list[AllocatorInstruction]:
        if event.job in self.jobs:
            raise InputError(f"there is a search {event.job} already")
        tenant, kinds = self._tenant(event.tenant), self.policy.kinds
        self._numbers += 1
        self._come(tenant)
        job = QueuedSearch(
            JobView(event.job, self._numbers), tenant, kinds.amounts(event.core), kinds.amounts(event.run)
        )
        job.nice = event.nice
        self.jobs[event.job] = tenant.jobs[event.job] = job
        if event.recalled:
            self.policy.priority.recall(job.view, event.recalled)
        if any(job.core):
            job.admitted = False
            self._admission.wait(job)
            self._dirty = True
        return []

    def _preceded(self, event: ev.SimilarSearchesEnded) -> list[AllocatorInstruction]:
        if (job := self.jobs.get(event.job)) is not None:
            job.view.precede(event.results, event.seconds)
            self._changed(job)
        return []

    def _asked(self, event: ev.RequestMade) -> list[AllocatorInstruction]:
        job, demand = self._job(event.job), self.policy.kinds.amounts(event.demand)
        if event.request in self.requests:
            return []
        if why := impossible_reason(job, demand, self.pool, grows=self.policy.grows):
            return [ev.RequestRefused(event.request, event.job, why)]
        if not any(job.run):
            job.run = demand  # known from now on, also while none of it waits
        request = self.requests[event.request] = _request_of(event, job, demand)
        request.chance, request.seconds = valid_chance(event.chance), valid_seconds(event.seconds)
        request.longest = valid_seconds(event.longest)
        job.waiting.append(request)
        if len(job.waiting) == 1:
            self._changed(job)
        if job.tenant.claim.turn is None:
            job.tenant.claim.turn = self.policy.fairness.key(job.tenant.view)
        return []

    def _adopted(self, event: ev.RequestAdopted) -> list[AllocatorInstruction]:
        job, demand = self._job(event.job), self.policy.kinds.amounts(event.demand)
        node = event.node or self.pool.fit(demand) or self.pool.roomiest(demand) or next(iter(self.pool), None)
        if event.request in self.requests or node is None or node not in self.pool:
            return []
        request = self.requests[event.request] = _request_of(event, job, demand)
        self._place(request, node)
        return []

    def _withdrawn(self, event: ev.RequestWithdrawn) -> list[AllocatorInstruction]:
        request = self.requests.get(event.request)
        if request is None or request.stopping:
            return []
        if request.node is None:
            self._unbook([request] if request.booked else [])
            del self.requests[request.id]
            request.job.waiting.remove(request)
            self._changed(request.job)
            return []
        request.stopping = True
        return [ev.StopRun(request.id, request.job.view.job, request.node)]

    def _ended(self, event: ev.RequestEnded) -> list[AllocatorInstruction]:
        request = self.requests.get(event.request)
        if request is not None:
            self._release(request)
            self._drop_if_over(request.job)
        return []

    def _declined(self, event: ev.PreemptionDeclined) -> list[AllocatorInstruction]:
        request = self.requests.get(event.request)
        if request is None or (wanted := request.taken_for) is None:
            return []
        request.job.tenant.taken = add_amounts(request.job.tenant.taken, [-d for d in request.demand])
        request.stopping, request.taken_for = False, None
        self.times.end_by(request, self._now + self.times.foresee(request))
        tenant, wanted.promised = wanted.job.tenant, False
        tenant.claim.since, tenant.why_not = None, event.reason
        tenant.claim.taken = max(0.0, tenant.claim.taken - self._share_of(wanted))
        self._preemptor.forget(tenant)
        self._changed(request.job)
        return []

    def _result_reported(self, event: ev.ResultReported) -> list[AllocatorInstruction]:
        job = self._job(event.job)
        job.view.tell(event.value, event.seconds, valid_chance(event.chance))
        if job.last is not None:  # while its engine began and ended it, its program used nothing
            request, seconds = job.last
            self._charge(request, min(seconds, event.seconds))
            job.last = None
        demand = self.policy.kinds.amounts(event.demand)
        job.view.attained += dominant_share(demand, self.pool.total) * event.seconds
        self.policy.priority.told(job.view)
        self._changed(job)
        return []

    def _results_reset(self, event: ev.ResultsReset) -> list[AllocatorInstruction]:
        job = self._job(event.job)
        job.view.forget()
        for request in job.running.values():
            job.view.promise(request.chance)
        remembered = self.policy.priority.remembered(job.view)
        self.policy.priority.forget(job.view)
        if remembered:
            self.policy.priority.recall(job.view, remembered)
        self._changed(job)
        return []

    def _job_wanted(self, event: ev.JobPaused | ev.JobResumed | ev.JobReniced) -> list[AllocatorInstruction]:
        job = self._job(event.job)
        if isinstance(event, ev.JobReniced):
            job.nice = event.nice
        else:
            if isinstance(event, ev.JobResumed):
                self._come(job.tenant)
            job.paused = isinstance(event, ev.JobPaused)
            self._unbook(list(job.booked.values()))
        self._changed(job)
        return []

    def _job_ended(self, event: ev.JobEnded) -> list[AllocatorInstruction]:
        job = self.jobs.pop(event.job, None)
        if job is None:
            return []
        self._unbook(list(job.booked.values()))
        for request in job.waiting:
            del self.requests[request.id]
        job.waiting.clear()
        self._queue.hide(job)
        self._admission.forget(job)
        self.policy.priority.forget(job.view)
        if job.core_node is not None:
            self.pool.give_back(job.core_node, job.core, core=True)
            self._end_core(job)
        self._queue.enter_tenant(job.tenant)
        self._dirty = True
        out: list[AllocatorInstruction] = []
        for request in job.running.values():
            if not request.stopping and request.node is not None:
                request.stopping = True
                out.append(ev.StopRun(request.id, event.job, request.node))
        self._drop_if_over(job)
        return out

    def _tick(self, event: ev.AllocatorTick) -> list[AllocatorInstruction]:
        self._dirty = True
        return []

    # ------------------------------------------------------------------ deciding

    def _admit(self) -> list[AllocatorInstruction]:
        """Give Cores a place as far as the reserve goes."""
        out: list[AllocatorInstruction] = []
        while (found := self._admission.next(self.policy.fairness.key, self.jobs.values())) is not None:
            job, node = found
            self.pool.take(node, job.core, core=True)
            job.admitted, job.core_node = True, node
            self._use(job.tenant, job.core, 1)
            job.core_use = ResourceRequest("", job, job.core, node, self._now)
            self.times.begin(job.core_use, core=True)
            self._charge(job.core_use, job.core_use.foreseen)
            self._unbook([each for each in self.bookings.on(node) if not self.pool.holds(node, each.demand)])
            self._queue.enter(job)
            out.append(ev.StartCore(job.view.job, node))
        return out

    def _fill(self) -> list[AllocatorInstruction]:
        """Start what is due as long as something fits."""
        out: list[AllocatorInstruction] = []
        full: set[Amounts] = set()
        self._unbookable = set()
        self._start_booked(out)
        declined = self._start(out, full)
        if declined and not self._others_wait([job for job, _ in declined]):
            for job, _ in declined:
                self.policy.priority.unopposed(job.view)
                job.skipped = 0
                self._queue.enter(job)
            declined = self._start(out, full, may_decline=False)
        # Where places are kept for those that are due, who finds none waits for its turn, however long that takes.
        blocked = self._unbookable if self.policy.fairness.keeps_places else full
        wakes = [self._reservations.blocked(blocked, self._now)]
        for job, before in declined:
            self.policy.priority.declined(job.view, taken=len(out) > before)
            self._queue.enter(job)
            wakes.append(self._now + self.policy.offer_seconds)
        if at := min((wake for wake in wakes if wake is not None), default=None):
            out.append(ev.WakeAt(at))
        return out

    def _others_wait(self, declined: Sequence[QueuedSearch]) -> bool:
        """Say whether another search waits for resources than those that have declined some."""
        mine = {job.view.job for job in declined}
        return any(
            job.waiting and job.admitted and not job.paused and job.view.job not in mine for job in self.jobs.values()
        )

    def _start(
        self, out: list[AllocatorInstruction], full: set[Amounts], *, may_decline: bool = True
    ) -> list[tuple[QueuedSearch, int]]:
        """Start what is due.

        Args:
            out: Gets the instructions.
            full: Gets the demands that found no room.
            may_decline: Searches may leave what they are offered to others.

        Returns:
            Those that did, with the number of runs that had been started.
        """
        declined: list[tuple[QueuedSearch, int]] = []
        books = self.policy.fairness.keeps_places
        while (job := self._next(full)) is not None:
            request = job.waiting[0]
            if not fits_within(add_amounts(job.tenant.used, request.demand), job.tenant.quota):
                self.policy.fairness.came(job.tenant.view)
                self._queue.hide_tenant(job.tenant, request.demand)
                continue
            node = self._room(request)
            book = books and node is None and self._is_passed_over(request, full)
            if node is None and not book:
                # Needing least of all it has what becomes free next, unless a place there is kept for one that is due
                # after it: then it would be passed over at each end of a run.
                books = False
                full.add(request.demand)
                continue
            if may_decline and job.skipped < self.policy.priority.declines(job.view):
                job.skipped += 1
                self._queue.hide(job)
                declined.append((job, len(out)))
                continue
            in_order = not any(self.pool.could_hold(demand) for demand in full)
            request.turn = self.policy.fairness.key(job.tenant.view) if in_order else None
            if node is None and not self._book(request):
                full.add(request.demand)
                self._unbookable.add(request.demand)
                continue
            job.skipped = 0
            if node is not None:
                self._reservations.placed(request.demand)
                job.waiting.popleft()
                out.append(self._begin(request, node))
        return declined

    def _preempt(self) -> list[AllocatorInstruction]:
        """End runs of others where a tenant's policy says that it has its places by now."""
        out: list[AllocatorInstruction] = []
        while True:
            taking, wake = self._preemptor.next(self._now)
            if taking is not None:
                out += self._carry_out(taking)
                continue
            if lapsed := [each for each in self.bookings.kept if not self._preemptor.may_keep(each)]:
                self._unbook(lapsed)
                wake = self._now
            return out if wake is None else [*out, ev.WakeAt(wake)]

    def _carry_out(self, taking: Taking) -> list[AllocatorInstruction]:
        request, tenant = taking.request, taking.request.job.tenant
        if request.booked is not None:
            self._unbook([request])
        later = taking.at if taking.at > self._now else None
        self.bookings.promise(request, taking.node, taking.at + self.policy.grace, later)
        self._booked(request)
        self._freed[taking.node] = None
        out: list[AllocatorInstruction] = []
        if later is None:
            tenant.why_not = ""
            tenant.claim.taken += self._share_of(request)
        self._preemptor.forget(tenant)
        for run in taking.victims:
            run.stopping, run.taken_for, run.pays = True, request, taking.policy.pays
            run.job.tenant.taken = add_amounts(run.job.tenant.taken, run.demand)
            self._preemptor.forget(run.job.tenant)
            self.times.end_by(run, self._now + self.policy.grace)
            who = (tenant.view.name, run.pays, request.id, taking.why)
            out.append(ev.PreemptRun(run.id, run.job.view.job, taking.node, *who))
        if not taking.victims:
            self._start_booked(out)
        return out

    def _come(self, tenant: Tenant) -> None:
        """Give a tenant whose work comes a new claim, where it had none until now."""
        if not any(job.wants for job in tenant.jobs.values()):
            tenant.claim = PlaceClaim()
            self._preemptor.forget(tenant)

    def _share_of(self, request: ResourceRequest) -> float:
        return dominant_share(request.demand, self.pool.total)

    def _next(self, full: Set[Amounts]) -> QueuedSearch | None:
        """The search that is due next among those whose next run is none of some demands."""
        best = None
        for demand in self._queue.demands():
            if demand not in full and (found := self._queue.first(demand)) is not None:
                best = found if best is None or found[0] < best[0] else best
        return None if best is None else best[1]

    def _room(self, request: ResourceRequest) -> str | None:
        """The node on which a run may start now; None where there is none."""
        demand = request.demand
        node = self._reservations.find(demand) or self.pool.ahead(demand, self.policy.ahead)
        if node is None and self.policy.fairness.keeps_places:
            return self.bookings.backfill(request, self._now, lambda kept: self._may_pass(request, kept))
        return node

    def _may_pass(self, request: ResourceRequest, kept: ResourceRequest) -> bool:
        """Say whether a run may still be there when one begins for which a place is kept."""
        tenant, other = request.job.tenant.view, kept.job.tenant.view
        amounts = (self._share_of(each) * self.times.foresee(each) for each in (request, kept))
        amount = max(each / view.weight for each, view in zip(amounts, (tenant, other), strict=True))
        return self.policy.fairness.may_pass(tenant, other, amount, self._now)

    def _is_passed_over(self, request: ResourceRequest, full: Set[Amounts]) -> bool:
        """Say whether a place is kept for a run, since others may take what becomes free before it has room."""
        return any(
            other not in full and any(o < d - SLACK for o, d in zip(other, request.demand, strict=True))
            for other in self._queue.demands()
        )

    def _book(self, request: ResourceRequest) -> bool:
        """Keep a place for a run, which counts as used from now on; False where none can be."""
        if not self.bookings.book(request, self._now):
            return False
        self._booked(request)
        return True

    def _booked(self, request: ResourceRequest) -> None:
        job = request.job
        job.waiting.popleft()
        job.booked[request.id] = request
        job.view.running = job.under_way
        self._use(job.tenant, request.demand, 1)
        request.since = self._now
        self._charge(request, self.times.foresee(request))
        self._enter(job)

    def _unbook(self, requests: Iterable[ResourceRequest]) -> None:
        """Let requests wait again for which places are kept."""
        for request in list(requests):
            job = request.job
            self._freed[request.booked or ""] = None  # there may be room now for those behind it
            self.bookings.cancel(request)
            del job.booked[request.id]
            job.view.running = job.under_way
            job.waiting.appendleft(request)
            self._use(job.tenant, request.demand, -1)
            self._charge(request, 0.0)
            self._changed(job)

    def _start_booked(self, out: list[AllocatorInstruction]) -> None:
        """Start the runs whose places are free now."""
        freed, self._freed = self._freed, {}
        for node in freed:
            if node not in self.pool:
                continue
            for request, where in self.bookings.ready(node):
                del request.job.booked[request.id]
                self._use(request.job.tenant, request.demand, -1)
                out.append(self._begin(request, where))
            if self.policy.fairness.keeps_places:  # who is due next is known better now than when these were booked
                self._unbook([each for each in reversed(self.bookings.on(node)) if not each.promised])
        self._freed.clear()

    def _begin(self, request: ResourceRequest, node: str) -> AllocatorInstruction:
        if request.turn is not None:
            self.policy.fairness.began(request.turn)
        self._place(request, node)
        self.decisions += 1
        return ev.StartRun(request.id, request.job.view.job, node)

    # ------------------------------------------------------------------ bookkeeping

    def _place(self, request: ResourceRequest, node: str) -> None:
        job = request.job
        request.node, request.since = node, self._now
        job.tenant.claim.placed = True
        job.running[request.id] = request
        job.view.running = job.under_way
        job.view.promise(request.chance)
        self.pool.take(node, request.demand, repeatable=request.repeatable)
        self._use(job.tenant, request.demand, 1)
        self.times.begin(request)
        self._charge(request, request.foreseen)
        self._enter(job)

    def _release(self, request: ResourceRequest) -> None:
        """Free what a run has used; drop a request that still waited."""
        job = request.job
        if request.booked is not None:
            self._unbook([request])
        del self.requests[request.id]
        if request.node is None:
            job.waiting.remove(request)
        else:
            seconds = self._now - request.since
            del job.running[request.id]
            job.view.running = job.under_way
            job.view.promise(request.chance, -1)
            tenant = job.tenant
            self.pool.give_back(request.node, request.demand, repeatable=request.repeatable)
            self._freed[request.node] = None
            self._use(tenant, request.demand, -1)
            self.times.end(request, self._now)
            self._bill(request, seconds)
        self._changed(job)

    def _bill(self, request: ResourceRequest, seconds: float) -> None:
        """Count what a run has used: for its tenant, or for whoever pays it where it was taken."""
        job, payer = request.job, request.job.tenant
        if (wanted := request.taken_for) is not None:
            payer.taken = [max(0.0, t - d) for t, d in zip(payer.taken, request.demand, strict=True)]
        amount = self._share_of(request) * seconds
        if wanted is None or request.pays == "owner":
            job.view.attained += amount
            self._charge(request, seconds)
            job.last = request, seconds
        else:
            self._charge(request, 0.0)
            payer = wanted.job.tenant
            if request.pays == "cluster":
                return
            self.policy.fairness.used(payer.view, amount, request.since)
            self._queue.enter_tenant(payer)
        payer.spent = [s + d * seconds for s, d in zip(payer.spent, request.demand, strict=True)]

    def _changed(self, job: QueuedSearch) -> None:
        self._dirty = True
        self._enter(job)

    def _enter(self, job: QueuedSearch) -> None:
        if job.waiting:
            following = job.waiting[0]
            job.view.share = dominant_share(following.demand, self.pool.total)
            job.view.chance, job.view.expected = following.chance, following.seconds
        self._queue.enter(job)

    def _end_core(self, job: QueuedSearch) -> None:
        """The Core of a search has no place any more."""
        self._use(job.tenant, job.core, -1)
        self._freed[job.core_node or ""] = None
        if (use := job.core_use) is not None:
            self.times.end(use, self._now)
            self._charge(use, self._now - use.since)
        job.core_node = job.core_use = None

    def _charge(self, request: ResourceRequest, seconds: float) -> None:
        """Count so many seconds of a run as its tenant's use, instead of what was counted before."""
        amount = self._share_of(request) * seconds
        if amount != request.charged:
            self.policy.fairness.used(request.job.tenant.view, amount - request.charged, request.since)
            request.charged = amount

    def _use(self, tenant: Tenant, demand: Amounts, sign: int) -> None:
        tenant.used = [max(0.0, u + sign * d) for u, d in zip(tenant.used, demand, strict=True)]
        tenant.view.share = dominant_share(tenant.used, self.pool.total)

    def _rescale(self) -> None:
        """The cluster has another size: so have all shares."""
        for tenant in self.tenants.values():
            tenant.view.share = dominant_share(tenant.used, self.pool.total)
        for job in self.jobs.values():
            self._enter(job)
        self._dirty = True

    def _drop_if_over(self, job: QueuedSearch) -> None:
        if job.view.job not in self.jobs and not job.running:
            job.tenant.jobs.pop(job.view.job, None)

    def _tenant(self, name: str) -> Tenant:
        return require_known(self.tenants, name, "tenant")

    def _job(self, name: str) -> QueuedSearch:
        return require_known(self.jobs, name, "search")


def _request_of(event: ev.RequestMade | ev.RequestAdopted, job: QueuedSearch, demand: Amounts) -> ResourceRequest:
    request = ResourceRequest(event.request, job, demand)
    request.repeatable, request.taken, request.price = event.repeatable, event.taken, event.price
    return request


_HANDLERS: dict[type[AllocatorEvent], Callable[[Allocator, Any], list[AllocatorInstruction]]] = {
    ev.NodeJoined: Allocator._node_joined,
    ev.NodeDrained: Allocator._node_drained,
    ev.NodeLost: Allocator._node_lost,
    ev.TenantSet: Allocator._tenant_set,
    ev.JobSubmitted: Allocator._job_submitted,
    ev.SimilarSearchesEnded: Allocator._preceded,
    ev.RequestMade: Allocator._asked,
    ev.RequestAdopted: Allocator._adopted,
    ev.RequestWithdrawn: Allocator._withdrawn,
    ev.RequestEnded: Allocator._ended,
    ev.PreemptionDeclined: Allocator._declined,
    ev.ResultReported: Allocator._result_reported,
    ev.ResultsReset: Allocator._results_reset,
    ev.JobPaused: Allocator._job_wanted,
    ev.JobResumed: Allocator._job_wanted,
    ev.JobReniced: Allocator._job_wanted,
    ev.JobEnded: Allocator._job_ended,
    ev.AllocatorTick: Allocator._tick,
}
