"""Event hub: one thread reads new events, and hands them to all open streams that may see them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tradewind.errors import BusyError, TooManyError, TradewindError
from tradewind.service.accounts.identity import Principal
from tradewind.service.settings import ServiceSettings
from tradewind.store.service.requests import RequestEvent, RequestEventFeed, TenantRequestEvent
from tradewind.store.sql.database import Database

SSE_HEARTBEAT = b": still here\n\n"
"""A comment: it keeps proxies from closing a silent stream, and tells the server whether the client is still there."""

SSE_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"vary", b"Accept"),
    (b"x-accel-buffering", b"no"),  # nginx would keep events back until it has enough of them
]
"""The headers of a stream."""


def sse_message(document: Mapping[str, Any], *, number: int | str | None = None, kind: str = "") -> bytes:
    """Format a server-sent event (WHATWG HTML, section 9.2).

    Args:
        document: Its data; JSON has no line breaks, which would end the event.
        number: Its id, which the client sends as ``Last-Event-ID`` when it comes back.
        kind: Its type; without one it is a ``sse_message``.
    """
    head = (f"id: {number}\n" if number is not None else "") + (f"event: {kind}\n" if kind else "")
    return f"{head}data: {json.dumps(document, separators=(',', ':'), allow_nan=False)}\n\n".encode()


def log_event_id(offset: int, run: str) -> str:
    """Make the ``id`` of a log event: the place in the request's logs at which it ends.

    Args:
        offset: Offset in bytes in the log of the run.
        run: The run; empty before there is one.
    """
    return f"{run}:{offset}" if run else str(offset)


_WAITING = 1000
"""Events that may wait for one slow reader; then its stream ends, and it reads the rest when it comes back."""

_AT_ONCE = 64
"""Streams that are served before other calls get their turn."""

_WAIT = 5.0
_POLL = "ask again later, or without Accept: text/event-stream"

_log = logging.getLogger("tradewind.service.streams")


StreamedEvent = tuple[int, str, bytes]
"""An event for those who listen: its number, its stage, and what is sent; all of them have the same one."""


class EventSubscriber:
    """The subscription of one open stream; made and read in the event loop of its call.

    Args:
        who: The user who listens.
        request_id: The one request that it is about, or None for all.
    """

    __slots__ = ("_loop", "gone", "ready", "request_id", "waiting", "who")

    def __init__(self, who: Principal, request_id: int | None) -> None:
        self.who = who
        self.request_id = request_id
        self.waiting: deque[StreamedEvent] = deque()
        self.ready = asyncio.Event()
        self.gone = False
        self._loop = asyncio.get_running_loop()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of the call."""
        return self._loop

    def put(self, events: Sequence[StreamedEvent]) -> None:
        """Deliver new events, the oldest first."""
        if not self.gone:  # after one that was left out comes none: who comes back goes on after the last one
            room = _WAITING - len(self.waiting)
            self.waiting.extend(events[:room])
            self.gone = len(events) > room
        self.ready.set()

    def leave(self) -> None:
        """Mark the subscription as left by its reader."""
        self.gone = True
        self.ready.set()


_Turn = tuple[EventSubscriber, Sequence[StreamedEvent]]


class EventHub:
    """The event streams of this process.

    Args:
        database: The open database.
        settings: The server's settings.
    """

    def __init__(self, database: Database, settings: ServiceSettings) -> None:
        self._database = database
        self._settings = settings
        self._lock = threading.Lock()
        self._open: Counter[int] = Counter()
        self._rooms: dict[int | str | None, set[EventSubscriber]] = {}  # by request, by tenant, and None: all of all
        self._turns: dict[asyncio.AbstractEventLoop, deque[_Turn]] = {}  # each is touched in its loop only
        self._watching: RequestEventFeed | None = None
        self._thread: threading.Thread | None = None
        self._ending = threading.Event()

    @property
    def streams(self) -> int:
        """Number of event streams that are open now."""
        return self._open.total()

    @property
    def last(self) -> int:
        """Number of the last event that was handed out, once somebody listens."""
        return 0 if self._watching is None else self._watching.last

    def take_place(self, who: Principal) -> None:
        """Reserve a place for a stream; `leave_place` when it is over.

        Raises:
            BusyError: This process has as many as it may.
            TooManyError: This user has.
        """
        with self._lock:
            if self._open.total() >= self._settings.streams:
                raise BusyError("this server has as many open streams as it may", hint=_POLL, wait=_WAIT)
            if self._open[who.user_id] >= self._settings.streams_per_user:
                most = self._settings.streams_per_user
                raise TooManyError(f"you have {most} open streams, and may not have more", hint=_POLL, wait=_WAIT)
            self._open[who.user_id] += 1

    def leave_place(self, who: Principal) -> None:
        """Release the place of a stream that is over."""
        with self._lock:
            self._open[who.user_id] -= 1
            if self._open[who.user_id] <= 0:
                del self._open[who.user_id]

    def listen(self, listener: EventSubscriber) -> None:
        """Deliver events to a subscriber from now on, until `forget`."""
        with self._lock:
            self._rooms.setdefault(_room(listener), set()).add(listener)
            if self._thread is None:
                watch = self._watching = RequestEventFeed(self._database)  # before the caller reads what has happened
                self._thread = threading.Thread(target=self._watch, args=(watch,), name="tradewind-events", daemon=True)
                self._thread.start()

    def forget(self, listener: EventSubscriber) -> None:
        """Deliver no more events to a subscriber."""
        with self._lock:
            room = self._rooms.get(_room(listener), set())
            room.discard(listener)
            if not room:
                self._rooms.pop(_room(listener), None)

    def close(self) -> None:
        """Stop reading events."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join(5.0)

    # ------------------------------------------------------------------ the thread

    def _watch(self, watch: RequestEventFeed) -> None:
        failed = False
        while not self._ending.wait(self._settings.event_seconds):
            try:
                found = watch.look()
            except Exception as error:  # nobody else would look: streams would be open, and silent for ever
                if not failed:
                    unknown = None if isinstance(error, TradewindError) else error
                    _log.error("events cannot be read: %s", error, exc_info=unknown)
                failed = True
                continue
            failed = False
            if found:
                self._hand_out(found)
        watch.close()

    def _hand_out(self, found: Iterable[TenantRequestEvent]) -> None:
        heard: dict[EventSubscriber, list[StreamedEvent]] = {}
        with self._lock:
            for event in found:
                one = (event.id, event.stage, event_message(event))
                for key in (event.request_id, event.tenant, None):
                    for listener in self._rooms.get(key, ()):
                        if listener.who.may_see(event.tenant) and not listener.gone:
                            heard.setdefault(listener, []).append(one)
        turns: dict[asyncio.AbstractEventLoop, list[_Turn]] = {}
        for listener, events in heard.items():
            turns.setdefault(listener.loop, []).append((listener, events))
        for loop, turn in turns.items():
            # A loop that is closed has no streams any more.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._take, loop, turn)

    def _take(self, loop: asyncio.AbstractEventLoop, turn: list[_Turn]) -> None:
        waiting = self._turns.setdefault(loop, deque())
        busy = bool(waiting)
        waiting.extend(turn)
        if not busy:
            self._serve(loop)

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        """Deliver to some subscribers, and come back for the others when whatever else waits has had its turn."""
        waiting = self._turns[loop]
        for _ in range(min(_AT_ONCE, len(waiting))):
            listener, events = waiting.popleft()
            listener.put(events)
        if waiting:
            loop.call_soon(self._serve, loop)
        else:
            del self._turns[loop]


def _room(listener: EventSubscriber) -> int | str | None:
    if listener.request_id is not None:
        return listener.request_id
    return None if listener.who.is_admin else listener.who.tenant


def event_message(event: TenantRequestEvent | RequestEvent) -> bytes:
    """Format an event of a request as a message of a stream."""
    return sse_message(
        {
            "id": event.id,
            "request": event.request_id,
            "at": event.at,
            "stage": event.stage,
            "text": event.text,
            "details": event.details,
        },
        number=event.id,
    )
