"""Figures of the store and the service, and the removal of old rows, for those who run a server."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from tradewind.store.service.requests import ENDED
from tradewind.store.service.shared_values import add_value
from tradewind.store.sql.database import Database
from tradewind.store.sql.schema import (
    REVISIONS,
    VERSION_TABLE,
    attempts,
    audit,
    leases,
    links,
    notices,
    requests,
    service_values,
    sessions,
    tokens,
    users,
)

_AT_ONCE = 100


class PruningStore:
    """Finds and removes what is older than people want to keep it.

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
        """The number of requests that were over before a moment."""
        with self._database.read() as connection:
            return int(connection.scalar(sa.select(sa.func.count()).select_from(requests).where(_over(before))) or 0)

    def count_rest(self, before: float) -> dict[str, int]:
        """The number of other rows that are older than a moment, or have run out, by kind."""
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
    old_notices = notices.c.request_id.is_(None) & notices.c.state.in_(("sent", "failed")) & (notices.c.ended < before)
    return [
        ("notices", notices, old_notices),
        ("links", links, links.c.expires < now),
        ("sessions", sessions, sessions.c.expires < now),
        ("tokens", tokens, tokens.c.expires < now),
        ("audit", audit, audit.c.at < before),
    ]


def _delete_rows(connection: Connection, table: sa.Table, where: sa.ColumnElement[bool]) -> int:
    return int(connection.execute(sa.delete(table).where(where)).rowcount)


_PROBE = "operations.probe"


@dataclass(frozen=True, slots=True)
class ServiceMetrics:
    """Counts and ages of the service's requests and notices.

    Attributes:
        requests: Requests by state.
        oldest: Seconds that the oldest waiting request has waited.
        spent: USD that all requests have cost.
        reserved: USD that are set aside for those that are carried out.
        durations: By state of those that are over: how many, and their seconds from start to end together.
        held: Requests that somebody carries out now.
        lost: Requests whose holder is silent for longer than its lease.
        notices: Notices by kind and state.
        overdue: Seconds that the oldest notice is due for.
    """

    requests: dict[str, int] = field(default_factory=dict)
    oldest: float = 0.0
    spent: float = 0.0
    reserved: float = 0.0
    durations: dict[str, tuple[int, float]] = field(default_factory=dict)
    held: int = 0
    lost: int = 0
    notices: dict[tuple[str, str], int] = field(default_factory=dict)
    overdue: float = 0.0


class OperationsStore:
    """Questions of those who run a server.

    Args:
        database: The open database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def has_users(self) -> bool:
        """True when there is a user."""
        with self._database.read() as connection:
            return connection.execute(sa.select(users.c.id).limit(1)).first() is not None

    def probe(self) -> None:
        """Write something, to see whether that is possible.

        Raises:
            StoreError: It is not.
        """
        with self._database.write(lasting=False) as connection:
            add_value(connection, _PROBE, "")
            mine = service_values.c.name == _PROBE
            connection.execute(sa.update(service_values).where(mine).values(value=str(time.time())))

    def version(self) -> str:
        """The version of the schema."""
        version = sa.table(VERSION_TABLE, sa.column("version_num"))
        with self._database.read() as connection:
            return str(connection.scalar(sa.select(version.c.version_num)))

    @property
    def newest(self) -> str:
        """The version that this program works with."""
        return REVISIONS[-1]

    def figures(self) -> ServiceMetrics:
        """All `ServiceMetrics`, of one moment."""
        now = time.time()
        count = sa.func.count()
        with self._database.read() as connection:
            states = connection.execute(sa.select(requests.c.state, count).group_by(requests.c.state)).all()
            sums = sa.select(sa.func.sum(requests.c.cost), sa.func.sum(requests.c.reserved))
            spent, reserved = connection.execute(sums).one()
            waits = sa.select(sa.func.min(requests.c.created)).where(requests.c.state == "pending")
            oldest = connection.scalar(waits)
            took = sa.func.sum(requests.c.ended - requests.c.started)
            over = requests.c.ended.is_not(None) & requests.c.started.is_not(None)
            durations = connection.execute(
                sa.select(requests.c.state, count, took).where(over).group_by(requests.c.state)
            ).all()
            holds = (leases.c.kind == "request") & leases.c.token.is_not(None)
            held = sa.func.sum(sa.case((leases.c.expires > now, 1), else_=0))
            alive, all_held = connection.execute(sa.select(held, count).where(holds)).one()
            of_notices = connection.execute(
                sa.select(notices.c.kind, notices.c.state, count).group_by(notices.c.kind, notices.c.state)
            ).all()
            due = connection.scalar(sa.select(sa.func.min(notices.c.due)).where(notices.c.state == "waiting"))
        return ServiceMetrics(
            requests={state: int(number) for state, number in states},
            oldest=max(0.0, now - oldest) if oldest is not None else 0.0,
            spent=float(spent or 0.0),
            reserved=float(reserved or 0.0),
            durations={state: (number, float(seconds or 0.0)) for state, number, seconds in durations},
            held=int(alive or 0),
            lost=int(all_held or 0) - int(alive or 0),
            notices={(kind, state): number for kind, state, number in of_notices},
            overdue=max(0.0, now - due) if due is not None else 0.0,
        )
