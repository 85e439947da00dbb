"""Slow provisioners and runners are called in threads: nothing waits for them, and nothing is left of them."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.deployer.helpers import OWNER, deployer_over, drive, request_for, row
from tests.waiting import eventually

from tradewind import plugins
from tradewind.deployer.lifecycle import deployer as lifecycle
from tradewind.deployer.lifecycle import run_lifecycle
from tradewind.deployer.lifecycle.deployer import Deployer
from tradewind.deployer.provisioner.base import Cluster, ClusterState, ReachableBySsh
from tradewind.deployer.provisioner.simulated import SimulatedProvisioner, SimulatedSettings
from tradewind.deployer.runner.base import Runner, SubmitsTogether
from tradewind.deployer.runner.process import ProcessRunner, ProcessSettings
from tradewind.errors import (
    CapacityError,
    CredentialsError,
    DeployError,
    TeardownError,
    TradewindError,
    UnreachableError,
)
from tradewind.plugins import CallsNetwork
from tradewind.problem import Fault, Handle, Machine, Offer, Run, RunRequest, RunState, RunStatus
from tradewind.testing.runners import processes_of
from tradewind.utils.retries import Backoff

PAUSE = 0.25


class SlowCloud(SimulatedProvisioner, CallsNetwork):
    """A simulated provider whose calls take their time, and may go wrong before or after they have done it."""

    pause = PAUSE
    before: Exception | None = None
    after: Exception | None = None
    refuses_to_destroy = 0

    def make(self, run_id: str, owner: str, expires: float, offer: Offer) -> Cluster:
        if self.before is not None:
            raise self.before
        time.sleep(self.pause / 2)
        made = super().make(run_id, owner, expires, offer)
        time.sleep(self.pause / 2)
        if self.after is not None:
            raise self.after
        return made

    def destroy(self, cluster: Cluster) -> Cluster:
        time.sleep(self.pause)
        if self.refuses_to_destroy > 0:
            self.refuses_to_destroy -= 1
            raise TeardownError("the provider says no")
        return super().destroy(cluster)


class SlowRunner(Runner, CallsNetwork):
    """An engine in memory whose calls take their time."""

    name = "slow"

    def __init__(self, folder: Path, pause: float = PAUSE) -> None:
        super().__init__(settings=plugins.Settings(), data_folder=folder)
        self.pause = pause
        self.lock = threading.Lock()
        self.jobs: dict[str, RunState] = {}
        self.submissions: list[str] = []
        self.error: Exception | None = None
        self.collects: Exception | None = None
        self.ends = RunState.EXECUTING
        self.threads: set[int] = set()

    def submit(self, request: RunRequest, machines: Sequence[Machine]) -> Handle:
        time.sleep(self.pause / 2)
        self.start(request.run_id)
        time.sleep(self.pause / 2)
        if self.error is not None:
            raise self.error
        return self.handle(request.run_id)

    def start(self, run_id: str) -> None:
        with self.lock:
            self.threads.add(threading.get_ident())
            if run_id not in self.jobs:
                self.submissions.append(run_id)
                self.jobs[run_id] = self.ends

    def handle(self, run_id: str) -> Handle:
        return Handle(run_id, self.name, {"owner": OWNER})

    def poll(self, handles: Sequence[Handle]) -> Mapping[str, RunStatus]:
        with self.lock:
            gone = RunStatus(RunState.PREEMPTED, reason="gone", fault=Fault.INFRASTRUCTURE)
            return {h.run_id: RunStatus(self.jobs[h.run_id]) if h.run_id in self.jobs else gone for h in handles}

    def wait(self, handles: Sequence[Handle], seconds: float) -> None:
        time.sleep(min(seconds, 0.005))

    def cancel(self, handle: Handle, reason: str = "") -> None:
        with self.lock:
            if self.jobs.get(handle.run_id) is RunState.EXECUTING:
                self.jobs[handle.run_id] = RunState.CANCELLED

    def find(self, owner: str | None) -> list[Handle]:
        with self.lock:
            return [self.handle(run_id) for run_id in self.jobs]

    def collect(self, handle: Handle, request: RunRequest) -> None:
        if self.collects is not None:
            raise self.collects

    def alive(self) -> list[str]:
        with self.lock:
            return [run_id for run_id, state in self.jobs.items() if not state.ended]


class Together(SlowRunner, SubmitsTogether):
    """The same engine, which takes many runs at once."""

    name = "together"

    def __init__(self, folder: Path, pause: float = PAUSE) -> None:
        super().__init__(folder, pause)
        self.calls: list[list[str]] = []
        self.refused: dict[str, TradewindError] = {}
        self.forgotten: set[str] = set()

    def submit_all(self, runs: Sequence[tuple[RunRequest, Sequence[Machine]]]) -> Mapping[str, Handle | TradewindError]:
        ids = [request.run_id for request, _ in runs]
        self.calls.append(ids)
        time.sleep(self.pause / 2)
        answers: dict[str, Handle | TradewindError] = {}
        for run_id in ids:
            if run_id in self.refused:
                answers[run_id] = self.refused[run_id]
                continue
            self.start(run_id)
            if run_id not in self.forgotten:
                answers[run_id] = self.handle(run_id)
        time.sleep(self.pause / 2)
        if self.error is not None:
            raise self.error
        return answers


Make = Callable[..., Deployer]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Deployer] = []

    def deployer(**parts: Any) -> Deployer:
        made.append(deployer_over(tmp_path, **parts))
        return made[-1]

    yield deployer
    for each in made:
        each.close()


@pytest.fixture
def cloud(tmp_path: Path) -> SlowCloud:
    return SlowCloud(settings=SimulatedSettings(boot=0), data_folder=tmp_path / "data")


def fleet(folder: Path) -> dict[str, Any]:
    file = folder / "data" / "simulated-fleet.json"
    found: dict[str, Any] = json.loads(file.read_text() or "{}") if file.exists() else {}
    return found


def until(deployer: Deployer, wanted: Callable[[], bool]) -> None:
    """Poll until something is so."""

    def look() -> bool:
        deployer.poll()
        return wanted()

    eventually(look)


def launch(deployer: Deployer, folder: Path, count: int) -> list[str]:
    names = [f"run-{i}" for i in range(count)]
    for name in names:
        deployer.launch(row(name), request_for(folder, ("true",), name))
    return names


@pytest.mark.slow
def test_nobody_waits_for_anybody(make: Make, tmp_path: Path, cloud: SlowCloud) -> None:
    runner = SlowRunner(tmp_path)
    deployer = make(provisioner=cloud, runner=runner)
    began = time.monotonic()
    names = launch(deployer, tmp_path, 8)
    assert time.monotonic() - began < 8 * PAUSE, "a launch waits for its own machines"
    until(deployer, lambda: all(run.state is RunState.EXECUTING for run in deployer.active.values()))
    assert time.monotonic() - began < 8 * PAUSE * 2, "they came one after the other"
    assert threading.get_ident() not in runner.threads
    for name in names:
        deployer.cancel(name, "enough")
    assert (fleet(tmp_path), runner.alive()) == ({}, [])


@pytest.mark.slow
def test_a_stop_does_not_wait_for_machines_to_be_made(make: Make, tmp_path: Path) -> None:
    given_up = threading.Event()

    class Slowest(SlowCloud):
        def make(self, run_id: str, owner: str, expires: float, offer: Offer) -> Cluster:
            super().make(run_id, owner, expires, offer)
            assert given_up.wait(60), "nobody said that it is not wanted any more"
            raise DeployError("it was given up")

        def abandon(self, run_id: str) -> None:
            assert run_id == "run-1"
            given_up.set()

    cloud = Slowest(settings=SimulatedSettings(boot=0.0, shutdown=0.0), data_folder=tmp_path / "data")
    deployer = make(provisioner=cloud, runner=SlowRunner(tmp_path))
    deployer.launch(row(), request_for(tmp_path, ("true",)))
    deployer.poll()
    ended = deployer.cancel("run-1", "enough")
    assert ended is not None and (ended.state, ended.reason) == (RunState.CANCELLED, "enough")
    assert fleet(tmp_path) == {}


@pytest.mark.slow
def test_a_stop_that_cannot_be_told_to_who_makes_machines_gives_them_back_when_they_are_there(
    make: Make, tmp_path: Path, cloud: SlowCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(run_id: str) -> None:
        raise UnreachableError("nobody answers")

    monkeypatch.setattr(cloud, "abandon", refuse)
    deployer = make(provisioner=cloud, runner=SlowRunner(tmp_path))
    deployer.launch(row(), request_for(tmp_path, ("true",)))
    deployer.poll()
    (going,) = deployer.abort({"run-1": "enough"})
    assert not going.state.ended
    until(deployer, lambda: not deployer.active)
    assert fleet(tmp_path) == {}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [SlowRunner, Together])
def test_a_stop_at_any_moment_leaves_nothing(
    kind: type[SlowRunner], make: Make, tmp_path: Path, cloud: SlowCloud
) -> None:
    chance = random.Random(kind.__name__)
    cloud.pause = 0.06
    runner = kind(tmp_path, 0.06)
    deployer = make(provisioner=cloud, runner=runner)
    seen = set()
    for turn in range(15):
        name = f"run-{turn}"
        deployer.launch(row(name), request_for(tmp_path, ("true",), name))
        end = time.monotonic() + chance.uniform(0.0, 0.25)
        while time.monotonic() < end:
            deployer.poll()
            time.sleep(0.002)
        seen.add(deployer.active[name].state)
        ended = deployer.cancel(name, "enough")
        assert ended is not None
        assert (ended.state, ended.reason, ended.machines) == (RunState.CANCELLED, "enough", ())
        assert (fleet(tmp_path), runner.alive()) == ({}, [])
        deployer.settle(name)
    assert len(seen) >= 2, "the stops came always at the same stage"
    assert len(runner.submissions) == len(set(runner.submissions))


@pytest.mark.parametrize(("crowded", "fault"), [(True, Fault.CAPACITY), (False, Fault.INFRASTRUCTURE)])
def test_machines_that_found_no_room_are_no_capacity(crowded: bool, fault: Fault, make: Make, tmp_path: Path) -> None:
    class Crowded(SlowCloud):
        def make(self, run_id: str, owner: str, expires: float, offer: Offer) -> Cluster:
            made = super().make(run_id, owner, expires, offer)
            return replace(made, state=ClusterState.FAILED, reason="nowhere to put it", crowded=crowded)

    full = Crowded(settings=SimulatedSettings(boot=0), data_folder=tmp_path)
    full.pause = 0.02
    deployer = make(provisioner=full, runner=SlowRunner(tmp_path))
    deployer.launch(row(), request_for(tmp_path, ("true",)))
    ended = drive(deployer)[-1]
    assert (ended.state, ended.fault) == (RunState.FAILED, fault)
    assert "nowhere to put it" in ended.reason
    assert fleet(tmp_path) == {}


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (CapacityError("no such machines now"), Fault.CAPACITY),
        (UnreachableError("no answer"), Fault.INFRASTRUCTURE),
        (DeployError("no such region", retryable=False), Fault.JOB),
        (ZeroDivisionError("a bug"), Fault.INFRASTRUCTURE),
    ],
)
@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_error_while_machines_are_made(
    moment: str, error: Exception, fault: Fault, make: Make, tmp_path: Path, cloud: SlowCloud
) -> None:
    cloud.pause = 0.02
    setattr(cloud, moment, error)
    deployer = make(provisioner=cloud, runner=SlowRunner(tmp_path))
    deployer.launch(row(), request_for(tmp_path, ("true",)))
    ended = drive(deployer)[-1]
    assert (ended.state, ended.fault) == (RunState.FAILED, fault)
    assert str(error).partition(" (")[0] in ended.reason
    assert fleet(tmp_path) == {}, "the answer was lost, and the machines were not"


@pytest.mark.parametrize("kind", [SlowRunner, Together])
def test_an_error_while_a_job_is_handed_over(
    kind: type[SlowRunner], make: Make, tmp_path: Path, cloud: SlowCloud
) -> None:
    cloud.pause = 0.02
    runner = kind(tmp_path, 0.02)
    runner.error = UnreachableError("the answer was lost")
    deployer = make(provisioner=cloud, runner=runner)
    deployer.launch(row(), request_for(tmp_path, ("true",)))
    ended = drive(deployer)[-1]
    assert (ended.state, ended.fault) == (RunState.FAILED, Fault.INFRASTRUCTURE)
    assert (fleet(tmp_path), runner.alive()) == ({}, [])


def test_an_error_while_a_job_that_is_stopped_is_handed_over(make: Make, tmp_path: Path, cloud: SlowCloud) -> None:
    cloud.pause = 0.02
    runner = SlowRunner(tmp_path)
    runner.error = UnreachableError("the answer was lost")
    deployer = make(provisioner=cloud, runner=runner)
    deployer.launch(row(), request_for(tmp_path, ("true",)))
    until(deployer, lambda: deployer.active["run-1"].state is RunState.SUBMITTING)
    ended = deployer.cancel("run-1", "enough")
    assert ended is not None
    assert (ended.state, ended.reason) == (RunState.CANCELLED, "enough")
    assert (fleet(tmp_path), runner.alive()) == ({}, [])


def test_many_are_handed_over_in_one_call(make: Make, tmp_path: Path) -> None:
    runner = Together(tmp_path, 0.02)
    runner.refused = {"run-1": DeployError("no such queue", retryable=False)}
    runner.forgotten = {"run-2"}
    deployer = make(runner=runner)
    launch(deployer, tmp_path, 5)
    ended: dict[str, Run] = {}

    def done() -> bool:
        ended.update({run.run_id: run for run in deployer.poll() if run.state.ended})
        running = [run for run in deployer.active.values() if run.state is RunState.EXECUTING]
        return len(ended) == 2 and len(running) == 3

    eventually(done)
    assert len(runner.calls) == 1 and len(runner.calls[0]) == 5
    assert (ended["run-1"].state, ended["run-1"].fault) == (RunState.FAILED, Fault.JOB)
    assert "no such queue" in ended["run-1"].reason
    # The engine has taken it and has not said so: it is found by its tag, and ended.
    assert (ended["run-2"].state, ended["run-2"].fault) == (RunState.FAILED, Fault.INFRASTRUCTURE)
    assert set(runner.alive()) == {"run-0", "run-3", "run-4"}
    for name in ("run-0", "run-3", "run-4"):
        deployer.cancel(name, "enough")


def test_refused_teardowns_are_tried_again(
    make: Make, tmp_path: Path, cloud: SlowCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tradewind.deployer.lifecycle.run_lifecycle._BACKOFF", Backoff((0.02,)))
    cloud.pause, cloud.refuses_to_destroy = 0.02, 3
    runner = SlowRunner(tmp_path, 0.02)
    runner.ends = RunState.DONE
    deployer = make(provisioner=cloud, runner=runner)
    monkeypatch.setattr("tradewind.deployer.lifecycle.run_lifecycle._REPEAT_SECONDS", 0.0)
    deployer.launch(row(), request_for(tmp_path, ("true",)))
    rows = drive(deployer)
    assert any("not given back yet: the provider says no" in each.reason for each in rows)
    assert (rows[-1].state, rows[-1].reason, fleet(tmp_path)) == (RunState.DONE, "", {})


@pytest.mark.parametrize("error", [UnreachableError("the host is gone"), ZeroDivisionError("a bug")])
def test_a_stop_of_what_has_just_ended_and_cannot_be_collected(
    make: Make, tmp_path: Path, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is an end like any other, and no error of who stops it."""
    monkeypatch.setattr(lifecycle, "_RESULTS_SECONDS", 0.0)
    runner = SlowRunner(tmp_path, 0.01)
    deployer = make(runner=runner)
    deployer.launch(row(), request_for(tmp_path, ("true",)))
    until(deployer, lambda: deployer.active["run-1"].state is RunState.EXECUTING)
    runner.collects = error
    runner.jobs["run-1"] = RunState.DONE
    ended = deployer.cancel("run-1", "enough")
    assert ended is not None
    assert (ended.state, ended.fault) == (RunState.FAILED, Fault.INFRASTRUCTURE)
    assert str(error) in ended.reason


@pytest.mark.parametrize("error", [None, UnreachableError("the host is gone")])
def test_a_stop_while_outputs_are_brought_waits_for_them(
    make: Make, tmp_path: Path, error: UnreachableError | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its output is what it was run for; without it, it would count as a run that went well and wrote nothing."""
    monkeypatch.setattr(lifecycle, "_RESULTS_SECONDS", 0.0)
    begun, brought = threading.Event(), threading.Event()

    class Copying(SlowRunner):
        def collect(self, handle: Handle, request: RunRequest) -> None:
            begun.set()
            time.sleep(0.3)
            if error is not None:
                raise error
            brought.set()

    runner = Copying(tmp_path, 0.01)
    runner.ends = RunState.DONE
    deployer = make(runner=runner)
    deployer.launch(row(), request_for(tmp_path, ("true",)))
    until(deployer, begun.is_set)
    assert deployer.active["run-1"].state is RunState.COLLECTING
    ended = deployer.cancel("run-1", "enough")
    assert ended is not None
    if error is None:
        assert (ended.state, brought.is_set()) == (RunState.DONE, True)
    else:
        assert (ended.state, ended.fault, ended.reason) == (RunState.FAILED, Fault.INFRASTRUCTURE, str(error))


class SlowProcess(ProcessRunner, CallsNetwork):
    """Processes of this machine, handed over slowly; the plain runner is for one thread only."""

    def __init__(self, *, settings: plugins.Settings, data_folder: Path) -> None:
        super().__init__(settings=settings, data_folder=data_folder)
        self.lock = threading.RLock()

    def submit(self, request: RunRequest, machines: Sequence[Machine]) -> Handle:
        time.sleep(0.05)
        with self.lock:
            handle = super().submit(request, machines)
        time.sleep(0.05)
        return handle

    def poll(self, handles: Sequence[Handle]) -> Mapping[str, RunStatus]:
        with self.lock:
            return super().poll(handles)

    def cancel(self, handle: Handle, reason: str = "") -> None:
        with self.lock:
            super().cancel(handle, reason)


def slow_deployer(folder: Path) -> Deployer:
    cloud = SlowCloud(settings=SimulatedSettings(boot=0.05), data_folder=folder / "data")
    cloud.pause = 0.1
    runner = SlowProcess(settings=ProcessSettings(), data_folder=folder / "data")
    return deployer_over(folder, provisioner=cloud, runner=runner)


_JOB = ("sh", "-c", "echo ran >> count-$TRADEWIND_RUN_ID; exec sleep 60")
_CONTROLLER = """
import sys, time
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.deployer.helpers import request_for, row
from tests.deployer.lifecycle.test_background_tasks import _JOB, slow_deployer
folder = Path({folder!r})
deployer = slow_deployer(folder)
print("ready", flush=True)
for i in range(4):
    print(f"run-{{i}}", flush=True)          # the row is stored before anything is created
    deployer.launch(row(f"run-{{i}}"), request_for(folder, _JOB, f"run-{{i}}"))
while True:
    deployer.poll()
    time.sleep(0.01)
"""


@pytest.mark.slow
def test_a_controller_that_is_killed_in_the_middle(tmp_path: Path) -> None:
    chance = random.Random(7)
    for turn in range(2):
        folder = tmp_path / str(turn)
        (folder / "work").mkdir(parents=True)
        code = _CONTROLLER.format(root=str(Path(__file__).parents[3]), folder=str(folder))
        environ = {**os.environ, "TRADEWIND_TEST_OWNER": OWNER}
        with subprocess.Popen([sys.executable, "-c", code], env=environ, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            time.sleep(chance.uniform(0.0, 0.6))
            os.kill(process.pid, signal.SIGKILL)
            known = process.stdout.read().split()
        deployer = slow_deployer(folder)
        adopted = [name for name in known if chance.random() < 0.5]
        deployer.sweep(set(adopted))
        for name in adopted:
            deployer.adopt(row(name), request_for(folder, _JOB, name))
        until(deployer, lambda d=deployer: all(r.state is RunState.EXECUTING for r in d.active.values()))  # type: ignore[misc]
        # What is not adopted is ended without being begun first, as by tradewind down.
        for name in known:
            end = deployer.cancel if name in adopted else None
            ended = end(name, "enough") if end else deployer.end(row(name), request_for(folder, _JOB, name), "enough")
            assert ended is not None and ended.state.ended
        # What a dying controller has asked for may begin a moment later, on a machine that is busy: a sweep finds it.
        eventually(lambda d=deployer, k=known: not d.sweep(set()) and not any(map(processes_of, k)))  # type: ignore[misc]
        assert fleet(folder) == {}
        for count in (folder / "work").glob("count-*"):
            assert count.read_text() == "ran\n", "a run was started twice"
        deployer.close()


class FarCloud(SlowCloud, ReachableBySsh):
    """Machines of their own: a job on them ends with them."""

    pause = 0.02


class Stubborn(SlowRunner):
    """Its jobs do not end when they are told to, or it is not let in to tell them."""

    denies: TradewindError | None = None

    def cancel(self, handle: Handle, reason: str = "") -> None:
        if self.denies is not None:
            raise self.denies


@pytest.mark.slow
@pytest.mark.parametrize("refuses", [None, CredentialsError("the machine does not let us in")])
def test_a_job_that_does_not_end_goes_with_its_machines(
    refuses: TradewindError | None, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_lifecycle, "_STUBBORN_SECONDS", 0.3)
    cloud = FarCloud(settings=SimulatedSettings(boot=0), data_folder=tmp_path / "data")
    runner = Stubborn(tmp_path, pause=0.0)
    runner.denies = refuses
    deployer = make(provisioner=cloud, runner=runner)
    deployer.launch(row(), request_for(tmp_path, ("true",)))
    until(deployer, lambda: runner.alive() == ["run-1"])
    ended = deployer.cancel("run-1", "enough")
    assert ended is not None
    assert (ended.state, ended.machines) == (RunState.CANCELLED, ())
    assert fleet(tmp_path) == {}


@pytest.mark.slow
def test_a_job_of_this_machine_is_never_left_running(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only machines of its own end a job: those of a simulated provider do not."""
    monkeypatch.setattr(run_lifecycle, "_STUBBORN_SECONDS", 0.05)
    monkeypatch.setattr(lifecycle, "_PATIENCE_SECONDS", 0.3)
    monkeypatch.setattr(SlowCloud, "patience_seconds", 0.3)
    cloud = SlowCloud(settings=SimulatedSettings(boot=0), data_folder=tmp_path / "data")
    runner = Stubborn(tmp_path, pause=0.0)
    deployer = make(provisioner=cloud, runner=runner)
    deployer.launch(row(), request_for(tmp_path, ("true",)))
    until(deployer, lambda: runner.alive() == ["run-1"])
    with pytest.raises(TeardownError, match="has not ended"):
        deployer.cancel("run-1", "enough")
    assert "run-1" in deployer.active
