"""Kills controllers of HTCondor runs at calls of programs and at any moment; nothing may run twice or be left.

A long run: ``python -m tests.deployer.runner.htcondor.kills 1000``.
"""

from __future__ import annotations

import random
import sys
import tempfile
from functools import partial
from pathlib import Path

from tests.deployer.helpers import OWNER, deployer_over, request_for
from tests.deployer.kills import STEPS, Killing, Scene, die_at, die_in
from tests.engines.condor import Condor
from tests.waiting import eventually

from tradewind.deployer.lifecycle.deployer import Deployer
from tradewind.deployer.runner.htcondor import commands as htcondor_programs
from tradewind.deployer.runner.htcondor.runner import HtCondorRunner
from tradewind.deployer.runner.htcondor.settings import HtCondorSettings
from tradewind.problem import RunRequest


class PoolScene(Scene):
    """Jobs in a pool, which take a moment; at the address are its programs."""

    module = "tests.deployer.runner.htcondor.kills"

    def controller(self) -> Deployer:
        settings = HtCondorSettings(bin=self.address, interval=0.1, grace=0.2, files="shared")
        return deployer_over(self.folder, runner=HtCondorRunner(settings=settings, data_folder=self.folder / "data"))

    def request(self, run_id: str) -> RunRequest:
        return request_for(self.folder, ("sh", "-c", "echo ran >> count-$TRADEWIND_RUN_ID; sleep 0.3"), run_id)

    def doom(self, call: int, step: str) -> None:
        if step.startswith("at-"):
            die_in(float(step[3:]))
        die_at(htcondor_programs.CondorCommands, "_run", call, step, lambda: random.uniform(0.0, 0.2))


def _clean(condor: Condor, deployer: Deployer, run_id: str, place: str) -> None:
    deployer.sweep(set())
    eventually(lambda: condor.of(run_id) is None, what=f"the pool to have no job more after {place}")
    assert deployer.runner.find(OWNER) == [], place


def kill_everywhere(condor: Condor, folder: Path, kills: int, seed: int = 0) -> int:
    """Kill controllers before, during and after condor_submit; then at random calls and at random moments.

    Returns:
        How many were killed before they were done.
    """
    # A slow condor_submit outlives its caller, and does its work when that is long dead.
    condor.config(slow={"condor_submit": 0.15}, hang={"condor_submit": 0.15})
    chance = random.Random(seed)
    killing, killed = Killing(PoolScene(folder, str(condor.bin)), partial(_clean, condor)), 0
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
