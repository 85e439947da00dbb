"""What the service keeps of its users: accounts, tokens, sessions, attempts to sign in, and the audit log."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from tradewind.errors import ConflictError, NotFoundError
from tradewind.store import codec
from tradewind.store.database import Database
from tradewind.store.schema import tenants, tokens, users


@dataclass(frozen=True, slots=True)
class UserRow:
    """A user.

    Attributes:
        id: The store's own number; 0 before it is stored.
        name: The name to sign in with.
        role: ``admin`` or ``user``.
        tenant: Whose requests the user sees and makes.
        password: The hash of the password; None for one who has only tokens.
        email: Where notices go; empty for nowhere.
        settings: What the user has set.
        state: ``active`` or ``locked``.
        created: Seconds since the epoch.
    """

    id: int
    name: str
    role: str
    tenant: str
    password: str | None = None
    email: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    state: str = "active"
    created: float = 0.0


class AccountStore:
    """The tables of accounts.

    Args:
        database: The open database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def add_user(self, user: UserRow) -> UserRow:
        """Add a user; a tenant that is not there is made.

        Raises:
            ConflictError: The name is taken.
        """
        with self._database.write() as connection:
            if connection.execute(sa.select(users.c.id).where(users.c.name == user.name)).first() is not None:
                raise ConflictError(f"there is a user {user.name!r} already", hint="take another name")
            if connection.execute(sa.select(tenants.c.name).where(tenants.c.name == user.tenant)).first() is None:
                row = {"name": user.tenant, "weight": 1.0, "priority": 0, "quota": "{}", "created": time.time()}
                connection.execute(sa.insert(tenants).values(row))
            values = {name: getattr(user, name) for name in UserRow.__dataclass_fields__ if name != "id"}
            values |= {"settings": codec.dumps(dict(user.settings)), "created": user.created or time.time()}
            (number,) = connection.execute(sa.insert(users).values(values)).inserted_primary_key or (0,)
            return _user(connection, users.c.id == number)

    def user(self, number: int) -> UserRow:
        """One user.

        Raises:
            NotFoundError: There is none.
        """
        with self._database.read() as connection:
            return _user(connection, users.c.id == number)

    def user_named(self, name: str) -> UserRow:
        """One user, by name.

        Raises:
            NotFoundError: There is none.
        """
        with self._database.read() as connection:
            return _user(connection, users.c.name == name)

    def add_token(self, user_id: int, name: str, digest: str, expires: float | None) -> int:
        """Add a token by its digest.

        Returns:
            The store's own number of it.
        """
        values = {"user_id": user_id, "name": name, "digest": digest, "created": time.time(), "expires": expires}
        with self._database.write() as connection:
            (number,) = connection.execute(sa.insert(tokens).values(values)).inserted_primary_key or (0,)
            return int(number)

    def user_of_token(self, digest: str) -> UserRow | None:
        """The user whom a token that has not run out belongs to; None when there is none."""
        query = sa.select(tokens.c.user_id, tokens.c.expires).where(tokens.c.digest == digest)
        with self._database.read() as connection:
            row = connection.execute(query).first()
            if row is None or (row.expires is not None and row.expires <= time.time()):
                return None
            return _user(connection, users.c.id == row.user_id)


def _user(connection: sa.engine.Connection, where: sa.ColumnElement[bool]) -> UserRow:
    row = connection.execute(sa.select(users).where(where)).mappings().first()
    if row is None:
        raise NotFoundError("there is no such user", hint="tradewind user list shows all")
    return UserRow(**{**row, "settings": json.loads(row["settings"])})
