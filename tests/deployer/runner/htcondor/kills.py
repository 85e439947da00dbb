"""Kills controllers of HTCondor runs at calls of programs and at any moment; nothing may run twice or be left.

A long run: ``python -m tests.deployer.runner.htcondor.kills 1000``.
"""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.deployer.helpers import OWNER, deployer_over, drive, request_for, row
from tests.engines.condor import Condor
from tests.waiting import eventually

from tradewind.deployer.lifecycle import Deployer
from tradewind.deployer.runner.htcondor import programs as htcondor_programs
from tradewind.deployer.runner.htcondor.runner import HtCondorRunner
from tradewind.deployer.runner.htcondor.settings import HtCondorSettings
from tradewind.problem import RunRequest, RunState

STEPS = ("before", "during", "after")


def controller(folder: Path, programs: str) -> Deployer:
    """A deployer whose jobs run in the pool."""
    settings = HtCondorSettings(bin=programs, interval=0.1, grace=0.2, files="shared")
    return deployer_over(folder, runner=HtCondorRunner(settings=settings, data_folder=folder / "data"))


def request(folder: Path, run_id: str) -> RunRequest:
    """A job that counts how often it ran, and takes a moment."""
    return request_for(folder, ("sh", "-c", "echo ran >> count-$TRADEWIND_RUN_ID; sleep 0.3"), run_id)


def host(folder: Path, programs: str) -> None:
    """Reads orders ``RUN CALL STEP`` and forks controllers, which kill themselves there."""
    for line in sys.stdin:
        run_id, call, step = line.split()
        child = os.fork()
        if child == 0:
            _doom(int(call), step)
            deployer = controller(folder, programs)
            deployer.launch(row(run_id), request(folder, run_id))
            drive(deployer, run_id)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print("killed" if os.WIFSIGNALED(status) else f"ended {status}", flush=True)


def _doom(call: int, step: str) -> None:
    if step.startswith("at-") and os.fork() == 0:
        time.sleep(float(step[3:]))
        os.kill(os.getppid(), signal.SIGKILL)
        os._exit(0)
    plain, count = htcondor_programs.Condor._run, [0]

    def counted(self: htcondor_programs.Condor, words: list[str], *arguments: Any, **options: Any) -> str:
        count[0] += 1
        mine = count[0] == call
        if mine and step == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        if mine and step == "during" and os.fork() == 0:
            time.sleep(random.uniform(0.0, 0.2))
            os.kill(os.getppid(), signal.SIGKILL)
            os._exit(0)
        answer = plain(self, words, *arguments, **options)
        if mine:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    htcondor_programs.Condor._run = counted  # type: ignore[method-assign]


class Killing:
    """Kills controllers, and looks at what is left after the next one has been there.

    Args:
        condor: The pool.
        folder: An empty folder.
    """

    def __init__(self, condor: Condor, folder: Path) -> None:
        self.condor, self.folder = condor, folder
        code = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[4])!r})\n"
        code += "from pathlib import Path\nfrom tests.deployer.runner.htcondor.kills import host\n"
        code += f"host(Path({str(folder)!r}), {str(condor.bin)!r})"
        self._host = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TRADEWIND_TEST_OWNER": OWNER},
        )

    def once(self, run_id: str, call: int, step: str, *, adopt: bool) -> str:
        """Kill one controller; what became of it: ``killed``, or ``ended`` when it did not get that far.

        Raises:
            AssertionError: A job is left, a run is lost, or it ran twice.
        """
        assert self._host.stdin is not None
        assert self._host.stdout is not None
        self._host.stdin.write(f"{run_id} {call} {step}\n")
        self._host.stdin.flush()
        ready, _, _ = select.select([self._host.stdout], [], [], 60)
        assert ready, "the controller neither ended nor was killed"
        told = self._host.stdout.readline()
        deployer = controller(self.folder, str(self.condor.bin))
        place = f"{run_id}, killed {step} call {call}, {'adopted' if adopt else 'swept'}"
        try:
            if adopt:
                deployer.adopt(row(run_id), request(self.folder, run_id))
                [*_, last] = drive(deployer, run_id)
                assert last.state is RunState.DONE, f"{place}: {last}"
                deployer.settle(run_id)
            deployer.sweep(set())
            eventually(lambda: self.condor.of(run_id) is None, what=f"the pool to have no job more after {place}")
        finally:
            deployer.close()
        count = self.folder / "work" / f"count-{run_id}"
        ran = count.read_text().count("ran") if count.exists() else 0
        assert ran == 1 if adopt else ran <= 1, f"{place}: it ran {ran} times"
        assert deployer.runner.find(OWNER) == [], place
        return told.split()[0]

    def close(self) -> None:
        """Stop."""
        assert self._host.stdin is not None
        self._host.stdin.close()
        self._host.wait(10)
        assert self._host.stdout is not None
        self._host.stdout.close()


def kill_everywhere(condor: Condor, folder: Path, kills: int, seed: int = 0) -> int:
    """Kill controllers before, during and after condor_submit; then at random calls and at random moments.

    Returns:
        How many were killed before they were done.
    """
    # A slow condor_submit outlives its caller, and does its work when that is long dead.
    condor.config(slow={"condor_submit": 0.15}, hang={"condor_submit": 0.15})
    chance = random.Random(seed)
    killing, killed = Killing(condor, folder), 0
    try:
        for number in range(kills):
            call, step = 1, STEPS[number // 2 % 3]  # condor_submit
            if number >= 2 * len(STEPS):
                call, step = chance.randint(1, 3), chance.choice([*STEPS, f"at-{chance.uniform(0.05, 0.9):.3f}"])
            killed += killing.once(f"run-{number}", call, step, adopt=number % 2 == 0) == "killed"
    finally:
        killing.close()
    return killed


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        pool = Condor(Path(place))
        try:
            base = Path(place) / "base"
            base.mkdir()
            print(kill_everywhere(pool, base, int(sys.argv[1])), "controllers were killed; nothing was left")
        finally:
            pool.stop()
