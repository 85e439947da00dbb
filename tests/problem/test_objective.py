from __future__ import annotations

import math
from pathlib import Path

import pytest

from tradewind.problem import (
    Configuration,
    Constraints,
    Handle,
    Job,
    JobParameters,
    Objective,
    Observation,
    Offer,
    Proposal,
    RunState,
    Threshold,
    Trial,
    TrialState,
)


def test_an_objective_knows_what_is_better() -> None:
    cost, speed = Objective(), Objective("throughput", "maximise")
    assert cost.better(1, 2)
    assert not cost.better(2, 2)
    assert speed.better(2, 1)
    assert cost.better(1e300, cost.worst)
    assert speed.better(-1e300, speed.worst)
    assert (cost.loss(3), speed.loss(3)) == (3, -3)
    assert cost.grows_with_time
    assert not speed.grows_with_time
    assert not Objective("cost", "maximise").grows_with_time


def test_broken_constraints_are_said_in_words() -> None:
    constraints = Constraints(60, (Threshold("ratio", 2.5), Threshold("error", None, 0.1)))
    assert constraints.broken(60, {"ratio": 2.5, "error": 0.1}) == []
    words = constraints.broken(61, {"ratio": math.nan})
    assert words == [
        "runtime 61 s is above the deadline of 60 s",
        "ratio is nan, wanted 2.5 ≤ ratio",
        "error is nan, wanted error ≤ 0.1",
    ]
    assert str(Threshold("x", 1, 2)) == "1 ≤ x ≤ 2"


def test_how_far_from_feasible_a_run_is() -> None:
    bounds = Constraints(
        deadline=100.0, thresholds=(Threshold("accuracy", at_least=0.8), Threshold("loss", at_most=2.0))
    )
    assert bounds.miss(100.0, {"accuracy": 0.8, "loss": 2.0}) == 0.0
    assert bounds.miss(150.0, {"accuracy": 0.6, "loss": 3.0}) == pytest.approx(0.5 + 0.25 + 0.5)
    assert bounds.miss(1.0, {"accuracy": 0.9}) == math.inf
    assert bounds.miss(1.0, {"accuracy": math.nan, "loss": 1.0}) == math.inf
    assert Constraints().miss(1e9, {}) == 0.0
    # Of a bound of zero there is no share: two errors must not outweigh every other bound.
    none = Constraints(100.0, (Threshold("errors", at_most=0.0),))
    assert none.miss(150.0, {"errors": 2.0}) == pytest.approx(2.5)


def test_a_job_is_known_by_what_decides_its_time() -> None:
    job = Job("j", ("a", "b"), Path("/x"), parameters=JobParameters({"rows": 10.0}))
    assert job.key == Job("j", ("a", "b"), Path("/y"), secrets={"T": "env:T"}, parameters=job.parameters).key
    assert job.key != Job("j", ("a b",), Path("/x"), parameters=job.parameters).key
    assert job.key != Job("j", ("a", "b"), Path("/x")).key


def test_states_know_what_they_mean() -> None:
    assert {s for s in TrialState if not s.ended} == {TrialState.PENDING, TrialState.RUNNING}
    assert {s for s in TrialState if s.informs} == {TrialState.SUCCEEDED, TrialState.FAILED, TrialState.ABORTED}
    assert [s.value for s in RunState if s.ended] == ["done", "failed", "timed_out", "preempted", "cancelled"]


def test_a_trial_has_the_configuration_that_was_proposed() -> None:
    configuration = Configuration({"x": 1})
    seen = Observation(1.0, 1.0, 2.0, feasible=True)
    trial = Trial(0, Proposal(configuration), Offer("p", "t", 1, 1, 1), TrialState.SUCCEEDED, "key", seen)
    assert trial.configuration is configuration


@pytest.mark.parametrize("handle", [Handle("r1", "process"), Handle("r1", "process", {"pid": 3})])
def test_a_handle_is_read_back_as_it_was(handle: Handle) -> None:
    assert Handle.from_json(handle.to_json()) == handle
