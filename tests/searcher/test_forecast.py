"""The common frame of ernest and paris: refusals, figures that are no numbers, the checks of a prediction."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tradewind.errors import SpecError
from tradewind.problem import Billing, Constraints, Integer, Objective, Proposal, Threshold
from tradewind.searcher.base import NothingLeft, Searcher, SearchState
from tradewind.searcher.ernest.searcher import ErnestSearcher
from tradewind.searcher.forecast import ForecastVerifier, TableForecast, aborted_seconds, successful_seconds
from tradewind.searcher.paris.searcher import ParisSearcher
from tradewind.testing.problems import KnownOutcome, KnownProblem, drive, evaluate, machine_parameters, make_problem

TABLE = Path(__file__).parent / "data" / "paris_table.csv"

MAKE: dict[str, Callable[[KnownProblem], Searcher]] = {
    "ernest": lambda problem: ErnestSearcher(settings=ErnestSearcher.Settings(), problem=problem),
    "paris": lambda problem: ParisSearcher(
        settings=ParisSearcher.Settings(table=TABLE, pairs_tried=2, trees=20), problem=problem
    ),
}


def small(**given: float | Objective | None) -> KnownProblem:
    return make_problem(machine_parameters(3, (1, 2, 4)), lambda _c, o: KnownOutcome(100.0 / o.nodes), **given)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(MAKE))
@pytest.mark.parametrize("bad", [math.nan, math.inf, -5.0, 0.0])
def test_times_that_are_no_positive_numbers_teach_nothing(name: str, bad: float) -> None:
    problem = small()
    searcher = MAKE[name](problem)
    for number in range(60):
        answer = searcher.ask(SearchState(proposed=number))
        if isinstance(answer, NothingLeft):
            break
        trial = evaluate(problem, answer[0], number)
        if number % 3 == 0:
            assert trial.observation is not None
            trial = replace(trial, observation=replace(trial.observation, runtime=bad, cost=bad, objective=bad))
            assert successful_seconds(trial) is None
        searcher.tell(trial)
    assert isinstance(answer, NothingLeft)
    assert answer.final
    assert isinstance(searcher, ErnestSearcher | ParisSearcher)
    points = searcher.predict_map()
    assert points
    assert all(math.isfinite(point.time) and math.isfinite(point.cost) for point in points)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(MAKE))
def test_a_million_combinations_of_settings_are_refused_at_once(name: str) -> None:
    """Each combination of settings needs runs of its own: the method cannot do it."""
    parameters = [*machine_parameters(2, (1, 2, 4, 8, 16)), *(Integer(name=f"p{i}", low=0, high=9) for i in range(5))]
    problem = make_problem(parameters, lambda _c, _o: KnownOutcome(60.0))
    assert problem.space.combinations == 1e6
    started = time.process_time()
    with pytest.raises(SpecError, match="100,000 combinations of p0, p1, p2, p3, p4") as refusal:
        MAKE[name](problem)
    assert time.process_time() - started < 5.0
    assert refusal.value.hint


def verified(problem: KnownProblem, time_of: dict[int, float], verify: int) -> tuple[list[int], str]:
    """The candidates that are run for a forecast, and the last words."""
    searcher = MAKE["ernest"](problem)
    rows = np.array(sorted(time_of), dtype=np.intp)
    forecast = TableForecast(problem, rows, np.array([time_of[int(row)] for row in rows]))
    tried: list[int] = []
    for number in range(20):
        answer = ForecastVerifier(searcher, forecast, verify).ask(SearchState(proposed=number), 1)
        if isinstance(answer, NothingLeft):
            return tried, answer.reason
        index = problem.candidates.index(answer[0].configuration)
        assert index is not None
        tried.append(index)
        searcher.tell(evaluate(problem, answer[0], number))
    raise AssertionError("it does not end")


def test_those_in_time_come_first_by_cost_and_then_the_nearest() -> None:
    problem = small(deadline=60.0)
    hourly = problem.candidates.hourly
    times = {row: 50.0 + 5.0 * row for row in range(9)}
    in_time = sorted((row for row in times if times[row] <= 60.0), key=lambda row: times[row] * hourly[row])
    late = sorted((row for row in times if times[row] > 60.0), key=lambda row: times[row])
    assert TableForecast(problem, np.arange(9), np.array(list(times.values()))).order == in_time + late


def test_equal_predictions_are_tried_in_order() -> None:
    problem = small(objective=Objective("runtime"))
    tried, words = verified(problem, dict.fromkeys(range(9), 30.0), verify=3)
    assert tried == [0, 1, 2, 3]
    assert words.endswith("4 of 9 predicted configurations were run on the whole input")


@pytest.mark.slow
def test_all_costs_equal_ends_after_the_checks() -> None:
    problem = make_problem(machine_parameters(2, (1, 2)), lambda _c, o: KnownOutcome(3600.0 / o.hourly / 10))
    for make in MAKE.values():
        searcher = make(problem)
        trials = drive(searcher, problem, 99)
        assert trials
        assert isinstance(searcher.ask(SearchState(proposed=len(trials))), NothingLeft)


def test_what_is_running_counts_and_is_waited_for() -> None:
    problem = small()
    searcher = MAKE["ernest"](problem)
    forecast = TableForecast(problem, np.arange(9), np.arange(1.0, 10.0))
    answer = ForecastVerifier(searcher, forecast, 2).ask(SearchState(), 9)
    assert isinstance(answer, list)
    assert len(answer) == 3
    running = [replace(evaluate(problem, proposal, i), observation=None) for i, proposal in enumerate(answer)]
    waits = ForecastVerifier(searcher, forecast, 2).ask(SearchState(running, proposed=3), 9)
    assert isinstance(waits, NothingLeft)
    assert not waits.final


def test_the_bill_of_a_forecast_is_that_of_the_terms() -> None:
    billing = Billing(setup_seconds=30.0, minimum_seconds=60.0, granularity_seconds=1.0)
    problem = make_problem(machine_parameters(2, (1, 2)), lambda _c, _o: KnownOutcome(60.0), billing=billing)
    forecast = TableForecast(problem, np.arange(4), np.array([1.0, 29.5, 45.2, 600.0]))
    expected = [billing.cost(s, h) for s, h in zip(forecast.time, problem.candidates.hourly, strict=True)]
    assert forecast.cost.tolist() == expected
    assert forecast.points({})[0].cost_p90 is None


def test_a_searcher_that_prices_aborts_caps_its_checks_at_the_best() -> None:
    problem = small()
    best = evaluate(problem, Proposal(problem.candidates.configuration(4)), 0)
    assert best.observation is not None
    for name, wanted in (("paris", best.observation.objective), ("ernest", None)):
        searcher = MAKE[name](problem)
        searcher.tell(best)
        answer = ForecastVerifier(searcher, TableForecast(problem, np.arange(9), np.arange(1.0, 10.0)), 2).ask(
            SearchState(), 1
        )
        assert isinstance(answer, list)
        assert answer[0].abort_cost == wanted


def test_where_a_reference_is_the_predicted_best_there_are_only_checks() -> None:
    problem = small()
    searcher = MAKE["paris"](problem)
    searcher.tell(evaluate(problem, Proposal(problem.candidates.configuration(0)), 0))
    forecast = TableForecast(problem, np.arange(9), np.arange(1.0, 10.0))
    assert forecast.order[0] == 0
    stages = []
    for number in range(1, 4):
        answer = ForecastVerifier(searcher, forecast, 2, apart=(0,)).ask(SearchState(proposed=number), 1)
        assert isinstance(answer, list)
        [proposal] = answer
        stages.append(proposal.why["stage"])
        assert proposal.abort_cost is not None
        assert float(proposal.why["expected_spend"]) <= proposal.abort_cost
        searcher.tell(evaluate(problem, proposal, number))
    assert stages == [f"check {number} of the prediction" for number in (1, 2, 3)]


@pytest.mark.parametrize("objective", ["cost", "runtime"])
def test_what_a_check_is_expected_to_take_ends_where_it_is_cut(objective: str) -> None:
    problem = small(objective=Objective(objective))
    best = evaluate(problem, Proposal(problem.candidates.configuration(0)), 0)
    slow = TableForecast(
        problem, np.arange(9), np.full(9, 10.0 * best.observation.runtime if best.observation else 0.0)
    )

    def spend(given: KnownProblem) -> float:
        searcher = MAKE["paris"](given)
        searcher.tell(best)
        answer = ForecastVerifier(searcher, replace(slow, problem=given), 1).ask(SearchState(proposed=1), 1)
        assert isinstance(answer, list)
        capped = answer[0].abort_cost is not None or answer[0].abort_time is not None
        assert capped == given.terms.abort
        return float(answer[0].why["expected_spend"]) / float(answer[0].why["expected_cost"])

    assert spend(problem) < 0.5
    assert spend(replace(problem, terms=replace(problem.terms, abort=False))) == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(MAKE))
def test_a_bound_that_every_run_missed_is_said(name: str) -> None:
    """A run that succeeded, and is no result, is not to be taken for one."""
    parameters = machine_parameters(3, (1, 2, 4))
    bound = Threshold("quality", at_least=5.0)
    problem = make_problem(parameters, lambda _c, o: KnownOutcome(100.0 / o.nodes, metrics={"quality": 1.0}))
    problem = replace(problem, constraints=Constraints(thresholds=(bound,)))
    searcher = MAKE[name](problem)
    trials = drive(searcher, problem, 99)
    answer = searcher.ask(SearchState(proposed=len(trials)))
    assert isinstance(answer, NothingLeft)
    assert ", but quality is 1, wanted 5 ≤ quality; " in answer.reason
    assert answer.reason.endswith("predicted configurations were run on the whole input, and none was feasible")


def test_a_run_that_was_cut_short_is_reported_with_what_it_reached() -> None:
    problem = small(deadline=20.0)
    searcher = MAKE["ernest"](problem)
    forecast = TableForecast(problem, np.arange(9), np.full(9, 10.0))
    best = problem.candidates.configuration(forecast.order[0])
    searcher.tell(evaluate(problem, Proposal(best), 0, abort_at_deadline=True))
    answer = ForecastVerifier(searcher, forecast, 0).ask(SearchState(proposed=1, money_left=0.0), 1)
    assert isinstance(answer, NothingLeft)
    assert re.search(r", aborted at \$\S+ per 1,000 runs and 20\.0 s; ", answer.reason)


@pytest.mark.parametrize(("reached", "least"), [(20.0, 20.0), (math.nan, None), (math.inf, None), (0.0, None)])
def test_a_run_that_was_cut_short_has_a_least_time_and_no_other(reached: float, least: float | None) -> None:
    problem = small(deadline=20.0)
    trial = evaluate(problem, Proposal(problem.candidates.configuration(0)), 0, abort_at_deadline=True)
    assert trial.observation is not None
    cut = replace(trial, observation=replace(trial.observation, runtime=reached))
    assert (successful_seconds(cut), aborted_seconds(cut)) == (None, least)
    assert aborted_seconds(evaluate(problem, Proposal(problem.candidates.configuration(0)), 0)) is None
