"""The example over SSH is searched for real, shortened, on three hosts in the place of the user's."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.engines.hosts import Hosts, hosts  # noqa: F401  (a fixture)
from tests.examples.test_searches import EXAMPLES

pytestmark = pytest.mark.xdist_group("ssh")


@pytest.mark.slow
def test_a_search_over_hosts(hosts: Hosts, tmp_path: Path) -> None:  # noqa: F811
    folder = tmp_path / "example"
    shutil.copytree(EXAMPLES / "ssh", folder)
    job = yaml.safe_load((folder / "job.yaml").read_text())
    job["deploy"]["provisioner"]["hosts"] = [{"host": each, **hosts.facts} for each in hosts.addresses.values()]
    job["deploy"]["runner"]["folder"] = "/mnt/example"
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
    command = [sys.executable, "-m", "tradewind", "tune", str(folder / "job.yaml"), "--json", "--trials", "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["best"]["observation"]["metrics"]["words_per_second"] > 0
    assert not (folder / "sorted.sha256").exists(), "the job runs elsewhere"
    for name in hosts.names:
        assert hosts.run(name, ["ls", "/mnt/example/runs"]).stdout == b""
