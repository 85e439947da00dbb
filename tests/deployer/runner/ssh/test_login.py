"""The ssh runner with a login that is not root's, as users have it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.deployer.helpers import OWNER, deployer_over, drive, request_for, row
from tests.engines.login import USER, login
from tests.engines.ssh import Sshd
from tests.waiting import eventually

from tradewind.deployer.provisioner.none import NoneProvisioner, NoneSettings
from tradewind.deployer.runner.ssh.runner import SshRunner
from tradewind.deployer.runner.ssh.settings import SshRunnerSettings
from tradewind.problem import Fault, Limits, RunState
from tradewind.testing.runners import processes_of

pytestmark = [pytest.mark.xdist_group("ssh"), pytest.mark.slow]

__all__ = ["login"]


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[SshRunner]:
    made = SshRunner(settings=SshRunnerSettings(), data_folder=tmp_path / "data")
    yield made
    made.close()


def hosts(login: Sshd, folder: Path) -> NoneProvisioner:
    settings = NoneSettings.model_validate({"hosts": [{"host": login.address, **login.facts}]})
    return NoneProvisioner(settings=settings, data_folder=folder / "data")


def test_a_run_of_a_user_without_rights(login: Sshd, runner: SshRunner, tmp_path: Path) -> None:
    deployer = deployer_over(tmp_path, runner=runner, provisioner=hosts(login, tmp_path))
    (tmp_path / "work").mkdir()
    (tmp_path / "work/data").write_text("mine\n")
    script = "id -un; umask; cp data kept; pwd; echo $TRADEWIND_OUTPUTS"
    request = request_for(tmp_path, ("sh", "-c", script), outputs=("kept",))
    deployer.launch(row(), request)
    last = drive(deployer)[-1]
    assert (last.state, last.exit_code, last.reason) == (RunState.DONE, 0, "")
    name, _, *places = (request.folder / "stdout").read_text().splitlines()
    home = str(login.folder / "home")
    assert name == USER
    assert all(place.startswith(f"{home}/.tradewind/far/runs/") for place in places)
    assert (request.folder / "outputs/kept").read_text() == "mine\n"
    deployer.settle("run-1")
    eventually(lambda: not list((login.folder / "home/.tradewind/far/runs").iterdir()))
    assert runner.find(OWNER) == []
    deployer.close()


def test_limits_hold_without_rights(login: Sshd, runner: SshRunner, tmp_path: Path) -> None:
    """Control groups are root's: memory is watched instead."""
    deployer = deployer_over(tmp_path, runner=runner, provisioner=hosts(login, tmp_path))
    hog = ("sh", "-c", "head -c 200000000 /dev/zero | tail; sleep 60")
    greedy = replace(request_for(tmp_path, hog), limits=Limits(memory_bytes=50 << 20, wall_seconds=50.0))
    deployer.launch(row(), greedy)
    last = drive(deployer)[-1]
    assert (last.state, last.fault) == (RunState.FAILED, Fault.JOB)
    assert "out of memory" in last.reason
    late = request_for(tmp_path, ("sh", "-c", "trap '' TERM; sleep 60"), "run-2", wall=0.5)
    deployer.launch(row("run-2"), late)
    states: dict[str, RunState] = {}
    eventually(lambda: states.update({r.run_id: r.state for r in deployer.poll()}) or "run-2" not in deployer.active)
    assert states["run-2"] is RunState.TIMED_OUT
    long = request_for(tmp_path, ("sleep", "60"), "run-3")
    deployer.launch(row("run-3"), long)
    eventually(lambda: deployer.poll() is not None and processes_of("run-3"))
    ended = deployer.cancel("run-3", "enough")
    assert ended is not None and ended.state is RunState.CANCELLED
    assert not [each for name in ("run-1", "run-2", "run-3") for each in processes_of(name)]
    deployer.close()
