"""Error pages: what happened, and what to do, in the frame of the other pages."""

from __future__ import annotations

from http import HTTPStatus
from urllib.parse import quote

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse, Response
from starlette.exceptions import HTTPException

from tradewind.errors import InputError, NotFoundError, SignInError, TradewindError
from tradewind.service.http.request_guard import PAGE_POLICY
from tradewind.service.http.responses import http_status
from tradewind.service.web import page_access
from tradewind.service.web.rendering import render, render_sign_in

_TITLES = {
    400: "This call was not understood",
    403: "You are not allowed to do this",
    404: "Page not found",
    405: "This address cannot be called like that",
    408: "Too slow",
    409: "This cannot be done now",
    413: "Too large",
    422: "Something is wrong",
    429: "Too many requests",
    503: "Not available now",
}


_NOWHERE = NotFoundError("this address leads nowhere", hint="it may be mistyped, or out of date")


def wants_page(request: Request) -> bool:
    """True where a browser navigates, so that an error is shown as a page: programs get documents.

    It goes by what the call accepts, whatever its address: people follow links to any of them.
    """
    wanted = _weights(request.headers.get("accept", ""))
    html = wanted.get("text/html", 0.0)
    return html > 0.0 and html > max(wanted.get(kind, 0.0) for kind in ("application/json", "application/problem+json"))


def _weights(accept: str) -> dict[str, float]:
    found = {}
    for one in accept.lower().split(","):
        name, *settings = (piece.strip() for piece in one.split(";"))
        weight = next((text[2:] for text in settings if text.startswith("q=")), "1")
        try:
            found[name] = float(weight)
        except ValueError:
            found[name] = 0.0
    return found


def page_of(request: Request, error: TradewindError) -> Response:
    """Show an error as a page; who is not signed in is sent to sign in, and from there to the page wanted."""
    status = http_status(error)
    if isinstance(error, SignInError):
        target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        wanted = f"?next={quote(target)}" if request.method == "GET" and target != "/" else ""
        return RedirectResponse(f"/sign-in{wanted}", 303)
    return _shown(request, status, error.message, error.hint or "")


def refusal_page(request: Request, error: TradewindError) -> Response | None:
    """Show a refusal that comes before any route; None for a program."""
    return _shown(request, http_status(error), error.message, error.hint or "") if wants_page(request) else None


def unforeseen_page(request: Request, error: Exception) -> Response:
    """Show the page of an error outside our functions: an address that leads nowhere, or a fault of the server."""
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        if first["loc"][0] == "path":
            return page_of(request, _NOWHERE)
        return page_of(request, InputError(f"{first['loc'][-1]}: {first['msg']}", hint="the address is mistyped"))
    if not isinstance(error, HTTPException):
        return _shown(request, 500, "the server has a fault", "what happened is in its log: tell its administrator")
    if error.status_code == 404:
        return page_of(request, _NOWHERE)
    return _shown(request, error.status_code, HTTPStatus(error.status_code).phrase, "")


def _shown(request: Request, status: int, message: str, hint: str) -> Response:
    title = _TITLES.get(status, "Something went wrong")
    values = {"title": title, "message": message, "hint": hint}
    try:
        who = page_access.viewer_of(request)
    except TradewindError:
        page = render_sign_in(request, "door_error.html.j2", status=status, **values)
    else:
        page = render(request, who, "error.html.j2", status=status, **values)
    # Where files of users lie, the usual policy of answers would refuse our own style, too.
    page.headers["Content-Security-Policy"] = PAGE_POLICY
    return page
