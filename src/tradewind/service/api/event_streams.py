"""The routes' way to answers that stay open."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated

from fastapi import Header, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from tradewind.errors import InputError
from tradewind.service.api.request_models import EVENT_LIST, event_of
from tradewind.service.context import Context
from tradewind.service.http.event_hub import EventSubscriber
from tradewind.service.http.responses import json_list_response
from tradewind.service.people import Principal
from tradewind.service.requests.run_files import RunLogPart
from tradewind.service.streams.answer import EventStream, LogStream
from tradewind.store.service.request_queries import last_event_number
from tradewind.store.service.requests import RequestEvent

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
    """The number of the last event that a client knows; None where it says nothing.

    Raises:
        InputError: The header is no number of an event.
    """
    if header is None or not header.strip():
        return since
    return _number(header.strip(), "Last-Event-ID is no number of an event")


def last_read(offset: int, run: str, header: str | None) -> tuple[int, str]:
    """Where a client is in the logs of a request: the offset, and the run that it is of.

    Args:
        offset: As the address says it.
        run: Likewise; empty where it names none.
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
    """What happened until now.

    Raises:
        NotFoundError: There is no such request that the user may see.
    """
    found = shared.requests.events(who, number, since, limit)
    return json_list_response(EVENT_LIST, [event_of(event) for event in found])


async def event_stream(shared: Context, who: Principal, number: int | None, since: int | None) -> Response:
    """What happens from now on, after what happened since an event, as a stream.

    Args:
        shared: What the parts of the server share.
        who: Who listens.
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
    """A log while it grows, as a stream.

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
    """Whether nothing has happened since an event, and nothing will: a browser that hears that comes no more."""
    if since is None:
        return False
    row = await run_in_threadpool(shared.requests.get, who, number)
    return row.over and not await run_in_threadpool(partial(shared.requests.events, who, number, since, 1))
