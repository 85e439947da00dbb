"""Stores notices to users in the order of the events that they are about, for any process to claim and send."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from tradewind.errors import TradewindError
from tradewind.store import codec
from tradewind.store.service.accounts import UserRow, user_of
from tradewind.store.service.request_queries import REQUEST_QUERY, event_of, request_of
from tradewind.store.service.requests import RequestEvent, RequestRow
from tradewind.store.service.shared_values import add_value
from tradewind.store.sql.database import Database
from tradewind.store.sql.leases import NOTICE_LEASES
from tradewind.store.sql.schema import leases, notices, request_events, requests, service_values, users
from tradewind.store.studies import rows

NoticeKind = Literal["email", "webhook"]
NoticeState = Literal["waiting", "sending", "sent", "failed"]

_log = logging.getLogger("tradewind.store")

_CURSOR = "notices.cursor"
_READ_AT_ONCE = 200


@dataclass(frozen=True, slots=True)
class NoticeRow:
    """A notice to one user by one channel.

    Attributes:
        id: The store's own number; 0 before it is stored.
        user_id: Whom it is for.
        kind: ``email`` or ``webhook``.
        target: The mail address, or the URL.
        document: The content of the notice, JSON-able.
        request_id: The request that it is about, or None.
        delivery: Its own name on the wire, the same for every attempt, so that a receiver knows a second one.
        state: ``waiting``, ``sending``, ``sent`` or ``failed``.
        problem: Why the last attempt went wrong.
        attempts: How often it was tried.
        created: Seconds since the epoch.
        due: When it is tried next.
        ended: When it was sent, or given up.
        hold_token: Of who sends it now.
    """

    id: int
    user_id: int
    kind: NoticeKind
    target: str
    document: Mapping[str, Any] = field(default_factory=dict)
    request_id: int | None = None
    delivery: str = ""
    state: NoticeState = "waiting"
    problem: str = ""
    attempts: int = 0
    created: float = 0.0
    due: float = 0.0
    ended: float | None = None
    hold_token: str | None = None


@dataclass(frozen=True, slots=True)
class RequestTransition:
    """Something that happened to a request.

    Attributes:
        event: The event.
        before: The request's state before it; empty for its first.
        request: The request as it is now.
        user: Whose it is.
    """

    event: RequestEvent
    before: str
    request: RequestRow
    user: UserRow


_FIELDS = tuple(NoticeRow.__dataclass_fields__)
_COLUMNS = [notices.c[name] for name in _FIELDS if name != "hold_token"]
_HELD = sa.select(1).where(NOTICE_LEASES.of_row, leases.c.token.is_not(None), leases.c.expires > sa.bindparam("now_"))


class NoticeStore:
    """The table of notices.

    Args:
        database: The open database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def gather(self, write: Callable[[RequestTransition], Iterable[NoticeRow]]) -> int:
        """Write the notices of what has happened since the last time; each event is looked at once, by one process.

        Args:
            write: The notices of an event. One for which it breaks, or gives what cannot be stored, is logged and has
                none: it holds up no others.

        Returns:
            How many events were looked at.
        """
        while (count := self._gather(write)) is None:  # another one was quicker, perhaps not with all of it
            pass
        return count

    def _gather(self, write: Callable[[RequestTransition], Iterable[NoticeRow]]) -> int | None:
        with self._database.read() as connection:
            query = sa.select(service_values.c.value).where(service_values.c.name == _CURSOR)
            known = connection.scalar(query)
            events = _events(connection, int(known or 0))
            if not events:
                return 0
            found = _transitions(connection, events)
        written = [values for happening in found for values in _composed(write, happening)]
        # Nobody waits for what was read and composed above, only for what is written.
        with self._database.write(lasting=bool(written)) as connection:
            add_value(connection, _CURSOR, "0")
            # Whoever else gathers waits here until this transaction is over, and then sees that it was done.
            locked = query.with_for_update() if self._database.dialect == "postgresql" else query
            if connection.scalar(locked) != (known or "0"):
                return None
            if written:
                connection.execute(sa.insert(notices), written)
            mine = service_values.c.name == _CURSOR
            connection.execute(sa.update(service_values).where(mine).values(value=str(events[-1][0])))
        return len(events)

    def add(self, notice: NoticeRow) -> NoticeRow:
        """Add a notice; its ``id`` and its ``delivery`` are set here."""
        with self._database.write() as connection:
            (number,) = connection.execute(sa.insert(notices).values(_values(notice))).inserted_primary_key or (0,)
            return _read(connection.execute(sa.select(*_COLUMNS).where(notices.c.id == number)).one())

    def claim(self, kind: NoticeKind, limit: int, seconds: float) -> list[NoticeRow]:
        """Take notices that are due; nobody else sends them until ``seconds`` are over.

        Args:
            kind: Only of this kind.
            limit: So many at most.
            seconds: After which another process takes over what this one did not end.
        """
        now, token = time.time(), secrets.token_hex(16)
        waits = (notices.c.state == "waiting") & (notices.c.due <= now)
        lost = (notices.c.state == "sending") & ~_HELD.correlate(notices).exists()
        mine = (notices.c.kind == kind) & (waits | lost)
        due = sa.select(notices.c.id).where(mine).order_by(notices.c.due, notices.c.id).limit(limit)
        with self._database.read() as connection:
            if limit < 1 or connection.execute(due.limit(1), {"now_": now}).first() is None:
                return []
        with self._database.write() as connection:
            taken: list[int] = []
            # Where another one has just taken all of these, there may be more.
            while not taken and (numbers := sorted(connection.scalars(due, {"now_": now}))):
                taken = [number for number in numbers if NOTICE_LEASES.take_free(connection, number, seconds, token)]
            still = notices.c.id.in_(taken) & (waits | (notices.c.state == "sending"))
            change = sa.update(notices).where(still).values(state="sending", attempts=notices.c.attempts + 1)
            begun = set(connection.scalars(change.returning(notices.c.id)))
            for number in set(taken) - begun:  # it was sent between the look at it and its lease
                NOTICE_LEASES.release(connection, number, token)
            query = sa.select(*_COLUMNS).where(notices.c.id.in_(begun)).order_by(notices.c.id)
            return [_read(row, token) for row in connection.execute(query)]

    def finish(self, notice: NoticeRow, *, problem: str = "", again: float | None = None) -> None:
        """Note how sending a notice ended; nothing is changed where another process has taken it over meanwhile.

        Args:
            notice: As `claim` gave it.
            problem: What went wrong; empty when it was sent.
            again: When it is tried next, seconds since the epoch; None for never.
        """
        state = "sent" if not problem else "failed" if again is None else "waiting"
        values: dict[str, Any] = {"state": state, "problem": rows.storable_text(problem)}
        values |= {"ended": time.time()} if again is None else {"due": again}
        with self._database.write() as connection:
            if notice.hold_token is not None and NOTICE_LEASES.release(connection, notice.id, notice.hold_token):
                connection.execute(NOTICE_LEASES.change, {"id_": notice.id, **values})

    def of_request(self, number: int) -> list[NoticeRow]:
        """The notices of a request, the oldest first."""
        query = sa.select(*_COLUMNS).where(notices.c.request_id == number).order_by(notices.c.id)
        with self._database.read() as connection:
            return [_read(row) for row in connection.execute(query)]

    def of_user(self, number: int, limit: int) -> list[NoticeRow]:
        """The last notices to a user, the newest first."""
        query = sa.select(*_COLUMNS).where(notices.c.user_id == number).order_by(notices.c.id.desc()).limit(limit)
        with self._database.read() as connection:
            return [_read(row) for row in connection.execute(query)]


def _transitions(connection: Connection, rows_read: Sequence[Sequence[Any]]) -> list[RequestTransition]:
    """The events among some that changed the state of a request; without those of requests that are gone."""
    events = [(event_of(row), before or "") for *row, before in rows_read]
    turned = [(one, before) for one, before in events if one.stage != before]
    numbers = {one.request_id for one, _ in turned}
    of = {row.id: row for row in map(request_of, connection.execute(REQUEST_QUERY.where(requests.c.id.in_(numbers))))}
    owners = {request.user_id for request in of.values()}
    known = connection.execute(sa.select(users).where(users.c.id.in_(owners))).mappings()
    by_id = {row["id"]: user_of(row) for row in known}
    there = [(one, before, of[one.request_id]) for one, before in turned if one.request_id in of]
    return [RequestTransition(one, before, request, by_id[request.user_id]) for one, before, request in there]


def _events(connection: Connection, since: int) -> Sequence[Sequence[Any]]:
    """Events after another one as rows, each with the stage before it at its end."""
    earlier = request_events.alias("earlier")
    before = (
        sa.select(earlier.c.stage)
        .where(earlier.c.request_id == request_events.c.request_id, earlier.c.id < request_events.c.id)
        .order_by(earlier.c.id.desc())
        .limit(1)
        .scalar_subquery()
    )
    query = sa.select(request_events, before.label("before")).where(request_events.c.id > since)
    return connection.execute(query.order_by(request_events.c.id).limit(_READ_AT_ONCE)).all()


def _composed(
    write: Callable[[RequestTransition], Iterable[NoticeRow]], happening: RequestTransition
) -> list[dict[str, Any]]:
    """The notices of one event, as the values of the columns."""
    try:
        return [_values(notice) for notice in write(happening)]
    except TradewindError:
        raise
    except Exception:
        _log.exception("no notice of event %d of request %d could be written", happening.event.id, happening.request.id)
        return []


def _values(notice: NoticeRow) -> dict[str, Any]:
    now = time.time()
    values = {name: getattr(notice, name) for name in _FIELDS if name not in ("id", "hold_token", "ended")}
    values |= {"document": codec.dumps(dict(notice.document)), "delivery": notice.delivery or secrets.token_hex(16)}
    values |= {"target": rows.storable_text(notice.target), "problem": rows.storable_text(notice.problem)}
    return values | {"created": notice.created or now, "due": notice.due or now}


def _read(row: Any, token: str | None = None) -> NoticeRow:
    values = dict(row._mapping)
    return NoticeRow(**{**values, "hold_token": token, "document": codec.loads(values["document"])})
