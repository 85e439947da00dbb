"""The Slurm runner, on a real Slurm of three nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.engines.slurm import SlurmCluster, slurm  # noqa: F401  (a fixture)

from tradewind.deployer.runner.slurm import SlurmRunner
from tradewind.deployer.runner.slurm_options import SlurmSettings
from tradewind.testing.runners import RunnerBench, RunnerConformance

pytestmark = pytest.mark.xdist_group("slurm")


def slurm_runner(folder: Path, **settings: Any) -> SlurmRunner:
    given = {"interval": 0.1, "settle": 2.0, "grace": 0.3, "margin": 0.0, "patience": 0.0, **settings}
    return SlurmRunner(settings=SlurmSettings(**given), data_folder=folder / "data")


class SlurmBench(RunnerBench):
    def __init__(self, folder: Path, cluster: SlurmCluster) -> None:
        super().__init__(folder)
        self.cluster = cluster

    def make(self) -> SlurmRunner:
        return slurm_runner(self.folder)

    def left(self, run_id: str) -> Sequence[object]:
        return [*super().left(run_id), *self.cluster.jobs(f"--name={run_id}")]


class TestConformance(RunnerConformance):
    @pytest.fixture
    def bench(self, tmp_path: Path, cluster: SlurmCluster) -> Iterator[RunnerBench]:
        bench = SlurmBench(tmp_path, cluster)
        yield bench
        bench.close()


@pytest.fixture
def cluster(slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> SlurmCluster:  # noqa: F811
    monkeypatch.setenv("SLURM_CONF", str(slurm.conf))
    return slurm
