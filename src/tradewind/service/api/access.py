"""Who calls: what each route of REST depends on."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from tradewind.errors import ForbiddenError, SignInError
from tradewind.service.context import Context
from tradewind.service.people import Principal

_bearer = HTTPBearer(auto_error=False, description="A token, as `tradewind user token` or the page makes it.")


def context_of(request: Request) -> Context:
    """What the parts of the server share."""
    return cast("Context", request.app.state.context)


def _who(request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]) -> Principal:
    if credentials is None:
        raise SignInError("no token was sent", hint="send the header Authorization: Bearer tw_...")
    address = request.client.host if request.client else ""
    return context_of(request).accounts.by_token(credentials.credentials, address)


Shared = Annotated[Context, Depends(context_of)]
"""What the parts of the server share, as a parameter of a route."""

Who = Annotated[Principal, Depends(_who)]
"""Who calls, as a parameter of a route."""


def _admin(who: Who) -> Principal:
    if not who.is_admin:
        raise ForbiddenError("only an administrator may do this")
    return who


Admin = Annotated[Principal, Depends(_admin)]
"""Who calls, where only an administrator may."""
