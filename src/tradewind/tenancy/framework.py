"""The framework of a shared cluster: carries out what the allocator says, with Cores, a store and an engine's nodes."""

from __future__ import annotations

import contextlib
import logging
import queue
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from tradewind.errors import InputError, TradewindError
from tradewind.store.base import this_process
from tradewind.store.cluster import OPEN, ClusterStore, JobRow, State, Wanted
from tradewind.store.lengths import likeness
from tradewind.tenancy import events as ev
from tradewind.tenancy.allocator import Allocator, Policy
from tradewind.tenancy.core import CoreSettings
from tradewind.tenancy.lookout import Capacities, Lookout, Nodes
from tradewind.tenancy.messages import Began, End, Grant, Message, Over, Shows
from tradewind.tenancy.resources import of_cluster
from tradewind.tenancy.seats import EndingSeat, ProcessSeat, Seat, ThreadSeat
from tradewind.tenancy.translation import events_of, known_amounts, node_events, parts_of
from tradewind.tenancy.watching import snapshot_of

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

_CANCELLED = "cancelled by its owner"


@dataclass(frozen=True)
class ClusterSettings:
    """How a cluster is run.

    Attributes:
        name: Its name in the store.
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
    policy: Policy
    words: Mapping[str, Any]
    runner: Mapping[str, Any] | None = None
    core_in_process: bool = False


class Cluster:
    """A shared cluster on its way.

    Args:
        settings: How it is run.
        nodes: Which nodes there are.
    """

    def __init__(self, settings: ClusterSettings, nodes: Nodes) -> None:
        self.settings = settings
        self.allocator = Allocator(settings.policy)
        self.store = ClusterStore(settings.url)
        self.shown: dict[int, Mapping[str, Any]] = {}
        self._engine, self._lookout = nodes, Lookout(nodes)
        self._outbox: queue.Queue[Message] = queue.Queue()
        self._seats: dict[int, Seat] = {}
        self._jobs: dict[int, JobRow] = {}
        self._crashes: dict[int, int] = {}
        self._again: dict[int, float] = {}  # when a search goes on that was left
        self._reasons: dict[int, str] = {}  # why a search was ended from here
        self._like: dict[int, tuple[str, str, str]] = {}  # what a search shares with those that take as long
        self._fresh: set[tuple[str, str, str]] = set()  # the same of searches that came, or that are over
        self._known: Capacities = {}
        self._tenants: dict[str, Any] = {}
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
        try:
            self._see_nodes(self._engine.nodes())
            while not (self._stopping and not self._seats):
                if not self._stopping and not wanted():
                    self._stop()
                self._turn()
        finally:
            for number, seat in self._seats.items():
                seat.send(End("left"))
                _log.info("waiting for search %d", number)
            for seat in self._seats.values():
                seat.join(30.0)
            self._lookout.end(_LEAVE)
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
            ("nodes", self._lookout.ask, _NODES),
            ("snapshot", self._keep_snapshot, _SNAPSHOT),
        ):
            if now >= self._next[what]:
                self._next[what] = now + seconds
                action()
        self._take_nodes()
        if now >= self._next["wake"]:
            self._next["wake"] = float("inf")
            self._feed(ev.Tick())
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
        self._feed(*(event for each in messages for part in parts_of(each) for event in self._take(part)))

    def _stop(self) -> None:
        self._stopping = True
        for seat in self._seats.values():
            seat.send(End("left"))

    # ------------------------------------------------------------------ what users want

    def _look(self) -> None:
        """Take what has changed in the store: tenants, new searches, wishes."""
        events: list[ev.Event] = []
        wishes = self.store.wishes(self.settings.name)  # before the tenants: each of them has one
        for tenant in self.store.tenants():
            if self._tenants.get(tenant.name) != tenant:
                self._tenants[tenant.name] = tenant
                try:
                    self._feed(ev.TenantSet(tenant.name, tenant.weight, tenant.priority, of_cluster(tenant.quota)))
                except InputError as error:
                    _log.warning("tenant %s is left as it was: %s", tenant.name, error)
        if self._stopping:
            return
        for number, wanted, nice in wishes:
            if (known := self._jobs.get(number)) is not None:
                events += self._wish(known, wanted, nice)
            elif wanted != "cancel" and self._again.get(number, 0.0) > time.monotonic():
                continue
            elif (job := self.store.take(number, self.settings.name)) is not None:
                events += self._new(job)
                self._like[number] = (job.tenant, job.name, likeness(job.spec, job.options))
                self._fresh.add(self._like[number])
        self._feed(*events, *self._preceded())

    def _new(self, job: JobRow) -> list[ev.Event]:
        self._jobs[job.id] = job
        name = str(job.id)
        if job.wanted == "cancel":
            return self._end_new(job, "cancelled", _CANCELLED)
        core, demand = job.options.get("core_demand", {}), job.options.get("demand", {})
        try:
            for given in (core, demand):
                self.settings.policy.kinds.amounts(given)
        except InputError as error:  # it was submitted before anybody knew which cluster would take it
            return self._end_new(job, "failed", str(error))
        # Offers may have what this cluster does not know of; `submit` has found out which there are.
        run = {**known_amounts(job.options.get("run", {}), self.settings.policy.kinds), **demand}
        events: list[ev.Event] = [ev.JobSubmitted(name, job.tenant, core, run, job.nice)]
        if job.wanted == "pause":
            events.append(ev.JobPaused(name))
            self._change(job.id, state="paused")
        if not core:
            self._start_core(job.id)
        return events

    def _preceded(self) -> list[ev.Event]:
        """How long searches took that are over, for those that are like them and know of fewer so far."""
        if not self._fresh:  # as at nearly every look
            return []
        fresh, self._fresh = self._fresh, set()
        self._like = {number: like for number, like in self._like.items() if number in self._jobs}
        groups: dict[tuple[str, str, str], list[int]] = {}
        for number, like in self._like.items():
            known = self.allocator.jobs.get(str(number))
            if like in fresh and (known is None or len(known.view.earlier) < _ENOUGH):
                groups.setdefault(like, []).append(number)
        events: list[ev.Event] = []
        for numbers in groups.values():
            if found := self.store.lengths(self._jobs[numbers[0]], _ENOUGH):
                results = [each.results for each in found]
                seconds = sum(each.seconds for each in found) / sum(results)
                events += [ev.Preceded(str(number), results, seconds) for number in numbers]
        return events

    def _end_new(self, job: JobRow, state: Literal["cancelled", "failed"], reason: str) -> list[ev.Event]:
        """End a search that this cluster does not begin; the allocator knows it as long as it has runs."""
        name = str(job.id)
        ends = self._conclude(job.id, state, reason)
        return [ev.JobSubmitted(name, job.tenant, {}, {}, job.nice), *ends]

    def _wish(self, known: JobRow, wanted: Wanted, nice: int) -> list[ev.Event]:
        job = self._jobs[known.id] = replace(known, wanted=wanted, nice=nice)
        name = str(job.id)
        if job.wanted == "cancel" and known.wanted != "cancel":
            if job.id in self._seats:
                self._reasons[job.id] = _CANCELLED
                self._seats[job.id].send(End("cancelled"))
                return [ev.JobPaused(name)]
            return self._conclude(job.id, "cancelled", _CANCELLED)
        found: list[ev.Event] = []
        if job.nice != known.nice:
            found.append(ev.JobReniced(name, job.nice))
        if job.wanted != known.wanted and job.wanted in ("pause", "run"):
            paused = job.wanted == "pause"
            found.append(ev.JobPaused(name) if paused else ev.JobResumed(name))
            begun = job.id in self._seats
            self._change(job.id, state="paused" if paused else "running" if begun else "queued")
        return found

    # ------------------------------------------------------------------ Cores

    def _start_core(self, number: int) -> None:
        apart = self.settings.core_in_process or self._jobs[number].options.get("core") == "process"
        self._seats[number] = (ProcessSeat if apart else ThreadSeat)(self._core(number), self._outbox)

    def _core(self, number: int) -> CoreSettings:
        settings = self.settings
        return CoreSettings(self._jobs[number], settings.url, settings.data_folder, settings.runner)

    def _take(self, message: Message) -> list[ev.Event]:
        """What a Core says, as events of the allocator."""
        match message:
            case Began(number, study_id):
                paused = self._jobs[number].wanted == "pause"
                started = self._jobs[number].started or time.time()
                self._change(number, study_id=study_id, started=started, state="paused" if paused else "running")
            case Shows(number, document):
                self.shown[number] = document
            case Over():
                return self._over(message)
        return events_of(message, self.settings.policy.kinds)

    def _over(self, message: Over) -> list[ev.Event]:
        number, name = message.job, str(message.job)
        seat = self._seats.pop(number, None)
        gone: list[ev.Event] = [ev.Ended(each) for each in self._requests_of(name)]
        match message.state:
            case "crashed" if not self._stopping:
                if self._jobs[number].wanted == "cancel":  # it may not have heard of it
                    return gone + self._conclude(number, "cancelled", _CANCELLED)
                self._crashes[number] = self._crashes.get(number, 0) + 1
                if self._crashes[number] < _CRASHES:
                    self._start_core(number)
                    return [*gone, ev.ToldAgain(name)]
                return gone + self._conclude(number, "failed", message.reason)
            case "left" | "crashed":
                self._change(number, state="paused" if self._jobs[number].wanted == "pause" else "queued")
                if not self._stopping:
                    _log.warning("search %d goes on in %g s: %s", number, _AGAIN, message.reason)
                    del self._jobs[number]
                    self._again[number] = time.monotonic() + _AGAIN
            case "failed" if not isinstance(seat, EndingSeat):
                return gone + self._conclude(number, "failed", message.reason)
            case state:
                why = self._reasons.pop(number, "") if state == "cancelled" else ""
                self._finish(number, state, why or message.reason)
                if state == "done" and number in self._like:
                    self._fresh.add(self._like.pop(number))
        return [*gone, ev.JobEnded(name)]

    def _conclude(self, number: int, state: Literal["cancelled", "failed"], reason: str) -> list[ev.Event]:
        """End a search that has no Core: at once if it has no study yet, else when no run of it is left."""
        name = str(number)
        if self._jobs[number].study_id is None:
            self._finish(number, state, reason)
            return [ev.JobEnded(name)]
        self._seats[number] = EndingSeat(self._core(number), self._outbox, Over(number, state, reason))
        if self._stopping:
            self._seats[number].send(End("left"))
        return [ev.JobPaused(name)]

    def _requests_of(self, name: str) -> list[str]:
        job = self.allocator.jobs.get(name)
        return [] if job is None else [*job.running, *(request.id for request in job.waiting)]

    def _finish(self, number: int, state: State, reason: str) -> None:
        self._change(number, state=state, reason=reason, ended=time.time())
        self.shown.pop(number, None)

    def _change(self, number: int, **fields: Any) -> None:
        known, changed = self._jobs[number], self.store.change_job(number, **fields)
        # What is wanted now may be new: it counts as known only when `_wish` has followed it.
        self._jobs[number] = replace(changed, wanted=known.wanted, nice=known.nice)
        if changed.state not in OPEN:
            del self._jobs[number]

    # ------------------------------------------------------------------ the allocator

    def _feed(self, *events: ev.Event) -> None:
        for instruction in self.allocator.handle_all(self._sound(events), time.monotonic()):
            match instruction:
                case ev.Start(request, job, _):
                    if (seat := self._seats.get(int(job))) is not None:
                        seat.send(Grant(request))
                case ev.StartCore(job, _):
                    # One whose node was lost goes on, and only counts elsewhere; a new one would not hear of the end.
                    if not self._stopping and int(job) not in self._seats:
                        self._start_core(int(job))
                case ev.Refused(_, job, reason):
                    self._refuse(int(job), reason)
                case ev.Wake(at):
                    self._next["wake"] = min(self._next["wake"], at)
                case ev.LostCore(job, node):
                    _log.warning("node %s is gone, the Core of search %s goes on here", node, job)

    def _sound(self, events: tuple[ev.Event, ...]) -> list[ev.Event]:
        """The events that are not about a search that was over before they came."""
        coming = {each.job for each in events if isinstance(each, ev.JobSubmitted)}
        return [
            each
            for each in events
            if (job := getattr(each, "job", None)) is None or job in self.allocator.jobs or job in coming
        ]

    def _refuse(self, number: int, reason: str) -> None:
        if (seat := self._seats.get(number)) is not None:
            self._reasons[number] = reason
            seat.send(End("cancelled"))

    def _take_nodes(self) -> None:
        try:
            if (found := self._lookout.answer()) is not None:
                self._see_nodes(found)
        except TradewindError as error:
            # An engine that does not answer has not lost its nodes.
            _log.warning("the nodes cannot be asked for: %s", error)

    def _see_nodes(self, found: Capacities) -> None:
        for name in [name for name in self._known if name not in found]:
            _log.warning("node %s is gone", name)
        events = node_events(self._known, found, self.allocator.requests.values(), self.settings.policy.kinds)
        self._known = {name: dict(capacity) for name, capacity in found.items()}
        self._feed(*events)

    # ------------------------------------------------------------------ watching

    def _snapshot(self) -> dict[str, Any]:
        return snapshot_of(self.allocator, self._jobs, self.shown, time.monotonic())

    def _keep_snapshot(self) -> None:
        self.store.renew(self.settings.name, self._token, LEASE_SECONDS, self._snapshot())
