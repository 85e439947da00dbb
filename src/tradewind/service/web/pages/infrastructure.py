"""Pages of shared clusters, of offers, and for administrators of machines and what is left over at providers."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from tradewind.reporting.words import value_words
from tradewind.service.accounts.identity import Principal
from tradewind.service.context import Context
from tradewind.service.http.responses import etag_headers, etag_of, not_modified
from tradewind.service.web.page_access import Administrator, Sent, Shared, Viewer
from tradewind.service.web.rendering import redirect, render, render_part
from tradewind.store.clusters.cluster_store import taking_words

cluster_router = APIRouter(include_in_schema=False)

RESOURCES = {"cpu": "CPU", "memory": "memory, GiB", "gpu": "GPU"}
"""Names of resources in words."""

_MOST_JOBS = 200
_PAST = 15
_MOST_TAKINGS = 5


@cluster_router.get("/cluster")
def clusters(request: Request, who: Viewer, shared: Shared, name: str = "", part: bool = False) -> HTMLResponse:
    """Show a cluster: the one that is named, or the first that runs."""
    every = shared.clusters.list(who)
    chosen = next((one for one in every if one["name"] == name), None) if name else None
    chosen = chosen or next((one for one in every if one["running"]), None) or (every[0] if every else None)
    values = _values(shared, who, chosen)
    if part:
        return render_part(request, who, "cluster_live.html.j2", **values)
    groups = [(one["name"], f"/cluster?name={quote(one['name'])}") for one in every]
    live = f"/cluster?part=1&name={quote(chosen['name'])}" if chosen else "/cluster?part=1"
    return render(request, who, "cluster.html.j2", groups=groups, live=live, **values)


def _values(shared: Context, who: Principal, chosen: dict[str, Any] | None) -> dict[str, Any]:
    past = [job for job in shared.clusters.jobs(who, limit=100) if not job["open"]][:_PAST]
    if chosen is None:
        return {"cluster": None, "past": past}
    now = time.time()
    tenants = sorted(chosen["tenants"], key=lambda one: (-one["share"], one["tenant"]))
    jobs = [_job(job, now) for job in chosen["jobs"]]
    used = chosen["used"]
    return {
        "cluster": chosen,
        "resources": [(RESOURCES.get(kind, kind), used.get(kind, 0.0), most) for kind, most in chosen["total"].items()],
        "tenants": tenants,
        "most": max([1.0, *(one["share"] for one in tenants)]),
        "jobs": jobs[:_MOST_JOBS],
        "more": max(0, len(jobs) - _MOST_JOBS),
        "yielding": [job for job in jobs if "gives way" in job["why"] or "quota" in job["why"]],
        "waiting": sum(job["waiting"] for job in chosen["jobs"]),
        "running": sum(job["running"] for job in chosen["jobs"]),
        "takings": [(each["at"], taking_words(each)) for each in reversed(chosen["takings"][-_MOST_TAKINGS:])],
        "past": past,
    }


def _job(job: dict[str, Any], now: float) -> dict[str, Any]:
    best, metric = job.get("best"), str(job.get("metric") or "cost")
    return {
        **job,
        "best_words": "–" if best is None else value_words(metric, best),
        "metric": metric,
        "age": max(0.0, now - float(job["submitted"])),
        "why": str(job.get("reason") or job.get("why") or ""),
        "study": job.get("study"),
    }


offer_router = APIRouter(include_in_schema=False)


@offer_router.get("/offers")
def offers(request: Request, who: Viewer) -> HTMLResponse:
    """Show the table's page; the offers come by themselves."""
    return render(request, who, "offers.html.j2")


@offer_router.get("/offers/columns")
def columns(request: Request, who: Viewer, shared: Shared) -> Response:
    """Return all offers by column, for the page's script."""
    stamp, body = shared.offers.all_json(who)
    tag = etag_of("offers", stamp)
    return not_modified(request, tag) or Response(body, 200, etag_headers(tag), "application/json")


router = APIRouter(include_in_schema=False, prefix="/admin")

_MOST = 300


@router.get("")
def first(_who: Administrator) -> Response:
    """Redirect to the machines, the first page of administration."""
    return RedirectResponse("/admin/machines", 303)


@router.get("/machines")
def machines(request: Request, who: Administrator, shared: Shared, part: bool = False) -> HTMLResponse:
    """List runs in progress with their machines, and what was found at the providers last."""
    leases = shared.machines.leases(who)
    values = {
        "leases": leases[:_MOST],
        "more": max(0, len(leases) - _MOST),
        "count": len(leases),
        "nodes": sum(one["nodes"] for one in leases),
        "hourly": sum(one["price_per_hour"] or 0.0 for one in leases),
        "so_far": sum(one["so_far"] or 0.0 for one in leases),
        "unwatched": sum(not one["holder"] for one in leases),
    }
    if part:
        return render_part(request, who, "admin_machines_live.html.j2", **values)
    return render(request, who, "admin_machines.html.j2", looked=shared.machines.looked(who), **values)


@router.post("/machines/look")
def look(request: Request, who: Administrator, shared: Shared) -> Response:
    """Ask the providers for their resources; this may take a while."""
    found = shared.machines.look(who)
    left, problems = len(found["left_over"]), len(found["problems"])
    words = f"{left} left over" if left else "Nothing is left over"
    words += f", and {problems} could not be asked." if problems else "."
    return redirect(request, "/admin/machines#providers", words, "warn" if left or problems else "good")


@router.post("/machines/reap")
def reap(request: Request, who: Administrator, shared: Shared, sent: Sent) -> Response:
    """Give back the chosen resources among those left over."""
    chosen = [value for value in sent.getlist("id") if isinstance(value, str)]
    if not chosen:
        return redirect(request, "/admin/machines#providers", "Nothing was chosen.", "warn")
    return _reaped(request, who, shared, chosen)


def _reaped(request: Request, who: Principal, shared: Context, chosen: list[str]) -> Response:
    done = shared.machines.reap(who, chosen)
    gone = sum(one["gone"] for one in done)
    words = [f"{gone} of {len(done)} given back."]
    words += [f"{one['id']}: {one['problem']}." for one in done if not one["gone"]]
    return redirect(request, "/admin/machines#providers", " ".join(words), "good" if gone == len(done) else "bad")
