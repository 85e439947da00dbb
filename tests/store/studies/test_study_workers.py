"""Steps of several workers on one study, on SQLite and on PostgreSQL."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tradewind import Study
from tradewind.errors import StudyBusyError, StudyNotFoundError
from tradewind.store.base import StudyRow, this_process
from tradewind.testing.stores import study_row

JOB: dict[str, Any] = {
    "name": "shared",
    "space": {"x": {"type": "float", "low": 0, "high": 1}},
    "objective": {"minimise": "value"},
    "searcher": "random",
    "budget": {"trials": 40},
}


@pytest.fixture(params=["sqlite_url", "postgresql_url"])
def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(request.param)
    return found


def test_leases_of_workers_and_of_one_alone_keep_each_other_out(url: str, open_store: Any) -> None:
    store = open_store(url)
    study: StudyRow = store.create_study(study_row("a"))
    workers = store.workers(study.id)
    with pytest.raises(StudyNotFoundError):
        store.workers(study.id + 1).join(this_process(), 60.0)
    one = workers.join(this_process(), 60.0)
    two = workers.join("elsewhere:1:1.00@x", 60.0)
    with pytest.raises(StudyBusyError, match="several workers"):
        store.hold(study.id, this_process(), 60.0)
    workers.leave(one)
    with workers.step(lasting=True) as step:
        assert step.live() == {two}
        step.renew(two, "elsewhere:1:1.00@x", -1.0)
    token = store.hold(study.id, this_process(), 60.0)
    with pytest.raises(StudyBusyError, match="took it for itself"), workers.step(lasting=True):
        pass
    with pytest.raises(StudyBusyError, match="alone"):
        workers.join(this_process(), 60.0)
    store.release(study.id, token)
    workers.leave(workers.join(this_process(), 60.0))
    assert store.summaries([study.id])[0].holder == ""


@pytest.mark.slow
def test_workers_at_once_share_the_trials_out(url: str, open_store: Any) -> None:
    store = open_store(url)
    lock, seen = threading.Lock(), list[int]()

    def work(number: int) -> None:
        with Study.open(url, JOB) as study:
            while given := study.ask():
                with lock:
                    seen.append(given[0].number)
                study.tell(given[0], runtime=1.0, metrics={"value": 1.0})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert sorted(seen) == list(range(40))
    (study,) = store.find_studies()
    assert {trial.state.value for trial in store.trials(study.id)} == {"succeeded"}
    assert store.find_studies()[0].state == "finished"
