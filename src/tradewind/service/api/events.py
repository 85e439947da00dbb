"""What happens to all requests that a user may see."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from tradewind.service.api.authentication import Caller, Shared
from tradewind.service.api.event_streams import LastEventId, Since, event_stream, last_known, past_events
from tradewind.service.api.fast_path import FastPathRoute, at_once
from tradewind.service.api.request_models import Event
from tradewind.service.http import responses

event_router = APIRouter(tags=["events"], route_class=FastPathRoute)


def _past(
    who: Caller,
    shared: Shared,
    since: Since = None,
    limit: Annotated[int, Query(ge=1, le=5000, description="How many at most; streams send all.")] = 500,
) -> Response:
    return past_events(shared, who, None, since or 0, limit)


def _is_a_streams(request: Request) -> bool:
    return responses.wants_stream(request) or "last-event-id" in request.headers


@event_router.get(
    "/events",
    response_model=list[Event],
    responses={
        200: {"description": "What happened; with Accept: text/event-stream, what happens.", **responses.STREAMED}
    },
)
@at_once(_past, unless=_is_a_streams, most=500)
async def list_events(
    request: Request,
    who: Caller,
    shared: Shared,
    since: Since = None,
    limit: Annotated[int, Query(ge=1, le=5000, description="How many at most; streams send all.")] = 500,
    last_event_id: LastEventId = None,
) -> Response:
    """What happened to the requests that you may see, the oldest first; with `Accept: text/event-stream`, what happens.

    A stream without `since` and `Last-Event-ID` begins with what happens now; a list without it begins with the first
    event that there is.
    """
    known = last_known(since, last_event_id)
    if responses.wants_stream(request):
        return await event_stream(shared, who, None, known)
    return await run_in_threadpool(past_events, shared, who, None, known or 0, limit)
