"""A plan whose machines are containers: files are sent into each, and what they write comes back."""

from __future__ import annotations

import os
import signal
import warnings
from pathlib import Path

import pytest
from tests.engines.docker import IMAGE, PYTHON, DockerEngine, docker
from tests.workflow.execution.plans import carry, flow_of, history, plan_of, sh

from tradewind.deployer.runner.docker import submit
from tradewind.deployer.runner.docker.runner import DockerRunner
from tradewind.deployer.runner.docker.settings import DockerSettings
from tradewind.errors import WorkflowError
from tradewind.workflow.execution.events import ExecutionEnding
from tradewind.workflow.execution.pilots import PilotSettings

pytestmark = pytest.mark.xdist_group("docker")

__all__ = ["docker"]

TERMS = PilotSettings(python=PYTHON, linger=10.0, poll_seconds=0.5, silence=10.0, image=IMAGE)


def runner(folder: Path, engine: DockerEngine) -> DockerRunner:
    settings = DockerSettings(host=engine.host, network="none", grace=0, reaper=False)
    return DockerRunner(settings=settings, data_folder=folder / "data")


def test_a_plan_in_containers(tmp_path: Path, docker: DockerEngine) -> None:
    (tmp_path / "x").write_text("7\n")
    parts = [sh(name, f"cat x > {name}", after="x", writes=name, runtime=5.0) for name in ("left", "right")]
    both = sh("both", "cat left right > total", after="left right", writes="total", runtime=1.0)
    folder = tmp_path / "run"
    carried = carry(plan_of(flow_of(*parts, both)), folder, runner=runner(tmp_path, docker), terms=TERMS)
    assert carried.ending is ExecutionEnding.DONE, carried.failures
    assert (folder / "files/total").read_text() == "7\n7\n"
    assert docker.docker("ps", "-a", "-q").stdout == b""
    assert not list(folder.glob("machines/*/*/work")), "nothing is left of what the containers worked with"


def test_machines_that_were_made_by_half_when_the_command_was_killed_are_made_whole(
    tmp_path: Path, docker: DockerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, plan = tmp_path / "run", plan_of(flow_of(sh("a", "echo 7 > x", writes="x")), vms=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads
        pid = os.fork()
    if pid == 0:
        monkeypatch.setattr(submit.ContainerStart, "_start", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        try:
            carry(plan, folder, runner=runner(tmp_path, docker), terms=TERMS)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert docker.docker("ps", "-a", "-q", "--filter", "status=created").stdout.split()
    carried = carry(plan, folder, runner=runner(tmp_path, docker), terms=TERMS)
    assert carried.ending is ExecutionEnding.DONE, carried.failures
    assert history(folder).pilots == {"vm-1": 1}
    assert docker.docker("ps", "-a", "-q").stdout == b""


def test_without_an_image_nothing_is_made(tmp_path: Path, docker: DockerEngine) -> None:
    with pytest.raises(WorkflowError, match="docker runs everything in a container image, and there is none"):
        carry(plan_of(flow_of(sh("a", "true"))), tmp_path / "run", runner=runner(tmp_path, docker))
