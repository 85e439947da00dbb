"""Turns of a worker that needs to know nothing of the others: one tells a trial and takes the next, in one transaction.

On SQLite it is a few short statements. On PostgreSQL it is one statement, sent together with the one that locks: turns
of many workers go on side by side, and wait for the disk together.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from tradewind.errors import StoreError, StudyBusyError
from tradewind.problem import Run, Trial, TrialState
from tradewind.store import holders
from tradewind.store.sql.database import Database
from tradewind.store.sql.leases import STUDY_LEASES, Lease
from tradewind.store.sql.raw_driver import PreparedQuery, PreparedStatement
from tradewind.store.sql.schema import leases, runs, shared_trials, studies, trials
from tradewind.store.studies import rows

SHARED = "shared"
"""The token of a study that several workers hold; the one that takes it alone finds out by it."""

AHEAD = "ahead"
"""The worker of a trial that was proposed before anybody asked: the next one that asks gets it."""

NOBODY = -1
"""The number of no trial."""


@dataclass(frozen=True, slots=True)
class Told:
    """A trial as its run has left it.

    Attributes:
        trial: The trial, which has ended.
        run: Its run.
    """

    trial: Trial
    run: Run


@dataclass(frozen=True, slots=True)
class Wanted:
    """The trials that a worker wants to take, of those that were proposed ahead.

    Attributes:
        count: How many at most.
        more: It is of interest whether so many others are left.
        after: Those of larger numbers only: so the ones that were taken before are not looked through.
        since: No trial was given back, or enqueued, until the change of that number.
    """

    count: int
    more: int
    after: int = NOBODY
    since: int = 0


@dataclass(frozen=True, slots=True)
class Turn:
    """Result of a turn.

    Attributes:
        done: What was told is written. False where it is not: it was told before, or ends the study.
        state: The study's state.
        taken: The trials that were taken, with their runs.
        left: How many others are left, as far as it was of interest.
        waits: A trial was given back or enqueued: it comes first, and none was taken.
        newest: Number of the newest trial.
        number: Number of the last change.
        proposer: The lease of the worker that makes the proposals.
    """

    done: bool
    state: str
    taken: Sequence[tuple[Trial, Sequence[Run]]]
    left: int
    waits: bool
    newest: int
    number: int
    proposer: Lease

    @property
    def is_proposed_for(self) -> bool:
        """True where a worker that is alive makes the proposals."""
        return holders.live_holder(self.proposer.holder, self.proposer.expires) is not None


def _bind(name: str, kind: Any = None) -> sa.BindParameter[Any]:
    return sa.bindparam(f"{name}_", type_=kind or sa.Integer())


_STUDY, _TRIAL, _ATTEMPT = _bind("study"), _bind("trial"), _bind("attempt")
_OPEN_STATES = tuple(state.value for state in TrialState if not state.ended)
_OPEN = sa.or_(*(trials.c.state == sa.literal_column(f"'{name}'") for name in _OPEN_STATES))
# Who knows a trial's number is not to look for it by its state: that index has an entry of each one that ran.
_RUNNING = trials.c.state.concat(sa.literal_column("''")) == sa.literal_column(f"'{TrialState.RUNNING.value}'")
_IS_AHEAD = shared_trials.c.worker == sa.literal_column(f"'{AHEAD}'")
_MINE = shared_trials.c.study_id == _STUDY
_EVERY = shared_trials.alias("every")
_CHANGED = (
    sa.select(sa.func.coalesce(sa.func.max(_EVERY.c.changed), sa.literal_column("0")))
    .where(_EVERY.c.study_id == _STUDY)
    .scalar_subquery()
)
_NEXT = _CHANGED + sa.literal_column("1")
_NEWEST = sa.select(sa.func.coalesce(sa.func.max(trials.c.number), sa.literal_column(str(NOBODY)))).where(
    trials.c.study_id == _STUDY
)
_STANDS = (trials.c.study_id == _STUDY) & (trials.c.number == _TRIAL) & _RUNNING & (trials.c.attempts == _ATTEMPT)
_OTHERS = sa.exists(sa.select(1).where(trials.c.study_id == _STUDY, trials.c.number != _TRIAL, _OPEN))
# As a subquery for each of the few rows: PostgreSQL keeps the plan that it has made while the tables were nearly empty.
_ITS_STATE = (
    sa.select(trials.c.state)
    .where(trials.c.study_id == _STUDY, trials.c.number == shared_trials.c.trial)
    .correlate(shared_trials)
    .scalar_subquery()
)
_WAITS = sa.exists(
    sa.select(1)
    .where(_MINE, shared_trials.c.changed > _bind("since", sa.BigInteger()), shared_trials.c.worker.is_(None))
    .where(_ITS_STATE.in_([sa.literal_column(f"'{name}'") for name in _OPEN_STATES]))
)
_FREE = (
    sa.select(shared_trials.c.trial)
    .where(_MINE, _IS_AHEAD, shared_trials.c.trial > _bind("after"))
    .order_by(shared_trials.c.trial)
)

_LEAD = leases.alias("proposer")
_LEADS = (
    (_LEAD.c.kind == sa.literal_column("'proposer'"))
    & (_LEAD.c.seat == sa.literal_column("''"))
    & (_LEAD.c.subject == leases.c.subject)
)
_HEAD = (
    sa.select(
        leases.c.token,
        studies.c.state,
        _LEAD.c.token.label("proposer"),
        _LEAD.c.holder,
        _LEAD.c.expires,
        _NEWEST.scalar_subquery().label("newest"),
        _CHANGED.label("number"),
    )
    .select_from(leases.join(studies, sa.true()).outerjoin(_LEAD, _LEADS))
    .where(STUDY_LEASES.of_subject, studies.c.id == _STUDY)
)
_HEAD_WIDTH = 7
_LOOK = _HEAD.add_columns(_WAITS, sa.exists(_FREE))

_OF_A_TOLD_TRIAL = (
    *("state", "objective", "cost", "runtime", "feasible", "censored", "spent", "attempts", "started", "ended"),
    "observation",
)
_OF_A_TOLD_RUN = ("state", "reserved", "cost", "runtime", "started", "ended", "exit_code", "details")


def _told_values(table: sa.Table, letter: str, names: Sequence[str]) -> dict[str, Any]:
    return {name: sa.bindparam(f"{letter}_{name}", type_=table.c[name].type) for name in names}


_TELL = sa.update(trials).where(_STANDS).values(_told_values(trials, "t", _OF_A_TOLD_TRIAL))
_END = (
    sa.update(runs)
    .where(runs.c.study_id == _STUDY, runs.c.run_id == _bind("run", sa.Text()))
    .values(_told_values(runs, "r", _OF_A_TOLD_RUN))
)


_MARK = sa.update(shared_trials).where(_MINE, shared_trials.c.trial == _TRIAL).values(worker=sa.null())
_TAKE = sa.update(shared_trials).values(worker=_bind("token", sa.Text()))
_TAKEN = (
    sa.select(*rows.TRIAL_COLUMNS, *rows.RUN_COLUMNS)
    .select_from(trials.join(runs, (runs.c.study_id == trials.c.study_id) & (runs.c.trial == trials.c.number)))
    .where(trials.c.study_id == _STUDY)
    .order_by(trials.c.number, runs.c.attempt)
)
_TRIAL_WIDTH = len(rows.TRIAL_COLUMNS)


class QuickTurns(ABC):
    """The turns of one worker of a study.

    Args:
        database: The open database.
        study_id: The study.
    """

    def __init__(self, database: Database, study_id: int) -> None:
        self._database = database
        self._study = study_id

    def look(self, wanted: Wanted) -> Turn:
        """Find what a turn would find that takes nothing, without keeping anybody from anything.

        It counts no more than one as left.

        Raises:
            StudyBusyError: Another process has taken the study for itself.
            StoreError: It could not be read.
        """
        place = {"study_": self._study, "id_": self._study, "after_": wanted.after, "since_": wanted.since}
        ((held, state, lead, holder, expires, newest, number, waits, left),) = self._database.rows(_LOOK, **place)
        self._check(held)
        return Turn(state == "open", state, (), int(left), bool(waits), newest, number, Lease(lead, holder, expires))

    @abstractmethod
    def take(self, token: str, told: Told | None, wanted: Wanted, most: int | None) -> Turn | None:
        """Write what was told of a trial, if it is still to be told, and take the next ones; it lasts then.

        Args:
            token: The worker's.
            told: The trial, with its run; None where nothing is told.
            wanted: The trials that it wants.
            most: How many trials the study may have.

        Returns:
            What came of it; None where the server went away, and nobody knows.

        Raises:
            StudyBusyError: Another process has taken the study for itself.
            StoreError: It could not be written.
        """

    @abstractmethod
    def give_back(self, token: str, taken: Sequence[int]) -> None:
        """Let others have trials that were taken, as far as this worker has them still."""

    def _values(self, told: Told | None, wanted: Wanted) -> dict[str, Any]:
        found: dict[str, Any] = {"study_": self._study, "id_": self._study}
        found |= {"trial_": NOBODY, "attempt_": 0, "since_": wanted.since, "after_": wanted.after}
        if told is not None:
            trial, run = rows.trial_values(self._study, told.trial), rows.run_values(self._study, told.run)
            found |= {f"t_{name}": trial[name] for name in _OF_A_TOLD_TRIAL}
            found |= {f"r_{name}": run[name] for name in _OF_A_TOLD_RUN}
            found |= {"trial_": told.trial.number, "attempt_": told.run.attempt, "run_": told.run.run_id}
        return found

    def _check(self, token: str | None) -> None:
        if token != SHARED:
            raise StudyBusyError(
                f"study {self._study} is not shared any more: another process took it for itself",
                hint="open it again once that one has ended",
            )


class SqliteTurns(QuickTurns):
    """On SQLite: a few short statements; who waits for the disk keeps nobody waiting."""

    def __init__(self, database: Database, study_id: int) -> None:
        super().__init__(database, study_id)
        sql = database.sql
        changed, one = {"changed": sa.bindparam("number_", type_=sa.BigInteger())}, shared_trials.c.trial == _TRIAL
        mine = _MINE & (shared_trials.c.worker == _bind("token", sa.Text()))
        self._head, self._free = PreparedQuery(_HEAD, sql), PreparedQuery(_FREE.limit(_bind("most")), sql)
        self._waits, self._others = PreparedQuery(sa.select(_WAITS), sql), PreparedQuery(sa.select(_OTHERS), sql)
        self._taken = PreparedQuery(_TAKEN.where(trials.c.number == _TRIAL), sql)
        self._mine = PreparedQuery(sa.select(shared_trials.c.trial).where(mine, one), sql)
        self._tell, self._end = PreparedStatement(_TELL, sql), PreparedStatement(_END, sql)
        self._mark = PreparedStatement(_MARK.values(changed), sql)
        self._take = PreparedStatement(_TAKE.where(_MINE, one).values(changed), sql)
        self._back = PreparedStatement(
            sa.update(shared_trials).where(mine, one).values(worker=sa.literal_column(f"'{AHEAD}'"), changed=_NEXT),
            sql,
        )

    def take(self, token: str, told: Told | None, wanted: Wanted, most: int | None) -> Turn | None:
        """Write what was told, and take the next trials, together with the turns of other threads of this process."""
        values = {**self._values(told, wanted), "most_": wanted.count + wanted.more, "token_": token}
        found: Turn | None = None

        def work(driver: sqlite3.Connection) -> None:
            nonlocal found
            # It is done once more where another thread was interrupted: this one's may be written for all that.
            if found is None or not self._is_taken(driver, values, found):
                found = self._take_now(driver, values, told, wanted, most)

        self._database.write_batched_directly(work, lasting=told is not None)
        return found

    def _is_taken(self, driver: sqlite3.Connection, values: dict[str, Any], turn: Turn) -> bool:
        for trial, _ in turn.taken:
            return bool(self._mine.fetch(driver, {**values, "trial_": trial.number}))
        return False

    def _take_now(
        self, driver: sqlite3.Connection, values: dict[str, Any], told: Told | None, wanted: Wanted, most: int | None
    ) -> Turn:
        taken, free, waits = list[Any](), list[int](), False
        ((held, state, lead, holder, expires, newest, number),) = self._head.fetch(driver, values)
        self._check(held)
        done = state == "open"
        if done and told is not None:
            last = most is not None and newest + 1 >= most and not self._others.fetch(driver, values)[0][0]
            done = not last and self._tell.run(driver, [values]) == 1
            if done:
                number += 1
                self._end.run(driver, [values])
                self._mark.run(driver, [{**values, "number_": number}])
        if done and wanted.count:
            waits = bool(self._waits.fetch(driver, values)[0][0])
            free = [] if waits else [row[0] for row in self._free.fetch(driver, values)]
        if mine := [{**values, "trial_": trial, "number_": number + 1} for trial in free[: wanted.count]]:
            number += 1
            self._take.run(driver, mine)
            taken = [self._taken.fetch(driver, one) for one in mine]
        found = [row for some in taken for row in some]
        proposer = Lease(lead, holder, expires)
        return Turn(done, state, _trials_of(found), len(free) - len(taken), waits, newest, number, proposer)

    def give_back(self, token: str, taken: Sequence[int]) -> None:
        """Let others have trials that were taken."""
        values = [{"study_": self._study, "token_": token, "trial_": trial} for trial in taken]
        self._database.write_batched_directly(lambda driver: self._give_now(driver, values), lasting=False)

    def _give_now(self, driver: sqlite3.Connection, values: Sequence[Mapping[str, Any]]) -> None:
        self._back.run(driver, values)


_Written = tuple[
    str, tuple[str, ...], dict[str, Any]
]  # a statement's text, its parameters, and their values if constant

_LOCKS = 0x7477
"""The advisory locks of PostgreSQL that steps of workers are made under, by study."""

LOCK_ALONE = sa.select(sa.func.pg_advisory_xact_lock(sa.literal_column(str(_LOCKS)), _STUDY))
LOCK_WITH_OTHERS = sa.select(sa.func.pg_advisory_xact_lock_shared(sa.literal_column(str(_LOCKS)), _STUDY))


class PostgresqlTurns(QuickTurns):
    """On PostgreSQL: the lock, what is told and what is taken are statements of one message.

    It locks with others: a step that is made alone waits for all turns, and these for it. The numbers of changes are
    found after the lock, in statements of their own: whoever reads alone has seen all smaller ones. What is told comes
    first: it may have to wait for a turn that looked at its row, and who takes trials waits for nobody.
    """

    def __init__(self, database: Database, study_id: int) -> None:
        super().__init__(database, study_id)
        self._lock = self._written(LOCK_WITH_OTHERS)
        self._tell = {limited: self._written(_telling(limited)) for limited in (True, False)}
        self._take, self._look = self._written(_taking()), self._written(_HEAD)
        mine = _MINE & (shared_trials.c.worker == _bind("token", sa.Text()))
        self._back = self._written(
            sa.update(shared_trials)
            .where(mine, shared_trials.c.trial == sa.func.any(_bind("taken", sa.ARRAY(sa.Integer))))
            .values(worker=sa.literal_column(f"'{AHEAD}'"), changed=_NEXT)
            .returning(shared_trials.c.trial)
        )

    def take(self, token: str, told: Told | None, wanted: Wanted, most: int | None) -> Turn | None:
        """Write what was told, and take the next trials."""
        values = {**self._values(told, wanted), "token_": token, "many_": wanted.count}
        values |= {"more_": wanted.count + wanted.more, "limit_": most}
        statements = [self._tell[most is not None]] if told is not None else []
        found = self._together([*statements, self._take if wanted.count else self._look], values)
        if found is None:
            return None
        held, state, lead, holder, expires, newest, number = found[-1][0][:_HEAD_WIDTH]
        self._check(held)
        taken, waits, left = list[Any](), False, 0
        if wanted.count:
            waits, free = found[-1][0][_HEAD_WIDTH : _HEAD_WIDTH + 2]
            at = _HEAD_WIDTH + 2
            taken = _trials_of([row[at:] for row in found[-1] if row[at] is not None])
            left = max(0, free - len(taken))
        done = bool(found[1]) if told is not None else state == "open"
        return Turn(done, state, taken, left, bool(waits), newest, number, Lease(lead, holder, expires))

    def give_back(self, token: str, taken: Sequence[int]) -> None:
        """Let others have trials that were taken."""
        values = {"study_": self._study, "token_": token, "taken_": list(taken)}
        for _ in range(2):  # twice is the same as once
            if self._together([self._back], values) is not None:
                return
        raise StoreError(f"the connection to {self._database.place} was lost twice", hint="try again")

    def _written(self, statement: Any) -> _Written:
        compiled = statement.compile(dialect=self._database.sql)
        text, constants = str(compiled), compiled.params
        return text, tuple(constants), constants

    def _together(self, statements: Sequence[_Written], values: dict[str, Any]) -> Sequence[Sequence[Any]] | None:
        """The rows of the lock and of each statement; each gets those of the values that it has."""
        every = [
            (text, {name: values.get(name, constants[name]) for name in names})
            for text, names, constants in (self._lock, *statements)
        ]
        return self._database.together(every)


def _telling(limited: bool) -> Any:
    """One statement that writes what was told, if the study is shared and open and this does not end it."""
    held = sa.exists(
        sa.select(1)
        .select_from(leases.join(studies, sa.true()))
        .where(STUDY_LEASES.of_subject, studies.c.id == _STUDY, leases.c.token == sa.literal_column(f"'{SHARED}'"))
        .where(studies.c.state == sa.literal_column("'open'"))
    )
    tell = _TELL.where(held)
    if limited:  # who tells the last one ends the study
        other = trials.alias("other")
        open_ = sa.or_(*(other.c.state == sa.literal_column(f"'{name}'") for name in _OPEN_STATES))
        others = sa.exists(sa.select(1).where(other.c.study_id == _STUDY, other.c.number != _TRIAL, open_))
        newest = sa.select(sa.func.max(other.c.number)).where(other.c.study_id == _STUDY).scalar_subquery()
        tell = tell.where((newest < _bind("limit") - sa.literal_column("1")) | others)
    told = tell.returning(trials.c.number).cte("told")
    was_told = sa.exists(sa.select(1).select_from(told))
    ended = _END.where(was_told).returning(runs.c.run_id).cte("ended")
    marked = _MARK.where(was_told).values(changed=_NEXT).returning(shared_trials.c.trial).cte("marked")
    return sa.select(told.c.number).add_cte(ended, marked)


def _taking() -> Any:
    """One statement that takes trials: a row for each of their runs, or a single one where there is none."""
    head = _HEAD.cte("head")
    waiting = sa.select(_WAITS.label("waits")).cte("waiting")
    go = sa.exists(
        sa.select(1)
        .select_from(head.join(waiting, sa.true()))
        .where(head.c.token == sa.literal_column(f"'{SHARED}'"), head.c.state == sa.literal_column("'open'"))
        .where(sa.not_(waiting.c.waits))
    )
    free = _FREE.limit(_bind("more")).cte("free")
    first = _FREE.where(go).limit(_bind("many")).with_for_update(skip_locked=True).cte("first")
    number = sa.select(head.c.number + sa.literal_column("1")).scalar_subquery()
    taken = (
        _TAKE.where(
            _MINE, shared_trials.c.trial == sa.func.any(sa.func.array(sa.select(first.c.trial).scalar_subquery()))
        )
        .values(changed=number)
        .returning(shared_trials.c.trial)
        .cte("taken")
    )
    columns = [*head.c, waiting.c.waits, sa.select(sa.func.count()).select_from(free).scalar_subquery()]
    trial = _looked_up(rows.TRIAL_COLUMNS, trials.c.study_id == _STUDY, trials.c.number == taken.c.trial)
    run = _looked_up(rows.RUN_COLUMNS, runs.c.study_id == _STUDY, runs.c.trial == taken.c.trial)
    whole = sa.join(head, waiting, sa.true()).outerjoin(taken, sa.true())
    whole = whole.outerjoin(trial, sa.true()).outerjoin(run, sa.true())
    return sa.select(*columns, *trial.c, *run.c).select_from(whole).order_by(trial.c.number, run.c.attempt)


def _looked_up(columns: Sequence[sa.Column[Any]], *where: sa.ColumnElement[bool]) -> Any:
    """Rows that are looked up by their key for each row before them, whatever was planned; see `_ITS_STATE`."""
    return sa.select(*columns).where(*where).offset(sa.literal_column("0")).lateral()


def turns_of(database: Database, study_id: int) -> QuickTurns:
    """The way of a database."""
    return (PostgresqlTurns if database.path is None else SqliteTurns)(database, study_id)


def _trials_of(found: Sequence[Sequence[Any]]) -> list[tuple[Trial, Sequence[Run]]]:
    """Trials and their runs, of rows that are in the order of the trials."""
    made: dict[int, tuple[Trial, list[Run]]] = {}
    for row in found:
        if row[0] not in made:
            made[row[0]] = (rows.trial_of(row[:_TRIAL_WIDTH]), [])
        made[row[0]][1].append(rows.run_of(row[_TRIAL_WIDTH:]))
    return list(made.values())
