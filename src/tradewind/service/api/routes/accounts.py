"""The caller's account: password, sessions, tokens, and for administrators users, tenants and the audit log."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from tradewind.problem import Payer
from tradewind.service.accounts.identity import Principal
from tradewind.service.api.authentication import AdminCaller, Caller, Shared
from tradewind.service.http.responses import LIST_HEADERS, Before, Number, next_link
from tradewind.service.http.session_cookies import session_secret
from tradewind.store.clusters.cluster_store import TenantRow
from tradewind.store.service.accounts import Role, SessionRow, TokenRow, UserRow

token_router = APIRouter(tags=["tokens"])

UserName = Annotated[str, Path(max_length=200, description="The name of the user.")]


class Token(BaseModel):
    """A token, without its secret."""

    id: int = Field(description="Its number.")
    name: str = Field(description="What the user calls it.")
    created: float = Field(description="When it was made, seconds since the epoch.")
    used: float | None = Field(description="When it was used last, to the minute; null when it never was.")
    expires: float | None = Field(description="When it runs out; null when it does not.")


class NewToken(BaseModel):
    """A token to make."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, max_length=100, description="Where it is used: `laptop`, `nightly runs`.")
    days: float | None = Field(default=None, gt=0, le=36525, description="Days until it runs out; null for never.")


class MadeToken(Token):
    """A token that was just made."""

    token: str = Field(description="The token itself; it is shown this once.")


@token_router.get("/tokens")
def tokens(who: Caller, shared: Shared) -> list[Token]:
    """The tokens of the user, the newest first."""
    return [_token(row) for row in shared.accounts.tokens(who)]


@token_router.post("/tokens", status_code=201)
def make_token(who: Caller, shared: Shared, wanted: NewToken) -> MadeToken:
    """Make a token."""
    row, secret = shared.accounts.new_token(who, wanted.name, days=wanted.days)
    return MadeToken(**_token(row).model_dump(), token=secret)


@token_router.delete("/tokens/{number}", status_code=204)
def revoke_token(who: Caller, shared: Shared, number: Number) -> None:
    """Take a token away; it opens nothing from now on."""
    shared.accounts.revoke_token(who, number)


@token_router.get("/users/{name}/tokens")
def tokens_of(who: AdminCaller, shared: Shared, name: UserName) -> list[Token]:
    """The tokens of a user, the newest first; for administrators."""
    return [_token(row) for row in shared.users.tokens(who, name)]


@token_router.delete("/users/{name}/tokens/{number}", status_code=204)
def revoke_token_of(who: AdminCaller, shared: Shared, name: UserName, number: Number) -> None:
    """Take a token of a user away; for administrators."""
    shared.users.revoke_token(who, name, number)


def _token(row: TokenRow) -> Token:
    return Token(id=row.id, name=row.name, created=row.created, used=row.used, expires=row.expires)


user_router = APIRouter(tags=["users"])

UserOrTenantName = Annotated[str, Path(max_length=200, description="The name.")]


class User(BaseModel):
    """A user."""

    name: str = Field(description="The name to sign in with.")
    role: str = Field(description="admin or user.")
    tenant: str = Field(description="Whose requests the user sees and makes.")
    email: str = Field(description="Where notices go; empty for nowhere.")
    state: str = Field(description="active, locked or removed.")
    password: bool = Field(description="Whether the user can sign in with a password.")
    created: float = Field(description="Seconds since the epoch.")


class NewUser(BaseModel):
    """A user to add."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    name: str = Field(max_length=200, description="The name to sign in with; kept in small letters.")
    role: Role = Field(default="user", description="What the user may do.")
    tenant: str = Field(default="", max_length=200, description="Whose requests the user sees; else one of its own.")
    email: str = Field(default="", max_length=254, description="Where notices go; empty for nowhere.")
    password: str | None = Field(default=None, max_length=1024, description="To sign in with; null for tokens only.")


class UserChange(BaseModel):
    """Changes to a user; what is left out stays as it is."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    role: Role | None = Field(default=None, description="What the user may do.")
    tenant: str | None = Field(default=None, max_length=200, description="Whose requests the user sees and makes.")
    email: str | None = Field(default=None, max_length=254, description="Where notices go; empty for nowhere.")
    state: Literal["active", "locked"] | None = Field(default=None, description="Whether the user is let in.")
    password: str | None = Field(default=None, max_length=1024, description="Another one; all sessions end.")


class TenantPreemption(BaseModel):
    """The policy of a tenant whose work may end runs of others on a shared cluster."""

    within: float = Field(description="Seconds within which it gets places up to its share.")
    pays: Payer = Field(description="Who pays a run that is taken: its `owner`, the `taker`, or nobody (`cluster`).")
    exempt: float = Field(description="Seconds for which a run has had its place before it may be taken.")


class Tenant(BaseModel):
    """A tenant: whose requests, studies and applications its users share."""

    name: str = Field(description="Its name.")
    weight: float = Field(description="Its share against others.")
    priority: int = Field(description="Larger goes first under strict priority.")
    quota: dict[str, float] = Field(
        description="The most that it may use: `cpu`, `memory` (GiB), `gpu`, `requests`; `dollars` in all."
    )
    preempt: TenantPreemption | None = Field(description="Its preemption policy; null where it ends no runs of others.")

    @classmethod
    def of(cls, row: TenantRow) -> Self:
        """The tenant of a row of the store."""
        policy = TenantPreemption(**row.preempt) if row.preempt else None
        return cls(name=row.name, weight=row.weight, priority=row.priority, quota=dict(row.quota), preempt=policy)


class TenantChange(BaseModel):
    """Changes to a tenant; what is left out stays as it is."""

    model_config = ConfigDict(extra="forbid")

    weight: float | None = Field(default=None, gt=0, le=1e9, description="Its share against others.")
    priority: int | None = Field(default=None, ge=-1000000, le=1000000, description="Larger goes first.")
    quota: dict[str, float] | None = Field(
        default=None, description="`cpu`, `memory` (GiB), `gpu`, `requests`, `dollars`; empty: none."
    )
    preempt: dict[str, str | float] | None = Field(
        default=None,
        description="`within` (`2m`, or seconds), and perhaps `pays` (`taker`, `owner`, `cluster`) and `exempt`; "
        "empty: it ends no runs of others.",
    )


class AuditLine(BaseModel):
    """A line of the audit log."""

    id: int = Field(description="Its number.")
    at: float = Field(description="When, seconds since the epoch.")
    user: str = Field(description="Who; empty where nobody had signed in.")
    tenant: str = Field(description="For whom.")
    address: str = Field(description="Where from; empty for the command line.")
    action: str = Field(description="What: `account.sign-in`, `request.submit`.")
    subject: str = Field(description="What it was done to.")
    outcome: str = Field(description="done or refused.")
    details: dict[str, Any] = Field(description="More of it.")


@user_router.get("/users")
def users(
    who: AdminCaller,
    shared: Shared,
    after: Annotated[str, Query(max_length=200, description="The last name of the page before.")] = "",
    limit: Annotated[int, Query(ge=1, le=500, description="So many at most.")] = 100,
    removed: Annotated[bool, Query(description="Also those that were removed, but have made requests.")] = False,
) -> list[User]:
    """Users, by name; for administrators."""
    return [_user(row) for row in shared.users.list(who, after=after, limit=limit, removed=removed)]


@user_router.post("/users", status_code=201)
def add_user(who: AdminCaller, shared: Shared, new: NewUser) -> User:
    """Add a user; for administrators."""
    fields = {"role": new.role, "tenant": new.tenant, "email": new.email, "password": new.password}
    return _user(shared.users.add(who, new.name, **fields))  # type: ignore[arg-type]


@user_router.get("/users/{name}")
def user(who: AdminCaller, shared: Shared, name: UserOrTenantName) -> User:
    """One user; for administrators."""
    return _user(shared.users.get(who, name))


@user_router.patch("/users/{name}")
def change_user(who: AdminCaller, shared: Shared, name: UserOrTenantName, change: UserChange) -> User:
    """Change a user; for administrators."""
    return _user(
        shared.users.change(
            who,
            name,
            role=change.role,
            tenant=change.tenant,
            email=change.email,
            state=change.state,
            password=change.password,
        )
    )


@user_router.delete("/users/{name}", status_code=204)
def remove_user(who: AdminCaller, shared: Shared, name: UserOrTenantName) -> None:
    """Remove a user with tokens and sessions; for administrators."""
    shared.users.remove(who, name)


@user_router.get("/tenants")
def tenants(who: Caller, shared: Shared) -> list[Tenant]:
    """The tenants that the user may see, by name."""
    return [Tenant.of(row) for row in shared.users.tenants(who)]


@user_router.put("/tenants/{name}")
def set_tenant(who: AdminCaller, shared: Shared, name: UserOrTenantName, change: TenantChange) -> Tenant:
    """Add a tenant, or change its share, quota and preemption; for administrators."""
    row = shared.users.set_tenant(
        who, name, weight=change.weight, priority=change.priority, quota=change.quota, preempt=change.preempt
    )
    return Tenant.of(row)


@user_router.get("/audit", responses={200: {"headers": {"Link": LIST_HEADERS["Link"]}}})
def audit(
    request: Request,
    response: Response,
    who: AdminCaller,
    shared: Shared,
    before: Before = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="So many at most.")] = 100,
    user: Annotated[str, Query(max_length=200, description="Only of this user.")] = "",
    action: Annotated[str, Query(max_length=200, description="Only this, or this kind of them: `user`.")] = "",
    outcome: Annotated[Literal["", "done", "refused"], Query(description="Only with this outcome.")] = "",
) -> list[AuditLine]:
    """The audit log, the newest first; for administrators."""
    found = shared.audit.page(who, before=before, limit=limit, user=user, action=action, outcome=outcome)
    link = next_link(request, found[-1].id if len(found) == limit else None)
    if link is not None:
        response.headers["Link"] = link
    return [AuditLine(**{name: getattr(row, name) for name in AuditLine.model_fields}) for row in found]


def _user(row: UserRow) -> User:
    return User(
        name=row.name,
        role=row.role,
        tenant=row.tenant,
        email=row.email,
        state=row.state,
        password=row.password is not None,
        created=row.created,
    )


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
    """Changes of a user to the own account; what is left out stays as it is."""

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
    """The user that the token or session belongs to."""
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
