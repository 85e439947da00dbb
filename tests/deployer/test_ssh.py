"""Runs over SSH: the suite, on a real server."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.engines.ssh import Sshd, sshd

from tradewind.deployer.link import SshSettings
from tradewind.deployer.runner.ssh import SshRunner
from tradewind.deployer.runner.ssh_settings import SshRunnerSettings
from tradewind.problem import Machine, RunRequest
from tradewind.testing.runners import RunnerBench, RunnerConformance

pytestmark = pytest.mark.xdist_group("ssh")

__all__ = ["sshd"]


class SshBench(RunnerBench):
    """Runs on one machine that is reached by SSH."""

    python = sys.executable
    wall_seconds = 0.5

    def __init__(self, folder: Path, server: Sshd) -> None:
        super().__init__(folder)
        self.server = server
        self.far = folder / "far"

    def machines(self) -> Sequence[Machine]:
        return [Machine("m1", self.server.address)]

    def count(self, request: RunRequest) -> int:
        return sum(path.read_text().count("ran\n") for path in self.far.glob(f"runs/{request.run_id}/work/count"))

    def make(self) -> SshRunner:
        settings = SshRunnerSettings(ssh=SshSettings(**self.server.facts), folder=str(self.far))
        return SshRunner(settings=settings, data_folder=self.folder / "data")


class TestSsh(RunnerConformance):
    @pytest.fixture
    def bench(self, tmp_path: Path, sshd: Sshd) -> Iterator[RunnerBench]:
        made = SshBench(tmp_path, sshd)
        yield made
        made.close()
