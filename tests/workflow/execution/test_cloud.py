"""From the advice to the machines, which are made, used and given back.

Amazon's are made by Terraform in moto, OpenNebula's by a server that behaves like oned; both are played by an SSH
server on loopback. Those of libvirt are real ones, emulated.
"""

from __future__ import annotations

import getpass
import json
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.engines import moto as moto_engine
from tests.engines import oned as oned_engine
from tests.engines.docker import IMAGE, PYTHON, DockerEngine, docker
from tests.engines.libvirt import Libvirt, libvirt
from tests.engines.moto import DEBIAN, Moto, moto
from tests.engines.oned import Oned
from tests.engines.ssh import Sshd, sshd
from tests.waiting import eventually

from tradewind.cli.app import run as cli
from tradewind.workflow.execution import pilots

__all__ = ["docker", "libvirt", "moto", "sshd"]

TASK = {"command": ["sh", "-c", "cat x x > y"], "runtime": "30s", "inputs": ["x"], "outputs": ["y"]}
OWN = "API Name,Provider,CPU,Memory,Category,Price\nm1,{provider},1,0.25,general,0.36\n"
"""Offers of a cloud of one's own."""


class Advised:
    """A workflow for which one machine is advised, in the working folder.

    Args:
        deploy: Parts that make the machine and run on it, as a job has them.
        where: Words of ``workflow advise`` that choose the machine.
        job: What a job has of it beside that.
        python: Python on the machine.
    """

    def __init__(
        self, deploy: dict[str, Any], where: Sequence[str], job: dict[str, Any] | None = None, python: str = ""
    ) -> None:
        Path("x").write_text("5\n")
        Path("flow.yaml").write_text(yaml.safe_dump({"name": "flow", "tasks": {"double": TASK}}))
        Path("deploy.yaml").write_text(yaml.safe_dump({"deploy": deploy, **({"job": job} if job else {})}))
        advise = ["workflow", "advise", "flow.yaml", *where, "--max-vms", "1", "--out", "plan.json"]
        assert cli(advise) == 0
        run = ["workflow", "run", "plan.json", "--deploy", "deploy.yaml", "--python", python or sys.executable]
        self._run = [*run, "--quiet"]

    def run(self, budget: str) -> int:
        """Carry out the plan; its exit code."""
        return cli([*self._run, "--budget", budget])

    def assert_done(self, engine: str, capsys: pytest.CaptureFixture[str]) -> None:
        """The file has come back, and the store has the machine, which is given back and paid."""
        assert Path("plan.run/files/y").read_text() == "5\n5\n"
        assert json.loads(Path("plan.run/results.json").read_text())["engine"] == engine
        capsys.readouterr()
        assert cli(["status", "flow", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert [row["state"] for row in found["tasks"]] == ["done"]
        [machine] = found["machines"]
        # One that has taken over four seconds to end by itself is cancelled.
        assert machine["state"] in ("done", "cancelled")
        assert 0 < machine["spent"] < 1


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


# ------------------------------------------------------------------ Amazon's machines, by Terraform


@pytest.fixture
def amazon(moto: Moto, sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The provisioner, whose machines are this one."""
    for name, value in moto_engine.environment(moto.folder).items():
        monkeypatch.setenv(name, value)
    ssh = {"host": "127.0.0.1", "user": getpass.getuser(), **sshd.facts}
    made = {"use": "terraform", "ready": "ssh", "regions": ["us-east-1"], "endpoint": moto.endpoint, "image": DEBIAN}
    return {**made, "ssh": ssh, "caller_cidr": "127.0.0.1/32"}


ON_AMAZON = ("--provider", "aws", "--region", "us-east-1", "--types", "c7i.large")


@pytest.mark.xdist_group("terraform")
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_terraform_with_ssh(
    amazon: dict[str, Any], moto: Moto, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    advised = Advised({"provisioner": amazon, "runner": {"use": "ssh", "folder": str(tmp_path / "far")}}, ON_AMAZON)
    assert advised.run("$0.0001") == 5
    asked = len(moto.asked)
    assert advised.run("$1") == 0, capsys.readouterr().err
    advised.assert_done("terraform+ssh", capsys)
    assert moto.asked[asked:].count(("us-east-1", "RunInstances")) == 1
    assert moto.leftovers("us-east-1") == []


@pytest.mark.xdist_group("terraform")
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_terraform_with_docker(
    amazon: dict[str, Any], moto: Moto, docker: DockerEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    runner = {"use": "docker", "remote_socket": str(docker.socket), "network": "none", "grace": 0, "reaper": False}
    advised = Advised({"provisioner": amazon, "runner": runner}, ON_AMAZON, {"image": IMAGE}, PYTHON)
    assert advised.run("$1") == 0, capsys.readouterr().err
    advised.assert_done("terraform+docker", capsys)
    assert moto.leftovers("us-east-1") == []
    assert docker.docker("ps", "-a", "-q").stdout == b""


# ------------------------------------------------------------------ a cloud of one's own


@pytest.fixture
def oned(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Oned]:
    monkeypatch.setenv("ONE_TEST_AUTH", f"ada:{oned_engine.USERS['ada'][0]}")
    yield from oned_engine.running(tmp_path_factory.mktemp("oned"))


def own(provider: str) -> tuple[str, ...]:
    """Words that choose the machine of such a cloud."""
    Path("machines.csv").write_text(OWN.format(provider=provider))
    return "--csv", "machines.csv", "--provider", provider


def on_opennebula(oned: Oned, sshd: Sshd, far: Path) -> Advised:
    made: dict[str, Any] = {
        "use": "opennebula",
        "endpoint": oned.endpoint,
        "auth": "env:ONE_TEST_AUTH",
        "template": "node",
    }
    made |= {"user": "", "port": sshd.port, "identity": str(sshd.keys.client), "interval": 0.1}
    return Advised({"provisioner": made, "runner": {"use": "ssh", "folder": str(far)}}, own("opennebula"))


@pytest.mark.xdist_group("opennebula")
def test_opennebula_with_ssh(oned: Oned, sshd: Sshd, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    advised = on_opennebula(oned, sshd, tmp_path / "far")
    assert advised.run("$1") == 0, capsys.readouterr().err
    advised.assert_done("opennebula+ssh", capsys)
    assert oned.calls("template.instantiate") == 1
    assert oned.alive() == []


@pytest.mark.xdist_group("opennebula")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("begins", "says"),
    [(False, "m1-1: the machines did not come up: gone"), (True, "no machine is left: m1-1 is gone: ")],
)
def test_a_machine_that_is_lost_before_or_in_its_first_task_is_named(
    begins: bool, says: str, oned: Oned, sshd: Sshd, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    begun = tmp_path / "begun"
    monkeypatch.setitem(TASK, "command", ["sh", "-c", f"touch {begun}; sleep 60; cat x x > y"])
    if not begins:
        oned.config(boot=3600.0)
    advised = on_opennebula(oned, sshd, tmp_path / "far")

    def lose() -> None:
        eventually(begun.exists if begins else oned.alive, 60)
        oned.call("vm.action", "terminate-hard", oned.alive()[0]["id"])

    losing = threading.Thread(target=lose)
    losing.start()
    assert advised.run("$1") == 10
    losing.join()
    assert f"tradewind: {says}" in capsys.readouterr().err
    assert oned.alive() == []


@pytest.mark.xdist_group("libvirt")
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_libvirt_with_ssh(
    libvirt: Libvirt, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pilots, "_FIRST_SECONDS", 300.0)  # emulated, on a host that does other things, too
    made = {"use": "libvirt", "boot": 400.0, **libvirt.settings()}
    runner = {"use": "ssh", "patience": 60, "ssh": {"connect_seconds": 60}}
    advised = Advised({"provisioner": made, "runner": runner}, own("libvirt"), python="python3")
    assert advised.run("$1") == 0, capsys.readouterr().err
    advised.assert_done("libvirt+ssh", capsys)
    assert (libvirt.names(), libvirt.pids()) == ([], {})
