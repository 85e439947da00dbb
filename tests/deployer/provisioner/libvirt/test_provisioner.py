"""Virtual machines by libvirt: the suite, a cluster's life with a job across it, and kills."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.deployer.helpers import OWNER, deployer_over, request_for, row
from tests.deployer.provisioner.libvirt.kills import assert_nothing_left, kill_controllers, provisioner
from tests.engines.libvirt import Libvirt, libvirt
from tests.examples.shortened import assert_searched, shortened
from tests.waiting import eventually

from tradewind import plugins
from tradewind.deployer.lifecycle.deployer import Deployer
from tradewind.deployer.provisioner.base import Cluster, ClusterState, Provisioner
from tradewind.deployer.provisioner.libvirt import cluster_folders as libvirt_cluster
from tradewind.deployer.runner.base import Runner
from tradewind.deployer.ssh_connection import SshConnection, SshTarget
from tradewind.errors import CapacityError, DeployError, UnreachableError
from tradewind.problem import Fault, Machine, Offer, Run, RunState
from tradewind.testing.provisioners import Bench, ProvisionerConformance

__all__ = ["libvirt"]

pytestmark = [pytest.mark.xdist_group("libvirt"), pytest.mark.slow, pytest.mark.timeout(600)]

PAIR = Offer("local", "pair", 1, 0.5, 0.36, nodes=2)
ONE = Offer("local", "one", 1, 0.25, 0.36)
PATIENCE = 400.0
"""Emulated machines on a host that does other things, too."""

EXAMPLE = Path(__file__).parents[4] / "examples" / "libvirt"


class TestLibvirt(ProvisionerConformance):
    @pytest.fixture
    def bench(
        self,
        tmp_path: Path,
        libvirt: Libvirt,
        monkeypatch: pytest.MonkeyPatch,
    ) -> Iterator[Bench]:
        def make() -> Provisioner:
            made = provisioner(libvirt, tmp_path, boot=PATIENCE)
            # The suite has 200 turns of patience, and emulated machines may take their time.
            late = time.monotonic() + 60
            monkeypatch.setattr(made, "next_change", lambda clusters: 1.0 if time.monotonic() < late else 3.0)
            return made

        yield make
        for cluster in make().find(None):
            make().destroy(cluster)
        assert_nothing_left(libvirt, tmp_path)


# ------------------------------------------------------------------ a job across two machines


def deployer(libvirt: Libvirt, folder: Path, **settings: Any) -> Deployer:
    given = {"patience": 60, "ssh": {"connect_seconds": 60}}
    runner = plugins.create("runner", "ssh", given, data_folder=folder)
    assert isinstance(runner, Runner)
    return deployer_over(folder, runner=runner, provisioner=provisioner(libvirt, folder, boot=PATIENCE, **settings))


def reaches(made: Deployer, run_id: str, state: RunState) -> Run:
    """Drive a run until it is in a state."""
    found: list[Run] = []

    def there() -> bool:
        found.extend(each for each in made.poll() if each.run_id == run_id)
        now = found[-1] if found else made.active[run_id]
        assert now.state is state or not now.state.ended, f"it ended as {now}"
        if now.state is not state:
            made.wait(1.0)
        return now.state is state

    eventually(there, PATIENCE)
    return found[-1] if found else made.active[run_id]


@pytest.mark.allow_hosts(["127.0.0.1", "10.79.0.0/24"])
def test_a_cluster_lives_through_a_killed_libvirtd_and_dies_with_a_killed_machine(
    tmp_path: Path, libvirt: Libvirt
) -> None:
    with libvirt.network() as network:
        live_and_die(deployer(libvirt, tmp_path, network=network), tmp_path, libvirt)
    assert_nothing_left(libvirt, tmp_path)


def live_and_die(made: Deployer, folder: Path, libvirt: Libvirt) -> None:
    made.launch(row(), request_for(folder, ("sleep", "600"), offer=PAIR))
    run = reaches(made, "run-1", RunState.EXECUTING)
    assert [machine.id for machine in run.machines] == ["tradewind-run-1-0", "tradewind-run-1-1"]
    check_the_machines(run.machines, folder)

    libvirt.kill()
    began = time.monotonic()
    assert not [each for each in made.poll() if each.state.ended], "unknown counts as alive"
    assert time.monotonic() - began < 10
    look = made.provisioner.poll([Cluster("run-1", ClusterState.READY)])["run-1"]
    assert look.state is ClusterState.UNKNOWN
    with pytest.raises(UnreachableError, match="is libvirtd running"):
        made.provisioner.make("run-2", OWNER, 4e9, PAIR)
    libvirt.start()
    assert made.provisioner.poll([look])["run-1"].state is ClusterState.READY
    assert made.active["run-1"].state is RunState.EXECUTING

    os.kill(libvirt.pids()["tradewind-run-1-1"], signal.SIGKILL)
    last = reaches(made, "run-1", RunState.PREEMPTED)
    assert last.fault is Fault.INFRASTRUCTURE
    assert "tradewind-run-1-1" in last.reason
    assert last.cost > 0
    made.settle("run-1")
    assert made.sweep(set()) == []
    made.close()


def check_the_machines(machines: tuple[Machine, ...], folder: Path) -> None:
    """They have addresses of their own, see each other and a folder, and are as large as was asked for."""
    first, second = machines
    for machine in machines:
        assert machine.address.startswith("10.79.0.")
        assert machine.data["private_address"] == machine.data["ssh"]["host"] == machine.address
    shared = first.data["shared"]
    other = f"ssh -o BatchMode=yes {second.data['private_address']}"
    script = f"set -e; hostname; nproc; echo from node0 > {shared}/note; {other} 'hostname; cat {shared}/note'"
    link = SshConnection(SshTarget.of(first), connect_seconds=60)
    said = link.run(["sh", "-c", script], timeout=120).stdout.decode().split("\n")
    assert said == ["node0", "1", "node1", "from node0", ""]
    assert (folder / "libvirt/run-1/shared/note").read_text() == "from node0\n"
    link.close()


@pytest.fixture
def expired(tmp_path: Path, libvirt: Libvirt) -> Iterator[Callable[[], Cluster]]:
    """A machine whose lease ends while it boots: nobody destroys it. The fixture is what is seen of it."""
    made = provisioner(libvirt, tmp_path / "expired", share="none")
    cluster = made.make("expired", "somebody-else", time.time() + 1, ONE)
    yield lambda: made.poll([cluster])["expired"]
    made.destroy(cluster)
    assert_nothing_left(libvirt, tmp_path / "expired")


def test_stuck_machines_fail_and_expired_ones_turn_themselves_off(
    tmp_path: Path, libvirt: Libvirt, expired: Callable[[], Cluster]
) -> None:
    impatient = provisioner(libvirt, tmp_path / "expired", boot=0.1)
    stuck = impatient.poll([expired()])["expired"]
    assert stuck.state is ClusterState.FAILED
    assert "is not up after 0.1 s: it was just started; its console: " in stuck.reason
    eventually(lambda: "tradewind-expired-0 is off" in expired().reason, PATIENCE, pause=0.5)
    assert expired().state is ClusterState.FAILED
    assert "Power down" in expired().reason
    assert libvirt.pids("expired") == {}


@pytest.mark.thorough
@pytest.mark.example
def test_the_example_is_a_study_with_a_job_across_two_machines(tmp_path: Path, libvirt: Libvirt) -> None:
    def smaller(job: dict[str, Any]) -> None:
        job["job"]["parameters"]["steps"] = 20000
        job["space"] = {"instance": {"provider": "libvirt", "types": ["m1"]}, "nodes": {"type": "nodes", "values": [2]}}
        job["deploy"] = {
            "provisioner": {"use": "libvirt", "boot": PATIENCE, **libvirt.settings()},
            "runner": {"use": "ssh", "patience": 60, "ssh": {"connect_seconds": 60}},
        }

    job = shortened("libvirt", tmp_path, smaller, trials=1)
    assert_searched(job, tmp_path / "home", trials=1, seconds=PATIENCE)
    [said] = (tmp_path / "home").rglob("stdout")
    assert said.read_text() == "pi is about 3.141592654, from 2 processes on 2 machines\n"
    assert_nothing_left(libvirt, tmp_path / "home")


# ------------------------------------------------------------------ what goes wrong


@pytest.mark.parametrize(
    ("settings", "offer", "error", "words"),
    [
        ({"overcommit": 0.001}, ONE, CapacityError, "set overcommit"),
        ({}, replace(ONE, memory_gib=1e5), CapacityError, "MiB of memory"),
        ({"network": "no-such"}, ONE, DeployError, "net-list"),
        ({"machine": "no-such"}, ONE, DeployError, "set machine"),
        ({"uri": "qemu:///system?socket=/no/such"}, ONE, UnreachableError, "is libvirtd running"),
    ],
)
def test_what_the_host_refuses_is_one_clear_error(
    tmp_path: Path,
    libvirt: Libvirt,
    settings: dict[str, Any],
    offer: Offer,
    error: type[DeployError],
    words: str,
) -> None:
    made = provisioner(libvirt, tmp_path, **settings)
    with pytest.raises(error, match=words):
        made.make("run-1", OWNER, 4e9, offer)
    kept = provisioner(libvirt, tmp_path)
    for cluster in kept.find(OWNER):
        kept.destroy(cluster)
    assert libvirt.names() == []


def test_a_port_that_was_taken_meanwhile_is_replaced(
    tmp_path: Path,
    libvirt: Libvirt,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    free = libvirt_cluster._free_port
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        ports = [other.getsockname()[1]]
        monkeypatch.setattr(libvirt_cluster, "_free_port", lambda taken: ports.pop() if ports else free(taken))
        made = provisioner(libvirt, tmp_path, share="9p")
        cluster = made.make("run-1", OWNER, 4e9, ONE)
    assert ports == []
    assert list(libvirt.pids()) == ["tradewind-run-1-0"]
    made.destroy(cluster)
    assert_nothing_left(libvirt, tmp_path)


def test_controllers_killed_at_any_moment_leave_nothing(tmp_path: Path, libvirt: Libvirt) -> None:
    done = kill_controllers(libvirt, tmp_path, 6)
    assert done["destroyed"] == 6
    assert done["completed"] == 2
