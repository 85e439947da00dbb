"""Cut networks, and killed servers, watchers and controllers: nothing is lost, left behind or run twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from tests.deployer.runner.ssh import kills
from tests.deployer.runner.ssh.test_runner import HostsBench
from tests.engines.hosts import Hosts, hosts
from tests.waiting import eventually

from tradewind.deployer.runner.ssh.runner import SshRunner
from tradewind.errors import UnreachableError
from tradewind.problem import Fault, Handle, Machine, RunRequest, RunState
from tradewind.testing.runners import ALIVE, OWNER_A, poll_until, processes_of, wait_for_end

pytestmark = pytest.mark.xdist_group("ssh")

__all__ = ["hosts"]


@pytest.fixture
def three(tmp_path: Path, hosts: Hosts) -> Iterator[HostsBench]:
    made = HostsBench(tmp_path, hosts)
    yield made
    for name in hosts.names:
        hosts.mend(name)
    made.close()


def _first(three: HostsBench) -> list[Machine]:
    return list(three.machines())[:1]


def _counting(three: HostsBench, seconds: float, run_id: str = "run-1") -> RunRequest:
    script = f"echo ran >>{three.folder}/count-{run_id}; sleep {seconds}; echo out"
    return replace(three.request("good", run_id), argv=("sh", "-c", script))


def _once(three: HostsBench, run_id: str = "run-1") -> bool:
    return (three.folder / f"count-{run_id}").read_text() == "ran\n"


def _submit_at_last(runner: SshRunner, request: RunRequest, machines: list[Machine]) -> Handle:
    end = time.monotonic() + 60
    while True:
        try:
            return runner.submit(request, machines)
        except UnreachableError:
            assert time.monotonic() < end


@pytest.mark.slow
def test_a_network_that_is_cut_while_a_run_is_submitted(three: HostsBench) -> None:
    runner = three.make()
    three._made.append(runner)
    hosts, chance = three.hosts, random.Random(3)
    hosts.cut("h1")
    began = time.monotonic()
    with pytest.raises(UnreachableError):
        runner.submit(_counting(three, 0.1), _first(three))
    assert time.monotonic() - began < 20
    assert runner.find(OWNER_A) == [], "nobody was ever asked to start it"
    hosts.mend("h1")
    first = _submit_at_last(runner, _counting(three, 0.1, "first"), _first(three))
    assert wait_for_end(runner, first).state is RunState.DONE
    runner.forget(first)
    eventually(lambda: hosts.is_empty("h1", f"{three.far}/runs"))
    time.sleep(0.2)  # and that was answered
    hosts.cut("h1")
    with pytest.raises(UnreachableError):
        runner.submit(_counting(three, 0.1), _first(three))
    # It may be there or not: it is looked for, and counts as alive, until it has certainly expired.
    [handle] = runner.find(OWNER_A)
    assert runner.poll([handle])["run-1"].state is RunState.EXECUTING
    old = Handle("run-1", "ssh", {**handle.data, "expires": time.time() - 61})
    assert runner.poll([old])["run-1"].state is RunState.PREEMPTED
    runner._ended.clear()
    hosts.mend("h1")
    for turn in range(3):
        run_id = f"run-{turn}"
        cutter = threading.Timer(chance.uniform(0.0, 0.3), hosts.cut, ["h1"])
        mender = threading.Timer(1.0, hosts.mend, ["h1"])
        cutter.start()
        mender.start()
        handle = _submit_at_last(runner, _counting(three, 0.1, run_id), _first(three))
        cutter.join()
        mender.join()
        hosts.mend("h1")
        assert wait_for_end(runner, handle).state is RunState.DONE
        assert _once(three, run_id)


def test_a_submission_that_has_only_begun_is_waited_for(three: HostsBench) -> None:
    """The controller was killed, and the far side has made the run's folder and nothing in it yet."""
    first, request = three.make(), _counting(three, 0.1)
    three._made.append(first)
    handle = first.submit(request, _first(three))
    assert wait_for_end(first, handle).state is RunState.DONE
    first.forget(handle)
    eventually(lambda: three.hosts.is_empty("h1", f"{three.far}/runs"))
    (three.folder / "count-run-1").unlink()
    three.hosts.run("h1", ["mkdir", f"{three.far}/runs/run-1"]).check_returncode()
    next_one = three.runner()
    for _ in range(2):
        assert next_one.poll([handle])["run-1"].state in ALIVE
        time.sleep(0.5)
    assert wait_for_end(next_one, next_one.submit(request, _first(three))).state is RunState.DONE
    assert _once(three)


def test_files_that_cannot_be_unpacked_there_are_one_clear_error(three: HostsBench) -> None:
    runner, machines = three.runner(), _first(three)
    first = runner.submit(_counting(three, 0.1), machines)
    assert wait_for_end(runner, first).state is RunState.DONE
    spoil = f"for file in {three.far}/bundles/*.tar; do echo spoilt >$file; done"
    three.hosts.run("h1", ["sh", "-c", spoil]).check_returncode()
    status = wait_for_end(runner, runner.submit(_counting(three, 0.1, "run-2"), machines))
    assert (status.state, status.fault) == (RunState.FAILED, Fault.INFRASTRUCTURE)
    assert "cannot be unpacked" in status.reason
    assert not (three.folder / "count-run-2").exists()


@pytest.mark.slow
def test_a_network_that_is_cut_while_a_run_runs(three: HostsBench) -> None:
    runner, hosts = three.runner(), three.hosts
    request = _counting(three, 2.0)
    handle = runner.submit(request, _first(three))
    poll_until(runner, handle, lambda status: status.state is RunState.EXECUTING)
    hosts.cut("h1")
    for _ in range(2):
        began = time.monotonic()
        assert runner.poll([handle])["run-1"].state is RunState.EXECUTING
        assert time.monotonic() - began < 6
    with pytest.raises(UnreachableError):
        runner.collect(handle, request)
    runner.cancel(Handle("run-2", "ssh", {**handle.data, "name": "run-2"}))
    hosts.mend("h1")
    assert wait_for_end(runner, handle).state is RunState.DONE
    runner.collect(handle, request)
    assert (request.folder / "stdout").read_text() == "out\n"
    assert _once(three)


@pytest.mark.slow
def test_a_network_that_is_cut_while_results_come_back(three: HostsBench) -> None:
    runner, hosts = three.runner(), three.hosts
    script = "head -c 60000000 /dev/urandom >$TRADEWIND_OUTPUTS/big"
    request = replace(three.request("good"), argv=("sh", "-c", script))
    handle = runner.submit(request, _first(three))
    assert wait_for_end(runner, handle).state is RunState.DONE
    cutter = threading.Timer(0.15, hosts.cut, ["h1"])
    cutter.start()
    with pytest.raises(UnreachableError):
        runner.collect(handle, request)
    cutter.join()
    assert not (request.folder / "outputs/big").exists()
    hosts.mend("h1")
    end = time.monotonic() + 60
    while not (request.folder / "outputs/big").exists():
        try:
            runner.collect(handle, request)
        except UnreachableError:
            assert time.monotonic() < end
    assert (request.folder / "outputs/big").stat().st_size == 60_000_000


def test_a_killed_server_takes_no_run_with_it(three: HostsBench) -> None:
    runner, hosts = three.runner(), three.hosts
    handle = runner.submit(_counting(three, 1.5), _first(three))
    poll_until(runner, handle, lambda status: status.state is RunState.EXECUTING)
    hosts.stop_sshd("h1")
    try:
        assert runner.poll([handle])["run-1"].state is RunState.EXECUTING
        began = time.monotonic()
        runner.wait([handle], 30)
        assert time.monotonic() - began < 5, "nobody would tell of its end"
    finally:
        hosts.start_sshd("h1")
    assert wait_for_end(runner, handle).state is RunState.DONE
    assert _once(three)


@pytest.mark.parametrize("also", ["", "job"])
def test_a_killed_watcher_is_the_infrastructures_fault_and_leaves_nothing(three: HostsBench, also: str) -> None:
    runner = three.runner()
    handle = runner.submit(_counting(three, 60), _first(three))
    poll_until(runner, handle, lambda status: status.runtime > 0.3)
    claim = three.hosts.run("h1", ["readlink", f"{three.far}/runs/run-1/claim"]).stdout.decode()
    os.kill(int(claim.split(":")[2]), signal.SIGKILL)
    if also:
        for process in processes_of("run-1"):
            process.kill()
    status = wait_for_end(runner, handle)
    assert (status.state, status.fault) == (RunState.PREEMPTED, Fault.INFRASTRUCTURE)
    assert status.runtime > 0.1
    assert processes_of("run-1") == []
    runner.forget(handle)
    eventually(lambda: three.hosts.is_empty("h1", f"{three.far}/runs"))


@pytest.mark.parametrize("since", ["", " 1"])
def test_another_session_with_the_jobs_number_is_left_alone(three: HostsBench, since: str) -> None:
    runner = three.runner()
    handle = runner.submit(_counting(three, 60), _first(three))
    poll_until(runner, handle, lambda status: status.runtime > 0.3)
    claim = three.hosts.run("h1", ["readlink", f"{three.far}/runs/run-1/claim"]).stdout.decode()
    bystander = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        # Long after the job, its number is somebody else's.
        three.hosts.run("h1", ["sh", "-c", f"echo '{bystander.pid}{since}' >{three.far}/runs/run-1/leader"])
        os.kill(int(claim.split(":")[2]), signal.SIGKILL)
        assert wait_for_end(runner, handle).state is RunState.PREEMPTED
        runner.forget(handle)
        eventually(lambda: three.hosts.is_empty("h1", f"{three.far}/runs"))
        assert bystander.poll() is None
        assert processes_of("run-1") == []
    finally:
        bystander.kill()
        bystander.wait()


@pytest.mark.slow
def test_one_silent_machine_does_not_hold_up_the_others(three: HostsBench) -> None:
    runner = three.runner()
    handles = [
        runner.submit(_counting(three, seconds, f"run-{i}"), [machine])
        for i, (seconds, machine) in enumerate(zip((60, 0.1, 0.1), three.machines(), strict=True))
    ]
    three.hosts.cut("h1")
    began = time.monotonic()
    for handle in handles[1:]:
        assert wait_for_end(runner, handle).state is RunState.DONE
    assert runner.poll(handles)["run-0"].state is RunState.EXECUTING
    assert time.monotonic() - began < 20
    three.hosts.mend("h1")
    runner.cancel(handles[0])
    assert wait_for_end(runner, handles[0]).state is RunState.CANCELLED


def test_a_conversation_that_ended_leaves_nobody_listening(three: HostsBench) -> None:
    runner = three.runner()
    handle = runner.submit(_counting(three, 0.1), _first(three))
    assert wait_for_end(runner, handle).state is RunState.DONE
    runner.close()
    eventually(lambda: three.hosts.is_empty("h1", f"{three.far}/listeners"))
    serving = [p for p in psutil.process_iter(["cmdline"]) if "serve" in (p.info["cmdline"] or [])[-1:]]
    assert serving == []


@pytest.mark.slow
def test_killed_controllers_lose_leave_and_repeat_nothing(hosts: Hosts, tmp_path: Path) -> None:
    chance = random.Random(7)
    stages = (*kills.STAGES[1::2], kills.STAGES[0], "", "", "")
    launched = [kills.kill_once(tmp_path / str(turn), hosts, stage, chance) for turn, stage in enumerate(stages)]
    assert sum(launched) > len(stages)
