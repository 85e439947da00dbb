"""Pages of administration: users, tenants with their quotas, backends, applications, servers, and the audit log."""

from __future__ import annotations

import json
import math
from typing import Annotated, Any
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, Response

from tradewind.errors import InputError, TradewindError
from tradewind.service.accounts.credentials import MIN_PASSWORD_LENGTH
from tradewind.service.accounts.identity import ROLES, Principal
from tradewind.service.context import Context
from tradewind.service.http.responses import http_status
from tradewind.service.web.page_access import Administrator, Posted, Shared
from tradewind.service.web.rendering import list_page, redirect, render
from tradewind.service.web.template_filters import exact
from tradewind.tenancy.preemption.policy import preemption_policy
from tradewind.utils.units import count

router = APIRouter(include_in_schema=False, prefix="/admin")

QUOTAS = (
    ("cpu", "CPU at a time"),
    ("memory", "Memory at a time, GiB"),
    ("gpu", "GPUs at a time"),
    ("requests", "Requests at a time"),
    ("dollars", "USD in all"),
)
"""Resources that a tenant may be limited in, with their words."""

_PREEMPTION = ("within", "pays", "exempt")
_PAYERS = [
    ("taker", "this tenant"),
    ("owner", "the search whose run it was"),
    ("cluster", "nobody"),
]
"""Who pays the runs that a tenant takes, with the words of the form."""

_PER_PAGE = 50

# ---------------------------------------------------------------------- users


@router.get("/users")
def users(request: Request, who: Administrator, shared: Shared, after: str = "", removed: bool = False) -> HTMLResponse:
    """List all users, by name."""
    return _users_page(request, who, shared, after=after, removed=removed)


@router.post("/users")
def add_user(request: Request, who: Administrator, shared: Shared, form: Posted) -> Response:
    """Add a user."""
    try:
        user = shared.users.add(
            who,
            form.get("name", ""),
            role=form.get("role", "user"),
            tenant=form.get("tenant", "").strip(),
            email=form.get("email", "").strip(),
            password=form.get("password") or None,
        )
    except TradewindError as error:
        return _users_page(request, who, shared, problem=error, given=form)
    return redirect(request, f"/admin/users/{quote(user.name)}", f"{user.name} is added.")


def _users_page(
    request: Request,
    who: Principal,
    shared: Context,
    *,
    after: str = "",
    removed: bool = False,
    problem: TradewindError | None = None,
    given: dict[str, str] | None = None,
) -> HTMLResponse:
    rows = shared.users.list(who, after=after, limit=_PER_PAGE + 1, removed=removed)
    more = {"after": rows[_PER_PAGE - 1].name, "removed": int(removed)} if len(rows) > _PER_PAGE else None
    values = {
        "rows": rows[:_PER_PAGE],
        "more": f"/admin/users?{urlencode(more)}" if more else "",
        "after": after,
        "removed": removed,
        "given": {key: value for key, value in (given or {}).items() if key != "password"},
        "tenants": [row.name for row in shared.users.tenants(who)],
        "shortest": MIN_PASSWORD_LENGTH,
        "problem": problem,
    }
    return render(request, who, "admin_users.html.j2", status=_status(problem), **values)


@router.get("/users/{name}")
def user(request: Request, who: Administrator, shared: Shared, name: str) -> HTMLResponse:
    """Show one user, with tokens."""
    return _user_page(request, who, shared, name)


@router.post("/users/{name}")
def change_user(request: Request, who: Administrator, shared: Shared, name: str, form: Posted) -> Response:
    """Change role, tenant, address, state or password."""
    row = shared.users.get(who, name)
    changes: dict[str, Any] = {
        key: form[key].strip()
        for key in ("role", "tenant", "email", "state")
        if key in form and form[key].strip() != getattr(row, key)
    }
    if form.get("password"):
        changes["password"] = form["password"]
    try:
        if changes:
            shared.users.change(who, name, **changes)
    except TradewindError as error:
        return _user_page(request, who, shared, name, error)
    words = f"{name}: {', '.join(sorted(changes))} changed." if changes else "Nothing was changed."
    return redirect(request, f"/admin/users/{quote(name)}", words)


@router.post("/users/{name}/remove")
def remove_user(request: Request, who: Administrator, shared: Shared, name: str) -> Response:
    """Remove a user with tokens and sessions."""
    try:
        gone = shared.users.remove(who, name)
    except TradewindError as error:
        return _user_page(request, who, shared, name, error)
    kept = "" if gone else " The name stays, because requests are of it."
    return redirect(request, "/admin/users", f"{name} is removed.{kept}")


@router.post("/users/{name}/tokens/revoke")
def revoke_token(request: Request, who: Administrator, shared: Shared, name: str, form: Posted) -> Response:
    """Take one token away, or all."""
    number = form.get("token", "")
    chosen = int(number) if number.isdecimal() and len(number) < 18 else None
    taken = shared.users.revoke_token(who, name, chosen)
    words = f"{count(taken, 'token')} of {name} taken away."
    return redirect(request, f"/admin/users/{quote(name)}", words)


def _user_page(
    request: Request, who: Principal, shared: Context, name: str, problem: TradewindError | None = None
) -> HTMLResponse:
    row = shared.users.get(who, name)
    values = {
        "row": row,
        "roles": [(role, "administrator" if role == "admin" else role) for role in ROLES],
        "tenants": [one.name for one in shared.users.tenants(who)],
        "tokens": shared.users.tokens(who, name),
        "problem": problem,
    }
    return render(request, who, "admin_user.html.j2", status=_status(problem), **values)


# ---------------------------------------------------------------------- tenants


@router.get("/tenants")
def tenants(request: Request, who: Administrator, shared: Shared, name: str = "") -> HTMLResponse:
    """List all tenants, with their weights and quotas; one of them open to be changed."""
    row = next((one for one in shared.users.tenants(who) if one.name == name), None)
    if row is None:
        return _tenants_page(request, who, shared)
    given = {"name": row.name, "weight": exact(row.weight), "priority": str(row.priority)}
    given |= {key: exact(amount) for key, amount in row.quota.items()}
    if policy := preemption_policy(row.preempt):
        given |= {"within": exact(policy.within), "pays": policy.pays, "exempt": exact(policy.exempt)}
    return _tenants_page(request, who, shared, given=given)


@router.post("/tenants")
def set_tenant(request: Request, who: Administrator, shared: Shared, form: Posted) -> Response:
    """Add a tenant, or change it."""
    name = form.get("name", "").strip()
    try:
        quota = {key: _number(form[key], words) for key, words in QUOTAS if form.get(key, "").strip()}
        weight, priority = (
            _number(form.get("weight") or "1", "weight"),
            _number(form.get("priority") or "0", "priority"),
        )
        preempt = {key: form[key].strip() for key in _PREEMPTION if form.get(key, "").strip()}
        if "within" not in preempt and "exempt" not in preempt:
            preempt = {}  # who pays is always chosen
        row = shared.users.set_tenant(who, name, weight=weight, priority=round(priority), quota=quota, preempt=preempt)
    except TradewindError as error:
        return _tenants_page(request, who, shared, error, form)
    return redirect(request, "/admin/tenants", f"The tenant {row.name} is set.")


def _tenants_page(
    request: Request,
    who: Principal,
    shared: Context,
    problem: TradewindError | None = None,
    given: dict[str, str] | None = None,
) -> HTMLResponse:
    rows = shared.users.tenants(who)
    policies = {row.name: policy.words for row in rows if (policy := preemption_policy(row.preempt))}
    values = {
        "rows": rows,
        "quotas": QUOTAS,
        "policies": policies,
        "payers": _PAYERS,
        "problem": problem,
        "given": given or {},
    }
    return render(request, who, "admin_tenants.html.j2", status=_status(problem), **values)


def _number(text: str, what: str) -> float:
    try:
        number = float(text.strip())
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{what}: {text.strip()[:30]!r} is no number")
    return number


# ---------------------------------------------------------------------- backends and applications


@router.get("/backends")
def backends(request: Request, who: Administrator, shared: Shared, name: str = "") -> HTMLResponse:
    """List the places where jobs run; one of them open to be changed."""
    rows = shared.backends.list(who)
    chosen = next((row for row in rows if row.name == name), None)
    text = "" if chosen is None else _yaml(chosen)
    return _backends_page(request, who, shared, name if chosen else "", text or NEW_BACKEND)


@router.post("/backends")
def set_backend(request: Request, who: Administrator, shared: Shared, form: Posted) -> Response:
    """Add a backend, or change it."""
    name, text = form.get("name", "").strip(), form.get("text", "").replace("\r\n", "\n")
    try:
        shared.backends.set(who, name, text, file="backend.yaml")
    except TradewindError as error:
        return _backends_page(request, who, shared, name, text, error)
    return redirect(request, "/admin/backends", f"The backend {name} is set.")


@router.post("/backends/{name}/remove")
def remove_backend(request: Request, who: Administrator, shared: Shared, name: str) -> Response:
    """Remove a backend; requests that run on it go on."""
    shared.backends.remove(who, name)
    return redirect(request, "/admin/backends", f"The backend {name} is removed.")


def _backends_page(
    request: Request, who: Principal, shared: Context, name: str, text: str, problem: TradewindError | None = None
) -> HTMLResponse:
    values = {"rows": shared.backends.list(who), "name": name, "text": text, "problem": problem}
    return render(request, who, "admin_backends.html.j2", status=_status(problem), **values)


def _yaml(row: Any) -> str:
    import yaml

    names = ("title", "description", "users", "own_code", "deploy", "offers", "catalogues")
    document = {key: value for key in names if (value := getattr(row, key))}
    return yaml.safe_dump(json.loads(json.dumps(document, default=dict)), sort_keys=False, allow_unicode=True)


NEW_BACKEND = """\
title: The institute's cluster
description: 16 nodes of 32 cores
users: everyone
deploy:
  runner: {use: slurm, partition: batch}
"""
"""Text in the form for a new backend."""


@router.get("/applications")
def applications(request: Request, who: Administrator, shared: Shared, retired: bool = False) -> HTMLResponse:
    """List the applications of all tenants."""
    rows = shared.applications.list(who, retired=retired)
    return render(request, who, "admin_applications.html.j2", rows=rows, retired=retired)


@router.post("/applications/retire")
def retire_application(request: Request, who: Administrator, shared: Shared, form: Posted) -> Response:
    """Let no request begin with an application of any tenant any more."""
    name = form.get("name", "")
    shared.applications.retire(who, name)
    return redirect(request, "/admin/applications", f"{name} is retired: no request begins with it any more.")


# ---------------------------------------------------------------------- servers and the audit log


@router.get("/servers")
def servers(request: Request, who: Administrator, shared: Shared) -> HTMLResponse:
    """List the servers and workers of this database."""
    return render(request, who, "admin_servers.html.j2", rows=shared.presence.list(who), settings=shared.settings)


@router.get("/audit")
def audit(
    request: Request,
    who: Administrator,
    shared: Shared,
    user: str = "",
    action: str = "",
    outcome: str = "",
    before: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
) -> HTMLResponse:
    """List the lines of the audit log, the newest first."""
    outcome = outcome if outcome in ("done", "refused") else ""
    filters = {"user": user.strip(), "action": action.strip(), "outcome": outcome}
    rows = shared.audit.page(who, before=before, limit=_PER_PAGE + 1, **filters)
    values = list_page("/admin/audit", filters, before, rows, lambda row: row.id, lambda row: row, size=_PER_PAGE)
    return render(request, who, "admin_audit.html.j2", days=shared.settings.audit_days, **values)


def _status(problem: TradewindError | None) -> int:
    return 200 if problem is None else http_status(problem)
