"""Session cookies, CSRF tokens, and safe addresses to go on to."""

from __future__ import annotations

import hmac
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection
from starlette.responses import Response

from tradewind.errors import ForbiddenError
from tradewind.service.accounts.sessions import BrowserSession, csrf_token_of

__all__ = [
    "CSRF_FIELD",
    "CSRF_HEADER",
    "SAFE_METHODS",
    "check_csrf",
    "cookie_name",
    "csrf_token_of",
    "delete_session_cookie",
    "safe_redirect_path",
    "session_secret",
    "set_session_cookie",
]

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
"""Methods that change nothing."""

CSRF_HEADER = "X-CSRF-Token"
"""Header in which scripts of a page send its CSRF token."""

CSRF_FIELD = "csrf"
"""Field of a form with the CSRF token of its page."""

_PLAIN_COOKIE = "tradewind_session"
# A browser takes a cookie of such a name over TLS only, and from this very host: no neighbour can plant one.
_TLS_COOKIE = "__Host-tradewind_session"


def cookie_name(connection: HTTPConnection) -> str:
    """Return the name of the cookie of a session."""
    return _TLS_COOKIE if connection.url.scheme == "https" else _PLAIN_COOKIE


def session_secret(connection: HTTPConnection) -> str:
    """Read the session's secret from a call; empty when it has none."""
    return connection.cookies.get(cookie_name(connection), "")


def set_session_cookie(connection: HTTPConnection, response: Response, session: BrowserSession) -> None:
    """Give a browser the cookie of its session: no script can read it, and no other site can change things with it.

    Args:
        connection: The call that signed in.
        response: The answer to it.
        session: The session of `AccountService.sign_in`.
    """
    # Without an age it ends with the browser; the server ends it before that where it is not used.
    response.set_cookie(
        cookie_name(connection),
        session.secret,
        path="/",
        secure=connection.url.scheme == "https",
        httponly=True,
        samesite="lax",
    )


def delete_session_cookie(connection: HTTPConnection, response: Response) -> None:
    """Delete the cookie of a session in a browser."""
    response.delete_cookie(
        cookie_name(connection), path="/", secure=connection.url.scheme == "https", httponly=True, samesite="lax"
    )


def check_csrf(expected: str, given: str) -> None:
    """Refuse a change that no page of this session has asked for.

    Raises:
        ForbiddenError: What was sent along is not the session's.
    """
    if not hmac.compare_digest(expected.encode(), given.encode("utf-8", "replace")):
        raise ForbiddenError(
            "the page that asked for this is not of your session", hint="load the page again, and repeat it"
        )


def safe_redirect_path(text: str, default: str = "/") -> str:
    """Choose the address to go to after signing in: a path of this server, never another one.

    Args:
        text: Value of ``?next=``.
        default: Path to go to when that is no path of this server.
    """
    # Browsers read \ as /, and leave control characters out.
    if (
        not text.startswith("/")
        or text.startswith("//")
        or "\\" in text
        or any(ord(c) < 33 or c == "\x7f" for c in text)
    ):
        return default
    try:
        parts = urlsplit(text)
    except ValueError:
        return default
    return text if not parts.scheme and not parts.netloc and len(text) <= 2000 else default
