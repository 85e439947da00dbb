"""The tables of workflow runs: the plan of each, and its journal, a row for each record."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from tradewind.errors import StudyBusyError, StudyNotFoundError
from tradewind.problem import Run, Trial
from tradewind.store import holders
from tradewind.store.base import StudyRow
from tradewind.store.sql.database import Database
from tradewind.store.sql.leases import STUDY_LEASES
from tradewind.store.sql.schema import leases, studies, workflow_records, workflow_runs
from tradewind.store.sql.schema import runs as runs_table
from tradewind.store.sql.schema import trials as trials_table
from tradewind.store.studies import rows

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class WorkflowRunRow:
    """Facts of a run of a workflow beside its study.

    Attributes:
        study_id: The study.
        folder: The run's folder.
        plan: The plan, as a JSON text.
    """

    study_id: int
    folder: str
    plan: str


class WorkflowStore:
    """The tables of workflow runs, in the same database as the studies.

    Args:
        url: The store's address.
        busy_timeout: Seconds to wait for a lock that another process holds.

    Raises:
        StoreError: The database cannot be opened.
    """

    def __init__(self, url: str, *, busy_timeout: float = 30.0) -> None:
        self.url = url
        self._database = Database(url, busy_timeout=busy_timeout)

    @property
    def place(self) -> str:
        """The store's address without a password, or the path of its file."""
        return self._database.place

    def create_run(
        self,
        study: StudyRow,
        folder: str,
        plan: str,
        *,
        trials: Sequence[Trial] = (),
        runs: Sequence[Run] = (),
        records: Sequence[Record] = (),
    ) -> StudyRow:
        """Insert a run with its study, all of it in one transaction; the study's ``id`` is set by the store.

        Args:
            study: The study.
            folder: The run's folder.
            plan: The plan, as a JSON text.
            trials: Its machines.
            runs: The runs of its machines.
            records: Its journal.
        """
        fields = {name: getattr(study, name) for name in rows.STUDY_FIELDS if name != "id"}
        with self._database.write() as connection:
            result = connection.execute(sa.insert(studies).values(rows.study_values(fields)))
            (number,) = result.inserted_primary_key or (0,)
            values = {"study_id": number, "folder": rows.storable_text(folder), "plan": plan}
            connection.execute(sa.insert(workflow_runs), values)
            if trials:
                connection.execute(sa.insert(trials_table), [rows.trial_values(number, each) for each in trials])
            if runs:
                connection.execute(sa.insert(runs_table), [rows.run_values(number, each) for each in runs])
            if records:
                new = [_values(number, place, record) for place, record in enumerate(records)]
                named = [dict(zip(_COLUMNS, row, strict=True)) for row in new]
                connection.execute(sa.insert(workflow_records), named)
            return rows.study_of(connection.execute(_STUDY, {"id_": number}).one())

    def run(self, study_id: int) -> WorkflowRunRow:
        """The run of a study.

        Raises:
            StudyNotFoundError: There is none.
        """
        with self._database.read() as connection:
            row = connection.execute(sa.select(workflow_runs).where(workflow_runs.c.study_id == study_id)).first()
        if row is None:
            raise StudyNotFoundError(
                f"study {study_id} is no run of a workflow", hint="tradewind workflow run makes them"
            )
        return WorkflowRunRow(*row)

    def task_counts(self, study_ids: Sequence[int]) -> dict[int, int]:
        """The number of tasks whose newest attempt that has ended did so well, of each of some runs."""
        row = workflow_records.c
        newest = (
            sa.select(row.study_id, sa.func.max(row.number).label("number"))
            .where(row.study_id.in_(study_ids), row.kind == "end")
            .group_by(row.study_id, row.task)
            .subquery()
        )
        same = sa.and_(row.study_id == newest.c.study_id, row.number == newest.c.number)
        query = (
            sa.select(row.study_id, sa.func.count().label("tasks"))
            .join_from(workflow_records, newest, same)
            .where(row.document.contains('"outcome": "done"'))
            .group_by(row.study_id)
        )
        with self._database.read() as connection:
            return {each.study_id: each.tasks for each in connection.execute(query)}

    def records(self, study_id: int, *, since: int = 0) -> list[dict[str, Any]]:
        """The journal of a run, in order.

        Args:
            study_id: The run.
            since: Only records from this number on; the first one has 0.
        """
        query = sa.select(workflow_records.c.document).where(
            workflow_records.c.study_id == study_id, workflow_records.c.number >= since
        )
        with self._database.read() as connection:
            found = connection.execute(query.order_by(workflow_records.c.number)).scalars().all()
        return [json.loads(document) for document in found]

    def append(self, study_id: int, token: str, number: int, records: Sequence[Record], *, lasting: bool) -> None:
        """Add records to a journal, all of them or none; whoever is killed then has written them.

        Args:
            study_id: The run.
            token: Of who holds its study.
            number: Number of the first of them.
            records: Each with ``at`` (seconds since the epoch) and ``e``, what happened.
            lasting: False where a power cut may take them back as long as nothing lasting was written after them.

        Raises:
            StudyBusyError: The token no longer holds the study; nothing is written.
        """
        new = [_values(study_id, number + place, record) for place, record in enumerate(records)]
        if self._database.path is None:
            text, given = _APPEND_LASTING if lasting else _APPEND, {"id_": study_id, "token_": token}
            named = json.dumps([dict(zip(_COLUMNS, row, strict=True)) for row in new])
            mine = bool(self._database.at_once(text, {**given, "rows_": named})[0])
        elif lasting:
            mine = False

            def work(driver: sqlite3.Connection) -> None:
                nonlocal mine
                mine = _write(driver, study_id, token, new)

            self._database.write_batched_directly(work, lasting=True)
        else:
            with self._database.direct(lasting=False) as connection:
                mine = _write(connection, study_id, token, new)
        if not mine:
            raise self._lost(study_id)

    def _lost(self, study_id: int) -> StudyBusyError:
        query = sa.select(studies.c.name, leases.c.holder).select_from(studies.outerjoin(leases, STUDY_LEASES.of_row))
        query = query.where(studies.c.id == study_id)
        with self._database.read() as connection:
            row = connection.execute(query).one()
        taken = f"process {holders.display_name(row.holder)} took it" if row.holder else "it was let go"
        return StudyBusyError(f"this process no longer carries out {row.name} (study {study_id}): {taken}")

    def sync(self) -> None:
        """Return when all that this object has written is on the disk."""
        if self._database.path is not None:
            self._database.write_batched_directly(lambda _: None, lasting=True)

    def close(self) -> None:
        """Give back connections."""
        self._database.close()


def _write(driver: sqlite3.Connection, study_id: int, token: str, new: Sequence[tuple[Any, ...]]) -> bool:
    """Insert records if the token holds the study; at each step of a run, so nothing stands before the driver."""
    if driver.execute(_MINE, (study_id, token)).fetchone() is None:
        return False
    driver.executemany(_INSERT, new)
    return True


def _values(study_id: int, number: int, record: Record) -> tuple[Any, ...]:
    """A record as the values of `_COLUMNS`."""
    task = record.get("task")
    what = (record["at"], record["e"], _text(task), record.get("attempt"), _text(record.get("vm")))
    return study_id, number, *what, json.dumps(record)


def _text(name: str | None) -> str | None:
    return name if name is None or (name.isascii() and "\0" not in name) else rows.storable_text(name)


_STUDY = sa.select(*rows.STUDY_COLUMNS).where(studies.c.id == sa.bindparam("id_"))
_COLUMNS = tuple(column.name for column in workflow_records.c)
_MINE = "SELECT 1 FROM leases WHERE kind = 'study' AND subject = CAST(? AS TEXT) AND seat = '' AND token = ?"
_INSERT = f"INSERT INTO workflow_records ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"  # noqa: S608

# A statement that is its own transaction. Who takes the study waits for the lock of its lease, and finds the records;
# one that is run twice, as the connection was gone, writes them once.
_APPEND_LASTING = """
WITH mine AS (
    SELECT CAST(subject AS INTEGER) AS id FROM leases
    WHERE kind = 'study' AND subject = CAST(%(id_)s AS TEXT) AND seat = '' AND token = %(token_)s FOR SHARE
),
put AS (
    INSERT INTO workflow_records (study_id, number, at, kind, task, attempt, machine, document)
    SELECT mine.id, r.number, r.at, r.kind, r.task, r.attempt, r.machine, r.document
    FROM mine, json_to_recordset(%(rows_)s::json) AS r(
        number int, at float8, kind text, task text, attempt int, machine text, document text
    )
    ON CONFLICT (study_id, number) DO NOTHING
)
SELECT (SELECT count(*) FROM mine)"""
_APPEND = _APPEND_LASTING + ", set_config('synchronous_commit', 'off', true)"
