"""The cluster in simulated time."""

from __future__ import annotations

import numpy as np
import pytest
from tests.tenancy.allocators import policy

from tradewind.tenancy import events as ev
from tradewind.tenancy.priority.expected_gain import GainPriority
from tradewind.tenancy.simulator import RecordedTrials, SimulatedJob, simulate

GOLDEN_END = 562.6187563901025


def job(
    name: str,
    seconds: list[float],
    tenant: str = "A",
    parallel: int = 1,
    target: float | None = None,
    submitted: float = 0.0,
) -> SimulatedJob:
    trials = RecordedTrials([float(len(seconds) - i) for i in range(len(seconds))], seconds)
    return SimulatedJob(name, tenant, trials, {"cpu": 1}, parallel, target, submitted)


def test_one_search_alone_and_in_parallel() -> None:
    nodes = {"n": {"cpu": 2}}
    alone = simulate(nodes, [ev.TenantSet("A")], [job("j", [1, 2, 3])], policy())
    assert alone.outcomes["j"].done == alone.end == 6.0
    both = simulate(nodes, [ev.TenantSet("A")], [job("j", [1, 2, 3], parallel=2)], policy())
    assert both.outcomes["j"].done == 4.0  # 1 and 2 together, then 3 beside the end of 2
    assert both.outcomes["j"].runs == both.starts == 3
    assert both.outcomes["j"].service == pytest.approx(6 * 0.5)


def test_a_target_ends_a_search_and_frees_what_it_uses() -> None:
    nodes = {"n": {"cpu": 2}}
    jobs = [job("j", [1, 10, 1], parallel=2, target=3.0), job("k", [1, 1], parallel=1)]
    found = simulate(nodes, [ev.TenantSet("A")], jobs, policy())
    assert found.outcomes["j"].done == 1.0  # its first value, 3, is the target; the run of 10 s is stopped
    assert found.outcomes["j"].reached
    assert found.outcomes["k"].done == 3.0
    assert not found.outcomes["k"].reached


def test_what_runs_when_the_target_is_reached_may_go_on_to_its_end() -> None:
    nodes = {"n": {"cpu": 2}}
    jobs = [job("j", [1, 10, 1], parallel=3, target=3.0), job("k", [1, 1, 8, 1], parallel=2)]
    jobs[0].finishes = True
    found = simulate(nodes, [ev.TenantSet("A")], jobs, policy())
    assert found.outcomes["j"].done == 1.0  # as if it were stopped
    assert found.outcomes["j"].reached
    assert found.outcomes["k"].done == 11.0  # one at a time while the run of 10 s goes on; 10.0 if it were stopped
    assert found.starts == 6, "the third run of the first search is not started any more"


def test_what_a_model_says_of_recorded_trials_comes_to_the_priority() -> None:
    """Two alike, but the model of the second one promises something: it goes first from its first result on."""
    nodes = {"n": {"cpu": 1}}
    jobs = [job("silent", [5.0] * 4), job("says", [5.0] * 4)]
    jobs[1].trials.foreseen = [(0.5, 5.0), (0.5, 5.0)]  # type: ignore[attr-defined]
    found = simulate(nodes, [ev.TenantSet("A")], jobs, policy(priority=GainPriority))
    assert found.outcomes["says"].done == 25.0  # one of each, and then its other three
    found = simulate(
        nodes, [ev.TenantSet("A")], [job("silent", [5.0] * 4), job("says", [5.0] * 4)], policy(priority=GainPriority)
    )
    assert found.outcomes["says"].done == 40.0


def test_submission_times_and_an_end() -> None:
    found = simulate({"n": {"cpu": 1}}, [ev.TenantSet("A")], [job("j", [5.0, 5.0], submitted=3.0)], policy(), until=9.0)
    assert found.outcomes["j"].done is None
    assert found.outcomes["j"].runs == 1


@pytest.mark.slow
def test_shares_are_watched_while_all_have_work() -> None:
    rng = np.random.default_rng(1)
    jobs = [
        SimulatedJob(f"j{t}", f"t{t}", RecordedTrials([1.0] * 400, list(rng.uniform(1, 2, 400))), {"cpu": 1}, 30)
        for t in range(2)
    ]
    tenants = [ev.TenantSet("t0", 1.0), ev.TenantSet("t1", 3.0)]
    found = simulate({"n": {"cpu": 20}}, tenants, jobs, policy(), watch=True)
    assert found.shares["t1"] / found.shares["t0"] == pytest.approx(3.0, rel=0.02)


@pytest.mark.slow
def test_many_tenants_on_many_nodes() -> None:
    """A tenth of what the benchmark does; how long it takes is measured there."""
    rng = np.random.default_rng(0)
    jobs = [
        SimulatedJob(
            f"j{t}",
            f"t{t}",
            RecordedTrials(rng.random(20).tolist(), rng.lognormal(4, 0.5, 20).tolist()),
            {"cpu": 1 + t % 4},
            10,
            submitted=float(t % 60),
        )
        for t in range(100)
    ]
    nodes = {f"n{i}": {"cpu": 16.0} for i in range(50)}
    tenants = [ev.TenantSet(f"t{t}", 1 + t % 3) for t in range(100)]
    found = simulate(nodes, tenants, jobs, policy(priority=GainPriority))
    assert found.starts == 2000
    assert all(outcome.runs == 20 for outcome in found.outcomes.values())
    assert found.end == pytest.approx(GOLDEN_END, abs=1e-6)
