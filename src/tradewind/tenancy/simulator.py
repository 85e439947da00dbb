"""A cluster in simulated time: the same allocator, fed with recorded or modelled trials."""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tradewind.tenancy import events as ev
from tradewind.tenancy.allocator import AllocationPolicy, Allocator
from tradewind.tenancy.preemption.policy import MOST_TAKEN
from tradewind.tenancy.resources import dominant_share


class SimulatedTrials(Protocol):
    """A source of the trials of a simulated search."""

    def start(self) -> tuple[float, float] | None:
        """The value and the seconds of the next trial, or None when there is no further one now."""
        ...

    def predict_run(self) -> tuple[float | None, float | None]:
        """The chance and the seconds that the searcher's model expects of the next trial; None where it has not said.

        It is asked before `start`.
        """
        ...

    def end(self, value: float) -> None:
        """A trial has ended with this value."""
        ...


@dataclass
class RecordedTrials:
    """Trials in a fixed order.

    Attributes:
        values: Of the objective; smaller is better.
        seconds: Of each trial.
        foreseen: The chance of each trial to bring what its search is after, and its seconds, as the searcher's model
            said before it; of those beyond the end nothing was said.
        started: How many were started.
        ended: How many have ended.
    """

    values: Sequence[float]
    seconds: Sequence[float]
    foreseen: Sequence[tuple[float | None, float | None]] = ()
    started: int = 0
    ended: int = 0

    def predict_run(self) -> tuple[float | None, float | None]:
        """See `SimulatedTrials.predict_run`."""
        return self.foreseen[self.started] if self.started < len(self.foreseen) else (None, None)

    def start(self) -> tuple[float, float] | None:
        """See `SimulatedTrials.start`."""
        if self.started >= len(self.values):
            return None
        self.started += 1
        return self.values[self.started - 1], self.seconds[self.started - 1]

    def end(self, value: float) -> None:
        """See `SimulatedTrials.end`."""
        self.ended += 1


@dataclass
class SimulatedJob:
    """A search in simulated time.

    Attributes:
        job: The search's id.
        tenant: Whose it is.
        trials: The source of its trials.
        demand: What a run takes, by name.
        parallel: Runs at the same time.
        target: It is over when a value is this or less; when its trials are used up, without it.
        submitted: When it comes.
        core: What its Core takes, by name.
        finishes: Runs that run when it reaches its target go on to their end, and its Core stays until then: what
            ``tradewind submit --target`` does. Otherwise they are gone at once.
        earlier: Results that each search took that was like it and is over.
        usual_seconds: How long a run of those took in the mean.
        repeatable: Its runs may be taken for other tenants, and are run again then; three times without checkpoints.
        checkpoints: A run that was taken goes on where it was; otherwise it begins anew.
        stopping: Seconds that a run takes to end when it is taken.
        forgets: Its checkpoints are worth nothing: a run that was taken begins anew.
    """

    job: str
    tenant: str
    trials: SimulatedTrials
    demand: Mapping[str, float]
    parallel: int = 1
    target: float | None = None
    submitted: float = 0.0
    core: Mapping[str, float] = field(default_factory=dict)
    finishes: bool = False
    earlier: Sequence[int] = ()
    usual_seconds: float = 0.0
    repeatable: bool = False
    checkpoints: bool = False
    stopping: float = 0.0
    forgets: bool = False


@dataclass
class SimulatedSearchOutcome:
    """The outcome of a simulated search.

    Attributes:
        done: When it reached its target or its last trial ended; None if it did neither.
        reached: It reached its target.
        runs: How many runs ended, those stopped at its end not among them.
        service: Share of the cluster times seconds that it used.
        begun: When its first run started.
        promised: Seconds within which it was promised a place when it came; None where it was not.
    """

    done: float | None = None
    reached: bool = False
    runs: int = 0
    service: float = 0.0
    begun: float | None = None
    promised: float | None = None


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """A run that has ended in simulated time.

    Attributes:
        tenant: Whose it was.
        began: When it was started.
        ended: When it was gone.
        share: Its dominant share of the cluster.
    """

    tenant: str
    began: float
    ended: float
    share: float


@dataclass(frozen=True, slots=True)
class SimulatedPreemption:
    """A run that was taken in simulated time.

    Attributes:
        at: When it was decided.
        request: The run.
        tenant: Whose it was.
        taker: The tenant that gets its place.
        ran: Seconds that it had had its place.
        taken: How often runs of its trial had been taken before.
        wanted: The run that gets its place.
    """

    at: float
    request: str
    tenant: str
    taker: str
    ran: float
    taken: int
    wanted: str


@dataclass
class ClusterSimulation:
    """The result of a simulation.

    Attributes:
        outcomes: By search.
        shares: Mean dominant share of each tenant over the time in which all tenants had work, where it was watched.
        end: When the last search was over.
        starts: Runs started.
        busiest: Seconds that the slowest call of the allocator took.
        thinking: Seconds of all calls.
        runs: All runs that have ended, where they were recorded.
        preemptions: The runs that were taken.
    """

    outcomes: dict[str, SimulatedSearchOutcome]
    shares: dict[str, float]
    end: float = 0.0
    starts: int = 0
    busiest: float = 0.0
    thinking: float = 0.0
    runs: list[SimulatedRun] = field(default_factory=list)
    preemptions: list[SimulatedPreemption] = field(default_factory=list)

    def used_between(self, begin: float, end: float) -> dict[str, float]:
        """The mean dominant share of each tenant in a window of time, of the runs that have ended; see `runs`.

        Args:
            begin: Seconds.
            end: Seconds.
        """
        used = dict.fromkeys(self.shares, 0.0)
        for run in self.runs:
            used[run.tenant] += run.share * max(0.0, min(run.ended, end) - max(run.began, begin)) / (end - begin)
        return used


def simulate(
    nodes: Mapping[str, Mapping[str, float]],
    tenants: Sequence[ev.TenantSet],
    jobs: Sequence[SimulatedJob],
    policy: AllocationPolicy,
    until: float = float("inf"),
    *,
    watch: bool = False,
    record: bool = False,
) -> ClusterSimulation:
    """Run searches on a simulated cluster.

    Args:
        nodes: Capacity of each node, by name.
        tenants: The tenants.
        jobs: The searches.
        policy: How the allocator decides.
        until: Seconds after which it ends.
        watch: Note shares, too; that takes time for each search and event.
        record: Note all runs.
    """
    return _Simulator(nodes, tenants, jobs, policy, watch=watch, record=record).run(until)


class _Simulator:
    def __init__(
        self,
        nodes: Mapping[str, Mapping[str, float]],
        tenants: Sequence[ev.TenantSet],
        jobs: Sequence[SimulatedJob],
        policy: AllocationPolicy,
        *,
        watch: bool,
        record: bool,
    ) -> None:
        self._watching, self._recording = watch, record
        self.allocator = Allocator(policy)
        self.jobs = {job.job: job for job in jobs}
        self.result = ClusterSimulation(
            {job.job: SimulatedSearchOutcome() for job in jobs}, {each.tenant: 0.0 for each in tenants}
        )
        self.now = 0.0
        self._order = 0
        self._heap: list[tuple[float, int, str, str]] = []
        self._planned: dict[str, tuple[str, float, float, float | None]] = {}  # request -> job, value, seconds, chance
        self._taken: Counter[str] = Counter()  # request -> how often runs of its trial were taken
        self._again: dict[str, tuple[str, float, float, float | None]] = {}  # taken, and not gone yet
        self._open: Counter[str] = Counter()  # runs of a search that wait or run
        self._over: set[str] = set()
        self._wake = float("inf")
        self._watched = 0.0
        kinds = policy.kinds
        self.allocator.pool.join_all([(name, kinds.amounts(capacity)) for name, capacity in nodes.items()])
        for tenant in tenants:
            self.allocator.handle(tenant, 0.0)
        for job in jobs:
            self._at(job.submitted, "submit", job.job)

    def run(self, until: float) -> ClusterSimulation:
        """Simulate until all searches are over, or the time is."""
        while self._heap and self._heap[0][0] <= until and len(self._over) < len(self.jobs):
            moment = self._heap[0][0]
            if self._watching:
                self._watch(moment)
            self.now = moment
            _, _, what, name = heapq.heappop(self._heap)
            if what == "submit":
                coming = [self.jobs[name]]
                while self._heap and self._heap[0][0] == moment and self._heap[0][2] == "submit":
                    coming.append(self.jobs[heapq.heappop(self._heap)[3]])
                self._feed(*(event for job in coming for event in self._submitted(job)))
                for job in coming:
                    self.result.outcomes[job.job].promised = self.allocator.promised(job.tenant)
            elif what == "gone":
                self._feed(ev.RequestEnded(name), *self._repeated(name))
            elif what == "end":
                if name in self._planned:
                    self._end(name)
            elif moment >= self._wake:
                self._wake = float("inf")
                self._feed(ev.AllocatorTick())
        self.result.end = self.now
        if self._watched > 0:
            self.result.shares = {name: each / self._watched for name, each in self.result.shares.items()}
        self.result.starts = self.allocator.decisions
        return self.result

    def _at(self, when: float, what: str, name: str) -> None:
        self._order += 1
        heapq.heappush(self._heap, (when, self._order, what, name))

    def _submitted(self, job: SimulatedJob) -> list[ev.AllocatorEvent]:
        known: list[ev.AllocatorEvent] = [ev.JobSubmitted(job.job, job.tenant, job.core, job.demand)]
        if job.earlier:
            known.append(ev.SimilarSearchesEnded(job.job, job.earlier, job.usual_seconds))
        return [*known, *(asked for _ in range(job.parallel) for asked in self._asked(job))]

    def _asked(self, job: SimulatedJob) -> list[ev.AllocatorEvent]:
        """The next run of a search, if there is one."""
        said = job.trials.predict_run()
        trial = job.trials.start()
        if trial is None:
            return []
        self._order += 1
        request = f"{job.job}/{self._order}"
        self._planned[request] = (job.job, *trial, said[0])
        self._open[job.job] += 1
        return [ev.RequestMade(job.job, request, job.demand, *said, repeatable=job.repeatable)]

    def _repeated(self, request: str) -> list[ev.AllocatorEvent]:
        """The run of a trial whose run was taken."""
        planned = self._again.pop(request, None)
        if planned is None or planned[0] in self._over:
            return []
        job, taken = self.jobs[planned[0]], self._taken.pop(request)
        self._order += 1
        again = f"{job.job}/{self._order}"
        self._planned[again], self._taken[again] = planned, taken
        repeatable = job.repeatable and (job.checkpoints or taken < MOST_TAKEN)
        return [ev.RequestMade(job.job, again, job.demand, repeatable=repeatable, taken=taken)]

    def _take(self, order: ev.PreemptRun) -> None:
        held = self.allocator.requests[order.request]
        ran = self.now - held.since
        self.result.preemptions.append(
            SimulatedPreemption(
                self.now, order.request, held.job.tenant.view.name, order.tenant, ran, held.taken, order.wanted
            )
        )
        name, value, seconds, chance = self._planned.pop(order.request)
        goes_on = self.jobs[name].checkpoints and not self.jobs[name].forgets
        left = seconds - ran if goes_on else seconds
        self._again[order.request] = name, value, left, chance
        self._taken[order.request] += 1
        self._at(self.now + self.jobs[name].stopping, "gone", order.request)

    def _end(self, request: str) -> None:
        name, value, seconds, chance = self._planned.pop(request)
        if name in self._over:
            self._feed(ev.RequestEnded(request), *self._left(name, request))
            return
        job, outcome = self.jobs[name], self.result.outcomes[name]
        outcome.runs += 1
        demand = self.allocator.policy.kinds.amounts(job.demand)
        share = dominant_share(demand, self.allocator.pool.total)
        outcome.service += share * seconds
        if self._recording:
            self.result.runs.append(SimulatedRun(job.tenant, self.now - seconds, self.now, share))
        job.trials.end(value)
        reached = job.target is not None and value <= job.target
        events: list[ev.AllocatorEvent] = [ev.RequestEnded(request)]
        if not reached:
            events += [ev.ResultReported(name, value, seconds, chance=chance), *self._asked(job)]
        self._open[name] -= 1
        if reached or not self._open[name]:
            outcome.done, outcome.reached = self.now, reached
            self._over.add(name)
            events += self._left(name, request)
        self._feed(*events)

    def _left(self, name: str, ended: str) -> list[ev.AllocatorEvent]:
        """Events that end a search that is over, when a run of it has ended."""
        held = self.allocator.jobs.get(name)
        if held is None:
            return []
        if not self.jobs[name].finishes or held.running.keys() <= {ended}:
            return [ev.JobEnded(name)]
        waiting = [request.id for request in (*held.booked.values(), *held.waiting)]
        for each in waiting:
            del self._planned[each]
        return [ev.RequestWithdrawn(each) for each in waiting]

    def _feed(self, *events: ev.AllocatorEvent) -> None:
        began = time.perf_counter()
        instructions = self.allocator.handle_all(events, self.now)
        took = time.perf_counter() - began
        self.result.thinking += took
        self.result.busiest = max(self.result.busiest, took)
        for instruction in instructions:
            match instruction:
                case ev.StartRun(request, job, _):
                    outcome = self.result.outcomes[job]
                    outcome.begun = self.now if outcome.begun is None else outcome.begun
                    self._at(self.now + self._planned[request][2], "end", request)
                case ev.StopRun(request, _, _):
                    # What is stopped is gone at once; its end that was foreseen finds nothing.
                    self._planned.pop(request)
                    self._taken.pop(request, None)
                    self._at(self.now, "gone", request)
                case ev.PreemptRun():
                    self._take(instruction)
                case ev.WakeAt(at) if at < self._wake:
                    self._wake = at
                    self._at(at, "wake", "")

    def _watch(self, moment: float) -> None:
        """Add up shares over the time in which every tenant has something that waits."""
        waits = {job.tenant.view.name for job in self.allocator.jobs.values() if job.waits}
        if len(waits) == len(self.allocator.tenants) and moment > self.now:
            for name, tenant in self.allocator.tenants.items():
                self.result.shares[name] += tenant.view.share * (moment - self.now)
            self._watched += moment - self.now
