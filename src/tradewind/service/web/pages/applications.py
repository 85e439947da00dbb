"""Pages of applications: the list, one with its versions and its form, and registering one."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response
from starlette.datastructures import UploadFile

from tradewind.errors import InputError, TradewindError
from tradewind.service.accounts.identity import Principal
from tradewind.service.applications.form import form_of
from tradewind.service.applications.validation import stored_application
from tradewind.service.http.responses import http_status
from tradewind.service.web.page_access import Posted, Sent, Shared, Viewer
from tradewind.service.web.rendering import redirect, render, render_part

router = APIRouter(include_in_schema=False)

_AROUND = 3  # lines shown before and after one that is wrong

EXAMPLE = """\
name: hello
job:
  command: python3 hello.py --times {{ times }} --greeting {{ greeting }}
space:
  instance: {}
objective: {minimise: cost}
constraints: {deadline: 10m}
application:
  title: Hello
  description: Greets as often as you like.
  fields:
    times: {type: integer, title: How often, default: 3, min: 1, max: 100}
    greeting: {type: choice, title: Greeting, choices: [hello, servus, salut], default: hello}
  files:
    hello.py: |
      import argparse

      parser = argparse.ArgumentParser()
      parser.add_argument("--times", type=int)
      parser.add_argument("--greeting")
      given = parser.parse_args()
      for turn in range(given.times):
          print(given.greeting, turn + 1, flush=True)
"""
"""Text in the empty form: it can be registered as it is."""


@router.get("/applications")
def applications(request: Request, who: Viewer, shared: Shared, retired: bool = False) -> HTMLResponse:
    """List all applications that the user sees, by name."""
    rows = shared.applications.list(who, retired=retired)
    forms = [form_of(row, stored_application(row)) for row in rows]
    return render(request, who, "applications.html.j2", pairs=list(zip(rows, forms, strict=True)), retired=retired)


@router.get("/applications/new")
def new(request: Request, who: Viewer, shared: Shared, of: str = "") -> HTMLResponse:
    """Show the form to register an application; ``of`` begins with the text of another one."""
    if of:
        row = shared.applications.get(who, of, retired=True)
        return _register_page(request, who, row.document, shared=row.shared, of=row.reference)
    return _register_page(request, who, EXAMPLE)


@router.post("/applications/new")
def register(request: Request, who: Viewer, shared: Shared, sent: Sent) -> Response:
    """Register the text that was typed or handed in, or show its form first."""
    upload, text, file = sent.get("file"), str(sent.get("text", "")).replace("\r\n", "\n"), "application.yaml"
    if isinstance(upload, UploadFile) and upload.filename:
        file = upload.filename
        text = upload.file.read().decode("utf-8", "replace").replace("\r\n", "\n")
    everybody, vouch, of = "shared" in sent, "vouch" in sent, str(sent.get("of", ""))
    try:
        if sent.get("do") == "check":
            known = shared.applications.check(who, text, vouch=vouch, file=file)
            preview = form_of_checked(known)
            return _register_page(request, who, text, shared=everybody, vouch=vouch, of=of, preview=preview)
        row = shared.applications.register(who, text, shared=everybody, vouch=vouch, file=file)
    except TradewindError as error:
        return _register_page(request, who, text, shared=everybody, vouch=vouch, of=of, problem=error)
    where = f"/applications/{row.name}" + ("?tenant=" if row.shared else "")
    return redirect(request, where, f"{row.reference} is registered: this is its form.")


@router.post("/applications/new/check")
def check(request: Request, who: Viewer, shared: Shared, sent: Posted) -> HTMLResponse:
    """Check a text while it is typed, and show its errors or its form."""
    text = sent.get("text", "").replace("\r\n", "\n")
    problem, preview = None, None
    try:
        vouch = "vouch" in sent
        preview = form_of_checked(shared.applications.check(who, text, vouch=vouch, file="application.yaml"))
    except TradewindError as error:
        problem = error
    values = {"problem": problem, "preview": preview, "excerpt": _excerpt(text, problem)}
    return render_part(request, who, "application_check.html.j2", **values)


@router.get("/applications/{name}")
def one(request: Request, who: Viewer, shared: Shared, name: str, tenant: str | None = None) -> HTMLResponse:
    """Show one application: its form, versions and text; of the tenant that is named, or else the user's own."""
    row = shared.applications.get(who, _address(name, tenant), retired=True)
    form = form_of(row, stored_application(row))
    versions = shared.applications.versions(who, f"{row.tenant}/{row.name}")
    may_change = who.is_admin or not row.shared
    values: dict[str, Any] = {"row": row, "form": form, "versions": versions, "may_change": may_change}
    return render(request, who, "application.html.j2", **values)


@router.post("/applications/{name}/retire")
def retire(request: Request, who: Viewer, shared: Shared, name: str, tenant: str | None = None) -> Response:
    """Let no request begin with it any more."""
    shared.applications.retire(who, _address(name, tenant))
    of = "" if tenant is None else f"?tenant={quote(tenant)}"
    where = f"/applications/{name.partition('@')[0]}{of}" if "@" in name else "/applications"
    return redirect(request, where, f"{name} is retired: no request begins with it any more.")


def _address(name: str, tenant: str | None) -> str:
    return name if tenant is None else f"{tenant}/{name}"


def form_of_checked(known: Any) -> Any:
    """Return the form of a document that is not registered."""
    from tradewind.store.service.applications import ApplicationRow

    return form_of(ApplicationRow(0, "", known.name, 0, "", ""), known)


def _register_page(
    request: Request,
    who: Principal,
    text: str,
    *,
    shared: bool = False,
    vouch: bool = False,
    of: str = "",
    problem: TradewindError | None = None,
    preview: Any = None,
) -> HTMLResponse:
    status = 200 if problem is None else http_status(problem)
    values = {"text": text, "shared": shared, "vouch": vouch, "of": of, "problem": problem, "preview": preview}
    return render(request, who, "application_new.html.j2", status=status, excerpt=_excerpt(text, problem), **values)


def _excerpt(text: str, problem: TradewindError | None) -> list[tuple[int, str, bool]]:
    """Return the lines around the one that is wrong: number, text, and True for that line."""
    line = problem.line if isinstance(problem, InputError) else None
    if not line:
        return []
    lines = text.split("\n")
    first, last = max(1, line - _AROUND), min(len(lines), line + _AROUND)
    return [(number, lines[number - 1][:200], number == line) for number in range(first, last + 1)]
