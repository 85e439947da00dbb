"""Runs whose machines are taken go on from their checkpoint on others."""

from __future__ import annotations

import errno
import os
import shutil
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.deployer.helpers import deployer_over, drive, python, request_for, row
from tests.deployer.lifecycle.test_lost_machines import cloud
from tests.waiting import eventually

from tradewind.deployer.checkpoints import CheckpointStore
from tradewind.deployer.lifecycle import checkpoint_keeper
from tradewind.deployer.lifecycle.deployer import Deployer
from tradewind.deployer.provisioner.base import Cluster, ClusterState
from tradewind.deployer.runner.base import FolderCheckpoints
from tradewind.problem import CheckpointPlan, Fault, Handle, RunRequest, RunState
from tradewind.utils.clock import SimulatedClock

COUNTS = """
import os, time
place = os.environ["TRADEWIND_CHECKPOINT"]
name = os.path.join(place, "step")
step = int(open(name).read()) if os.path.exists(name) else 0
print("from", step, flush=True)
with open(name + ".part", "w") as part:
    part.write(str(step + 1))
os.replace(name + ".part", name)
while step == 0 or os.environ.get("FAILS") == "no end":
    time.sleep(0.05)
raise SystemExit(int(os.environ.get("FAILS", "0")))
"""
"""Goes on for ever at its first start, and ends at its second."""


@pytest.fixture
def plan(tmp_path: Path) -> CheckpointPlan:
    return CheckpointPlan(tmp_path / "checkpoints" / "00000", 0.2)


def request_of(tmp_path: Path, plan: CheckpointPlan, run_id: str, **changes: Any) -> RunRequest:
    return request_for(tmp_path, python(COUNTS), run_id, checkpoint=plan, **changes)


def taken(tmp_path: Path, plan: CheckpointPlan, deployer: Deployer, run_id: str, **changes: Any) -> Any:
    """Launch a run, and take its machine when its checkpoint has been copied; its ended row."""
    deployer.launch(row(run_id), request_of(tmp_path, plan, run_id, **changes))
    eventually(lambda: deployer.poll() is not None and CheckpointStore(plan.folder).latest() is not None)
    cloud(tmp_path).destroy(Cluster(run_id, ClusterState.UNKNOWN))
    return drive(deployer, run_id)[-1]


def said(tmp_path: Path, run_id: str) -> str:
    return (tmp_path / "runs" / run_id / "stdout").read_text()


def test_the_next_run_goes_on_where_the_one_before_was_taken(tmp_path: Path, plan: CheckpointPlan) -> None:
    deployer = deployer_over(tmp_path, provisioner=cloud(tmp_path))
    first = taken(tmp_path, plan, deployer, "run-1")
    assert (first.state, first.fault, first.usage.resumed_seconds) == (
        RunState.PREEMPTED,
        Fault.INFRASTRUCTURE,
        0.0,
    )
    assert first.cost > 0
    saved = CheckpointStore(plan.folder).latest()
    assert saved is not None
    assert 0.0 < saved.seconds <= first.runtime
    deployer.launch(row("run-2"), request_of(tmp_path, plan, "run-2"))
    last = drive(deployer, "run-2")[-1]
    assert (last.state, last.usage.resumed_seconds) == (RunState.DONE, saved.seconds)
    assert said(tmp_path, "run-2") == "from 1\n"
    assert CheckpointStore(plan.folder).latest() is None, "the trial has its end"
    left = [path for path in tmp_path.rglob("checkpoint") if path.is_dir()]
    assert left == [], "no run's own folder is needed any more: they would fill the disk"
    deployer.close()


def test_a_program_that_fails_by_itself_begins_anew(tmp_path: Path, plan: CheckpointPlan) -> None:
    deployer = deployer_over(tmp_path, provisioner=cloud(tmp_path))
    taken(tmp_path, plan, deployer, "run-1")
    deployer.launch(row("run-2"), request_of(tmp_path, plan, "run-2", env={"FAILS": "3"}))
    last = drive(deployer, "run-2")[-1]
    assert (last.state, last.fault) == (RunState.FAILED, Fault.JOB)
    assert CheckpointStore(plan.folder).latest() is None
    deployer.close()


def test_a_killed_controller_knows_what_a_run_was_saved(tmp_path: Path, plan: CheckpointPlan) -> None:
    deployer = deployer_over(tmp_path, provisioner=cloud(tmp_path))
    taken(tmp_path, plan, deployer, "run-1")
    request = request_of(tmp_path, plan, "run-2", env={"FAILS": "no end"})
    deployer.launch(row("run-2"), request)
    eventually(lambda: deployer.poll() and deployer.active["run-2"].state is RunState.EXECUTING)
    saved = deployer.active["run-2"].usage.resumed_seconds
    assert saved > 0.0
    deployer.close()
    second = deployer_over(tmp_path, provisioner=cloud(tmp_path))
    second.adopt(row("run-2"), request)
    eventually(lambda: second.poll() is not None and second.active["run-2"].state is RunState.EXECUTING)
    assert second.active["run-2"].usage.resumed_seconds == saved
    ended = second.cancel("run-2", "enough")
    assert ended is not None
    assert ended.usage.resumed_seconds == saved
    assert CheckpointStore(plan.folder).latest() is not None, "the user may go on with it"
    second.close()


def test_a_run_that_is_given_up_keeps_none(tmp_path: Path, plan: CheckpointPlan) -> None:
    deployer = deployer_over(tmp_path, provisioner=cloud(tmp_path))
    deployer.launch(row("run-1"), request_of(tmp_path, plan, "run-1"))
    eventually(lambda: deployer.poll() is not None and CheckpointStore(plan.folder).latest() is not None)
    deployer.abort({"run-1": "it can no longer win"})
    assert drive(deployer, "run-1")[-1].state is RunState.CANCELLED
    assert CheckpointStore(plan.folder).latest() is None
    deployer.close()


SAVES_LAST = """
import os, signal, sys, time
name = os.path.join(os.environ["TRADEWIND_CHECKPOINT"], "step")
if os.path.exists(name):
    print("from", open(name).read(), flush=True)
    sys.exit(0)

def save(number, frame):
    with open(name, "w") as file:
        file.write("the last moment")
    sys.exit(1)

signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
while True:
    time.sleep(0.05)
"""


@pytest.mark.slow
def test_a_run_that_is_run_again_may_save_what_it_has_when_it_is_told_to_end(tmp_path: Path) -> None:
    plan = CheckpointPlan(tmp_path / "checkpoints" / "00000", 600.0)  # nothing is copied while it runs
    deployer = deployer_over(tmp_path)
    deployer.launch(row("run-1"), request_for(tmp_path, python(SAVES_LAST), "run-1", checkpoint=plan))
    eventually(lambda: deployer.poll() is not None and "ready" in _said_so_far(tmp_path, "run-1"))
    deployer.abort({"run-1": "taken for tenant physics"}, repeats=True)
    ended = drive(deployer, "run-1")[-1]
    assert (ended.state, ended.reason) == (RunState.CANCELLED, "taken for tenant physics")
    deployer.launch(row("run-2"), request_for(tmp_path, python(SAVES_LAST), "run-2", checkpoint=plan))
    assert drive(deployer, "run-2")[-1].state is RunState.DONE
    assert said(tmp_path, "run-2") == "from the last moment\n"
    deployer.close()


@pytest.mark.parametrize("quiet", [0.0, 600.0])
def test_what_an_interrupted_run_has_left_is_copied_unless_it_was_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quiet: float
) -> None:
    """Nothing is copied while it runs; a file that was written just before the end may be a half one."""
    monkeypatch.setattr(checkpoint_keeper, "_QUIET", quiet)
    plan = CheckpointPlan(tmp_path / "checkpoints" / "00000", 600.0)
    deployer = deployer_over(tmp_path)
    monkeypatch.setattr(checkpoint_keeper.CheckpointKeeper, "look", lambda *_: None)
    deployer.launch(row("run-1"), request_of(tmp_path, plan, "run-1"))
    eventually(lambda: deployer.poll() is not None and (tmp_path / "runs/run-1/checkpoint/step").exists())
    ended = deployer.cancel("run-1", "enough")
    assert ended is not None and ended.state is RunState.CANCELLED
    saved = CheckpointStore(plan.folder).latest()
    assert (saved is not None) == (quiet == 0.0)
    assert saved is None or (saved.files / "step").read_text() == "1"
    deployer.close()


class Folders(FolderCheckpoints):
    """A runner of whose runs this machine sees the folder."""

    def __init__(self, clock: SimulatedClock, parent: Path) -> None:
        self.clock, self._parent = clock, parent

    def checkpoint_parent(self, handle: Handle) -> Path:
        return self._parent


@pytest.mark.parametrize("told", [False, True])
def test_the_time_in_a_queue_is_no_work_and_keeps_no_copy_from_being_taken(tmp_path: Path, told: bool) -> None:
    """It was submitted 1,000 s before its program began; that ran for 60 s, and wrote after 30 of them."""
    clock, parent = SimulatedClock(5_000.0), tmp_path / "runs" / "run-1"
    runner: Any = Folders(clock, parent)
    plan = CheckpointPlan(tmp_path / "checkpoints" / "00000", 600.0)
    request = request_of(tmp_path, plan, "run-1")
    keeper = checkpoint_keeper.CheckpointKeeper(runner, request, lambda work: Future())
    (parent / "checkpoint").mkdir(parents=True)
    run = replace(row("run-1"), handle=Handle("run-1", "folders"), started=4_000.0)
    keeper.look(replace(run, runtime=0.0))
    (parent / "checkpoint" / "step").write_text("1")
    os.utime(parent / "checkpoint" / "step", (5_030.0, 5_030.0))
    keeper.save_last(replace(run, runtime=60.0), told=told)
    saved = CheckpointStore(plan.folder).latest()
    assert saved is not None and saved.seconds == pytest.approx(30.0)


def _said_so_far(tmp_path: Path, run_id: str) -> str:
    path = tmp_path / "runs" / run_id / "stdout"
    return path.read_text() if path.exists() else ""


def test_without_a_plan_there_is_no_folder(tmp_path: Path) -> None:
    deployer = deployer_over(tmp_path)
    code = "import os; print(os.environ.get('TRADEWIND_CHECKPOINT'))"
    deployer.launch(row(), request_for(tmp_path, python(code)))
    assert drive(deployer)[-1].state is RunState.DONE
    assert said(tmp_path, "run-1") == "None\n"
    deployer.close()


def test_another_trial_goes_on_from_where_one_has_ended(tmp_path: Path) -> None:
    parent = tmp_path / "checkpoints"
    code = (
        "import os, pathlib\n"
        "place = pathlib.Path(os.environ['TRADEWIND_CHECKPOINT'], 'state')\n"
        "print('from', place.read_text() if place.exists() else 'nothing')\n"
        "place.write_text(os.environ['TRADEWIND_RUN_ID'])\n"
    )
    first, second = (CheckpointPlan(parent / name, 60.0, kept=True) for name in ("00000", "00001"))
    deployer = deployer_over(tmp_path)
    for name, plan in (
        ("run-1", first),
        ("run-2", replace(second, origin=first.folder)),
        ("run-3", CheckpointPlan(parent / "00002", 60.0, origin=second.folder)),
        ("run-4", CheckpointPlan(parent / "00003", 60.0, origin=parent / "00002")),
    ):
        deployer.launch(row(name), request_for(tmp_path, python(code), name, checkpoint=plan))
        assert drive(deployer, name)[-1].state is RunState.DONE
    said_by = [said(tmp_path, f"run-{number}").strip() for number in (1, 2, 3, 4)]
    assert said_by == ["from nothing", "from run-1", "from run-2", "from nothing"]
    for plan, text in ((first, "run-1"), (second, "run-2")):
        saved = CheckpointStore(plan.folder).latest()
        assert saved is not None and (saved.files / "state").read_text() == text
    assert CheckpointStore(parent / "00002").latest() is None, "that one was not to be kept"
    deployer.close()


def saved_by_another(folder: Path) -> CheckpointStore:
    def copy(place: Path) -> float:
        place.mkdir()
        (place / "step").write_text("1")
        return 5.0

    store = CheckpointStore(folder)
    store.add(copy)
    return store


@pytest.mark.parametrize("whose", ["its own", "that of another trial"])
def test_a_checkpoint_that_may_not_be_read_is_one_line_and_costs_no_machine(
    tmp_path: Path, plan: CheckpointPlan, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    origin = tmp_path / "checkpoints" / "00009"
    store = saved_by_another(plan.folder if whose == "its own" else origin)
    deployer = deployer_over(tmp_path, provisioner=cloud(tmp_path))
    request = request_of(tmp_path, replace(plan, origin=origin), "run-1")
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda *_: False)  # to root all files are open
        deployer.launch(row("run-1"), request)
        ended = drive(deployer, "run-1")[-1]
    assert (ended.state, ended.fault, ended.cost) == (RunState.FAILED, Fault.PREREQUISITE, 0.0)
    assert ended.reason.startswith(f"a checkpoint cannot be read: permission denied: {tmp_path}/checkpoints/0000")
    assert store.latest() is not None, "it is not ours to remove"
    deployer.close()


def test_a_disk_that_has_no_room_for_the_checkpoint_to_begin_at_is_one_line(
    tmp_path: Path, plan: CheckpointPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    saved_by_another(tmp_path / "checkpoints" / "00009")
    deployer = deployer_over(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copy2", full)
        deployer.launch(
            row("run-1"), request_of(tmp_path, replace(plan, origin=tmp_path / "checkpoints" / "00009"), "run-1")
        )
        ended = drive(deployer, "run-1")[-1]
    assert (ended.state, ended.fault) == (RunState.FAILED, Fault.INFRASTRUCTURE)
    words = "the checkpoint that it begins at cannot be copied: no space left on device"
    assert ended.reason == f"{words}: {plan.folder}"
    deployer.close()
