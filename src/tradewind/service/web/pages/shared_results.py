"""Pages of shared results: the files of a request, for anybody who has the link."""

from __future__ import annotations

from urllib.parse import quote

from fastapi import APIRouter, Request
from starlette.responses import Response

from tradewind.service.http.responses import FileDownload, archive_response
from tradewind.service.results.share_links import SHARE_PATH
from tradewind.service.web.page_access import Shared
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
    "default-src 'none'; style-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)


@router.get("/{secret}")
def files(request: Request, shared: Shared, secret: str) -> Response:
    """Show the files of a request."""
    opened = shared.links.open(secret)
    total = sum(entry.size for entry in opened.files)
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
    )
    page.headers.update({**_HEADERS, "Content-Security-Policy": _POLICY})
    return page


@router.get("/{secret}/{path:path}")
def file(request: Request, shared: Shared, secret: str, path: str) -> Response:
    """Download one file: nothing that somebody's program wrote is shown by this server as a page of its own."""
    answer: Response
    if path == ARCHIVE:  # no file of a run has such a path
        answer = archive_response(shared.links.archive(secret), "results.zip")
    else:
        answer = FileDownload(request, shared.links.file(secret, path), path)
    answer.headers.update(_HEADERS)
    return answer
