"""Stores requests: what was asked, how far each is, and its events; feeds new events to those who watch."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from tradewind.errors import ConflictError
from tradewind.store import codec
from tradewind.store.service.audit import AuditRow, insert_audit_row
from tradewind.store.service.request_parameters import ParameterCondition, numbers_that_meet, parameter_rows
from tradewind.store.service.request_queries import (
    NEWEST,
    REQUEST_BY_NUMBER,
    REQUEST_FIELDS,
    REQUEST_QUERY,
    SINCE,
    SINCE_OF_ONE,
    STAMPS,
    QueryPair,
    add_events,
    column_values,
    event_of,
    last_event_number,
    request_not_found,
    request_of,
    request_where,
)
from tradewind.store.service.request_values import (
    ACTIVE,
    DELETED,
    ENDED,
    OPEN,
    NewRequestEvent,
    RequestEvent,
    RequestIntent,
    RequestKind,
    RequestRow,
)
from tradewind.store.sql.database import Database
from tradewind.store.sql.leases import NOTICE_LEASES, REQUEST_LEASES
from tradewind.store.sql.notify import notify_workers
from tradewind.store.sql.schema import (
    applications,
    audit,
    links,
    notices,
    request_events,
    request_parameters,
    requests,
    runs,
)
from tradewind.store.studies import rows

_MOST_EVENTS = 1000


@dataclass(frozen=True, slots=True)
class TenantRequestEvent:
    """An event of a request, with what says who may see it.

    Attributes:
        id: The store's own number of it; events are committed in the order of their numbers.
        request_id: The request.
        tenant: Whose the request is.
        at: Seconds since the epoch.
        stage: The request's state from then on.
        text: What happened, in words.
        details: Facts by name.
    """

    id: int
    request_id: int
    tenant: str
    at: float
    stage: str
    text: str
    details: Mapping[str, Any]


class RequestEventFeed:
    """Reads what has happened since it was last asked; for one thread.

    On SQLite most looks cost one PRAGMA: it tells whether any process has written anything since the look before.

    Args:
        database: The open database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._file = None if database.path is None else sqlite3.connect(database.path, check_same_thread=False)
        self._version: int | None = None
        self.last = last_event_number(database)

    def look(self) -> list[TenantRequestEvent]:
        """The events since the last look, the oldest first; at most 1,000, the rest at the next look."""
        version = self._changed()
        if version is not None and version == self._version:
            return []
        columns = [request_events.c[name] for name in TenantRequestEvent.__dataclass_fields__ if name != "tenant"]
        query = (
            sa.select(*columns, requests.c.tenant)
            .join(requests, requests.c.id == request_events.c.request_id)
            .where(request_events.c.id > self.last)
            .order_by(request_events.c.id)
            .limit(_MOST_EVENTS)
        )
        with self._database.read() as connection:
            rows = connection.execute(query).mappings().all()
        found = [TenantRequestEvent(**{**row, "details": codec.loads(row["details"])}) for row in rows]
        if found:
            self.last = found[-1].id
        # Only now: a look that failed, or that did not read all, is done again.
        self._version = version if len(found) < _MOST_EVENTS else None
        return found

    def close(self) -> None:
        """Give back its own connection."""
        if self._file is not None:
            self._file.close()

    def _changed(self) -> int | None:
        """SQLite's counter of what other connections have written; None where there is no such thing."""
        if self._file is None:
            return None
        with contextlib.closing(self._file.execute("PRAGMA data_version")) as cursor:
            return int(cursor.fetchone()[0])


__all__ = [
    "ACTIVE",
    "ENDED",
    "OPEN",
    "NewRequestEvent",
    "RequestEvent",
    "RequestIntent",
    "RequestKind",
    "RequestRow",
    "RequestStore",
]

_INSERT = sa.insert(requests)
_INSERT_PARAMETERS = sa.insert(request_parameters)


class RequestStore:
    """The tables of requests, as those who make them and watch them see it.

    Args:
        database: The open database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, row: RequestRow, remark: NewRequestEvent, entry: AuditRow | None = None) -> tuple[RequestRow, bool]:
        """Add a request.

        Args:
            row: The request.
            remark: What to note with it.
            entry: The line of the audit log for it; its subject is set here.

        Returns:
            It, and whether it is new: a second one with the same key of the same user is the first.

        Raises:
            ConflictError: The same key was used for something else.
        """
        now = time.time()
        values = {name: getattr(row, name) for name in REQUEST_FIELDS if name != "id"}
        values |= {"created": row.created or now, "updated": now}
        with self._database.write() as connection:
            if row.key is not None and (there := self._of_key(connection, row)) is not None:
                return there, False
            try:
                # Only a key can be there already, where on PostgreSQL another one was quicker.
                with connection.begin_nested() if row.key is not None else contextlib.nullcontext():
                    result = connection.execute(_INSERT, column_values(values))
            except sa.exc.IntegrityError:
                there = self._of_key(connection, row) if row.key is not None else None
                if there is None:
                    raise
                return there, False
            (number,) = result.inserted_primary_key or (0,)
            if found := list(parameter_rows(number, row.document)):
                connection.execute(_INSERT_PARAMETERS, found)
            add_events(connection, number, [remark])
            notify_workers(connection)
            _enter(connection, number, entry)
            return request_of(connection.execute(REQUEST_BY_NUMBER, {"number": number}).one()), True

    def of_key(self, user_id: int, key: str) -> RequestRow | None:
        """The request that a user has made with a key of the user's own, or None."""
        with self._database.read() as connection:
            return _with_key(connection, user_id, key)

    def _of_key(self, connection: Connection, row: RequestRow) -> RequestRow | None:
        there = _with_key(connection, row.user_id, row.key or "")
        if there is not None and there.document != json.loads(codec.dumps(dict(row.document))):
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
        found = self._database.rows(REQUEST_BY_NUMBER, number=number)
        if not found:
            raise request_not_found()
        return request_of(found[0])

    def page(
        self,
        *,
        tenant: str | None = None,
        states: Sequence[str] = (),
        application: str = "",
        text: str = "",
        parameters: Sequence[ParameterCondition] = (),
        before: int | None = None,
        limit: int = 50,
    ) -> list[RequestRow]:
        """Requests, the newest first.

        Args:
            tenant: Only of this one.
            states: Only in these.
            application: Only of this application: ``name`` or ``name@version``.
            text: Only those that have it in their name, or as their number.
            parameters: Only those whose parameters meet all of these.
            before: Only those with a smaller number: the next page.
            limit: So many at most.
        """
        if not (states or application or text or parameters) and before is None:
            return [request_of(row) for row in self._rows(NEWEST, tenant, limit=limit)]
        # The numbers first: what a request has in full is read of those alone that are shown.
        found = numbers_that_meet(parameters).where(requests.c.state != DELETED).limit(limit)
        if tenant is not None:
            found = found.where(requests.c.tenant == tenant)
        if states:
            found = found.where(requests.c.state.in_(states))
        if application:
            found = found.where(requests.c.application_id.in_(_applications(application)))
        if text:
            named = requests.c.name.icontains(rows.storable_text(text), autoescape=True)
            found = found.where(named | (requests.c.id == int(text)) if _is_number(text) else named)
        if before is not None:
            found = found.where(requests.c.id < before)
        query = REQUEST_QUERY.where(requests.c.id.in_(found)).order_by(requests.c.id.desc())
        with self._database.read() as connection:
            return [request_of(row) for row in connection.execute(query)]

    def stamps(self, tenant: str | None, limit: int) -> list[tuple[int, float]]:
        """Number and last change of the newest requests, of one tenant or of all: those that `page` gives."""
        return [(number, updated) for number, updated in self._rows(STAMPS, tenant, limit=limit)]

    def _rows(self, queries: QueryPair, tenant: str | None, **given: Any) -> Sequence[Sequence[Any]]:
        every, of_tenant = queries
        if tenant is None:
            return self._database.rows(every, **given)
        return self._database.rows(of_tenant, tenant=tenant, **given)

    def events(
        self, *, tenant: str | None = None, request_id: int | None = None, since: int = 0, limit: int = 500
    ) -> list[RequestEvent]:
        """Events after another one, the oldest first.

        Args:
            tenant: Only to requests of this one.
            request_id: Only to this one.
            since: Number of the last event that is known.
            limit: So many at most.
        """
        if request_id is None:
            found = self._rows(SINCE, tenant, since=since, limit=limit)
        else:
            found = self._rows(SINCE_OF_ONE, tenant, since=since, limit=limit, number=request_id)
        return [event_of(row) for row in found]

    def latest(self, request_id: int, limit: int) -> tuple[list[RequestEvent], int]:
        """The last events of a request.

        Returns:
            So many events, the newest first, and how many there are in all.
        """
        mine = request_events.c.request_id == request_id
        query = sa.select(request_events).where(mine).order_by(request_events.c.id.desc()).limit(limit)
        with self._database.read() as connection:
            found = connection.execute(query).all()
            count = connection.scalar(sa.select(sa.func.count()).select_from(request_events).where(mine))
        return [event_of(row) for row in found], int(count or 0)

    def turns(self, request_id: int) -> list[RequestEvent]:
        """The events with which a request came into another stage, the oldest first, without their details."""
        before = sa.func.lag(request_events.c.stage).over(order_by=request_events.c.id).label("before")
        columns = [request_events.c[name] for name in ("id", "request_id", "at", "stage", "text")]
        inner = sa.select(*columns, before).where(request_events.c.request_id == request_id).subquery()
        turned = sa.or_(inner.c.before.is_(None), inner.c.before != inner.c.stage)
        query = sa.select(*(inner.c[column.name] for column in columns)).where(turned).order_by(inner.c.id)
        with self._database.read() as connection:
            return [RequestEvent(*row) for row in connection.execute(query)]

    def last_trial(self, study_id: int) -> int | None:
        """The trial of the run of a study that was started last; None before there is one."""
        order = (sa.func.coalesce(runs.c.started, 0.0).desc(), runs.c.trial.desc(), runs.c.attempt.desc())
        query = sa.select(runs.c.trial).where(runs.c.study_id == study_id).order_by(*order).limit(1)
        with self._database.read() as connection:
            found = connection.scalar(query)
        return None if found is None else int(found)

    def trial_of(self, study_id: int, run: str) -> int | None:
        """The trial of a run; None where there is no such run."""
        query = sa.select(runs.c.trial).where(runs.c.study_id == study_id, runs.c.run_id == run)
        with self._database.read() as connection:
            found = connection.scalar(query)
        return None if found is None else int(found)

    def run_after(self, study_id: int, run: str) -> str | None:
        """The run of a study that was started next after another one; None where that was the last."""
        order = (sa.func.coalesce(runs.c.started, 0.0), runs.c.trial, runs.c.attempt)
        of_study = runs.c.study_id == study_id
        with self._database.read() as connection:
            place = connection.execute(sa.select(*order).where(of_study, runs.c.run_id == run)).first()
            if place is None:
                return None
            later = sa.tuple_(*order) > sa.tuple_(*(sa.literal(one) for one in place))
            found = connection.scalar(sa.select(runs.c.run_id).where(of_study, later).order_by(*order).limit(1))
        return None if found is None else str(found)

    def change_free(
        self,
        number: int,
        states: Sequence[str],
        fields: Mapping[str, Any],
        remark: NewRequestEvent,
        entry: AuditRow | None = None,
        *,
        since: float | None = None,
    ) -> RequestRow:
        """Change a request that nobody carries out.

        Args:
            number: The request.
            states: The states that it must be in.
            fields: What to change, by name.
            remark: What to note with it.
            entry: The line of the audit log for it; its subject is set here.
            since: When its row last changed, as the fields rest on it.

        Raises:
            NotFoundError: There is none.
            ConflictError: It is in another state, somebody carries it out, or it has changed since.
        """
        with self._database.write() as connection:
            free = REQUEST_LEASES.lock(connection, number).token is None
            where = (requests.c.id == number) & requests.c.state.in_(states)
            if since is not None:
                where &= requests.c.updated == since
            values = {**column_values(fields), "updated": time.time()}
            if not (free and connection.execute(sa.update(requests).where(where).values(values)).rowcount):
                row = request_where(connection, requests.c.id == number)
                raise ConflictError(f"request {number} is {row.state}", hint="ask again for how far it is")
            add_events(connection, number, [remark])
            _enter(connection, number, entry)
            notify_workers(connection)
            return request_where(connection, requests.c.id == number)

    def want(self, number: int, wanted: RequestIntent, remark: NewRequestEvent) -> RequestRow:
        """Say what becomes of a request that somebody carries out; a wish to delete it is not taken back.

        Raises:
            NotFoundError: There is none.
        """
        with self._database.write() as connection:
            free = (requests.c.id == number) & (requests.c.wanted != "delete") & (requests.c.wanted != wanted)
            values = {"wanted": wanted, "updated": time.time()}
            if connection.execute(sa.update(requests).where(free).values(values)).rowcount:
                add_events(connection, number, [remark])
                notify_workers(connection)
            return request_where(connection, requests.c.id == number)

    def remove(self, number: int, by: Mapping[str, str]) -> RequestRow:
        """Remove a request with its events, links and notices.

        What stays is a row without words that nobody is shown: what it cost goes on counting, its study goes on being
        its tenant's, and the audit log has it.

        Args:
            number: The request.
            by: ``user`` and ``address`` of who wants it.

        Raises:
            NotFoundError: There is none.
            ConflictError: It is being carried out.
        """
        with self._database.write() as connection:
            REQUEST_LEASES.lock(connection, number)
            row = request_where(connection, requests.c.id == number)
            if row.hold_holder is not None:
                raise ConflictError(f"request {number} is being carried out", hint="it is removed when that is over")
            NOTICE_LEASES.forget(connection, notices.c.request_id == number)
            REQUEST_LEASES.forget(connection, requests.c.id == number)
            for table in (request_events, request_parameters, links, notices):
                connection.execute(sa.delete(table).where(table.c.request_id == number))
            blank = dict.fromkeys(("progress", "plan"), "{}") | dict.fromkeys(("name", "problem", "hint"), "")
            # What was measured is of no use without the parameters that it was measured for.
            blank["document"] = codec.dumps({"parameters": row.document.get("parameters") or {}})
            left = {**blank, "key": None, "state": DELETED, "reserved": 0.0, "updated": time.time()}
            connection.execute(sa.update(requests).where(requests.c.id == number).values(left))
            facts = {"state": row.state, "kind": row.kind, "cost": row.cost, "study": row.study_id, "of": row.user}
            entry: dict[str, Any] = {"user": by.get("user", ""), "address": by.get("address", ""), "tenant": row.tenant}
            entry |= {"action": "request.delete", "subject": f"request {number}", "outcome": "done"}
            entry |= {"at": time.time(), "details": codec.dumps(facts)}
            connection.execute(sa.insert(audit).values(entry))
            return row


def _with_key(connection: Connection, user_id: int, key: str) -> RequestRow | None:
    mine = (requests.c.user_id == user_id) & (requests.c.key == rows.storable_text(key))
    found = connection.execute(REQUEST_QUERY.where(mine)).first()
    return None if found is None else request_of(found)


def _enter(connection: Connection, number: int, entry: AuditRow | None) -> None:
    if entry is not None:
        insert_audit_row(connection, replace(entry, subject=f"request {number}"))


def _applications(reference: str) -> sa.Select[tuple[int]]:
    """Return a query of the numbers of the versions that ``name`` or ``name@version`` stands for."""
    name, _, version = rows.storable_text(reference).partition("@")
    query = sa.select(applications.c.id).where(applications.c.name == name)
    if version:
        query = query.where(applications.c.version == (int(version) if _is_number(version) else -1))
    return query


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10
