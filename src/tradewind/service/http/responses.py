"""Shared parts of responses: ETags, links to the next page, downloads, and errors as problem documents."""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Iterator, Mapping
from email.utils import formatdate
from http import HTTPStatus
from pathlib import PurePosixPath
from typing import Annotated, Any, BinaryIO
from urllib.parse import quote

from fastapi import Depends, FastAPI, Header, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, TypeAdapter
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from tradewind import errors
from tradewind.errors import InputError, TradewindError
from tradewind.service.document_limits import check_text

_STATUS: tuple[tuple[type[errors.TradewindError], int], ...] = (
    (errors.SignInError, 401),
    (errors.ForbiddenError, 403),
    (errors.NotFoundError, 404),
    (errors.StudyNotFoundError, 404),
    (errors.ConflictError, 409),
    (errors.StudyBusyError, 409),
    (errors.QuotaError, 429),
    (errors.TooManyError, 429),
    (errors.TooLargeError, 413),
    (errors.SlowError, 408),
    (errors.BusyError, 503),
    (errors.InputError, 422),
    (errors.NoOfferError, 422),
    (errors.NoHistoryError, 422),
    (errors.BudgetError, 422),
    (errors.PluginError, 422),
    (errors.DeployError, 502),  # another server did not do what this one asked of it
    (errors.StoreLockedError, 503),
    (errors.StoreError, 503),
    (errors.ServiceError, 400),
)


def http_status(error: errors.TradewindError) -> int:
    """Return the HTTP status of an error; 500 for one that a caller can do nothing about."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def problem_document(error: errors.TradewindError) -> dict[str, Any]:
    """Write an error as a problem document (RFC 9457)."""
    document: dict[str, Any] = {
        "type": f"urn:tradewind:{error.code}",
        "title": error.message,
        "status": http_status(error),
        "code": error.code,
    }
    if error.hint:
        document["hint"] = error.hint
    if isinstance(error, errors.FormError):
        document["fields"] = error.fields
    if isinstance(error, errors.InputError) and error.line is not None:
        document["line"] = error.line
    return document


def xmlrpc_fault(error: errors.TradewindError) -> tuple[int, str]:
    """Write an error as number and text of an XML-RPC fault: the number is that of its HTTP status."""
    return http_status(error), f"{error.code}: {error}"


_PIECE = 256 * 1024
_SHOWN_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)
_PLAIN = re.compile(r"[^A-Za-z0-9._ -]")


class FileDownload(Response):
    """Response with an open file, which is closed afterwards; never shown by a browser as a page of this server.

    One range is answered as one part; several at once are answered with the whole file, as HTTP allows.

    Args:
        request: The call.
        file: The open file.
        path: Path of the file for the user; a browser proposes its last part as the name.
        shown_as: Media type of one that a browser shows: a picture of points or a PDF, known by its content.
    """

    def __init__(self, request: Request, file: BinaryIO, path: str, *, shown_as: str = "") -> None:
        about = os.fstat(file.fileno())
        tag = f'"{about.st_mtime_ns:x}-{about.st_size:x}"'
        self.background = None
        self._file = file
        self._start, self._end = 0, about.st_size
        headers = {
            "Accept-Ranges": "bytes",
            "Cache-Control": "private, no-cache",
            "Content-Disposition": content_disposition(path),
            "Content-Type": "application/octet-stream",
            "ETag": tag,
            "Last-Modified": formatdate(about.st_mtime, usegmt=True),
            "X-Content-Type-Options": "nosniff",
        }
        if shown_as:
            # A browser's viewer of PDF, which is a sandbox of its own, does not work in another one.
            policy = _SHOWN_POLICY if shown_as == "application/pdf" else f"{_SHOWN_POLICY}; sandbox"
            headers |= {"Content-Type": shown_as, "Content-Security-Policy": policy}
            headers["Content-Disposition"] = headers["Content-Disposition"].replace("attachment", "inline", 1)
        self.status_code = 200
        if tag in [one.strip() for one in request.headers.get("if-none-match", "").split(",")]:
            self.status_code, self._end = 304, 0
        elif request.headers.get("if-range", tag) in (tag, headers["Last-Modified"]):
            self._narrow(request.headers.get("range", ""), about.st_size, headers)
        if self.status_code != 304:
            headers["Content-Length"] = str(self._end - self._start)
        self.init_headers(headers)

    def _narrow(self, wanted: str, size: int, headers: dict[str, str]) -> None:
        match = _RANGE.fullmatch(wanted.strip())
        if match is None or match[1] == match[2] == "":
            return
        first = int(match[1]) if match[1] else max(0, size - int(match[2]))
        last = int(match[2]) if match[1] and match[2] else size - 1
        if match[1] and match[2] and last < first:
            return  # no range at all
        if first >= size:
            self.status_code, self._end = 416, 0
            headers["Content-Range"] = f"bytes */{size}"
            return
        self._start, self._end = first, min(last, size - 1) + 1
        self.status_code = 206
        headers["Content-Range"] = f"bytes {self._start}-{self._end - 1}/{size}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            left = self._end - self._start
            self._file.seek(self._start)
            while left > 0 and (piece := await run_in_threadpool(self._file.read, min(left, _PIECE))):
                left -= len(piece)
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._file.close()


def archive_response(pieces: Iterator[bytes], name: str) -> Response:
    """Return a zip file that is sent while it is made.

    Args:
        pieces: Its pieces.
        name: Name that a browser saves it by.
    """
    headers = {
        "Cache-Control": "private, no-store",
        "Content-Disposition": content_disposition(name),
        "X-Content-Type-Options": "nosniff",
    }
    return StreamingResponse(pieces, 200, headers, "application/zip")


def content_disposition(path: str) -> str:
    """Make the header that lets a browser save a file, under its own name where that can be written.

    Args:
        path: The file's path; nothing of it can end the header, or name a folder.
    """
    name = PurePosixPath(path.replace("\\", "/")).name or "file"
    plain = _PLAIN.sub("_", name).lstrip(".") or "file"
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"


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

MAX_LISTED = 500
"""Rows that a page of a list has at most."""

Limit = Annotated[int, Query(ge=1, le=MAX_LISTED, description="How many at most.")]
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
    """Make an ETag from values that change with a thing's state; weak, because a proxy may compress the answer."""
    digest = hashlib.blake2b(digest_size=9)
    for part in parts:
        digest.update(repr(part).encode("utf-8", "surrogatepass") + b"\0")
    return f'W/"{digest.hexdigest()}"'


def not_modified(request: Request, tag: str) -> Response | None:
    """Return 304 for a client that has this state already; None for one that has not."""
    known = request.headers.get("if-none-match", "")
    tags = {one.strip().removeprefix("W/") for one in known.split(",")}
    if "*" in tags or tag.removeprefix("W/") in tags:
        return Response(status_code=304, headers=etag_headers(tag))
    return None


def etag_headers(tag: str) -> dict[str, str]:
    """Return the headers of an answer with an ETag, which clients have to validate each time."""
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
    """Write a model as the response; pydantic does it at once, without a detour over dictionaries."""
    given = {**(etag_headers(tag) if tag else {}), **(headers or {})}
    return Response(model.__pydantic_serializer__.to_json(model), status, given, "application/json")


def json_list_response(
    adapter: TypeAdapter[Any], models: list[Any], *, tag: str | None = None, link: str | None = None
) -> Response:
    """Write a list of models as the response."""
    headers = etag_headers(tag) if tag else {}
    if link:
        headers["Link"] = link
    return Response(adapter.dump_json(models), 200, headers, "application/json")


def next_link(request: Request, last: int | None) -> str | None:
    """Return the header ``Link`` to the page behind the row ``last``; None at the end."""
    if last is None:
        return None
    # A reference without a host: what the server calls itself behind a proxy may lead nowhere.
    query = request.url.include_query_params(before=last).query
    return f'<{request.url.path}?{query}>; rel="next"'


def wants_stream(request: Request) -> bool:
    """True where a client asks for events as they come, and not for those that there are."""
    return EVENTS in request.headers.get("accept", "")


def problem_response(error: TradewindError) -> Response:
    """Return an error as the response."""
    status = http_status(error)
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    wait = getattr(error, "wait", 0.0)
    if wait:
        headers["Retry-After"] = str(math.ceil(wait))
    return JSONResponse(problem_document(error), status, headers, PROBLEM)


def http_problem_response(status: int, headers: Mapping[str, str] | None = None) -> Response:
    """Return an error of HTTP itself as the response: no such address, no such method."""
    words = HTTPStatus(status).phrase.lower()
    document = {"type": "about:blank", "title": words, "status": status, "code": f"http.{words.replace(' ', '-')}"}
    return JSONResponse(document, status, dict(headers or {}), PROBLEM)


def install_error_handlers(app: FastAPI) -> None:
    """Install handlers that write FastAPI's errors like every other error."""
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(Exception, _unexpected)


def http_error_response(error: HTTPException) -> Response:
    """Return an error of Starlette about an address or a method, as a problem document."""
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
    """Remove from texts that came from outside what UTF-8 cannot encode."""
    if isinstance(document, str):
        return document.encode("utf-8", "replace").decode()
    if isinstance(document, dict):
        return {key: _clean(value) for key, value in document.items()}
    return [_clean(value) for value in document] if isinstance(document, list) else document
