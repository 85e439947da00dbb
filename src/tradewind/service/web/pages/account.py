"""Pages of one's own account: signing in, password and sessions, tokens, notices, and locations of results."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response

from tradewind.errors import ForbiddenError, InputError, SignInError, TooManyError, TradewindError
from tradewind.service.accounts import identity
from tradewind.service.accounts.credentials import MIN_PASSWORD_LENGTH, secret_digest
from tradewind.service.accounts.identity import Principal
from tradewind.service.context import Context
from tradewind.service.http.responses import http_status
from tradewind.service.http.session_cookies import (
    delete_session_cookie,
    safe_redirect_path,
    session_secret,
    set_session_cookie,
)
from tradewind.service.notifications.preferences import OCCASIONS
from tradewind.service.web import page_access
from tradewind.service.web.page_access import Posted, Sent, Shared, Viewer
from tradewind.service.web.rendering import THEMES, redirect, render, render_sign_in
from tradewind.store.service.notices import NoticeKind

sign_in_router = APIRouter(include_in_schema=False)


@sign_in_router.get("/sign-in")
def door(request: Request, next: str = "/") -> Response:
    """Show the form to sign in with; a user who is signed in already goes on."""
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


router = APIRouter(include_in_schema=False, prefix="/account")

_YEAR = 365 * 86400


@router.get("")
def account(request: Request, who: Viewer, shared: Shared) -> HTMLResponse:
    """Show password, sessions, and how the pages look."""
    return _account_page(request, who, shared)


@router.post("/password")
def change_password(request: Request, who: Viewer, shared: Shared, form: Posted) -> Response:
    """Set another password; other sessions end."""
    new = form.get("new", "")
    try:
        if new != form.get("again", ""):
            raise InputError("the two new passwords are not the same")
        shared.accounts.change_password(who, form.get("old", ""), new, session=session_secret(request))
    except TradewindError as error:
        return _account_page(request, who, shared, problem=error)
    return redirect(request, "/account", "The password is changed, and your other sessions are over.")


@router.post("/sessions/end")
def end_session(request: Request, who: Viewer, shared: Shared, form: Posted) -> Response:
    """End one of the user's sessions."""
    shared.accounts.end_session(who, form.get("session", ""))
    return redirect(request, "/account", "That session is over.")


@router.post("/theme")
def theme(request: Request, who: Viewer, form: Posted) -> Response:
    """Choose light or dark, or follow the system; this browser keeps it."""
    answer = redirect(request, "/account")
    chosen = form.get("theme", "")
    if chosen in THEMES:
        secure = request.url.scheme == "https"
        answer.set_cookie("tradewind_theme", chosen, max_age=_YEAR, httponly=True, samesite="lax", secure=secure)
    else:
        answer.delete_cookie("tradewind_theme")
    return answer


def _account_page(
    request: Request, who: Principal, shared: Context, problem: TradewindError | None = None
) -> HTMLResponse:
    values: dict[str, Any] = {
        "me": shared.accounts.me(who),
        "sessions": shared.accounts.sessions(who),
        "this": secret_digest(session_secret(request)),
        "shortest": MIN_PASSWORD_LENGTH,
        "problem": problem,
    }
    return render(request, who, "account.html.j2", status=http_status(problem) if problem else 200, **values)


# ---------------------------------------------------------------------- tokens


@router.get("/tokens")
def tokens(request: Request, who: Viewer, shared: Shared) -> HTMLResponse:
    """Show the tokens of the user's programs."""
    return _tokens_page(request, who, shared)


@router.post("/tokens")
def make_token(request: Request, who: Viewer, shared: Shared, form: Posted) -> HTMLResponse:
    """Make a token, and show it this once."""
    try:
        days = float(form["days"]) if form.get("days") else None
        _, secret = shared.accounts.new_token(who, form.get("name", ""), days=days)
    except TradewindError as error:
        return _tokens_page(request, who, shared, problem=error, name=form.get("name", ""))
    except ValueError:
        wrong = InputError(f"{form['days'][:20]!r} is no number of days", hint="leave it empty for a token that stays")
        return _tokens_page(request, who, shared, problem=wrong, name=form.get("name", ""))
    return _tokens_page(request, who, shared, secret=secret)


@router.post("/tokens/revoke")
def revoke_token(request: Request, who: Viewer, shared: Shared, form: Posted) -> Response:
    """Take a token away."""
    number = form.get("token", "")
    shared.accounts.revoke_token(who, int(number) if number.isdecimal() and len(number) < 18 else 0)
    return redirect(request, "/account/tokens", "The token is taken away: it opens nothing from now on.")


def _tokens_page(
    request: Request,
    who: Principal,
    shared: Context,
    *,
    secret: str = "",
    name: str = "",
    problem: TradewindError | None = None,
) -> HTMLResponse:
    values: dict[str, Any] = {"tokens": shared.accounts.tokens(who), "secret": secret, "name": name, "problem": problem}
    values["address"] = shared.settings.public_url or str(request.base_url).rstrip("/")
    return render(request, who, "account_tokens.html.j2", status=http_status(problem) if problem else 200, **values)


# ---------------------------------------------------------------------- notices


@router.get("/notices")
def notices(request: Request, who: Viewer, shared: Shared) -> HTMLResponse:
    """Show the settings of notices."""
    return _notices_page(request, who, shared)


@router.post("/notices")
def change_notices(request: Request, who: Viewer, shared: Shared, sent: Sent) -> Response:
    """Change the settings of notices."""
    email = [str(one) for one in sent.getlist("email")]
    calls = [str(one) for one in sent.getlist("calls")]
    address, webhook = (str(sent.get(name, "")).strip() for name in ("address", "webhook"))
    try:
        identity.check_email(address)  # all of it is kept, or nothing
        shared.notices.change(who, email=email, webhook=webhook, calls=calls)
        shared.accounts.change_me(who, email=address)
    except TradewindError as error:
        given = {"address": address, "webhook": webhook, "email": email, "calls": calls}
        return _notices_page(request, who, shared, problem=error, given=given)
    return redirect(request, "/account/notices", "Kept.")


@router.post("/notices/test")
def test_notice(request: Request, who: Viewer, shared: Shared, form: Posted) -> Response:
    """Send oneself a notice that says nothing."""
    kind: NoticeKind = "email" if form.get("kind") == "email" else "webhook"
    try:
        shared.notices.test(who, kind)
    except TradewindError as error:
        return _notices_page(request, who, shared, problem=error)
    return redirect(request, "/account/notices", "A test is on its way; the list below tells how it went.")


@router.post("/notices/key")
def notice_key(request: Request, who: Viewer, shared: Shared) -> HTMLResponse:
    """Make the key that calls are signed with, and show it this once."""
    return _notices_page(request, who, shared, key=shared.notices.key(who))


def _notices_page(
    request: Request,
    who: Principal,
    shared: Context,
    *,
    key: str = "",
    problem: TradewindError | None = None,
    given: dict[str, Any] | None = None,
) -> HTMLResponse:
    ways = shared.notices.ways(who)
    preferences = ways.preferences
    kept = {
        "address": ways.address,
        "webhook": preferences.webhook,
        "email": preferences.email,
        "calls": preferences.calls,
    }
    values: dict[str, Any] = {
        "ways": ways,
        "given": given or kept,
        "recent": shared.notices.recent(who, 10),
        "occasions": OCCASIONS,
        "key": key,
        "problem": problem,
    }
    return render(request, who, "account_notices.html.j2", status=http_status(problem) if problem else 200, **values)


# ---------------------------------------------------------------------- results folders


@router.get("/results")
def places(request: Request, who: Viewer, shared: Shared) -> HTMLResponse:
    """Show the locations that results go to."""
    return _places_page(request, who, shared)


@router.post("/results")
def set_place(request: Request, who: Viewer, shared: Shared, form: Posted) -> Response:
    """Add a folder, or change how it is entered."""
    given = {key: form.get(key, "").strip() for key in ("address", "user", "endpoint", "host_key")}
    try:
        shared.results.set_place(
            who,
            given["address"],
            user=given["user"],
            password=form.get("password") or None,
            endpoint=given["endpoint"],
            host_key=given["host_key"],
            default="default" in form,
        )
    except TradewindError as error:
        return _places_page(request, who, shared, problem=error, given=given)
    return redirect(request, "/account/results", f"Results may go to {given['address']} now.")


@router.post("/results/{action}")
def change_place(request: Request, who: Viewer, shared: Shared, action: str, form: Posted) -> Response:
    """Try a folder out, make it the one for all requests, or remove it."""
    address = form.get("address", "")
    try:
        if action == "check":
            shared.results.check(who, address)
            words = f"A file was written to {address} and removed: results can go there."
        elif action == "default":
            shared.results.set_default(who, address)
            words = f"Results go to {address} now." if address else "Results stay on this server now."
        elif action == "remove":
            shared.results.remove_place(who, address)
            words = f"{address} is removed, with the password that was kept for it."
        else:
            raise InputError("a folder cannot do that")
    except TradewindError as error:
        return _places_page(request, who, shared, problem=error)
    return redirect(request, "/account/results", words)


def _places_page(
    request: Request,
    who: Principal,
    shared: Context,
    *,
    problem: TradewindError | None = None,
    given: dict[str, str] | None = None,
) -> HTMLResponse:
    values: dict[str, Any] = {
        "places": shared.results.places(who),
        "own": shared.settings.own_places,
        "public_key": shared.results.public_key(who) if shared.settings.own_places else "",
        "given": given or {"address": "", "user": "", "endpoint": "", "host_key": ""},
        "problem": problem,
    }
    return render(request, who, "account_results.html.j2", status=http_status(problem) if problem else 200, **values)
