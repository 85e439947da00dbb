from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tradewind.engine.book import TrialBook
from tradewind.problem import Objective, Trial
from tradewind.reporting.data import StudyData
from tradewind.store.base import Change, Store
from tradewind.store.sql import SqlSettings, SqlStore
from tradewind.testing.stores import study_row, trial


def tried(number: int, objective: float, runtime: float = 30.0, fidelity: float = 1.0, feasible: bool = True) -> Trial:
    made = trial(number, objective, feasible=feasible)
    assert made.observation is not None
    seen = replace(made.observation, runtime=runtime)
    return replace(made, observation=seen, proposal=replace(made.proposal, fidelity=fidelity))


def best_of(trials: Sequence[Trial], goal: Objective) -> int | None:
    book = TrialBook(goal)
    for one in trials:
        book.end(one)
    return book.best.number if book.best else None


@pytest.fixture
def store(tmp_path: object) -> Store:
    return SqlStore(settings=SqlSettings(), url=f"sqlite:///{tmp_path}/tradewind.db")


@pytest.mark.parametrize(
    ("goal", "best", "trials"),
    [
        ("minimise", 2, [tried(0, 0.5), tried(1, 0.75, runtime=1.0), tried(2, 0.25, runtime=90.0)]),
        ("maximise", 1, [tried(0, 0.5), tried(1, 0.75), tried(2, 0.25, runtime=1.0)]),
        ("minimise", 2, [tried(0, 0.5), tried(1, 0.5, runtime=31.0), tried(2, 0.5, runtime=29.0)]),
        ("maximise", 2, [tried(0, 0.5), tried(1, 0.5, runtime=31.0), tried(2, 0.5, runtime=29.0)]),
        ("minimise", 0, [tried(0, 0.5), tried(1, 0.5), tried(2, 0.75)]),
        ("minimise", 1, [tried(0, 0.1, fidelity=0.5), tried(1, 0.5), tried(2, 0.1, feasible=False)]),
        ("minimise", None, [tried(0, 0.1, fidelity=0.5), tried(1, 0.5, feasible=False)]),
    ],
)
def test_engine_store_and_report_agree_on_the_best(
    store: Store, goal: str, best: int | None, trials: list[Trial]
) -> None:
    objective = Objective("cost", "maximise" if goal == "maximise" else "minimise")
    for order in itertools.permutations(trials):  # in which order they ended makes no difference
        assert best_of(order, objective) == best
    for spec in ({"objective": {goal: "cost"}}, {"objective": {"metric": "cost", "goal": goal}}):
        study = store.create_study(study_row(spec=spec))
        store.write(study.id, Change(trials))
        summary = store.summaries([study.id])[0]
        assert (summary.best.number if summary.best else None) == best
        data = StudyData.load(store, study.id)
        assert (data.best.number if data.best else None) == best
    store.close()
