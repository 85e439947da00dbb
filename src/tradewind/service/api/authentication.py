"""Authentication of REST calls, as dependencies of the routes.

Programs send a token. Pages of this server may call REST as well: their browser sends the cookie of its session, and
their scripts send the session's proof in ``X-CSRF-Token`` with everything that changes something.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from tradewind.errors import ForbiddenError, SignInError, TradewindError
from tradewind.service.accounts.identity import Principal
from tradewind.service.context import Context
from tradewind.service.http.responses import check_address, http_status
from tradewind.service.http.session_cookies import CSRF_HEADER, SAFE_METHODS, check_csrf, session_secret

_bearer = HTTPBearer(auto_error=False, description="A token, as `tradewind user token` or the page makes it.")


def context_of(request: Request) -> Context:
    """Return the server's shared context."""
    return cast("Context", request.app.state.context)


def address_of(request: Request) -> str:
    """Return the network address of a call."""
    return request.client.host if request.client else ""


def record_refusal(request: Request, error: TradewindError) -> None:
    """Record in the audit log a refused call of a user, or of somebody with a wrong token."""
    status = http_status(error)
    if status not in (401, 403, 429) or (status == 401 and "authorization" not in request.headers):
        return  # a browser whose session is over has done nothing wrong
    who = getattr(request.state, "who", None)
    name, tenant = (who.name, who.tenant) if who is not None else ("", "")
    call, address = f"{request.method} {request.url.path}", address_of(request)
    context_of(request).audit.record_of(name, tenant, address, "call.refused", call, "refused", {"code": error.code})


@dataclass(frozen=True, slots=True)
class UnverifiedCaller:
    """Credentials of a call, not verified yet.

    Attributes:
        request: The call.
        token: The token that it came with; None for the cookie of a session.
    """

    request: Request
    token: str | None

    def who(self) -> Principal:
        """Verify the credentials, and return the user.

        Raises:
            SignInError: The credentials are not valid.
            ForbiddenError: A page that is not of this session asks for a change.
        """
        request, csrf = self.request, None
        accounts, address = context_of(request).accounts, address_of(request)
        if self.token is not None:
            found = accounts.by_token(self.token, address)
        else:
            found, csrf = accounts.by_session(session_secret(request), address)
        request.state.who = found
        if csrf is not None and request.method not in SAFE_METHODS:
            check_csrf(csrf, request.headers.get(CSRF_HEADER, ""))
        return found


async def unverified_caller(
    request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> UnverifiedCaller:
    """Read the credentials of a call: its token, or the cookie of a session.

    Raises:
        SignInError: The call has neither.
    """
    check_address(request)
    if credentials is None and not session_secret(request):
        raise SignInError("no token was sent", hint="send the header Authorization: Bearer tw_...")
    return UnverifiedCaller(request, credentials.credentials if credentials is not None else None)


def _who(asked: Annotated[UnverifiedCaller, Depends(unverified_caller)]) -> Principal:
    return asked.who()


async def _shared(request: Request) -> Context:
    # async: a function that is not would be called in another thread, for the sake of nothing.
    return context_of(request)


Shared = Annotated[Context, Depends(_shared)]
"""The server's shared context, as a parameter of a route."""

Caller = Annotated[Principal, Depends(_who)]
"""The user who calls, as a parameter of a route."""


async def _admin(who: Caller) -> Principal:
    if not who.is_admin:
        raise ForbiddenError("only an administrator may do this")
    return who


AdminCaller = Annotated[Principal, Depends(_admin)]
"""The user who calls, where only an administrator may."""
