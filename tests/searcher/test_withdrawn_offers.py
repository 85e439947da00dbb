"""A study goes on although a machine that it has run on is sold no more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tradewind import plugins
from tradewind.problem import Configuration, Instance, Nodes, Offer, Parameter, TrialState
from tradewind.searcher.base import NothingLeft, Searcher, SearchState
from tradewind.testing.problems import KnownOutcome, KnownProblem, drive, evaluate, make_problem, offers


def truth(_: Configuration, offer: Offer) -> KnownOutcome:
    return KnownOutcome(20 + 20_000 / (offer.vcpu * offer.nodes) + 3 * offer.nodes)


def problem_without(*gone: str) -> KnownProblem:
    sold = {name: offer for name, offer in offers(5).items() if name not in gone}
    parameters: list[Parameter] = [Instance(name="instance", values=tuple(sold), offers=sold)]
    return make_problem([*parameters, Nodes(name="nodes", values=(2, 4))], truth, deadline=3000, noise=0.15)


def make(name: str, problem: KnownProblem) -> Searcher:
    made = plugins.create("searcher", name, {}, problem=problem, seed=1)
    assert isinstance(made, Searcher)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tradewind", "trimtuner", "gp", "coordinate_descent"])
def test_the_best_is_sold_no_more(name: str) -> None:
    problem = problem_without()
    trials = drive(make(name, problem), problem, 7)
    best = min(trials, key=lambda t: t.observation.cost if t.observation and t.observation.feasible else float("inf"))
    left = problem_without(str(best.configuration["instance"]))

    second = make(name, left)
    for trial in trials[:-2]:
        second.tell(trial)
    running = [replace(trial, state=TrialState.RUNNING, observation=None) for trial in trials[-2:]]
    second.ask(SearchState(pending=running, proposed=len(trials)), 1)

    for trial in trials[-2:]:
        second.tell(trial)
    for number in range(len(trials), len(trials) + 30):
        asked = second.ask(SearchState(proposed=number), 1)
        if isinstance(asked, NothingLeft):
            break
        assert asked[0].configuration["instance"] != best.configuration["instance"]
        second.tell(evaluate(left, asked[0], number))
    assert not second.sold(best.configuration)
