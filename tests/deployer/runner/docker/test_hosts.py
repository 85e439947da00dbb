"""Containers on hosts that a user has: provisioner none gives them, runner docker reaches their engines by SSH."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.deployer.helpers import OWNER, deployer_over, drive, row
from tests.deployer.runner.docker.helpers import in_container
from tests.engines.docker import DockerEngine, docker  # noqa: F401  (a fixture)
from tests.engines.ssh import Sshd, sshd  # noqa: F401  (a fixture)
from tests.waiting import eventually

from tradewind.deployer.lifecycle.deployer import Deployer
from tradewind.deployer.provisioner.none import NoneProvisioner, NoneSettings
from tradewind.deployer.runner.docker.runner import DockerRunner
from tradewind.deployer.runner.docker.settings import DockerSettings
from tradewind.problem import RunState

pytestmark = [pytest.mark.xdist_group("docker"), pytest.mark.slow]


def made(folder: Path, docker: DockerEngine, sshd: Sshd) -> Deployer:  # noqa: F811
    """A deployer with one host, whose engine is behind a socket there."""
    hosts = NoneSettings.model_validate({"hosts": [{"host": sshd.address, **sshd.facts}]})
    runner = DockerSettings(remote_socket=str(docker.socket), network="none", grace=0, reaper=False)
    return deployer_over(
        folder,
        provisioner=NoneProvisioner(settings=hosts, data_folder=folder / "data"),
        runner=DockerRunner(settings=runner, data_folder=folder / "data"),
    )


def test_a_run_in_a_container_of_a_host(docker: DockerEngine, sshd: Sshd, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "work").mkdir()
    (tmp_path / "work/data").write_text("mine\n")
    deployer = made(tmp_path, docker, sshd)
    request = in_container(tmp_path, ("sh", "-c", "pwd; cat data; cp data kept"), outputs=("kept",))
    deployer.launch(row(), request)
    last = drive(deployer)[-1]
    assert (last.state, last.reason) == (RunState.DONE, "")
    assert (request.folder / "stdout").read_text() == "/tradewind/work\nmine\n"
    assert (request.folder / "outputs/kept").read_text() == "mine\n"
    assert not (tmp_path / "work/kept").exists(), "the job works on a copy"
    deployer.settle("run-1")
    assert deployer.runner.find(OWNER) == []
    assert deployer.provisioner.find(OWNER) == []
    deployer.close()


def test_a_host_has_one_container_at_a_time_and_is_found_again(
    docker: DockerEngine,  # noqa: F811
    sshd: Sshd,  # noqa: F811
    tmp_path: Path,
) -> None:
    first = made(tmp_path, docker, sshd)
    requests = {name: in_container(tmp_path, ("sleep", "60"), name) for name in ("run-1", "run-2")}
    launched = {name: first.launch(row(name), request) for name, request in requests.items()}
    eventually(lambda: first.poll() is not None and first.active["run-1"].state is RunState.EXECUTING)
    assert first.active["run-2"].state is RunState.BOOTING, "it waits for the host"
    launched = dict(first.active)
    first.close()
    second = made(tmp_path, docker, sshd)
    for name, request in requests.items():
        second.adopt(launched[name], request)
    ended = second.cancel("run-1", "enough")
    assert ended is not None and ended.state is RunState.CANCELLED
    eventually(lambda: second.poll() is not None and second.active["run-2"].state is RunState.EXECUTING)
    second.cancel("run-2", "enough")
    for name in requests:
        second.settle(name)
    assert docker.docker("ps", "-aq").stdout == b""
    assert second.provisioner.find(OWNER) == []
    second.close()
