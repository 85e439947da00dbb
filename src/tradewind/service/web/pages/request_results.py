"""Results of a request, for its page: a preview of a file, the file as a browser shows it, curves, and all files."""

from __future__ import annotations

import os
from typing import Annotated, BinaryIO

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, Response

from tradewind.errors import NotFoundError
from tradewind.reporting.charts.document import chart_json
from tradewind.service.accounts.identity import Principal
from tradewind.service.context import Context
from tradewind.service.document_limits import MAX_INTEGER
from tradewind.service.http.responses import FileDownload, archive_response, etag_of, not_modified
from tradewind.service.results.curves import reported_curves
from tradewind.service.results.file_types import PDF, is_pdf, picture_of
from tradewind.service.results.previews import MOST_TABLE, FilePreview, preview_of
from tradewind.service.web.page_access import Number, Shared, Viewer

router = APIRouter(include_in_schema=False, prefix="/requests/{number:int}")

TrialNumber = Annotated[int | None, Query(ge=0, le=MAX_INTEGER)]
"""Number of the trial of a search whose files are meant; the best or the last one without."""

REPORTS = "metrics.jsonl"
"""Path of what a program reports while it runs."""


def read_preview(shared: Context, who: Principal, number: int, path: str, trial: int | None) -> FilePreview:
    """Read a preview of a file of a request.

    Raises:
        NotFoundError: There is no such request, trial or file that this user may see.
    """
    with shared.requests.open(who, number, path, trial=trial) as file:
        return preview_of(path, file, os.fstat(file.fileno()).st_size)


def shown_file(request: Request, file: BinaryIO, path: str) -> Response:
    """Send a picture of points or a PDF, known by its content, as what it is.

    Raises:
        NotFoundError: It is neither.
    """
    try:
        data, size = file.read(MOST_TABLE), os.fstat(file.fileno()).st_size
        picture = picture_of(data)
        if picture is not None and not picture.trouble(size):
            return FileDownload(request, file, path, shown_as=picture.media_type)
        if is_pdf(data):
            return FileDownload(request, file, path, shown_as=PDF)
    except BaseException:
        file.close()
        raise
    file.close()
    raise NotFoundError("this file is not one that a browser shows", hint="download it")


@router.get("/files.zip")
def archive(who: Viewer, shared: Shared, number: Number, trial: TrialNumber = None) -> Response:
    """Download all files as one, which is made while it is sent."""
    return archive_response(shared.requests.archive(who, number, trial=trial), f"request-{number}.zip")


@router.get("/shown/{path:path}")
def shown(
    request: Request, who: Viewer, shared: Shared, number: Number, path: str, trial: TrialNumber = None
) -> Response:
    """Send a picture of points or a PDF, known by its content, as what it is; nothing else is ever shown so."""
    return shown_file(request, shared.requests.open(who, number, path, trial=trial), path)


@router.get("/curves")
def curves(request: Request, who: Viewer, shared: Shared, number: Number, trial: TrialNumber = None) -> Response:
    """Return charts of the metrics that the program has reported so far, for the page's script."""
    shared.requests.get(who, number)
    try:
        opened = shared.requests.open(who, number, REPORTS, trial=trial)
    except NotFoundError:
        return JSONResponse([], headers={"Cache-Control": "no-store"})  # it has not reported anything yet
    with opened as file:
        about = os.fstat(file.fileno())
        tag = etag_of(number, trial, about.st_size, about.st_mtime_ns)
        if (same := not_modified(request, tag)) is not None:
            return same
        found = [chart_json(chart) for chart in reported_curves(file, about.st_size)]
    return JSONResponse(found, headers={"ETag": tag, "Cache-Control": "private, no-cache"})
