"""Web pages: HTML made on the server, with small scripts that keep it alive.

How a page is added:

1. One module in ``pages/`` with a ``router = APIRouter(include_in_schema=False)`` whose routes take ``who: Viewer``
   (or ``Administrator``) and ``shared: Shared``, call the functions of the context, and return `page.render`::

       @router.get("/studies")
       def studies(request: Request, who: Viewer, shared: Shared) -> HTMLResponse:
           return render(request, who, "studies.html.j2", studies=shared.studies.list(who))

   Its router stands in ``pages/__init__.py``. A route that changes something is a POST that takes ``form: Posted`` and
   ends with `page.redirect`; the proof that it comes from a page of ours is checked before it is called.
2. One template in ``templates/`` that extends ``base.html.j2`` and imports ``parts.html.j2`` as ``ui``: cards, tables,
   badges, tiles, progress bars, fields and buttons are there. Values are escaped, and a missing one is an error.
   No ``style`` or ``onclick`` attributes and no inline scripts: the browser refuses them. Widths that follow
   from data are ``<progress>`` or attributes of SVG.
3. If people should find it, a line in ``rendering.NAVIGATION``.
4. If it needs a script, a module in ``static/js/`` and, in the template,
   ``{% block scripts %}<script type="module" src="{{ asset('js/NAME.js') }}"></script>{% endblock %}``.
   Modules import each other by relative names. A style sheet of its own is ``static/css/6-NAME.css``: all of that
   folder come as one file.

Errors that a route raises become pages by themselves; a page works without scripts where a form can do its job.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from tradewind.service.http import responses
from tradewind.service.web import error_pages, page_access, pages, static_assets

_Handler = Callable[[Request, Any], Awaitable[Response]]


def add_pages(app: FastAPI) -> None:
    """Add the pages and their files to a server whose answers to programs are there already."""
    app.include_router(static_assets.router)
    for router in pages.ROUTERS:
        app.include_router(router, dependencies=[page_access.storable])


def show_errors_as_pages(app: FastAPI) -> None:
    """Show errors as pages to those who look at pages; how others see them is said already."""
    app.add_exception_handler(HTTPException, _as_page(_of_http))
    for kind in (RequestValidationError, Exception):
        app.add_exception_handler(kind, _as_page(app.exception_handlers[kind]))  # type: ignore[arg-type]


async def _of_http(_request: Request, error: HTTPException) -> Response:
    return responses.http_error_response(error)


def _as_page(other: _Handler) -> _Handler:
    """Show an error as a page to those who look at pages, and otherwise as it was."""

    async def handle(request: Request, error: Exception) -> Response:
        if error_pages.wants_page(request):
            return await run_in_threadpool(error_pages.unforeseen_page, request, error)
        return await other(request, error)

    return handle
