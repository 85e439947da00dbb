"""From the advice to the machines: Amazon's, made by Terraform in moto, and played by an SSH server on loopback."""

from __future__ import annotations

import getpass
import json
import sys
from pathlib import Path

import pytest
import yaml
from tests.engines import moto as engine
from tests.engines.moto import DEBIAN, Moto, moto
from tests.engines.ssh import Sshd, sshd

from tradewind.cli.app import run as cli
from tradewind.problem import RunState
from tradewind.workflow.execution.machines.rows import FileRows

pytestmark = [pytest.mark.xdist_group("terraform"), pytest.mark.slow, pytest.mark.timeout(300)]

__all__ = ["moto", "sshd"]


def test_the_machines_that_are_advised_are_made_used_and_given_back(
    moto: Moto, sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in engine.environment(moto.folder).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TRADEWIND_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    Path("x").write_text("5\n")
    tasks = {"double": {"command": ["sh", "-c", "cat x x > y"], "runtime": "30s", "inputs": ["x"], "outputs": ["y"]}}
    Path("flow.yaml").write_text(yaml.safe_dump({"name": "flow", "tasks": tasks}))
    ssh = {"host": "127.0.0.1", "user": getpass.getuser(), **sshd.facts}
    made = {"use": "terraform", "ready": "ssh", "regions": ["us-east-1"], "endpoint": moto.endpoint, "image": DEBIAN}
    deploy = {
        "provisioner": {**made, "ssh": ssh, "caller_cidr": "127.0.0.1/32"},
        "runner": {"use": "ssh", "folder": str(tmp_path / "far")},
    }
    Path("deploy.yaml").write_text(yaml.safe_dump({"deploy": deploy}))
    where = ["--provider", "aws", "--region", "us-east-1", "--types", "c7i.large"]
    assert cli(["workflow", "advise", "flow.yaml", *where, "--max-vms", "1", "--out", "plan.json"]) == 0
    run = ["workflow", "run", "plan.json", "--deploy", "deploy.yaml", "--python", sys.executable, "--quiet"]
    assert cli([*run, "--budget", "$0.0001"]) == 5
    asked = len(moto.asked)
    assert cli([*run, "--budget", "$1"]) == 0, capsys.readouterr().err
    assert Path("plan.run/files/y").read_text() == "5\n5\n"
    assert moto.asked[asked:].count(("us-east-1", "RunInstances")) == 1
    assert moto.leftovers("us-east-1") == []
    [row] = FileRows(tmp_path / "plan.run/machines/.rows").saved_runs()
    assert row.state is RunState.DONE
    assert 0 < row.cost < 1
    assert json.loads(Path("plan.run/results.json").read_text())["engine"] == "terraform+ssh"
