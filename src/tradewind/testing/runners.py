"""Conformance suite of runners: inherit `RunnerConformance`, give the fixture ``bench``, and pytest does the rest."""

from __future__ import annotations

import copy
import json
import os
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tradewind.deployer.checkpoints import CheckpointLook, CheckpointStore
from tradewind.deployer.runner.base import (
    HasOwnFiles,
    KeepsCheckpoints,
    LimitsCpu,
    LimitsMemory,
    LimitsTime,
    Runner,
    Simulates,
)
from tradewind.deployer.runner.handle import HandleData
from tradewind.deployer.staging import stage_out
from tradewind.errors import MissingProgramError
from tradewind.problem import (
    CheckpointPlan,
    Configuration,
    Fault,
    Handle,
    Limits,
    Machine,
    Offer,
    RunRequest,
    RunState,
    RunStatus,
)
from tradewind.utils.log_copies import GAP_LINES

PATIENCE_SECONDS = 60.0
"""How long a test waits for a run, in real time; a loaded machine is slow."""

ALIVE = (RunState.SUBMITTING, RunState.EXECUTING)
"""The states of a run that an engine has taken and not ended; `RunState.SUBMITTING` while it waits in a queue."""

OWNER_A, OWNER_B = (f"owner-{letter}-{os.getpid()}" for letter in "ab")
"""Owners of the suite's runs; two test sessions on one machine do not see each other's."""

HOG_BYTES = 256 * 2**20
"""What the job ``hog`` takes."""

AWKWARD = (
    "$(echo no) `echo no` ; echo no | cat & # ",
    "' \" \\ %s ${HOME} ~ * ? {a,b} !! <a >b",
    "two\nlines",
    "",
    "héé 漢字",
)
"""Arguments that a shell, a template or an engine's own language would change."""

_HOG = f"import time\nx = b'x' * {HOG_BYTES}\ntime.sleep({PATIENCE_SECONDS})"
_FLOOD = f"""
setsid sleep {PATIENCE_SECONDS} >/dev/null 2>&1 &
echo begin
i=1
while [ $i -lt 10000 ]; do echo "line $i"; i=$((i + 1)); done
echo "score: 0.93"
"""
_STUBBORN = f"""
trap 'echo asked' TERM
echo begun
i=0
while [ $i -lt {10 * PATIENCE_SECONDS:.0f} ]; do sleep 0.1; i=$((i + 1)); done
"""
_BUSY = """
import sys, time
x = bytearray(64 << 20)
end = time.process_time() + 0.3
while time.process_time() < end:
    pass
sys.exit(3)
"""
_CPUS = "import os; print(len(os.sched_getaffinity(0)))"


class RunnerBench(ABC):
    """Makes runners and requests for the suite, and waits for runs.

    Args:
        folder: An empty folder of the test's own.

    Attributes:
        python: The Python interpreter where the job runs.
        wall_seconds: The time limit that the suite gives to a run; an engine may know whole seconds only.
        keeps_logs: False for a runner that leaves the logs of a job to somebody else.
        measures: False for a runner that does not know what a run used.
    """

    python = sys.executable
    wall_seconds = 0.3
    keeps_logs = True
    measures = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._made: list[Runner] = []

    def machines(self) -> Sequence[Machine]:
        """The machines that runs are submitted to."""
        return ()

    def submit(self, runner: Runner, request: RunRequest) -> Handle:
        """Submit a run to the bench's machines."""
        return runner.submit(request, self.machines())

    def left(self, run_id: str) -> Sequence[object]:
        """List what still lives of a run: processes, containers, jobs of the engine."""
        return processes_of(run_id)

    def count(self, request: RunRequest) -> int:
        """Count how often the job ``good`` of a request has run."""
        return (request.workdir / "count").read_text().count("ran\n")

    @abstractmethod
    def make(self) -> Runner:
        """Another object of the runner, over the same data folder."""

    def request(self, kind: str, run_id: str = "run-1", owner: str = OWNER_A) -> RunRequest:
        """A request for a job.

        Args:
            kind: ``good`` (exits with 0 at once and adds a line to ``count`` in the working folder), ``bad`` (exits
                with 3), ``long`` (a minute), ``hog`` (takes `HOG_BYTES`), ``cpus`` (prints how many CPUs it may use),
                ``flood`` (prints much and a metric at last, and leaves a process in the background),
                ``stubborn`` (says that it is asked to end and goes on), ``busy`` (uses 64 MiB and a CPU; exits with 3),
                ``missing`` (a program that is not there).
            run_id: The id of the run, as the store would give it.
            owner: The id of the study that owns the run.
        """
        words = {
            "good": ("sh", "-c", "echo ran >> count; echo hello"),
            "bad": ("sh", "-c", "exit 3"),
            "long": ("sleep", str(PATIENCE_SECONDS)),
            "hog": (self.python, "-c", _HOG),
            "cpus": (self.python, "-c", _CPUS),
            "flood": ("sh", "-c", _FLOOD),
            "stubborn": ("sh", "-c", _STUBBORN),
            "busy": (self.python, "-c", _BUSY),
            "missing": ("no-such-program-anywhere",),
        }
        workdir = self.folder / "work"
        workdir.mkdir(exist_ok=True)
        return RunRequest(
            run_id=run_id,
            owner=owner,
            expires=time.time() + 600,
            argv=words[kind],
            folder=self.folder / "runs" / run_id,
            workdir=workdir,
            offer=Offer("local", "small", 1, 4, 0.1),
            configuration=Configuration({"kind": kind}),
        )

    def runner(self) -> Runner:
        """A runner that is closed after the test."""
        self._made.append(self.make())
        return self._made[-1]

    def graceful(self) -> Runner:
        """A runner that asks a job to end before it is ended; most do."""
        return self.runner()

    def elsewhere(self) -> Runner:
        """A runner with a data folder of its own over the same engine, as another store or user has."""
        other = copy.copy(self)
        other.folder = self.folder / "elsewhere"
        other.folder.mkdir(exist_ok=True)
        self._made.append(other.make())
        return self._made[-1]

    def kill(self, runner: Runner, handle: Handle) -> None:
        """Kill all processes of a run with SIGKILL; one that is on another machine is cancelled."""
        found = processes_of(handle.run_id)
        if not found:
            runner.cancel(handle)
        for process in found:
            with suppress(psutil.Error):
                process.kill()

    def close(self) -> None:
        """End what a failed test left running, and close the runners."""
        for runner in self._made:
            for owner in (OWNER_A, OWNER_B):
                for handle in runner.find(owner):
                    runner.cancel(handle)
            runner.close()


def poll_until(runner: Runner, handle: Handle, wanted: Callable[[RunStatus], bool]) -> RunStatus:
    """Wait until a run's status is as wanted.

    Raises:
        AssertionError: It is not, after a minute.
    """
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        status = runner.poll([handle])[handle.run_id]
        if wanted(status):
            return status
        assert time.monotonic() < end, f"the run is still {status}"
        assert not status.state.ended, f"the run ended as {status}"
        runner.wait([handle], 0.5)


def wait_for_end(runner: Runner, handle: Handle) -> RunStatus:
    """Wait for the end of a run."""
    return poll_until(runner, handle, lambda status: status.state.ended)


def processes_of(run_id: str) -> list[psutil.Process]:
    """The living processes of this machine that carry a run's tag and an owner of this test session."""
    found = []
    for process in psutil.process_iter():
        try:
            environment = process.environ()
            tagged = environment.get("TRADEWIND_RUN_ID") == run_id
            ours = environment.get("TRADEWIND_OWNER", "").endswith(f"-{os.getpid()}")
            if tagged and ours and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


__all__ = [
    "ALIVE",
    "AWKWARD",
    "HOG_BYTES",
    "OWNER_A",
    "OWNER_B",
    "PATIENCE_SECONDS",
    "RunnerBench",
    "RunnerConformance",
    "poll_until",
    "processes_of",
    "wait_for_end",
]

_LONG_SECONDS = 600.0

_SAID = "import json, os, sys; print(json.dumps([*sys.argv[1:], os.environ['SAID']]))"


class RunnerConformance:
    """The suite. A subclass gives the fixture ``bench``, a `RunnerBench`."""

    @pytest.fixture
    def bench(self, tmp_path: Path) -> Iterator[RunnerBench]:
        """The runner under test."""
        raise NotImplementedError

    def test_success(self, bench: RunnerBench) -> None:
        """A program that exits with 0 is done, and nobody is at fault."""
        runner = bench.runner()
        status = wait_for_end(runner, bench.submit(runner, bench.request("good")))
        assert (status.state, status.fault, status.reason) == (RunState.DONE, None, "")
        assert status.exit_code == 0
        assert 0 <= status.runtime < PATIENCE_SECONDS

    def test_failure_is_the_jobs_fault_and_says_why(self, bench: RunnerBench) -> None:
        """Another exit code is the job's fault, and the reason says so."""
        runner = bench.runner()
        status = wait_for_end(runner, bench.submit(runner, bench.request("bad")))
        assert (status.state, status.fault) == (RunState.FAILED, Fault.JOB)
        assert status.exit_code
        assert status.reason
        if not isinstance(runner, Simulates):
            assert status.exit_code == 3

    def test_a_missing_program_is_one_clear_error(self, bench: RunnerBench) -> None:
        """A program that is not there is one clear error, however often it is tried."""
        runner = bench.runner()
        if isinstance(runner, Simulates):
            return
        request = bench.request("missing")
        for _ in range(2):
            try:
                status = wait_for_end(runner, bench.submit(runner, request))
            except MissingProgramError as error:
                assert "no-such-program-anywhere" in str(error)
                continue
            # An engine that takes any job says so when the job has ended.
            assert (status.state, status.fault, status.exit_code) == (RunState.FAILED, Fault.JOB, 127)
            assert "no-such-program-anywhere" in status.reason

    def test_submitting_again_starts_nothing(self, bench: RunnerBench) -> None:
        """The same run is never started twice, not even by another process."""
        runner, request = bench.runner(), bench.request("good")
        first = bench.submit(runner, request)
        again = bench.submit(bench.runner(), request)
        assert first.run_id == again.run_id == request.run_id
        before = wait_for_end(runner, first)
        assert wait_for_end(runner, bench.submit(runner, request)).runtime == before.runtime
        if not isinstance(runner, Simulates):
            assert bench.count(request) == 1

    def test_many_runs_in_one_poll(self, bench: RunnerBench) -> None:
        """One poll answers for all runs."""
        runner = bench.runner()
        handles = [bench.submit(runner, bench.request("good", f"run-{i}")) for i in range(5)]
        for handle in handles:
            wait_for_end(runner, handle)
        statuses = runner.poll(handles)
        assert set(statuses) == {f"run-{i}" for i in range(5)}
        assert {status.state for status in statuses.values()} == {RunState.DONE}

    def test_cancel_ends_it_and_is_repeatable(self, bench: RunnerBench) -> None:
        """A cancelled run leaves no process, and may be cancelled again."""
        runner = bench.runner()
        handle = bench.submit(runner, bench.request("long"))
        assert runner.poll([handle])["run-1"].state in ALIVE
        runner.cancel(handle, "nobody needs it")
        status = wait_for_end(runner, handle)
        assert (status.state, status.fault) == (RunState.CANCELLED, None)
        assert status.reason in ("nobody needs it", ""), "another reason than that of the cancellation"
        assert not bench.left("run-1")
        runner.cancel(handle)
        assert runner.poll([handle])["run-1"].state is RunState.CANCELLED

    def test_cancelling_what_ended_changes_nothing(self, bench: RunnerBench) -> None:
        """A run that has ended keeps its end."""
        runner = bench.runner()
        handle = bench.submit(runner, bench.request("good"))
        wait_for_end(runner, handle)
        runner.cancel(handle)
        assert runner.poll([handle])["run-1"].state is RunState.DONE

    def test_a_run_that_was_never_there(self, bench: RunnerBench) -> None:
        """A run that is certainly gone is the infrastructure's fault, and cancelling it is no error."""
        runner = bench.runner()
        handle = Handle("nobody", runner.name, {})
        runner.cancel(handle)
        status = wait_for_end(runner, handle)
        assert status.fault in (Fault.INFRASTRUCTURE, None)
        assert status.state in (RunState.PREEMPTED, RunState.CANCELLED)
        runner.forget(handle)

    def test_another_process_finds_it_by_its_handle(self, bench: RunnerBench) -> None:
        """A handle that went through JSON is enough to find a run."""
        first = bench.runner()
        handle = Handle.from_json(json.loads(json.dumps(bench.submit(first, bench.request("long")).to_json())))
        first.close()
        second = bench.runner()
        assert second.poll([handle])["run-1"].state in ALIVE
        second.cancel(handle)
        assert wait_for_end(second, handle).state is RunState.CANCELLED
        assert not bench.left("run-1")

    def test_another_process_finds_it_by_its_owner(self, bench: RunnerBench) -> None:
        """All unsettled runs of an owner are found by tag, and no others."""
        first = bench.runner()
        bench.submit(first, bench.request("long", "run-1", OWNER_A))
        bench.submit(first, bench.request("good", "run-2", OWNER_A))
        bench.submit(first, bench.request("long", "run-3", OWNER_B))
        second = bench.runner()
        assert {handle.run_id for handle in second.find(OWNER_A)} == {"run-1", "run-2"}
        assert {handle.run_id for handle in second.find(OWNER_B)} == {"run-3"}
        everyone = {(HandleData.of(handle).owner, handle.run_id) for handle in second.find(None)}
        assert everyone >= {(OWNER_A, "run-1"), (OWNER_A, "run-2"), (OWNER_B, "run-3")}
        for handle in [*second.find(OWNER_A), *second.find(OWNER_B)]:
            if not isinstance(second, Simulates):
                # Engines keep whole seconds.
                created = HandleData.of(handle).created
                assert created is not None and -1 <= time.time() - created < _LONG_SECONDS
            second.cancel(handle)
            wait_for_end(second, handle)
            second.forget(handle)
        assert second.find(OWNER_A) == second.find(OWNER_B) == []

    def test_who_only_looks_ends_nothing(self, bench: RunnerBench) -> None:
        """``tradewind reap --dry-run`` of another store, or of another user, looks at everybody's runs."""
        runner = bench.runner()
        handle = bench.submit(runner, bench.request("long"))
        poll_until(runner, handle, lambda status: status.state is RunState.EXECUTING)
        other = bench.elsewhere()
        for _ in range(3):
            theirs = [each for each in other.find(None) if HandleData.of(each).owner == OWNER_A]
            statuses = other.poll(theirs)
            assert all(statuses[each.run_id].state in ALIVE for each in theirs), "unknown counts as alive"
            runner.wait([handle], 0.1)
        assert runner.poll([handle])["run-1"].state is RunState.EXECUTING
        runner.cancel(handle)
        assert wait_for_end(runner, handle).state is RunState.CANCELLED

    def test_what_is_kept_comes_from_where_the_job_worked(self, bench: RunnerBench) -> None:
        """Outputs are in the run's folder; a runner whose runs work on copies brings them itself, and says so."""
        runner = bench.runner()
        if isinstance(runner, Simulates):
            return
        request = replace(bench.request("good"), outputs=("count",))
        handle = bench.submit(runner, request)
        assert wait_for_end(runner, handle).state is RunState.DONE
        runner.collect(handle, request)
        kept = request.folder / "outputs" / "count"
        if not isinstance(runner, HasOwnFiles):
            assert (request.workdir / "count").exists(), "it works on copies: it must inherit HasOwnFiles"
            assert not kept.exists()
            stage_out(request)
        assert kept.read_text() == "ran\n"

    def test_words_and_variables_arrive_as_they_are(self, bench: RunnerBench) -> None:
        """No shell, and nothing else on the way, reads what is in an argument or a variable."""
        runner = bench.runner()
        if isinstance(runner, Simulates):
            return
        plain = replace(bench.request("good"), argv=(bench.python, "-c", _SAID, *AWKWARD), env={"SAID": AWKWARD[0]})
        handle = bench.submit(runner, plain)
        assert wait_for_end(runner, handle).state is RunState.DONE
        runner.collect(handle, plain)
        assert json.loads((plain.folder / "stdout").read_text()) == [*AWKWARD, AWKWARD[0]]

    def test_a_checkpoint_is_copied_while_the_job_runs_and_put_into_the_next(self, bench: RunnerBench) -> None:
        """The copy has the files of one moment, says when they were written, and is all that the next run finds.

        The first run is killed with SIGKILL while it writes its next checkpoint.
        """
        runner = bench.runner()
        if not isinstance(runner, KeepsCheckpoints):
            return
        plan = CheckpointPlan(bench.folder / "checkpoints", 60.0)
        script = (
            'cat "$TRADEWIND_CHECKPOINT/deep/state" && exit; cd "$TRADEWIND_CHECKPOINT"; mkdir deep; echo saved >part;'
            f"mv part deep/state; echo hal >part; sleep {PATIENCE_SECONDS}; mv part deep/state"
        )
        words = ("sh", "-c", script)
        first, second = (replace(bench.request("good", name), argv=words, checkpoint=plan) for name in ("a-1", "a-2"))
        began = time.time()
        handle = bench.submit(runner, first)

        def written() -> bool:
            return (look := runner.look_at_checkpoint(handle)).fingerprint != "" and look.written > 0

        end = time.monotonic() + PATIENCE_SECONDS
        while not written():
            assert time.monotonic() < end, "no checkpoint is seen"
            time.sleep(0.02)
        copies: list[CheckpointLook] = []

        def copy(folder: Path) -> float:
            copies.append(runner.copy_checkpoint(handle, folder))
            return 7.0

        store = CheckpointStore(plan.folder)
        store.add(copy)
        while (saved := store.latest()) is None or not (saved.files / "deep" / "state").is_file():
            assert time.monotonic() < end, "what the job has renamed is not copied"  # the first look was before that
            store.add(copy)
        assert copies[0].fingerprint
        assert began - 5.0 < copies[0].written < time.time() + 5.0
        assert (saved.files / "deep" / "state").read_text() == "saved\n"
        bench.kill(runner, handle)
        assert wait_for_end(runner, handle).state is not RunState.DONE
        handle = bench.submit(runner, second)
        assert wait_for_end(runner, handle).state is RunState.DONE
        runner.collect(handle, second)
        assert (second.folder / "stdout").read_text() == "saved\n"

    def test_the_time_limit(self, bench: RunnerBench) -> None:
        """A run is ended at its wall time, with all its processes."""
        runner = bench.runner()
        if not isinstance(runner, LimitsTime):
            return
        request = replace(bench.request("long"), limits=Limits(wall_seconds=bench.wall_seconds))
        status = wait_for_end(runner, bench.submit(runner, request))
        assert (status.state, status.fault) == (RunState.TIMED_OUT, Fault.JOB)
        assert (
            bench.wall_seconds
            <= status.runtime
            < (bench.wall_seconds + 1e-6 if isinstance(runner, Simulates) else PATIENCE_SECONDS)
        )
        assert "limit" in status.reason
        assert not bench.left("run-1")

    def test_who_is_over_its_time_is_asked_to_end_and_then_ended(self, bench: RunnerBench) -> None:
        """Signals come in the same order everywhere: SIGTERM, and SIGKILL after the grace."""
        runner = bench.graceful()
        if not isinstance(runner, LimitsTime) or isinstance(runner, Simulates) or not bench.keeps_logs:
            return
        request = replace(bench.request("stubborn"), limits=Limits(wall_seconds=max(1.0, bench.wall_seconds)))
        handle = bench.submit(runner, request)
        assert wait_for_end(runner, handle).state is RunState.TIMED_OUT
        runner.collect(handle, request)
        said = (request.folder / "stdout").read_text().split()
        assert said[:2] == ["begun", "asked"], said
        assert not bench.left("run-1")

    def test_an_end_that_no_controller_saw(self, bench: RunnerBench) -> None:
        """An end, its code and what the run used are there for whoever comes later."""
        first = bench.runner()
        if isinstance(first, Simulates):
            return
        request = bench.request("busy")
        handle = bench.submit(first, request)
        first.close()
        second = bench.runner()
        status = wait_for_end(second, handle)
        assert (status.state, status.exit_code) == (RunState.FAILED, 3)
        if bench.measures:
            assert status.usage.peak_memory_bytes is not None and status.usage.peak_memory_bytes > 64 << 20
            assert status.usage.cpu_seconds is not None and 0.3 <= status.usage.cpu_seconds < PATIENCE_SECONDS
        second.collect(handle, request)

    def test_the_memory_limit(self, bench: RunnerBench) -> None:
        """A run that takes too much memory is ended and says so."""
        runner = bench.runner()
        if not isinstance(runner, LimitsMemory):
            return
        request = replace(bench.request("hog"), limits=Limits(memory_bytes=HOG_BYTES // 2))
        status = wait_for_end(runner, bench.submit(runner, request))
        assert (status.state, status.fault) == (RunState.FAILED, Fault.JOB)
        assert "memory" in status.reason, status
        assert not bench.left("run-1")

    def test_the_cpu_limit(self, bench: RunnerBench) -> None:
        """A run sees no more CPUs than its offer has."""
        runner, request = bench.runner(), bench.request("cpus")
        if not isinstance(runner, LimitsCpu):
            return
        handle = bench.submit(runner, request)
        assert wait_for_end(runner, handle).state is RunState.DONE
        runner.collect(handle, request)
        assert (request.folder / "stdout").read_text() == "1\n"

    def test_a_flood_keeps_its_beginning_and_its_end(self, bench: RunnerBench) -> None:
        """A metric behind more output than is kept is found, and what the job started in the background is ended."""
        runner = bench.runner()
        if isinstance(runner, Simulates) or not bench.keeps_logs:
            return
        request = replace(bench.request("flood"), limits=Limits(log_bytes=10_000))
        handle = bench.submit(runner, request)
        status = wait_for_end(runner, handle)
        assert status.state is RunState.DONE, status
        runner.collect(handle, request)
        log = (request.folder / "stdout").read_text()
        assert len(log) <= 10_000
        assert log.startswith("begin\nline 1\n") and log.endswith("\nline 9999\nscore: 0.93\n")
        missing, between = GAP_LINES.subn(b"", log.encode()), log.split("\n[")[1].split("\n")[0]
        assert missing[1] == 1
        assert int(between.split()[0]) + len(missing[0]) == 6 + sum(6 + len(str(i)) for i in range(1, 10_000)) + 12
        assert json.loads((request.folder / "result.json").read_text())["truncated"] is True
        assert not bench.left("run-1")

    def test_wait_is_no_longer_than_the_run(self, bench: RunnerBench) -> None:
        """Waiting ends when a run does."""
        runner = bench.runner()
        handle = bench.submit(runner, bench.request("good"))
        began = runner.clock.now()
        runner.wait([handle], PATIENCE_SECONDS / 2)
        assert runner.clock.now() - began < PATIENCE_SECONDS / 2
        assert wait_for_end(runner, handle).state is RunState.DONE

    def test_a_wait_can_be_woken(self, bench: RunnerBench) -> None:
        """Another thread ends a wait, or the next one."""
        runner = bench.runner()
        handle = bench.submit(runner, bench.request("long"))
        poll_until(runner, handle, lambda status: status.state is RunState.EXECUTING)
        if isinstance(runner, Simulates):
            return
        runner.wait([handle], 0.5)  # news that the start has left
        for seconds in (0.3, 0.0):
            timer = threading.Timer(seconds, runner.wake)
            timer.start()
            if not seconds:
                timer.join()
            began = time.monotonic()
            runner.wait([handle], PATIENCE_SECONDS / 2)
            assert time.monotonic() - began < PATIENCE_SECONDS / 4
        runner.cancel(handle)
        assert wait_for_end(runner, handle).state is RunState.CANCELLED

    def test_waiting_for_no_run_lets_time_pass(self, bench: RunnerBench) -> None:
        """Waiting is no busy loop while all runs are settled or still being submitted: no poll slows it down then."""
        runner, request = bench.runner(), bench.request("good")
        handle = bench.submit(runner, request)
        assert wait_for_end(runner, handle).state is RunState.DONE
        runner.collect(handle, request)
        runner.forget(handle)
        if isinstance(runner, Simulates):
            return
        began, waits = time.monotonic(), 0
        while time.monotonic() - began < 1.0:
            runner.wait([], 0.2)
            waits += 1
        assert waits < 50

    def test_wait_is_no_longer_than_asked_for(self, bench: RunnerBench) -> None:
        """Waiting ends when the time is over."""
        runner = bench.runner()
        handle = bench.submit(runner, bench.request("long"))
        began = runner.clock.now()
        runner.wait([handle], 0.1)
        assert runner.clock.now() - began < PATIENCE_SECONDS / 2
        assert runner.poll([handle])["run-1"].state in ALIVE
