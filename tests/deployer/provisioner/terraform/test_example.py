"""The example for Terraform, shortened: a study on machines of moto, played by an SSH server on loopback."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Any

import pytest
from tests.engines import moto as engine
from tests.engines.moto import DEBIAN, Moto
from tests.engines.ssh import Sshd, sshd  # noqa: F401  (a fixture)
from tests.examples.shortened import assert_searched, shortened

pytestmark = [pytest.mark.xdist_group("terraform"), pytest.mark.slow, pytest.mark.example, pytest.mark.timeout(300)]


def test_the_example(moto: Moto, sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    for name, value in engine.environment(moto.folder).items():
        monkeypatch.setenv(name, value)
    played = {
        "endpoint": moto.endpoint,
        "image": DEBIAN,
        "ssh": {"host": "127.0.0.1", "user": getpass.getuser(), **sshd.facts},
        "caller_cidr": "127.0.0.1/32",
    }

    def played_by_moto(job: dict[str, Any]) -> None:
        job["job"]["parameters"]["size"] = 60
        job["deploy"]["provisioner"] |= played
        job["deploy"]["runner"] = {"use": "ssh", "folder": str(tmp_path / "far")}

    asked = len(moto.asked)
    job = shortened("terraform", tmp_path, played_by_moto, trials=1)
    result = assert_searched(job, tmp_path / "home", trials=1)
    assert moto.asked[asked:].count(("us-east-1", "RunInstances")) == 1
    assert moto.leftovers("us-east-1") == []
    assert result["best"]["offer"]["provider"] == "aws"
