"""Machines, for administrators: what runs now, what it has cost, and what is left over at providers."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from tradewind.service.context import Context
from tradewind.service.people import Principal
from tradewind.service.web.page_access import Administrator, Sent, Shared
from tradewind.service.web.rendering import redirect, render, render_part

router = APIRouter(include_in_schema=False, prefix="/admin")

_MOST = 300


@router.get("")
def first(_who: Administrator) -> Response:
    """Administration begins with the machines."""
    return RedirectResponse("/admin/machines", 303)


@router.get("/machines")
def machines(request: Request, who: Administrator, shared: Shared, part: bool = False) -> HTMLResponse:
    """Runs on their way with their machines, and what was found at the providers last."""
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
    """Ask the providers what is there; this may take a while."""
    found = shared.machines.look(who)
    left, problems = len(found["left_over"]), len(found["problems"])
    words = f"{left} left over" if left else "Nothing is left over"
    words += f", and {problems} could not be asked." if problems else "."
    return redirect(request, "/admin/machines#providers", words, "warn" if left or problems else "good")


@router.post("/machines/reap")
def reap(request: Request, who: Administrator, shared: Shared, sent: Sent) -> Response:
    """Give back what was chosen of what is left over."""
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
