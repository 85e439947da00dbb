"""Hosts that are there already, and who has borrowed them."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tests.deployer.helpers import deployer_over, process_runner, request_for, row
from tests.waiting import eventually

from tradewind.deployer.compatibility import incompatibility
from tradewind.deployer.provisioner.base import Cluster, ClusterState
from tradewind.deployer.provisioner.none import NoneProvisioner, NoneSettings
from tradewind.deployer.runner.docker.runner import DockerRunner
from tradewind.deployer.runner.process import ProcessRunner
from tradewind.deployer.runner.ssh.runner import SshRunner
from tradewind.deployer.ssh_connection import SshSettings, SshTarget
from tradewind.deployer.ssh_target import Host
from tradewind.errors import DeployError
from tradewind.problem import Handle, Machine, Offer, RunRequest, RunState
from tradewind.testing.provisioners import Bench, ProvisionerConformance
from tradewind.utils.clock import SimulatedClock

_ONE, _TWO = Offer("local", "x", 1, 1, 0.1), Offer("local", "x", 1, 1, 0.1, nodes=2)
_HOSTS = ("a", "ubuntu@b:2222", {"host": "c", "user": "root", "identity": "/key", "shared": True})


def _over(folder: Path, hosts: Any = _HOSTS, **settings: Any) -> NoneProvisioner:
    return NoneProvisioner(settings=NoneSettings(hosts=hosts, **settings), data_folder=folder)


def _names(cluster: Cluster) -> list[str]:
    return [machine.id for machine in cluster.machines]


class TestNone(ProvisionerConformance):
    @pytest.fixture
    def bench(self, tmp_path: Path) -> Iterator[Bench]:
        clock = SimulatedClock(1e9)

        def make() -> NoneProvisioner:
            made = _over(tmp_path)
            made.clock = clock
            return made

        yield make


def test_hosts_say_how_they_are_reached(tmp_path: Path) -> None:
    provisioner = _over(tmp_path, ssh=SshSettings(user="me", port=22, known_hosts="/known"))
    one = provisioner.make("r1", "o", 9e9, Offer("local", "x", 1, 1, 0.1, nodes=3))
    targets = [SshTarget.of(machine) for machine in one.machines]
    assert targets[0] == SshTarget("a", "me", 22, known_hosts="/known")
    assert targets[1] == SshTarget("b", "ubuntu", 2222, known_hosts="/known")
    assert targets[2] == SshTarget("c", "root", 22, identity="/key", known_hosts="/known")


def test_a_host_is_lent_to_one_run_at_a_time(tmp_path: Path) -> None:
    provisioner = _over(tmp_path, ("a", "b"))
    first = provisioner.make("r1", "o", 9e9, _ONE)
    second = provisioner.make("r2", "o", 9e9, _ONE)
    assert (_names(first), _names(second)) == (["a"], ["b"])
    third = _over(tmp_path, ("a", "b")).make("r3", "o", 9e9, _ONE)
    assert third.state is ClusterState.BOOTING
    assert provisioner.poll([third])["r3"].state is ClusterState.BOOTING
    provisioner.destroy(first)
    assert _names(provisioner.poll([third])["r3"]) == ["a"]
    assert _names(provisioner.make("r3", "o", 9e9, _ONE)) == ["a"]


def test_several_hosts_are_lent_together_or_not_at_all(tmp_path: Path) -> None:
    provisioner = _over(tmp_path, ("a", "b"))
    first = provisioner.make("r1", "o", 9e9, _ONE)
    pair = provisioner.make("r2", "o", 9e9, _TWO)
    assert pair.state is ClusterState.BOOTING
    assert [each.run_id for each in provisioner.find("o")] == ["r1"]
    provisioner.destroy(first)
    assert _names(provisioner.poll([pair])["r2"]) == ["a", "b"]


def test_a_shared_host_is_lent_to_all(tmp_path: Path) -> None:
    provisioner = _over(tmp_path, ({"host": "a", "shared": True},))
    assert all(_names(provisioner.make(f"r{i}", "o", 9e9, _ONE)) == ["a"] for i in range(3))


def test_what_a_dead_controller_borrowed_comes_back_when_it_expires(tmp_path: Path) -> None:
    clock = SimulatedClock(100.0)
    provisioner = _over(tmp_path, ("a",))
    provisioner.clock = clock
    provisioner.make("r1", "o", 160.0, _ONE)
    waiting = provisioner.make("r2", "p", 500.0, _ONE)
    assert waiting.state is ClusterState.BOOTING
    [mine] = provisioner.find("o")
    assert (mine.run_id, mine.owner, mine.expires, _names(mine)) == ("r1", "o", 160.0, ["a"])
    assert provisioner.find("p") == []
    clock.sleep(61)
    assert _names(provisioner.poll([waiting])["r2"]) == ["a"]


def test_waiting_for_a_host_does_not_shorten_its_loan(tmp_path: Path) -> None:
    clock = SimulatedClock(100.0)
    provisioner = _over(tmp_path, ("a",))
    provisioner.clock = clock
    first = provisioner.make("r1", "o", 1000.0, _ONE)
    waiting = provisioner.make("r2", "o", 160.0, _ONE)
    for _ in range(10):
        clock.sleep(20)
        waiting = provisioner.poll([waiting])["r2"]
        assert waiting.state is ClusterState.BOOTING
    provisioner.destroy(first)
    second = provisioner.poll([waiting])["r2"]
    assert (second.state, second.expires) == (ClusterState.READY, 360.0), "a minute from when it got it"
    assert provisioner.make("r3", "p", 900.0, _ONE).state is ClusterState.BOOTING
    [mine] = provisioner.find(None)
    assert (mine.run_id, mine.expires) == ("r2", 360.0)
    clock.sleep(61)
    assert provisioner.make("r3", "p", 900.0, _ONE).state is ClusterState.READY


@pytest.mark.slow
def test_the_job_lasts_as_long_as_its_hosts_are_lent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    provisioner, runner = _over(tmp_path, ("a",)), process_runner(tmp_path)
    submitted: list[RunRequest] = []
    whole = runner.submit

    def submit(request: RunRequest, machines: Sequence[Machine]) -> Handle:
        submitted.append(request)
        return whole(request, machines)

    monkeypatch.setattr(runner, "submit", submit)
    first = provisioner.make("r1", "o", 9e9, _ONE)
    deployer = deployer_over(tmp_path, runner=runner, provisioner=provisioner)
    expires = time.time() + 0.3
    deployer.launch(row(), request_for(tmp_path, ("sleep", "60"), expires=expires))
    while time.time() < expires + 0.1:
        deployer.poll()
        assert deployer.active["run-1"].state is RunState.BOOTING
        deployer.wait(0.1)
    freed = time.time()
    provisioner.destroy(first)
    eventually(lambda: deployer.poll() and submitted)
    [request] = submitted
    assert freed + 0.2 <= request.expires < freed + 10
    ended = deployer.cancel("run-1", "enough")
    assert ended is not None and ended.state is RunState.CANCELLED
    deployer.close()


def _borrow(folder: str, run_id: str) -> list[str]:
    return _names(_over(Path(folder), ("a", "b", "c")).make(run_id, "o", 9e9, _ONE))


@pytest.mark.slow
def test_two_processes_never_get_the_same_host(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        found = pool.starmap(_borrow, [(str(tmp_path), f"r{i}") for i in range(6)])
    assert sorted(name for names in found for name in names) == ["a", "b", "c"]


def test_too_few_hosts_are_refused_before_the_search(tmp_path: Path) -> None:
    provisioner = _over(tmp_path, ("a",))
    assert "not 2" in provisioner.refuses(_TWO)
    assert not provisioner.refuses(_ONE)
    with pytest.raises(DeployError, match=r"has 1 host, 2 wanted.*list more hosts"):
        provisioner.make("r1", "o", 9e9, _TWO)


def test_a_note_that_is_no_note_is_said(tmp_path: Path) -> None:
    (tmp_path / "hosts").mkdir()
    (tmp_path / "hosts/lent.json").write_text("{")
    with pytest.raises(DeployError, match=r"lent\.json"):
        _over(tmp_path).make("r1", "o", 9e9, _ONE)


@pytest.mark.parametrize(
    "given",
    [
        "",
        "a b",
        "-x",
        "http://a",
        "ssh://a/b",
        {"host": "a", "jump": "b/c"},
        {"user": "x"},
        {"host": "a", "port": 0},
        {"host": "a", "key": 1},
        3,
    ],
)
def test_what_is_no_host_is_refused(given: Any) -> None:
    with pytest.raises(ValidationError):
        NoneSettings(hosts=(given,))


def test_a_host_is_known_by_name_and_port() -> None:
    assert Host.model_validate("u@h:22").name == "h:22"
    assert Host.model_validate({"host": "u@h", "port": 23}).facts() == {"user": "u", "port": 23}
    assert NoneSettings.model_validate({"hosts": ["a", "b"]}).hosts[1].host == "b"
    far = Host.model_validate("ssh://me@[::1]:2222")
    assert (far.host, far.name, far.facts()) == ("::1", "[::1]:2222", {"user": "me", "port": 2222})
    assert Host.model_validate({"host": "ssh://u@h:1", "port": 2}).facts() == {"user": "u", "port": 2}


def test_it_goes_with_all_runners_that_use_machines() -> None:
    for runner in (SshRunner, DockerRunner, ProcessRunner):
        assert incompatibility(NoneProvisioner, runner) == ""
