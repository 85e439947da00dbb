"""Population-based training: who copies whom, what a copy is like, and that a population gets better."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.searcher.halving.test_asha import curves

from tradewind import plugins
from tradewind.problem import (
    Categorical,
    Float,
    Integer,
    Objective,
    Observation,
    Ordinal,
    Parameter,
    Problem,
    Trial,
    TrialState,
    Value,
)
from tradewind.searcher.base import NothingLeft, SearchState
from tradewind.searcher.halving.pbt import PbtSearcher, changed
from tradewind.testing import problems
from tradewind.testing.problems import KnownOutcome, drive, evaluate, pending


def made(problem: Problem, seed: int = 1, **settings: Any) -> PbtSearcher:
    found = plugins.create("searcher", "pbt", settings, problem=problem, seed=seed)
    assert isinstance(found, PbtSearcher)
    return found


@pytest.mark.parametrize(
    ("parameter", "value", "factor", "expected"),
    [
        (Float(name="x", low=0.1, high=1.0), 0.5, 1.2, 0.6),
        (Float(name="x", low=0.1, high=1.0), 0.9, 1.2, 1.0),
        (Float(name="x", low=0.0, high=1.0, step=0.25), 0.5, 1.6, 0.75),
        (Integer(name="x", low=1, high=100), 10, 0.8, 8),
        (Ordinal(name="x", values=(16, 32, 64)), 32, 1.2, 64),
        (Ordinal(name="x", values=(16, 32, 64)), 16, 0.8, 16),
        (Categorical(name="x", values=("a", "b")), "a", 1.2, "a"),
    ],
)
def test_a_value_that_is_changed(parameter: Parameter, value: Value, factor: float, expected: Value) -> None:
    found = changed(parameter, value, factor)
    assert found == pytest.approx(expected) if isinstance(expected, float) else found == expected
    assert type(found) is type(expected)


@pytest.mark.slow
def test_every_member_has_its_turns_and_the_worst_copy_the_best() -> None:
    problem = curves()
    searcher = made(problem, population=8, turns=4)
    trials = drive(searcher, problem, 100, parallel=3)
    assert len(trials) == 32
    seats = [(int(trial.proposal.why["member"]), int(trial.proposal.why["turn"])) for trial in trials]
    assert sorted(seats) == [(member, turn) for member in range(8) for turn in range(1, 5)]
    by_number = {trial.number: trial for trial in trials}
    copies = 0
    for trial in trials:
        member, turn = trial.proposal.why["member"], trial.proposal.why["turn"]
        assert trial.proposal.fidelity == turn / 4 if isinstance(turn, float) else False
        if turn == 1.0:
            assert trial.proposal.origin is None
            continue
        assert trial.proposal.origin is not None
        before = by_number[trial.proposal.origin]
        assert before.proposal.why["turn"] == float(turn) - 1.0
        if before.proposal.why["member"] != member:
            copies += 1
            assert before.configuration != trial.configuration
    assert copies >= 3
    assert isinstance(searcher.ask(SearchState(proposed=32)), NothingLeft)


def test_members_that_fail_begin_anew_or_take_over() -> None:
    problem = curves()
    searcher = made(problem, population=4, turns=2)
    first = searcher.ask(SearchState(), 4)
    assert not isinstance(first, NothingLeft) and len(first) == 4
    failed = [evaluate(problem, proposal, number) for number, proposal in enumerate(first)]
    seen = Observation(None, 1.0, 1.0, feasible=False, reason="so")
    for trial in failed[:3]:
        searcher.tell(replace(trial, state=TrialState.FAILED, observation=seen))
    waits = SearchState(pending=(pending(problem, first[3], 3),), proposed=4)
    answer = searcher.ask(waits, 1)
    assert not isinstance(answer, NothingLeft)
    assert (answer[0].origin, answer[0].why["turn"]) == (None, 1.0), "nobody has anything to copy"
    searcher.tell(failed[3])
    answer = searcher.ask(SearchState(proposed=4), 4)
    assert not isinstance(answer, NothingLeft)
    assert {proposal.origin for proposal in answer} == {3}


def test_a_member_that_has_begun_anew_goes_on_from_there() -> None:
    """It began anew for ever where it had failed at a later turn, with nobody to take over from."""
    problem = curves()
    searcher = made(problem, population=2, turns=3)
    done: list[Trial] = []
    seen = Observation(None, 1.0, 1.0, feasible=False, reason="so")
    turns: list[list[float]] = []
    for failed in (False, True, False, False):
        answer = searcher.ask(SearchState(proposed=len(done)), 2)
        assert not isinstance(answer, NothingLeft)
        turns.append([float(proposal.why["turn"]) for proposal in answer])
        for proposal in answer:
            trial = evaluate(problem, proposal, len(done))
            done.append(replace(trial, state=TrialState.FAILED, observation=seen) if failed else trial)
            searcher.tell(done[-1])
    assert turns == [[1.0, 1.0], [2.0, 2.0], [1.0, 1.0], [2.0, 2.0]]


def _score(trial: Trial) -> float:
    assert trial.observation is not None and trial.observation.objective is not None
    return trial.observation.objective


@pytest.mark.slow
def test_a_schedule_is_found_that_no_fixed_value_has() -> None:
    """The toy of the paper in one dimension: a rate that is best large at first and small later.

    The state of a run is the distance from the optimum, which each turn shrinks by a rate that no constant beats.
    """
    best_rates = [0.9, 0.5, 0.25, 0.1]

    def distance(rates: list[float]) -> float:
        left = 1.0
        for rate, best in zip(rates, best_rates, strict=False):
            left *= 0.1 + min(1.0, abs(math.log(rate / best)))
        return left

    problem = problems.make_problem(
        [Float(name="rate", low=0.02, high=1.0, log=True)],
        lambda _c, _o: KnownOutcome(1.0),
        objective=Objective("left"),
    )
    fixed = min(distance([rate] * 4) for rate in np.geomspace(0.02, 1.0, 200))
    won = 0
    for seed in range(5):
        searcher = made(problem, seed, population=12, turns=4, change=0.5)
        states: dict[int, list[float]] = {}
        ended: list[Trial] = []
        while not isinstance(answer := searcher.ask(SearchState(proposed=len(ended)), 12), NothingLeft):
            for proposal in answer:
                origin = proposal.origin
                rates = [*([] if origin is None else states[origin]), float(proposal.configuration["rate"])]
                trial = evaluate(problem, proposal, len(ended))
                states[trial.number] = rates
                seen = Observation(distance(rates), 1.0, 1.0, feasible=True, metrics={"left": distance(rates)})
                ended.append(replace(trial, state=TrialState.SUCCEEDED, observation=seen))
            for trial in ended:
                searcher.tell(trial)
        whole = [trial for trial in ended if trial.proposal.fidelity == 1.0]
        won += min(map(_score, whole)) < fixed
    assert won >= 4
