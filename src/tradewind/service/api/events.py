"""What happens to all requests that a user may see."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from tradewind.service.api import answers
from tradewind.service.api.access import Shared, Who
from tradewind.service.api.express import ExpressRoute, at_once
from tradewind.service.api.models import Event
from tradewind.service.api.streaming import LastEventId, Since, event_stream, last_known, past_events

router = APIRouter(tags=["events"], route_class=ExpressRoute)


def _past(
    who: Who,
    shared: Shared,
    since: Since = None,
    limit: Annotated[int, Query(ge=1, le=5000, description="How many at most; streams send all.")] = 500,
) -> Response:
    return past_events(shared, who, None, since or 0, limit)


def _is_a_streams(request: Request) -> bool:
    return answers.wants_stream(request) or "last-event-id" in request.headers


@router.get(
    "/events",
    response_model=list[Event],
    responses={
        200: {"description": "What happened; with Accept: text/event-stream, what happens.", **answers.STREAMED}
    },
)
@at_once(_past, unless=_is_a_streams, most=500)
async def list_events(
    request: Request,
    who: Who,
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
    if answers.wants_stream(request):
        return await event_stream(shared, who, None, known)
    return await run_in_threadpool(past_events, shared, who, None, known or 0, limit)
