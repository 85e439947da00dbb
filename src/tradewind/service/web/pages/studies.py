"""Pages of studies with charts and trials, and Gantt charts of workflows: of requests, and of a user's file."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.datastructures import UploadFile

from tradewind.errors import InputError, NotFoundError, TradewindError
from tradewind.problem import Objective
from tradewind.reporting.words import goal_words, value_words
from tradewind.service.accounts.identity import Principal
from tradewind.service.context import Context
from tradewind.service.http.responses import http_status
from tradewind.service.web.page_access import Number, Posted, Sent, Shared, Viewer
from tradewind.service.web.rendering import PER_PAGE, list_address, list_page, render, render_part
from tradewind.service.workflows import draw_chart
from tradewind.utils.units import format_duration

workflow_router = APIRouter(include_in_schema=False)

_LOOKED_AT = 30
"""Requests whose files are looked through for workflows."""


@workflow_router.get("/workflows")
def workflows(request: Request, who: Viewer, shared: Shared) -> HTMLResponse:
    """List the newest requests with a workflow, and show a form for a file of one's own."""
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
    """Show the chart of a request's workflow; of several the one that is named, or the first."""
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
    """Return the data of a chart, for the page's script."""
    return JSONResponse(shared.workflows.gantt(who, number, path), headers={"Cache-Control": "no-store"})


@workflow_router.get("/studies/{number:int}/workflow/chart")
def stored_chart(who: Viewer, shared: Shared, number: Number) -> JSONResponse:
    """Return the data of the chart of a run in the store."""
    shared.studies.get(who, number)
    return JSONResponse(shared.workflows.stored(number), headers={"Cache-Control": "no-store"})


def _stored_run(request: Request, who: Principal, found: Mapping[str, Any]) -> HTMLResponse:
    """Show the chart of a run in the store."""
    values: dict[str, Any] = {
        "number": 0,
        "title": found["name"],
        "file": f"run {found['id']}",
        "paths": [],
        "source": f"/studies/{found['id']}/workflow/chart",
        "document": None,
    }
    return render(request, who, "workflow.html.j2", **values)


def _list(request: Request, who: Principal, shared: Context, problem: TradewindError | None = None) -> HTMLResponse:
    found = [row for row in shared.requests.list(who, limit=_LOOKED_AT) if row.study_id is not None]
    rows = [(row, paths) for row in found if (paths := shared.workflows.found(who, row.id))]
    runs = [one for one in shared.studies.list(who, limit=_LOOKED_AT) if one["kind"] == "workflow"]
    status = 200 if problem is None else http_status(problem)
    return render(request, who, "workflows.html.j2", status=status, rows=rows, runs=runs, problem=problem)


router = APIRouter(include_in_schema=False)

_DIGITS = 9
"""Digits of a number of trials."""

GROUPS = {
    "": "All",
    "running": "Running",
    "finished": "Finished",
    "stopped": "Stopped",
    "interrupted": "Interrupted",
}
"""Groups of states that the list can be narrowed to."""

MARKS = (
    ("best", "the best"),
    ("succeeded", "feasible"),
    ("infeasible", "infeasible"),
    ("aborted", "cut short, stands at the least it would have cost"),
    ("failed", "failed"),
    ("lost", "lost"),
)
"""The marks of the charts, with their words."""


@router.get("/studies")
def studies(
    request: Request,
    who: Viewer,
    shared: Shared,
    state: str = "",
    text: str = "",
    tenant: str = "",
    before: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
    part: bool = False,
) -> HTMLResponse:
    """List the studies, the newest first."""
    state = state if state in GROUPS else ""
    states = (state,) if state else ()
    found = shared.studies.list(who, states=states, text=text.strip(), tenant=tenant, before=before, limit=PER_PAGE + 1)
    filters = {"state": state, "text": text, "tenant": tenant}
    values = list_page("/studies", filters, before, found, lambda one: one["id"], _row)
    if part:
        return render_part(request, who, "studies_rows.html.j2", **values)
    groups = [(key, words, list_address("/studies", {**filters, "state": key})) for key, words in GROUPS.items()]
    return render(request, who, "studies.html.j2", groups=groups, **values)


@router.get("/studies/{number:int}")
def study(request: Request, who: Viewer, shared: Shared, number: Number, part: bool = False) -> HTMLResponse:
    """Show one study; its trials come by themselves, so that the page stands at once however many there are."""
    from tradewind.reporting.study.documents import axis_words

    found = shared.studies.get(who, number)
    if found["kind"] == "workflow":
        return _stored_run(request, who, found)
    values = _head(found) | {"may_continue": shared.clusters.may_continue(found)}
    if part:
        return render_part(request, who, "study_live.html.j2", **values)
    metric = found["objective"]["metric"]
    return render(request, who, "study.html.j2", axis=axis_words(metric), marks=MARKS, **values)


@router.post("/studies/{number:int}/continue")
def continue_study(who: Viewer, shared: Shared, number: Number, posted: Posted) -> RedirectResponse:
    """Let the search of a study that is over go on with more trials; nothing that was paid for is run again."""
    found = shared.studies.get(who, number)
    text = posted.get("trials", "").strip()
    if not text.isdecimal() or len(text) > _DIGITS:
        raise InputError(f"{text!r} is no number of trials", hint="write a whole number, of all trials together")
    budget = {"trials": int(text), "dollars": posted.get("dollars", "").strip()}
    shared.clusters.continue_study(who, found, shared.store, budget)
    return RedirectResponse(f"/studies/{number}", 303)


@router.get("/studies/{number:int}/trials.csv")
def trials_csv(who: Viewer, shared: Shared, number: Number) -> Response:
    """Download all trials as a file, with all that is known of them."""
    name, text = shared.studies.csv(who, number)
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
    return Response(text, media_type="text/csv; charset=utf-8", headers=headers)


def _objective(found: Mapping[str, Any]) -> Objective:
    return Objective(found["objective"]["metric"], found["objective"]["goal"])


def _best(found: Mapping[str, Any]) -> str:
    metric = found["objective"]["metric"]
    best = found["best"]
    return "–" if best is None else value_words(metric, best["objective"])


def _row(found: Mapping[str, Any]) -> dict[str, Any]:
    counts = found["counts"]
    return {
        "study": found,
        "wanted": goal_words(_objective(found)),
        "best": _best(found),
        "total": sum(counts.values()),
        "bad": counts.get("failed", 0) + counts.get("lost", 0),
    }


def _head(found: Mapping[str, Any]) -> dict[str, Any]:
    counts, best = found["counts"], found["best"]
    total = sum(counts.values())
    limit = found["budget"]["trials"]
    working = counts.get("running", 0) + counts.get("pending", 0)
    bad = [f"{counts[state]:,} {words}" for state, words in _BAD.items() if counts.get(state)]
    notes = [f"of {limit:,}"] if limit else []
    notes += [f"{working:,} on the way"] if working and found["state"] == "running" else []
    return {
        "study": found,
        "wanted": goal_words(_objective(found)),
        "best": _best(found),
        "best_note": "" if best is None else "this run" if found["objective"]["metric"] == "cost" else "",
        "best_settings": [] if best is None else list(best["configuration"].items()),
        "total": total,
        "trials_note": ", ".join([*notes, *bad]),
        "searched": format_duration(_searched(found)) if _searched(found) >= 1 else "",
    }


def _searched(found: Mapping[str, Any]) -> float:
    """Return the seconds of all sessions, the one that goes on included."""
    since = found["running_since"]
    return float(found["elapsed"]) + (0.0 if since is None else max(0.0, time.time() - since))


_BAD = {"failed": "failed", "aborted": "cut short", "lost": "lost"}
