"""Recommendations without a run, of every searcher that can give them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tradewind import plugins
from tradewind.problem import PastStudy, Problem
from tradewind.searcher.base import Recommends, Searcher
from tradewind.testing import problems
from tradewind.testing.problems import drive

NAMES = [name for name, part in plugins.load_all("searcher").items() if issubclass(part, Recommends)]


def make(name: str, problem: Problem) -> Searcher:
    made = plugins.create("searcher", name, {}, problem=problem, seed=1)
    assert isinstance(made, Searcher)
    return made


@pytest.mark.thorough
@pytest.mark.slow
def test_in_a_space_that_cannot_be_listed_nothing_worse_than_what_was_run_is_recommended() -> None:
    problem = problems.continuous_problem()
    trials = drive(make("tradewind", problem), problem, 16)
    best = min(t.observation.cost for t in trials if t.observation is not None and t.observation.feasible)
    past = (PastStudy(problem.job.name, problem.job.parameters, tuple(trials)),)
    searcher = make("done", replace(problem, past=past))
    assert isinstance(searcher, Recommends)
    found = searcher.recommend(5)
    assert any("run 1x with these job parameters" in one.reason for one in searcher.recommend(10_000))
    assert problem.bill(found[0].configuration) <= 1.02 * best


@pytest.mark.parametrize("name", NAMES)
def test_recommendations_are_allowed_different_and_finite(name: str) -> None:
    problem = problems.table_problem(noise=0.05)
    trials = drive(make("random", problem), problem, 20)
    past = (PastStudy(problem.job.name, problem.job.parameters, tuple(trials)),)
    searcher = make(name, replace(problem, past=past))
    assert isinstance(searcher, Recommends)
    found = searcher.recommend(3)
    assert len(found) <= 3
    assert len({one.configuration.key for one in found}) == len(found)
    for one in found:
        assert problem.space.check(one.configuration) == one.configuration
        assert 0.0 <= one.cost_low <= one.cost <= one.cost_high < float("inf")
        assert 0.0 <= one.runtime_low <= one.runtime <= one.runtime_high < float("inf")
        assert 0.0 <= one.probability_feasible <= 1.0
    assert all("\n" not in line for line in searcher.basis())
    assert searcher.recommend(3) == found


@pytest.mark.parametrize("name", NAMES)
def test_from_nothing_follows_nothing(name: str) -> None:
    searcher = make(name, problems.table_problem())
    assert isinstance(searcher, Recommends)
    assert searcher.recommend(3) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_one_configuration_can_be_recommended_for_a_large_space(name: str) -> None:
    problem = problems.huge_problem()
    trials = drive(make("random", problem), problem, 12)
    past = (PastStudy(problem.job.name, problem.job.parameters, tuple(trials)),)
    searcher = make(name, replace(problem, past=past))
    assert isinstance(searcher, Recommends)
    for one in searcher.recommend(1):
        assert problem.space.check(one.configuration) == one.configuration


def test_the_default_recommends() -> None:
    assert "done" in NAMES
