"""What a further trial is worth, by the trials so far."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tradewind import plugins
from tradewind.problem import Objective
from tradewind.searcher.base import NothingLeft, SearchState
from tradewind.searcher.stopping import USUAL_GAP, empirical_worth, paying, split_reason, why_stop
from tradewind.testing import problems


def test_records_say_what_the_next_trial_brings() -> None:
    worth = empirical_worth([8.0, 9.0, 4.0, math.inf, 2.0, 5.0, 2.5, 3.0, 2.2, 2.1], [1.0] * 5 + [3.0] * 5)
    assert worth is not None
    # The records 8, 4 and 2, and one gap of the usual size: the next beats 2 by that, with probability 1/11.
    gap = (USUAL_GAP + math.log(4.0)) / 3
    assert worth.saving == pytest.approx(2.0 * (1.0 - math.exp(-gap)) / 11)
    assert (worth.spend, worth.best) == (3.0, 2.0), "the spend is that of the later half"


def test_what_happened_counts_where_it_was_more() -> None:
    falling = empirical_worth([10.0, 9.0, 8.0, 7.0, 2.0, 1.0], [1.0] * 6)
    assert falling is not None
    assert falling.saving == pytest.approx(7.0 / 3)


def test_losses_that_have_no_logarithm() -> None:
    worth = empirical_worth([-1.0, -3.0, -2.0, -3.0, -1.5, -2.5], [1.0] * 6)
    assert worth is not None
    assert worth.saving == pytest.approx((USUAL_GAP * 2.0 + 2.0) / 2 / 7)


def test_nothing_is_said_of_few_trials_or_of_failures_alone() -> None:
    assert empirical_worth([1.0] * 5, [1.0] * 5) is None
    assert empirical_worth([math.inf] * 9, [1.0] * 9) is None
    level = [empirical_worth([2.0] * number, [1.0] * number) for number in (9, 900)]
    assert level[0] is not None
    assert level[1] is not None
    assert 0.0 < level[1].saving < level[0].saving / 50


def test_the_reason_says_what_another_dollar_brings_back() -> None:
    problem = problems.table_problem(future_runs=100)
    reason = why_stop(problem, np.array([0.001, 0.002]), np.array([0.9, 0.5]), 1.0)
    assert reason == (
        "no trial is worth its money: the best would save $0.200 over 100 runs and cost $0.500; "
        "another dollar of search would bring back $0.400"
    )
    assert split_reason(reason) == tuple(reason.split("; "))
    assert split_reason("every configuration has been tried") == ("every configuration has been tried", "")
    assert why_stop(problem, np.array([0.001, 0.006]), np.array([0.9, 0.5]), 1.0) is None


def test_savings_that_are_next_to_nothing_are_said_in_words() -> None:
    problem = problems.table_problem(future_runs=100)
    assert why_stop(problem, np.array([1e-9]), np.array([0.5]), 1.0) == (
        "no trial is worth its money: the best would save next to nothing over 100 runs and cost $0.500; "
        "another dollar of search would bring back less than a cent"
    )


def test_time_is_worth_what_the_job_says() -> None:
    problem = problems.table_problem(objective=Objective("runtime"), future_runs=100)
    minute, cost = np.array([60.0]), np.array([2.5])
    assert why_stop(problem, minute, cost, 600.0) is None, "nobody says what an hour is worth"
    for value, stops in ((1.0, True), (2.0, False)):
        terms = replace(problem.terms, value_per_hour=value)
        assert (why_stop(replace(problem, terms=terms), minute, cost, 600.0) is not None) is stops
    # A run again is weighed as a new one: a minute saved is worth $3.33 over all runs, a second 6 cents.
    terms = replace(problem.terms, value_per_hour=2.0)
    pays = paying(replace(problem, terms=terms), np.array([60.0, 1.0]), np.array([2.5, 2.5]), 600.0)
    assert pays.tolist() == [True, False]


def test_a_least_improvement_ends_a_search_by_any_metric() -> None:
    problem = problems.table_problem()
    problem = replace(problem, terms=replace(problem.terms, least_improvement=0.01))
    free = np.array([0.0])
    reason = why_stop(problem, np.array([0.004]), free, -0.5)
    assert reason == "no candidate is expected to improve the best by 1 %: at most by 0.8 %"
    assert why_stop(problem, np.array([0.006]), free, -0.5) is None
    assert why_stop(problem, np.array([0.006]), free, -0.5, 0.1) is not None
    assert paying(problem, np.array([0.004, 0.006]), np.zeros(2), -0.5).tolist() == [False, True]


@pytest.mark.parametrize("name", ["random", "coordinate_descent"])
def test_searchers_without_a_model_end_by_the_trials_so_far(name: str) -> None:
    problem = problems.table_problem(future_runs=1)
    searcher = plugins.create("searcher", name, {}, problem=problem, seed=0)
    number = 0
    while (reason := searcher.why_stop(SearchState())) is None:
        answer = searcher.ask(SearchState())
        assert not isinstance(answer, NothingLeft)
        searcher.tell(problems.evaluate(problem, answer[0], number))
        number += 1
    assert reason.startswith("no trial is worth its money")
    assert 6 <= number < len(problem.candidates) / 2
    endless = replace(problem, terms=replace(problem.terms, future_runs=None))
    same = plugins.create("searcher", name, {}, problem=endless, seed=0)
    for trial in searcher.history:
        same.tell(trial)
    assert same.why_stop(SearchState()) is None
