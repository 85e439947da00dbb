"""What is set aside for runs: enough for what they usually take, and never all of it for one of several."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.engine.searchers import in_order
from tests.engine.simulated_runs import Fate, World

from tradewind.engine.state_machine.budget import RunLimits
from tradewind.engine.state_machine.search_policy import SearchPolicy
from tradewind.problem import Billing, Integer, Objective, Observation, Problem, Proposal, Run, Trial, TrialState
from tradewind.testing.problems import KnownOutcome, machine_parameters, make_problem

TEN_HOURS = 36_000.0
HOURLY = 1.0


def problem(parallel: int = 1, **options: object) -> Problem:
    """The best accuracy of 12 configurations; no incumbent caps a run."""
    parameters = [*machine_parameters(1, (1,)), Integer(name="x", low=1, high=12)]
    made = make_problem(
        parameters,
        lambda _c, _o: KnownOutcome(10.0),
        objective=Objective("acc", "maximise"),
        billing=Billing(),
        **options,  # type: ignore[arg-type]
    )
    return replace(made, terms=replace(made.terms, parallel=parallel))


def trial(of: Problem, fidelity: float = 1.0) -> Trial:
    offer = replace(of.candidates.offer(0), price_per_hour=HOURLY, nodes=1)
    return Trial(0, Proposal(of.candidates.configuration(0), fidelity=fidelity), offer, TrialState.PENDING, "k")


def ten_minutes() -> Trial:
    seen = Observation(objective=0.5, cost=HOURLY / 6, runtime=600.0, feasible=True)
    return replace(trial(problem()), state=TrialState.SUCCEEDED, observation=seen)


def searched(of: Problem, seconds: float) -> tuple[World, int]:
    """A search whose runs all take so long, and how many of them there were at the same time."""
    beside = [0]

    def fate(one: Trial, run: Run) -> Fate:
        return Fate(seconds, metrics={"acc": one.number / 100})

    world = World(of, in_order(of), fate, on_step=lambda world: beside.append(len(world.running)))
    world.open()
    world.drive()
    return world, max(beside)


def usual_cost(of: Problem, seconds: float) -> float:
    return of.terms.billing.cost(seconds, of.candidates.offer(0).hourly)


@pytest.mark.parametrize("parallel", [1, 4])
def test_a_generous_deadline_does_not_end_the_search_after_the_first_trial(parallel: int) -> None:
    # The money pays all twelve runs of ten minutes, and less than half of one that takes until the deadline.
    money = 13 * usual_cost(problem(), 600.0)
    assert money < usual_cost(problem(), TEN_HOURS) / 2
    world, beside = searched(problem(parallel, dollars=money, deadline=TEN_HOURS), 600.0)
    assert len(world.launched) == 12
    assert {t.state for t in world.trial_rows.values()} == {TrialState.SUCCEEDED}
    assert beside == parallel


def test_the_last_money_is_not_split_into_runs_that_cannot_end() -> None:
    money = 6 * usual_cost(problem(), 600.0)
    world, _ = searched(problem(4, dollars=money), 600.0)
    assert [t.state for t in world.trial_rows.values()] == [TrialState.SUCCEEDED] * 6


def test_a_run_beside_others_gets_twice_what_the_best_took_or_waits() -> None:
    one, best, usual = trial(problem()), ten_minutes(), HOURLY / 6
    endless = RunLimits(problem(4), SearchPolicy(owner="t"))
    until_deadline = RunLimits(problem(4, deadline=TEN_HOURS), SearchPolicy(owner="t"))
    for run_limits in (endless, until_deadline):
        assert run_limits.reservation(one, best, 3.0, 1, None) == 1.0
        assert run_limits.reservation(one, best, 2.5 * usual, 2, None) == pytest.approx(2 * usual)
        assert run_limits.reservation(one, best, 1.9 * usual, 1, None) is None
        assert run_limits.reservation(one, best, 1.9 * usual, 0, None) == 1.9 * usual, "the last money"
        assert run_limits.reservation(trial(problem(), 0.5), best, 1.1 * usual, 3, None) == 1.1 * usual, (
            "half of the input"
        )
    assert until_deadline.reservation(one, best, 0.49 * usual, 0, None) is None


def test_time_left_and_the_longest_run_limit_what_is_set_aside() -> None:
    free = RunLimits(problem(), SearchPolicy(owner="t"))
    assert free.reservation(trial(problem()), None, 10.0, 0, None) == 10.0
    assert free.reservation(trial(problem()), None, 10.0, 0, 1800.0) == HOURLY / 2
    short = RunLimits(problem(), SearchPolicy(owner="t", longest=900.0))
    assert short.reservation(trial(problem()), None, 10.0, 0, 1800.0) == HOURLY / 4
    assert short.limits(trial(problem()), None) == [(900.0, "it ran into the deadline of 15m 00s")]
    run = Run("t-0-1", 0, runtime=700.0)
    assert short.cap(trial(problem()), run, None, 100.0) == (800.0, "the time budget was used up")


def test_a_run_that_ran_into_deploy_longest_is_not_said_to_have_met_the_deadline() -> None:
    of = problem(deadline=3600.0, trials=1)
    world = World(of, in_order(of), lambda _trial, _run: Fate(60.0), SearchPolicy(owner="t", longest=2.0))
    world.open()
    world.drive()
    seen = world.trial_rows[0].observation
    assert seen is not None
    assert (seen.reason, seen.runtime) == ("it ran into the deadline of 2.0 s", 2.0)
