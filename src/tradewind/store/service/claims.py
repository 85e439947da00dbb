"""Claims of requests with a lease, so that the workers of several servers share one database."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from tradewind.errors import StudyBusyError
from tradewind.store import codec, holders
from tradewind.store.base import StudyRow
from tradewind.store.clusters import tenant_spending
from tradewind.store.clusters.cluster_store import JobRow
from tradewind.store.service.request_queries import (
    ADD_EVENT,
    ADD_JOB,
    ADD_STUDY,
    EVENT_COLUMNS,
    FIRST_FOR_CLUSTERS,
    FIRST_OF_TENANTS,
    HELD_REQUESTS,
    INTENT_BY_NUMBER,
    INTENTS,
    REQUEST_BY_NUMBER,
    RUNNING_BY_TENANT,
    STILL_WAITS,
    TENANT_LIMITS,
    WAITING_OF_TENANT,
    WAITING_OR_HELD,
    RequestHold,
    add_events,
    column_values,
    event_values,
    request_of,
)
from tradewind.store.service.request_values import NewRequestEvent, RequestIntent, RequestRow, TenantQueueState
from tradewind.store.sql.database import Database
from tradewind.store.sql.leases import RELEASED, REQUEST_LEASES
from tradewind.store.sql.notify import notify_workers
from tradewind.store.sql.raw_driver import PreparedStatement
from tradewind.store.studies import rows

_MOST_HELD = 1000
_GLANCE = 1.0
_HOLDS: Mapping[str, Mapping[str, Any]] = {
    "keep": {},
    "release": RELEASED,
    "leave": {"expires": 0.0},
}


@dataclass(frozen=True, slots=True)
class Claim:
    """A request that this process carries out.

    Attributes:
        row: The request.
        token: Proves it.
        before: Who carried it out before (host and pid); empty when nobody did.
    """

    row: RequestRow
    token: str
    before: str = ""


RequestChooser = Callable[[Sequence[TenantQueueState]], tuple[int, float] | None]
"""Which of the first ones is next, and the USD that it may cost in all (0 for no limit); None when none may begin."""


class ClaimStore:
    """The table of requests, as those who carry them out see it.

    Args:
        database: The open database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._changes: dict[tuple[str, ...], PreparedStatement] = {}
        self._letting_go = {
            name: PreparedStatement(REQUEST_LEASES.change_lease, database.sql, tuple(lease))
            for name, lease in _HOLDS.items()
            if lease
        }
        self._note = PreparedStatement(ADD_EVENT, database.sql, EVENT_COLUMNS[1:])
        self._unchanged: object = None
        self._again = 0.0

    def waits(self, *, room: bool = True, mine: Collection[int] = ()) -> bool:
        """True when there is something to claim: a request that waits, or one whose process is gone.

        Args:
            room: Whether this process can carry out one more; without it, only those for clusters count.
            mine: The requests that this process has.
        """
        # It is asked all day long: where nobody has written anything, the answer is what it was, for a second.
        files = self._stamp()
        stamp = None if files is None else (files, room, frozenset(mine))
        if stamp is not None and stamp == self._unchanged and time.monotonic() < self._again:
            return False
        rows_of_all = self._database.rows(WAITING_OR_HELD[room], limit=_MOST_HELD + len(mine))
        found = [row for row in map(RequestHold._make, rows_of_all) if row.id not in mine]
        there = any(row.hold_token is None for row in found) or bool(_stale(found, time.time()))
        self._unchanged, self._again = (None if there else stamp), time.monotonic() + _GLANCE
        return there

    def _stamp(self) -> tuple[tuple[int, int, int], ...] | None:
        """A value that changes with every write to the database; None where only a query could say."""
        path = self._database.path
        if path is None:
            return None
        found: list[tuple[int, int, int]] = []
        for name in (path, path.with_name(f"{path.name}-wal")):
            try:
                about = name.stat()
            except OSError:
                continue
            found.append((about.st_ino, about.st_size, about.st_mtime_ns))
        return tuple(found)

    def queue_state(self, tenant: str) -> TenantQueueState:
        """Limits and spending of a tenant; what runs at this moment is not counted."""
        about = self._database.rows(TENANT_LIMITS, tenant=tenant)
        weight, quota = _limits(*about[0]) if about else _limits()
        spent = 0.0
        if "dollars" in quota:
            with self._database.read() as connection:
                spent = tenant_spending.spent_by_tenant(connection, tenant)
        return TenantQueueState(tenant, 0, {}, 0.0, weight, quota, 0, spent)

    def queue(self, tenant: str) -> tuple[TenantQueueState, list[int]]:
        """Limits and use of a tenant, and the numbers of its requests that wait, the oldest first."""
        with self._database.read() as connection:
            line = queue_state_of(connection, tenant, running_by_tenant(connection).get(tenant, 0))
            return line, list(connection.scalars(WAITING_OF_TENANT, {"tenant": tenant}))

    def claim(
        self, holder: str, seconds: float, choose: RequestChooser, *, room: bool = True, mine: Collection[int] = ()
    ) -> Claim | None:
        """Take the next request: one that a dead process has left, one for a cluster, or the one that is due.

        Args:
            holder: `tradewind.store.base.this_process`.
            seconds: How long without `renew`.
            choose: Who is next.
            room: Whether this process can carry out one more; without it, only those for clusters are taken.
            mine: The requests that this process has.

        Returns:
            The request, or None when there is none for this process.
        """
        now = time.time()
        with self._database.write() as connection:
            tenant_spending.lock_spending(connection)
            found = _left(connection, now, room=room, mine=mine) or _for_cluster(connection, choose)
            if found is None and room:
                found = _due(connection, choose)
            if found is None:
                return None
            number, before, fields = found
            holder, fields = rows.storable_text(holder), {**fields, "updated": time.time()}
            token = REQUEST_LEASES.take(connection, number, holder, seconds, **fields)
            row = request_of(connection.execute(REQUEST_BY_NUMBER, {"number": number}).one())
            if before:
                words = f"taken over from process {holders.display_name(before)}, which is gone"
                add_events(connection, number, [NewRequestEvent(row.state, words)])
        return Claim(row, token, holders.display_name(before) if before else "")

    def renew(self, tokens: Mapping[int, str], seconds: float) -> set[int]:
        """Hold on to some requests for ``seconds`` more.

        Args:
            tokens: The tokens, by request.
            seconds: How long without another call.

        Returns:
            The requests that another process has taken over.
        """
        with self._database.write(lasting=False) as connection:  # after a power cut nobody holds them
            renew = partial(REQUEST_LEASES.renew, connection, seconds=seconds)
            return {number for number, token in tokens.items() if not renew(number, token)}

    def intents(self, numbers: Collection[int]) -> dict[int, RequestIntent]:
        """Intents of the owners of some requests, now; without those that nobody holds."""
        return {number: wanted for number, wanted in self._database.rows(INTENTS) if number in numbers}

    def change(
        self,
        number: int,
        token: str,
        fields: Mapping[str, Any],
        remarks: Sequence[NewRequestEvent] = (),
        *,
        lasting: bool = True,
        hold: Literal["keep", "release", "leave"] = "keep",
    ) -> RequestIntent:
        """Change a request, and note what happened, all of it or none.

        Args:
            number: The request.
            token: The claim's.
            fields: What to change, by name.
            remarks: What happened, the oldest first.
            lasting: False where a power cut may take it back.
            hold: ``release`` lets go of it with this: it is over, or waits again; ``leave`` lets go of it as it is:
                the next process takes it over at once.

        Returns:
            What its owner wants of it at this very moment, where it was let go of: who wanted it deleted in time finds
            it deleted.

        Raises:
            StudyBusyError: Another process has taken it over; nothing is written.
        """
        values = {**column_values(fields), "updated": time.time()}
        change, events = self._change_of(tuple(values)), event_values(number, remarks)
        row, letting_go = {"id_": number, "token_": token, **values}, self._letting_go.get(hold)

        def work(connection: Any) -> None:
            if not change.run(connection, [row]):
                raise _lost(number)
            if letting_go is not None:
                letting_go.run(connection, [{"id_": number, "token_": token, **_HOLDS[hold]}])
            if self._database.path is None:
                add_events(connection, number, remarks)
                if hold == "leave" or (hold == "release" and fields.get("state") == "pending"):
                    notify_workers(connection)
            elif events:
                self._note.run(connection, events)

        self._database.write_batched(work, lasting=lasting)
        found = self._database.rows(INTENT_BY_NUMBER, number=number) if hold == "release" else ()
        return found[0][0] if found else "run"

    def _change_of(self, names: tuple[str, ...]) -> PreparedStatement:
        """The change of some columns of a request by who holds it."""
        found = self._changes.get(names)
        if found is None:
            found = self._changes[names] = PreparedStatement(REQUEST_LEASES.change_mine, self._database.sql, names)
        return found

    def name_study(self, claim: Claim, study: StudyRow, fields: Mapping[str, Any]) -> StudyRow:
        """Make the study of a request and write its number into the request's row, both or neither.

        Args:
            claim: The claim.
            study: The study; its ``id`` is set here.
            fields: What else to change of the request, by name.

        Raises:
            StudyBusyError: Another process has taken the request over; nothing is written.
        """
        values = {key: getattr(study, key) for key in rows.STUDY_FIELDS if key != "id"}
        with self._database.write() as connection:
            made = connection.execute(ADD_STUDY, rows.study_values(values))
            (number,) = made.inserted_primary_key or (0,)
            _name(connection, claim, {**column_values(fields), "study_id": number})
        return replace(study, id=number)

    def name_job(self, claim: Claim, job: JobRow, fields: Mapping[str, Any] | None = None, words: str = "") -> int:
        """Put a request's search into the queue of clusters and write its number into the row, both or neither.

        Args:
            claim: The claim.
            job: The search; its ``id`` is set here.
            fields: What else to change of the request, by name.
            words: What happened, for an event; the search's number is put behind it.

        Raises:
            StudyBusyError: Another process has taken the request over; nothing is written.
        """
        values = {key: getattr(job, key) for key in JobRow.__dataclass_fields__ if key != "id"}
        values |= {"spec": codec.dumps(dict(job.spec)), "options": codec.dumps(dict(job.options))}
        values["submitted"] = job.submitted or time.time()
        with self._database.write() as connection:
            made = connection.execute(ADD_JOB, values)
            (number,) = made.inserted_primary_key or (0,)
            _name(connection, claim, {**column_values(fields or {}), "cluster_job": number})
            if words:
                add_events(connection, claim.row.id, [NewRequestEvent(claim.row.state, f"{words} {number}")])
        return int(number)


def queue_state_of(connection: Connection, tenant: str, running: int) -> TenantQueueState:
    """Limits and use of a tenant; without the tenant's row it has no limits."""
    about = connection.execute(TENANT_LIMITS, {"tenant": tenant}).first()
    return _line(connection, tenant, about or (None, None), running)


def _limits(weight: float | None = None, quota: str | None = None) -> tuple[float, dict[str, Any]]:
    return (1.0, {}) if weight is None or quota is None else (weight, json.loads(quota))


def _line(
    connection: Connection, tenant: str, about: Sequence[Any], running: int, first: int = 0, **of_first: Any
) -> TenantQueueState:
    weight, quota = _limits(*about)
    spent = tenant_spending.spent_by_tenant(connection, tenant) if "dollars" in quota else 0.0
    plan, cost = json.loads(of_first.get("plan", "{}")), of_first.get("cost", 0.0)
    return TenantQueueState(tenant, first, plan, cost, weight, quota, running, spent)


def _lines(connection: Connection, first: sa.Select[Any], running: Mapping[str, int]) -> Iterator[TenantQueueState]:
    """The queue states of the tenants of some requests, in the order of the requests."""
    for row in connection.execute(first).all():
        now = running.get(row.tenant, 0)
        line = _line(connection, row.tenant, (row.weight, row.quota), now, row.id, plan=row.plan, cost=row.cost)
        yield replace(line, cluster=row.cluster)


def running_by_tenant(connection: Connection) -> dict[str, int]:
    """Requests that are being carried out by servers themselves, by tenant."""
    return {row.tenant: row.running for row in connection.execute(RUNNING_BY_TENANT)}


_Found = tuple[int, str, dict[str, Any]]


def _left(connection: Connection, now: float, *, room: bool, mine: Collection[int]) -> _Found | None:
    """A request whose process is gone."""
    for row in _stale(connection.execute(HELD_REQUESTS).all(), now):
        if row.id in mine or not (room or row.cluster):
            continue
        # Its process may live after all, and be writing its end at this moment.
        if REQUEST_LEASES.lock_mine(connection, row.id, row.hold_token):
            return row.id, str(row.hold_holder), {}
    return None


def _stale(held: Sequence[Any], now: float) -> list[Any]:
    dead = cache(holders.is_dead)  # a process may hold hundreds
    return [row for row in held if row.hold_expires <= now or dead(str(row.hold_holder))]


def _for_cluster(connection: Connection, choose: RequestChooser) -> _Found | None:
    """A request that only has to be put into a cluster's queue, and followed; its tenant's money has to pay it."""
    for line in _lines(connection, FIRST_FOR_CLUSTERS, {}):
        chosen = choose([line])
        if chosen is not None and _lock(connection, line.first):
            return line.first, "", {"reserved": chosen[1]}
    return None


def _lock(connection: Connection, number: int) -> bool:
    """True when a request still waits, and locks it: its owner may be cancelling it at this moment."""
    free = REQUEST_LEASES.lock(connection, number).token is None
    return free and connection.execute(STILL_WAITS, {"number": number}).first() is not None


def _due(connection: Connection, choose: RequestChooser) -> _Found | None:
    """The request that is due among the first ones of all tenants."""
    # All tenants at once: nobody else can write meanwhile.
    lines = list(_lines(connection, FIRST_OF_TENANTS, running_by_tenant(connection)))
    chosen = choose(lines) if lines else None
    if chosen is None:
        return None
    number, most = chosen
    return (number, "", {"reserved": most}) if _lock(connection, number) else None


def _name(connection: Connection, claim: Claim, values: Mapping[str, Any]) -> None:
    row = {"id_": claim.row.id, "token_": claim.token, **values, "updated": time.time()}
    if not connection.execute(REQUEST_LEASES.change_mine, row).rowcount:
        raise _lost(claim.row.id)


def _lost(number: int) -> StudyBusyError:
    return StudyBusyError(f"request {number} was taken over by another process")
