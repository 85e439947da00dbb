"""Kills controllers at every step of making and destroying machines in OpenNebula; nothing may be left.

A long run: ``python -m tests.deployer.provisioner.opennebula.kills 1000``.
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
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.deployer.helpers import OFFER, OWNER, deployer_over, drive, request_for, row
from tests.engines.oned import USERS, Oned
from tests.waiting import eventually

from tradewind.deployer.lifecycle import Deployer
from tradewind.deployer.provisioner.opennebula.provisioner import OpenNebulaProvisioner
from tradewind.deployer.provisioner.opennebula.rpc import OneClient
from tradewind.deployer.provisioner.opennebula.settings import OpenNebulaSettings
from tradewind.problem import RunRequest, RunState

NODES = 2
STEPS = ("before", "during", "after")


def controller(folder: Path, endpoint: str) -> Deployer:
    """A deployer with machines of OpenNebula, whose jobs run here."""
    os.environ["ONE_TEST_AUTH"] = f"ada:{USERS['ada'][0]}"
    settings = OpenNebulaSettings(
        template="node", endpoint=endpoint, auth="env:ONE_TEST_AUTH", ready="running", interval=0.02, timeout=5
    )
    made = OpenNebulaProvisioner(settings=settings, data_folder=folder / "data")
    return deployer_over(folder, provisioner=made)


def request(folder: Path, run_id: str) -> RunRequest:
    """Two machines, and a job that counts how often it ran."""
    offer = replace(OFFER, provider="opennebula").times(NODES)
    return request_for(folder, ("sh", "-c", "echo ran >> count-$TRADEWIND_RUN_ID"), run_id, offer=offer)


def host(folder: Path, endpoint: str) -> None:
    """Reads orders ``RUN CALL STEP`` and forks controllers, which kill themselves there."""
    for line in sys.stdin:
        run_id, call, step = line.split()
        child = os.fork()
        if child == 0:
            _doom(int(call), step)
            deployer = controller(folder, endpoint)
            deployer.launch(row(run_id), request(folder, run_id))
            drive(deployer, run_id)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print("killed" if os.WIFSIGNALED(status) else f"ended {status}", flush=True)


def _doom(call: int, step: str) -> None:
    plain, count = OneClient.call, [0]

    def counted(self: OneClient, method: str, *arguments: Any, **options: Any) -> Any:
        count[0] += 1
        mine = count[0] == call
        if mine and step == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        if mine and step == "during" and os.fork() == 0:
            time.sleep(0.01)
            os.kill(os.getppid(), signal.SIGKILL)
            os._exit(0)
        answer = plain(self, method, *arguments, **options)
        if mine:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    OneClient.call = counted  # type: ignore[method-assign]


class Killing:
    """Kills controllers, and looks at what is left after the next one has been there.

    Args:
        oned: The cloud.
        folder: An empty folder.
    """

    def __init__(self, oned: Oned, folder: Path) -> None:
        self.oned, self.folder = oned, folder
        code = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[4])!r})\n"
        code += "from pathlib import Path\nfrom tests.deployer.provisioner.opennebula.kills import host\n"
        code += f"host(Path({str(folder)!r}), {oned.endpoint!r})"
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
            AssertionError: A machine is left, a run is lost, or its job ran twice.
        """
        assert self._host.stdin is not None
        assert self._host.stdout is not None
        self._host.stdin.write(f"{run_id} {call} {step}\n")
        self._host.stdin.flush()
        ready, _, _ = select.select([self._host.stdout], [], [], 60)
        assert ready, "the controller neither ended nor was killed"
        told = self._host.stdout.readline()
        deployer = controller(self.folder, self.oned.endpoint)
        place = f"{run_id}, killed {step} call {call}, {'adopted' if adopt else 'swept'}"
        try:
            if adopt:
                deployer.adopt(row(run_id), request(self.folder, run_id))
                [*_, last] = drive(deployer, run_id)
                assert last.state is RunState.DONE, f"{place}: {last}"
                deployer.settle(run_id)
            # The order that was on its way when the controller died may still come.
            eventually(lambda: not deployer.sweep(set()) and not self.oned.alive(), what=f"no machine after {place}")
        finally:
            deployer.close()
        count = self.folder / "work" / f"count-{run_id}"
        ran = count.read_text().count("ran") if count.exists() else 0
        assert ran == 1 if adopt else ran <= 1, f"{place}: it ran {ran} times"
        hosts = sum(bool(vm["pstime"]) for vm in self.oned.state()["vms"].values() if f"-{run_id}-" in vm["name"])
        # A controller that found its machines gone has made others; never more than once.
        assert hosts <= 2 * NODES, f"{place}: {hosts} machines have started"
        return told.split()[0]

    def close(self) -> None:
        """Stop."""
        assert self._host.stdin is not None
        self._host.stdin.close()
        self._host.wait(10)
        assert self._host.stdout is not None
        self._host.stdout.close()


def kill_everywhere(oned: Oned, folder: Path, kills: int, seed: int = 0) -> int:
    """Kill controllers at each call in turn, before, during and after it; then at random ones.

    Returns:
        How many were killed before they were done.
    """
    oned.config(slow={"template.instantiate": 0.03, "vm.action": 0.02}, prolog=0.02, boot=0.02, epilog=0.02)
    chance = random.Random(seed)
    killing, killed = Killing(oned, folder), 0
    try:
        for number in range(kills):
            call, step = number // 3 + 1, STEPS[number % 3]
            if number >= 3 * 24:
                call, step = chance.randint(1, 24), chance.choice(STEPS)
            told = killing.once(f"run-{number}", call, step, adopt=number % 2 == 0)
            killed += told == "killed"
            if number % 50 == 49:
                oned.call("machines.forget")
    finally:
        killing.close()
    return killed


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        cloud = Oned(Path(place))
        try:
            base = Path(place) / "base"
            base.mkdir()
            print(kill_everywhere(cloud, base, int(sys.argv[1])), "controllers were killed; nothing was left")
        finally:
            cloud.kill()
