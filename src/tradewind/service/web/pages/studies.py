"""Studies: all of them, and one with its charts and its table of trials."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, Response

from tradewind.problem import Objective
from tradewind.reporting.words import goal_words, value_words
from tradewind.service.web.listing import PER_PAGE, list_address, list_page
from tradewind.service.web.page_access import Number, Shared, Viewer
from tradewind.service.web.rendering import render, render_part
from tradewind.utils.units import format_duration

router = APIRouter(include_in_schema=False)

GROUPS = {
    "": "All",
    "running": "Running",
    "finished": "Finished",
    "stopped": "Stopped",
    "interrupted": "Interrupted",
}
"""What the list can be narrowed to."""

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
    """The list, the newest first."""
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
    """One study; its trials come by themselves, so that the page stands at once however many there are."""
    from tradewind.reporting.study.documents import axis_words

    found = shared.studies.get(who, number)
    values = _head(found)
    if part:
        return render_part(request, who, "study_live.html.j2", **values)
    metric = found["objective"]["metric"]
    return render(request, who, "study.html.j2", axis=axis_words(metric), marks=MARKS, **values)


@router.get("/studies/{number:int}/trials.csv")
def trials_csv(who: Viewer, shared: Shared, number: Number) -> Response:
    """All trials as a file, with all that is known of them."""
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
    """Seconds of all sessions, the one that goes on included."""
    since = found["running_since"]
    return float(found["elapsed"]) + (0.0 if since is None else max(0.0, time.time() - since))


_BAD = {"failed": "failed", "aborted": "cut short", "lost": "lost"}
