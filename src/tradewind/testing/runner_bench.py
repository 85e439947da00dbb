"""What a test of a runner needs: how it makes one, asks it for jobs, and waits for them."""

from __future__ import annotations

import copy
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from tradewind.deployer.runner.base import Runner
from tradewind.problem import Configuration, Handle, Machine, Offer, RunRequest, RunState, RunStatus

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
_CPUS = "import os; print(len(os.sched_getaffinity(0)))"


class RunnerBench(ABC):
    """How the suite makes a runner and asks it for jobs.

    Args:
        folder: An empty folder of the test's own.

    Attributes:
        python: The Python interpreter where the job runs.
        wall_seconds: The time limit that the suite gives to a run; an engine may know whole seconds only.
    """

    python = sys.executable
    wall_seconds = 0.3

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
        """What still lives of a run: processes, containers, jobs of the engine."""
        return processes_of(run_id)

    def count(self, request: RunRequest) -> int:
        """How often the job ``good`` of a request has run."""
        return (request.workdir / "count").read_text().count("ran\n")

    @abstractmethod
    def make(self) -> Runner:
        """Another object of the runner, over the same data folder."""

    def request(self, kind: str, run_id: str = "run-1", owner: str = OWNER_A) -> RunRequest:
        """A request for a job.

        Args:
            kind: ``good`` (exits with 0 at once and adds a line to ``count`` in the working folder), ``bad`` (exits
                with 3), ``long`` (a minute), ``hog`` (takes `HOG_BYTES`), ``cpus`` (prints how many CPUs it may use),
                ``missing`` (a program that is not there).
            run_id: Its id.
            owner: Its owner.
        """
        words = {
            "good": ("sh", "-c", "echo ran >> count; echo hello"),
            "bad": ("sh", "-c", "exit 3"),
            "long": ("sleep", str(PATIENCE_SECONDS)),
            "hog": (self.python, "-c", _HOG),
            "cpus": (self.python, "-c", _CPUS),
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

    def elsewhere(self) -> Runner:
        """A runner with a data folder of its own over the same engine, as another store or user has."""
        other = copy.copy(self)
        other.folder = self.folder / "elsewhere"
        other.folder.mkdir(exist_ok=True)
        self._made.append(other.make())
        return self._made[-1]

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
