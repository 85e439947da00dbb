"""The worker: claims requests, carries them out side by side, and keeps its hold on them."""

from __future__ import annotations

import logging
import threading
import time

from tradewind.errors import StoreError, StudyBusyError
from tradewind.service.context import Context
from tradewind.service.requests.cluster_monitor import ClusterRequestMonitor
from tradewind.service.requests.local_slots import LocalSlots
from tradewind.service.requests.request_executor import ExecutorDependencies, RequestExecutor
from tradewind.service.requests.turns import RequestTurns
from tradewind.store.base import this_process
from tradewind.store.service.claims import Claim
from tradewind.store.service.request_values import RequestIntent
from tradewind.store.sql.notify import NotifyListener
from tradewind.utils.processes import Moment
from tradewind.utils.units import count

_LOOK = 0.2
"""Seconds between two looks for requests of other processes, and for what becomes of those that run."""

_LONGEST_LOOK = 2.0
"""The same where nothing happens, and where the database says when something does."""

_FOLLOW = 0.5
"""Seconds between two looks at searches on shared clusters."""

_OUTAGE = 1.0
"""Seconds to wait when the database cannot be used."""

_log = logging.getLogger("tradewind.service.requests")


class RequestWorker:
    """Claims and executes requests until it is stopped.

    Several of them, on one machine or on many, share one database: a request is claimed with a lease, and what a dead
    worker has left is gone on with by the next.

    Args:
        context: The server's shared context.
    """

    def __init__(self, context: Context) -> None:
        self._settings = context.settings
        self._requests = context.requests
        self._claims = context.requests.claims
        self._context = context
        self._holder = this_process()
        self._turns = RequestTurns(context.settings.runs)
        self._wake = threading.Event()
        self._wakeup = NotifyListener(context.url, self._wake.set)
        self._look = _LOOK
        self._executors: dict[int, RequestExecutor] = {}
        self._cluster_monitors: dict[int, ClusterRequestMonitor] = {}
        self._next_follow = 0.0
        self._renewed: Moment | None = None
        self._tools = ExecutorDependencies(
            claims=self._claims,
            studies=context.store,
            planner=context.requests.planner,
            local_slots=LocalSlots(self._turns.weights),
            data_folder=context.data_folder,
            remove=self._remove,
        )

    @property
    def busy(self) -> int:
        """Number of requests that are being executed or monitored."""
        return len(self._executors) + len(self._cluster_monitors)

    def run(self, stop: threading.Event, patience: float = 10.0) -> None:
        """Work until the event is set.

        Then runs are left to the next worker where their runner lets them go on by themselves; the others are
        cancelled, paid, and wait for their turn again.

        Args:
            stop: Event that ends it.
            patience: Seconds that this may take then.
        """
        self._requests.on_change(self._wake.set)
        self._wakeup.start()
        _log.info("the worker begins, with %s at a time", count(self._settings.runs, "request"))
        while not stop.is_set():
            try:
                self._turn()
            except StoreError as error:
                _log.warning("%s; trying again", error)
                stop.wait(_OUTAGE)
                continue
            self._wait(stop)
        self._wakeup.close()
        self._leave(patience)

    def _wait(self, stop: threading.Event) -> None:
        """Wait until something is asked, or it is time to look by itself: ever later while nothing happens."""
        idle = self._wakeup.listens and not self.busy
        self._look = min(2 * self._look, _LONGEST_LOOK) if idle else _LOOK
        until = time.monotonic() + self._look
        # What ends it comes from a signal or another thread, which wakes nobody here.
        while not stop.is_set() and (left := until - time.monotonic()) > 0:
            if self._wake.wait(min(_LOOK, left)):
                self._look = _LOOK
                break
        self._wake.clear()

    def _turn(self) -> None:
        now = time.monotonic()
        for number in [number for number, executor in self._executors.items() if executor.over]:
            del self._executors[number]
            self._turns.end(number)
        self._renew()
        intents = self._intents()
        for number, executor in self._executors.items():
            executor.wanted = intents.get(number, executor.wanted)
        if self._cluster_monitors and now >= self._next_follow:
            self._next_follow = now + _FOLLOW
            self._follow(intents)
        while self._claim():
            pass
        self._requests.left.answer()

    # ------------------------------------------------------------------ what it holds

    def _renew(self) -> None:
        """Renew the leases of all requests; those that were lost are left at once."""
        lease = self._settings.lease_seconds
        if not self.busy or (self._renewed is not None and self._renewed.ago() < lease / 3):
            return
        tokens = {number: executor.claim.token for number, executor in self._executors.items()}
        tokens |= {number: cluster_monitor.claim.token for number, cluster_monitor in self._cluster_monitors.items()}
        lost = self._claims.renew(tokens, lease)
        self._renewed = Moment.now()
        for number in lost:
            self._cluster_monitors.pop(number, None)
            executor = self._executors.get(number)
            if executor is not None and not executor.over:
                _log.warning("request %d was taken over by another process", number)
                executor.lost = True

    def _intents(self) -> dict[int, RequestIntent]:
        numbers = [*self._executors, *self._cluster_monitors]
        return self._claims.intents(numbers) if numbers else {}

    def _claim(self) -> bool:
        """Claim a request, if there is one for this worker."""
        room = len(self._executors) < self._settings.runs
        mine = [*self._executors, *self._cluster_monitors]
        if not self._claims.waits(room=room, mine=mine):
            if room:
                self._turns.rest()
            return False
        claim = self._claims.claim(
            self._holder,
            self._settings.lease_seconds,
            self._turns.choose,
            room=room,
            mine=mine,
        )
        if claim is None:
            return False
        if claim.before:
            _log.warning("request %d is taken over from %s", claim.row.id, claim.before)
        self._begin(claim)
        return True

    def _begin(self, claim: Claim) -> None:
        if claim.row.cluster:
            tools = self._tools
            cluster_monitor = ClusterRequestMonitor(
                claim, self._claims, tools.studies, self._context.cluster, tools.planner
            )
            self._cluster_monitors[claim.row.id] = cluster_monitor
            self._next_follow = 0.0
            return
        executor = RequestExecutor(claim, self._tools, self._wake.set)
        self._executors[claim.row.id] = executor
        self._turns.begin(claim.row.id, claim.row.tenant)
        executor.start()

    def _follow(self, intents: dict[int, RequestIntent]) -> None:
        for number, cluster_monitor in list(self._cluster_monitors.items()):
            try:
                cluster_monitor.look(intents.get(number, "run"))
            except StudyBusyError:
                cluster_monitor.over = True
            if cluster_monitor.over:
                del self._cluster_monitors[number]
                if cluster_monitor.wanted == "delete":
                    self._remove(number)

    def _remove(self, number: int) -> None:
        """Remove a request that its owner wants deleted, in the name of that owner."""
        store = self._requests.store
        events = store.events(request_id=number, limit=100_000)
        by = next((event.details for event in reversed(events) if event.details.get("wanted") == "delete"), {})
        row = store.get(number)
        store.remove(number, {key: str(by.get(key, "")) for key in ("user", "address")})
        self._requests.remove_folders(row)

    def _leave(self, patience: float) -> None:
        """Leave running requests to the next worker."""
        for executor in self._executors.values():
            executor.leaving = True
        until = time.monotonic() + patience
        for executor in self._executors.values():
            executor.join(max(0.0, until - time.monotonic()))
        left = [number for number, executor in self._executors.items() if not executor.over]
        for number, cluster_monitor in self._cluster_monitors.items():
            try:
                self._claims.change(number, cluster_monitor.claim.token, {}, hold="leave")
            except StoreError as error:
                _log.warning("request %d: %s", number, error)
        # Their process is gone in a moment, and the next one sees that.
        _log.info("the worker ends%s", f"; {count(len(left), 'request')} did not stop in time" if left else "")
