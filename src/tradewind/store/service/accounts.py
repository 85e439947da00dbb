"""Stores the users of the service: accounts, tokens, sessions and attempts to sign in."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import sqlalchemy as sa

from tradewind.errors import ConflictError, NotFoundError, StoreError
from tradewind.store import codec
from tradewind.store.clusters.rows import make_tenant
from tradewind.store.sql.database import Database
from tradewind.store.sql.leases import NOTICE_LEASES
from tradewind.store.sql.schema import attempts, notices, requests, sessions, tokens, users

Role = Literal["admin", "user"]
UserState = Literal["active", "locked", "removed"]


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
        state: ``active``, ``locked`` or ``removed``.
        created: Seconds since the epoch.
    """

    id: int
    name: str
    role: Role
    tenant: str
    password: str | None = None
    email: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    state: UserState = "active"
    created: float = 0.0


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A token of a program.

    Attributes:
        id: The store's own number.
        user_id: Whose it is.
        name: What the user calls it.
        created: Seconds since the epoch.
        used: When it was used last, to the minute; None when it never was.
        expires: When it runs out; None when it does not.
    """

    id: int
    user_id: int
    name: str
    created: float
    used: float | None = None
    expires: float | None = None


_USER = tuple(UserRow.__dataclass_fields__)
USER_COLUMNS = [users.c[name] for name in _USER]
"""The columns of a user."""

# Every call of a program asks this: it is put together once.
_OF_TOKEN = (
    sa.select(*USER_COLUMNS, *(tokens.c[name] for name in TokenRow.__dataclass_fields__))
    .join_from(tokens, users, tokens.c.user_id == users.c.id)
    .where(tokens.c.digest == sa.bindparam("digest"))
)


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
                raise _taken(user.name)
            make_tenant(connection, user.tenant)
            values = {name: getattr(user, name) for name in UserRow.__dataclass_fields__ if name != "id"}
            values |= {"settings": codec.dumps(dict(user.settings)), "created": user.created or time.time()}
            try:
                with connection.begin_nested():
                    result = connection.execute(sa.insert(users).values(values))
            except sa.exc.IntegrityError:  # on PostgreSQL another one may have been quicker
                raise _taken(user.name) from None
            (number,) = result.inserted_primary_key or (0,)
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

    def find(self, name: str) -> UserRow | None:
        """One user, by name; None when there is none."""
        with self._database.read() as connection:
            row = connection.execute(sa.select(users).where(users.c.name == name)).mappings().first()
        return None if row is None else user_of(row)

    def users(self, *, after: str = "", limit: int | None = None, removed: bool = False) -> list[UserRow]:
        """Users, by name.

        Args:
            after: Only those whose name comes later: the next page.
            limit: So many at most.
            removed: Also those that were removed.
        """
        query = sa.select(users).where(users.c.name > after).order_by(users.c.name).limit(limit)
        if not removed:
            query = query.where(users.c.state != "removed")
        with self._database.read() as connection:
            return [user_of(row) for row in connection.execute(query).mappings()]

    def change(self, number: int, **fields: Any) -> UserRow:
        """Change fields of a user, all of them or none; a tenant that is not there is made.

        Raises:
            NotFoundError: There is none.
            ConflictError: It is the last administrator, who would be none any more.
            StoreError: A field cannot be changed.
        """
        unknown = sorted(set(fields) - {"role", "tenant", "password", "email", "settings", "state"})
        if unknown:
            raise StoreError(f"a user's {unknown[0]!r} cannot be changed")
        if "settings" in fields:
            fields = {**fields, "settings": codec.dumps(dict(fields["settings"]))}
        with self._database.write() as connection:
            old = _user(connection, users.c.id == number)
            if fields.get("role", "admin") != "admin" or fields.get("state", "active") != "active":
                self._keep_one(connection, old)
            if "tenant" in fields:
                make_tenant(connection, fields["tenant"])
            if fields:
                connection.execute(sa.update(users).where(users.c.id == number).values(fields))
            return _user(connection, users.c.id == number)

    def remove(self, number: int) -> bool:
        """Remove a user with tokens and sessions.

        One that something else refers to stays as a name that nobody can sign in with, or take again.

        Returns:
            Whether nothing is left.

        Raises:
            NotFoundError: There is none.
            ConflictError: It is the last administrator.
        """
        with self._database.write() as connection:
            self._keep_one(connection, _user(connection, users.c.id == number))
            connection.execute(sa.delete(tokens).where(tokens.c.user_id == number))
            connection.execute(sa.delete(sessions).where(sessions.c.user_id == number))
            query = sa.select(requests.c.id).where(requests.c.user_id == number).limit(1)
            if connection.execute(query).first() is None:
                NOTICE_LEASES.forget(connection, notices.c.user_id == number)
                connection.execute(sa.delete(notices).where(notices.c.user_id == number))
                connection.execute(sa.delete(users).where(users.c.id == number))
                return True
            gone = {"state": "removed", "password": None, "email": "", "settings": "{}", "role": "user"}
            connection.execute(sa.update(users).where(users.c.id == number).values(gone))
            return False

    # ------------------------------------------------------------------ tokens

    def add_token(self, token: TokenRow, digest: str) -> TokenRow:
        """Add a token.

        Args:
            token: It; its ``id`` is set by the store.
            digest: What is kept of its secret.
        """
        values = {name: getattr(token, name) for name in TokenRow.__dataclass_fields__ if name != "id"}
        with self._database.write() as connection:
            result = connection.execute(sa.insert(tokens).values({**values, "digest": digest}))
            (number,) = result.inserted_primary_key or (0,)
        return replace(token, id=int(number))

    def tokens_of(self, user_id: int) -> list[TokenRow]:
        """The tokens of a user, the newest first, with those that have run out."""
        columns = [tokens.c[name] for name in TokenRow.__dataclass_fields__]
        query = sa.select(*columns).where(tokens.c.user_id == user_id).order_by(tokens.c.id.desc())
        with self._database.read() as connection:
            return [TokenRow(**row) for row in connection.execute(query).mappings()]

    def delete_token(self, user_id: int, number: int) -> TokenRow:
        """Take a token of a user away.

        Returns:
            What it was.

        Raises:
            NotFoundError: The user has none of that number.
        """
        columns = [tokens.c[name] for name in TokenRow.__dataclass_fields__]
        where = sa.and_(tokens.c.id == number, tokens.c.user_id == user_id)
        with self._database.write() as connection:
            row = connection.execute(sa.select(*columns).where(where)).mappings().first()
            if row is None:
                raise NotFoundError("there is no such token")
            connection.execute(sa.delete(tokens).where(where))
        return TokenRow(**row)

    def delete_tokens_of(self, user_id: int) -> int:
        """Take all tokens of a user away.

        Returns:
            How many.
        """
        with self._database.write() as connection:
            return int(connection.execute(sa.delete(tokens).where(tokens.c.user_id == user_id)).rowcount)

    def user_of_token(self, digest: str) -> tuple[TokenRow, UserRow] | None:
        """A token that has not run out, with its user; None when there is none."""
        found = self._database.rows(_OF_TOKEN, digest=digest)
        if not found:
            return None
        row = found[0]
        token = TokenRow(*row[len(_USER) :])
        if token.expires is not None and token.expires <= time.time():
            return None
        return token, user_from(row)

    def touch_token(self, number: int, used: float) -> None:
        """Keep when a token was used."""

        def work(connection: sa.engine.Connection) -> None:
            connection.execute(sa.update(tokens).where(tokens.c.id == number).values(used=used))

        self._database.write_batched(work, lasting=False)

    def _keep_one(self, connection: sa.engine.Connection, user: UserRow) -> None:
        """Refuse to lose the last administrator: nobody could make another on the page."""
        if user.role != "admin" or user.state != "active":
            return
        admins = sa.select(users.c.id).where(users.c.role == "admin", users.c.state == "active")
        # Two servers that each take one away must see each other; SQLite has one writer at a time by itself.
        query = admins.with_for_update() if self._database.dialect == "postgresql" else admins
        if len(connection.execute(query).all()) < 2:
            raise ConflictError(f"{user.name} is the last administrator", hint="make another one first")


def _taken(name: str) -> ConflictError:
    return ConflictError(f"there is a user {name!r} already", hint="take another name")


def _user(connection: sa.engine.Connection, where: sa.ColumnElement[bool]) -> UserRow:
    row = connection.execute(sa.select(users).where(where)).mappings().first()
    if row is None:
        raise NotFoundError("there is no such user", hint="tradewind user list shows all")
    return user_of(row)


def user_of(row: Mapping[Any, Any]) -> UserRow:
    """A user, of the columns of its table."""
    return user_from([row[name] for name in _USER])


def user_from(values: Sequence[Any]) -> UserRow:
    """A user, of a row that begins with `USER_COLUMNS`."""
    fields = dict(zip(_USER, values, strict=False))
    return UserRow(**{**fields, "settings": codec.loads(fields["settings"])})


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session of a browser.

    Attributes:
        digest: What is kept of its cookie.
        user_id: Whose it is.
        created: When the user signed in, seconds since the epoch.
        seen: When it was used last, to the minute.
        expires: When it ends unless it is used.
        address: Where the user signed in from.
        agent: What the browser calls itself.
    """

    digest: str
    user_id: int
    created: float
    seen: float
    expires: float
    address: str = ""
    agent: str = ""


# Every call of a page asks this: it is put together once.
_BY_DIGEST = (
    sa.select(*USER_COLUMNS, *(sessions.c[name] for name in SessionRow.__dataclass_fields__))
    .join_from(sessions, users, sessions.c.user_id == users.c.id)
    .where(sessions.c.digest == sa.bindparam("shown"))
)


class SessionStore:
    """The tables of sessions and of attempts to sign in.

    Args:
        database: The open database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, session: SessionRow) -> None:
        """Add a session; those that have run out are deleted."""
        with self._database.write() as connection:
            connection.execute(sa.delete(sessions).where(sessions.c.expires <= session.created))
            values = {name: getattr(session, name) for name in SessionRow.__dataclass_fields__}
            connection.execute(sa.insert(sessions).values(values))

    def find(self, digest: str) -> tuple[SessionRow, UserRow] | None:
        """A session that has not run out, with its user; None when there is none."""
        with self._database.read() as connection:
            row = connection.execute(_BY_DIGEST, {"shown": digest}).first()
        if row is None:
            return None
        session = SessionRow(*row[len(USER_COLUMNS) :])
        return None if session.expires <= time.time() else (session, user_from(row))

    def touch(self, digest: str, seen: float, expires: float) -> None:
        """Keep that a session was used, and until when it lasts now."""

        def work(connection: sa.engine.Connection) -> None:
            there = sessions.c.digest == digest
            connection.execute(sa.update(sessions).where(there).values(seen=seen, expires=expires))

        self._database.write_batched(work, lasting=False)  # after a power cut it ends a little earlier

    def of_user(self, user_id: int) -> list[SessionRow]:
        """The sessions of a user that have not run out, the newest first."""
        query = sa.select(sessions).where(sessions.c.user_id == user_id, sessions.c.expires > time.time())
        with self._database.read() as connection:
            found = connection.execute(query.order_by(sessions.c.created.desc())).mappings().all()
        return [SessionRow(**row) for row in found]

    def delete(self, digest: str) -> bool:
        """End a session.

        Returns:
            Whether there was one.
        """
        with self._database.write() as connection:
            return bool(connection.execute(sa.delete(sessions).where(sessions.c.digest == digest)).rowcount)

    def delete_of(self, user_id: int, *, but: str = "") -> int:
        """End all sessions of a user.

        Args:
            user_id: Whose.
            but: The digest of one that stays.

        Returns:
            How many.
        """
        query = sa.delete(sessions).where(sessions.c.user_id == user_id, sessions.c.digest != but)
        with self._database.write() as connection:
            return int(connection.execute(query).rowcount)

    def attempt(self, limits: Mapping[str, int], window: float) -> float:
        """Count an attempt under several keys at once, unless one of them has had its number.

        Servers that share the database count together. An attempt that is refused is not counted.

        Args:
            limits: How many attempts each key may have within the window.
            window: Seconds.

        Returns:
            0 where it was counted; else the seconds after which it may be tried again.
        """
        with self._database.write(lasting=False) as connection:
            if self._database.dialect == "postgresql":  # SQLite has one writer at a time by itself
                for key in sorted(limits):
                    connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_number(key))))
            now, wait = time.time(), 0.0
            # One that is far ahead was counted while the clock was wrong: it would keep somebody out until then.
            far = (attempts.c.at <= now - window) | (attempts.c.at > now + window)
            connection.execute(sa.delete(attempts).where(far))
            for key, most in limits.items():
                query = sa.select(attempts.c.at).where(attempts.c.key == key).order_by(attempts.c.at.desc())
                # The one of which the going makes room.
                oldest = connection.execute(query.offset(most - 1).limit(1)).scalar()
                wait = max(wait, 0.0 if oldest is None else oldest + window - now)
            if wait <= 0:
                connection.execute(sa.insert(attempts), [{"key": key, "at": now} for key in limits])
        return wait

    def forgive(self, keys: Sequence[str]) -> None:
        """Forget the attempts under some keys: the last one succeeded."""
        with self._database.write(lasting=False) as connection:
            connection.execute(sa.delete(attempts).where(attempts.c.key.in_(keys)))


def _number(key: str) -> int:
    """A signed number of 64 bits, as PostgreSQL names its locks."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big", signed=True)
