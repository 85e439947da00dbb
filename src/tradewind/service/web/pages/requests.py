"""Pages of a user's requests: the list, and one."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response

from tradewind.errors import InputError, NotFoundError
from tradewind.service.accounts.identity import Principal
from tradewind.service.context import Context
from tradewind.service.document_limits import MAX_INTEGER
from tradewind.service.http.responses import FileDownload
from tradewind.service.requests.run_files import LOGS, RunFileEntry, RunLogPart
from tradewind.service.results.previews import first_shown
from tradewind.service.results.upload_state import upload_again, upload_trouble
from tradewind.service.web.page_access import Cursor, Number, Posted, Shared, Viewer
from tradewind.service.web.pages.request_results import read_preview
from tradewind.service.web.rendering import PER_PAGE, list_address, list_page, redirect, render, render_part
from tradewind.service.web.request_view import GROUPS, compare_predictions, prediction_bars, stage_views, view_request
from tradewind.store.service.request_parameters import parse_conditions
from tradewind.store.service.request_values import RequestState
from tradewind.store.service.requests import RequestRow

router = APIRouter(include_in_schema=False)

Offset = Annotated[int, Query(ge=0, le=MAX_INTEGER)]
"""Offset of a part of a log, in bytes."""

TrialNumber = Annotated[int | None, Query(ge=0, le=MAX_INTEGER)]
"""Number of the trial of a search whose files and log are meant; the best or the last one without."""

ShownPath = Annotated[str, Query(max_length=4000)]
"""Path of the file that is shown on the page."""

_OFFERED_FORMS = 20
"""Applications whose fields the list offers to be searched by."""

_SHOWN_EVENTS = 200
_FAILED = ("failed", "timed_out")
_LAST_LINES, _WORDS_BYTES = 5, 4096
"""Lines of a failed program that stand at the top of its page, and bytes that they are looked for in."""

_TAIL = 65_536
"""Bytes of a log that are shown at once."""


@router.get("/requests")
def requests(
    request: Request,
    who: Viewer,
    shared: Shared,
    group: str = "",
    application: str = "",
    text: str = "",
    parameter: str = "",
    tenant: str = "",
    before: Cursor = None,
    part: bool = False,
) -> HTMLResponse:
    """List the requests, the newest first."""
    group = group if group in GROUPS else ""
    filters = {"group": group, "application": application, "text": text, "parameter": parameter, "tenant": tenant}
    wanted = {"application": application, "text": text.strip(), "parameters": [parameter], "tenant": tenant}
    found, wrong = _found(shared, who, GROUPS[group][1], wanted, before)
    now, words = time.time(), shared.applications.describe(found)
    values = list_page(
        "/requests", filters, before, found, lambda row: row.id, lambda row: view_request(row, now, words[row.id])
    )
    if part:
        return render_part(request, who, "requests_rows.html.j2", wrong=wrong, **values)
    groups = [(key, words, list_address("/requests", {**filters, "group": key})) for key, (words, _) in GROUPS.items()]
    names = [row.name for row in shared.applications.list(who)]
    return render(
        request,
        who,
        "requests.html.j2",
        status=200 if wrong is None else 422,
        groups=groups,
        applications=names,
        fields=_field_titles(shared, who, [application] if application in names else names),
        wrong=wrong,
        **values,
    )


def _found(
    shared: Context, who: Principal, states: Sequence[RequestState], wanted: dict[str, Any], before: int | None
) -> tuple[list[RequestRow], InputError | None]:
    """Return the requests of a page; where a condition on parameters cannot be read, none, and what is wrong."""
    try:
        parse_conditions(wanted["parameters"])
    except InputError as error:
        return [], error
    return shared.requests.list(who, states=states, before=before, limit=PER_PAGE + 1, **wanted), None


def _field_titles(shared: Context, who: Principal, names: Sequence[str]) -> dict[str, str]:
    """Return the titles of fields by name, to choose from: of the first few applications."""
    forms = [shared.applications.form(who, name) for name in names[:_OFFERED_FORMS]]
    return {field.name: field.title for form in forms for field in form.fields}


@router.get("/requests/{number:int}")
def one(
    request: Request,
    who: Viewer,
    shared: Shared,
    number: Number,
    part: bool = False,
    trial: TrialNumber = None,
    show: ShownPath = "",
) -> HTMLResponse:
    """Show one request: its progress, the reasons, and its results, of a search those of its best or another trial."""
    if part:
        return render_part(request, who, "request_live.html.j2", **_values(shared, who, number, trial))
    return _page(request, who, shared, number, trial=trial, show=show)


def _page(
    request: Request,
    who: Principal,
    shared: Context,
    number: int,
    link: str = "",
    trial: int | None = None,
    show: str = "",
) -> HTMLResponse:
    values = _values(shared, who, number, trial, log_bytes=_TAIL)
    row, files = values["shown"].row, values["files"]
    path = show or (first_shown([entry.path for entry in files]) if row.over else "")
    preview = read_preview(shared, who, number, path, trial) if path else None
    return render(request, who, "request.html.j2", link=link, preview=preview, **values)


def _values(
    shared: Context, who: Principal, number: int, trial: int | None = None, log_bytes: int = 0
) -> dict[str, Any]:
    """Return the values of a page; of each log as many bytes as are asked for, or as last words need."""
    row, now = shared.requests.get(who, number), time.time()
    # Of the many events of a search only the last ones are shown.
    events, count = shared.requests.store.latest(number, _SHOWN_EVENTS)
    way = stage_views(row, shared.requests.store.turns(number), now)
    files = shared.requests.files(who, number, trial=trial)
    failed = row.state in _FAILED
    most = max(log_bytes, _WORDS_BYTES if failed else 0)
    logs = _logs(shared, who, row, files, trial, most) if most else {}
    if row.problem:  # what went wrong stands there, as a rule
        logs = dict(sorted(logs.items(), key=lambda one: one[0] != "stderr"))
    return {
        "trial": trial,
        "shown": view_request(row, now, shared.applications.describe([row])[row.id]),
        "application_tenant": ""
        if row.application_id is None
        else shared.applications.by_id(row.application_id).tenant,
        "steps": way,
        "events": events,
        "event_count": count,
        "files": files,
        "logs": logs,
        "last_words": _last_words(logs) if failed else None,
        "workflow": any(entry.path.endswith(("/journal.jsonl", "/results.json")) for entry in files),
        "links": shared.links.list(who, number) if row.over else [],
        "upload": upload_trouble(shared, number) if row.over else None,
        "predicted": compare_predictions(row, way),
        "bars": prediction_bars(row, way, now),
    }


def _logs(
    shared: Context, who: Principal, row: RequestRow, files: Sequence[RunFileEntry], trial: int | None, most: int
) -> dict[str, Any]:
    """Return the last bytes of each log that has anything in it, or may have as it goes on."""
    found: dict[str, Any] = {}
    sizes = {entry.path: entry.size for entry in files}
    for stream in LOGS:
        grows = stream == "stdout" or (stream == "stderr" and not row.over)
        if stream not in sizes and not grows:
            continue
        offset = max(0, sizes.get(stream, 0) - most)
        part = shared.requests.log(who, row.id, stream, offset, most, trial=trial)
        if part.text or grows:
            found[stream] = {**_said(part), "cut": offset > 0}
    return found


def _last_words(logs: Mapping[str, Any]) -> list[str]:
    """Return the last lines of a failed request: of stderr, or else of stdout."""
    for stream in ("stderr", "stdout"):
        text = logs[stream]["text"] if stream in logs else ""
        if lines := [line.rstrip() for line in text[-_WORDS_BYTES:].splitlines() if line.strip()]:
            return lines[-_LAST_LINES:]
    return []


@router.get("/requests/{number:int}/log/{stream}")
def log(
    who: Viewer,
    shared: Shared,
    number: Number,
    stream: str,
    offset: Offset = 0,
    run: Annotated[str, Query(max_length=200)] = "",
) -> JSONResponse:
    """Return more of a log, for the page's script; the run is that of the offset."""
    part = shared.requests.log(who, number, stream, offset, _TAIL, run=run)
    return JSONResponse(_said(part), headers={"Cache-Control": "no-store"})


def _said(part: RunLogPart) -> dict[str, Any]:
    return {"text": part.text, "next": part.next, "ended": part.ended, "run": part.run, "trial": part.trial}


@router.get("/requests/{number:int}/files/{path:path}")
def file(
    request: Request, who: Viewer, shared: Shared, number: Number, path: str, trial: TrialNumber = None
) -> Response:
    """Download one file of the run: none is ever shown as a page of this server."""
    return FileDownload(request, shared.requests.open(who, number, path, trial=trial), path)


@router.post("/requests/{number:int}/{action}")
def act(request: Request, who: Viewer, shared: Shared, number: Number, action: str, form: Posted) -> Response:
    """End a request, have it carried out once more, have its results uploaded, or remove it."""
    here = f"/requests/{number}"
    if action == "cancel":
        row = shared.requests.cancel(who, number)
        text = "is cancelled" if row.over else "is being cancelled: its machines are given back"
        return redirect(request, here, f"Request {number} {text}.")
    if action == "retry":
        shared.requests.retry(who, number)
        return redirect(request, here, f"Request {number} is carried out once more.")
    if action == "upload":
        upload_again(shared, who, number)
        return redirect(request, here, "The upload is tried again within moments.")
    if action == "delete":
        shared.requests.delete(who, number)
        return redirect(request, "/requests", f"Request {number} is deleted.")
    if action == "link":
        _, path = shared.links.make(who, number)
        place = shared.settings.public_url or str(request.base_url)
        return _page(request, who, shared, number, place.rstrip("/") + path)
    if action == "unlink":
        shared.links.revoke(who, number, form.get("link", ""))
        return redirect(request, here, "That link leads nowhere from now on.")
    raise NotFoundError("a request cannot do that")
