"""Predictions of a run before it starts, by searchers with a model: a chance and its seconds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tradewind import plugins
from tradewind.problem import Float, Objective, Proposal
from tradewind.searcher.base import NothingLeft, PredictsRuns, RunPrediction, Searcher, SearchState
from tradewind.searcher.bayesian import BayesianSearcher
from tradewind.searcher.gp import GpSearcher
from tradewind.searcher.posterior import AbortCaps
from tradewind.testing.problems import KnownOutcome, KnownProblem, drive, make_problem, table_problem

OBJECTIVES = [Objective(), Objective("runtime"), Objective("error"), Objective("score", "maximise")]


def problem_of(objective: Objective) -> KnownProblem:
    def truth(configuration: Any, _offer: Any) -> KnownOutcome:
        x = float(configuration["x"])
        error = 0.1 + (x - 0.3) ** 2
        return KnownOutcome(60.0 * (1.0 + x), metrics={"error": error, "score": -error})

    return make_problem([Float(name="x", low=0.0, high=1.0)], truth, objective=objective)


def informed(problem: KnownProblem, name: str = "gp", count: int = 8) -> BayesianSearcher:
    searcher = plugins.create("searcher", name, {}, problem=problem, seed=1)
    assert isinstance(searcher, BayesianSearcher)
    drive(searcher, problem, count)
    return searcher


def next_of(searcher: Searcher) -> Proposal:
    answer = searcher.ask(SearchState(proposed=len(searcher.history)))
    assert not isinstance(answer, NothingLeft)
    return answer[0]


def said(searcher: PredictsRuns, proposal: Proposal, target: float | None = None) -> RunPrediction:
    found = searcher.predict_run(proposal.configuration, target)
    assert found is not None
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param("gp", marks=pytest.mark.thorough), "tradewind"])
@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda each: each.metric)
def test_a_chance_that_grows_with_the_target_and_seconds(name: str, objective: Objective) -> None:
    searcher = informed(problem_of(objective), name)
    proposal = next_of(searcher)
    best = searcher._current_posterior().best
    assert best is not None
    wide = 10.0 * abs(best)
    chances = [said(searcher, proposal, best + step).chance for step in (-wide, -0.1 * abs(best), 0.0, wide)]
    assert chances == sorted(chances)
    assert chances[0] < 0.01
    assert chances[-1] > 0.9
    without = said(searcher, proposal)
    assert without.chance == pytest.approx(chances[2]), "without a target the best so far is to be improved"
    assert without.seconds is not None
    assert 1.0 < without.seconds < 200.0


@pytest.mark.parametrize("name", ["gp", "tradewind"])
def test_nothing_is_said_before_the_model_knows_anything(name: str) -> None:
    problem = table_problem()
    searcher = plugins.create("searcher", name, {}, problem=problem, seed=1)
    assert isinstance(searcher, PredictsRuns)
    assert searcher.predict_run(problem.candidates.configuration(0)) is None


class _Asked(GpSearcher):
    """Says of each proposal what it expects, before it hands it over."""

    def ask(self, state: SearchState, count: int = 1) -> list[Proposal] | NothingLeft:
        answer = super().ask(state, count)
        for proposal in [] if isinstance(answer, NothingLeft) else answer:
            self.predict_run(proposal.configuration, 0.5)
            self.predict_run(proposal.configuration)
        return answer


def test_it_changes_no_proposal() -> None:
    problem = table_problem(dollars=2.0)
    silent, asked = (
        drive(each(settings=GpSearcher.Settings(), problem=problem, seed=3), problem, 12)
        for each in (GpSearcher, _Asked)
    )
    assert [trial.proposal for trial in silent] == [trial.proposal for trial in asked]


@pytest.mark.slow
def test_the_chance_is_that_of_the_posterior() -> None:
    """By drawing from the process: cost and run time from the one of ln cost, another metric from its own."""
    rng = np.random.default_rng(0)
    for objective in (Objective(), Objective("error")):
        searcher = informed(problem_of(objective), count=6)
        posterior, configuration = searcher._current_posterior(), next_of(searcher).configuration
        assert posterior.best is not None
        row = searcher._map.of(configuration, searcher.problem.resolver.resolve(configuration))
        assert row is not None
        process = posterior.parts[0][1]
        if objective.metric == "error":
            assert posterior.objective is not None
            assert posterior.objective.log
            process = posterior.objective.process
        mean, variance = process.predict(row[None, :])
        drawn = np.exp(mean + np.sqrt(variance) * rng.standard_normal(200_000))
        target = float(np.exp(mean[0] - 0.5 * math.sqrt(variance[0])))
        found = searcher.predict_run(configuration, target)
        assert found is not None
        assert found.chance == pytest.approx(float((drawn <= target).mean()), abs=0.005)


@pytest.mark.slow
def test_the_seconds_are_those_until_it_is_cut_short() -> None:
    searcher = informed(problem_of(Objective()), count=6)
    posterior = searcher._current_posterior()
    row, hourly = searcher._features[:1], searcher._reference.hourly[:1]
    whole = posterior.predict_run(row, hourly, AbortCaps(False, 1.0, math.inf))[1][0]
    cut = posterior.predict_run(row, hourly, AbortCaps(True, 0.5, math.inf))[1][0]
    assert cut < whole
