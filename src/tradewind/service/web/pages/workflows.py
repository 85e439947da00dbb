"""Workflows: the Gantt charts of requests, and of a file that somebody has."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from starlette.datastructures import UploadFile

from tradewind.errors import InputError, NotFoundError, TradewindError
from tradewind.service.context import Context
from tradewind.service.faults import http_status
from tradewind.service.people import Principal
from tradewind.service.web.page_access import Number, Sent, Shared, Viewer
from tradewind.service.web.rendering import render
from tradewind.service.workflows import draw_chart

workflow_router = APIRouter(include_in_schema=False)

_LOOKED_AT = 30
"""Requests whose files are looked through for workflows."""


@workflow_router.get("/workflows")
def workflows(request: Request, who: Viewer, shared: Shared) -> HTMLResponse:
    """The newest requests with a workflow, and a form for a file of one's own."""
    return _list(request, who, shared)


@workflow_router.post("/workflows")
def own(request: Request, who: Viewer, shared: Shared, sent: Sent) -> Response:
    """Draw a plan or results that somebody hands in; nothing is kept."""
    file = sent.get("file")
    try:
        if not isinstance(file, UploadFile) or not file.filename:
            raise InputError("no file was chosen", hint="choose plan.json or results.json")
        document = draw_chart(file.file.read(), file.filename)
    except TradewindError as error:
        return _list(request, who, shared, error)
    values = {"number": 0, "title": document["title"], "file": file.filename, "paths": [], "source": ""}
    return render(request, who, "workflow.html.j2", document=document, **values)


@workflow_router.get("/requests/{number:int}/workflow")
def of_request(request: Request, who: Viewer, shared: Shared, number: Number, path: str = "") -> HTMLResponse:
    """The chart of a request's workflow; of several the one that is named, or the first."""
    paths = shared.workflows.found(who, number)
    if not paths or (path and path not in paths):
        raise NotFoundError("the request has no such workflow", hint="the list of its files shows what there is")
    row = shared.requests.get(who, number)
    chosen = path or paths[0]
    values: dict[str, Any] = {
        "number": number,
        "title": row.name or row.application or f"request {number}",
        "file": chosen,
        "paths": [(one, f"/requests/{number}/workflow?{urlencode({'path': one})}") for one in paths],
        "source": f"/requests/{number}/workflow/chart?{urlencode({'path': chosen})}",
        "document": None,
    }
    return render(request, who, "workflow.html.j2", **values)


@workflow_router.get("/requests/{number:int}/workflow/chart")
def chart(who: Viewer, shared: Shared, number: Number, path: str = "") -> JSONResponse:
    """What the chart shows, for the page's script."""
    return JSONResponse(shared.workflows.gantt(who, number, path), headers={"Cache-Control": "no-store"})


def _list(request: Request, who: Principal, shared: Context, problem: TradewindError | None = None) -> HTMLResponse:
    found = [row for row in shared.requests.list(who, limit=_LOOKED_AT) if row.study_id is not None]
    rows = [(row, paths) for row in found if (paths := shared.workflows.found(who, row.id))]
    status = 200 if problem is None else http_status(problem)
    return render(request, who, "workflows.html.j2", status=status, rows=rows, problem=problem)
