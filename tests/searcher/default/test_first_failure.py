"""The default searcher where the first runs fail: nothing is known of time then, but of what is like them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tradewind.problem import Configuration, Offer, Proposal
from tradewind.searcher.base import NothingLeft, SearchState
from tradewind.searcher.default import TradewindSearcher, TradewindSettings
from tradewind.searcher.surrogate.trend import LOG_PRIORS, LinearTrend, TrendProcess
from tradewind.testing import problems
from tradewind.testing.problems import KnownOutcome, KnownProblem, drive


def fails_where_small(*, deadline: float | None = 1800.0) -> KnownProblem:
    """Types with fewer than 4 vCPUs fail; all others work."""

    def truth(_configuration: Configuration, offer: Offer) -> KnownOutcome:
        seconds = 4000.0 / (offer.vcpu * offer.nodes) ** 0.7
        return KnownOutcome(seconds, failed="out of memory" if offer.vcpu < 4 else "")

    parameters = problems.machine_parameters(12)
    return problems.make_problem(parameters, truth, deadline=deadline)


def after_a_failure(problem: KnownProblem, seed: int, count: int = 1) -> tuple[TradewindSearcher, list[Proposal]]:
    searcher = TradewindSearcher(settings=TradewindSettings(), problem=problem, seed=seed)
    trials = drive(searcher, problem, 1, abort=True)
    assert trials[0].observation is not None and not trials[0].observation.feasible
    answer = searcher.ask(SearchState((), 1), count)
    assert not isinstance(answer, NothingLeft)
    return searcher, answer


def test_what_follows_a_failed_first_run_is_chosen_and_not_drawn() -> None:
    problem = fails_where_small()
    second = {after_a_failure(problem, seed)[1][0].configuration.key for seed in range(5)}
    assert len(second) == 1
    chosen = after_a_failure(problem, 0)[1][0]
    hourly = problem.resolver.resolve(chosen.configuration).hourly
    assert hourly < float(np.median(problem.candidates.hourly))
    assert {"expected_cost", "expected_spend", "probability_feasible"} <= set(chosen.why)


def test_it_may_take_as_long_as_a_first_run() -> None:
    """Nothing has shown yet how long runs take."""
    searcher, (chosen,) = after_a_failure(fails_where_small(), 0)
    hourly = searcher.problem.resolver.resolve(chosen.configuration).hourly
    assert chosen.abort_time == pytest.approx(searcher._first_seconds(hourly))


def test_several_after_a_failure_are_distinct() -> None:
    _, answer = after_a_failure(fails_where_small(), 0, 5)
    assert len({proposal.configuration.key for proposal in answer}) == 5


def test_without_a_deadline_nothing_is_guessed() -> None:
    searcher, _ = after_a_failure(fails_where_small(deadline=None), 0)
    assert not searcher._current_posterior().informed
    assert searcher.explain(searcher.problem.candidates.configuration(0)) == {}


@pytest.mark.slow
def test_a_search_that_begins_with_failures_ends_well() -> None:
    problem = fails_where_small()
    best = problem.optimum()
    assert best is not None
    for seed in range(3):
        searcher = TradewindSearcher(settings=TradewindSettings(), problem=problem, seed=seed)
        trials = drive(searcher, problem, 12, abort=True)
        found = [t.observation.objective for t in trials if t.observation is not None and t.observation.feasible]
        assert min((value for value in found if value is not None), default=math.inf) < 1.1 * best[1]


def test_a_process_before_any_observation() -> None:
    x = np.random.default_rng(0).uniform(size=(6, 2))
    trend = LinearTrend(np.array([2.0, 0.0]), np.array([0.5, 0.4]))
    process = TrendProcess(trend, LOG_PRIORS, level=1.5).unobserved(2)
    mean, variance = process.predict(x)
    prior_mean, prior = process.prior(x)
    np.testing.assert_allclose(mean, prior_mean)
    np.testing.assert_allclose(mean, 1.5 + (x - 0.5) @ trend.mean)
    np.testing.assert_allclose(variance, np.diag(prior))
    fantasize = process.fantasize(x[:2])
    np.testing.assert_allclose(fantasize.predict(x)[0], mean)
    assert np.all(fantasize.predict(x[:2])[1] < 0.1 * variance[:2])
