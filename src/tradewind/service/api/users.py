"""Users, tenants and the audit log, for administrators."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from tradewind.service.api.authentication import AdminCaller, Caller, Shared
from tradewind.service.http.responses import LIST_HEADERS, Before, next_link
from tradewind.store.service.accounts import Role, UserRow

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
    """What to change about a user; what is left out stays as it is."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    role: Role | None = Field(default=None, description="What the user may do.")
    tenant: str | None = Field(default=None, max_length=200, description="Whose requests the user sees and makes.")
    email: str | None = Field(default=None, max_length=254, description="Where notices go; empty for nowhere.")
    state: Literal["active", "locked"] | None = Field(default=None, description="Whether the user is let in.")
    password: str | None = Field(default=None, max_length=1024, description="Another one; all sessions end.")


class Tenant(BaseModel):
    """A tenant: whose requests, studies and applications its users share."""

    name: str = Field(description="Its name.")
    weight: float = Field(description="Its share against others.")
    priority: int = Field(description="Larger goes first under strict priority.")
    quota: dict[str, float] = Field(
        description="The most that it may use: `cpu`, `memory` (GiB), `gpu`, `requests`; `dollars` in all."
    )


class TenantChange(BaseModel):
    """What to change about a tenant; what is left out stays as it is."""

    model_config = ConfigDict(extra="forbid")

    weight: float | None = Field(default=None, gt=0, le=1e9, description="Its share against others.")
    priority: int | None = Field(default=None, ge=-1000000, le=1000000, description="Larger goes first.")
    quota: dict[str, float] | None = Field(
        default=None, description="`cpu`, `memory` (GiB), `gpu`, `requests`, `dollars`; empty: none."
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
    return [
        Tenant(name=row.name, weight=row.weight, priority=row.priority, quota=dict(row.quota))
        for row in shared.users.tenants(who)
    ]


@user_router.put("/tenants/{name}")
def set_tenant(who: AdminCaller, shared: Shared, name: UserOrTenantName, change: TenantChange) -> Tenant:
    """Add a tenant, or change its share and quota; for administrators."""
    row = shared.users.set_tenant(who, name, weight=change.weight, priority=change.priority, quota=change.quota)
    return Tenant(name=row.name, weight=row.weight, priority=row.priority, quota=dict(row.quota))


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
