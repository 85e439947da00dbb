"""Several workers on one study: each of their steps is one short transaction, which nobody else comes between.

A worker has a seat of the study's lease, renewed by a heartbeat. A step locks the lease (on SQLite: the file), reads
what others have changed since the last one, and writes what follows from it. The trials that a step changes get the
next number in the order of all changes, and the worker that has them, if any.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from tradewind.errors import StudyBusyError, StudyNotFoundError
from tradewind.problem import Run, Trial, TrialState
from tradewind.store import holders
from tradewind.store.base import Change
from tradewind.store.sql.database import Database
from tradewind.store.sql.leases import PROPOSER_LEASES, STUDY_LEASES, insert_lease
from tradewind.store.sql.raw_driver import AnyConnection, PreparedQuery, PreparedStatement
from tradewind.store.sql.schema import leases, runs, shared_trials, studies, trials
from tradewind.store.studies import rows
from tradewind.store.studies.quick_turns import LOCK_ALONE, SHARED, turns_of
from tradewind.store.studies.step_writer import upsert

WORKERS = "several workers"
"""The holder of such a study, for people."""

_STUDY: sa.BindParameter[int] = sa.bindparam("study_")
_SINCE: sa.BindParameter[int] = sa.bindparam("since_")
_TRIAL: sa.BindParameter[int] = sa.bindparam("trial_")
_OF_STUDY = trials.c.study_id == _STUDY
_OPEN = sa.or_(*(trials.c.state == state.value for state in (TrialState.PENDING, TrialState.RUNNING)))
_WITH_WORKER = trials.outerjoin(
    shared_trials, (shared_trials.c.study_id == trials.c.study_id) & (shared_trials.c.trial == trials.c.number)
)
_WORKERS = sa.select(leases.c.token, leases.c.holder, leases.c.expires).where(STUDY_LEASES.of_seats)
_PROPOSER = sa.select(leases.c.token, leases.c.holder, leases.c.expires).where(PROPOSER_LEASES.of_subject)
_ALL_TRIALS = sa.select(*rows.TRIAL_COLUMNS).where(_OF_STUDY).order_by(trials.c.number)
_ALL_RUNS = sa.select(*rows.RUN_COLUMNS).where(runs.c.study_id == _STUDY)
_ALL_RUNS = _ALL_RUNS.order_by(runs.c.trial, runs.c.attempt, runs.c.run_id)
_news = (shared_trials.c.study_id == _STUDY) & (shared_trials.c.changed > _SINCE)


@dataclass(frozen=True, slots=True)
class SharedChanges:
    """The news of a study since a step.

    Attributes:
        number: Number of the last change.
        trials: The trials that were changed, in that order.
        runs: All runs of these.
        owners: The worker that has each of them now; None where nobody has it.
    """

    number: int
    trials: Sequence[Trial]
    runs: Sequence[Run]
    owners: Mapping[int, str | None]


class SharedStep:
    """A step of one worker, within its transaction.

    Args:
        workers: Whose step it is.
        connection: In the transaction.
        searcher_state: The document that the study has of its searcher now, as text; None where only changes are read.
        state: The state of the study.
    """

    def __init__(
        self, workers: StudyWorkers, connection: AnyConnection, searcher_state: str | None = None, state: str = ""
    ) -> None:
        self._workers, self._connection = workers, connection
        self.searcher_state, self.state = searcher_state, state

    def changes(self, since: int) -> SharedChanges:
        """Read what was changed after the change of that number."""
        place = self._place(since_=since)
        queries = self._workers.queries
        found = queries["trials"].fetch(self._connection, place)
        if not found:
            return SharedChanges(since, (), (), {})
        made = [rows.run_of(row) for row in queries["runs"].fetch(self._connection, place)]
        news = [rows.trial_of(row[2:]) for row in found]
        owners = {trial.number: row[1] for trial, row in zip(news, found, strict=True)}
        return SharedChanges(found[-1][0], news, made, owners)

    def open(self) -> dict[int, str | None]:
        """The trials that have not ended, by number, with the worker that has each."""
        return dict(self._workers.queries["open"].fetch(self._connection, self._place()))

    def is_last(self, trial: int, most: int | None) -> bool:
        """True where no other trial of the study is open, and it has so many."""
        return most is not None and self._newest() + 1 >= most and not self.open().keys() - {trial}

    def _newest(self) -> int:
        ((newest,),) = self._workers.queries["newest"].fetch(self._connection, self._place())
        return -1 if newest is None else newest

    def _place(self, **more: int) -> dict[str, int]:
        return {"study_": self._workers.study_id, **more}

    def stands(self, trial: int, attempt: int) -> bool:
        """True where that attempt of a trial runs: nobody has told it yet."""
        found = self._workers.queries["trial"].fetch(self._connection, self._place(trial_=trial))
        return [tuple(row) for row in found] == [(TrialState.RUNNING.value, attempt)]

    def last(self) -> int:
        """The number of the last change of the study."""
        ((number,),) = self._workers.queries["last"].fetch(self._connection, self._place())
        return number or 0

    def write(self, change: Change, number: int, owners: Mapping[int, str | None]) -> None:
        """Write rows.

        Args:
            change: The rows.
            number: The number of this change.
            owners: The worker that has each of the trials from now on, by number; None for nobody.
        """
        study, put = self._workers.study_id, self._workers.statements
        if fields := rows.study_values(change.study):
            self._workers.change_study(self._connection, fields)
        if change.trials:
            put["trials"].run(self._connection, [rows.trial_values(study, trial) for trial in change.trials])
        if change.runs:
            put["runs"].run(self._connection, [rows.run_values(study, run) for run in change.runs])
        if owners:
            marks = [
                {"study_id": study, "trial": trial, "changed": number, "worker": worker}
                for trial, worker in owners.items()
            ]
            put["shared"].run(self._connection, marks)

    def renew(self, token: str, holder: str, seconds: float) -> None:
        """Have a worker's lease end so many seconds from now, even if it had run out."""
        study, now = self._workers.study_id, time.time()
        lease = {"token": token, "holder": holder, "since": now, "expires": now + seconds}
        self._workers.statements["seat"].run(self._connection, [{**STUDY_LEASES.row(study, token), **lease}])
        self._workers.statements["lease"].run(self._connection, [{"id_": study, "expires": now + seconds}])

    def lead(self, token: str, holder: str, seconds: float) -> bool:
        """Be the worker that makes the proposals for so many seconds more; False where another one is."""
        found = self._workers.queries["proposer"].fetch(self._connection, {"id_": self._workers.study_id})
        for leader, its_holder, expires in found:
            # One that ends later than it can was written by a clock that is ahead, or that was set back since.
            sound = expires is not None and expires <= time.time() + 2 * seconds
            if leader != token and sound and holders.live_holder(its_holder, expires) is not None:
                return False
        now = time.time()
        lease = {"token": token, "holder": holder, "since": now, "expires": now + seconds}
        row = {**PROPOSER_LEASES.row(self._workers.study_id), **lease}
        self._workers.statements["proposer"].run(self._connection, [row])
        return True

    def live(self) -> set[str]:
        """The tokens of the workers that are alive: their lease has not ended, and their process not, where seen."""
        found = self._workers.queries["workers"].fetch(self._connection, {"id_": self._workers.study_id})
        living = holders.LivingHolders()
        return {token for token, holder, expires in found if living.has(holder, expires)}


class StudyWorkers:
    """The steps of one worker of a study.

    Args:
        database: The open database.
        study_id: The study.

    Attributes:
        at_hand: The database is a file here: several small questions cost less than all that others have changed. To a
            server each is a way there and back, while nobody else can make a step.
    """

    def __init__(self, database: Database, study_id: int) -> None:
        self.study_id = study_id
        self.at_hand = database.path is not None
        self._database = database
        dialect = database.sql
        self.statements = {
            name: PreparedStatement(upsert(table, dialect.name), dialect)
            for name, table in (
                ("trials", trials),
                ("runs", runs),
                ("shared", shared_trials),
            )
        }
        seat = insert_lease(dialect.name)
        key, later = list(leases.primary_key), {"expires": seat.excluded.expires}
        seat = seat.on_conflict_do_update(index_elements=key, set_=later)
        lead = insert_lease(dialect.name)
        lead = lead.on_conflict_do_update(
            index_elements=key, set_={name: lead.excluded[name] for name in ("token", "holder", "since", "expires")}
        )
        self.statements["proposer"] = PreparedStatement(lead, dialect)
        lease = sa.update(leases).where(STUDY_LEASES.of_subject)
        self.statements["seat"] = PreparedStatement(seat, dialect)
        self.statements["lease"] = PreparedStatement(lease, dialect, ("expires",))
        changed = sa.select(shared_trials.c.changed, shared_trials.c.worker, *rows.TRIAL_COLUMNS).join_from(
            shared_trials,
            trials,
            (trials.c.study_id == shared_trials.c.study_id) & (trials.c.number == shared_trials.c.trial),
        )
        of_changed = sa.select(*rows.RUN_COLUMNS).join_from(
            shared_trials, runs, (runs.c.study_id == shared_trials.c.study_id) & (runs.c.trial == shared_trials.c.trial)
        )
        held = sa.select(leases.c.token, studies.c.searcher_state, studies.c.state)
        held = held.select_from(leases.join(studies, sa.true()))
        held = held.where(STUDY_LEASES.of_subject, STUDY_LEASES.of_row).with_for_update()
        self.queries = {
            "held": PreparedQuery(held, dialect),
            "trials": PreparedQuery(
                changed.where(_news).order_by(shared_trials.c.changed, shared_trials.c.trial), dialect
            ),
            "runs": PreparedQuery(of_changed.where(_news).order_by(runs.c.trial, runs.c.attempt), dialect),
            "all trials": PreparedQuery(_ALL_TRIALS, dialect),
            "all runs": PreparedQuery(_ALL_RUNS, dialect),
            "trial": PreparedQuery(
                sa.select(trials.c.state, trials.c.attempts).where(_OF_STUDY, trials.c.number == _TRIAL), dialect
            ),
            "last": PreparedQuery(
                sa.select(sa.func.max(shared_trials.c.changed)).where(shared_trials.c.study_id == _STUDY), dialect
            ),
            "workers": PreparedQuery(_WORKERS, dialect),
            "proposer": PreparedQuery(_PROPOSER, dialect),
            "alone": PreparedQuery(LOCK_ALONE, dialect),
            "open": PreparedQuery(
                sa.select(trials.c.number, shared_trials.c.worker).select_from(_WITH_WORKER).where(_OF_STUDY, _OPEN),
                dialect,
            ),
            "newest": PreparedQuery(sa.select(sa.func.max(trials.c.number)).where(_OF_STUDY), dialect),
        }
        self._changes: dict[tuple[str, ...], PreparedStatement] = {}
        self.quick = turns_of(database, study_id)

    def join(self, holder: str, seconds: float) -> str:
        """Become a worker of the study, with a lease of so many seconds; the token is returned.

        Raises:
            StudyBusyError: A live process holds it alone.
            StudyNotFoundError: There is no such study.
        """
        token = secrets.token_hex(16)
        with self._database.write() as connection:
            name = connection.scalar(sa.select(studies.c.name).where(studies.c.id == self.study_id))
            if name is None:
                raise StudyNotFoundError(f"there is no study number {self.study_id}")
            found = STUDY_LEASES.lock(connection, self.study_id)
            other = holders.live_holder(found.holder, found.expires)
            if found.token != SHARED and other is not None:
                raise StudyBusyError(
                    f"study {self.study_id} ({name}) is being run by process {holders.display_name(other)} alone",
                    hint="open it there with Study.open, too, or wait for its end",
                )
            now = time.time()
            lease = {"token": token, "holder": holder, "since": now, "expires": now + seconds}
            connection.execute(sa.insert(leases), {**STUDY_LEASES.row(self.study_id, token), **lease})
            if found.token == SHARED:
                STUDY_LEASES.renew(connection, self.study_id, SHARED, seconds)
            else:
                STUDY_LEASES.take(connection, self.study_id, WORKERS, seconds, SHARED)
        return token

    def leave(self, token: str) -> None:
        """Be a worker no more; the last one lets go of the study."""
        with self._database.write() as connection:
            STUDY_LEASES.lock(connection, self.study_id)
            STUDY_LEASES.forget_seats(connection, self.study_id, [token])
            PROPOSER_LEASES.release(connection, self.study_id, token)
            if not live_workers(connection, self.study_id):
                STUDY_LEASES.release(connection, self.study_id, SHARED, moment=time.time())

    def changes(self, since: int) -> SharedChanges:
        """As `SharedStep.changes`, without keeping anybody from anything."""
        with self._database.read() as connection:
            return SharedStep(self, connection).changes(since)

    def everything(self) -> tuple[list[Trial], list[Run]]:
        """All trials and all runs as they were at one moment, without keeping anybody from anything."""
        place = {"study_": self.study_id}
        with self._database.read() as connection:
            found = [rows.trial_of(row) for row in self.queries["all trials"].fetch(connection, place)]
            return found, [rows.run_of(row) for row in self.queries["all runs"].fetch(connection, place)]

    def open(self) -> dict[int, str | None]:
        """As `SharedStep.open`, without keeping anybody from anything."""
        with self._database.read() as connection:
            return SharedStep(self, connection).open()

    @contextmanager
    def step(self, *, lasting: bool) -> Iterator[SharedStep]:
        """A transaction in which nobody else changes the study; it is written when the block ends, or not at all.

        Args:
            lasting: It survives a power cut, and not only a crash of the process.

        Raises:
            StudyBusyError: Another process has taken the study for itself.
            StoreError: It could not be written.
        """
        if self._database.path is None:
            with self._database.write(lasting=lasting) as connection:
                self.queries["alone"].fetch(connection, {"study_": self.study_id})
                yield self._begun(connection)
            return
        with self._database.alone(lasting=lasting) as driver:
            yield self._begun(driver)
        if lasting:
            self._database.sync()
        self._database.tidy()

    def change_study(self, connection: AnyConnection, fields: Mapping[str, Any]) -> None:
        """Change fields of the study, within a step."""
        names = tuple(fields)
        if names not in self._changes:
            self._changes[names] = PreparedStatement(STUDY_LEASES.change, self._database.sql, names)
        self._changes[names].run(connection, [{**fields, "id_": self.study_id}])

    def _begun(self, connection: AnyConnection) -> SharedStep:
        ((token, searcher_state, state),) = self.queries["held"].fetch(connection, {"id_": self.study_id})
        if token != SHARED:
            raise StudyBusyError(
                f"study {self.study_id} is not shared any more: another process took it for itself",
                hint="open it again once that one has ended",
            )
        return SharedStep(self, connection, searcher_state, state)


def wait_for_workers(connection: Connection, study_id: int) -> None:
    """Wait until no worker is at a step or a turn, and keep them from the next one until the transaction ends."""
    if connection.dialect.name == "postgresql":  # SQLite has one writer at a time
        connection.execute(LOCK_ALONE, {"study_": study_id})


def live_workers(connection: Connection, study_id: int) -> bool:
    """True where a study has a worker that is alive; those of this host that died are forgotten."""
    found = connection.execute(_WORKERS, {"id_": study_id}).all()
    dead = [row.token for row in found if holders.live_holder(row.holder, row.expires) is None]
    if dead:
        STUDY_LEASES.forget_seats(connection, study_id, dead)
    return len(dead) < len(found)
