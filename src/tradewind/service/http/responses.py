"""What many routes say alike: tags of what has not changed, links to the next page, and errors as problem documents."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, TypeAdapter
from starlette.exceptions import HTTPException

from tradewind.errors import InputError, TradewindError
from tradewind.service.document_limits import check_text
from tradewind.service.faults import http_status, problem_document

PROBLEM = "application/problem+json"
"""The media type of errors (RFC 9457)."""

EVENTS = "text/event-stream"
"""The media type of streams."""

MAX_ID = 2**31 - 1
"""The largest number of a row that a database gives."""

TAG_HEADERS = {"ETag": {"description": "Send it as If-None-Match.", "schema": {"type": "string"}}}
"""Headers of an answer with a tag, for the schema."""

LIST_HEADERS = {
    **TAG_HEADERS,
    "Link": {"description": "The next page, where there is one: rel=next.", "schema": {"type": "string"}},
}
"""Headers of a list, for the schema."""

STREAMED = {
    "content": {
        EVENTS: {"schema": {"type": "string"}, "example": 'id: 41\ndata: {"id": 41, "stage": "booting", ...}\n\n'}
    }
}
"""The other form of an answer that may stay open, for the schema."""

Number = Annotated[int, Path(ge=1, le=MAX_ID, description="Its number.", examples=[7])]
"""The number of a thing, in a path."""

Before = Annotated[
    int | None,
    Query(ge=1, le=MAX_ID, description="Only entries before this number: the header Link has the next page."),
]
"""Where a page of a list begins."""

Limit = Annotated[int, Query(ge=1, le=500, description="How many at most.")]
"""How long a page of a list is."""

IfNoneMatch = Annotated[
    str | None,
    Header(alias="If-None-Match", description="The ETag of an earlier answer: 304 while nothing has changed."),
]
"""Declares a header that `not_modified` looks at."""


def check_address(request: Request) -> None:
    """Refuse an address that no database takes.

    Raises:
        InputError: It has a character that cannot be stored.
    """
    url = request.scope
    if "\0" in url["path"] or b"%00" in url["query_string"]:
        raise InputError("the address has the character U+0000", hint="leave it out")
    check_text(url["path"])


async def _storable(request: Request) -> None:  # async: it is no reason to change the thread
    check_address(request)


storable = Depends(_storable)
"""Refuses addresses that no database takes; what depends on `Caller` of REST does so by itself."""


def etag_of(*parts: object) -> str:
    """An ETag of whatever tells one state of a thing from another; weak, because a proxy may compress the answer."""
    digest = hashlib.blake2b(digest_size=9)
    for part in parts:
        digest.update(repr(part).encode("utf-8", "surrogatepass") + b"\0")
    return f'W/"{digest.hexdigest()}"'


def not_modified(request: Request, tag: str) -> Response | None:
    """The answer to a client that has this state already; None to one that has not."""
    known = request.headers.get("if-none-match", "")
    tags = {one.strip().removeprefix("W/") for one in known.split(",")}
    if "*" in tags or tag.removeprefix("W/") in tags:
        return Response(status_code=304, headers=etag_headers(tag))
    return None


def etag_headers(tag: str) -> dict[str, str]:
    """The headers of an answer with a tag: whoever keeps it asks again each time."""
    return {"ETag": tag, "Cache-Control": "private, no-cache", "Vary": "Accept, Authorization, Cookie"}


def accepts_gzip(request: Request) -> bool:
    """True when the client says that it unpacks gzip, and does not rule it out by ``q=0`` (RFC 9110, 12.5.3)."""
    for one in request.headers.get("accept-encoding", "").lower().split(","):
        name, _, more = one.partition(";")
        if name.strip() in ("gzip", "*"):
            return more.replace(" ", "").rstrip("0") not in ("q=", "q=0.")
    return False


def json_response(
    model: BaseModel, *, tag: str | None = None, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """A model as the answer; it is written by pydantic at once, without a detour over dictionaries."""
    given = {**(etag_headers(tag) if tag else {}), **(headers or {})}
    return Response(model.__pydantic_serializer__.to_json(model), status, given, "application/json")


def json_list_response(
    adapter: TypeAdapter[Any], models: list[Any], *, tag: str | None = None, link: str | None = None
) -> Response:
    """A list of models as the answer, likewise."""
    headers = etag_headers(tag) if tag else {}
    if link:
        headers["Link"] = link
    return Response(adapter.dump_json(models), 200, headers, "application/json")


def next_link(request: Request, last: int | None) -> str | None:
    """The header ``Link`` to the page behind the row ``last``; None at the end."""
    if last is None:
        return None
    # A reference without a host: what the server calls itself behind a proxy may lead nowhere.
    query = request.url.include_query_params(before=last).query
    return f'<{request.url.path}?{query}>; rel="next"'


def wants_stream(request: Request) -> bool:
    """Whether a client asks for events as they come, and not for those that there are."""
    return EVENTS in request.headers.get("accept", "")


def problem_response(error: TradewindError) -> Response:
    """An error as the answer."""
    status = http_status(error)
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    wait = getattr(error, "wait", 0.0)
    if wait:
        headers["Retry-After"] = str(math.ceil(wait))
    return JSONResponse(problem_document(error), status, headers, PROBLEM)


def http_problem_response(status: int, headers: Mapping[str, str] | None = None) -> Response:
    """An error of HTTP itself as the answer: no such address, no such method."""
    words = HTTPStatus(status).phrase.lower()
    document = {"type": "about:blank", "title": words, "status": status, "code": f"http.{words.replace(' ', '-')}"}
    return JSONResponse(document, status, dict(headers or {}), PROBLEM)


def install_error_handlers(app: FastAPI) -> None:
    """Let what FastAPI finds wrong with a call look like every other error."""
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(Exception, _unexpected)


def http_error_response(error: HTTPException) -> Response:
    """What Starlette says about an address or a method, as a problem document."""
    return http_problem_response(error.status_code, error.headers)


async def _invalid(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = [_complaint(one) for one in error.errors()[:20]]
    first = found[0] if found else {"where": "", "what": "it cannot be read"}
    said = InputError(f"{first['where']}: {first['what']}", hint="/openapi.json says what each call takes")
    document = {**problem_document(said), "errors": found}
    text = JSONResponse(None).render(_clean(document))
    return Response(text, 422, media_type=PROBLEM)


async def _unexpected(_request: Request, _error: Exception) -> Response:
    # What went wrong is in the server's log; it is nobody else's business.
    return http_problem_response(500)


def _complaint(found: Mapping[str, Any]) -> dict[str, str]:
    if found["type"] == "json_invalid":
        return {"where": "body", "what": f"no JSON at character {found['loc'][-1]}: {found['ctx']['error']}"}
    if tuple(found["loc"]) == ("body",) and isinstance(found.get("input"), bytes):
        return {"where": "body", "what": "it is not said to be JSON: send the header Content-Type: application/json"}
    return {"where": _place(found["loc"]), "what": str(found["msg"])}


def _place(location: tuple[int | str, ...]) -> str:
    where, *inner = location or ("call",)
    return ".".join(str(part)[:60] for part in (inner or [where]))


def _clean(document: Any) -> Any:
    """Texts that came from outside without what UTF-8 cannot say."""
    if isinstance(document, str):
        return document.encode("utf-8", "replace").decode()
    if isinstance(document, dict):
        return {key: _clean(value) for key, value in document.items()}
    return [_clean(value) for value in document] if isinstance(document, list) else document
