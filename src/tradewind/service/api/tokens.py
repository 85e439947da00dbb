"""Tokens of programs: those of the user who calls, and for administrators those of others."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import BaseModel, ConfigDict, Field

from tradewind.service.api.authentication import AdminCaller, Caller, Shared
from tradewind.service.http.responses import Number
from tradewind.store.service.accounts import TokenRow

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
