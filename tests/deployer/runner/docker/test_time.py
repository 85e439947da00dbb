"""What time a container run is charged for: from when its engine is asked to start it until the kernel ended it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.deployer.helpers import OWNER
from tests.deployer.runner.docker.helpers import Make, code, docker_runner, ended_within, in_container, runners
from tests.engines.docker import DockerEngine, docker  # noqa: F401  (a fixture)

from tradewind.deployer.runner.docker import submit as docker_submit
from tradewind.deployer.runner.docker.load_generator import load_status
from tradewind.deployer.runner.docker.names import LOAD, WALL, InspectedContainer
from tradewind.deployer.runner.docker.status import ended_status
from tradewind.problem import RunState, RunStatus, Usage

pytestmark = pytest.mark.xdist_group("docker")

_SLOW_SECONDS = 0.4
_NOTES = "import time; began = time.time(); time.sleep(0.1); print(began, time.time())"


@pytest.fixture
def make(tmp_path: Path, docker: DockerEngine) -> Iterator[Make]:  # noqa: F811
    with runners(tmp_path, docker) as maker:
        yield maker


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When the engine was asked to start something, by an engine that takes its time over it as a loaded one does."""
    start, found = docker_submit.ContainerStart._start, []

    def slowly(self: Any, container_id: str, role: str) -> None:
        found.append(time.time())
        time.sleep(_SLOW_SECONDS)
        start(self, container_id, role)

    monkeypatch.setattr(docker_submit.ContainerStart, "_start", slowly)
    return found


def said(*, created: float = 100.0, started: float = 101.0, finished: float = 101.5, **labels: str) -> dict[str, Any]:
    """What an engine tells of a container."""

    def text(seconds: float) -> str:
        return (datetime(2026, 11, 22, tzinfo=UTC) + timedelta(seconds=seconds)).isoformat()

    state = {"Status": "exited", "ExitCode": 0, "StartedAt": text(started), "FinishedAt": text(finished)}
    return {"Id": "c", "State": state, "Created": text(created), "Config": {"Labels": labels}, "Path": "true"}


def moment(seconds: float) -> float:
    """The same moment in seconds since the epoch."""
    return InspectedContainer.of(said(started=seconds)).started


def plain(facts: InspectedContainer) -> RunStatus:
    """The status of a run of one container that has ended."""
    return ended_status(facts, cancelled=False, podman=False, usage=Usage(), from_outside=lambda: False)


@pytest.mark.parametrize("files", ["mount", "copy"])
def test_a_short_run_is_charged_from_when_its_engine_was_asked(
    make: Make,
    tmp_path: Path,
    orders: list[float],
    docker: DockerEngine,  # noqa: F811
    files: str,
) -> None:
    runner = make(files=files)
    request = in_container(tmp_path, code(_NOTES))
    handle = runner.submit(request, [])
    status = ended_within(runner, handle, 60)
    runner.collect(handle, request)
    over = time.time()
    assert status.state is RunState.DONE, (request.folder / "stderr").read_text()
    began, ended = map(float, (request.folder / "stdout").read_text().split())
    [asked] = orders
    assert ended - asked <= status.runtime <= over - asked + 0.1
    assert status.runtime >= _SLOW_SECONDS + (ended - began)
    assert runner.submit(request, []).data == handle.data
    # Another process has the same figure, whether it has the handle or finds the run by its tags.
    other = docker_runner(tmp_path, docker, files=files)
    [found] = other.find(OWNER)
    assert other.poll([found])["run-1"].runtime == status.runtime
    other.close()


def test_what_is_killed_while_its_run_starts_still_knows_when_it_asked(
    make: Make,
    tmp_path: Path,
    orders: list[float],
    monkeypatch: pytest.MonkeyPatch,
    docker: DockerEngine,  # noqa: F811
) -> None:
    start = docker_submit.ContainerStart._start

    def killed(self: Any, container_id: str, role: str) -> None:
        start(self, container_id, role)
        raise KeyboardInterrupt

    monkeypatch.setattr(docker_submit.ContainerStart, "_start", killed)
    request = in_container(tmp_path, code(_NOTES))
    first = docker_runner(tmp_path, docker)
    with pytest.raises(KeyboardInterrupt):
        first.submit(request, [])
    first.close()
    runner = make()
    handle = runner.submit(request, [])
    status = ended_within(runner, handle, 60)
    assert len(orders) == 1, "it was started once"
    assert status.runtime >= _SLOW_SECONDS + 0.1
    [found] = runner.find(OWNER)
    assert found.data["asked"] == handle.data["asked"] <= orders[0]


def test_the_time_limit_is_that_of_the_job_alone(make: Make, tmp_path: Path, orders: list[float]) -> None:
    """A start that takes its time, as a loaded engine's does, is paid and takes nothing from the wall time."""
    runner = make()
    quick = in_container(tmp_path, ("sleep", "0.1"), "quick", wall=_SLOW_SECONDS + 0.1)
    status = ended_within(runner, runner.submit(quick, []), 60)
    assert status.state is RunState.DONE, status
    assert status.runtime >= _SLOW_SECONDS + 0.1
    late = in_container(tmp_path, ("sleep", "60"), "late", wall=1.0)
    status = ended_within(runner, runner.submit(late, []), 60)
    assert status.state is RunState.TIMED_OUT, status
    assert status.runtime >= _SLOW_SECONDS + 1.0
    assert len(orders) == 2


def test_a_run_that_goes_on_counts_from_the_same_moment(make: Make, tmp_path: Path, orders: list[float]) -> None:
    runner = make()
    handle = runner.submit(in_container(tmp_path, ("sleep", "60")), [])
    [asked] = orders
    before = time.time() - asked
    status = runner.poll([handle])["run-1"]
    assert before <= status.runtime <= time.time() - asked + 0.1
    runner.cancel(handle)
    last = ended_within(runner, handle, 30)
    assert last.state is RunState.CANCELLED
    assert last.runtime >= status.runtime


def test_a_run_with_a_load_is_charged_from_the_application_s_start() -> None:
    application = InspectedContainer.of(said(started=101.0, finished=103.0), moment(100.5))
    marks = {LOAD: '{"port": null, "path": "", "pattern": "", "seconds": 9}', WALL: "2.2"}
    load = InspectedContainer.of(said(created=100.1, started=102.0, finished=103.0, **marks))
    given_ = {"cancelled": False, "podman": False, "usage": Usage(), "from_outside": lambda facts: False}
    status = load_status(load, application, **given_)  # type: ignore[arg-type]
    assert status.state is RunState.DONE
    assert status.runtime == pytest.approx(2.5)
    late = load_status(replace(load, labels={**marks, WALL: "1.9"}), application, **given_)  # type: ignore[arg-type]
    assert late.state is RunState.TIMED_OUT
    assert late.runtime == pytest.approx(2.5)


@given(
    asked=st.floats(0, 3000),
    waited=st.floats(0, 50),
    ran=st.floats(0, 500),
)
def test_never_less_than_the_engine_saw_nor_more_than_the_container_was_there(
    asked: float, waited: float, ran: float
) -> None:
    """Whatever the clocks were set to meanwhile."""
    told = said(created=1000.0, started=1000.0 + waited, finished=1000.0 + waited + ran)
    facts = InspectedContainer.of(told, moment(asked))
    seen = facts.finished - facts.started
    runtime = plain(facts).runtime
    assert seen <= runtime <= facts.finished - moment(1000.0)
    assert plain(InspectedContainer.of(told)).runtime == seen, (
        "of an older run it is not known when it was asked to start"
    )


def test_what_never_began_is_not_charged() -> None:
    told = said()
    told["State"] |= {"StartedAt": "0001-01-01T00:00:00Z", "ExitCode": 127, "Error": "no such file"}
    facts = InspectedContainer.of(told, moment(100.2))
    assert (facts.begun, facts.ran, plain(facts).runtime) == (0.0, 0.0, 0.0)
