"""Requests for runs and searches: their state, events, logs and files."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Header, Path, Query, Request
from fastapi.responses import PlainTextResponse, Response
from starlette.concurrency import run_in_threadpool

from tradewind.errors import NotFoundError
from tradewind.service.accounts.identity import Principal
from tradewind.service.api.authentication import Caller, Shared
from tradewind.service.api.event_streams import (
    LastEventId,
    Since,
    event_stream,
    last_known,
    last_read,
    log_stream,
    over_since,
    past_events,
)
from tradewind.service.api.fast_path import FastPathRoute, at_once, in_one_thread
from tradewind.service.api.request_bodies import CHANGES, REQUEST, RequestDocument
from tradewind.service.api.request_models import (
    FILES,
    SUMMARIES,
    Event,
    File,
    RequestAnswer,
    RequestSummary,
    file_of,
    request_of,
    summary_of,
)
from tradewind.service.document_limits import check_document, check_text
from tradewind.service.http import responses
from tradewind.service.http.responses import (
    Before,
    FileDownload,
    IfNoneMatch,
    Limit,
    Number,
    archive_response,
    etag_of,
    json_list_response,
    json_response,
    not_modified,
)
from tradewind.store.service.requests import ENDED, OPEN, RequestRow

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
    """List events of the requests that you may see, the oldest first; with `Accept: text/event-stream`, what happens.

    A stream without `since` and `Last-Event-ID` begins with what happens now; a list without it begins with the first
    event that there is.
    """
    known = last_known(since, last_event_id)
    if responses.wants_stream(request):
        return await event_stream(shared, who, None, known)
    return await run_in_threadpool(past_events, shared, who, None, known or 0, limit)


router = APIRouter(tags=["requests"], route_class=FastPathRoute)

Trial = Annotated[
    int | None,
    Query(ge=0, le=responses.MAX_ID, description="A trial of a search; without it, the one that began last."),
]
Key = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=200,
        description="A call with the same key again is the same call: it is not done twice.",
    ),
]
_LOCATION = {"Location": {"description": "Where it is.", "schema": {"type": "string"}}}
_ONE = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/RequestAnswer"}}}}


@router.post(
    "/requests",
    status_code=201,
    response_model=RequestAnswer,
    responses={201: {"description": "It was made, or had been with this key.", "headers": _LOCATION}},
)
@in_one_thread
def submit_request(
    who: Caller,
    shared: Shared,
    document: Annotated[RequestDocument, Body(openapi_examples=REQUEST)],
    idempotency_key: Key = None,
) -> Response:
    """Ask for a run of an application or of a program of your own, or for a search with a budget.

    The document is Tradewind's own, or that of figure 4 of the publication on virtual clusters; see the examples.
    """
    return _made(shared.requests.submit(who, check_document(document), key=_checked(idempotency_key)))


@router.get(
    "/requests",
    response_model=list[RequestSummary],
    responses={200: {"headers": responses.LIST_HEADERS}},
)
@in_one_thread
def list_requests(
    request: Request,
    who: Caller,
    shared: Shared,
    state: Annotated[
        list[str] | None,
        Query(
            max_length=20, description=f"Only in these states: {', '.join((*OPEN, *ENDED))}.", examples=[["executing"]]
        ),
    ] = None,
    application: Annotated[str, Query(max_length=200, description="Only of this one: name or name@version.")] = "",
    text: Annotated[str, Query(max_length=200, description="Only with this in the name, or as the number.")] = "",
    parameter: Annotated[
        list[str] | None,
        Query(
            max_length=10,
            description="Only those whose parameters meet this: a name, one of = != < <= > >=, and a value.",
            examples=[["stars>500"]],
        ),
    ] = None,
    tenant: Annotated[str, Query(max_length=200, description="Only of this tenant.")] = "",
    before: Before = None,
    limit: Limit = 50,
    _known: IfNoneMatch = None,
) -> Response:
    """The requests that you may see, the newest first."""
    filters = state or application or text or parameter or tenant
    known = "if-none-match" in request.headers and before is None and not filters
    if known:  # most of those who ask again and again: nothing more is read for them where nothing has changed
        stamps = shared.requests.store.stamps(who.sees, limit)
        if (same := not_modified(request, _tag_of_list(request, who, stamps))) is not None:
            return same
    rows = shared.requests.list(
        who,
        states=state or (),
        application=application,
        text=text,
        parameters=parameter or (),
        tenant=tenant,
        before=before,
        limit=limit,
    )
    tag = _tag_of_list(request, who, [(row.id, row.updated) for row in rows])
    if (same := not_modified(request, tag)) is not None:
        return same
    link = responses.next_link(request, rows[-1].id if len(rows) == limit else None)
    return json_list_response(SUMMARIES, [summary_of(row) for row in rows], tag=tag, link=link)


def _tag_of_list(request: Request, who: Principal, stamps: list[tuple[int, float]]) -> str:
    """Make the ETag of a list from two numbers a row: nothing is written to find out whether it changed."""
    return etag_of(who.tenant, who.role, request.url.query, stamps)


@router.get("/requests/{number}", response_model=RequestAnswer, responses={200: {"headers": responses.TAG_HEADERS}})
@in_one_thread
def get_request(request: Request, who: Caller, shared: Shared, number: Number, _known: IfNoneMatch = None) -> Response:
    """One request: its state, its cost, what was asked, and why it failed."""
    row = shared.requests.get(who, number)
    # Others that go before it change what it waits for, and nothing of its own.
    tag = etag_of(row.id, row.updated, row.progress.get("waiting"))
    return not_modified(request, tag) or json_response(request_of(row), tag=tag)


@router.delete(
    "/requests/{number}",
    status_code=204,
    response_class=Response,
    responses={202: {"description": "It is being carried out: it is cancelled first, and then removed.", **_ONE}},
)
def delete_request(who: Caller, shared: Shared, number: Number) -> Response:
    """Remove a request with its files and links; one that is being carried out is cancelled first."""
    shared.requests.delete(who, number)
    try:
        return json_response(request_of(shared.requests.get(who, number)), status=202)
    except NotFoundError:
        return Response(status_code=204)


@router.post("/requests/{number}/cancel", response_model=RequestAnswer)
def cancel_request(who: Caller, shared: Shared, number: Number) -> Response:
    """End a request; what it has used is paid. One that is being carried out ends within moments."""
    return json_response(request_of(shared.requests.cancel(who, number)))


@router.post("/requests/{number}/retry", response_model=RequestAnswer)
def retry_request(who: Caller, shared: Shared, number: Number, idempotency_key: Key = None) -> Response:
    """Carry a request that did not end well out once more; a search goes on where it was."""
    return json_response(request_of(shared.requests.retry(who, number, key=_checked(idempotency_key))))


@router.post(
    "/requests/{number}/resubmit",
    status_code=201,
    response_model=RequestAnswer,
    responses={201: {"description": "The new request, or the one made with this key.", "headers": _LOCATION}},
)
def resubmit_request(
    who: Caller,
    shared: Shared,
    number: Number,
    changes: Annotated[dict[str, Any], Body(openapi_examples=CHANGES)],
    idempotency_key: Key = None,
) -> Response:
    """Make a new request like this one, with changes: a mapping changes the keys that it has, null takes one out."""
    return _made(shared.requests.resubmit(who, number, check_document(changes), key=_checked(idempotency_key)))


@router.get(
    "/requests/{number}/events",
    response_model=list[Event],
    responses={
        200: {"description": "What happened; with Accept: text/event-stream, and what happens.", **responses.STREAMED},
        204: {"description": "To a stream that comes back: it is over, and nothing was missed."},
    },
)
async def list_request_events(
    request: Request,
    who: Caller,
    shared: Shared,
    number: Number,
    since: Since = None,
    limit: Annotated[int, Query(ge=1, le=5000, description="How many at most; streams send all.")] = 500,
    last_event_id: LastEventId = None,
) -> Response:
    """List the events of a request, the oldest first; with `Accept: text/event-stream` it stays open until it is over.

    A stream begins with all that has happened since `since` or `Last-Event-ID`, and ends with an event `end`.
    """
    known = last_known(since, last_event_id)
    if responses.wants_stream(request):
        if await over_since(shared, who, number, known):
            return Response(status_code=204)
        await run_in_threadpool(shared.requests.get, who, number)  # before anything is said
        return await event_stream(shared, who, number, known or 0)
    return await run_in_threadpool(past_events, shared, who, number, known or 0, limit)


@router.get(
    "/requests/{number}/logs/{stream}",
    response_class=PlainTextResponse,
    responses={
        200: {
            "description": "A part of the log; with Accept: text/event-stream, all of it while it grows.",
            "content": {"text/plain": {"schema": {"type": "string"}}, **responses.STREAMED["content"]},
            "headers": {
                "X-Next-Offset": {"description": "The offset to go on with.", "schema": {"type": "integer"}},
                "X-Log-Ended": {
                    "description": "Whether nothing more will come: true or false.",
                    "schema": {"type": "string"},
                },
                "X-Log-Run": {
                    "description": "The run that the offset is of, for run of the next call.",
                    "schema": {"type": "string"},
                },
                "X-Log-Trial": {"description": "The number of its trial.", "schema": {"type": "integer"}},
            },
        }
    },
)
async def read_request_log(
    request: Request,
    who: Caller,
    shared: Shared,
    number: Number,
    stream: Annotated[
        str, Path(max_length=100, description="stdout, stderr, application.stdout, application.stderr or hooks.log.")
    ],
    offset: Annotated[int, Query(ge=0, le=2**53, description="Where to begin, in bytes.")] = 0,
    limit: Annotated[int, Query(ge=1, le=4 * 2**20, description="How many bytes at most.")] = 65536,
    trial: Trial = None,
    run: Annotated[
        str,
        Query(
            max_length=200,
            description="The run that the offset is of, as X-Log-Run says it: the log of the next one follows it.",
        ),
    ] = "",
    last_event_id: LastEventId = None,
) -> Response:
    """Read what a request's program has printed, from an offset on, while it runs and after."""
    start, run = last_read(offset, run, last_event_id)
    part = await run_in_threadpool(shared.requests.log, who, number, stream, start, limit, trial=trial, run=run)
    if responses.wants_stream(request):
        return log_stream(shared, who, number, stream, start, limit, trial, run)
    headers = {"X-Next-Offset": str(part.next), "X-Log-Ended": "true" if part.ended else "false"}
    headers |= {"X-Log-Run": part.run, "X-Log-Trial": str(part.trial)} if part.run else {}
    return PlainTextResponse(part.text.encode("utf-8", "replace"), 200, headers)


@router.get("/requests/{number}/files", response_model=list[File])
def list_request_files(who: Caller, shared: Shared, number: Number, trial: Trial = None) -> Response:
    """The files that a request's last run has left, by path."""
    return json_list_response(FILES, [file_of(entry) for entry in shared.requests.files(who, number, trial=trial)])


@router.get(
    "/requests/{number}/files.zip",
    response_class=Response,
    responses={200: {"description": "All files.", "content": {"application/zip": {}}}},
)
def download_request_files(who: Caller, shared: Shared, number: Number, trial: Trial = None) -> Response:
    """All files that a request's last run has left, as one zip file, which is sent while it is made."""
    return archive_response(shared.requests.archive(who, number, trial=trial), f"request-{number}.zip")


@router.get(
    "/requests/{number}/files/{path:path}",
    response_class=Response,
    responses={
        200: {"description": "The file.", "content": {"application/octet-stream": {}}},
        206: {"description": "The part that the header Range names.", "content": {"application/octet-stream": {}}},
        304: {"description": "It is the one of If-None-Match."},
        416: {"description": "The file has no such part."},
    },
)
def download_request_file(
    request: Request,
    who: Caller,
    shared: Shared,
    number: Number,
    path: Annotated[str, Path(max_length=4000, description="Its path, as the list of files says it.")],
    trial: Trial = None,
) -> Response:
    """A file that a request's last run has left; one range at a time is answered in part."""
    return FileDownload(request, shared.requests.open(who, number, path, trial=trial), path)


def _checked(key: str | None) -> str | None:
    return None if key is None else check_text(key)


def _made(row: RequestRow) -> Response:
    return json_response(request_of(row), status=201, headers={"Location": f"/api/v1/requests/{row.id}"})
