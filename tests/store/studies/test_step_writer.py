"""Steps of a search, written by who holds the study."""

from __future__ import annotations

import pytest
from tests.store.conftest import OpenStore

from tradewind.errors import StoreError, StudyBusyError
from tradewind.problem import RunState
from tradewind.store.base import Change
from tradewind.store.sql.database import Database
from tradewind.store.sql.schema import runs
from tradewind.store.studies import rows
from tradewind.store.studies.step_writer import PostgresqlStepWriter, step_writer_for, upsert
from tradewind.testing.stores import run, study_row, trial


@pytest.fixture(params=["sqlite_url", "postgresql_url"])
def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(request.param)
    return found


@pytest.mark.slow
def test_a_step_is_written_whole_by_the_holder_only(url: str, open_store: OpenStore) -> None:
    store = open_store(url)
    study = store.create_study(study_row()).id
    token = store.hold(study, "here:1:1.0", 60)
    first = run(0, state=RunState.EXECUTING)
    store.write(study, Change([trial(0)], [first], {"elapsed": 1.0}, lasting=False), token)
    assert (store.trials(study), store.runs(study)) == ([trial(0)], [first])
    with pytest.raises(StudyBusyError):
        store.write(study, Change([trial(0, 0.5)], [run(0)], {"elapsed": 2.0}), "another")
    assert (store.trials(study), store.runs(study), store.study(study).elapsed) == ([trial(0)], [first], 1.0)
    store.write(study, Change([trial(0, 0.5)], [run(0)], {"elapsed": 2.0, "reason": "done"}), token)
    found = store.study(study)
    assert (store.trials(study), store.runs(study)) == ([trial(0, 0.5)], [run(0)])
    assert (found.elapsed, found.reason) == (2.0, "done")
    store.write(study, Change(study={"elapsed": 3.0}), token)
    store.write(study, Change([trial(1), trial(2, 0.5)], [run(1), run(2)], {"elapsed": 4.0}), token)
    assert [t.number for t in store.trials(study)] == [0, 1, 2]
    assert store.study(study).elapsed == 4.0


@pytest.mark.slow
def test_a_run_without_its_trial_undoes_the_step(url: str, open_store: OpenStore) -> None:
    store = open_store(url)
    study = store.create_study(study_row()).id
    token = store.hold(study, "here:1:1.0", 60)
    with pytest.raises(StoreError):
        store.write(study, Change([trial(0)], [run(7)], {"elapsed": 1.0}), token)
    assert (store.trials(study), store.study(study).elapsed) == ([], 0.0)
    store.write(study, Change([trial(0)], [run(0)], {"elapsed": 2.0}), token)
    assert store.study(study).elapsed == 2.0


@pytest.mark.slow
def test_a_token_of_nobody_writes_nothing(url: str, open_store: OpenStore) -> None:
    store = open_store(url)
    study = store.create_study(study_row()).id
    database = Database(url, busy_timeout=5.0)
    row = rows.trial_values(study, trial(0))
    assert not step_writer_for(database).write(study, "none", {"elapsed": 1.0}, [row], [], True)
    assert (store.trials(study), store.study(study).elapsed) == ([], 0.0)
    database.close()


def test_only_what_need_not_last_is_committed_without_waiting(postgresql_url: str, open_store: OpenStore) -> None:
    store = open_store(postgresql_url)
    study = store.create_study(study_row()).id
    token = store.hold(study, "here:1:1.0", 60)
    database = Database(postgresql_url, busy_timeout=5.0)
    steps = PostgresqlStepWriter(database)
    for number, lasting in enumerate((False, True)):
        row = rows.trial_values(study, trial(number))
        assert steps.write(study, token, {"elapsed": 1.0}, [row], [], lasting)
        assert database.at_once("SHOW synchronous_commit", {}) == ("on",)
    assert ["'synchronous_commit', 'off'" in text for text in steps._texts.values()] == [True, False]
    database.close()


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
def test_the_index_of_runs_by_trial_is_left_alone_by_changes_of_a_run(dialect: str) -> None:
    changed = str(upsert(runs, dialect)).partition("DO UPDATE SET")[2]
    assert "cost = excluded.cost" in changed
    assert not any(f"{name} = " in changed for name in ("trial", "attempt", "run_id", "study_id"))
