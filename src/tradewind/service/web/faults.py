"""Errors as pages: what happened, and what to do, in the frame of the others."""

from __future__ import annotations

from http import HTTPStatus
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import RedirectResponse, Response

from tradewind.errors import NotFoundError, SignInError, TradewindError
from tradewind.service.faults import status_of
from tradewind.service.web import access
from tradewind.service.web.page import render, render_door

_TITLES = {
    403: "Not for you",
    404: "There is nothing here",
    409: "That cannot be done now",
    413: "Too large",
    422: "Something in that is wrong",
    429: "Too much at once",
    503: "Not now",
}


def wants_page(request: Request) -> bool:
    """Whether a browser navigates here, so that an error is shown as a page: programs get documents."""
    path = request.url.path
    return not path.startswith(("/api/", "/RPC2", "/static/")) and "text/html" in request.headers.get("accept", "")


def page_of(request: Request, error: TradewindError) -> Response:
    """An error as a page; who is not signed in goes to the door, and from there to where they wanted to go."""
    status = status_of(error)
    if isinstance(error, SignInError):
        target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        wanted = f"?next={quote(target)}" if request.method == "GET" and target != "/" else ""
        return RedirectResponse(f"/sign-in{wanted}", 303)
    return _shown(request, status, error.message, error.hint or "")


def missing_page(request: Request, status: int) -> Response:
    """The page for an address that leads nowhere, or a method that it does not take."""
    if status == 404:
        return page_of(request, NotFoundError("this address leads nowhere", hint="it may be mistyped, or out of date"))
    return _shown(request, status, HTTPStatus(status).phrase, "")


def _shown(request: Request, status: int, message: str, hint: str) -> Response:
    title = _TITLES.get(status, "Something went wrong")
    values = {"title": title, "message": message, "hint": hint}
    try:
        who = access.viewer_of(request)
    except TradewindError:
        return render_door(request, "door_error.html.j2", status=status, **values)
    return render(request, who, "error.html.j2", status=status, **values)
