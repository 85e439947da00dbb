"""Runs that find no machines, or lose their spot machines, go elsewhere."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.searchers import in_order
from tests.engine.simulated_runs import Fate, World
from tests.engine.state_machine.test_search_machine import tuning

from tradewind.engine.state_machine.retry_policy import OfferRefusals, fallback_finder
from tradewind.engine.state_machine.search_policy import FallbackKind, SearchPolicy, no_fallback
from tradewind.problem import Fault, Offer, Run, RunState, Trial, TrialState

HERE = Offer("aws", "m5.large", 2, 8, 0.10, region="us-east-1")
NEAR = replace(HERE, region="us-west-2", price_per_hour=0.12)
FAR = replace(HERE, region="eu-west-1", price_per_hour=0.11)
SPOT = replace(HERE, spot=True, price_per_hour=0.03)
SPOT_NEAR = replace(NEAR, spot=True, price_per_hour=0.04)
OTHER = replace(HERE, instance_type="m5.xlarge")
ALL = (HERE, NEAR, FAR, SPOT, SPOT_NEAR, OTHER)
BOTH: tuple[FallbackKind, ...] = ("region", "on_demand")


def test_the_cheapest_of_the_same_machines_elsewhere() -> None:
    find = fallback_finder(ALL, BOTH)
    assert find(HERE.times(3), {HERE.times(3).key}) == FAR.times(3)
    assert find(HERE, {HERE.key, FAR.key}) == NEAR
    assert find(HERE, {HERE.key, FAR.key, NEAR.key}) is None


def test_spot_goes_to_spot_elsewhere_and_then_on_demand() -> None:
    find = fallback_finder(ALL, BOTH)
    assert find(SPOT, {SPOT.key}) == SPOT_NEAR
    assert find(SPOT, {SPOT.key, SPOT_NEAR.key}) == HERE


def test_only_the_ways_that_are_allowed() -> None:
    assert fallback_finder(ALL, ["on_demand"])(SPOT, {SPOT.key}) == HERE
    assert fallback_finder(ALL, ["on_demand"])(HERE, {HERE.key}) is None
    assert fallback_finder(ALL, ["region"])(SPOT, {SPOT.key, SPOT_NEAR.key}) is None
    assert fallback_finder(ALL, [])(SPOT, {SPOT.key}) is None
    assert no_fallback(SPOT, {SPOT.key}) is None


@pytest.mark.slow
@given(st.sampled_from(ALL), st.sets(st.sampled_from([offer.key for offer in ALL])), st.integers(1, 5))
def test_it_is_never_refused_never_another_machine_and_never_spot_for_on_demand(
    offer: Offer, refused: set[str], nodes: int
) -> None:
    found = fallback_finder(ALL, BOTH)(offer.times(nodes), refused)
    if found is not None:
        assert found.key not in refused
        assert (found.instance_type, found.nodes) == (offer.instance_type, nodes)
        assert offer.spot or not found.spot


def test_spot_machines_may_be_taken_back_so_often() -> None:
    refusals = OfferRefusals(spot_attempts=2)
    lost = Run("r", 0, state=RunState.PREEMPTED, offer_key=SPOT.key)
    trial = Trial(0, None, SPOT, TrialState.RUNNING, "k")  # type: ignore[arg-type]
    refusals.note(lost)
    assert refusals.other_offer(trial, fallback_finder(ALL, BOTH)) is None
    refusals.note(lost)
    assert refusals.other_offer(trial, fallback_finder(ALL, BOTH)) == SPOT_NEAR


def _world(policy: SearchPolicy, fate: object) -> World:
    problem = tuning()
    return World(problem, in_order(problem), fate, policy)  # type: ignore[arg-type]


def test_a_trial_without_machines_is_run_elsewhere_at_that_price() -> None:
    problem = tuning()
    first = problem.candidates.offer(0)
    dearer = replace(first.times(1), region="elsewhere", price_per_hour=first.price_per_hour * 2)

    def fate(trial: Trial, run: Run) -> Fate:
        if run.offer_key == first.key:
            return Fate(0.0, RunState.FAILED, Fault.CAPACITY, "the quota is used up")
        return Fate(10.0)

    world = _world(SearchPolicy(owner="t", retries=0, elsewhere=fallback_finder([dearer], BOTH)), fate)
    world.open()
    world.drive()
    trial = world.trial_rows[0]
    assert trial.state is TrialState.SUCCEEDED
    assert trial.offer == dearer.times(first.nodes)
    assert trial.attempts == 2
    assert trial.observation is not None
    paid = problem.terms.billing.cost(10.0, trial.offer.hourly)
    assert trial.observation.cost == paid
    assert [world.run_rows[f"t-00000-{i}"].offer_key for i in (1, 2)] == [first.key, trial.offer.key]


def test_without_another_offer_it_is_tried_again_and_then_lost() -> None:
    def fate(trial: Trial, run: Run) -> Fate:
        return Fate(0.0, RunState.FAILED, Fault.CAPACITY, "no such machines") if trial.number == 0 else Fate(10.0)

    world = _world(SearchPolicy(owner="t", retries=2), fate)
    world.open()
    world.drive()
    assert world.trial_rows[0].state is TrialState.LOST
    assert world.trial_rows[0].attempts == 3
    assert 0 not in world.told


def test_a_new_process_knows_what_was_refused() -> None:
    problem = tuning()
    first = problem.candidates.offer(0)
    there = replace(first.times(1), region="elsewhere")

    def fate(trial: Trial, run: Run) -> Fate:
        known = run.offer_key in (first.key, there.times(first.nodes).key)
        return Fate(0.0, RunState.FAILED, Fault.CAPACITY, "no such machines") if known else Fate(10.0)

    policy = SearchPolicy(owner="t", retries=1, elsewhere=fallback_finder([first.times(1), there], BOTH))
    world = _world(policy, fate)
    world.open()
    while "t-00000-2" not in world.run_rows or not world.run_rows["t-00000-2"].state.ended:
        world.step()
    again = _world(policy, fate)
    again.open(list(world.trial_rows.values()), list(world.run_rows.values()))
    again.drive()
    # Both offers had refused: only the repetitions are left, and nothing goes back and forth.
    assert again.trial_rows[0].state is TrialState.LOST
    assert again.trial_rows[0].attempts <= 4
