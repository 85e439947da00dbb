"""Requests and their events as rows of the tables, and back."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from tradewind.errors import NotFoundError, StoreError
from tradewind.store import codec, rows
from tradewind.store.schema import applications, request_events, requests, users

Kind = Literal["run", "search"]
Wanted = Literal["run", "cancel", "delete"]

ACTIVE = ("booting", "bootstrapping", "submitting", "executing", "collecting")
"""The states of a request that is being carried out, in their order."""

OPEN = ("pending", *ACTIVE)
"""The states of a request that is not over."""

ENDED = ("done", "failed", "timed_out", "preempted", "cancelled")
"""The states of a request that is over."""

DELETED = "deleted"
"""The state of what is left of a request that was removed."""

_EVENTS_LOCK = 0x7477657665  # "tweve": who writes events in PostgreSQL holds this advisory lock until it commits


@dataclass(frozen=True, slots=True)
class RequestRow:
    """A request.

    Attributes:
        id: The store's own number; 0 before it is stored.
        tenant: Whose it is.
        user_id: Number of the user who made it.
        kind: ``run`` (one run) or ``search`` (a study with a budget).
        document: What was asked, as it was given.
        name: What the user calls it.
        key: The user's own key: a second request with the same one is the first.
        application_id: Number of the version of the application that it is of, or None.
        state: ``pending``, a stage of `ACTIVE`, or one of `ENDED`.
        wanted: What becomes of it: ``run``, ``cancel`` or ``delete``.
        problem: Why it did not end well; empty where it did, or has not ended.
        hint: What to do about that; may be empty.
        cost: USD that it has cost so far, total.
        reserved: USD that it may have cost in all when this attempt ends: they count against its tenant's quota while
            it is carried out. 0 where the tenant has none.
        study_id: Its study, from before anything is created for it, or None.
        cluster: The shared cluster that it goes to; empty for one that a server carries out itself.
        cluster_job: Its search in the queue of that cluster, or None.
        created: When it was made, seconds since the epoch.
        updated: When its row last changed.
        started: When it was first carried out, or None.
        ended: When it was over, or None.
        progress: How far it is, for people: trials, best, spent, stage, why it waits.
        plan: What was decided before it began: its configuration.
        hold_holder: Who carries it out (host, pid and start), or None.
        hold_expires: When another one may take it over, or None.
        user: Name of the user who made it; read only.
        application: ``name@version`` of its application, or empty; read only.
    """

    id: int
    tenant: str
    user_id: int
    kind: Kind
    document: Mapping[str, Any]
    name: str = ""
    key: str | None = None
    application_id: int | None = None
    state: str = "pending"
    wanted: Wanted = "run"
    problem: str = ""
    hint: str = ""
    cost: float = 0.0
    reserved: float = 0.0
    study_id: int | None = None
    cluster: str = ""
    cluster_job: int | None = None
    created: float = 0.0
    updated: float = 0.0
    started: float | None = None
    ended: float | None = None
    progress: Mapping[str, Any] = field(default_factory=dict)
    plan: Mapping[str, Any] = field(default_factory=dict)
    hold_holder: str | None = None
    hold_expires: float | None = None
    user: str = ""
    application: str = ""

    @property
    def over(self) -> bool:
        """Whether nothing more happens to it by itself."""
        return self.state in ENDED


@dataclass(frozen=True, slots=True)
class RequestEvent:
    """Something that happened to a request.

    Attributes:
        id: The store's own number: events are committed in its order, so that a reader who has seen one has seen all
            before it.
        request_id: The request.
        at: Seconds since the epoch.
        stage: The request's state from then on.
        text: What happened, in words.
        details: Facts by name.
    """

    id: int
    request_id: int
    at: float
    stage: str
    text: str
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Remark:
    """An event that is not stored yet.

    Attributes:
        stage: The request's state from then on.
        text: What happened, in words.
        details: Facts by name.
        at: Seconds since the epoch; now without it.
    """

    stage: str
    text: str
    details: Mapping[str, Any] = field(default_factory=dict)
    at: float | None = None


_DOCUMENTS = frozenset({"document", "progress", "plan"})
_JOINED = frozenset({"user", "application"})
FIELDS = tuple(name for name in RequestRow.__dataclass_fields__ if name not in _JOINED)
_CHANGEABLE = frozenset(FIELDS) - {"id", "tenant", "user_id", "created", "hold_holder", "hold_expires"}
QUERY = sa.select(
    *(requests.c[name] for name in FIELDS),
    users.c.name.label("user"),
    applications.c.name.label("application"),
    applications.c.version.label("version"),
).select_from(requests.join(users, users.c.id == requests.c.user_id).outerjoin(applications))
QUERY = QUERY.where(requests.c.state != DELETED)


def one(connection: Connection, where: sa.ColumnElement[bool], *, lock: bool = False) -> RequestRow:
    """The request that a condition holds for.

    Raises:
        NotFoundError: There is none.
    """
    query = QUERY.where(where)
    row = connection.execute(query.with_for_update(of=requests) if lock else query).first()
    if row is None:
        raise NotFoundError("there is no such request", hint="the list of requests shows all of yours")
    return read(row)


def note(connection: Connection, number: int, remarks: Sequence[Remark]) -> None:
    """Store events of a request, within a transaction that has changed its row."""
    if not remarks:
        return
    if connection.dialect.name == "postgresql":
        # Numbers are given when a row is written: without the lock, a smaller one might be committed after a larger.
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_EVENTS_LOCK)))
    now = time.time()
    values = [
        {
            "request_id": number,
            "at": now if remark.at is None else remark.at,
            "stage": remark.stage,
            "text": rows.text(remark.text),
            "details": codec.dumps(dict(remark.details)),
        }
        for remark in remarks
    ]
    connection.execute(sa.insert(request_events), values)


def written(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a request as the values of its columns.

    Raises:
        StoreError: There is no such field, or it cannot be changed.
    """
    unknown = sorted(set(fields) - _CHANGEABLE - {"tenant", "user_id", "created"})
    if unknown:
        raise StoreError(f"a request's {unknown[0]!r} cannot be changed")
    return {
        name: codec.dumps(value) if name in _DOCUMENTS else rows.text(value) if isinstance(value, str) else value
        for name, value in fields.items()
    }


def read(row: Any) -> RequestRow:
    """The request of a row."""
    values = dict(row._mapping)
    version = values.pop("version")
    values["application"] = f"{values['application']}@{version}" if values["application"] else ""
    for name in _DOCUMENTS:
        values[name] = json.loads(values[name])
    return RequestRow(**values)
