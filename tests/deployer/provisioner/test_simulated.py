"""The provisioners beyond what their suite says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.deployer.helpers import OFFER, OWNER

from tradewind import plugins
from tradewind.deployer.provisioner.base import ClusterState, Provisioner
from tradewind.deployer.provisioner.none import NoneProvisioner, NoneSettings
from tradewind.deployer.provisioner.simulated import SimulatedProvisioner, SimulatedSettings
from tradewind.errors import DeployError, SpecError, TeardownError
from tradewind.utils.clock import SimulatedClock


def cloud(folder: Path, **settings: Any) -> SimulatedProvisioner:
    made = SimulatedProvisioner(settings=SimulatedSettings(**settings), data_folder=folder)
    made.clock = SimulatedClock(100.0)
    return made


def test_booting_takes_the_time_that_it_should(tmp_path: Path) -> None:
    provisioner = cloud(tmp_path, boot=60, shutdown=10)
    cluster = provisioner.make("run-1", OWNER, 1e9, OFFER)
    assert cluster.state is ClusterState.BOOTING
    assert provisioner.next_change([cluster]) == 60
    provisioner.clock.sleep(45)
    assert provisioner.poll([cluster])["run-1"].setup_seconds == 45
    provisioner.clock.sleep(30)
    cluster = provisioner.poll([cluster])["run-1"]
    assert (cluster.state, cluster.setup_seconds) == (ClusterState.READY, 60)
    cluster = provisioner.destroy(cluster)
    assert cluster.state is ClusterState.BOOTING, "on their way down they are still there"
    assert provisioner.next_change([cluster]) == 10
    assert [each.run_id for each in provisioner.find(OWNER)] == ["run-1"]
    provisioner.clock.sleep(10)
    assert provisioner.poll([cluster])["run-1"].state is ClusterState.GONE


def test_the_quota_counts_machines_of_everybody(tmp_path: Path) -> None:
    provisioner = cloud(tmp_path, quota=3)
    first = provisioner.make("run-1", OWNER, 1e9, OFFER.times(2))
    with pytest.raises(DeployError, match="quota") as caught:
        provisioner.make("run-2", "somebody", 1e9, OFFER.times(2))
    assert caught.value.retryable
    assert provisioner.find("somebody") == []
    provisioner.make("run-3", "somebody", 1e9, OFFER)
    provisioner.destroy(first)
    assert provisioner.make("run-2", "somebody", 1e9, OFFER.times(2)).state is ClusterState.BOOTING


@pytest.mark.slow
def test_failures_are_a_share_and_seeded(tmp_path: Path) -> None:
    def failed(folder: str, seed: int) -> list[str]:
        provisioner = cloud(tmp_path / folder, boot=0, failures=0.3, seed=seed)
        made = [provisioner.make(f"run-{i}", OWNER, 1e9, OFFER) for i in range(100)]
        return [each.run_id for each in made if each.state is ClusterState.FAILED]

    assert 15 <= len(failed("a", 1)) <= 45
    assert failed("a", 1) == failed("b", 1) != failed("c", 2)


def test_refused_teardowns_leave_the_machines(tmp_path: Path) -> None:
    provisioner = cloud(tmp_path, boot=0, refusals=0.9, seed=1)
    cluster = provisioner.make("run-1", OWNER, 1e9, OFFER)
    turns = 0
    while provisioner.find(OWNER):
        turns += 1
        try:
            provisioner.destroy(cluster)
        except TeardownError as error:
            assert "run-1" in str(error)
            assert provisioner.find(OWNER)
    assert turns > 1


def test_a_fleet_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "simulated-fleet.json").write_text("{")
    with pytest.raises(DeployError, match=r"simulated-fleet\.json"):
        cloud(tmp_path).find(OWNER)


def test_listed_hosts(tmp_path: Path) -> None:
    provisioner = NoneProvisioner(settings=NoneSettings(hosts=("a", "b")), data_folder=tmp_path)
    cluster = provisioner.make("run-1", OWNER, 1e9, OFFER.times(2))
    assert [machine.address for machine in cluster.machines] == ["a", "b"]
    with pytest.raises(DeployError, match="has 2 hosts, 3 wanted") as caught:
        provisioner.make("run-1", OWNER, 1e9, OFFER.times(3))
    assert not caught.value.retryable
    here = NoneProvisioner(settings=NoneSettings(), data_folder=tmp_path)
    assert here.make("run-1", OWNER, 1e9, OFFER).machines[0].address == ""


def test_settings_are_checked(tmp_path: Path) -> None:
    for wrong in ({"boot": -1}, {"failures": 2}, {"refusals": 1}, {"speed": 1}):
        with pytest.raises(SpecError):
            plugins.create("provisioner", "simulated", wrong, data_folder=tmp_path)


def test_the_base_class_polls_every_second(tmp_path: Path) -> None:
    class Plain(NoneProvisioner):
        pass

    provisioner: Provisioner = Plain(settings=NoneSettings(), data_folder=tmp_path)
    assert Provisioner.next_change(provisioner, []) == 1.0
    provisioner.close()
