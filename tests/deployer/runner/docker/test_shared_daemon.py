"""Runs of several stores on one Docker daemon: each is ended by its own settings; who only looks changes nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.deployer.helpers import OWNER
from tests.deployer.runner.docker.helpers import Make, docker_runner, ended_within, in_container, runners
from tests.engines.docker import DockerEngine, docker  # noqa: F401  (a fixture)
from tests.waiting import eventually

from tradewind.deployer.runner.docker.names import GRACE, grace_of
from tradewind.deployer.runner.docker.runner import DockerRunner
from tradewind.problem import Handle, RunState
from tradewind.problem.run import Load

pytestmark = pytest.mark.xdist_group("docker")

_SAVES = ("sh", "-c", "trap 'sleep 2; echo saved >saved; exit' TERM; echo up >up; while :; do sleep 0.05; done")
_STUBBORN = ("sh", "-c", "trap '' TERM; while :; do sleep 0.05; done")


@pytest.fixture
def make(tmp_path: Path, docker: DockerEngine) -> Iterator[Make]:  # noqa: F811
    with runners(tmp_path, docker) as maker:
        yield maker


@pytest.fixture
def other(tmp_path: Path, docker: DockerEngine) -> Iterator[DockerRunner]:  # noqa: F811
    """The runner of another store, which ends its own runs at once."""
    folder = tmp_path / "other"
    folder.mkdir()
    runner = docker_runner(folder, docker, grace=0, reaper=True)
    yield runner
    runner.close()
    # Its process is gone before the daemon is.
    reapers = [int(path.read_text()) for path in (folder / "data" / "docker").glob("reaper-*")]
    eventually(lambda: not any(_goes_on(pid) for pid in reapers))


def _goes_on(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def everybodys(runner: DockerRunner) -> list[Handle]:
    """What ``tradewind reap`` of a store looks at."""
    return [handle for handle in runner.find(None) if handle.data["owner"] == OWNER]


@pytest.mark.thorough
def test_the_wall_times_grace_is_that_of_who_started_it(make: Make, other: DockerRunner, tmp_path: Path) -> None:
    runner = make(grace=5)
    handle = runner.submit(in_container(tmp_path, _SAVES, wall=1.0), [])
    # The reaper of the other store looks after all that has a wall time.
    theirs = in_container(tmp_path / "other", ("sleep", "60"), "run-2", owner=f"{OWNER}-other", wall=1.0)
    theirs_handle = other.submit(theirs, [])
    eventually(lambda: [other.poll(everybodys(other)), runner.poll([handle])["run-1"].state.ended][-1], pause=0.1)
    assert runner.poll([handle])["run-1"].state is RunState.TIMED_OUT
    assert (tmp_path / "work" / "saved").read_text() == "saved\n"
    assert ended_within(other, theirs_handle, 30).state is RunState.TIMED_OUT
    other.forget(theirs_handle)


def test_a_look_leaves_what_is_being_cancelled_its_grace(make: Make, other: DockerRunner, tmp_path: Path) -> None:
    runner = make(grace=5)
    handle = runner.submit(in_container(tmp_path, _SAVES), [])
    eventually((tmp_path / "work" / "up").exists)
    runner.cancel(handle)
    eventually(lambda: [other.poll(everybodys(other)), runner.poll([handle])["run-1"].state.ended][-1], pause=0.1)
    assert (tmp_path / "work" / "saved").read_text() == "saved\n"


def test_who_cancels_what_a_look_has_found_ends_it_after_its_own_grace(
    make: Make, other: DockerRunner, tmp_path: Path
) -> None:
    make(grace=1).submit(in_container(tmp_path, _STUBBORN), [])
    [handle] = everybodys(other)
    assert other.poll([handle])["run-1"].state is RunState.EXECUTING
    began = time.monotonic()
    other.cancel(handle)
    assert ended_within(other, handle, 30).state is RunState.CANCELLED
    assert time.monotonic() - began >= 1


def test_a_look_starts_no_load(make: Make, other: DockerRunner, tmp_path: Path) -> None:
    runner = make()
    load = Load(("sh", "-c", "echo began >began; exit 0"))
    handle = runner.submit(in_container(tmp_path, ("sleep", "60"), load=load), [])
    for _ in range(10):
        assert other.poll(everybodys(other))["run-1"].state is RunState.EXECUTING
        time.sleep(0.05)
    assert not (tmp_path / "work" / "began").exists()
    assert ended_within(runner, handle, 30).state is RunState.DONE
    assert (tmp_path / "work" / "began").exists()


@pytest.mark.parametrize(("label", "grace"), [("5.0", 5.0), (None, 0.5), ("soon", 0.5), ("1e9", 60.0), ("-1", 0.0)])
def test_the_grace_of_a_label(label: str | None, grace: float) -> None:
    assert grace_of({} if label is None else {GRACE: label}, 0.5) == grace
