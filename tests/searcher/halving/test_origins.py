"""Trials from whose checkpoints others may yet go on: never one too few, and in the end hardly any."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from tradewind import plugins
from tradewind.problem import Configuration, Float, Objective, Observation, Offer, Proposal, Trial, TrialState
from tradewind.searcher.base import ContinuesTrials, NothingLeft, Searcher, SearchState
from tradewind.testing import problems
from tradewind.testing.problems import KnownOutcome, KnownProblem, drive, evaluate


def problem_of(**budget: Any) -> KnownProblem:
    def truth(configuration: Configuration, _offer: Offer) -> KnownOutcome:
        x = float(configuration["x"])
        if 0.6 < x < 0.7:
            return KnownOutcome(100.0 + x, "it fails")
        return KnownOutcome(100.0 + 20 * x, metrics={"loss": abs(x - 0.3)})

    return problems.make_problem([Float(name="x", low=0.0, high=1.0)], truth, objective=Objective("loss"), **budget)


def watched(searcher: Searcher) -> list[tuple[set[int], set[int]]]:
    """Check each proposal against what the searcher said before of the trials that had ended by then."""
    assert isinstance(searcher, ContinuesTrials)
    said: list[tuple[set[int], set[int]]] = []
    before = searcher.ask

    def ask(state: SearchState, count: int = 1) -> list[Proposal] | NothingLeft:
        ended, may = {trial.number for trial in searcher.history}, searcher.origins(state)
        assert may is not None and len(set(may)) == len(may) and set(may) <= ended
        said.append((ended, set(may)))
        answer = before(state, count)
        for proposal in () if isinstance(answer, NothingLeft) else answer:
            late = [now for now, allowed in said if proposal.origin in now and proposal.origin not in allowed]
            assert not late, f"the checkpoint of trial {proposal.origin} would be gone"
        return answer

    searcher.ask = ask  # type: ignore[method-assign]
    return said


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize(
    ("name", "settings", "trials", "left"),
    [
        ("asha", {}, 60, 20),
        ("asha", {"eta": 2, "rungs": 3}, 40, 14),
        ("hyperband", {"eta": 3, "rungs": 3}, 100, 0),
        ("pbt", {"population": 8, "turns": 5}, 100, 0),
        ("pbt", {"population": 5, "turns": 3, "quantile": 0.5}, 9, 9),
    ],
)
def test_no_proposal_begins_at_a_checkpoint_that_is_gone(
    name: str, settings: dict[str, Any], trials: int, left: int, workers: int
) -> None:
    problem = problem_of(trials=trials)
    searcher = plugins.create("searcher", name, settings, problem=problem, seed=3)
    said = watched(searcher)
    done = drive(searcher, problem, trials, parallel=workers)
    assert sum(trial.proposal.origin is not None for trial in done) > 2
    assert isinstance(searcher, ContinuesTrials)
    last = searcher.origins(SearchState(proposed=len(done), trials_left=0))
    assert last is not None and len(last) <= left
    assert len(said) > 2


@pytest.mark.parametrize("workers", [1, 3, 8])
@pytest.mark.parametrize(
    ("name", "settings", "trials"),
    [
        ("asha", {}, 7),
        ("asha", {"eta": 2, "rungs": 3}, 9),
        ("pbt", {"population": 5, "turns": 3}, 8),
        ("hyperband", {"rungs": 3}, 16),
    ],
)
def test_the_last_trials_of_a_budget_begin_at_none_either_whatever_fails(
    name: str, settings: dict[str, Any], trials: int, workers: int
) -> None:
    """Where the best had failed on the next share, the second best went on with a checkpoint that was removed."""
    failed = Observation(None, 1.0, 1.0, feasible=False, reason="so")
    for seed in range(6):
        luck, problem = random.Random(seed), problem_of(trials=trials)
        searcher = plugins.create("searcher", name, settings, problem=problem, seed=seed)
        watched(searcher)
        done: list[Trial] = []
        pending: list[Trial] = []
        while True:
            room = min(workers - len(pending), trials - len(done))
            state = SearchState(pending=tuple(pending), proposed=len(done), trials_left=trials - len(done))
            answer = searcher.ask(state, room) if room else []
            for proposal in () if isinstance(answer, NothingLeft) else answer:
                trial = evaluate(problem, proposal, len(done))
                if luck.random() < 0.3:
                    trial = replace(trial, state=TrialState.FAILED, observation=failed)
                done.append(trial)
                pending.append(replace(trial, state=TrialState.RUNNING, observation=None))
            if not pending:
                break
            searcher.tell(done[pending.pop(luck.randrange(len(pending))).number])
        assert len(done) > 3
