"""Kills controllers at every step of making and destroying machines in OpenNebula; nothing may be left.

A long run: ``python -m tests.deployer.provisioner.opennebula.kills 1000``.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

from tests.deployer.helpers import OFFER, deployer_over, request_for
from tests.deployer.kills import STEPS, Killing, Scene, die_at
from tests.engines.oned import USERS, Oned
from tests.waiting import eventually

from tradewind.deployer.lifecycle.deployer import Deployer
from tradewind.deployer.provisioner.opennebula.provisioner import OpenNebulaProvisioner
from tradewind.deployer.provisioner.opennebula.rpc import OneClient
from tradewind.deployer.provisioner.opennebula.settings import OpenNebulaSettings
from tradewind.problem import RunRequest

NODES = 2


class OneScene(Scene):
    """Machines of OpenNebula, two a run; the jobs run here."""

    module = "tests.deployer.provisioner.opennebula.kills"

    def controller(self) -> Deployer:
        os.environ["ONE_TEST_AUTH"] = f"ada:{USERS['ada'][0]}"
        settings = OpenNebulaSettings(
            template="node", endpoint=self.address, auth="env:ONE_TEST_AUTH", ready="running", interval=0.02, timeout=5
        )
        made = OpenNebulaProvisioner(settings=settings, data_folder=self.folder / "data")
        return deployer_over(self.folder, provisioner=made)

    def request(self, run_id: str) -> RunRequest:
        offer = replace(OFFER, provider="opennebula").times(NODES)
        return request_for(self.folder, ("sh", "-c", "echo ran >> count-$TRADEWIND_RUN_ID"), run_id, offer=offer)

    def doom(self, call: int, step: str) -> None:
        die_at(OneClient, "call", call, step, lambda: 0.01)


def _clean(oned: Oned, deployer: Deployer, run_id: str, place: str) -> None:
    # The order that was on its way when the controller died may still come.
    eventually(lambda: not deployer.sweep(set()) and not oned.alive(), what=f"no machine after {place}")
    hosts = sum(bool(vm["pstime"]) for vm in oned.state()["vms"].values() if f"-{run_id}-" in vm["name"])
    # A controller that found its machines gone has made others; never more than once.
    assert hosts <= 2 * NODES, f"{place}: {hosts} machines have started"


def kill_everywhere(oned: Oned, folder: Path, kills: int, seed: int = 0) -> int:
    """Kill controllers at each call in turn, before, during and after it; then at random ones.

    Returns:
        How many were killed before they were done.
    """
    oned.config(slow={"template.instantiate": 0.03, "vm.action": 0.02}, prolog=0.02, boot=0.02, epilog=0.02)
    chance = random.Random(seed)
    killing, killed = Killing(OneScene(folder, oned.endpoint), partial(_clean, oned)), 0
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
