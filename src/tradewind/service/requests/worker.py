"""The worker: claims requests, carries them out side by side, and keeps its hold on them."""

from __future__ import annotations

import logging
import threading
import time

from tradewind.errors import StoreError, StudyBusyError
from tradewind.processes import Moment
from tradewind.service.context import Context
from tradewind.service.requests.carrying import Carrier, Tools
from tradewind.service.requests.following import Following
from tradewind.service.requests.seats import Seats
from tradewind.service.requests.state import Turns
from tradewind.store.base import this_process
from tradewind.store.bell import Bell
from tradewind.store.claims import Claim
from tradewind.store.request_values import Wanted
from tradewind.units import count

_LOOK = 0.2
"""Seconds between two looks for requests of other processes, and for what becomes of those that run."""

_LONGEST_LOOK = 2.0
"""The same where nothing happens, and where the database says when something does."""

_FOLLOW = 0.5
"""Seconds between two looks at searches on shared clusters."""

_OUTAGE = 1.0
"""Seconds to wait when the database cannot be used."""

_log = logging.getLogger("tradewind.service.requests")


class Worker:
    """Carries out requests until it is told to stop.

    Several of them, on one machine or on many, share one database: a request is claimed with a lease, and what a dead
    worker has left is gone on with by the next.

    Args:
        context: What the parts of the server share.
    """

    def __init__(self, context: Context) -> None:
        self._settings = context.settings
        self._requests = context.requests
        self._claims = context.requests.claims
        self._context = context
        self._holder = this_process()
        self._turns = Turns()
        self._wake = threading.Event()
        self._bell = Bell(context.url, self._wake.set)
        self._look = _LOOK
        self._carriers: dict[int, Carrier] = {}
        self._following: dict[int, Following] = {}
        self._next_follow = 0.0
        self._renewed: Moment | None = None
        self._tools = Tools(
            claims=self._claims,
            studies=context.store,
            planner=context.requests.planner,
            seats=Seats(),
            data_folder=context.data_folder,
            remove=self._remove,
        )

    @property
    def busy(self) -> int:
        """Requests that are being carried out or followed."""
        return len(self._carriers) + len(self._following)

    def run(self, stop: threading.Event, patience: float = 10.0) -> None:
        """Work until it is to stop.

        Then runs are left to the next worker where their runner lets them go on by themselves; the others are
        cancelled, paid, and wait for their turn again.

        Args:
            stop: Set by whoever wants it to stop.
            patience: Seconds that this may take then.
        """
        self._requests.on_change(self._wake.set)
        self._bell.start()
        _log.info("the worker begins, with %s at a time", count(self._settings.runs, "request"))
        while not stop.is_set():
            try:
                self._turn()
            except StoreError as error:
                _log.warning("%s; trying again", error)
                stop.wait(_OUTAGE)
                continue
            self._wait(stop)
        self._bell.close()
        self._leave(patience)

    def _wait(self, stop: threading.Event) -> None:
        """Wait until something is asked, or it is time to look by itself: ever later while nothing happens."""
        idle = self._bell.listens and not self.busy
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
        for number in [number for number, carrier in self._carriers.items() if carrier.over]:
            del self._carriers[number]
        self._renew()
        wishes = self._wishes()
        for number, carrier in self._carriers.items():
            carrier.wanted = wishes.get(number, carrier.wanted)
        if self._following and now >= self._next_follow:
            self._next_follow = now + _FOLLOW
            self._follow(wishes)
        while self._claim():
            pass
        self._requests.left.answer()

    # ------------------------------------------------------------------ what it holds

    def _renew(self) -> None:
        """Hold on to all requests; those that were lost are left at once."""
        lease = self._settings.lease_seconds
        if not self.busy or (self._renewed is not None and self._renewed.ago() < lease / 3):
            return
        tokens = {number: carrier.claim.token for number, carrier in self._carriers.items()}
        tokens |= {number: following.claim.token for number, following in self._following.items()}
        lost = self._claims.renew(tokens, lease)
        self._renewed = Moment.now()
        for number in lost:
            self._following.pop(number, None)
            carrier = self._carriers.get(number)
            if carrier is not None and not carrier.over:
                _log.warning("request %d was taken over by another process", number)
                carrier.lost = True

    def _wishes(self) -> dict[int, Wanted]:
        numbers = [*self._carriers, *self._following]
        return self._claims.wishes(numbers) if numbers else {}

    def _claim(self) -> bool:
        """Claim a request, if there is one for this worker."""
        room = len(self._carriers) < self._settings.runs
        mine = [*self._carriers, *self._following]
        if not self._claims.waits(room=room, mine=mine):
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
            following = Following(claim, self._claims, tools.studies, self._context.cluster, tools.planner)
            self._following[claim.row.id] = following
            self._next_follow = 0.0
            return
        carrier = Carrier(claim, self._tools, self._wake.set)
        self._carriers[claim.row.id] = carrier
        carrier.start()

    def _follow(self, wishes: dict[int, Wanted]) -> None:
        for number, following in list(self._following.items()):
            try:
                following.look(wishes.get(number, "run"))
            except StudyBusyError:
                following.over = True
            if following.over:
                del self._following[number]
                if following.wanted == "delete":
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
        """Leave what runs to the next worker."""
        for carrier in self._carriers.values():
            carrier.leaving = True
        until = time.monotonic() + patience
        for carrier in self._carriers.values():
            carrier.join(max(0.0, until - time.monotonic()))
        left = [number for number, carrier in self._carriers.items() if not carrier.over]
        for number, following in self._following.items():
            try:
                self._claims.change(number, following.claim.token, {}, hold="leave")
            except StoreError as error:
                _log.warning("request %d: %s", number, error)
        # Their process is gone in a moment, and the next one sees that.
        _log.info("the worker ends%s", f"; {count(len(left), 'request')} did not stop in time" if left else "")
