"""Who am I, what I prove it with, and where notices go."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, ConfigDict, Field

from tradewind.service.api.authentication import Caller, Shared
from tradewind.service.http.session_cookies import session_secret
from tradewind.service.people import Principal
from tradewind.store.service.accounts import UserRow
from tradewind.store.sessions import SessionRow

router = APIRouter(tags=["me"])

_SHOWN = 16  # letters of a digest: enough to tell a user's sessions apart


class Me(BaseModel):
    """The user who calls."""

    name: str = Field(description="The user's name.")
    role: str = Field(description="admin or user.")
    tenant: str = Field(description="Whose requests the user sees and makes.")
    email: str = Field(description="Where notices go; empty for nowhere.")
    settings: dict[str, Any] = Field(description="What the user has set.")
    password: bool = Field(description="Whether the user can sign in with a password.")


class MeChange(BaseModel):
    """What a user changes about the own account; what is left out stays as it is."""

    model_config = ConfigDict(extra="forbid")

    email: str | None = Field(default=None, max_length=254, description="Where notices go; empty for nowhere.")
    settings: dict[str, Any] | None = Field(default=None, description="Settings to set, by name; the others stay.")


class PasswordChange(BaseModel):
    """Another password."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    old: str = Field(max_length=1024, description="The password until now.")
    new: str = Field(max_length=1024, description="The password from now on: 10 characters at least.")


class SessionOut(BaseModel):
    """A session of a browser."""

    id: str = Field(description="What ends it: `DELETE /api/v1/me/sessions/{id}`.")
    created: float = Field(description="When the user signed in, seconds since the epoch.")
    seen: float = Field(description="When it was used last, to the minute.")
    expires: float = Field(description="When it ends unless it is used.")
    address: str = Field(description="Where the user signed in from.")
    agent: str = Field(description="What the browser calls itself.")


@router.get("/me")
def me(who: Caller, shared: Shared) -> Me:
    """Who the token or session belongs to."""
    return _me(who, shared.accounts.me(who))


@router.patch("/me")
def change_me(who: Caller, shared: Shared, change: MeChange) -> Me:
    """Change where notices go, or what the user has set."""
    return _me(who, shared.accounts.change_me(who, email=change.email, settings=change.settings))


@router.put("/me/password", status_code=204)
def change_password(request: Request, who: Caller, shared: Shared, change: PasswordChange) -> None:
    """Set another password; all other sessions of the user end."""
    shared.accounts.change_password(who, change.old, change.new, session=session_secret(request))


@router.get("/me/sessions")
def sessions(who: Caller, shared: Shared) -> list[SessionOut]:
    """The sessions of the user, the newest first."""
    return [_session(row) for row in shared.accounts.sessions(who)]


@router.delete("/me/sessions/{start}", status_code=204)
def end_session(
    who: Caller, shared: Shared, start: Annotated[str, Path(description="The id of a session.", max_length=64)]
) -> None:
    """End a session."""
    shared.accounts.end_session(who, start)


def _me(who: Principal, user: UserRow) -> Me:
    return Me(
        name=who.name,
        role=who.role,
        tenant=who.tenant,
        email=user.email,
        settings=dict(user.settings),
        password=user.password is not None,
    )


def _session(row: SessionRow) -> SessionOut:
    return SessionOut(
        id=row.digest[:_SHOWN],
        created=row.created,
        seen=row.seen,
        expires=row.expires,
        address=row.address,
        agent=row.agent,
    )
