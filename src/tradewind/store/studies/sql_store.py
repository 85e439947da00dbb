"""The store in an SQL database: an SQLite file, or PostgreSQL for several machines."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import sqlalchemy as sa
from pydantic import Field
from sqlalchemy.engine import Connection

from tradewind import plugins
from tradewind.errors import StudyBusyError, StudyNotFoundError
from tradewind.problem import Run, Trial
from tradewind.store import codec, holders
from tradewind.store.base import (
    Change,
    CodeVersion,
    EarlierStudy,
    ImportedTrials,
    Store,
    StudyLine,
    StudyRow,
    StudySummary,
    StudyTotals,
    code_versions,
)
from tradewind.store.sql.database import Database
from tradewind.store.sql.leases import STUDY_LEASES, Lease
from tradewind.store.sql.raw_driver import PreparedStatement
from tradewind.store.sql.schema import runs, studies, trials
from tradewind.store.studies import queries, rows
from tradewind.store.studies.queries import earlier_studies_query, earlier_study_of, study_summaries_of
from tradewind.store.studies.quick_turns import SHARED
from tradewind.store.studies.step_writer import step_writer_for, upsert
from tradewind.store.studies.study_workers import StudyWorkers, live_workers, wait_for_workers

if TYPE_CHECKING:
    from tradewind.store.studies.records import TrialRecord

_COLUMNS = (
    *("number", "state", "key", "objective", "cost", "runtime", "feasible", "censored", "fidelity", "spent"),
    *("price_per_hour", "nodes", "provider", "instance_type", "created", "started", "ended", "configuration"),
)
_CHUNK = 500
_CREATING = 0x7477737464  # "twstd": who makes a study in PostgreSQL, unless there is one, holds this advisory lock


class SqlSettings(plugins.Settings):
    """Settings of the SQL store.

    Attributes:
        busy_timeout: Seconds to wait for a lock that another process holds.
    """

    busy_timeout: float = Field(
        default=30.0, ge=0.0, le=3600.0, description="Seconds to wait for a lock that another process holds."
    )


class SqlStore(Store):
    """Keeps studies in an SQLite file or in PostgreSQL.

    SQLite is in WAL mode with ``synchronous = FULL``: what a method wrote survives a power cut. Its file and folder
    are made when they are not there, and the schema is brought up to date, when the store is opened.

    Args:
        settings: `SqlSettings`.
        url: ``sqlite:///path`` or ``postgresql+psycopg://user@host/name``.

    Raises:
        StoreError: The database cannot be opened.
        MissingProgramError: PostgreSQL's driver is not installed.
    """

    Settings: ClassVar[type[plugins.Settings]] = SqlSettings

    def __init__(self, *, settings: SqlSettings, url: str) -> None:
        super().__init__(settings=settings, url=url)
        self._database = Database(url, busy_timeout=settings.busy_timeout)
        dialect = self._database.sql
        self._put_trial = PreparedStatement(upsert(trials, dialect.name), dialect)
        self._put_run = PreparedStatement(upsert(runs, dialect.name), dialect)
        self._steps = step_writer_for(self._database)

    def create_study(self, study: StudyRow) -> StudyRow:
        """Insert a study; its ``id`` is set by the store."""
        with self._database.write() as connection:
            return _insert(connection, study)

    def find_or_create_study(self, study: StudyRow) -> tuple[StudyRow, bool]:
        """The newest study of the same name and problem, or this one, inserted, whoever else asks at the same moment.

        Returns:
            The study, and whether it is new.
        """
        query = _like(study.name, study.problem_key).limit(1)
        with self._database.write() as connection:
            if self._database.dialect == "postgresql":  # SQLite has one writer at a time by itself
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_CREATING)))
            found = connection.execute(query).first()
            return (_insert(connection, study), True) if found is None else (rows.study_of(found), False)

    def study(self, study_id: int) -> StudyRow:
        """One study.

        Raises:
            StudyNotFoundError: There is none.
        """
        with self._database.read() as connection:
            return _study(connection, study_id)

    def find_studies(self, name: str | None = None, problem_key: str | None = None) -> list[StudyRow]:
        """Studies by name and problem, the newest first."""
        with self._database.read() as connection:
            return [rows.study_of(row) for row in connection.execute(_like(name, problem_key))]

    def list_studies(self, name: str | None = None, *, limit: int | None = None) -> list[StudyLine]:
        """Studies by name, the newest first, without their specifications."""
        with self._database.read() as connection:
            return queries.study_lines(connection, name, limit)

    def open_studies(self) -> set[int]:
        """The ids of the studies that have runs which have not ended."""
        with self._database.read() as connection:
            return set(connection.execute(_OPEN).scalars())

    def queued_search(self, study_id: int, tenant: str, name: str) -> int | None:
        """See `Store.queued_search`."""
        with self._database.read() as connection:
            return queries.queued_search(connection, study_id, tenant, name)

    def totals(self, simulates: Callable[[Mapping[str, Any]], bool]) -> StudyTotals:
        """See `Store.totals`."""
        with self._database.read() as connection:
            return queries.study_totals(connection, simulates)

    def earlier_studies(
        self, tenant: str, names: Collection[str] | None = None, *, before: StudyRow | None = None, limit: int
    ) -> list[EarlierStudy]:
        """Studies of one tenant, the newest first; no more rows are read than wanted."""
        query = earlier_studies_query(tenant, names, before).limit(limit)
        with self._database.read() as connection:
            return [earlier_study_of(row) for row in connection.execute(query)]

    def summaries(self, study_ids: Sequence[int] | None = None) -> list[StudySummary]:
        """Summaries of some or all studies, the newest first, without reading every trial."""
        found: list[StudySummary] = []
        with self._database.read() as connection:
            if study_ids is None:
                study_ids = [line.id for line in queries.study_lines(connection, None, None)]
            wanted = sorted(set(study_ids), reverse=True)
            for at in range(0, len(wanted), _CHUNK):
                found += study_summaries_of(connection, wanted[at : at + _CHUNK])
        return found

    def hold(self, study_id: int, holder: str, seconds: float, *, force: bool = False) -> str:
        """Take a study for this process, for ``seconds`` from now, unless another live one holds it.

        A process that asks again gets a new token, and its old one is lost. A dead process of this host, and a hold
        that has run out, are no obstacle.

        Args:
            study_id: The study.
            holder: ``host:pid:start time`` of the process.
            seconds: How long without `renew`.
            force: Take it from a live process, too: that one finds out when it next writes.

        Returns:
            A token, for `renew`, `release` and `write`.

        Raises:
            StudyBusyError: Another live process holds it, without ``force``.
        """
        holder = rows.storable_text(holder)
        with self._database.write() as connection:
            wait_for_workers(connection, study_id)
            name, lease = _held(connection, study_id)
            other = holders.live_holder(lease.holder, lease.expires)
            if lease.token == SHARED and not live_workers(connection, study_id):
                other = None
            if other is not None and other != holder and not force:
                left = (lease.expires or 0.0) - time.time()
                raise StudyBusyError(
                    f"study {study_id} ({name}) is being run by process {holders.display_name(other)}",
                    hint=f"wait for it to end; if it is gone, the study is free in {left:.0f} s",
                )
            return STUDY_LEASES.take(connection, study_id, holder, seconds)

    def workers(self, study_id: int) -> StudyWorkers:
        """See `Store.workers`."""
        return StudyWorkers(self._database, study_id)

    def renew(self, study_id: int, token: str, seconds: float) -> None:
        """Hold on for ``seconds`` more; a hold that ran out and that nobody else took is taken up again.

        Raises:
            StudyBusyError: The hold was lost to another process.
        """
        with self._database.write() as connection:
            if not STUDY_LEASES.renew(connection, study_id, token, seconds):
                _check(*_held(connection, study_id), token)

    def release(self, study_id: int, token: str) -> None:
        """Let go of a study; a lost hold is no error."""
        with self._database.write() as connection:
            # The moment stays: what another study could see when it began follows from it.
            STUDY_LEASES.release(connection, study_id, token, moment=time.time())

    def write(self, study_id: int, change: Change, token: str | None = None) -> None:
        """Write one step in one transaction.

        Raises:
            StudyBusyError: ``token`` no longer holds the study; nothing is written.
        """
        fields = rows.study_values(change.study)
        new_trials = [rows.trial_values(study_id, trial) for trial in change.trials]
        new_runs = [rows.run_values(study_id, run) for run in change.runs]
        step = (fields, new_trials, new_runs, change.lasting)
        if token is not None and fields and self._steps.write(study_id, token, *step):
            return
        with self._database.write(lasting=change.lasting) as connection:
            held = _held(connection, study_id)
            if token is not None:
                _check(*held, token)
            if fields:
                connection.execute(STUDY_LEASES.change, {"id_": study_id, **fields})
            if new_trials:
                self._put_trial.run(connection, new_trials)
            if new_runs:
                self._put_run.run(connection, new_runs)

    def trials(self, study_id: int, *, since: int = 0, limit: int | None = None) -> list[Trial]:
        """Trials by number, from ``since``.

        Raises:
            StudyNotFoundError: There is no such study.
        """
        with self._database.read() as connection:
            return _trials(connection, study_id, since, limit)

    def code_versions(self, study_id: int) -> list[CodeVersion]:
        """See `Store.code_versions`; of many runs, those without a version are not read."""
        query = sa.select(runs.c.trial, runs.c.details).where(runs.c.study_id == study_id)
        known = runs.c.details.like('%"code":"%') & runs.c.details.not_like('%"code":""}')
        query = query.where(known).order_by(runs.c.trial, runs.c.attempt)
        with self._database.read() as connection:
            return code_versions(
                (trial, codec.loads(details).get("code", "")) for trial, details in connection.execute(query)
            )

    def taken_runs(self, study_id: int) -> list[Run]:
        """See `Store.taken_runs`; no others are read."""
        query = _runs_of(study_id).where(rows.WAS_TAKEN)
        with self._database.read() as connection:
            found = [rows.run_of(row) for row in connection.execute(query)]
        return [run for run in found if run.preemption is not None]

    def runs(self, study_id: int, *, open_only: bool = False, trial: int | None = None) -> list[Run]:
        """Runs by trial and attempt; with ``open_only`` those that have not ended.

        Raises:
            StudyNotFoundError: There is no such study.
        """
        query = _runs_of(study_id)
        if open_only:
            query = query.where(runs.c.state.not_in(rows.ENDED_RUN_STATES))
        if trial is not None:
            query = query.where(runs.c.trial == trial)
        with self._database.read() as connection:
            found = [rows.run_of(row) for row in connection.execute(query)]
            if not found:
                _study(connection, study_id)
        return found

    def columns(self, study_id: int) -> Mapping[str, Sequence[Any]]:
        """The plain columns of all trials, by name and in the order of their numbers.

        ``number, state, key, objective, cost, runtime, feasible, censored, fidelity, spent, price_per_hour, nodes,
        provider, instance_type, created, started, ended, configuration`` (a JSON text). NaN is None here.

        Raises:
            StudyNotFoundError: There is no such study.
        """
        query = sa.select(*(trials.c[name] for name in _COLUMNS)).order_by(trials.c.number)
        columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
        with self._database.read() as connection:
            # By portions: 100,000 rows alive at once would keep the garbage collector busy.
            for portion in connection.execute(query.where(trials.c.study_id == study_id)).partitions(_CHUNK):
                for column, values in zip(columns.values(), zip(*portion, strict=True), strict=True):
                    column.extend(values)
            if not columns["number"]:
                _study(connection, study_id)
        return columns

    def export_records(self, study_id: int) -> Iterator[Mapping[str, Any]]:
        """One full JSON-able record a trial: proposal, offer, runs, observation (paper 2's dictionary).

        Raises:
            StudyNotFoundError: There is no such study.
        """
        self.study(study_id)
        return self._records(study_id)

    def import_records(self, study: StudyRow, records: Iterable[Mapping[str, Any]]) -> ImportedTrials:
        """Insert records of trials in one transaction; see `Store.import_records`.

        Raises:
            RecordError: A record is not one; nothing is inserted.
            StudyNotFoundError: There is no such study.
        """
        with self._database.write() as connection:
            row = study if study.id else _insert(connection, study)
            return self._take_records(connection, row, records)

    def _take_records(
        self, connection: Connection, study: StudyRow, records: Iterable[Mapping[str, Any]]
    ) -> ImportedTrials:
        from tradewind.store.studies import records as recorded
        from tradewind.store.studies.record_intake import RecordIntake

        _held(connection, study.id)
        known = [(run.run_id, run.trial) for run in connection.execute(_RUN_IDS, {"id_": study.id})]
        intake = RecordIntake(known, _trials(connection, study.id, 0, None))
        read = recorded.read_records(records)
        while portion := list(itertools.islice(read, _CHUNK)):
            self._put_records(connection, study.id, intake.take(portion))
        self._put_records(connection, study.id, intake.renumber())
        return ImportedTrials(study, intake.new, intake.known, intake.unfinished, intake.renumbered)

    def _put_records(self, connection: Connection, study_id: int, new: Sequence[TrialRecord]) -> None:
        """Insert the trials of some records with their runs."""
        if new:
            self._put_trial.run(connection, [rows.trial_values(study_id, record.trial) for record in new])
        if new_runs := [rows.run_values(study_id, run) for record in new for run in record.runs]:
            self._put_run.run(connection, new_runs)

    def close(self) -> None:
        """Give back connections."""
        self._database.close()

    def _records(self, study_id: int) -> Iterator[Mapping[str, Any]]:
        from tradewind.store.studies import records as recorded

        # In portions, so that a slow reader keeps no transaction open and no memory full.
        since = 0
        while True:
            with self._database.read() as connection:
                portion = _trials(connection, study_id, since, _CHUNK)
                if not portion:
                    return
                bounds = runs.c.trial.between(portion[0].number, portion[-1].number)
                query = _runs_of(study_id).where(bounds)
                of_trial: dict[int, list[Run]] = {}
                for row in connection.execute(query):
                    of_trial.setdefault(row.trial, []).append(rows.run_of(row))
            for trial in portion:
                yield recorded.trial_record(trial, of_trial.get(trial.number, ()))
            since = portion[-1].number + 1


def _like(name: str | None, problem_key: str | None) -> sa.Select[Any]:
    """Studies by name and problem, the newest first."""
    query = sa.select(*rows.STUDY_COLUMNS).order_by(studies.c.id.desc())
    if name is not None:
        query = query.where(studies.c.name == rows.storable_text(name))
    if problem_key is not None:
        query = query.where(studies.c.problem_key == rows.storable_text(problem_key))
    return query


def _insert(connection: Connection, study: StudyRow) -> StudyRow:
    fields = {name: getattr(study, name) for name in rows.STUDY_FIELDS if name != "id"}
    result = connection.execute(sa.insert(studies).values(rows.study_values(fields)))
    (number,) = result.inserted_primary_key or (0,)
    return _study(connection, number)


def _study(connection: Connection, study_id: int) -> StudyRow:
    row = connection.execute(sa.select(*rows.STUDY_COLUMNS).where(studies.c.id == study_id)).first()
    if row is None:
        raise _not_found(study_id)
    return rows.study_of(row)


def _not_found(study_id: int) -> StudyNotFoundError:
    return StudyNotFoundError(f"there is no study number {study_id}", hint="tradewind status lists all")


def _held(connection: Connection, study_id: int) -> tuple[str, Lease]:
    """Name and lease of the study; nobody else writes it for the rest of the transaction."""
    name = connection.scalar(_NAME, {"id_": study_id})
    if name is None:
        raise _not_found(study_id)
    return name, STUDY_LEASES.lock(connection, study_id)


_NAME = sa.select(studies.c.name).where(studies.c.id == sa.bindparam("id_"))

# The columns to set are those of the parameters that it is executed with.
_RUN_IDS = sa.select(runs.c.run_id, runs.c.trial).where(runs.c.study_id == sa.bindparam("id_"))
_OPEN = sa.select(runs.c.study_id).where(runs.c.state.not_in(rows.ENDED_RUN_STATES)).distinct()


def _check(name: str, lease: Lease, token: str) -> None:
    if lease.token != token:
        taken = f"process {holders.display_name(lease.holder)} took it" if lease.holder else "it was let go"
        raise StudyBusyError(f"this process no longer holds the study {name}: {taken}")


def _trials(connection: Connection, study_id: int, since: int, limit: int | None) -> list[Trial]:
    query = sa.select(*rows.TRIAL_COLUMNS).where(trials.c.study_id == study_id).order_by(trials.c.number)
    if since > 0:
        query = query.where(trials.c.number >= since)
    if limit is not None:
        query = query.limit(limit)
    found = [rows.trial_of(row) for row in connection.execute(query)]
    if not found:
        _study(connection, study_id)
    return found


def _runs_of(study_id: int) -> Any:
    mine = sa.select(*rows.RUN_COLUMNS).where(runs.c.study_id == study_id)
    return mine.order_by(runs.c.trial, runs.c.attempt, runs.c.run_id)
