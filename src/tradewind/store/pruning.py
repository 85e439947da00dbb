"""Finds and removes what is older than people want to keep it."""

from __future__ import annotations

import time

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from tradewind.store.service.requests import ENDED
from tradewind.store.sql.database import Database
from tradewind.store.sql.schema import attempts, audit, links, notices, requests, sessions, tokens

_AT_ONCE = 100


class PruningStore:
    """What may be removed.

    Args:
        database: The open database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def ended(self, before: float, *, after: int = 0) -> list[int]:
        """Numbers of requests that were over before a moment, rising.

        Args:
            before: Seconds since the epoch.
            after: Only larger numbers: the next page.
        """
        query = sa.select(requests.c.id).where(_over(before), requests.c.id > after).order_by(requests.c.id)
        with self._database.read() as connection:
            return list(connection.scalars(query.limit(_AT_ONCE)))

    def count_ended(self, before: float) -> int:
        """How many requests were over before a moment."""
        with self._database.read() as connection:
            return int(connection.scalar(sa.select(sa.func.count()).select_from(requests).where(_over(before))) or 0)

    def count_rest(self, before: float) -> dict[str, int]:
        """How much else is older than a moment, or has run out, by kind."""
        with self._database.read() as connection:
            return {
                name: int(connection.scalar(sa.select(sa.func.count()).select_from(table).where(where)) or 0)
                for name, table, where in _other_rows(before)
            }

    def remove_rest(self, before: float) -> dict[str, int]:
        """Remove what else is older than a moment, or has run out.

        Returns:
            How much, by kind.
        """
        found = {}
        for name, table, where in _other_rows(before):
            with self._database.write() as connection:
                found[name] = _delete_rows(connection, table, where)
        with self._database.write() as connection:
            _delete_rows(connection, attempts, attempts.c.at < time.time() - 86400.0)
        return found


def _over(before: float) -> sa.ColumnElement[bool]:
    return requests.c.state.in_(ENDED) & (requests.c.ended < before)


def _other_rows(before: float) -> list[tuple[str, sa.Table, sa.ColumnElement[bool]]]:
    now = time.time()
    told = notices.c.request_id.is_(None) & notices.c.state.in_(("sent", "failed")) & (notices.c.ended < before)
    return [
        ("notices", notices, told),
        ("links", links, links.c.expires < now),
        ("sessions", sessions, sessions.c.expires < now),
        ("tokens", tokens, tokens.c.expires < now),
        ("audit", audit, audit.c.at < before),
    ]


def _delete_rows(connection: Connection, table: sa.Table, where: sa.ColumnElement[bool]) -> int:
    return int(connection.execute(sa.delete(table).where(where)).rowcount)
