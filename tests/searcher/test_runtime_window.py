"""Bounds on cost and run time: runs are cut short at them, so that no finished run shows a breach."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tradewind import plugins
from tradewind.problem import COST, RUNTIME, Billing, Objective, PastStudy, Proposal, Threshold, Trial, TrialState
from tradewind.searcher.base import Explains, Searcher
from tradewind.searcher.forecast import TableForecast
from tradewind.searcher.outcomes import run_bill, runtime_window
from tradewind.testing.problems import KnownOutcome, KnownProblem, evaluate, machine_parameters, make_problem

_MOST = 0.17
_MODELLED = ("tradewind", "gp", "cherrypick", "obol", "done", "trimtuner")


def problem(metric: str = COST, *, least: float | None = None, most: float | None = _MOST) -> KnownProblem:
    """Many large machines are quick and dear, few small ones slow and cheap."""
    return make_problem(
        machine_parameters(6, (1, 2, 4, 8)),
        lambda _c, o: KnownOutcome(600.0 + 8_000.0 / (o.vcpu * o.nodes)),
        objective=Objective(RUNTIME if metric == COST else COST),
        thresholds=[Threshold(metric, at_least=least, at_most=most)],
    )


def told(searcher: Searcher, known: KnownProblem, *, money: float = math.inf, seconds: float = math.inf) -> list[Trial]:
    """Two of three candidates are run; those that break a bound are cut short there, as the engine does it."""
    trials: list[Trial] = []
    for number in range(len(known.candidates)):
        if number % 3 == 1:
            continue
        configuration = known.candidates.configuration(number)
        capped = Proposal(configuration, abort_cost=money, abort_time=seconds)
        trials.append(evaluate(known, capped, len(trials)))
        searcher.tell(trials[-1])
    return trials


def chances(searcher: Searcher, known: KnownProblem, low: float, high: float) -> list[float]:
    """Predictions of the chance of untried candidates whose value is between two numbers."""
    assert isinstance(searcher, Explains)
    metric = known.constraints.thresholds[0].metric
    found = []
    for number in range(1, len(known.candidates), 3):
        configuration = known.candidates.configuration(number)
        value = known.bill(configuration)
        if metric == RUNTIME:
            value = known.truth(configuration, known.resolver.resolve(configuration)).runtime
        if low <= value <= high:
            found.append(float(searcher.explain(configuration)["probability_feasible"]))
    assert found
    return found


@pytest.mark.parametrize("name", _MODELLED)
def test_runs_that_were_cut_short_at_a_bound_on_the_cost_show_that_others_break_it(name: str) -> None:
    known = problem()
    searcher = plugins.create("searcher", name, {}, problem=known, seed=1)
    trials = told(searcher, known, money=_MOST)
    states = {trial.state for trial in trials}
    assert states == {TrialState.SUCCEEDED, TrialState.ABORTED}
    assert max(chances(searcher, known, 1.3 * _MOST, math.inf)) < 0.35
    assert np.mean(chances(searcher, known, 0.0, 0.75 * _MOST)) > 0.7


@pytest.mark.parametrize("name", _MODELLED)
def test_and_at_a_bound_on_the_run_time(name: str) -> None:
    known = problem(RUNTIME, most=1_500.0)
    searcher = plugins.create("searcher", name, {}, problem=known, seed=1)
    told(searcher, known, seconds=1_500.0)
    assert max(chances(searcher, known, 2_600.0, math.inf)) < 0.35
    assert np.mean(chances(searcher, known, 0.0, 1_200.0)) > 0.65


@pytest.mark.parametrize("name", _MODELLED)
def test_a_least_run_time_is_a_bound_too(name: str) -> None:
    known = problem(RUNTIME, least=1_200.0, most=None)
    searcher = plugins.create("searcher", name, {}, problem=known, seed=1)
    told(searcher, known)
    assert max(chances(searcher, known, 0.0, 900.0)) < 0.35
    assert np.mean(chances(searcher, known, 1_500.0, math.inf)) > 0.7


def test_earlier_runs_tell_of_a_bound_on_cost_and_run_time() -> None:
    known = problem()
    free = replace(known, constraints=replace(known.constraints, thresholds=()))
    trials = [
        evaluate(free, Proposal(known.candidates.configuration(i)), i) for i in range(0, len(known.candidates), 2)
    ]
    past = (PastStudy(name=known.job.name, parameters=known.job.parameters, trials=tuple(trials)),)
    bounds = (Threshold(COST, at_most=_MOST), Threshold("ratio", at_least=3.0))
    known = replace(known, past=past, constraints=replace(known.constraints, thresholds=bounds))
    searcher = plugins.create("searcher", "done", {}, problem=known, seed=1)
    best = searcher.recommend(1)[0]
    assert known.bill(best.configuration) <= _MOST
    assert "no run says its ratio yet: its bound is not judged" in searcher.basis()


def test_a_forecast_knows_bounds_on_cost_and_run_time() -> None:
    known = problem()
    configurations = [known.candidates.configuration(i) for i in range(len(known.candidates))]
    rows = np.arange(len(configurations))
    seconds = np.array([known.truth(c, known.resolver.resolve(c)).runtime for c in configurations])
    forecast = TableForecast(known, rows, seconds)
    keeps = np.array([known.bill(c) <= _MOST for c in configurations])
    assert 0 < keeps.sum() < len(rows)
    assert forecast.in_time.tolist() == keeps.tolist()
    first = forecast.order[: int(keeps.sum())]
    assert keeps[first].all()
    assert seconds[first].tolist() == sorted(seconds[keeps])
    # The nearest to the bound comes next.
    rest = [forecast.cost[place] for place in forecast.order[len(first) :]]
    assert rest == sorted(rest)


@pytest.mark.parametrize("billing", [Billing(), Billing(60.0, 0.0), Billing(60.0, 300.0), Billing(0.0, 300.0)])
def test_the_window_is_where_all_bounds_hold(billing: Billing) -> None:
    thresholds = (Threshold(COST, 0.02, 0.2), Threshold(RUNTIME, 100.0, 4_000.0))
    known = replace(problem(), terms=replace(problem().terms, billing=billing))
    known = replace(known, constraints=replace(known.constraints, deadline=3_000.0, thresholds=thresholds))
    hourly = np.array([0.0, 0.01, 0.1, 1.0, 10.0])
    low, high = runtime_window(known, hourly)
    for i, price in enumerate(hourly):
        for seconds in (50.0, 110.0, 500.0, 1_000.0, 2_900.0, 3_500.0, 20_000.0):
            cost = billing.cost(seconds, float(price))
            metrics = {COST: cost, RUNTIME: seconds}
            keeps = not known.constraints.broken(seconds, metrics)
            assert (low[i] <= seconds <= high[i]) == keeps, (price, seconds, cost)


def test_the_bill_of_a_window() -> None:
    known = replace(problem(), terms=replace(problem().terms, billing=Billing(60.0, 300.0)))
    hourly = np.array([3.6, 3.6, 3.6, 0.0, 3.6])
    seconds = np.array([1_000.0, 10.0, math.inf, 100.0, 0.0])
    assert run_bill(known, hourly, seconds).tolist() == pytest.approx([1.06, 0.3, math.inf, 0.0, 0.0])
