"""Pages of shared results: the files of a request, for anybody who has the link."""

from __future__ import annotations

import os
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from tradewind.service.http.responses import FileDownload, archive_response
from tradewind.service.results.previews import first_shown, preview_of
from tradewind.service.results.share_links import SHARE_PATH
from tradewind.service.web.page_access import Shared
from tradewind.service.web.pages.request_results import shown_file
from tradewind.service.web.rendering import render_sign_in

ARCHIVE = "all.zip"
"""Path of all files of a link as one."""

router = APIRouter(include_in_schema=False, prefix=SHARE_PATH)

# No cache keeps it, no search engine finds it, and no other site learns its address.
_HEADERS = {
    "Cache-Control": "private, no-store",
    "Referrer-Policy": "no-referrer",
    "X-Robots-Tag": "noindex, nofollow",
}

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)


@router.get("/{secret}")
def files(request: Request, shared: Shared, secret: str, show: Annotated[str, Query(max_length=4000)] = "") -> Response:
    """Show the files of a request, and a preview of one of them: the one that is named, or the one to begin with."""
    opened = shared.links.open(secret)
    total = sum(entry.size for entry in opened.files)
    path = show or first_shown([entry.path for entry in opened.files])
    preview = None
    if path:
        with shared.links.file(secret, path) as file:
            preview = preview_of(path, file, os.fstat(file.fileno()).st_size)
    place = f"{SHARE_PATH}/{quote(secret, safe='')}"
    page = render_sign_in(
        request,
        "results.html.j2",
        opened=opened,
        request_row=opened.request,
        words=shared.applications.describe([opened.request])[opened.request.id],
        archive=ARCHIVE,
        files=opened.files,
        total=total,
        place=place,
        preview=preview,
    )
    page.headers.update({**_HEADERS, "Content-Security-Policy": _POLICY})
    return page


@router.get("/{secret}/{path:path}")
def file(request: Request, shared: Shared, secret: str, path: str, shown: bool = False) -> Response:
    """Download one file, or send a picture or a PDF to be shown; nothing else is ever a page of this server."""
    answer: Response
    if path == ARCHIVE:  # no file of a run has such a path
        answer = archive_response(shared.links.archive(secret), "results.zip")
    elif shown:
        answer = shown_file(request, shared.links.file(secret, path), path)
    else:
        answer = FileDownload(request, shared.links.file(secret, path), path)
    answer.headers.update(_HEADERS)
    return answer
