"""Queries of requests, each put together once; requests and events as rows of the tables, and back."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from tradewind.errors import NotFoundError, StoreError
from tradewind.store import codec
from tradewind.store.service.request_values import DELETED, OPEN, NewRequestEvent, RequestEvent, RequestRow
from tradewind.store.sql.database import Database
from tradewind.store.sql.leases import REQUEST_LEASES
from tradewind.store.sql.schema import (
    applications,
    cluster_jobs,
    leases,
    request_events,
    requests,
    studies,
    tenants,
    users,
)
from tradewind.store.studies import rows

_CLAIMING = 0x7477636C61  # "twcla": one at a time claims, or two would fill the same quota


class RequestHold(NamedTuple):
    """The lease of a request, as `WAITING_OR_HELD` and `HELD_REQUESTS` give it.

    Attributes:
        id: The request.
        hold_token: Proves it; None where nobody does.
        hold_holder: Host, pid and start time of the process.
        hold_expires: Seconds since the epoch.
        cluster: The shared cluster that it goes to, or empty.
    """

    id: int
    hold_token: str | None
    hold_holder: str | None
    hold_expires: float | None
    cluster: str


_request = requests.c
_NUMBER = _request.id == sa.bindparam("number")
_OF_TENANT = _request.tenant == sa.bindparam("tenant")
# Not IN: a list is put into the text anew each time, and `Database.rows` takes a text that stays.
_OPEN = sa.or_(*(_request.state == sa.literal(state) for state in OPEN))
_PENDING = _request.state == sa.literal("pending")
HELD = _OPEN & REQUEST_LEASES.held
_WAITS = _PENDING & ~REQUEST_LEASES.held
_ALONE = _request.cluster == sa.literal("")
_FOR_CLUSTER = _request.cluster != sa.literal("")

_with_leases = requests.outerjoin(leases, REQUEST_LEASES.of_row)
_free = leases.c.token.is_(None)
_lease = [leases.c[name].label(f"hold_{name}") for name in ("token", "holder", "expires")]
_of_hold = sa.select(_request.id, *_lease, _request.cluster).select_from(_with_leases).where(_OPEN)
_look = _of_hold.order_by(~_free).limit(sa.bindparam("limit"))

WAITING_OR_HELD = {True: _look.where(_PENDING | ~_free), False: _look.where((_PENDING & _FOR_CLUSTER) | ~_free)}
"""What waits, and what is held, by whether there is room for more than those for clusters; ``limit`` rows."""

HELD_REQUESTS = _of_hold.where(~_free).order_by(_request.id)
STILL_WAITS = sa.select(_request.id).where(_PENDING, _NUMBER).with_for_update(skip_locked=True)
WAITING_OF_TENANT = sa.select(_request.id).where(_WAITS, _OF_TENANT, _ALONE).order_by(_request.id)
INTENTS = sa.select(_request.id, _request.wanted).where(HELD)
INTENT_BY_NUMBER = sa.select(_request.wanted).where(_NUMBER)
TENANT_LIMITS = sa.select(tenants.c.weight, tenants.c.quota).where(tenants.c.name == sa.bindparam("tenant"))
RUNNING_BY_TENANT = sa.select(_request.tenant, sa.func.count().label("running")).where(HELD, _ALONE)
RUNNING_BY_TENANT = RUNNING_BY_TENANT.group_by(_request.tenant)

_columns = [_request[name] for name in ("id", "tenant", "plan", "cost", "cluster")]
_with_tenant = sa.select(*_columns, tenants.c.weight, tenants.c.quota)
_with_tenant = _with_tenant.select_from(requests.outerjoin(tenants, tenants.c.name == _request.tenant))
_with_tenant = _with_tenant.order_by(_request.id)
_first = sa.select(sa.func.min(_request.id)).where(_WAITS).group_by(_request.tenant)
FIRST_FOR_CLUSTERS = _with_tenant.where(_request.id.in_(_first.where(_FOR_CLUSTER)))
FIRST_OF_TENANTS = _with_tenant.where(_request.id.in_(_first.where(_ALONE)))
"""The oldest request of each tenant: of many that wait for its money, only one is looked at."""

ADD_STUDY = sa.insert(studies)
ADD_JOB = sa.insert(cluster_jobs)
CLAIM_LOCK = sa.select(sa.func.pg_advisory_xact_lock(_CLAIMING))


_EVENTS_LOCK = 0x7477657665  # "tweve": who writes events in PostgreSQL holds this advisory lock until it commits


_DOCUMENTS = frozenset({"document", "progress", "plan"})
_LEASE = ("hold_holder", "hold_expires")
_JOINED = frozenset({"user", "application", *_LEASE})
REQUEST_FIELDS = tuple(name for name in RequestRow.__dataclass_fields__ if name not in _JOINED)
_READ = (*REQUEST_FIELDS, *_LEASE, "user")
_CHANGEABLE = frozenset(REQUEST_FIELDS) - {"id", "tenant", "user_id", "created"}
_made_from = applications.c.id == requests.c.application_id
REQUEST_QUERY = sa.select(
    *(requests.c[name] for name in REQUEST_FIELDS),
    *_lease[1:],
    users.c.name.label("user"),
    applications.c.name.label("application"),
    applications.c.version.label("version"),
).select_from(_with_leases.join(users, users.c.id == requests.c.user_id).outerjoin(applications, _made_from))
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
    """New events of a request as the values of the columns."""
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
