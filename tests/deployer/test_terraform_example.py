"""The example for Terraform, shortened: a study on machines of moto, played by an SSH server on loopback."""

from __future__ import annotations

import getpass
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.engines import moto as engine
from tests.engines.moto import DEBIAN, Moto
from tests.engines.ssh import Sshd, sshd  # noqa: F401  (a fixture)

pytestmark = [pytest.mark.xdist_group("terraform"), pytest.mark.slow, pytest.mark.timeout(300)]

EXAMPLE = Path(__file__).parents[2] / "examples" / "terraform"


def test_the_example(moto: Moto, sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    for name, value in engine.environment(moto.folder).items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "work"
    folder.mkdir()
    shutil.copy(EXAMPLE / "mandelbrot.py", folder)
    job = yaml.safe_load((EXAMPLE / "job.yaml").read_text())
    job["job"]["parameters"]["size"] = 60
    job["budget"]["trials"] = 2
    job["parallel"] = 2
    played = {
        "endpoint": moto.endpoint,
        "image": DEBIAN,
        "ssh": {"host": "127.0.0.1", "user": getpass.getuser(), **sshd.facts},
    }
    job["deploy"]["provisioner"] |= {**played, "caller_cidr": "127.0.0.1/32"}
    job["deploy"]["runner"] = {"use": "ssh", "folder": str(tmp_path / "far")}
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
    asked = len(moto.asked)
    command = [str(Path(sys.executable).parent / "tradewind"), "tune", "job.yaml"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert moto.asked[asked:].count(("us-east-1", "RunInstances")) == 2
    assert moto.leftovers("us-east-1") == []
    assert done.stdout.count("succeeded: $") == 2
    assert "of aws in us-east-1" in done.stdout
