"""The framework of a shared cluster: carries out what the allocator says, with Cores, a store and an engine's nodes."""

from __future__ import annotations

import contextlib
import logging
import queue
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from tradewind.errors import InputError, TradewindError
from tradewind.problem import RunPreemption
from tradewind.store.base import this_process
from tradewind.store.clusters.cluster_store import (
    OPEN_JOB_STATES,
    REMEMBERED,
    TAKINGS,
    ClusterStore,
    JobIntent,
    JobRow,
    JobState,
    similarity_key,
    taking_words,
)
from tradewind.tenancy import events as ev
from tradewind.tenancy.allocator import AllocationPolicy, Allocator
from tradewind.tenancy.core import CoreSettings
from tradewind.tenancy.core_handles import CoreHandle, ProcessCore, RunCleanup, ThreadCore
from tradewind.tenancy.inspection.reasons import impossible_core_reason, longest_wait, usage, used_now, why_waiting
from tradewind.tenancy.messages import (
    CoreEndedMessage,
    CoreMessage,
    EndOrder,
    GrantOrder,
    MessageBatch,
    PreemptionDeclinedMessage,
    PreemptOrder,
    ProgressMessage,
    ResultMessage,
    RunEndedMessage,
    RunFoundMessage,
    RunRequestMessage,
    RunWithdrawalMessage,
    StudyMessage,
)
from tradewind.tenancy.node_monitor import NodeCapacities, NodeMonitor, NodeSource
from tradewind.tenancy.preemption.payments import PreemptionPayments
from tradewind.tenancy.preemption.policy import preemption_policy
from tradewind.tenancy.request_queue import ResourceRequest
from tradewind.tenancy.resources import ResourceKinds, cluster_quota, dominant_share


def known_amounts(amounts: Mapping[str, float], kinds: ResourceKinds) -> dict[str, float]:
    """The amounts of the kinds that this cluster has: a run may have begun on one that had others.

    Args:
        amounts: By name of the resource.
        kinds: The cluster's kinds of resource.
    """
    return {kind: each for kind, each in amounts.items() if kind in kinds.names}


def allocator_events_of(message: CoreMessage, kinds: ResourceKinds) -> list[ev.AllocatorEvent]:
    """The events that a Core's message is for the allocator; none where it is not for that.

    Args:
        message: Of a Core.
        kinds: The cluster's kinds of resource.
    """
    name = str(message.job)
    match message:
        case RunRequestMessage(_, request, demand, chance, seconds, longest):
            how = (message.repeatable, message.taken, message.price)
            return [ev.RequestMade(name, request, demand, chance, seconds, longest, *how)]
        case RunWithdrawalMessage(_, request):
            return [ev.RequestWithdrawn(request), ev.RequestEnded(request)]
        case RunFoundMessage(_, request, demand):
            how = (message.repeatable, message.taken, message.price)
            return [ev.RequestAdopted(name, request, known_amounts(demand, kinds), None, *how)]
        case PreemptionDeclinedMessage(_, request, reason):
            return [ev.PreemptionDeclined(request, reason)]
        case RunEndedMessage(_, request):
            return [ev.RequestEnded(request)]
        case ResultMessage(_, value, took, demand, chance):
            return [ev.ResultReported(name, value, took, known_amounts(demand, kinds), chance)]
    return []


def messages_in(message: CoreMessage) -> Iterable[CoreMessage]:
    """The messages that a message is made of, in their order."""
    return message.messages if isinstance(message, MessageBatch) else (message,)


def node_events(
    known: NodeCapacities, found: NodeCapacities, requests: Iterable[ResourceRequest], kinds: ResourceKinds
) -> list[ev.AllocatorEvent]:
    """The events of nodes that came, changed or were lost.

    The engine chose the nodes, not the allocator: which runs are gone with a node only their Cores will say. Until then
    they count as running somewhere, so that no more is started than the other nodes hold.

    Args:
        known: The nodes before.
        found: The nodes now.
        requests: The runs that wait or run.
        kinds: The cluster's kinds of resource.
    """
    lost = [name for name in known if name not in found]
    events: list[ev.AllocatorEvent] = [ev.NodeLost(name) for name in lost]
    for name, capacity in found.items():
        if known.get(name) != capacity:
            events.append(ev.NodeJoined(name, known_amounts(capacity, kinds)))
    events += [
        ev.RequestAdopted(
            *(request.job.view.job, request.id, kinds.mapping(request.demand), None),
            *(request.repeatable, request.taken, request.price),
        )
        for request in requests
        if request.node in lost
    ]
    return events


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
    waiting = [name for name, tenant in allocator.tenants.items() if any(job.waits for job in tenant.jobs.values())]
    within = {name: _starts_within(allocator, name, now) for name in waiting[:_MOST_WAITS]}
    nodes = {name: {"has": allocator.pool.capacity(name), "free": allocator.pool.free(name)} for name in allocator.pool}
    used = {name: used_now(tenant) for name, tenant in allocator.tenants.items()}
    tenants = {
        name: {
            "weight": tenant.view.weight,
            "share": dominant_share(used[name], allocator.pool.total),
            "used": kinds.mapping(used[name]),
            "usage": usage(allocator, name, now),
            "running": sum(len(job.running) for job in tenant.jobs.values()),
            "waiting": sum(job.waits for job in tenant.jobs.values()),
            "within": within.get(name),
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


def _starts_within(allocator: Allocator, tenant: str, now: float) -> float | None:
    """Seconds after which the next run of a tenant starts at the latest: by what runs, or by its preemption policy."""
    known = (longest_wait(allocator, tenant, now), allocator.promised(tenant))
    return min((each for each in known if each is not None), default=None)


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
        "waiting": 0 if it is None else it.waits,
        "why": "" if it is None else why_waiting(allocator, str(job.id)),
    }
    if it is not None and it.view.earlier:
        found["usual"] = {"searches": len(it.view.earlier), "results": statistics.median(it.view.earlier)}
    return {**found, **shown}


_MOST_WAITS = 100
"""Tenants for which is said when their next run starts at the latest."""

_log = logging.getLogger("tradewind.tenancy")

LEASE_SECONDS = 60.0
"""How long a cluster stays taken when its process says nothing; a process of this host that died lets go at once."""

_LOOK = 0.25
"""Seconds between two looks into the store for what users want."""

_NODES = 5.0
"""Seconds between two looks at the engine's nodes."""

_LEAVE = 2.0
"""Seconds that the end waits for an answer about the nodes."""

_SNAPSHOT = 1.0
_CRASHES = 3
"""A Core that crashed so often is not started again."""

_AGAIN = 20.0
"""Seconds until a search whose study was taken by another process goes on."""

_ENOUGH = 20
"""Earlier searches that were like one, the newest, from which is learned how long it will take."""

_TAKINGS = 20
"""Runs that were taken, the last ones, which the snapshot names."""

_CANCELLED = "cancelled by its owner"


@dataclass(frozen=True)
class SharedClusterSettings:
    """Settings of a shared cluster.

    Attributes:
        name: The cluster's name in the store.
        url: Address of the store.
        data_folder: For runs, runners and refreshed prices.
        policy: How the allocator decides.
        words: How it was started, for those who watch.
        runner: The runner of all runs, as a job YAML has it; each job's own without it.
        core_in_process: Every Core gets a process of its own, not only those that ask for it.
    """

    name: str
    url: str
    data_folder: Path
    policy: AllocationPolicy
    words: Mapping[str, Any]
    runner: Mapping[str, Any] | None = None
    core_in_process: bool = False


class SharedCluster:
    """A shared cluster on its way.

    Args:
        settings: How it is run.
        nodes: Which nodes there are.

    Attributes:
        allocator: Who gets what.
        store: Where the searches are.
        shown: What the Cores said last of their searches, by number.
        failed: Of searches that failed here, by number, which it is and why.
    """

    def __init__(self, settings: SharedClusterSettings, nodes: NodeSource) -> None:
        self.settings = settings
        self.allocator = Allocator(settings.policy)
        self.store = ClusterStore(settings.url)
        self.shown: dict[int, Mapping[str, Any]] = {}
        self.failed: dict[int, str] = {}
        self._engine, self._node_monitor = nodes, NodeMonitor(nodes)
        self._outbox: queue.Queue[CoreMessage] = queue.Queue()
        self._core_handles: dict[int, CoreHandle] = {}
        self._jobs: dict[int, JobRow] = {}
        self._crashes: dict[int, int] = {}
        self._again: dict[int, float] = {}  # when a search goes on that was left
        self._reasons: dict[int, str] = {}  # why a search was ended from here
        self._like: dict[int, tuple[str, str, str]] = {}  # what a search shares with those that take as long
        self._fresh: set[tuple[str, str, str]] = set()  # the same of searches that came, or that are over
        self._known: NodeCapacities = {}
        self._tenants: dict[str, Any] = {}
        self._takings: deque[dict[str, Any]] = deque(maxlen=_TAKINGS)
        self._payments = PreemptionPayments(self.store, settings.name, settings.policy.grace)
        self._remembered: dict[int, Mapping[str, Any]] = {}  # by priorities, of searches that go on later
        self._token = ""
        self._next = {"look": 0.0, "nodes": 0.0, "snapshot": 0.0, "wake": float("inf")}
        self._stopping = False

    def run(self, wanted: Callable[[], bool]) -> None:
        """Run until it is not wanted any more; then all searches are ended so that the next start goes on with them.

        Args:
            wanted: Asked often.

        Raises:
            StudyBusyError: Another live process runs this cluster, or has taken it over.
            StoreError: The store cannot be read or written any more.
            DeployError: The engine cannot be reached now, at the beginning; later it is waited for.
            InputError: The engine has no such place.
        """
        settings = self.settings
        self._token = self.store.hold(settings.name, this_process(), LEASE_SECONDS, settings.words)
        self._remembered = self.store.remembered(settings.name)
        self._takings.extend(self.store.takings(settings.name))
        try:
            self._payments.begin()
            self._see_nodes(self._engine.nodes())
            while not (self._stopping and not self._core_handles):
                if not self._stopping and not wanted():
                    self._stop()
                self._turn()
        finally:
            for number, core_handle in self._core_handles.items():
                core_handle.send(EndOrder("left"))
                _log.info("waiting for search %d", number)
            for core_handle in self._core_handles.values():
                core_handle.join(30.0)
            with contextlib.suppress(TradewindError):
                self._payments.forget({})
            self._node_monitor.end(_LEAVE)
            with contextlib.suppress(TradewindError):
                self.store.renew(settings.name, self._token, LEASE_SECONDS, self._snapshot())
            self.store.release(settings.name, self._token)
            self.store.close()

    def empty(self) -> bool:
        """True when no search is left for this cluster that is not over."""
        return not self._jobs and not self.store.jobs(open_only=True, limit=1, cluster=self.settings.name)

    def _turn(self) -> None:
        now = time.monotonic()
        for what, action, seconds in (
            ("look", self._look, _LOOK),
            ("nodes", self._node_monitor.ask, _NODES),
            ("snapshot", self._keep_snapshot, _SNAPSHOT),
        ):
            if now >= self._next[what]:
                self._next[what] = now + seconds
                action()
        self._take_nodes()
        self._payments.forget(self.allocator.requests)
        if now >= self._next["wake"]:
            self._next["wake"] = float("inf")
            self._feed(ev.AllocatorTick())
        patience = max(0.0, min(self._next.values()) - time.monotonic())
        try:
            message = self._outbox.get(timeout=min(patience, _LOOK))
        except queue.Empty:
            return
        messages = [message]
        while True:  # what has come meanwhile is decided on together
            try:
                messages.append(self._outbox.get_nowait())
            except queue.Empty:
                break
        self._feed(*(event for each in messages for part in messages_in(each) for event in self._take(part)))

    def _stop(self) -> None:
        self._stopping = True
        for core_handle in self._core_handles.values():
            core_handle.send(EndOrder("left"))

    # ------------------------------------------------------------------ what users want

    def _look(self) -> None:
        """Take what has changed in the store: tenants, new searches, and what their owners want."""
        events: list[ev.AllocatorEvent] = []
        intents = self.store.intents(self.settings.name)  # before the tenants: each of them has one
        for tenant in self.store.tenants():
            if self._tenants.get(tenant.name) != tenant:
                self._tenants[tenant.name] = tenant
                try:
                    quota, preempt = cluster_quota(tenant.quota), preemption_policy(tenant.preempt)
                    self._feed(ev.TenantSet(tenant.name, tenant.weight, tenant.priority, quota, preempt))
                except InputError as error:
                    _log.warning("tenant %s is left as it was: %s", tenant.name, error)
        if self._stopping:
            return
        for number, wanted, nice in intents:
            if (known := self._jobs.get(number)) is not None:
                events += self._follow_intent(known, wanted, nice)
            elif wanted != "cancel" and self._again.get(number, 0.0) > time.monotonic():
                continue
            elif (job := self.store.take(number, self.settings.name)) is not None:
                events += self._new(job)
                self._like[number] = (job.tenant, job.name, similarity_key(job.spec, job.options))
                self._fresh.add(self._like[number])
        self._feed(*events, *self._preceded())

    def _new(self, job: JobRow) -> list[ev.AllocatorEvent]:
        self._jobs[job.id] = job
        self.failed.pop(job.id, None)
        name = str(job.id)
        if job.wanted == "cancel":
            return self._end_new(job, "cancelled", _CANCELLED)
        core, demand = job.options.get("core_demand", {}), job.options.get("demand", {})
        try:  # it was submitted before anybody knew which cluster would take it
            held, _ = (self.settings.policy.kinds.amounts(given) for given in (core, demand))
        except InputError as error:
            return self._end_new(job, "failed", str(error))
        tenant, pool, grows = self.allocator.tenants[job.tenant], self.allocator.pool, self.settings.policy.grows
        # One that had its room before waits: a node or the quota may come back, and its runs may go on.
        if job.started is None and (why := impossible_core_reason(held, tenant, pool, grows=grows)):
            return self._end_new(job, "failed", why)
        # Offers may have what this cluster does not know of; `submit` has found out which there are.
        run = {**known_amounts(job.options.get("run", {}), self.settings.policy.kinds), **demand}
        recalled = self._remembered.pop(job.id, {})
        events: list[ev.AllocatorEvent] = [ev.JobSubmitted(name, job.tenant, core, run, job.nice, recalled)]
        if job.wanted == "pause":
            events.append(ev.JobPaused(name))
            self._change(job.id, state="paused")
        if not core:
            self._start_core(job.id)
        return events

    def _preceded(self) -> list[ev.AllocatorEvent]:
        """Events on the durations of searches that are over, for those that are like them and know of fewer so far."""
        if not self._fresh:  # as at nearly every look
            return []
        fresh, self._fresh = self._fresh, set()
        self._like = {number: like for number, like in self._like.items() if number in self._jobs}
        groups: dict[tuple[str, str, str], list[int]] = {}
        for number, like in self._like.items():
            known = self.allocator.jobs.get(str(number))
            if like in fresh and (known is None or len(known.view.earlier) < _ENOUGH):
                groups.setdefault(like, []).append(number)
        events: list[ev.AllocatorEvent] = []
        for numbers in groups.values():
            if found := self.store.durations(self._jobs[numbers[0]], _ENOUGH):
                results = [each.results for each in found]
                seconds = sum(each.seconds for each in found) / sum(results)
                events += [ev.SimilarSearchesEnded(str(number), results, seconds) for number in numbers]
        return events

    def _end_new(self, job: JobRow, state: Literal["cancelled", "failed"], reason: str) -> list[ev.AllocatorEvent]:
        """End a search that this cluster does not begin; the allocator knows it as long as it has runs."""
        name = str(job.id)
        ends = self._conclude(job.id, state, reason)
        return [ev.JobSubmitted(name, job.tenant, {}, {}, job.nice), *ends]

    def _follow_intent(self, known: JobRow, wanted: JobIntent, nice: int) -> list[ev.AllocatorEvent]:
        job = self._jobs[known.id] = replace(known, wanted=wanted, nice=nice)
        name = str(job.id)
        if job.wanted == "cancel" and known.wanted != "cancel":
            if job.id in self._core_handles:
                self._reasons[job.id] = _CANCELLED
                self._core_handles[job.id].send(EndOrder("cancelled"))
                return [ev.JobPaused(name)]
            return self._conclude(job.id, "cancelled", _CANCELLED)
        found: list[ev.AllocatorEvent] = []
        if job.nice != known.nice:
            found.append(ev.JobReniced(name, job.nice))
        if job.wanted != known.wanted and job.wanted in ("pause", "run"):
            paused = job.wanted == "pause"
            found.append(ev.JobPaused(name) if paused else ev.JobResumed(name))
            begun = job.id in self._core_handles
            self._change(job.id, state="paused" if paused else "running" if begun else "queued")
        return found

    # ------------------------------------------------------------------ Cores

    def _start_core(self, number: int) -> None:
        apart = self.settings.core_in_process or self._jobs[number].options.get("core") == "process"
        self._core_handles[number] = (ProcessCore if apart else ThreadCore)(self._core(number), self._outbox)

    def _core(self, number: int) -> CoreSettings:
        settings, job = self.settings, self._jobs[number]
        weight = self.allocator.tenants[job.tenant].view.weight
        return CoreSettings(job, settings.url, settings.data_folder, settings.runner, weight)

    def _take(self, message: CoreMessage) -> list[ev.AllocatorEvent]:
        """Take a message of a Core; the events for the allocator that follow."""
        match message:
            case StudyMessage(number, study_id, simulated):
                paused = self._jobs[number].wanted == "pause"
                started = self._jobs[number].started or time.time()
                began = {"study_id": study_id, "started": started, "simulated": simulated}
                self._change(number, **began, state="paused" if paused else "running")
            case ProgressMessage(number, document):
                self.shown[number] = document
            case CoreEndedMessage():
                return self._over(message)
        return allocator_events_of(message, self.settings.policy.kinds)

    def _over(self, message: CoreEndedMessage) -> list[ev.AllocatorEvent]:
        number, name = message.job, str(message.job)
        core_handle = self._core_handles.pop(number, None)
        gone: list[ev.AllocatorEvent] = [ev.RequestEnded(each) for each in self._requests_of(name)]
        match message.state:
            case "crashed" if not self._stopping:
                if self._jobs[number].wanted == "cancel":  # it may not have heard of it
                    return gone + self._conclude(number, "cancelled", _CANCELLED)
                self._crashes[number] = self._crashes.get(number, 0) + 1
                if self._crashes[number] < _CRASHES:
                    self._start_core(number)
                    return [*gone, ev.ResultsReset(name)]
                return gone + self._conclude(number, "failed", message.reason)
            case "left" | "crashed":
                if (held := self.allocator.jobs.get(name)) is not None:
                    self._remembered[number] = self.settings.policy.priority.remembered(held.view)
                self._change(number, state="paused" if self._jobs[number].wanted == "pause" else "queued")
                if not self._stopping:
                    _log.warning("search %d goes on in %g s: %s", number, _AGAIN, message.reason)
                    del self._jobs[number]
                    self._again[number] = time.monotonic() + _AGAIN
            case "failed" if not isinstance(core_handle, RunCleanup):
                return gone + self._conclude(number, "failed", message.reason)
            case state:
                why = self._reasons.pop(number, "") if state == "cancelled" else ""
                self._finish(number, state, why or message.reason)
                if state == "done" and number in self._like:
                    self._fresh.add(self._like.pop(number))
        return [*gone, ev.JobEnded(name)]

    def _conclude(self, number: int, state: Literal["cancelled", "failed"], reason: str) -> list[ev.AllocatorEvent]:
        """End a search that has no Core: at once if it has no study yet, else when no run of it is left."""
        name = str(number)
        if self._jobs[number].study_id is None:
            self._finish(number, state, reason)
            return [ev.JobEnded(name)]
        self._core_handles[number] = RunCleanup(
            self._core(number), self._outbox, CoreEndedMessage(number, state, reason)
        )
        if self._stopping:
            self._core_handles[number].send(EndOrder("left"))
        return [ev.JobPaused(name)]

    def _requests_of(self, name: str) -> list[str]:
        job = self.allocator.jobs.get(name)
        return [] if job is None else [*job.running, *job.booked, *(request.id for request in job.waiting)]

    def _finish(self, number: int, state: JobState, reason: str) -> None:
        if state == "failed":
            self.failed[number] = f"search {number} ({self._jobs[number].name}): {reason}"
            _log.warning("search %d (%s) failed: %s", number, self._jobs[number].name, reason)
        self._change(number, state=state, reason=reason, ended=time.time())
        self.shown.pop(number, None)
        self._crashes.pop(number, None)  # should it go on, it is as good as new

    def _change(self, number: int, **fields: Any) -> None:
        known, changed = self._jobs[number], self.store.change_job(number, **fields)
        # What is wanted now may be new: it counts as known only when `_follow_intent` has followed it.
        self._jobs[number] = replace(changed, wanted=known.wanted, nice=known.nice)
        if changed.state not in OPEN_JOB_STATES:
            del self._jobs[number]

    # ------------------------------------------------------------------ the allocator

    def _feed(self, *events: ev.AllocatorEvent) -> None:
        for instruction in self.allocator.handle_all(self._sound(events), time.monotonic()):
            match instruction:
                case ev.StartRun(request, job, _):
                    if (core_handle := self._core_handles.get(int(job))) is not None:
                        core_handle.send(GrantOrder(request, self.allocator.requests[request].job.tenant.view.weight))
                case ev.StartCore(job, _):
                    # One whose node was lost goes on, and only counts elsewhere; a new one would not hear of the end.
                    if not self._stopping and int(job) not in self._core_handles:
                        self._start_core(int(job))
                case ev.RequestRefused(_, job, reason):
                    self._refuse(int(job), reason)
                case ev.PreemptRun():
                    self._preempt(instruction)
                case ev.WakeAt(at):
                    self._next["wake"] = min(self._next["wake"], at)
                case ev.CoreLost(job, node):
                    _log.warning("node %s is gone, the Core of search %s goes on here", node, job)

    def _preempt(self, it: ev.PreemptRun) -> None:
        """Have the Core of a search end a run for another tenant, if that can pay for it."""
        tenant, run = self._tenants.get(it.tenant), self.allocator.requests.get(it.request)
        study = self._jobs[int(it.job)].study_id if int(it.job) in self._jobs else None
        if why := self._payments.why_unpaid(it, tenant, run, study, time.monotonic()):
            _log.warning("tenant %s takes no run of search %s: %s", it.tenant, it.job, why)
            self._outbox.put(PreemptionDeclinedMessage(int(it.job), it.request, why))
        elif (core_handle := self._core_handles.get(int(it.job))) is not None:
            self._takings.append(found := self._taking(it))
            _log.warning("%s", taking_words(found))
            core_handle.send(PreemptOrder(it.request, RunPreemption(it.tenant, it.pays, found["at"], why=it.why)))

    def _taking(self, it: ev.PreemptRun) -> dict[str, Any]:
        """A JSON-able document of a run that is taken: whose, for whom, why, and who pays."""
        number = int(it.job)
        return {
            "at": time.time(),
            "owner": self._jobs[number].tenant,
            "search": number,
            "name": self._jobs[number].name,
            "trial": int(it.request.split("/")[1]),
            "tenant": it.tenant,
            "for": int(it.wanted.split("/")[0]),
            "why": it.why,
            "pays": it.pays,
        }

    def _sound(self, events: tuple[ev.AllocatorEvent, ...]) -> list[ev.AllocatorEvent]:
        """The events that are not about a search that was over before they came."""
        coming = {each.job for each in events if isinstance(each, ev.JobSubmitted)}
        return [
            each
            for each in events
            if (job := getattr(each, "job", None)) is None or job in self.allocator.jobs or job in coming
        ]

    def _refuse(self, number: int, reason: str) -> None:
        if (core_handle := self._core_handles.get(number)) is not None:
            core_handle.send(EndOrder("failed", reason))

    def _take_nodes(self) -> None:
        try:
            if (found := self._node_monitor.answer()) is not None:
                self._see_nodes(found)
        except TradewindError as error:
            # An engine that does not answer has not lost its nodes.
            _log.warning("the nodes cannot be asked for: %s", error)

    def _see_nodes(self, found: NodeCapacities) -> None:
        for name in [name for name in self._known if name not in found]:
            _log.warning("node %s is gone", name)
        events = node_events(self._known, found, self.allocator.requests.values(), self.settings.policy.kinds)
        self._known = {name: dict(capacity) for name, capacity in found.items()}
        self._feed(*events)

    # ------------------------------------------------------------------ watching

    def _snapshot(self) -> dict[str, Any]:
        found = cluster_snapshot(self.allocator, self._jobs, self.shown, time.monotonic())
        views = {number: job.view for number in self._jobs if (job := self.allocator.jobs.get(str(number))) is not None}
        known = {number: self.settings.policy.priority.remembered(view) for number, view in views.items()}
        remembered = {str(number): each for number, each in {**self._remembered, **known}.items() if each}
        found |= {TAKINGS: list(self._takings)} if self._takings else {}
        return {**found, REMEMBERED: remembered} if remembered else found

    def _keep_snapshot(self) -> None:
        self.store.renew(self.settings.name, self._token, LEASE_SECONDS, self._snapshot())
