"""Trials on spot machines: judged by what such runs are expected to come to, charged what they came to."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import share
from tests.engine.searchers import in_order
from tests.engine.simulated_runs import Fate, World

from tradewind.engine.state_machine.search_policy import SearchPolicy
from tradewind.engine.state_machine.trial_outcome import run_figures, run_time_caps
from tradewind.problem import (
    COST,
    RUNTIME,
    UNINTERRUPTED_COST,
    UNINTERRUPTED_RUNTIME,
    Billing,
    Fault,
    Instance,
    Interruptions,
    Offer,
    Problem,
    Proposal,
    Run,
    RunState,
    Trial,
    TrialState,
    Usage,
)
from tradewind.testing.problems import KnownOutcome, make_problem, pending

RATE = 2.0
SPOT = Offer("aws", "m5.large", 2, 8, 0.36, spot=True, interruptions_per_hour=RATE)
FIRM = Offer("aws", "m5.large", 2, 8, 0.72)
SECONDS = 900.0


def spot_problem(rate: float | None = RATE, checkpoint: float | None = None, **options: float) -> Problem:
    sold = {"m5.large/spot": replace(SPOT, interruptions_per_hour=rate), "m5.large": FIRM}
    problem = make_problem(
        [Instance(name="instance", values=tuple(sold), offers=sold)],
        lambda _c, _o: KnownOutcome(SECONDS),
        billing=Billing(setup_seconds=60.0),
        **options,  # type: ignore[arg-type]
    )
    return replace(problem, terms=replace(problem.terms, checkpoint_seconds=checkpoint))


def searched(problem: Problem, taken: int = 0, *, retries: int = 100, on_step: object = lambda _w: None) -> World:
    """A search over both offers, in which the first run on spot machines loses them so often."""

    def fate(trial: Trial, run: Run) -> Fate:
        if trial.offer.spot and run.attempt <= taken:
            return Fate(200.0, RunState.PREEMPTED, Fault.INFRASTRUCTURE, "its machines are lost")
        return Fate(SECONDS)

    policy = SearchPolicy(owner="t", abort=False, retries=retries, spot_attempts=1)
    world = World(problem, in_order(problem), fate, policy, on_step=on_step)  # type: ignore[arg-type]
    world.open()
    world.drive()
    return world


def test_a_trial_is_judged_by_what_is_expected_whether_or_not_it_was_interrupted() -> None:
    problem = spot_problem()
    lucky, unlucky = searched(problem).trial_rows[0], searched(problem, taken=3).trial_rows[0]
    assert lucky.observation == replace(unlucky.observation, profile={})  # type: ignore[type-var]
    seen = lucky.observation
    assert seen is not None
    assert seen.expected
    expected = Interruptions(RATE).expected_seconds(SECONDS, 60.0)
    assert seen.objective == seen.cost == pytest.approx(expected / 3600.0 * 0.36)
    assert seen.runtime == Interruptions(RATE).expected_runtime(SECONDS, 60.0)
    assert seen.metrics[UNINTERRUPTED_COST] == 0.096
    assert seen.metrics[UNINTERRUPTED_RUNTIME] == SECONDS
    assert lucky.spent == 0.096
    assert unlucky.spent == pytest.approx(0.096 + 3 * 0.026)


def test_half_the_price_is_too_dear_where_runs_are_taken_often() -> None:
    often, seldom = searched(spot_problem(6.0)), searched(spot_problem(0.1))
    saved = searched(spot_problem(6.0, checkpoint=60.0))
    best = [world.machine.history.best for world in (often, seldom, saved)]
    assert [one.offer.spot for one in best if one is not None] == [False, True, True]


def test_what_nobody_knows_is_not_made_up() -> None:
    seen = searched(spot_problem(None)).trial_rows[0].observation
    assert seen is not None
    assert (seen.cost, seen.runtime, seen.expected) == (0.096, SECONDS, False)


def test_a_deadline_is_for_what_is_expected() -> None:
    problem = spot_problem(deadline=1000.0)
    trial = searched(problem).trial_rows[0]
    assert trial.outcome == "infeasible"
    firm = searched(problem).trial_rows[1]
    assert firm.outcome == "succeeded"


def test_a_run_is_cut_where_it_is_expected_to_break_the_deadline() -> None:
    problem = spot_problem(deadline=1000.0)
    spot, firm = (pending(problem, Proposal(problem.candidates.configuration(i))) for i in (0, 1))
    (cap, why), *_ = run_time_caps(problem, spot, None, abort=True, priced=False)
    assert Interruptions(RATE).expected_runtime(cap, 60.0) == pytest.approx(1000.0)
    assert why == "it ran into the deadline of 16m 40s, counting expected interruptions"
    assert [seconds for seconds, _ in run_time_caps(problem, firm, None, abort=True, priced=False)] == [1000.0]


def test_what_is_never_expected_to_end_has_failed() -> None:
    trial = searched(spot_problem(10_000.0)).trial_rows[0]
    assert trial.state is TrialState.FAILED
    assert trial.observation is not None
    assert "is not expected to end" in trial.observation.reason


def test_the_work_that_a_checkpoint_has_saved_counts() -> None:
    problem = spot_problem(None)
    trial = pending(problem, Proposal(problem.candidates.configuration(0)))
    rest = Run("r", 0, runtime=300.0, cost=0.036, usage=Usage(resumed_seconds=600.0))
    assert run_figures(trial, rest, problem.terms) == {RUNTIME: 900.0, COST: 0.096}


def test_machines_that_were_paid_for_longer_than_they_ran_take_as_long_again() -> None:
    problem = spot_problem()
    trial = pending(problem, Proposal(problem.candidates.configuration(0)))
    held = Run("r", 0, runtime=SECONDS, cost=0.36 * (SECONDS + 240.0) / 3600.0)
    assert run_figures(trial, held, problem.terms)[RUNTIME] == Interruptions(RATE).expected_runtime(SECONDS, 240.0)


def test_machines_may_be_lost_as_often_as_spot_attempts_says_whatever_retries_says() -> None:
    problem = spot_problem()

    def fate(trial: Trial, run: Run) -> Fate:
        return Fate(50.0, RunState.PREEMPTED, Fault.INFRASTRUCTURE, "taken") if trial.offer.spot else Fate(SECONDS)

    for attempts, retries, runs in ((4, 0, 4), (1, 0, 1), (2, 1, 3)):
        policy = SearchPolicy(owner="t", abort=False, retries=retries, spot_attempts=attempts)
        world = World(problem, in_order(problem), fate, policy)
        world.open()
        world.drive()
        assert (world.trial_rows[0].state, world.trial_rows[0].attempts) == (TrialState.LOST, runs)


@pytest.mark.slow
@settings(max_examples=share(60), deadline=None)
@given(
    st.lists(st.floats(0.0, 2000.0), max_size=6),
    st.floats(0.01, 5.0),
    st.one_of(st.none(), st.floats(30.0, 500.0)),
    st.floats(0.05, 3.0),
)
def test_every_second_on_machines_that_are_taken_is_paid_and_within_the_budget(
    taken_after: list[float], rate: float, checkpoint: float | None, dollars: float
) -> None:
    problem = spot_problem(rate, checkpoint, dollars=dollars)

    def fate(trial: Trial, run: Run) -> Fate:
        if trial.offer.spot and run.attempt <= len(taken_after):
            return Fate(taken_after[run.attempt - 1], RunState.PREEMPTED, Fault.INFRASTRUCTURE, "taken")
        return Fate(SECONDS)

    def within(world: World) -> None:
        ledger = world.machine.ledger
        assert ledger.spent + ledger.reserved <= dollars + world.overshoot_allowed + 1e-9

    world = World(problem, in_order(problem), fate, SearchPolicy(owner="t", spot_attempts=100), on_step=within)
    world.open()
    world.drive()
    paid = sum(run.cost for run in world.run_rows.values())
    assert world.machine.ledger.spent == pytest.approx(paid, abs=1e-9)
    assert sum(trial.spent for trial in world.trial_rows.values()) == pytest.approx(paid, abs=1e-8)
    for run in world.run_rows.values():
        hourly = world.trial_rows[run.trial].offer.hourly
        assert run.cost == problem.terms.billing.cost(run.runtime, hourly)
