"""Access to pages: dependencies of their routes that find the signed-in user and check forms."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Depends, Path, Query, Request
from starlette.datastructures import FormData

from tradewind.errors import ForbiddenError, SignInError
from tradewind.service.accounts.identity import Principal
from tradewind.service.api.authentication import Shared, context_of
from tradewind.service.document_limits import MAX_INTEGER, check_text
from tradewind.service.http import session_cookies


def address_of(request: Request) -> str:
    """Return the network address of a call, for the audit log."""
    return request.client.host if request.client else ""


def viewer_of(request: Request) -> Principal:
    """Find the signed-in user.

    Raises:
        SignInError: Nobody is signed in.
    """
    secret = session_cookies.session_secret(request)
    if not secret:
        raise SignInError("you are not signed in", hint="sign in")
    who, request.state.csrf = context_of(request).accounts.by_session(secret, address_of(request))
    request.state.who = who
    return who


def csrf_of(request: Request) -> str:
    """Return the CSRF token of this session's forms; empty without a session."""
    return str(getattr(request.state, "csrf", ""))


async def _storable(request: Request) -> None:
    check_text(request.scope["path"])
    for name, value in request.query_params.multi_items():
        check_text(name)
        check_text(value)


storable = Depends(_storable)
"""Refuses addresses with characters that no database takes; all pages depend on it."""


async def _sent(request: Request) -> AsyncIterator[FormData]:
    async with request.form(max_fields=2_000) as sent:
        for name, value in sent.multi_items():
            check_text(name)
            if isinstance(value, str):
                check_text(value)
        yield sent


Sent = Annotated[FormData, Depends(_sent)]
"""The fields of a form with its files, as a parameter of a route."""


async def _proof(request: Request, sent: Sent) -> str:
    """Read the CSRF token that was sent along with a change."""
    given = request.headers.get(session_cookies.CSRF_HEADER)
    return given if given is not None else str(sent.get(session_cookies.CSRF_FIELD, ""))


def _viewer(request: Request, proof: Annotated[str, Depends(_proof)]) -> Principal:
    who = viewer_of(request)
    if request.method not in session_cookies.SAFE_METHODS:
        session_cookies.check_csrf(csrf_of(request), proof)
    return who


Viewer = Annotated[Principal, Depends(_viewer)]
"""The user who looks at a page, as a parameter of its route; others are sent to the sign-in page first."""


def _admin(who: Viewer) -> Principal:
    if not who.is_admin:
        raise ForbiddenError("only an administrator may see this page")
    return who


Administrator = Annotated[Principal, Depends(_admin)]
"""The user who looks at a page, where only an administrator may."""


async def _posted(sent: Sent) -> dict[str, str]:
    return {name: value for name, value in sent.multi_items() if isinstance(value, str)}


Posted = Annotated[dict[str, str], Depends(_posted)]
"""The fields of a form that are texts, as a parameter of a route; the last one of a name counts."""

Number = Annotated[int, Path(ge=1, le=MAX_INTEGER)]
"""The number of something, as a part of an address."""

Cursor = Annotated[int | None, Query(ge=1, le=MAX_INTEGER)]
"""The number of something behind the question mark of an address, or None."""

__all__ = [
    "Administrator",
    "Cursor",
    "Number",
    "Posted",
    "Sent",
    "Shared",
    "Viewer",
    "address_of",
    "csrf_of",
    "storable",
    "viewer_of",
]
