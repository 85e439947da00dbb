"""Controllers and wardens are killed at random moments; the next controller leaves nothing running."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import psutil
import pytest
from tests.deployer.helpers import OWNER, deployer_over, drive, request_for, row
from tests.effort import share
from tests.waiting import eventually

from tradewind.deployer.lifecycle.deployer import Deployer
from tradewind.deployer.runner.warden import client as warden_client
from tradewind.problem import Run, RunState
from tradewind.testing.runners import processes_of

_CONTROLLER = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.deployer.helpers import deployer_over, request_for, row
folder = Path({folder!r})
deployer = deployer_over(folder)
print("ready", flush=True)
for i in range(1000):
    run_id = f"run-{{i}}"
    print(run_id, flush=True)          # the row is stored before anything is created
    deployer.launch(row(run_id), request_for(
        folder, ("sh", "-c", "echo ran >> count-$TRADEWIND_RUN_ID; setsid sleep 60 & sleep 60"), run_id))
"""

_MOMENTS = share(12, 6)


def _controller(folder: Path) -> subprocess.Popen[str]:
    code = _CONTROLLER.format(root=str(Path(__file__).parents[3]), folder=str(folder))
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "TRADEWIND_TEST_OWNER": OWNER},
        stdout=subprocess.PIPE,
        text=True,
    )


def _wardens(folder: Path) -> set[int]:
    found = set()
    for claim in folder.glob("runs/*/started.json"):
        found.add(json.loads(claim.read_text())["warden"][0])
    return found


def _tagged() -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TRADEWIND_OWNER") == OWNER and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def _swept(deployer: Deployer) -> bool:
    return not deployer.sweep(set()) and not _tagged()


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["controller", "controller and warden", "warden"])
def test_nothing_is_left_after_kill_9_at_random_moments(tmp_path: Path, victim: str) -> None:
    chance = random.Random(victim)
    for turn in range(_MOMENTS // 3):
        folder = tmp_path / str(turn)
        (folder / "work").mkdir(parents=True)
        with _controller(folder) as controller:
            assert controller.stdout is not None
            assert controller.stdout.readline() == "ready\n"
            time.sleep(chance.uniform(0.0, 0.4))
            if "warden" in victim:
                for pid in _wardens(folder):
                    os.kill(pid, signal.SIGKILL)
                time.sleep(chance.uniform(0.0, 0.05))
            controller.kill()
            known = controller.stdout.read().split()
        # A warden that lost its controller may still be starting the last run that it was told of.
        deployer = deployer_over(folder)
        adopted = [run_id for run_id in known if chance.random() < 0.5]
        for run_id in adopted:
            request = request_for(
                folder, ("sh", "-c", "echo ran >> count-$TRADEWIND_RUN_ID; setsid sleep 60 & sleep 60"), run_id
            )
            deployer.adopt(row(run_id), request)
        deployer.sweep(set(adopted))
        for run_id in adopted:
            ended = deployer.cancel(run_id, "the test is over")
            assert ended is not None
            assert ended.state in (RunState.CANCELLED, RunState.PREEMPTED)
            deployer.settle(run_id)
        # The last order may have been on its way when the controller died: a second sweep finds what came of it.
        eventually(partial(_swept, deployer))
        deployer.close()
        for count in (folder / "work").glob("count-*"):
            # Empty, where the shell was killed when it had just opened it.
            assert count.read_text() in ("", "ran\n"), "a run was started twice"


def test_a_finished_run_is_found_after_everything_was_killed(tmp_path: Path) -> None:
    first = deployer_over(tmp_path)
    request = request_for(tmp_path, ("sh", "-c", "echo done"))
    launched = first.launch(row(), request)
    eventually((request.folder / "result.json").exists)
    for pid in _wardens(tmp_path):
        os.kill(pid, signal.SIGKILL)
    first.close()
    second = deployer_over(tmp_path)
    second.adopt(launched, request)
    [*_, last] = [launched, *drive(second)]
    assert (last.state, last.cost) == (RunState.DONE, 1.0)
    second.close()


@pytest.mark.slow
def test_an_adopted_run_whose_warden_died_is_preempted_with_its_time(tmp_path: Path) -> None:
    first = deployer_over(tmp_path)
    request = request_for(tmp_path, ("sleep", "60"))
    launched: Run = first.launch(row(), request)
    claim = request.folder / "started.json"
    written = claim.stat().st_mtime
    eventually(lambda: claim.stat().st_mtime > written + 0.5)
    for pid in _wardens(tmp_path):
        os.kill(pid, signal.SIGKILL)
    first.close()
    second = deployer_over(tmp_path)
    second.adopt(launched, request)
    [last] = drive(second)[-1:]
    assert last.state is RunState.PREEMPTED
    assert last.runtime > 0.3
    assert last.cost >= 1.0
    assert not processes_of("run-1")
    second.close()


def test_the_warden_starts_quickly_and_knows_nothing_of_the_house(tmp_path: Path) -> None:
    code = warden_client._BOOTSTRAP.replace(
        "main()", "print(sorted(m for m in sys.modules if 'pydantic' in m or 'numpy' in m))"
    )
    command = [sys.executable, "-I", "-S", "-c", code, str(warden_client._PACKAGE)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
