"""Slots of the runs of one request on this machine."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from tradewind.deployer.runner.base import Runner
from tradewind.problem import Configuration, Observation, Offer, Proposal, Run, RunState, Trial, TrialState
from tradewind.service.requests.local_slots import LocalSlotPermits, LocalSlots
from tradewind.service.requests.offered_places import OfferedPlaces


def test_of_runs_that_end_at_one_moment_each_counts_for_as_long_as_its_own_program_ran(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    places, slots = OfferedPlaces({"cpu": 2.0}, lambda: now), LocalSlots({})
    monkeypatch.setattr(slots, "of", lambda runner: places)
    permits = LocalSlotPermits(slots, 1, "a")
    permits.use(cast("Runner", None))
    offer = Offer("local", "local.c1", 1.0, 1.0, 0.0)
    trials = [Trial(number, Proposal(Configuration({})), offer, TrialState.RUNNING, "k") for number in (0, 1)]
    for trial in trials:
        permits.want(trial)
    assert permits.granted() == [0, 1]
    for trial in trials:
        permits.launched(trial, Run(f"r{trial.number}", trial.number, state=RunState.EXECUTING), again=False)
    now = 100.0
    for trial, took in zip(trials, (100.0, 1.0), strict=True):
        permits.ended(f"r{trial.number}")
        permits.told(replace(trial, observation=Observation(0.5, 0.0, took, feasible=True)))
    permits.flush()
    allocator = places._allocator
    (level,) = allocator.policy.fairness.key(allocator.tenants["a"].view)
    assert 2.0**level == pytest.approx((100.0 + 1.0) / 2)  # half the machine each
