"""A step of a search, written by who holds the study: what is done most of all, in the fewest messages."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from tradewind.store.sql.database import Database
from tradewind.store.sql.leases import STUDY_LEASES
from tradewind.store.sql.raw_driver import HeldStudyUpdate, PreparedStatement
from tradewind.store.sql.schema import runs, studies, trials

ColumnValues = Mapping[str, Any]


class StepWriter(ABC):
    """Writes steps: fields of the study, rows of trials and of runs, all of it or nothing."""

    @abstractmethod
    def write(
        self,
        study_id: int,
        token: str,
        fields: ColumnValues,
        new_trials: Sequence[ColumnValues],
        new_runs: Sequence[ColumnValues],
        lasting: bool,
    ) -> bool:
        """Write a step.

        Args:
            study_id: The study.
            token: Of who writes.
            fields: Columns of the study to change, at least one.
            new_trials: Trials to insert or replace, as the values of all columns.
            new_runs: Runs, likewise.
            lasting: False where a power cut may take it back; a crash of this process never does.

        Returns:
            False, and nothing is written, where the token does not hold the study or this step is none for here.
        """


class SqliteStepWriter(StepWriter):
    """On SQLite: a few statements, together with what other threads write at that moment."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._changes = HeldStudyUpdate(database.sql)
        self._put_trial = PreparedStatement(upsert(trials, database.dialect), database.sql)
        self._put_run = PreparedStatement(upsert(runs, database.dialect), database.sql)

    def write(
        self,
        study_id: int,
        token: str,
        fields: ColumnValues,
        new_trials: Sequence[ColumnValues],
        new_runs: Sequence[ColumnValues],
        lasting: bool,
    ) -> bool:
        """Write a step."""
        mine = False

        def work(connection: sqlite3.Connection) -> None:
            nonlocal mine
            mine = self._changes.run(connection, study_id, token, fields)
            if mine and new_trials:
                self._put_trial.run(connection, new_trials)
            if mine and new_runs:
                self._put_run.run(connection, new_runs)

        self._database.write_batched_directly(work, lasting=lasting)
        return mine


class PostgresqlStepWriter(StepWriter):
    """On PostgreSQL: one statement, which is its own transaction; for steps of at most one trial and one run."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._texts: dict[tuple[Any, ...], str] = {}

    def write(
        self,
        study_id: int,
        token: str,
        fields: ColumnValues,
        new_trials: Sequence[ColumnValues],
        new_runs: Sequence[ColumnValues],
        lasting: bool,
    ) -> bool:
        """Write a step."""
        if len(new_trials) > 1 or len(new_runs) > 1:
            return False
        kind = (tuple(fields), len(new_trials), len(new_runs), lasting)
        text = self._texts.get(kind)
        if text is None:
            text = self._texts[kind] = str(_statement(*kind).compile(dialect=self._database.sql))
        values = {"id_": study_id, "token_": token}
        for table, of_table in (("s", (fields,)), ("t", new_trials), ("r", new_runs)):
            for row in of_table:
                values |= {f"{table}_{name}": value for name, value in row.items()}
        return bool(self._database.at_once(text, values)[0])


def step_writer_for(database: Database) -> StepWriter:
    """The way of a database."""
    return PostgresqlStepWriter(database) if database.path is None else SqliteStepWriter(database)


_OF_A_RUN = frozenset({"trial", "attempt"})
"""What a run has for good: SQLite would write their index anew at each change of a run."""


def upsert(table: sa.Table, dialect: str, source: Any = None) -> Any:
    """``INSERT ... ON CONFLICT DO UPDATE`` of all columns, but for what a run has for good.

    Args:
        table: The table.
        dialect: ``sqlite`` or ``postgresql``.
        source: A query for the rows; parameters by the columns' names without it.
    """
    if dialect == "sqlite":  # the other one's modules are not imported
        from sqlalchemy.dialects.sqlite import insert
    else:
        from sqlalchemy.dialects.postgresql import insert  # type: ignore[assignment]
    statement: Any = insert(table)
    if source is not None:
        statement = statement.from_select([column.name for column in table.c], source)
    key = [column.name for column in table.primary_key]
    kept = {*key, *(_OF_A_RUN if table is runs else ())}
    changed = {column.name: statement.excluded[column.name] for column in table.c if column.name not in kept}
    return statement.on_conflict_do_update(index_elements=key, set_=changed)


def _statement(names: Sequence[str], with_trial: int, with_run: int, lasting: bool) -> Any:
    """Change the study if the token holds it, and insert or replace a trial and a run if it was changed.

    Its row has how many studies were changed. What a run refers to is looked at when the whole statement is done.
    """
    changed = {name: sa.bindparam(f"s_{name}", type_=studies.c[name].type) for name in names}
    mine = STUDY_LEASES.change_mine.values(changed).returning(studies.c.id).cte("mine")
    answer: Any = sa.select(sa.select(sa.func.count()).select_from(mine).scalar_subquery())
    if not lasting:
        answer = answer.add_columns(sa.literal_column("set_config('synchronous_commit', 'off', true)"))
    for table, prefix, wanted in ((trials, "t", with_trial), (runs, "r", with_run)):
        if wanted:
            values = [sa.cast(sa.bindparam(f"{prefix}_{column.name}"), column.type) for column in table.c]
            source = sa.select(*values).select_from(mine)
            answer = answer.add_cte(upsert(table, "postgresql", source).cte(f"put_{table.name}"))
    return answer
