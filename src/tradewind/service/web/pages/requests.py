"""The requests of a user: all of them, and one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Annotated, Any
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response, StreamingResponse

from tradewind.errors import NotFoundError
from tradewind.service.context import Context
from tradewind.service.people import Principal
from tradewind.service.requests.files import LOGS
from tradewind.service.web.access import Posted, Shared, Viewer
from tradewind.service.web.page import redirect, render, render_part
from tradewind.service.web.shown import GROUPS, show, steps

router = APIRouter(include_in_schema=False)

PER_PAGE = 25
"""Requests on a page of the list."""

_TAIL = 65_536
"""Bytes of a log that are shown at once."""


@router.get("/requests")
def requests(
    request: Request,
    who: Viewer,
    shared: Shared,
    group: str = "",
    application: str = "",
    text: str = "",
    tenant: str = "",
    before: Annotated[int | None, Query(ge=1)] = None,
    part: bool = False,
) -> HTMLResponse:
    """The list, the newest first."""
    group = group if group in GROUPS else ""
    found = shared.requests.list(
        who,
        states=GROUPS[group][1],
        application=application,
        text=text.strip(),
        tenant=tenant,
        before=before,
        limit=PER_PAGE + 1,
    )
    now = time.time()
    filters = {"group": group, "application": application, "text": text, "tenant": tenant}
    values: dict[str, Any] = {
        "rows": [show(row, now) for row in found[:PER_PAGE]],
        "older": _address(filters, before=found[PER_PAGE - 1].id) if len(found) > PER_PAGE else "",
        "newest": _address(filters) if before is not None else "",
        "filtered": any(filters.values()) or before is not None,
        "filters": filters,
        "live": _address(filters, before=before, part=1),
    }
    if part:
        return render_part(request, who, "requests_rows.html.j2", **values)
    groups = [(key, words, _address({**filters, "group": key})) for key, (words, _) in GROUPS.items()]
    names = [row.name for row in shared.applications.list(who)]
    return render(request, who, "requests.html.j2", groups=groups, applications=names, **values)


def _address(filters: dict[str, str], **more: Any) -> str:
    given = {key: value for key, value in {**filters, **more}.items() if value}
    return "/requests" + (f"?{urlencode(given)}" if given else "")


@router.get("/requests/{number:int}")
def one(request: Request, who: Viewer, shared: Shared, number: int, part: bool = False) -> HTMLResponse:
    """One request: how far it is, why, and what came out."""
    values = _values(shared, who, number)
    if part:
        return render_part(request, who, "request_live.html.j2", **values)
    logs = _logs(shared, who, number)
    return render(request, who, "request.html.j2", logs=logs, streams=LOGS, **values)


def _values(shared: Context, who: Principal, number: int) -> dict[str, Any]:
    row = shared.requests.get(who, number)
    events = shared.requests.events(who, number)
    now = time.time()
    return {
        "shown": show(row, now),
        "steps": steps(row, events, now),
        "events": events,
        "files": shared.requests.files(who, number),
    }


def _logs(shared: Context, who: Principal, number: int) -> dict[str, Any]:
    """The end of each log that has anything in it."""
    found: dict[str, Any] = {}
    sizes = {entry.path: entry.size for entry in shared.requests.files(who, number)}
    for stream in LOGS:
        offset = max(0, sizes.get(stream, 0) - _TAIL)
        part = shared.requests.log(who, number, stream, offset, _TAIL)
        if part.text or stream == "stdout":
            found[stream] = {"text": part.text, "next": part.next, "ended": part.ended, "cut": offset > 0}
    return found


@router.get("/requests/{number:int}/log/{stream}")
def log(who: Viewer, shared: Shared, number: int, stream: str, offset: Annotated[int, Query(ge=0)] = 0) -> JSONResponse:
    """More of a log, for the page's script."""
    part = shared.requests.log(who, number, stream, offset, _TAIL)
    return JSONResponse(
        {"text": part.text, "next": part.next, "ended": part.ended}, headers={"Cache-Control": "no-store"}
    )


@router.get("/requests/{number:int}/files/{path:path}")
def file(who: Viewer, shared: Shared, number: int, path: str) -> Response:
    """One file of the run: always handed out as a download, so that none is shown as a page of this server."""
    opened = shared.requests.open(who, number, path)

    def chunks() -> Iterator[bytes]:
        with opened:
            while chunk := opened.read(262_144):
                yield chunk

    name = path.rpartition("/")[2]
    headers = {
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
        "Cache-Control": "no-store",
    }
    return StreamingResponse(chunks(), media_type="application/octet-stream", headers=headers)


@router.post("/requests/{number:int}/{action}")
def act(request: Request, who: Viewer, shared: Shared, number: int, action: str, form: Posted) -> Response:
    """End a request, have it carried out once more, or remove it."""
    here = f"/requests/{number}"
    if action == "cancel":
        row = shared.requests.cancel(who, number)
        text = "is cancelled" if row.over else "is being cancelled: its machines are given back"
        return redirect(request, here, f"Request {number} {text}.")
    if action == "retry":
        shared.requests.retry(who, number)
        return redirect(request, here, f"Request {number} is carried out once more.")
    if action == "delete":
        shared.requests.delete(who, number)
        return redirect(request, "/requests", f"Request {number} is deleted.")
    raise NotFoundError("a request cannot do that")
