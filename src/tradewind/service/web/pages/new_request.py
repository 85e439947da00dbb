"""Pages of a new request: the application, its form, the machines, the predicted cost, and one run or a search."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response

from tradewind.errors import ConflictError, FormError, InputError, NotFoundError, TradewindError
from tradewind.reporting.charts.document import chart_json
from tradewind.reporting.proposal_charts import FEWEST_RUNS
from tradewind.reporting.proposal_words import MARKS
from tradewind.service.accounts.identity import Principal
from tradewind.service.applications.application_service import MAX_PIECE
from tradewind.service.applications.form import ApplicationForm, form_of
from tradewind.service.applications.validation import stored_application
from tradewind.service.context import Context
from tradewind.service.http.responses import http_status
from tradewind.service.web import request_draft as drafts
from tradewind.service.web.configuration_choices import ConfigurationChoices, propose
from tradewind.service.web.page_access import Cursor, Posted, Sent, Shared, Viewer
from tradewind.service.web.rendering import redirect, render, render_part
from tradewind.service.web.request_draft import RequestDraft
from tradewind.store.service.requests import RequestRow

router = APIRouter(include_in_schema=False)

_TITLES = {"budget": "Budget", "deadline": "Deadline", "try_first": "Try first"}
"""What fields of the form that may be wrong are called, beside those of the application."""


@router.get("/requests/new")
def new(
    request: Request, who: Viewer, shared: Shared, application: str = "", again: Cursor = None, best: bool = False
) -> Response:
    """Show the choice of an application, or its form, filled in like an earlier request or with a search's best."""
    if again is not None:
        row = shared.requests.get(who, again)
        document = _best_run(row) if best else dict(row.document)
        text = json.dumps(document, indent=2, ensure_ascii=False)
        if row.application_id is None:
            return _document_page(request, who, again, text)
        of = shared.applications.by_id(row.application_id)
        form = shared.applications.form(who, f"{of.tenant}/{of.name}")
        if beyond := drafts.beyond(form, document):
            return _document_page(request, who, again, text, beyond=beyond)
        return _form_page(request, who, shared, form, drafts.draft_of_request(form, document), again=again)
    if not application:
        rows = shared.applications.list(who)
        forms = [form_of(row, stored_application(row)) for row in rows]
        if len(rows) != 1:
            return render(request, who, "new_choose.html.j2", forms=forms)
        application = rows[0].address
    form = shared.applications.form(who, application)
    ways = shared.notices.ways(who)
    return _form_page(
        request,
        who,
        shared,
        form,
        drafts.new_draft(form, email=bool(ways.mail and ways.address and ways.preferences.email)),
    )


def _best_run(row: RequestRow) -> dict[str, Any]:
    best = row.progress.get("best")
    configuration = best.get("configuration") if isinstance(best, Mapping) else None
    if row.kind != "search" or not isinstance(configuration, Mapping):
        raise NotFoundError(f"request {row.id} has no best configuration", hint="its page shows what it has found")
    return drafts.document_of_best(row.document, configuration)


@router.get("/requests/new/document")
def new_document(request: Request, who: Viewer) -> HTMLResponse:
    """Show the form for a request by its document, for one without an application."""
    return _document_page(request, who, None, "")


@router.post("/requests/new/document")
def submit_document(request: Request, who: Viewer, shared: Shared, sent: Posted) -> Response:
    """Make a request of a document as it stands."""
    text, key = sent.get("document", ""), sent.get("key", "")
    try:
        row = shared.requests.submit(who, _parsed(text), key=key or None)
    except TradewindError as error:
        return _document_page(request, who, None, text, _sent_before(shared, who, key, error) or error)
    return redirect(request, f"/requests/{row.id}", f"Request {row.id} is made.")


@router.post("/requests/new")
def submit(request: Request, who: Viewer, shared: Shared, sent: Sent) -> Response:
    """Make the request, or show proposals for it, or its errors."""
    form = shared.applications.form(who, str(sent.get("application", "")))
    draft = drafts.draft_of_form(form, sent)
    wrong = draft.errors()
    values: Mapping[str, Any] = {}
    try:
        row = shared.applications.get(who, form.address)
        values = shared.applications.values(who, row, {**draft.parameters, **draft.files})
        draft = replace(draft, files={one: value for one, value in values.items() if isinstance(value, Mapping)})
    except FormError as error:
        wrong |= {f"p.{name}": message for name, message in error.fields.items()}
    if sent.get("do") == "propose":
        proposed = propose(shared, who, form, draft)
        return _form_page(request, who, shared, form, draft, errors=wrong, proposed=proposed)
    if wrong:
        return _form_page(request, who, shared, form, draft, errors=wrong, status=422)
    try:
        made = shared.requests.submit(who, draft.document(form.address, values), key=draft.key)
    except TradewindError as error:
        if before := _sent_before(shared, who, draft.key, error):
            draft = replace(draft, key=RequestDraft().key)
        return _form_page(request, who, shared, form, draft, problem=before or error, status=http_status(error))
    return redirect(request, f"/requests/{made.id}", f"Request {made.id} is made.")


@router.post("/requests/new/proposal")
def proposal(request: Request, who: Viewer, shared: Shared, sent: Sent) -> HTMLResponse:
    """Propose configurations for the values so far, for the page's script."""
    form = shared.applications.form(who, str(sent.get("application", "")))
    draft = drafts.draft_of_form(form, sent)
    proposed = propose(shared, who, form, draft)
    values = {"form": form, "draft": draft, "errors": draft.errors(), **_proposed(proposed)}
    return render_part(request, who, "new_proposal.html.j2", **values)


def _proposed(proposed: ConfigurationChoices | None) -> dict[str, Any]:
    """Return the values for the template of proposals."""
    charts = {} if proposed is None else {name: chart_json(chart) for name, chart in proposed.charts.items()}
    return {"proposed": proposed, "chart_data": charts, "mark_words": MARKS, "fewest_runs": FEWEST_RUNS}


def _sent_before(shared: Context, who: Principal, key: str, error: TradewindError) -> TradewindError | None:
    """Explain that a form was refused because another request was made from it, to a user who came back to it."""
    there = shared.requests.store.of_key(who.user_id, key) if key and isinstance(error, ConflictError) else None
    if there is None:
        return None
    return ConflictError(f"request {there.id} was made from this form", hint="send the form again for another one")


def _form_page(
    request: Request,
    who: Principal,
    shared: Context,
    form: ApplicationForm,
    draft: RequestDraft,
    *,
    errors: Mapping[str, str] | None = None,
    problem: TradewindError | None = None,
    proposed: ConfigurationChoices | None = None,
    again: int | None = None,
    status: int = 200,
) -> HTMLResponse:
    values = {
        "form": form,
        "draft": draft,
        "errors": errors or {},
        "problem": problem,
        **_proposed(proposed),
        "again": again,
        "backends": shared.backends.list(who),
        "ways": shared.notices.ways(who),
        "places": shared.results.places(who),
        "values": {one.name: drafts.shown_value(one, draft) for one in form.fields},
        "titles": {f"p.{one.name}": one.title for one in form.fields} | _TITLES,
        "sum": proposed.choices[0] if proposed is not None and proposed.choices else None,
        "limits": _limits(shared, who, form),
        "piece": min(MAX_PIECE, int(shared.settings.max_body_mib * 2**20)),
    }
    return render(request, who, "new.html.j2", status=status, **values)


def _limits(shared: Context, who: Principal, form: ApplicationForm) -> dict[str, int]:
    """Find the most bytes that each file field takes: as it says, and as the tenant has room for."""
    files = [one for one in form.fields if one.type == "file"]
    room = shared.applications.upload_room(who) if files else 0
    return {one.name: min(room, int(one.max * 2**20)) if one.max is not None else room for one in files}


def _document_page(
    request: Request,
    who: Principal,
    again: int | None,
    text: str,
    problem: TradewindError | None = None,
    *,
    beyond: Sequence[str] = (),
) -> HTMLResponse:
    status = 200 if problem is None else http_status(problem)
    values = {"again": again, "text": text, "problem": problem, "key": RequestDraft().key, "beyond": beyond}
    return render(request, who, "new_document.html.j2", status=status, **values)


def _parsed(text: str) -> dict[str, Any]:
    """Parse a document that was typed in: JSON, or YAML."""
    from tradewind.problem.yaml_source import parse_source

    document = parse_source(text, "document").document
    if not isinstance(document, dict):
        raise InputError("the document is no mapping", hint="write 'application: name' and 'parameters: {...}'")
    return document
