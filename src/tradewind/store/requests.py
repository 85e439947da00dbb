"""What the service keeps of its requests: what was asked, how far it is, and what happened to it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from tradewind.errors import ConflictError, NotFoundError, StoreError
from tradewind.store import codec, rows
from tradewind.store.database import Database
from tradewind.store.schema import applications, links, notices, request_events, requests, users

Kind = Literal["run", "search"]
Wanted = Literal["run", "cancel", "delete"]

ACTIVE = ("booting", "bootstrapping", "submitting", "executing", "collecting")
"""The states of a request that is being carried out, in their order."""

OPEN = ("pending", *ACTIVE)
"""The states of a request that is not over."""

ENDED = ("done", "failed", "timed_out", "preempted", "cancelled")
"""The states of a request that is over."""

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
        reserved: USD of its tenant's quota that are set aside for it while it is carried out.
        study_id: Its study, from before anything is created for it, or None.
        cluster_job: Its search in the queue of a shared cluster, or None.
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
_FIELDS = tuple(name for name in RequestRow.__dataclass_fields__ if name not in _JOINED)
_CHANGEABLE = frozenset(_FIELDS) - {"id", "tenant", "user_id", "created", "hold_holder", "hold_expires"}
_QUERY = sa.select(
    *(requests.c[name] for name in _FIELDS),
    users.c.name.label("user"),
    applications.c.name.label("application"),
    applications.c.version.label("version"),
).select_from(requests.join(users, users.c.id == requests.c.user_id).outerjoin(applications))


class RequestStore:
    """The tables of requests, as those who make them and watch them see it.

    Args:
        database: The open database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, row: RequestRow, remark: Remark) -> tuple[RequestRow, bool]:
        """Add a request.

        Returns:
            It, and whether it is new: a second one with the same key of the same user is the first.

        Raises:
            ConflictError: The same key was used for something else.
        """
        now = time.time()
        values = {name: getattr(row, name) for name in _FIELDS if name not in ("id", "hold_holder", "hold_expires")}
        values |= {"created": row.created or now, "updated": now}
        with self._database.write() as connection:
            if row.key is not None and (there := self._of_key(connection, row)) is not None:
                return there, False
            try:
                with connection.begin_nested():
                    result = connection.execute(sa.insert(requests).values(written(values)))
            except sa.exc.IntegrityError:  # on PostgreSQL another one may have been quicker
                there = self._of_key(connection, row) if row.key is not None else None
                if there is None:
                    raise
                return there, False
            (number,) = result.inserted_primary_key or (0,)
            note(connection, number, [remark])
            return one(connection, requests.c.id == number), True

    def _of_key(self, connection: Connection, row: RequestRow) -> RequestRow | None:
        mine = (requests.c.user_id == row.user_id) & (requests.c.key == rows.text(row.key or ""))
        found = connection.execute(_QUERY.where(mine)).first()
        if found is None:
            return None
        there = read(found)
        if there.document != json.loads(codec.dumps(dict(row.document))):
            raise ConflictError(
                f"the key {row.key!r} is that of request {there.id}, which is another one",
                hint="a key stands for one request: use a new one",
            )
        return there

    def get(self, number: int) -> RequestRow:
        """One request.

        Raises:
            NotFoundError: There is none.
        """
        with self._database.read() as connection:
            return one(connection, requests.c.id == number)

    def page(
        self,
        *,
        tenant: str | None = None,
        states: Sequence[str] = (),
        application: str = "",
        text: str = "",
        before: int | None = None,
        limit: int = 50,
    ) -> list[RequestRow]:
        """Requests, the newest first.

        Args:
            tenant: Only of this one.
            states: Only in these.
            application: Only of this application: ``name`` or ``name@version``.
            text: Only those that have it in their name, or as their number.
            before: Only those with a smaller number: the next page.
            limit: So many at most.
        """
        query = _QUERY.order_by(requests.c.id.desc()).limit(limit)
        if tenant is not None:
            query = query.where(requests.c.tenant == tenant)
        if states:
            query = query.where(requests.c.state.in_(states))
        if application:
            name, _, version = rows.text(application).partition("@")
            query = query.where(applications.c.name == name)
            if version:
                query = query.where(applications.c.version == (int(version) if version.isdecimal() else -1))
        if text:
            found = requests.c.name.icontains(rows.text(text), autoescape=True)
            query = query.where(found | (requests.c.id == int(text)) if _is_number(text) else found)
        if before is not None:
            query = query.where(requests.c.id < before)
        with self._database.read() as connection:
            return [read(row) for row in connection.execute(query)]

    def events(
        self, *, tenant: str | None = None, request_id: int | None = None, since: int = 0, limit: int = 500
    ) -> list[RequestEvent]:
        """What happened after an event, the oldest first.

        Args:
            tenant: Only to requests of this one.
            request_id: Only to this one.
            since: Number of the last event that is known.
            limit: So many at most.
        """
        query = sa.select(request_events).where(request_events.c.id > since).order_by(request_events.c.id).limit(limit)
        if request_id is not None:
            query = query.where(request_events.c.request_id == request_id)
        if tenant is not None:
            query = query.join(requests).where(requests.c.tenant == tenant)
        with self._database.read() as connection:
            found = connection.execute(query).mappings().all()
        return [RequestEvent(**{**row, "details": json.loads(row["details"])}) for row in found]

    def last_event(self) -> int:
        """Number of the newest event; 0 when there is none."""
        with self._database.read() as connection:
            return int(connection.scalar(sa.select(sa.func.max(request_events.c.id))) or 0)

    def change_free(self, number: int, states: Sequence[str], fields: Mapping[str, Any], remark: Remark) -> RequestRow:
        """Change a request that nobody carries out.

        Args:
            number: The request.
            states: The states that it must be in.
            fields: What to change, by name.
            remark: What to note with it.

        Raises:
            NotFoundError: There is none.
            ConflictError: It is in another state, or somebody carries it out.
        """
        with self._database.write() as connection:
            where = (requests.c.id == number) & requests.c.state.in_(states) & requests.c.hold_token.is_(None)
            values = {**written(fields), "updated": time.time()}
            if not connection.execute(sa.update(requests).where(where).values(values)).rowcount:
                row = one(connection, requests.c.id == number)
                raise ConflictError(f"request {number} is {row.state}", hint="ask again for how far it is")
            note(connection, number, [remark])
            return one(connection, requests.c.id == number)

    def want(self, number: int, wanted: Wanted, remark: Remark) -> RequestRow:
        """Say what becomes of a request that somebody carries out; a wish to delete it is not taken back.

        Raises:
            NotFoundError: There is none.
        """
        with self._database.write() as connection:
            free = (requests.c.id == number) & (requests.c.wanted != "delete") & (requests.c.wanted != wanted)
            values = {"wanted": wanted, "updated": time.time()}
            if connection.execute(sa.update(requests).where(free).values(values)).rowcount:
                note(connection, number, [remark])
            return one(connection, requests.c.id == number)

    def remove(self, number: int, token: str | None) -> RequestRow:
        """Remove a request with its events, links and notices; its study and what it has spent stay.

        Args:
            number: The request.
            token: Of who carries it out; None for one that nobody carries out.

        Raises:
            NotFoundError: There is none.
            ConflictError: Somebody else carries it out.
        """
        with self._database.write() as connection:
            row = one(connection, requests.c.id == number, lock=True)
            mine = requests.c.hold_token.is_(None) if token is None else requests.c.hold_token == token
            if connection.execute(sa.select(requests.c.id).where(requests.c.id == number, mine)).first() is None:
                raise ConflictError(f"request {number} is being carried out", hint="it is removed when that is over")
            for table in (request_events, links, notices):
                connection.execute(sa.delete(table).where(table.c.request_id == number))
            connection.execute(sa.delete(requests).where(requests.c.id == number))
            return row


def one(connection: Connection, where: sa.ColumnElement[bool], *, lock: bool = False) -> RequestRow:
    """The request that a condition holds for.

    Raises:
        NotFoundError: There is none.
    """
    query = _QUERY.where(where)
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


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10
