"""What machines that were made for a run cost: all the time that they are there."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.deployer.helpers import OFFER, deployer_over, drive, process_runner, request_for, row

from tradewind.deployer.lifecycle.cost_meter import CostMeter
from tradewind.deployer.lifecycle.hooks import Hooks
from tradewind.deployer.provisioner.base import Cluster, ClusterState
from tradewind.deployer.provisioner.simulated import SimulatedProvisioner, SimulatedSettings
from tradewind.problem import Billing, Handle, Run, RunState

HANDLE = Handle("run-1", "stub", {})
DOLLAR = 3600.0
"""USD per hour, so that money shows seconds."""


def cluster(state: ClusterState = ClusterState.READY, setup: float = 30.0, **data: float) -> Cluster:
    return Cluster("run-1", state, setup_seconds=setup, data=data)


def run(runtime: float = 0.0, **changes: object) -> Run:
    return Run("run-1", 0, runtime=runtime, handle=HANDLE, started=100.0, **changes)  # type: ignore[arg-type]


def test_copying_before_and_after_the_program_is_paid_for() -> None:
    meter = CostMeter(Billing(setup_seconds=7), makes=True)
    assert meter.cost(Run("run-1", 0), DOLLAR) is None
    meter.note(cluster(), 130.0)
    meter.tick(430.0)
    assert meter.cost(run(), DOLLAR) == 330.0, "300 s of inputs after 30 s of booting"
    meter.tick(440.0)
    assert meter.cost(run(10.0), DOLLAR) == 340.0
    meter.note_destroy_request(500.0)
    for moment in (505.0, 900.0):
        meter.note(cluster(ClusterState.BOOTING), moment)
        meter.tick(moment)
    assert meter.cost(run(10.0), DOLLAR) == 400.0, "on their way down they cost nothing"
    meter.note_destroy_request(1000.0)
    assert meter.cost(run(10.0), DOLLAR) == 900.0, "they had not gone"


def test_machines_on_their_way_down_cost_nothing_however_often_they_are_asked() -> None:
    meter = CostMeter(Billing(), makes=True)
    meter.note(cluster(), 130.0)
    meter.note_destroy_request(500.0)
    meter.accepted()
    for moment in (510.0, 520.0, 800.0):
        meter.note(cluster(ClusterState.BOOTING), moment)
        meter.tick(moment)
        meter.note_destroy_request(moment)
        meter.accepted()
    assert meter.cost(run(10.0), DOLLAR) == 400.0
    meter.note(cluster(), 900.0)
    meter.tick(900.0)
    meter.note_destroy_request(910.0)
    assert meter.cost(run(10.0), DOLLAR) == 810.0, (
        "the provider shows them as ready: they have been there all the while"
    )


def test_machines_that_are_lost_are_paid_until_they_were_last_seen() -> None:
    meter = CostMeter(Billing(), makes=True)
    meter.note(cluster(), 130.0)
    meter.tick(200.0)
    meter.note(cluster(ClusterState.GONE), 5000.0)
    meter.tick(5000.0)
    assert meter.cost(run(50.0), DOLLAR) == 100.0
    assert meter.cost(run(80.0), DOLLAR) == 110.0, "never less than what the program ran"


def test_the_time_without_a_controller_is_paid_for() -> None:
    meter = CostMeter(Billing(), makes=True)
    meter.resume(run(cost=12.0))
    assert meter.cost(run(), DOLLAR) == 12.0
    meter.note(cluster(created=110.0), 1140.0)
    meter.tick(1140.0)
    assert meter.cost(run(), DOLLAR) == 1030.0, "since the provider made them"
    unknown = CostMeter(Billing(), makes=True)
    unknown.resume(run())
    unknown.note(cluster(), 1140.0)
    unknown.tick(1140.0)
    assert unknown.cost(run(), DOLLAR) == 1040.0, "since the run was launched"


def test_machines_made_only_now_for_an_old_row_cost_from_now_on() -> None:
    meter = CostMeter(Billing(), makes=True)
    meter.resume(Run("run-1", 0, started=100.0))
    meter.note(cluster(), 90_000.0)
    meter.tick(90_010.0)
    assert meter.cost(Run("run-1", 0, started=100.0), DOLLAR) == 40.0


def test_without_machines_of_its_own_a_run_costs_what_it_ran() -> None:
    meter = CostMeter(Billing(setup_seconds=7), makes=False)
    meter.note(cluster(), 130.0)
    meter.tick(430.0)
    assert meter.cost(Run("run-1", 0), DOLLAR) is None
    assert meter.cost(run(10.0), DOLLAR) == 17.0


@pytest.mark.slow
def test_hooks_of_a_second_cost_a_second_of_the_machine(tmp_path: Path) -> None:
    provisioner = SimulatedProvisioner(settings=SimulatedSettings(boot=0), data_folder=tmp_path / "data")
    hooks = Hooks.from_spec({"before_submitting": ["sleep", "1"], "after_collecting": ["sleep", "1"]})
    deployer = deployer_over(
        tmp_path,
        runner=process_runner(tmp_path),
        provisioner=provisioner,
        billing=Billing(granularity_seconds=0.001),
        hooks=hooks,
    )
    try:
        deployer.launch(row(), request_for(tmp_path, ("true",)))
        last = drive(deployer)[-1]
    finally:
        deployer.close()
    assert last.state is RunState.DONE
    assert last.runtime < 1.0
    assert last.cost >= 2.0 * OFFER.price_per_hour / 3600.0
