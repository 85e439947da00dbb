from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.reporting.conftest import SPEC, Build, make_trial, some_trials

from tradewind.errors import StudyNotFoundError
from tradewind.problem import Budget, Constraints, Objective, Threshold, TrialState
from tradewind.reporting.study.data import StudyData, read_goal
from tradewind.reporting.study.explanation import explain_choice
from tradewind.reporting.study.html import render_html
from tradewind.store.base import Store, StudyRow, StudySummary


def test_columns_masks_and_ranking(store: Store, build: Build) -> None:
    trials = [replace(trial, key=str(trial.number)) for trial in some_trials(60)]  # none repeats another
    data = StudyData.load(store, build(trials))
    assert len(data) == 60
    feasible = [t.number for t in trials if t.observation and t.observation.feasible]
    assert data.number[data.feasible].tolist() == feasible
    assert data.number[data.ranking].tolist() == sorted(feasible, key=lambda n: (trials[n].spent, n))
    assert data.best is not None
    assert data.best_row == data.best.number == data.ranking[0]
    assert int(data.having(TrialState.FAILED).sum()) == sum(t.state is TrialState.FAILED for t in trials)
    assert np.isnan(data.objective[data.having(TrialState.FAILED)]).all()
    assert data.summary.spent == pytest.approx(sum(t.spent for t in trials))


def test_parameters_are_decoded_with_gaps_for_inactive_ones(store: Store, build: Build) -> None:
    trials = [make_trial(0, {"a": 1, "codec": "x"}, 0.1), make_trial(1, {"a": 2.5, "codec": "y", "level": 3}, 0.2)]
    data = StudyData.load(store, build(trials))
    assert set(data.parameters) == {"a", "codec", "level"}
    numbers = data.parameters["a"].numbers
    assert numbers is not None
    assert numbers.tolist() == [1.0, 2.5]
    assert data.parameters["codec"].numbers is None
    assert data.parameters["level"].active.tolist() == [False, True]
    level = data.parameters["level"].numbers
    assert level is not None
    assert math.isnan(level[0])


def test_maximise_takes_the_greatest_even_if_the_summary_does_not(store: Store, build: Build) -> None:
    trials = [make_trial(i, {"a": i}, 0.1, objective=value) for i, value in enumerate([0.3, 0.9, 0.5])]
    nested = {"version": 1, "base": "/", "job": {"name": "t", "space": {}, "objective": {"maximise": "accuracy"}}}
    data = StudyData.load(store, build(trials, spec=nested))
    assert data.goal.objective == Objective("accuracy", "maximise")
    assert data.best is not None
    assert data.best.number == 1


def test_reasons_are_read_for_failed_trials(store: Store, build: Build) -> None:
    trials = [make_trial(i, {"a": i}, 0.1, state=TrialState.FAILED, reason=f"exit code {i}") for i in range(50)]
    data = StudyData.load(store, build(trials))
    assert data.reason(49) == "exit code 49"
    assert 10 <= len(data.reasons) < 50


@pytest.mark.slow
def test_an_unknown_study_is_not_found(store: Store) -> None:
    with pytest.raises(StudyNotFoundError):
        StudyData.load(store, 7)


def test_order_of_ending_decides_the_curve(store: Store, build: Build) -> None:
    trials = [make_trial(i, {"a": i}, 0.1) for i in range(4)]
    trials[2] = replace(trials[2], ended=2000.0)
    trials += [make_trial(4, {"a": 4}, state=TrialState.RUNNING)]
    data = StudyData.load(store, build(trials))
    assert data.by_end.tolist() == [0, 1, 3, 2]


@pytest.mark.parametrize(
    ("spec", "objective"),
    [
        ({}, Objective()),
        ({"objective": "runtime"}, Objective("runtime")),
        ({"objective": {"minimise": "runtime"}}, Objective("runtime")),
        ({"objective": {"maximize": "speed"}}, Objective("speed", "maximise")),
        ({"objective": {"metric": "speed", "goal": "maximise"}}, Objective("speed", "maximise")),
        (
            {"objective": {"minimise": "cost", "also": [{"minimise": "runtime"}]}},
            Objective("cost", also=(Objective("runtime"),)),
        ),
        (
            {"objective": [{"minimise": "cost"}, {"maximise": "x"}]},
            Objective("cost", also=(Objective("x", "maximise"),)),
        ),
        ({"objective": 7}, Objective()),
    ],
)
def test_objectives_are_read_in_every_form(spec: dict[str, Any], objective: Objective) -> None:
    assert read_goal(spec).objective == objective


def test_constraints_budget_and_searcher_are_read() -> None:
    goal = read_goal(
        {
            "job": {
                "space": {},
                "constraints": {"deadline": "1h30m", "metrics": {"ratio": {"at_least": 2, "at_most": "x"}}},
                "budget": {"dollars": "$2.50", "hours": "90m", "trials": 7},
                "searcher": "random",
            }
        }
    )
    assert goal.constraints == Constraints(5400.0, (Threshold("ratio", 2.0),))
    assert goal.budget == Budget(2.5, 1.5, 7)
    assert goal.searcher == "random"
    listed = read_goal({"constraints": {"thresholds": [{"metric": "m", "at_most": 1}]}, "budget": {"hours": "2"}})
    assert listed.constraints.thresholds == (Threshold("m", at_most=1.0),)
    assert listed.budget.hours == 2.0
    assert read_goal({"budget": {"dollars": "?"}, "constraints": {"deadline": "?"}}).budget == Budget()


class ManyTrials:
    """Columns of 100,000 trials as a store gives them; the other methods are what `StudyData.load` asks."""

    def __init__(self, count: int) -> None:
        rng = np.random.default_rng(0)
        self.count = count
        cost = rng.lognormal(0, 1, count)
        self.values: dict[str, Any] = {
            "number": range(count),
            "state": rng.choice(["succeeded", "failed", "aborted"], count, p=[0.8, 0.1, 0.1]).tolist(),
            "key": [str(i % 9000) for i in range(count)],
            "objective": cost.tolist(),
            "cost": cost.tolist(),
            "runtime": rng.lognormal(3, 1, count).tolist(),
            "feasible": (rng.random(count) < 0.7).tolist(),
            "censored": [False] * count,
            "spent": cost.tolist(),
            "fidelity": [1.0] * count,
            "price_per_hour": [0.1] * count,
            "nodes": [2] * count,
            "provider": ["local"] * count,
            "instance_type": ["c4"] * count,
            "created": list(range(count)),
            "started": list(range(count)),
            "ended": list(range(count)),
            "configuration": [f'{{"a": {i % 31}, "b": "v{i % 7}", "c": {i * 0.001}}}' for i in range(count)],
        }

    def study(self, study_id: int) -> StudyRow:
        return StudyRow(study_id, "many", "k", SPEC, 0.0, state="finished")

    def summaries(self, ids: list[int]) -> list[StudySummary]:
        return [StudySummary(self.study(ids[0]), {"succeeded": self.count}, 1.0, 0.0)]

    def columns(self, study_id: int) -> dict[str, Any]:
        return self.values

    def code_versions(self, study_id: int) -> list[Any]:
        return []

    def trials(self, study_id: int, *, since: int = 0, limit: int | None = None) -> list[Any]:
        return [make_trial(since, {"a": 1}, 0.1)]


@pytest.mark.thorough
@pytest.mark.slow
def test_a_hundred_thousand_trials_are_loaded_explained_and_drawn_in_seconds() -> None:
    store: Any = ManyTrials(100_000)
    begin = time.perf_counter()
    data = StudyData.load(store, 1)
    sentences = explain_choice(data)
    page = render_html(data)
    assert time.perf_counter() - begin < 60  # about 2 s alone; the bound is for a machine that is shared
    assert sentences[0].startswith("Use ")
    assert len(page) < 1_500_000
    assert "of 100,000 trials are shown" in page


def test_loading_asks_for_no_more_than_it_needs(store: Store, build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    study = build(some_trials(200))
    asked: list[int] = []
    plain: Callable[..., Any] = store.trials

    def counted(study_id: int, *, since: int = 0, limit: int | None = None) -> Any:
        asked.append(limit or 10**9)
        return plain(study_id, since=since, limit=limit)

    monkeypatch.setattr(store, "trials", counted)
    StudyData.load(store, study)
    assert sum(asked) <= 61
