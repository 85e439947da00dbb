"""A controlling process over SSH that is killed, and what must be true after that.

``python -m tests.deployer.runner.ssh.kills 1000`` kills that many (as root).
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from tests.deployer.helpers import OWNER, deployer_over, request_for, row
from tests.engines.hosts import Hosts
from tests.waiting import eventually

from tradewind.deployer.lifecycle.deployer import Deployer
from tradewind.deployer.provisioner.none import NoneProvisioner, NoneSettings
from tradewind.deployer.runner.ssh.runner import SshRunner
from tradewind.deployer.runner.ssh.settings import SshRunnerSettings
from tradewind.deployer.ssh_connection import SshSettings
from tradewind.problem import RunRequest, RunState

STAGES = tuple(f"{when} {what}" for what in ("submit", "poll", "collect", "forget") for when in ("before", "after"))
"""Where a controller may kill itself; an empty text waits for somebody else to do it."""

_CONTROLLER = """
import sys
sys.path.insert(0, {root!r})
from tests.deployer.runner.ssh.kills import control
control({folder!r}, {hosts!r}, {facts!r}, {stage!r}, {seed})
"""


def deployer(folder: Path, addresses: Sequence[str], facts: dict[str, Any]) -> Deployer:
    """A deployer over some hosts."""
    ssh = SshSettings(**facts, connect_seconds=5)
    runner = SshRunner(settings=SshRunnerSettings(ssh=ssh, folder="/mnt/far", patience=5), data_folder=folder / "data")
    hosts = NoneSettings.model_validate({"hosts": list(addresses), "ssh": ssh.model_dump()})
    return deployer_over(
        folder, runner=runner, provisioner=NoneProvisioner(settings=hosts, data_folder=folder / "data")
    )


def request(folder: Path, run_id: str) -> RunRequest:
    """A run that notes that it has run, and leaves a process behind."""
    count = folder / "counts" / run_id
    argv = ("sh", "-c", f"echo ran >>{count}; setsid sleep 60 & sleep 0.3; echo out >$TRADEWIND_OUTPUTS/o")
    return request_for(folder, argv, run_id, expires=time.time() + 300)


def control(folder: str, hosts: Sequence[str], facts: dict[str, Any], stage: str, seed: int) -> None:
    """Launch runs, two at a time, until somebody kills this process."""
    made = deployer(Path(folder), hosts, facts)
    when, _, what = stage.partition(" ")
    left = random.Random(seed).randint(1, 4)

    def dying(call: Any, *given: Any) -> Any:
        nonlocal left
        left -= 1
        if when == "before" and left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
        answer = call(*given)
        if when == "after" and left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    if what:
        setattr(made.runner, what, partial(dying, getattr(made.runner, what)))
    print("ready", flush=True)
    number = 0
    while True:
        while len(made.active) < 2:
            run_id = f"run-{number}"
            number += 1
            print(json.dumps({"launched": run_id}), flush=True)  # the row is stored before anything is created
            made.launch(row(run_id), request(Path(folder), run_id))
        for run in made.poll():
            if run.state.ended:
                print(json.dumps({"ended": run.run_id, "state": run.state}), flush=True)
                made.settle(run.run_id)
        made.wait(0.2)


def tagged() -> list[psutil.Process]:
    """All processes of our runs."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TRADEWIND_OWNER") == OWNER and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def kill_once(folder: Path, hosts: Hosts, stage: str, chance: random.Random) -> int:
    """Kill a controller, start another one, and look that nothing is lost, left, or run twice.

    Returns:
        How many runs it had launched.

    Raises:
        AssertionError: Something is.
    """
    (folder / "counts").mkdir(parents=True)
    addresses = list(hosts.addresses.values())
    code = _CONTROLLER.format(
        root=str(Path(__file__).parents[4]),
        folder=str(folder),
        hosts=addresses,
        facts=hosts.facts,
        stage=stage,
        seed=chance.randrange(1000),
    )
    environment = {**os.environ, "TRADEWIND_TEST_OWNER": OWNER}
    with subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        if not stage:
            time.sleep(chance.uniform(0.0, 3.0))
            process.kill()
        watch = threading.Timer(60, process.terminate)
        watch.start()
        said = [json.loads(line) for line in process.stdout]
        watch.cancel()
    assert process.returncode == -signal.SIGKILL
    ended = {each["ended"] for each in said if "ended" in each}
    launched = [each["launched"] for each in said if "launched" in each]
    made = deployer(folder, addresses, hosts.facts)
    try:
        # Their rows say that they are open; those that are adopted go on, of the others nothing is known any more.
        adopted = [run_id for run_id in launched if run_id not in ended and chance.random() < 0.7]
        for run_id in adopted:
            made.adopt(row(run_id), request(folder, run_id))
        made.sweep(set(adopted))
        end = time.monotonic() + 60
        while made.active:
            for run in made.poll():
                if run.state.ended:
                    assert run.state is RunState.DONE, run
                    assert (folder / "runs" / run.run_id / "outputs/o").read_text() == "out\n"
                    made.settle(run.run_id)
            assert time.monotonic() < end, made.active
            made.wait(0.2)
        eventually(lambda: not made.sweep(set()) and not tagged())
        assert made.provisioner.find(OWNER) == []
        assert made.runner.find(OWNER) == []
    finally:
        made.close()
    for name in hosts.names:
        eventually(partial(hosts.is_empty, name, "/mnt/far/runs"))
    for run_id in {*adopted, *ended}:
        assert (folder / "counts" / run_id).read_text() == "ran\n", f"{run_id} did not run once"
    for count in (folder / "counts").iterdir():
        assert count.read_text() == "ran\n", f"{count.name} ran twice"
    return len(launched)


def main(times: int) -> None:
    """Kill controllers, at all stages and at any moment."""
    chance = random.Random(times)
    with tempfile.TemporaryDirectory() as place:
        hosts = Hosts(Path(place) / "hosts")
        try:
            hosts.start()
            for turn in range(times):
                stage = (*STAGES, "", "")[turn % (len(STAGES) + 2)]
                kill_once(Path(place) / str(turn), hosts, stage, chance)
                print(turn + 1, stage or "any moment", flush=True)
        finally:
            hosts.stop()


if __name__ == "__main__":
    main(int(sys.argv[1]))
