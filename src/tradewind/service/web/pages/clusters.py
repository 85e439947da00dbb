"""Shared clusters: shares of the tenants, the queue, and why something waits."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from tradewind.reporting.words import value_words
from tradewind.service.context import Context
from tradewind.service.people import Principal
from tradewind.service.web.page_access import Shared, Viewer
from tradewind.service.web.rendering import render, render_part

cluster_router = APIRouter(include_in_schema=False)

RESOURCES = {"cpu": "CPU", "memory": "memory, GiB", "gpu": "GPU"}
"""Names of resources in words."""

_MOST_JOBS = 200
_PAST = 15


@cluster_router.get("/cluster")
def clusters(request: Request, who: Viewer, shared: Shared, name: str = "", part: bool = False) -> HTMLResponse:
    """A cluster: the one that is named, or the first that runs."""
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
