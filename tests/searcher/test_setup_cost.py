"""Set-up that is billed: what it makes hopeless is not run, and a small budget still pays a whole run."""

from __future__ import annotations

import math

import pytest

from tradewind import plugins
from tradewind.problem import Billing, Categorical, Instance, Objective, Offer, TrialState
from tradewind.searcher.base import NothingLeft, SearchState
from tradewind.testing.problems import KnownOutcome, KnownProblem, drive, machine_parameters, make_problem


def clusters(setup: float, **options: object) -> KnownProblem:
    """45 configurations, of which the dear ones pay more for set-up than the best costs in all."""
    return make_problem(
        machine_parameters(9, (1, 2, 4, 8, 16)),
        lambda _c, offer: KnownOutcome(20 + 1200 / (offer.vcpu * offer.nodes) ** 0.5),
        deadline=3600.0,
        billing=Billing(setup_seconds=setup, minimum_seconds=60),
        **options,  # type: ignore[arg-type]
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tradewind", "gp"])
@pytest.mark.parametrize("setup", [120.0, 600.0])
def test_what_costs_more_than_the_best_before_it_begins_is_not_run(name: str, setup: float) -> None:
    problem = clusters(setup)
    searcher = plugins.create("searcher", name, {}, problem=problem, seed=0)
    trials = drive(searcher, problem, 60, abort=True)
    best = math.inf
    for trial in trials:
        assert problem.terms.billing.cost(0.0, trial.offer.hourly) < best, f"trial {trial.number} could not win"
        assert trial.proposal.abort_time is None or trial.proposal.abort_time > 0
        if trial.observation and trial.observation.feasible and trial.observation.objective is not None:
            best = min(best, trial.observation.objective)
    optimum = problem.optimum()
    assert optimum is not None
    assert best == pytest.approx(optimum[1])
    answer = searcher.ask(SearchState())
    assert isinstance(answer, NothingLeft)
    assert answer.final
    assert "no untried configuration can cost less than the best" in answer.reason


@pytest.mark.parametrize("name", ["tradewind", "gp"])
@pytest.mark.parametrize("price", [0.045, 0.08, 0.085, 0.12, 0.3, 7.0])
def test_runs_within_one_unit_of_billing_all_cost_the_same(name: str, price: float) -> None:
    """Whatever the last bit of a price says: a run of 0.2 s on the same machine cannot cost less than one of 0.8 s."""
    offers = {"only": Offer("t", "only", 1, 1.0, price)}
    parameters = [
        Instance(name="type", values=("only",), offers=offers),
        Categorical(name="mode", values=tuple("abcd")),
    ]
    times = {"a": 0.8, "b": 0.4, "c": 0.2, "d": 0.1}
    problem = make_problem(
        parameters,
        lambda c, _offer: KnownOutcome(times[str(c["mode"])]),
        deadline=10.0,
        billing=Billing(),
    )
    searcher = plugins.create("searcher", name, {}, problem=problem, seed=0)
    assert len(drive(searcher, problem, 20)) == 1
    answer = searcher.ask(SearchState())
    assert isinstance(answer, NothingLeft)
    assert "the smallest bill of each, for 1.0 s, is at least that" in answer.reason


@pytest.mark.slow
def test_a_pareto_front_needs_the_dear_ones_too() -> None:
    from dataclasses import replace

    from tradewind.problem import Objective

    problem = clusters(600.0)
    both = replace(problem.objective, also=(Objective("runtime"),))
    searcher = plugins.create("searcher", "gp", {}, problem=replace(problem, objective=both), seed=0)
    assert len(drive(searcher, problem, 60)) == 45


def test_a_budget_of_little_more_than_one_run_is_spent_on_one() -> None:
    """A quarter of the money would not even pay the set-up: a first run that is cut there teaches nothing."""
    parameters = [*machine_parameters(3, (1,)), Categorical(name="mode", values=("a", "b"))]
    for setup, dollars in ((300.0, 0.0105), (120.0, 0.012)):
        problem = make_problem(
            parameters,
            lambda _c, _o: KnownOutcome(120.0),
            dollars=dollars,
            billing=Billing(setup_seconds=setup, minimum_seconds=60),
        )
        searcher = plugins.create("searcher", "tradewind", {}, problem=problem, seed=0)
        trials = drive(searcher, problem, 20, abort=True)
        assert trials[0].state is TrialState.SUCCEEDED, (setup, trials[0].proposal.abort_time)


@pytest.mark.parametrize("name", ["tradewind", "gp"])
def test_what_a_run_is_expected_to_cost_is_billed_as_it_will_be(name: str) -> None:
    """Runs of some hundredths of a second are billed by the second: nothing is expected to cost less than one."""
    billing = Billing(granularity_seconds=1.0)
    problem = make_problem(
        machine_parameters(6, (1, 2)),
        lambda _c, offer: KnownOutcome(0.08 / offer.vcpu),
        objective=Objective("runtime"),
        billing=billing,
    )
    searcher = plugins.create("searcher", name, {}, problem=problem, seed=0)
    told = [trial for trial in drive(searcher, problem, 8) if "expected_spend" in trial.proposal.why]
    assert len(told) >= 4
    for trial in told:
        spend = trial.proposal.why["expected_spend"]
        assert isinstance(spend, float)
        assert spend >= billing.unit_cost(trial.offer.hourly) - 1e-9
