"""ASHA: who goes on, from which checkpoint, and that a search has an answer."""

from __future__ import annotations

import csv
import gzip
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tradewind import plugins
from tradewind.errors import SpecError
from tradewind.problem import Categorical, Configuration, Float, Objective, Offer, Problem, Proposal, Space, Trial
from tradewind.searcher.base import NothingLeft, SearchState
from tradewind.searcher.halving.asha import AshaSearcher
from tradewind.testing import problems
from tradewind.testing.problems import KnownOutcome, KnownProblem, drive, evaluate

HPO = Path(__file__).parents[4] / "shared" / "datasets" / "hpo"


def made(problem: Problem, **settings: Any) -> AshaSearcher:
    found = plugins.create("searcher", "asha", settings, problem=problem, seed=1)
    assert isinstance(found, AshaSearcher)
    return found


def curves(**budget: Any) -> KnownProblem:
    """The loss is smaller the nearer x is to 0.3, and falls with the share of the input."""

    def truth(configuration: Configuration, _offer: Offer) -> KnownOutcome:
        return KnownOutcome(100.0, metrics={"loss": abs(float(configuration["x"]) - 0.3)})

    return problems.make_problem([Float(name="x", low=0.0, high=1.0)], truth, objective=Objective("loss"), **budget)


def shares(trials: list[Trial]) -> list[float]:
    return [round(trial.proposal.fidelity, 3) for trial in trials]


def test_one_in_three_goes_on_from_its_checkpoint() -> None:
    problem = curves()
    searcher = made(problem, rungs=3)
    trials = drive(searcher, problem, 13)
    assert shares(trials) == [0.111, 0.111, 0.111, 0.333, *[0.111] * 3, 0.333, *[0.111] * 3, 0.333, 1.0]
    by_number = {trial.number: trial for trial in trials}
    for trial in trials:
        if trial.proposal.fidelity == shares(trials)[0]:
            assert trial.proposal.origin is None
        elif trial.proposal.origin is not None:
            before = by_number[trial.proposal.origin]
            assert before.configuration == trial.configuration
            assert before.proposal.fidelity < trial.proposal.fidelity
    assert all(trial.proposal.origin is not None for trial in trials if trial.proposal.fidelity > 0.2)
    first = trials[:9]
    best = min(first, key=lambda trial: abs(float(trial.configuration["x"]) - 0.3))
    assert trials[-1].configuration == best.configuration


def test_nobody_waits_for_a_rung_and_the_same_question_has_the_same_answer() -> None:
    problem = curves()
    searcher = made(problem)
    first = searcher.ask(SearchState(), 4)
    assert not isinstance(first, NothingLeft) and len(first) == 4
    assert searcher.ask(SearchState(), 4) == first
    for number, proposal in enumerate(first[:3]):
        searcher.tell(evaluate(problem, proposal, number))
    answer = searcher.ask(SearchState(proposed=4), 2)
    assert not isinstance(answer, NothingLeft)
    assert [proposal.origin is None for proposal in answer] == [False, True]


def test_failed_and_unfinished_trials_never_go_on() -> None:
    problem = curves()
    searcher = made(problem, rungs=2)
    asked = searcher.ask(SearchState(), 6)
    assert not isinstance(asked, NothingLeft)
    for number, proposal in enumerate(asked):
        trial = evaluate(problem, proposal, number, money=1e-9 if number < 4 else math.inf)
        searcher.tell(trial)
    answer = searcher.ask(SearchState(proposed=6), 3)
    assert not isinstance(answer, NothingLeft)
    assert {proposal.origin for proposal in answer} == {4, 5, None}


@pytest.mark.parametrize("parallel", [1, 2, 8])
@pytest.mark.parametrize(
    ("name", "trials"), [(n, t) for n in ("asha", "pbt") for t in (5, 13, 28)] + [("hyperband", 40)]
)
def test_a_budget_of_trials_ends_with_a_whole_run(name: str, trials: int, parallel: int) -> None:
    """Whatever else has places: with eight of them, asha and pbt had none below 40 trials."""
    problem = curves(trials=trials)
    found = drive(plugins.create("searcher", name, {}, problem=problem, seed=1), problem, 100, parallel)
    assert len(found) == trials
    assert max(shares(found)) == 1.0


def test_the_best_that_runs_in_parallel_is_the_one_that_uses_up_what_is_left() -> None:
    problem = curves(trials=11)
    found = drive(made(problem), problem, 100, parallel=8)
    first = [trial for trial in found if trial.proposal.origin is None]
    assert len(first) == 8
    best = min(first, key=lambda trial: abs(float(trial.configuration["x"]) - 0.3))
    assert [trial.configuration for trial in found if trial.proposal.fidelity == 1.0] == [best.configuration]


@pytest.mark.parametrize(
    ("name", "least", "fewer"), [("asha", 4, "rungs"), ("hyperband", 40, "rungs"), ("pbt", 5, "turns")]
)
def test_a_budget_that_ends_before_any_result_is_refused(name: str, least: int, fewer: str) -> None:
    words = (
        f"a budget of {least - 1} trials is too small for the searcher {name}: it needs {least} until .*fewer {fewer}"
    )
    with pytest.raises(SpecError, match=words):
        plugins.create("searcher", name, {}, problem=curves(trials=least - 1))


@pytest.mark.parametrize("left", [2, 3])
def test_the_last_trials_are_for_the_best_that_can_go_on(left: int) -> None:
    """The study goes on after its space was made smaller: the best, which had come furthest, is not in it any more."""
    before, now = curves(), curves(trials=9)
    now = replace(now, space=Space([Float(name="x", low=0.4, high=1.0)]))
    searcher = made(now, rungs=3)
    for number, (x, share) in enumerate([(0.3, 1 / 9), (0.5, 1 / 9), (0.3, 1 / 3)]):
        searcher.tell(evaluate(before, Proposal(Configuration({"x": x}), fidelity=round(share, 6)), number))
    answer = searcher.ask(SearchState(proposed=9 - left, trials_left=left), 2)
    assert not isinstance(answer, NothingLeft)
    goes_on = [each for each in answer if each.origin is not None]
    assert [(each.origin, round(each.fidelity, 3)) for each in goes_on] == ([(1, 0.333)] if left == 2 else [])
    assert len(answer) == 1


def test_a_small_space_is_used_up_and_ends() -> None:
    problem = problems.flat_problem(levels=2)
    searcher = made(problem)
    found = drive(searcher, problem, 200)
    assert len({trial.configuration.key for trial in found}) == len(problem.candidates)
    assert max(shares(found)) == 1.0
    answer = searcher.ask(SearchState(proposed=len(found)))
    assert isinstance(answer, NothingLeft) and answer.final


def hpo_problem(name: str, seed: int) -> tuple[KnownProblem, dict[str, float]]:
    """Real final losses at the end of curves that fall towards them at different speeds, and so cross each other."""
    path = HPO / name
    if not path.is_file():
        pytest.skip(f"the data set {name} is not here")
    with gzip.open(path, "rt") as file:
        rows = [row for i, row in enumerate(csv.DictReader(file)) if i % 7 == seed % 7]
    names = [key for key in rows[0] if not key.startswith(("train_time", "val_"))]
    rng = np.random.default_rng(seed)
    chosen = [rows[int(i)] for i in rng.choice(len(rows), 400, replace=False)]
    losses = {"/".join(row[key] for key in names): 1.0 - float(row["val_acc_0"]) for row in chosen}
    speeds = dict(zip(losses, rng.uniform(4.0, 12.0, len(losses)), strict=True))

    def part(configuration: Configuration, _offer: Offer, share: float) -> KnownOutcome:
        row = str(configuration["row"])
        return KnownOutcome(270.0 * share, metrics={"loss": losses[row] + math.exp(-speeds[row] * share)})

    def truth(configuration: Configuration, offer: Offer) -> KnownOutcome:
        return part(configuration, offer, 1.0)

    parameters = [Categorical(name="row", values=tuple(losses))]
    problem = problems.make_problem(parameters, truth, objective=Objective("loss"))
    return replace(problem, of_part=part), losses


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hpobench_segment.csv.gz"])
def test_on_known_curves_it_finds_better_ones_than_random_search_with_as_much_work(name: str) -> None:
    better = 0
    for seed in range(4):
        problem, losses = hpo_problem(name, seed)
        searcher = made(problem)
        work, found = 0.0, list[float]()
        for trial in drive(searcher, problem, 90):
            fidelity = trial.proposal.fidelity
            work += fidelity if trial.proposal.origin is None else fidelity * (1.0 - 1.0 / 3.0)  # the rest only
            if fidelity == 1.0:
                found.append(losses[str(trial.configuration["row"])])
        rng, count = np.random.default_rng(seed), math.ceil(work)
        draws = rng.choice(list(losses.values()), (500, count))
        better += min(found) < float(np.mean(draws.min(axis=1)))
    assert better >= 3


def test_a_share_is_rounded_as_the_job_sees_it() -> None:
    searcher = made(curves(), rungs=4)
    assert searcher.shares == (0.037037, 0.111111, 0.333333, 1.0)
    assert searcher.rung_of(evaluate(curves(), Proposal(Configuration({"x": 0.5}), fidelity=1 / 3))) == 2
