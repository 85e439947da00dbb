"""The first page: what this is, and applications that run with one click."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response

from tradewind.errors import NotFoundError
from tradewind.service.accounts.identity import Principal
from tradewind.service.applications import ready
from tradewind.service.applications.form import form_of
from tradewind.service.applications.validation import stored_application
from tradewind.service.context import Context
from tradewind.service.web.page_access import Administrator, Posted, Shared, Viewer
from tradewind.service.web.rendering import redirect, render
from tradewind.service.web.template_filters import short
from tradewind.store.service.applications import SHARED
from tradewind.utils.units import format_money

router = APIRouter(include_in_schema=False)

_SETS = {"starters": ready.STARTERS, "benchmarks": ready.BENCHMARKS}


@router.get("/")
def start(request: Request, who: Viewer, shared: Shared) -> HTMLResponse:
    """Show what this is, and the starter applications with what they cost."""
    rows = {row.name: row for row in shared.applications.list(who) if row.tenant == SHARED}
    starters = [
        {"form": form_of(row, stored_application(row)), "search": one.trials, "last": _last(shared, who, one.name)}
        for one in ready.STARTERS
        if (row := rows.get(one.name)) is not None
    ]
    values: dict[str, Any] = {"starters": starters, "most": ready.MOST_DOLLARS}
    values["benchmarks"] = all(one.name in rows for one in ready.BENCHMARKS)
    return render(request, who, "home.html.j2", **values)


@router.post("/start/{name}")
def run(request: Request, who: Viewer, shared: Shared, name: str, form: Posted) -> Response:
    """Run a starter application as it is, with one click."""
    one = next((one for one in ready.STARTERS if one.name == name), None)
    if one is None:
        raise NotFoundError(f"there is no starter application {name[:60]!r}", hint="the first page lists them")
    document: dict[str, Any] = {
        "application": f"{SHARED}/{one.name}",
        "name": one.document()["application"]["title"],
        "parameters": {},
        **one.request(),
    }
    row = shared.requests.submit(who, document, key=form.get("key") or None)
    return redirect(request, f"/requests/{row.id}", "It is on its way: this page shows its progress and its results.")


@router.post("/install/{which}")
def install(request: Request, who: Administrator, shared: Shared, which: str, form: Posted) -> Response:
    """Install the starter applications, or the benchmarks, for all tenants."""
    if which not in _SETS:
        raise NotFoundError("there is no such set of applications", hint=f"there are: {', '.join(_SETS)}")
    names = ready.install(shared.applications, _SETS[which], who)
    return redirect(request, "/", f"Installed: {', '.join(names)}.")


def _last(shared: Context, who: Principal, name: str) -> str:
    """Say what the last good run of an application took; empty where there is none."""
    found = shared.requests.list(who, states=("done",), application=name, limit=1)
    if not found or found[0].started is None or found[0].ended is None:
        return ""
    return f"last time {short(found[0].ended - found[0].started)} and {format_money(found[0].cost)}"
