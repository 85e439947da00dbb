"""What the store tells about itself and the service, for those who run it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import sqlalchemy as sa

from tradewind.store.service.shared_values import add_value
from tradewind.store.sql.database import Database
from tradewind.store.sql.schema import REVISIONS, VERSION_TABLE, notices, requests, service_values, users

_PROBE = "operations.probe"


@dataclass(frozen=True, slots=True)
class ServiceMetrics:
    """How much there is, and how it goes.

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
        """Whether there is any user yet."""
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
        """How much there is, and how it goes, all of one moment."""
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
            holds = requests.c.hold_token.is_not(None)
            held = sa.func.sum(sa.case((requests.c.hold_expires > now, 1), else_=0))
            alive, all_held = connection.execute(sa.select(held, count).where(holds)).one()
            told = connection.execute(
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
            notices={(kind, state): number for kind, state, number in told},
            overdue=max(0.0, now - due) if due is not None else 0.0,
        )
