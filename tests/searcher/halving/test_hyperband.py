"""Hyperband: the sizes of its brackets, and that a rung waits until it is full."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.searcher.halving.test_asha import curves

from tradewind import plugins
from tradewind.errors import SpecError
from tradewind.problem import Integer, Problem
from tradewind.searcher.base import NothingLeft, SearchState
from tradewind.searcher.halving.hyperband import HyperbandSearcher
from tradewind.testing import problems
from tradewind.testing.problems import KnownOutcome, KnownProblem, drive, evaluate, pending


def made(problem: Problem, **settings: Any) -> HyperbandSearcher:
    found = plugins.create("searcher", "hyperband", settings, problem=problem, seed=1)
    assert isinstance(found, HyperbandSearcher)
    return found


def test_the_brackets_of_the_paper() -> None:
    searcher = made(curves(), rungs=5)  # Li et al. 2018, Table 1: R = 81, eta = 3
    assert [searcher.sizes(bracket) for bracket in range(5)] == [
        (81, 27, 9, 3, 1),
        (0, 34, 11, 3, 1),
        (0, 0, 15, 5, 1),
        (0, 0, 0, 8, 2),
        (0, 0, 0, 0, 5),
    ]
    assert searcher.sizes(5) == searcher.sizes(0)


def test_all_brackets_are_carried_out_and_the_search_ends() -> None:
    problem = curves()
    searcher = made(problem, rungs=3)
    trials = drive(searcher, problem, 1000, parallel=4)
    found = Counter((int(trial.proposal.why["bracket"]), searcher.rung_of(trial)) for trial in trials)
    wanted = {(b, rung): size for b in range(3) for rung, size in enumerate(searcher.sizes(b)) if size}
    assert found == wanted
    by_number = {trial.number: trial for trial in trials}
    for trial in trials:
        if trial.proposal.origin is not None:
            assert by_number[trial.proposal.origin].configuration == trial.configuration
    answer = searcher.ask(SearchState(proposed=len(trials)))
    assert isinstance(answer, NothingLeft)
    assert answer.final and "all brackets" in answer.reason
    best = min(trials, key=lambda trial: abs(float(trial.configuration["x"]) - 0.3))
    assert best.proposal.fidelity == 1.0 or best.configuration in {
        trial.configuration for trial in trials if trial.proposal.fidelity == 1.0
    }


def test_a_rung_waits_and_a_free_place_begins_the_next_bracket() -> None:
    problem = curves()
    searcher = made(problem, rungs=2)
    first = searcher.ask(SearchState(), 3)
    assert not isinstance(first, NothingLeft) and len(first) == 3
    for number, proposal in enumerate(first[:2]):
        searcher.tell(evaluate(problem, proposal, number))
    waits = SearchState(pending=(pending(problem, first[2], 2),), proposed=3)
    answer = searcher.ask(waits, 1)
    assert not isinstance(answer, NothingLeft)
    assert (answer[0].why["bracket"], answer[0].fidelity) == (1.0, 1.0)
    searcher.tell(evaluate(problem, first[2], 2))
    answer = searcher.ask(SearchState(proposed=3), 1)
    assert not isinstance(answer, NothingLeft)
    assert (answer[0].why["bracket"], answer[0].fidelity) == (0.0, 1.0)
    assert answer[0].origin in (0, 1, 2)


def test_a_space_that_is_smaller_than_a_bracket_needs_fewer_trials() -> None:
    """Six configurations fill neither of the first two rungs; three and one go on from there."""

    def problem(trials: int) -> KnownProblem:
        space = [Integer(name="x", low=0, high=5)]
        return problems.make_problem(space, lambda *_: KnownOutcome(60.0), trials=trials)

    for parallel in (1, 4):
        trials = drive(made(problem(16)), problem(16), 16, parallel=parallel)
        assert [trial.proposal.fidelity for trial in trials].count(1.0) == 1
    with pytest.raises(SpecError, match="a budget of 15 trials is too small for the searcher hyperband: it needs 16"):
        made(problem(15))
