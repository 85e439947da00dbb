"""What every runner must do: inherit `RunnerConformance`, give the fixture ``bench``, and pytest does the rest."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tradewind.deployer.runner.base import HasOwnFiles, LimitsCpu, LimitsMemory, LimitsTime, Simulates
from tradewind.deployer.runner.handle import HandleData
from tradewind.deployer.staging import stage_out
from tradewind.errors import MissingProgramError
from tradewind.problem import Fault, Handle, Limits, RunState
from tradewind.testing.runner_bench import (
    ALIVE,
    AWKWARD,
    HOG_BYTES,
    OWNER_A,
    OWNER_B,
    PATIENCE_SECONDS,
    RunnerBench,
    poll_until,
    processes_of,
    wait_for_end,
)

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
        runner.wait([handle], 0.5)  # what the start has left to be told
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
        """Nobody polls while runs are still handed over, or all are settled; waiting is no busy loop then."""
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
