"""Who looks at a page: what each of its routes depends on."""

from __future__ import annotations

import hashlib
import hmac
from typing import Annotated

from fastapi import Depends, Request

from tradewind.errors import ForbiddenError, SignInError
from tradewind.service.api.access import context_of
from tradewind.service.people import Principal

COOKIE = "tradewind_session"


def csrf_of(request: Request) -> str:
    """What proves that a form comes from a page of this session; empty without one."""
    secret = request.cookies.get(COOKIE, "")
    return hmac.new(secret.encode(), b"csrf", hashlib.sha256).hexdigest() if secret else ""


def viewer_of(request: Request) -> Principal:
    """Who is signed in.

    Raises:
        SignInError: Nobody.
    """
    secret = request.cookies.get(COOKIE, "")
    if not secret:
        raise SignInError("you are not signed in", hint="sign in")
    address = request.client.host if request.client else ""
    return context_of(request).accounts.by_token(secret, address)


Viewer = Annotated[Principal, Depends(viewer_of)]
"""Who looks at a page, as a parameter of its route; one who is not signed in is sent to the door first."""


def _admin(who: Viewer) -> Principal:
    if not who.is_admin:
        raise ForbiddenError("only an administrator may see this page")
    return who


Administrator = Annotated[Principal, Depends(_admin)]
"""Who looks at a page, where only an administrator may."""


async def _posted(request: Request) -> dict[str, str]:
    form = await request.form()
    return {name: value for name, value in form.items() if isinstance(value, str)}


Posted = Annotated[dict[str, str], Depends(_posted)]
"""The fields of a form that are texts, as a parameter of a route; the last one of a name counts."""

__all__ = ["COOKIE", "Administrator", "Posted", "Viewer", "context_of", "csrf_of"]
