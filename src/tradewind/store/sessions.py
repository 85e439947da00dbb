"""What the service keeps of those who have signed in, and of attempts to."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from tradewind.store.service.accounts import USER_COLUMNS, UserRow, user_from
from tradewind.store.sql.database import Database
from tradewind.store.sql.schema import attempts, sessions, users


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

        self._database.together(work, lasting=False)  # after a power cut it ends a little earlier

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
