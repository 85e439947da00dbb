"""Responses that stay open: events of requests as server-sent events, and logs while they grow."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated

from fastapi import Header, Query
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from tradewind.errors import InputError, TradewindError
from tradewind.service.accounts.identity import Principal
from tradewind.service.api.request_models import EVENT_LIST, event_of
from tradewind.service.context import Context
from tradewind.service.http.event_hub import (
    SSE_HEADERS,
    SSE_HEARTBEAT,
    EventHub,
    EventSubscriber,
    event_message,
    log_event_id,
    sse_message,
)
from tradewind.service.http.responses import json_list_response, problem_document
from tradewind.service.requests.run_files import RunLogPart
from tradewind.store.service.request_queries import last_event_number
from tradewind.store.service.requests import ENDED, RequestEvent

_PAGE = 500
_AT_ONCE = 65536
"""Bytes after which no more events are handed over together: what nobody reads yet is kept for each stream."""

_STUCK = 60.0
"""Seconds that a client may take to read anything at all."""

_SLOWEST_LOG = 2.0


class _Open(Response):
    """A response without an end; subclasses write its content.

    Args:
        hub: The streams of this process.
        who: The user who listens; the place was taken.
        beat: Seconds of silence after which a comment is sent.
        lifetime: Seconds after which the client has to come again, and to say again who it is.
    """

    def __init__(self, hub: EventHub, who: Principal, beat: float, lifetime: float) -> None:
        self.status_code = 200
        self.background: BackgroundTask | None = None
        self.raw_headers = list(SSE_HEADERS)
        self._hub, self._who, self._beat = hub, who, beat
        # Those that came together after a restart shall not go and come again together.
        self._until = time.monotonic() + lifetime * random.uniform(0.8, 1.0)  # noqa: S311  (no secret)
        self._gone = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response, until the client leaves or its lifetime is over."""
        watching = asyncio.ensure_future(self._wait_for_end(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            with contextlib.suppress(TimeoutError):  # a client that reads nothing has no claim to its place
                await self._tell(_Said(send))
                await _Said(send).say(b"", more=False)
        finally:
            watching.cancel()
            self._hub.leave_place(self._who)
            self._left()

    async def _wait_for_end(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._gone.set()
        self._left()

    @property
    def _over(self) -> bool:
        return self._gone.is_set() or time.monotonic() > self._until

    def _left(self) -> None:
        """Set the end: the client has left."""

    async def _tell(self, said: _Said) -> None:
        raise NotImplementedError


class _Said:
    """A sender of parts of a response, each within a time limit."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def say(self, data: bytes, *, more: bool = True) -> None:
        """Send a part.

        Raises:
            TimeoutError: The client does not read.
        """
        part: Message = {"type": "http.response.body", "body": data, "more_body": more}
        async with asyncio.timeout(_STUCK):
            await self._send(part)


class EventStream(_Open):
    """A stream of the events of requests.

    Args:
        hub: The streams of this process.
        listener: Receives the events from now on.
        past: Reads what had happened after an event until now, in pages: of the number of the event, and how many.
        since: The event to go on after; None begins with what happens now.
        beat: Seconds of silence after which a comment is sent.
        lifetime: Seconds after which the client has to come again.
    """

    def __init__(
        self,
        hub: EventHub,
        listener: EventSubscriber,
        past: Callable[[int, int], Sequence[RequestEvent]],
        since: int | None,
        beat: float,
        lifetime: float,
    ) -> None:
        super().__init__(hub, listener.who, beat, lifetime)
        self._listener, self._past, self._since = listener, past, since
        self._begin = hub.last

    def _left(self) -> None:
        self._listener.leave()
        self._hub.forget(self._listener)

    async def _tell(self, said: _Said) -> None:
        listener, last, stage = self._listener, self._since or 0, ""
        # So that a client knows that it is connected, and where to go on when the connection breaks before an event.
        begin = self._begin if self._since is None else self._since
        await said.say(sse_message({"since": begin}, number=begin, kind="open"))
        while self._since is not None and not self._over:
            page = await run_in_threadpool(self._past, last, _PAGE)
            if page:
                await said.say(b"".join(event_message(event) for event in page))
                last, stage = page[-1].id, page[-1].stage
            if len(page) < _PAGE:
                break
        loop = asyncio.get_running_loop()
        while not self._over and not (listener.gone and not listener.waiting):
            data = b""
            while listener.waiting and len(data) < _AT_ONCE:
                number, new, one = listener.waiting.popleft()
                if number > last:  # what was read above may have been handed out too
                    data, last, stage = data + one, number, new
            if data:
                await said.say(data)
            if listener.request_id is not None and stage in ENDED and not listener.waiting:
                await said.say(sse_message({"state": stage}, number=last, kind="end"))
                return
            if not listener.waiting and not listener.gone:
                listener.ready.clear()
                timer = loop.call_later(self._beat, listener.ready.set)
                await listener.ready.wait()
                timer.cancel()
                if not listener.waiting and not self._over:
                    await said.say(SSE_HEARTBEAT)


class LogStream(_Open):
    """A stream of a log while it grows.

    Args:
        hub: The streams of this process.
        who: The user who reads.
        read: Reads a part from an offset in bytes of a run's log, as `RequestService.log` does.
        begin: The offset to begin at, and the run that it is of, or nothing for the last.
        beat: Seconds of silence after which a comment is sent.
        lifetime: Seconds after which the client has to come again.
        pause: Seconds between two looks at a log that grows.
    """

    def __init__(
        self,
        hub: EventHub,
        who: Principal,
        read: Callable[[int, str], RunLogPart],
        begin: tuple[int, str],
        beat: float,
        lifetime: float,
        pause: float,
    ) -> None:
        super().__init__(hub, who, beat, lifetime)
        self._read, self._pause = read, pause
        self._offset, self._run = begin

    async def _tell(self, said: _Said) -> None:
        await said.say(SSE_HEARTBEAT)
        pause, silent = self._pause, time.monotonic()
        while not self._over:
            try:
                part = await run_in_threadpool(self._read, self._offset, self._run)
            except TradewindError as error:  # it was deleted, or its trial replaced by another one
                await said.say(sse_message(problem_document(error), kind="problem"))
                return
            if self._run and part.run != self._run:
                self._offset = 0
            self._run = part.run
            # Each run's log begins at 0: a client that comes back has to say of which one it knows how much.
            place = log_event_id(part.next, part.run)
            if part.text:
                of = {"run": part.run, "trial": part.trial} if part.run else {}
                document = {"text": part.text, "offset": self._offset, "next": part.next, **of}
                await said.say(sse_message(document, number=place, kind="log"))
                pause, silent = self._pause, time.monotonic()
            self._offset = part.next
            if part.ended:
                await said.say(sse_message({"next": part.next}, number=place, kind="end"))
                return
            if part.text:
                continue
            if time.monotonic() - silent > self._beat:
                await said.say(SSE_HEARTBEAT)
                silent = time.monotonic()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._gone.wait()
            pause = min(_SLOWEST_LOG, 1.5 * pause)


Since = Annotated[
    int | None,
    Query(ge=0, le=2**53, description="Only what happened after this event."),
]
"""The last event that a client knows."""

LastEventId = Annotated[
    str | None,
    Header(alias="Last-Event-ID", description="Likewise, as browsers send it when they come back to a stream."),
]
"""The same, as a header."""


def last_known(since: int | None, header: str | None) -> int | None:
    """Parse the number of the last event that a client knows; None where the call has none.

    Raises:
        InputError: The header is no number of an event.
    """
    if header is None or not header.strip():
        return since
    return _number(header.strip(), "Last-Event-ID is no number of an event")


def last_read(offset: int, run: str, header: str | None) -> tuple[int, str]:
    """Parse the position of a client in the logs of a request: the offset, and the run that it is of.

    Args:
        offset: As the address says it.
        run: The run as the address says it; empty where it names none.
        header: The id of the last event, which comes before both.

    Raises:
        InputError: The header is no id of a log's event.
    """
    if header is None or not header.strip():
        return offset, run
    of, _, number = header.strip().rpartition(":")
    return _number(number, "Last-Event-ID is no place in a log"), of or run


def _number(text: str, wrong: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise InputError(wrong, hint="send the id of the last event, or leave it out")
    return int(text)


def past_events(shared: Context, who: Principal, number: int | None, since: int, limit: int) -> Response:
    """Read the events until now.

    Raises:
        NotFoundError: There is no such request that the user may see.
    """
    found = shared.requests.events(who, number, since, limit)
    return json_list_response(EVENT_LIST, [event_of(event) for event in found])


async def event_stream(shared: Context, who: Principal, number: int | None, since: int | None) -> Response:
    """Open a stream of events, beginning after one that the client knows.

    Args:
        shared: The server's shared context.
        who: The user who listens.
        number: The request; None for all that the user may see.
        since: The event to go on after; None begins with what happens now.

    Raises:
        BusyError: There are too many streams.
        TooManyError: The user has too many.
    """
    hub, settings = shared.streams, shared.settings
    hub.take_place(who)
    try:
        listener = EventSubscriber(who, number)
        await run_in_threadpool(hub.listen, listener)
        if since is not None and since > hub.last:
            # It may be of a store that was restored from an older copy: what happens from now on has smaller numbers.
            since = min(since, await run_in_threadpool(last_event_number, shared.database))

        def past(after: int, limit: int) -> Sequence[RequestEvent]:
            return shared.requests.events(who, number, after, limit)

        return EventStream(hub, listener, past, since, settings.beat_seconds, 60.0 * settings.stream_minutes)
    except BaseException:
        hub.leave_place(who)
        raise


def log_stream(
    shared: Context, who: Principal, number: int, stream: str, offset: int, limit: int, trial: int | None, run: str
) -> Response:
    """Open a stream of a log while it grows.

    Raises:
        BusyError: There are too many streams.
        TooManyError: The user has too many.
    """
    settings = shared.settings
    shared.streams.take_place(who)

    def read(at: int, of: str) -> RunLogPart:
        return shared.requests.log(who, number, stream, at, limit, trial=trial, run=of)

    lifetime, pause = 60.0 * settings.stream_minutes, 2 * settings.event_seconds
    return LogStream(shared.streams, who, read, (offset, run), settings.beat_seconds, lifetime, pause)


async def over_since(shared: Context, who: Principal, number: int, since: int | None) -> bool:
    """True where nothing has happened since an event, and nothing will: a browser that gets that comes no more."""
    if since is None:
        return False
    row = await run_in_threadpool(shared.requests.get, who, number)
    return row.over and not await run_in_threadpool(partial(shared.requests.events, who, number, since, 1))
