"""Signing in and out."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from tradewind.errors import ForbiddenError, SignInError, TooManyError
from tradewind.service.faults import status_of
from tradewind.service.security import drop_session, keep_session, next_page, secret_of
from tradewind.service.web import access
from tradewind.service.web.access import Posted, Shared, Viewer
from tradewind.service.web.page import redirect, render_door

router = APIRouter(include_in_schema=False)


@router.get("/")
def start(request: Request, who: Viewer) -> RedirectResponse:
    """What one works with comes first."""
    return redirect(request, "/requests")


@router.get("/sign-in")
def door(request: Request, next: str = "/") -> Response:
    """The form to sign in with; one who is signed in already goes on."""
    try:
        access.viewer_of(request)
    except SignInError:
        return render_door(request, "sign_in.html.j2", next=next_page(next), name="", error=None, wait=0)
    return redirect(request, next_page(next))


@router.post("/sign-in")
def sign_in(request: Request, shared: Shared, form: Posted) -> Response:
    """Begin a session, and go on to where the user wanted to go."""
    if request.headers.get("sec-fetch-site") == "cross-site":
        raise ForbiddenError("another site asked for this", hint="sign in on the page of this server")
    name, wanted = form.get("name", ""), next_page(form.get("next", "/"))
    agent = request.headers.get("user-agent", "")
    try:
        session = shared.accounts.sign_in(name, form.get("password", ""), access.address_of(request), agent)
    except (SignInError, TooManyError) as error:
        wait = error.wait if isinstance(error, TooManyError) else 0.0
        values = {"next": wanted, "name": name[:200], "error": error, "wait": wait}
        page = render_door(request, "sign_in.html.j2", status=status_of(error), **values)
        if wait:
            page.headers["Retry-After"] = str(max(1, round(wait)))
        return page
    shared.accounts.sign_out(secret_of(request))  # the session that this browser had until now
    answer = redirect(request, wanted)
    keep_session(request, answer, session)
    return answer


@router.post("/sign-out")
def sign_out(request: Request, who: Viewer, shared: Shared) -> Response:
    """End the session of this browser."""
    shared.accounts.sign_out(secret_of(request))
    answer = redirect(request, "/sign-in")
    drop_session(request, answer)
    return answer
