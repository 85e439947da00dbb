"""Training data that models with processes take from trials."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from tradewind.problem import Objective, Observation, Threshold, TrialState
from tradewind.searcher import outcomes
from tradewind.searcher.outcomes import SuccessModel

ROW = np.zeros(1)


def run(objective: float | None, *, feasible: bool = True, **metrics: float) -> tuple[np.ndarray, Observation]:
    return ROW, Observation(objective, 1.0, 1.0, feasible, metrics=metrics)


def test_what_is_no_number_counts_for_nothing() -> None:
    seen = [run(3.0), run(None), run(math.nan), run(math.inf), run(1.0, feasible=False)]
    assert [loss for _, loss in outcomes.observed_losses(Objective(), seen)] == [3.0, 1.0]
    seen = [run(1.0, speed=2.0), run(1.0, speed=math.nan), run(1.0)]
    assert [value for _, value in outcomes.metric_values("speed", seen)] == [2.0]


@pytest.mark.parametrize("log", [True, False])
def test_a_bound_is_kept_with_the_probability_of_the_normal(log: bool) -> None:
    mean, sd = np.array([0.5, -0.2]), np.array([0.3, 0.6])
    threshold = Threshold("speed", at_least=0.8, at_most=1.9)
    low, high = (math.log(0.8), math.log(1.9)) if log else (0.8, 1.9)
    expected = norm.cdf((high - mean) / sd) - norm.cdf((low - mean) / sd)
    assert outcomes.probability_within(mean, sd, threshold, log=log) == pytest.approx(expected)


def test_a_positive_figure_is_above_every_bound_that_is_not() -> None:
    mean, sd = np.zeros(1), np.ones(1)
    assert outcomes.probability_within(mean, sd, Threshold("speed", at_least=-1.0), log=True) == pytest.approx([1.0])
    assert outcomes.probability_within(mean, sd, Threshold("speed", at_most=0.0), log=True) == pytest.approx([0.0])


def test_success_is_learned_from_what_ended_by_itself() -> None:
    done, failed, cut = TrialState.SUCCEEDED, TrialState.FAILED, TrialState.ABORTED
    spots = [np.array([place]) for place in (0.0, 0.1, 0.5, 0.9, 1.0)]
    assert SuccessModel.fit(list(zip(spots, [done, done, cut, done, cut], strict=True))) is None
    assert SuccessModel.fit([]) is None
    success = SuccessModel.fit(list(zip(spots, [done, done, cut, failed, failed], strict=True)))
    assert success is not None
    chance = success.chance(np.array(spots))
    assert chance[0] > 0.9
    assert chance[-1] < 0.1
    assert success.fantasize(np.array([[0.5]])).noise == success.noise == 0.05
