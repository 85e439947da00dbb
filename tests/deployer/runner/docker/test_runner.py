"""The docker runner, against a real Docker daemon."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import pytest
from tests.deployer.continued import assert_copied, assert_goes_on
from tests.engines.docker import IMAGE, PYTHON, DockerEngine, docker

from tradewind.deployer.runner.base import Runner
from tradewind.deployer.runner.docker import checkpoints
from tradewind.deployer.runner.docker.runner import DockerRunner
from tradewind.deployer.runner.docker.settings import DockerSettings
from tradewind.problem import RunRequest
from tradewind.testing.runners import OWNER_A, OWNER_B, RunnerBench, RunnerConformance

__all__ = ["docker"]

pytestmark = pytest.mark.xdist_group("docker")

Make = Callable[..., DockerRunner]

_CPUS = "q, p = (int(open(f'/sys/fs/cgroup/cpu/cpu.cfs_{n}_us').read()) for n in ('quota', 'period')); print(q // p)"


class DockerBench(RunnerBench):
    python = PYTHON
    wall_seconds = 0.3
    measures = False
    """An engine forgets what a container has used when it ends: what nobody saw while it ran is not known."""

    def __init__(self, folder: Path, engine: DockerEngine) -> None:
        super().__init__(folder)
        self.engine = engine
        self.files: Literal["auto", "copy"] = "auto"
        self.grace = 0.0

    def graceful(self) -> Runner:
        self.grace = 0.5
        return self.runner()

    def make(self) -> DockerRunner:
        given = {
            "host": self.engine.host,
            "network": "none",
            "grace": self.grace,
            "reaper": False,
            "share": False,
            "files": self.files,
        }
        settings = DockerSettings.model_validate(given)
        return DockerRunner(settings=settings, data_folder=self.folder / "data")

    def request(self, kind: str, run_id: str = "run-1", owner: str = OWNER_A) -> RunRequest:
        from dataclasses import replace

        request = replace(super().request(kind, run_id, owner), image=IMAGE)
        # A share of the processors' time does not show in the set of processors.
        return replace(request, argv=(PYTHON, "-c", _CPUS)) if kind == "cpus" else request

    def left(self, run_id: str) -> Sequence[object]:
        return self.engine.running(run_id)

    def close(self) -> None:
        for runner in self._made:
            for owner in (OWNER_A, OWNER_B):
                for handle in runner.find(owner):
                    runner.forget(handle)
            runner.close()


class TestConformance(RunnerConformance):
    @pytest.fixture
    def bench(self, tmp_path: Path, docker: DockerEngine) -> Iterator[RunnerBench]:
        bench = DockerBench(tmp_path, docker)
        yield bench
        bench.close()

    def test_a_checkpoint_goes_on_in_another_container_of_an_engine_elsewhere(self, bench: RunnerBench) -> None:
        """The engine does not see this machine's folders: the files are copied out of the container and into it."""
        assert isinstance(bench, DockerBench)
        bench.files = "copy"
        self.test_a_checkpoint_is_copied_while_the_job_runs_and_put_into_the_next(bench)

    def test_a_checkpoint_is_read_where_the_image_cannot_list_it(
        self, bench: RunnerBench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As in an image without a shell."""
        assert isinstance(bench, DockerBench)
        bench.files = "copy"
        monkeypatch.setattr(checkpoints, "_LIST", "exit 3")
        self.test_a_checkpoint_is_copied_while_the_job_runs_and_put_into_the_next(bench)


@pytest.mark.parametrize("files", ["auto", pytest.param("copy", marks=pytest.mark.thorough)])
def test_paused_promoted_and_interrupted_trials_go_on_from_their_checkpoints(
    docker: DockerEngine, tmp_path: Path, files: str
) -> None:
    """Also where the engine does not see this machine's folders."""
    runner = {"use": "docker", "host": docker.host, "network": "none", "grace": 0, "reaper": False, "files": files}
    assert_goes_on(tmp_path, runner, image=IMAGE)


@pytest.mark.thorough
def test_members_of_a_population_have_copies_of_the_same_checkpoint(docker: DockerEngine, tmp_path: Path) -> None:
    runner = {"use": "docker", "host": docker.host, "network": "none", "grace": 0, "reaper": False, "files": "copy"}
    assert_copied(tmp_path, {**runner, "share": False}, image=IMAGE)


@pytest.mark.thorough
def test_a_trial_whose_container_is_lost_goes_on_from_its_checkpoint(docker: DockerEngine, tmp_path: Path) -> None:
    def lose(run_id: str) -> None:
        for each in docker.running(run_id):
            docker.docker("rm", "-f", each)

    runner = {"use": "docker", "host": docker.host, "network": "none", "grace": 0, "reaper": False}
    assert_goes_on(tmp_path, runner, image=IMAGE, lose=lose)
