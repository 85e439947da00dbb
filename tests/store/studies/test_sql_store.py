"""What the SQL store does beyond the contract."""

from __future__ import annotations

import contextlib
import math
import stat
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.effort import share
from tests.store.strategies import runs, trials

from tradewind import plugins
from tradewind.errors import SpecError, StoreError
from tradewind.problem import Run, Trial
from tradewind.store.base import Change, Store
from tradewind.store.studies.sql_store import SqlStore
from tradewind.testing.stores import run, study_row, trial

OpenStore = Callable[..., Store]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    url = f"sqlite:///{tmp_path_factory.mktemp('shared') / 'tradewind.db'}"
    with contextlib.closing(plugins.create("store", "sql", {}, url=url)) as store:
        yield store


def _as_an_engine_writes_it(trial: Trial, ran: bool) -> Trial:
    """An ended trial as it may be imported: with a cost and a time, and money spent only on a run."""
    seen = trial.observation
    odd = seen is not None and not (0 <= seen.cost < math.inf and seen.runtime >= 0)
    return replace(trial, spent=trial.spent if ran else 0.0, observation=None if odd else seen)


@pytest.mark.slow
@settings(max_examples=share(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(trials, max_size=3, unique_by=lambda t: t.number), st.lists(runs, max_size=3, unique_by=lambda r: r.run_id)
)
def test_trials_and_runs_of_any_kind_come_back(shared: Store, some: list[Trial], tries: list[Run]) -> None:
    study = shared.create_study(study_row())
    attached = tries if any(t.number == 0 for t in some) else []
    shared.write(study.id, Change(some, attached))
    assert repr(shared.trials(study.id)) == repr(sorted(some, key=lambda t: t.number))
    assert repr(shared.runs(study.id)) == repr(sorted(attached, key=lambda r: (r.attempt, r.run_id)))
    paid = [r for r in attached if r.state.ended]
    possible = [_as_an_engine_writes_it(t, bool(paid) and t.number == 0) for t in some if t.state.ended]
    first, other = shared.create_study(study_row()), shared.create_study(study_row())
    shared.write(first.id, Change(possible, paid if any(t.number == 0 for t in possible) else []))
    assert shared.import_records(other, shared.export_records(first.id)).new == len(possible)
    assert repr(shared.trials(other.id)) == repr(sorted(possible, key=lambda t: t.number))
    shared.summaries([study.id])
    shared.columns(study.id)


def test_the_file_and_its_folder_are_made_for_the_user_alone(tmp_path: Path, open_store: OpenStore) -> None:
    path = tmp_path / "a" / "b" / "tradewind.db"
    open_store(f"sqlite:///{path}")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_everything_is_there_after_closing(sqlite_url: str, open_store: OpenStore) -> None:
    first = open_store(sqlite_url)
    study = first.create_study(study_row())
    first.write(study.id, Change([trial(0, 0.5)], [run(0)]))
    first.close()
    second = open_store(sqlite_url)
    assert second.find_studies() == [study]
    assert second.trials(study.id) == [trial(0, 0.5)]


def test_a_commit_is_synced_and_readers_do_not_wait(sqlite_url: str, open_store: OpenStore) -> None:
    store = open_store(sqlite_url)
    assert isinstance(store, SqlStore)
    with store._database.read() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1


def test_status_reads_no_row_of_a_run(sqlite_url: str, open_store: OpenStore) -> None:
    store = open_store(sqlite_url)
    assert isinstance(store, SqlStore)
    queries = {
        "SELECT state, sum(cost), sum(reserved) FROM runs WHERE study_id = 1 GROUP BY state": (
            "COVERING INDEX runs_by_state"
        ),
        "SELECT state, count(*) FROM trials WHERE study_id = 1 GROUP BY state": "COVERING INDEX trials_by_state",
        "SELECT * FROM trials WHERE study_id = 1 AND feasible = 1 AND objective IS NOT NULL "
        "AND state = 'succeeded' AND fidelity >= 1 "
        "ORDER BY objective, runtime NULLS LAST, number LIMIT 1": "INDEX trials_by_objective",
    }
    with store._database.read() as connection:
        for query, index in queries.items():
            plan = [row.detail for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {query}")]
            assert index in plan[0]


def test_the_same_process_takes_its_study_again(sqlite_url: str, open_store: OpenStore) -> None:
    store = open_store(sqlite_url)
    study = store.create_study(study_row())
    holder = "elsewhere:1:1.00"
    old = store.hold(study.id, holder, 60)
    new = store.hold(study.id, holder, 60)
    assert old != new
    store.renew(study.id, new, 60)
    with pytest.raises(StoreError, match="no longer holds"):
        store.renew(study.id, old, 60)


def test_words_that_no_database_takes(sqlite_url: str, open_store: OpenStore) -> None:
    store = open_store(sqlite_url)
    study = store.create_study(study_row("job\0\udc80"))
    assert study.name == "job\N{REPLACEMENT CHARACTER}?"
    assert store.find_studies("job\0\udc80") == [study]


@pytest.mark.slow
def test_threads_share_a_store(sqlite_url: str, open_store: OpenStore) -> None:
    store = open_store(sqlite_url)
    study = store.create_study(study_row())

    def write(first: int) -> None:
        for number in range(first, first + 10):
            store.write(study.id, Change([trial(number, 0.5)], [run(number)]))

    threads = [threading.Thread(target=write, args=(10 * i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [t.number for t in store.trials(study.id)] == list(range(40))


def test_a_long_export_goes_by_portions(
    sqlite_url: str, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tradewind.store.studies.sql_store._CHUNK", 3)
    store = open_store(sqlite_url)
    study = store.create_study(study_row())
    numbers = [0, 1, 2, 5, 6, 9, 10]
    store.write(study.id, Change([trial(n, 0.5) for n in numbers], [run(n, a) for n in numbers for a in (1, 2)]))
    records = list(store.export_records(study.id))
    assert [record["number"] for record in records] == numbers
    assert [[r["run_id"] for r in record["runs"]] for record in records] == [
        [f"run-{n}-1", f"run-{n}-2"] for n in numbers
    ]


def test_a_setting_that_is_wrong() -> None:
    with pytest.raises(SpecError, match="busy_timeout"):
        plugins.create("store", "sql", {"busy_timeout": -1}, url="sqlite:///x.db")
