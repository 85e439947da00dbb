"""Wardens that nobody needs any more: waited for, or kept for the next runner."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest
from tests.deployer.helpers import process_runner, python, request_for
from tests.waiting import eventually

from tradewind.deployer.runner.process import ProcessRunner
from tradewind.deployer.runner.warden import client as warden_client
from tradewind.problem import RunState
from tradewind.testing.runners import wait_for_end


@pytest.fixture
def keeps() -> Iterator[None]:
    """This process keeps one warden."""
    warden_client.keep_wardens(1)
    yield
    warden_client.keep_wardens(0)
    for idle in tuple(warden_client._IDLE):
        warden_client._IDLE.remove(idle)
        idle.let_go()


def run(folder: Path, name: str, program: str = "pass", *, wait: bool = True) -> tuple[ProcessRunner, int]:
    """A runner that has carried a run out, and its warden."""
    runner = process_runner(folder)
    request = request_for(folder, python(program), name)
    handle = runner.submit(request, [])
    if wait:
        assert wait_for_end(runner, handle).state is RunState.DONE
    pid: int = json.loads((request.folder / "started.json").read_text())["warden"][0]
    return runner, pid


def zombies() -> set[int]:
    """Children of this process that have ended, and were not waited for."""
    mine = psutil.Process().children()
    return {child.pid for child in mine if child.status() == psutil.STATUS_ZOMBIE}


def has_ended(pid: int) -> bool:
    return not psutil.pid_exists(pid) or pid in zombies()


@pytest.mark.slow
def test_a_warden_that_has_ended_does_not_stay_in_the_table_of_processes(tmp_path: Path) -> None:
    """A server that makes a runner for each request would have used up all numbers one day."""
    before = zombies()
    for number in range(3):
        runner, pid = run(tmp_path, f"r{number}")
        runner.close()
        eventually(partial(has_ended, pid))
    last, pid = run(tmp_path, "last")
    last.close()
    assert zombies() - before <= {pid}


@pytest.mark.usefixtures("keeps")
def test_the_next_runner_gets_the_warden_that_waits(tmp_path: Path) -> None:
    first, pid = run(tmp_path, "a")
    first.close()
    second, same = run(tmp_path, "b")
    assert same == pid
    second.close()


@pytest.mark.usefixtures("keeps")
def test_one_that_was_killed_meanwhile_is_replaced(tmp_path: Path) -> None:
    first, pid = run(tmp_path, "a")
    first.close()
    os.kill(pid, signal.SIGKILL)
    second, other = run(tmp_path, "b")
    assert other != pid
    second.close()


@pytest.mark.slow
@pytest.mark.usefixtures("keeps")
def test_one_that_has_a_job_is_not_kept_for_others(tmp_path: Path) -> None:
    first, pid = run(tmp_path, "a", "import time; time.sleep(1.0)", wait=False)
    first.close()
    assert warden_client._IDLE == []
    second, other = run(tmp_path, "b")
    assert other != pid
    second.close()
    eventually(partial(has_ended, pid))


def test_what_was_cancelled_ends_also_where_the_warden_never_reads_the_order(tmp_path: Path) -> None:
    """A warden that tells somebody who has gone of one end reads no further orders: the other runs went on for ever."""
    runner = process_runner(tmp_path)
    handles = [runner.submit(request_for(tmp_path, python("import time; time.sleep(600)"), name), []) for name in "ab"]
    notes = [tmp_path / "runs" / name / "pid.json" for name in "ab"]
    eventually(lambda: all(note.exists() for note in notes))
    pids = [json.loads(note.read_text())["pid"] for note in notes]
    assert runner._warden is not None
    (tmp_path / "runs" / "b" / "cancel").write_text("nobody needs it")  # as `cancel` does before it sends the order
    os.close(runner._warden._read)
    runner._warden.send({"op": "cancel", "run_id": handles[0].run_id, "reason": "", "grace": 0.1})
    eventually(lambda: all(has_ended(pid) for pid in pids))
    told = tmp_path / "runs" / "b" / "result.json"
    eventually(told.exists)
    result = json.loads(told.read_text())
    assert (result["state"], result["reason"]) == ("cancelled", "nobody needs it")
    os.close(runner._warden._write)
