from __future__ import annotations

import numpy as np
import pytest
from tests.reporting.conftest import Build, make_trial, some_trials

from tradewind.problem import TrialState
from tradewind.reporting.study.data import ParameterColumn, StudyData
from tradewind.reporting.study.series import best_so_far, grouping, levels, outcomes, thin, wants_log
from tradewind.store.base import Store


def column(*values: object) -> ParameterColumn:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return ParameterColumn("p", array)


def test_the_curve_counts_all_money_and_only_feasible_values(store: Store, build: Build) -> None:
    trials = [
        make_trial(0, {"a": 0}, 1.0, state=TrialState.FAILED),
        make_trial(1, {"a": 1}, 0.5),
        make_trial(2, {"a": 2}, 0.1, feasible=False),
        make_trial(3, {"a": 3}, 0.7),
        make_trial(4, {"a": 4}, 0.2),
    ]
    curve = best_so_far(StudyData.load(store, build(trials)))
    assert curve.spent == pytest.approx([1.5, 2.5])
    assert curve.best.tolist() == [0.5, 0.2]
    assert curve.rows.tolist() == [1, 4]
    assert curve.end == pytest.approx(2.5)


def test_the_curve_of_a_maximised_metric_rises(store: Store, build: Build) -> None:
    trials = [make_trial(i, {"a": i}, 1.0, objective=value) for i, value in enumerate([0.3, 0.1, 0.6])]
    curve = best_so_far(StudyData.load(store, build(trials, spec={"objective": {"maximise": "m"}})))
    assert curve.best.tolist() == [0.3, 0.6]


def test_the_curve_of_nothing_is_empty(store: Store, build: Build) -> None:
    curve = best_so_far(StudyData.load(store, build()))
    assert len(curve.spent) == 0
    assert curve.end == 0.0


def test_outcomes_part_all_ended_trials_and_keep_the_best(store: Store, build: Build) -> None:
    trials = some_trials(400)
    data = StudyData.load(store, build(trials))
    whole = outcomes(data)
    assert sum(kind.total for kind in whole) == 400
    assert all(len(kind.rows) == kind.total for kind in whole)
    thinned = {kind.name: kind for kind in outcomes(data, limit=100)}
    assert sum(len(kind.rows) for kind in thinned.values()) <= 180
    assert set(data.ranking[:10]) <= set(thinned["feasible"].rows)


def test_thinning_keeps_the_ends() -> None:
    rows = np.arange(1000)
    assert thin(rows, 10).tolist()[0] == 0
    assert thin(rows, 10).tolist()[-1] == 999
    assert len(thin(rows, 10)) == 10


def test_grouping_keeps_few_values_and_cuts_many() -> None:
    labels, codes = grouping(column(4, 1, 2, 4))
    assert labels == ["1", "2", "4"]
    assert codes.tolist() == [2, 0, 1, 2]
    labels, codes = grouping(column("b", None, "a"))
    assert labels == ["a", "b", "not used"]
    assert codes.tolist() == [1, 2, 0]
    labels, codes = grouping(column(1, None, 2))
    assert labels == ["1", "2", "not used"]
    assert codes.tolist() == [0, 2, 1]
    labels, codes = grouping(column(*range(60)))
    assert len(labels) == 6
    assert np.bincount(codes).min() >= 9
    assert labels[0].startswith("0…")
    assert grouping(column(True, False))[0] == ["False", "True"]


@pytest.mark.slow
def test_skewed_numbers_give_no_empty_range(store: Store, build: Build) -> None:
    values = [0] * 80 + list(range(1, 21))
    data = StudyData.load(store, build([make_trial(i, {"p": v}, 0.1 + i) for i, v in enumerate(values)]))
    found = levels(data, data.parameters["p"])
    assert sum(level.count for level in found) == 100
    assert all(level.count and level.label for level in found)


def test_levels_say_what_was_measured(store: Store, build: Build) -> None:
    trials = [make_trial(i, {"a": i % 2}, 1.0 + i, feasible=i % 4 == 0) for i in range(6)]
    found = levels(data := StudyData.load(store, build(trials)), data.parameters["a"])
    assert [level.label for level in found] == ["0", "1"]
    assert found[0].quartiles == (1.0, 2.0, 3.0, 4.0, 5.0)
    assert found[0].feasible == pytest.approx(2 / 3)
    assert [level.best for level in found] == [True, False]


def test_of_many_levels_the_best_stay(store: Store, build: Build) -> None:
    trials = [make_trial(i, {"a": f"v{i:02d}"}, 100.0 - i) for i in range(30)]
    data = StudyData.load(store, build(trials))
    found = levels(data, data.parameters["a"], most=5)
    assert [level.label for level in found] == ["v25", "v26", "v27", "v28", "v29"]


def test_log_axes() -> None:
    assert wants_log([1.0, 100.0])
    assert not wants_log([1.0, 5.0])
    assert wants_log([1.0, 5.0], 3.0)
    assert not wants_log([0.0, 100.0])
    assert not wants_log([])
