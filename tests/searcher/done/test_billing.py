"""DONE's predictions of money where it is billed in large units."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.searcher.done.test_searcher import SIZES, history, make, sized

from tradewind.problem import Billing
from tradewind.searcher.done.model import DonePrediction
from tradewind.searcher.done.searcher import rank_candidates


@pytest.mark.parametrize("granularity", [1.0, 3600.0])
def test_recommended_money_is_what_will_be_charged(granularity: float) -> None:
    billing = Billing(granularity_seconds=granularity)
    problem = sized({"size": 6.0})
    problem = replace(problem, terms=replace(problem.terms, billing=billing), past=history(SIZES))
    searcher = make(problem)
    found = searcher.recommend(len(problem.candidates))
    for one in found:
        hourly = problem.resolver.resolve(one.configuration).hourly
        for money, seconds in (
            (one.cost, one.runtime),
            (one.cost_low, one.runtime_low),
            (one.cost_high, one.runtime_high),
        ):
            assert money == pytest.approx(billing.cost(seconds, hourly), rel=1e-9)
        assert searcher.explain(one.configuration)["expected_cost"] == one.cost
    likely = [one for one in found if one.probability_feasible >= searcher.settings.confidence]
    assert [one.cost for one in likely] == sorted(one.cost for one in likely)


def test_what_costs_the_same_comes_in_the_order_of_what_it_uses() -> None:
    one, exact = np.ones(3), np.array([0.3, 0.1, 0.2])
    prediction = DonePrediction(one, one, one, one, one, one, one, one)
    assert rank_candidates(prediction, 0.5).tolist() == [0, 1, 2]
    assert rank_candidates(prediction, 0.5, exact).tolist() == [1, 2, 0]


def test_where_nothing_fits_the_quickest_come_first_and_not_what_is_known_least() -> None:
    one = np.ones(3)
    prediction = DonePrediction(
        np.array([5000.0, 700.0, 600.0]), one, one, one, one, one, np.array([0.004, 0.0, 1e-9]), one
    )
    assert rank_candidates(prediction, 0.7).tolist() == [2, 1, 0]
    likelier = DonePrediction(prediction.seconds, one, one, one, one, one, np.array([0.2, 0.0, 0.0]), one)
    assert rank_candidates(likelier, 0.7).tolist() == [0, 2, 1]
