"""Requests and their events as rows of the tables, and back."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from tradewind.errors import NotFoundError, StoreError
from tradewind.store import codec
from tradewind.store.service.request_values import DELETED, NewRequestEvent, RequestEvent, RequestRow
from tradewind.store.sql.database import Database
from tradewind.store.sql.schema import applications, request_events, requests, users
from tradewind.store.studies import rows

_EVENTS_LOCK = 0x7477657665  # "tweve": who writes events in PostgreSQL holds this advisory lock until it commits


_DOCUMENTS = frozenset({"document", "progress", "plan"})
_JOINED = frozenset({"user", "application"})
REQUEST_FIELDS = tuple(name for name in RequestRow.__dataclass_fields__ if name not in _JOINED)
_READ = (*REQUEST_FIELDS, "user")
_CHANGEABLE = frozenset(REQUEST_FIELDS) - {"id", "tenant", "user_id", "created", "hold_holder", "hold_expires"}
REQUEST_QUERY = sa.select(
    *(requests.c[name] for name in REQUEST_FIELDS),
    users.c.name.label("user"),
    applications.c.name.label("application"),
    applications.c.version.label("version"),
).select_from(requests.join(users, users.c.id == requests.c.user_id).outerjoin(applications))
REQUEST_QUERY = REQUEST_QUERY.where(requests.c.state != DELETED)
# What programs ask all the time is put together once.
REQUEST_BY_NUMBER = REQUEST_QUERY.where(requests.c.id == sa.bindparam("number"))
_LIMIT: sa.BindParameter[int] = sa.bindparam("limit")
_TENANT = requests.c.tenant == sa.bindparam("tenant")
_NEWEST = REQUEST_QUERY.order_by(requests.c.id.desc()).limit(_LIMIT)
_STAMPS = sa.select(requests.c.id, requests.c.updated).where(requests.c.state != DELETED)
_STAMPS = _STAMPS.order_by(requests.c.id.desc()).limit(_LIMIT)
_SINCE = sa.select(request_events).where(request_events.c.id > sa.bindparam("since"))
_SINCE = _SINCE.order_by(request_events.c.id).limit(_LIMIT)
_MINE = request_events.c.request_id == sa.bindparam("number")
QueryPair = tuple[sa.Select[Any], sa.Select[Any]]
"""A query of all tenants, and of the ``tenant`` that is given."""
NEWEST: QueryPair = (_NEWEST, _NEWEST.where(_TENANT))
STAMPS: QueryPair = (_STAMPS, _STAMPS.where(_TENANT))
SINCE: QueryPair = (_SINCE, _SINCE.join(requests).where(_TENANT))
SINCE_OF_ONE: QueryPair = (SINCE[0].where(_MINE), SINCE[1].where(_MINE))
ADD_EVENT = sa.insert(request_events)
_EVENTS_LOCK_QUERY = sa.select(sa.func.pg_advisory_xact_lock(_EVENTS_LOCK))
EVENT_COLUMNS = tuple(column.name for column in request_events.c)


def request_where(connection: Connection, where: sa.ColumnElement[bool], *, lock: bool = False) -> RequestRow:
    """The request that a condition holds for.

    Raises:
        NotFoundError: There is none.
    """
    query = REQUEST_QUERY.where(where)
    row = connection.execute(query.with_for_update(of=requests) if lock else query).first()
    if row is None:
        raise request_not_found()
    return request_of(row)


def request_not_found() -> NotFoundError:
    """The answer to a number that no request has."""
    return NotFoundError("there is no such request", hint="the list of requests shows all of yours")


def event_of(row: Sequence[Any]) -> RequestEvent:
    """The event of a row of the table."""
    fields = dict(zip(EVENT_COLUMNS, row, strict=True))
    return RequestEvent(**{**fields, "details": codec.loads(fields["details"])})


def add_events(connection: Connection, number: int, remarks: Sequence[NewRequestEvent]) -> None:
    """Store events of a request, within a transaction that has changed its row."""
    if not remarks:
        return
    if connection.dialect.name == "postgresql":
        # Numbers are given when a row is written: without the lock, a smaller one might be committed after a larger.
        connection.execute(_EVENTS_LOCK_QUERY)
    connection.execute(ADD_EVENT, event_values(number, remarks))


def last_event_number(database: Database) -> int:
    """Number of the newest event of all requests; 0 when there is none."""
    with database.read() as connection:
        return int(connection.scalar(sa.select(sa.func.max(request_events.c.id))) or 0)


def event_values(number: int, remarks: Sequence[NewRequestEvent]) -> list[dict[str, Any]]:
    """What is noted of a request, as the values of the columns."""
    now = time.time()
    return [
        {
            "request_id": number,
            "at": now if remark.at is None else remark.at,
            "stage": remark.stage,
            "text": rows.storable_text(remark.text),
            "details": codec.dumps(dict(remark.details)),
        }
        for remark in remarks
    ]


def column_values(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a request as the values of its columns.

    Raises:
        StoreError: There is no such field, or it cannot be changed.
    """
    unknown = sorted(set(fields) - _CHANGEABLE - {"tenant", "user_id", "created"})
    if unknown:
        raise StoreError(f"a request's {unknown[0]!r} cannot be changed")
    return {
        name: codec.dumps(value)
        if name in _DOCUMENTS
        else rows.storable_text(value)
        if isinstance(value, str)
        else value
        for name, value in fields.items()
    }


def request_of(row: Any) -> RequestRow:
    """The request of a row of `REQUEST_QUERY`."""
    *values, application, version = row
    fields = dict(zip(_READ, values, strict=True))
    for name in _DOCUMENTS:
        text = fields[name]
        fields[name] = codec.loads(text) if text != "{}" else {}
    return RequestRow(**fields, application=f"{application}@{version}" if application else "")
