"""The example over SSH is searched for real, shortened, on three hosts in the place of the user's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.engines.hosts import Hosts, hosts  # noqa: F401  (a fixture)
from tests.examples.shortened import assert_searched, shortened

pytestmark = pytest.mark.xdist_group("ssh")


@pytest.mark.slow
@pytest.mark.example
@pytest.mark.timeout(300)
def test_a_search_over_hosts(hosts: Hosts, tmp_path: Path) -> None:  # noqa: F811
    def on_these(job: dict[str, Any]) -> None:
        job["deploy"]["provisioner"]["hosts"] = [{"host": each, **hosts.facts} for each in hosts.addresses.values()]
        job["deploy"]["runner"]["folder"] = "/mnt/example"
        job["job"]["command"][-1] = "--words=20000"

    job = shortened("ssh", tmp_path, on_these, trials=3)
    result = assert_searched(job, tmp_path / "home", trials=3)
    assert result["best"]["observation"]["metrics"]["words_per_second"] > 0
    assert not (job.parent / "sorted.sha256").exists(), "the job runs elsewhere"
    for name in hosts.names:
        assert hosts.run(name, ["ls", "/mnt/example/runs"]).stdout == b""
