"""Prices that have changed since a trial ran: the time is what it says of its machines, at the price of today."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tradewind import plugins
from tradewind.problem import Float, Proposal, Trial
from tradewind.searcher.base import Explains, Searcher
from tradewind.searcher.candidate_pool import MOST_LISTED
from tradewind.searcher.surrogate.features import FeatureMap
from tradewind.testing import problems
from tradewind.testing.problems import KnownOutcome, KnownProblem, evaluate, machine_parameters, make_problem


def listed() -> KnownProblem:
    return problems.table_problem(cliff="none", noise=0.02)


def large() -> KnownProblem:
    """Too many combinations to list, on machines with prices."""
    setting = Float(name="share", low=0.0, high=1.0)
    return make_problem(
        [*machine_parameters(6), setting],
        lambda c, o: KnownOutcome(30.0 + 20_000.0 * (1.0 + float(c["share"])) / (o.vcpu * o.nodes)),
        deadline=3000.0,
        noise=0.02,
    )


def trials_of(problem: KnownProblem, count: int, factor: float) -> list[Trial]:
    """Trials that ran when each machine had so many times the price of today."""
    drawn = problem.space.sample(np.random.default_rng(3), count)
    found = []
    for number, configuration in enumerate(drawn):
        trial = evaluate(problem, Proposal(configuration), number)
        seen = trial.observation
        assert seen is not None
        old = replace(trial.offer, price_per_hour=factor * trial.offer.price_per_hour)
        cost = factor * seen.cost
        then = replace(seen, cost=cost, objective=cost, metrics={**seen.metrics, "cost": cost})
        found.append(replace(trial, offer=old, observation=then, spent=cost))
    return found


@pytest.mark.parametrize("make", [listed, large])
def test_a_row_has_the_price_of_today(make: Callable[[], KnownProblem]) -> None:
    """Whichever price is asked for first, and whether the configuration is among those that showed the range."""
    problem = make()
    assert (problem.space.combinations > MOST_LISTED) == (make is large)
    reference = (
        problem.candidates if make is listed else problem.pool(problem.space.sample(np.random.default_rng(1), 99))
    )
    for old_first in (True, False):
        features = FeatureMap(problem, reference)
        for trial in trials_of(problem, 20, 4.0):
            now = problem.resolver.resolve(trial.configuration)
            offers = [trial.offer, now] if old_first else [now, trial.offer]
            rows = [features.of(trial.configuration, offer) for offer in offers]
            expected = features.of_candidates(problem.pool([trial.configuration]))[0]
            for row in rows:
                assert row is not None
                assert row == pytest.approx(expected)


def test_what_is_sold_no_more_keeps_its_price() -> None:
    problem = problems.table_problem(types=2)
    features = FeatureMap(problem, problem.candidates)
    gone = replace(problem.candidates.offer(0), instance_type="m1.gone", price_per_hour=9.0)
    assert features.today(problem.candidates.configuration(0), gone) == gone
    foreign = problems.flat_problem().candidates.configuration(0)
    assert features.today(foreign, gone) == gone


@pytest.mark.parametrize("make", [listed, large])
@pytest.mark.parametrize("name", ["tradewind", "gp", "trimtuner"])
def test_money_is_expected_at_the_price_of_today(name: str, make: Callable[[], KnownProblem]) -> None:
    """Machines that were four times as dear when they ran are as quick as ever, and a run costs a fourth."""
    problem = make()
    searcher = plugins.create("searcher", name, {}, problem=problem, seed=1)
    assert isinstance(searcher, Searcher)
    assert isinstance(searcher, Explains)
    trials = trials_of(problem, 20, 4.0)
    for trial in trials:
        searcher.tell(trial)
    ratios = []
    for trial in trials:
        said = searcher.explain(trial.configuration)
        ratios.append(float(said["expected_cost"]) / problem.bill(trial.configuration))
    assert 0.8 < float(np.exp(np.log(ratios).mean())) < 1.25
