"""Machines that are lost while a job runs on them: the provisioner knows, where the runner can only wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.deployer.helpers import OWNER, deployer_over, drive, request_for, row
from tests.waiting import eventually

from tradewind.deployer.lifecycle.deployer import Deployer
from tradewind.deployer.provisioner.base import Cluster, ClusterState
from tradewind.deployer.provisioner.none import NoneProvisioner, NoneSettings
from tradewind.deployer.provisioner.simulated import SimulatedProvisioner, SimulatedSettings
from tradewind.problem import Fault, Handle, Run, RunRequest, RunState, RunStatus
from tradewind.testing.runners import processes_of
from tradewind.utils.clock import SystemClock


def cloud(folder: Path) -> SimulatedProvisioner:
    made = SimulatedProvisioner(settings=SimulatedSettings(boot=0.01), data_folder=folder)
    made.clock = SystemClock()
    return made


def executing(deployer: Deployer, request: RunRequest) -> Run:
    deployer.launch(row(), request)
    eventually(lambda: deployer.poll() and deployer.active["run-1"].state is RunState.EXECUTING)
    return deployer.active["run-1"]


@pytest.mark.parametrize("adopted", [False, True])
def test_a_run_whose_machines_are_lost_is_preempted(tmp_path: Path, adopted: bool) -> None:
    deployer = deployer_over(tmp_path, provisioner=cloud(tmp_path))
    request = request_for(tmp_path, ("sleep", "60"))
    before = executing(deployer, request)
    cloud(tmp_path).destroy(Cluster("run-1", ClusterState.UNKNOWN))
    if adopted:
        deployer.close()
        deployer = deployer_over(tmp_path, provisioner=cloud(tmp_path))
        deployer.adopt(before, request)
    last = (drive(deployer) or [before])[-1]
    assert (last.state, last.fault) == (RunState.PREEMPTED, Fault.INFRASTRUCTURE)
    assert "its machines are lost" in last.reason
    assert last.cost >= before.cost > 0
    eventually(lambda: not processes_of("run-1"))
    assert cloud(tmp_path).find(OWNER) == []
    deployer.close()


@pytest.mark.slow
def test_machines_of_which_nothing_is_known_are_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    provisioner = cloud(tmp_path)
    deployer = deployer_over(tmp_path, provisioner=provisioner)
    executing(deployer, request_for(tmp_path, ("sleep", "1")))
    monkeypatch.setattr(
        provisioner, "poll", lambda clusters: {c.run_id: replace(c, state=ClusterState.UNKNOWN) for c in clusters}
    )
    assert drive(deployer)[-1].state is RunState.DONE
    deployer.close()


def test_hosts_of_an_adopted_run_are_given_back(tmp_path: Path) -> None:
    """They cost nothing, but the next run waits for them."""

    def hosts() -> NoneProvisioner:
        return NoneProvisioner(settings=NoneSettings.model_validate({"hosts": ["only"]}), data_folder=tmp_path)

    first = deployer_over(tmp_path, provisioner=hosts())
    request = request_for(tmp_path, ("sleep", "60"))
    before = executing(first, request)
    first.close()
    second = deployer_over(tmp_path, provisioner=hosts())
    second.adopt(before, request)
    assert [cluster.run_id for cluster in hosts().find(OWNER)] == ["run-1"]
    ended = second.cancel("run-1", "enough")
    assert ended is not None and ended.state is RunState.CANCELLED
    assert hosts().find(OWNER) == []
    second.close()


def test_lost_machines_are_not_paid_for_while_a_runner_that_cannot_reach_them_counts_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployer = deployer_over(tmp_path, provisioner=cloud(tmp_path))
    before = executing(deployer, request_for(tmp_path, ("sleep", "60")))
    cloud(tmp_path).destroy(Cluster("run-1", ClusterState.UNKNOWN))
    real, looks = deployer.runner.poll, iter(range(1000))

    def unreachable(handles: Sequence[Handle]) -> Mapping[str, RunStatus]:
        """Say that the run goes on, an hour longer at each look; the first one does not know of the loss yet."""
        turn = next(looks)
        if turn > 1:
            return real(handles)
        seconds = before.runtime if turn == 0 else 3600.0 * turn
        return {handle.run_id: RunStatus(RunState.EXECUTING, seconds) for handle in handles}

    monkeypatch.setattr(deployer.runner, "poll", unreachable)
    last = drive(deployer)[-1]
    assert last.state is RunState.PREEMPTED
    assert next(looks) >= 2, "it was asked after the loss"
    assert last.runtime < 60.0
    assert last.cost < 60.0
    deployer.close()
