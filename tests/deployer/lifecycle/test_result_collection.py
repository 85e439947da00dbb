"""Results of a finished run are fetched again where the connection breaks, and not paid for twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.deployer.helpers import deployer_over, drive, request_for, row
from tests.deployer.lifecycle.test_background_tasks import SlowCloud, SlowRunner, fleet
from tests.waiting import eventually

from tradewind.deployer.lifecycle import deployer as lifecycle
from tradewind.deployer.lifecycle import run_lifecycle
from tradewind.deployer.lifecycle.deployer import Deployer
from tradewind.deployer.lifecycle.hooks import Hooks
from tradewind.deployer.provisioner.base import Cluster, ClusterState
from tradewind.deployer.provisioner.simulated import SimulatedSettings
from tradewind.errors import DeployError, UnreachableError
from tradewind.problem import Billing, Fault, Handle, RunRequest, RunState
from tradewind.utils.retries import Backoff

BROKEN = "the connection to node1 was lost: Broken pipe"


class Breaking(SlowRunner):
    """Its job is done at once; the connection breaks as often as ``breaks`` says while results are fetched."""

    def __init__(self, folder: Path, breaks: int, error: type[DeployError] = UnreachableError) -> None:
        super().__init__(folder, 0.0)
        self.ends = RunState.DONE
        self.breaks, self.kind = breaks, error
        self.fetched = 0

    def collect(self, handle: Handle, request: RunRequest) -> None:
        self.fetched += 1
        if self.fetched <= self.breaks:
            raise self.kind(BROKEN)
        request.folder.mkdir(parents=True, exist_ok=True)
        (request.folder / "stdout").write_text("the result")


Over = Callable[..., Deployer]


@pytest.fixture
def cloud(tmp_path: Path) -> SlowCloud:
    cloud = SlowCloud(settings=SimulatedSettings(boot=0.0, shutdown=0.0), data_folder=tmp_path / "data")
    cloud.pause = 0.0
    return cloud


@pytest.fixture
def over(tmp_path: Path, cloud: SlowCloud, monkeypatch: pytest.MonkeyPatch) -> Iterator[Over]:
    monkeypatch.setattr(run_lifecycle, "_BACKOFF", Backoff((0.02,)))
    monkeypatch.setattr(run_lifecycle, "_PAUSE_SECONDS", 0.01)
    made: list[Deployer] = []

    def deployer(runner: SlowRunner, hooks: Hooks | None = None) -> Deployer:
        billing = Billing(granularity_seconds=0.01)
        made.append(deployer_over(tmp_path, runner=runner, provisioner=cloud, hooks=hooks, billing=billing))
        return made[-1]

    yield deployer
    for each in made:
        each.close()


def test_results_are_fetched_again_where_the_connection_breaks(over: Over, tmp_path: Path) -> None:
    runner = Breaking(tmp_path, 3)
    deployer = over(runner)
    deployer.launch(row(), request_for(tmp_path, ("true",)))
    rows = drive(deployer)
    waiting = [each for each in rows if each.reason]
    assert {each.reason for each in waiting} == {f"its results are not here yet: {BROKEN}; trying again"}
    assert all(each.state is RunState.COLLECTING and each.machines for each in waiting)
    assert (rows[-1].state, rows[-1].reason, rows[-1].fault) == (RunState.DONE, "", None)
    assert (tmp_path / "runs" / "run-1" / "stdout").read_text() == "the result"
    # The machines are there, and paid for, all the while: a dollar a second.
    assert rows[-1].cost >= 3 * 0.02 and rows[-1].cost > waiting[0].cost
    assert runner.fetched == 4
    assert fleet(tmp_path) == {}


@pytest.mark.parametrize("bound", ["patience", "expiry", "machines"])
def test_results_are_not_waited_for_for_ever(
    bound: str, over: Over, cloud: SlowCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = Breaking(tmp_path, 1_000_000)
    request = request_for(tmp_path, ("true",))
    if bound == "patience":
        monkeypatch.setattr(run_lifecycle, "_PATIENCE_SECONDS", 0.1)
    elif bound == "expiry":
        request = replace(request, expires=time.time() + 0.3)
    deployer = over(runner)
    deployer.launch(row(), request)
    if bound == "machines":
        eventually(lambda: deployer.poll() and runner.fetched)

        def poll(clusters: list[Cluster]) -> dict[str, Cluster]:
            return {each.run_id: replace(each, state=ClusterState.FAILED) for each in clusters}

        monkeypatch.setattr(cloud, "poll", poll)
    ended = drive(deployer)[-1]
    assert (ended.state, ended.fault, ended.reason) == (RunState.FAILED, Fault.INFRASTRUCTURE, BROKEN)
    assert runner.fetched >= 2
    assert fleet(tmp_path) == {}


def test_what_another_attempt_does_not_mend_ends_the_run_at_once(over: Over, tmp_path: Path) -> None:
    runner = Breaking(tmp_path, 1, DeployError)
    deployer = over(runner)
    deployer.launch(row(), request_for(tmp_path, ("true",)))
    ended = drive(deployer)[-1]
    assert (ended.state, ended.reason, runner.fetched) == (RunState.FAILED, BROKEN, 1)


def test_a_stop_tries_for_the_results_for_a_while(over: Over, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_lifecycle, "_BACKOFF", Backoff((60.0,)))
    runner = Breaking(tmp_path, 3)
    deployer = over(runner)
    deployer.launch(row(), request_for(tmp_path, ("true",)))
    eventually(lambda: deployer.poll() and deployer.active["run-1"].reason)
    ended = deployer.cancel("run-1", "enough")
    assert ended is not None
    assert (ended.state, ended.reason, runner.fetched) == (RunState.DONE, "", 4)


def test_a_stop_gives_up_results_that_do_not_come(over: Over, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "_RESULTS_SECONDS", 0.1)
    runner = Breaking(tmp_path, 1_000_000)
    deployer = over(runner)
    deployer.launch(row(), request_for(tmp_path, ("true",)))
    eventually(lambda: deployer.poll() and runner.fetched)
    ended = deployer.cancel("run-1", "enough")
    assert ended is not None
    assert (ended.state, ended.fault, ended.reason) == (RunState.FAILED, Fault.INFRASTRUCTURE, BROKEN)


def test_a_stop_during_the_hook_after_it_fetches_nothing_again(over: Over, tmp_path: Path) -> None:
    """The hook may be at work on what has come."""
    at_it, stopped = threading.Event(), threading.Event()

    class Long(Hooks):
        def __bool__(self) -> bool:
            return True

        def has(self, moment: str) -> bool:
            return moment == "after_collecting"

        def run(self, *about: object) -> None:
            at_it.set()
            stopped.wait(60)

        def stop(self, run_id: str | None = None) -> None:
            stopped.set()

    runner = Breaking(tmp_path, 0)
    deployer = over(runner, Long())
    deployer.launch(row(), request_for(tmp_path, ("true",)))
    eventually(lambda: (deployer.poll(), at_it.is_set())[1])
    ended = deployer.cancel("run-1", "enough")
    assert ended is not None
    assert (ended.state, runner.fetched) == (RunState.DONE, 1)
