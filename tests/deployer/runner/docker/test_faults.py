"""Controllers and Docker daemons are killed; nothing is lost, nothing is left, nothing runs twice."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.deployer.helpers import OWNER, deployer_over, drive, row
from tests.deployer.runner.docker.helpers import Make, docker_runner, ended_within, in_container, runners
from tests.engines.docker import DockerEngine, docker  # noqa: F401  (a fixture)
from tests.engines.hosts import Hosts, hosts  # noqa: F401  (a fixture)
from tests.waiting import eventually

from tradewind.errors import UnreachableError
from tradewind.problem import Fault, Machine, RunState

pytestmark = pytest.mark.xdist_group("docker")

_COUNT = ("sh", "-c", "echo ran >> count-$TRADEWIND_RUN_ID; sleep 60")

_CONTROLLER = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.deployer.runner.docker.helpers import *
from tests.deployer.helpers import deployer_over, row
folder = Path({folder!r})
deployer = deployer_over(folder, runner=docker_runner(folder, {host!r}))
print("ready", flush=True)
for i in range(3):
    run_id = f"run-{turn}-{{i}}"
    print(run_id, flush=True)          # the row is stored before anything is created
    deployer.launch(row(run_id), in_container(folder, {argv!r}, run_id))
while True:
    deployer.poll()
    deployer.wait(0.05)
"""


@pytest.fixture
def make(tmp_path: Path, docker: DockerEngine) -> Iterator[Make]:  # noqa: F811
    with runners(tmp_path, docker) as maker:
        yield maker


def verify_kills_of_controllers(folder: Path, engine: DockerEngine, kills: int, seed: int = 0) -> None:
    """Kill a controller at random moments, that often; the next one goes on with half of its runs and ends the rest."""
    chance = random.Random(seed)
    for turn in range(kills):
        place = folder / str(turn)
        (place / "work").mkdir(parents=True)
        known = _killed_controller(place, engine, turn, chance.uniform(0.0, 1.2))
        _go_on(place, engine, known)
        for count in (place / "work").glob("count-*"):
            assert count.read_text() == "ran\n", "a run was started twice"


def _killed_controller(place: Path, engine: DockerEngine, turn: int, seconds: float) -> list[str]:
    """The runs that a controller had in its rows when it was killed."""
    root = str(Path(__file__).parents[4])
    code = _CONTROLLER.format(root=root, folder=str(place), host=engine.host, turn=turn, argv=_COUNT)
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "TRADEWIND_TEST_OWNER": OWNER},
        stdout=subprocess.PIPE,
        text=True,
    ) as controller:
        assert controller.stdout is not None
        assert controller.stdout.readline() == "ready\n"
        time.sleep(seconds)
        controller.kill()
        return controller.stdout.read().split()


def _go_on(place: Path, engine: DockerEngine, known: list[str]) -> None:
    runner = docker_runner(place, engine)
    deployer = deployer_over(place, runner=runner)
    adopted = known[: len(known) // 2]
    for run_id in adopted:
        deployer.adopt(row(run_id), in_container(place, _COUNT, run_id))
    # An order of the killed one may have been on its way: what is swept late is swept the next time.
    eventually(lambda: not deployer.sweep(set(adopted)))
    for run_id in adopted:
        count = place / "work" / f"count-{run_id}"
        while not count.exists():
            deployer.poll()
            deployer.wait(0.2)
        ended = deployer.cancel(run_id, "the test is over")
        assert ended is not None
        assert ended.state is RunState.CANCELLED, ended
        deployer.settle(run_id)
    eventually(lambda: not deployer.sweep(set()) and not runner.find(OWNER))
    deployer.close()
    assert engine.docker("ps", "-aq", "--filter", f"label=tradewind.owner={OWNER}").stdout == b""


@pytest.mark.slow
def test_nothing_is_left_after_kill_9_of_controllers(tmp_path: Path, docker: DockerEngine) -> None:  # noqa: F811
    verify_kills_of_controllers(tmp_path, docker, kills=5)


def test_what_was_created_and_not_started_is_started_once(
    make: Make,
    tmp_path: Path,
    docker: DockerEngine,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tradewind.deployer.runner.docker import submit as docker_submit

    monkeypatch.setattr(docker_submit, "_IN_FLIGHT_SECONDS", 0.3)
    with monkeypatch.context() as killed:
        killed.setattr(docker_submit.ContainerStart, "_start", lambda *words: None)
        request = in_container(tmp_path, ("sh", "-c", "echo ran >> count"))
        handle = make().submit(request, [])
    runner = make()
    assert runner.poll([handle])["run-1"].state is RunState.SUBMITTING
    assert ended_within(runner, runner.submit(request, []), 30).state is RunState.DONE
    assert ended_within(runner, make().submit(request, []), 30).state is RunState.DONE
    assert (request.workdir / "count").read_text() == "ran\n"


@pytest.mark.slow
@pytest.mark.parametrize("survives", [True, False], ids=["live-restore", "plain"])
def test_the_daemon_is_killed_while_runs_run(
    make: Make,
    tmp_path: Path,
    docker: DockerEngine,  # noqa: F811
    survives: bool,
) -> None:
    docker.configure(**{"live-restore": survives})
    runner = make()
    deployer = deployer_over(tmp_path, runner=runner)
    script = "echo ran >> count-$TRADEWIND_RUN_ID; until test -e go; do sleep 0.05; done; echo over"
    long = in_container(tmp_path, ("sh", "-c", script), "long")
    over = in_container(tmp_path, ("sh", "-c", "echo ran >> count-over"), "over")
    deployer.launch(row("long"), long)
    handle = runner.submit(over, [])
    eventually(lambda: deployer.poll() or (long.workdir / "count-long").exists())
    ended_within(runner, handle, 30)
    handle_long = next(each for each in runner.find(OWNER) if each.run_id == "long")
    docker.stop(kill=True)
    try:
        began = time.monotonic()
        assert runner.poll([handle_long])["long"].state is RunState.EXECUTING
        assert {each.run_id for each in runner.find(OWNER)} == {"long", "over"}
        with pytest.raises(UnreachableError, match="nobody listens"):
            runner.submit(in_container(tmp_path, ("true",), "later"), [])
        assert time.monotonic() - began < 5
    finally:
        docker.start()
    (long.workdir / "go").touch()
    [*_, last] = drive(deployer, "long")
    assert runner.poll([handle])["over"].state is RunState.DONE
    if survives:
        assert last.state is RunState.DONE
        assert (long.folder / "stdout").read_text() == "over\n"
    else:
        assert (last.state, last.fault) == (RunState.PREEMPTED, Fault.INFRASTRUCTURE)
    assert (long.workdir / "count-long").read_text() == "ran\n"
    deployer.close()


def test_the_wall_time_holds_when_the_controller_is_gone(tmp_path: Path, docker: DockerEngine) -> None:  # noqa: F811
    first = docker_runner(tmp_path, docker, reaper=True)
    request = in_container(tmp_path, ("sleep", "60"), wall=1.5)
    handle = first.submit(request, [])
    second = first.submit(in_container(tmp_path, ("sleep", "0.1"), "short", wall=50), [])
    first.close()
    eventually(lambda: not docker.running("run-1"))
    runner = docker_runner(tmp_path, docker)
    status = runner.poll([handle])["run-1"]
    assert (status.state, status.fault) == (RunState.TIMED_OUT, Fault.JOB)
    assert 1.5 <= status.runtime < 30
    assert runner.poll([second])["short"].state is RunState.DONE
    [reaper] = [psutil.Process(int(path.read_text())) for path in (tmp_path / "data" / "docker").glob("reaper-*")]
    for each in (handle, second):
        runner.forget(each)
    runner.close()
    # It goes when nothing is left to be ended.
    eventually(lambda: not reaper.is_running() or reaper.status() == psutil.STATUS_ZOMBIE)


@pytest.mark.slow
def test_a_machine_behind_ssh(
    tmp_path: Path,
    docker: DockerEngine,  # noqa: F811
    hosts: Hosts,  # noqa: F811
) -> None:
    """Files go there and back, a cut cable loses nothing, and without an engine there is one clear error."""
    name = hosts.names[0]
    machine = Machine("far", hosts.addresses[name], {"ssh": hosts.facts})
    runner = docker_runner(tmp_path, docker, remote_socket=str(docker.socket), host="unix:///not/there")
    script = "cat data; echo kept > $TRADEWIND_OUTPUTS/kept; until test -e $TRADEWIND_RUN_ID.go; do sleep 0.1; done"
    request = in_container(tmp_path, ("sh", "-c", script.replace("until", "sleep 2; true || until")))
    (request.workdir / "data").write_text("sent")
    handle = runner.submit(request, [machine])
    assert runner.submit(request, [machine]).run_id == "run-1"
    hosts.cut(name)
    try:
        began = time.monotonic()
        assert runner.poll([handle])["run-1"].state is RunState.EXECUTING
        assert time.monotonic() - began < 8
    finally:
        hosts.mend(name)
    other = docker_runner(tmp_path, docker, remote_socket=str(docker.socket), host="unix:///not/there")
    assert [each.run_id for each in other.find(OWNER)] == ["run-1"]
    assert ended_within(other, handle, 60).state is RunState.DONE
    other.collect(handle, request)
    assert (request.folder / "stdout").read_text() == "sent"
    assert (request.folder / "outputs" / "kept").read_text() == "kept\n"
    other.forget(handle)
    assert other.find(OWNER) == []
    nothing = docker_runner(tmp_path, docker, remote_socket="/not/there.sock", host="unix:///not/there")
    with pytest.raises(UnreachableError, match="no container engine answers"):
        nothing.submit(request, [machine])
    for each in (runner, other, nothing):
        each.close()
