"""Signing in and out."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from tradewind.errors import ForbiddenError, SignInError, TooManyError
from tradewind.service.faults import http_status
from tradewind.service.http.session_cookies import (
    delete_session_cookie,
    safe_redirect_path,
    session_secret,
    set_session_cookie,
)
from tradewind.service.web import page_access
from tradewind.service.web.page_access import Posted, Shared, Viewer
from tradewind.service.web.rendering import redirect, render_sign_in

sign_in_router = APIRouter(include_in_schema=False)


@sign_in_router.get("/")
def start(request: Request, who: Viewer) -> RedirectResponse:
    """What one works with comes first."""
    return redirect(request, "/requests")


@sign_in_router.get("/sign-in")
def door(request: Request, next: str = "/") -> Response:
    """The form to sign in with; one who is signed in already goes on."""
    try:
        page_access.viewer_of(request)
    except SignInError:
        return render_sign_in(request, "sign_in.html.j2", next=safe_redirect_path(next), name="", error=None, wait=0)
    return redirect(request, safe_redirect_path(next))


@sign_in_router.post("/sign-in")
def sign_in(request: Request, shared: Shared, form: Posted) -> Response:
    """Begin a session, and go on to where the user wanted to go."""
    if request.headers.get("sec-fetch-site") == "cross-site":
        raise ForbiddenError("another site asked for this", hint="sign in on the page of this server")
    name, wanted = form.get("name", ""), safe_redirect_path(form.get("next", "/"))
    agent = request.headers.get("user-agent", "")
    try:
        session = shared.accounts.sign_in(name, form.get("password", ""), page_access.address_of(request), agent)
    except (SignInError, TooManyError) as error:
        wait = error.wait if isinstance(error, TooManyError) else 0.0
        values = {"next": wanted, "name": name[:200], "error": error, "wait": wait}
        page = render_sign_in(request, "sign_in.html.j2", status=http_status(error), **values)
        if wait:
            page.headers["Retry-After"] = str(max(1, round(wait)))
        return page
    shared.accounts.sign_out(session_secret(request))  # the session that this browser had until now
    answer = redirect(request, wanted)
    set_session_cookie(request, answer, session)
    return answer


@sign_in_router.post("/sign-out")
def sign_out(request: Request, who: Viewer, shared: Shared) -> Response:
    """End the session of this browser."""
    shared.accounts.sign_out(session_secret(request))
    answer = redirect(request, "/sign-in")
    delete_session_cookie(request, answer)
    return answer
