"""Controllers that make virtual machines are killed with -9; the next one leaves nothing, or completes them.

``python -m tests.deployer.provisioner.libvirt.kills 300`` kills that many.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.engines.libvirt import Libvirt

from tradewind import plugins
from tradewind.deployer.provisioner.base import Cluster, ClusterState
from tradewind.deployer.provisioner.libvirt.provisioner import LibvirtProvisioner
from tradewind.problem import Offer

OFFER = Offer("local", "tiny", 1, 0.125, 0.1, nodes=2)
OWNER = "tw-kills"


def provisioner(libvirt: Libvirt, folder: Path, **settings: object) -> LibvirtProvisioner:
    """A provisioner over a folder, as a new process would make it."""
    made = plugins.create("provisioner", "libvirt", libvirt.settings(**settings), data_folder=folder)
    assert isinstance(made, LibvirtProvisioner)
    return made


def in_a_process(work: Callable[[], object]) -> int:
    """Do something in a process of its own; its number."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads
        pid = os.fork()
    if pid == 0:
        os.setsid()
        try:
            work()
        finally:
            os._exit(0)
    return pid


def kill_controllers(libvirt: Libvirt, folder: Path, kills: int, seed: int = 1) -> dict[str, int]:
    """Kill controllers while they make or destroy machines, and check what the next one finds.

    Returns:
        How often which end was checked.
    """
    chance = random.Random(seed)
    done = {"completed": 0, "destroyed": 0, "killed while destroying": 0}
    longest = 2.0
    for i in range(kills):
        run_id, settings = f"kill-{i}", {"share": chance.choice(("none", "none", "virtiofs"))}

        def make(run_id: str = run_id, settings: dict[str, str] = settings) -> None:
            provisioner(libvirt, folder, **settings).make(run_id, OWNER, 4e9, OFFER)

        began = time.monotonic()
        pid = in_a_process(make)
        until = began + chance.uniform(0.0, longest)
        while time.monotonic() < until and os.waitpid(pid, os.WNOHANG) == (0, 0):
            time.sleep(0.005)
        kill(pid)
        following = provisioner(libvirt, folder, **settings)
        if i % 3 == 0:
            before = time.monotonic()
            made = following.make(run_id, OWNER, 4e9, OFFER)
            longest = min(10.0, max(longest, 1.2 * (time.monotonic() - before)))
            names = [f"tradewind-{run_id}-{node}" for node in range(OFFER.nodes)]
            assert libvirt.names() == names == sorted(libvirt.pids())
            assert [each.run_id for each in following.find(OWNER)] == [made.run_id]
            done["completed"] += 1
        if i % 3 == 1:
            pid = in_a_process(partial(destroy_all, following))
            time.sleep(chance.uniform(0.0, 1.0))
            kill(pid)
            done["killed while destroying"] += 1
        last = provisioner(libvirt, folder)
        # What was on its way when the controller was killed may still come: it is found, or waited for.
        for _ in range(2):
            for cluster in last.find(OWNER):
                last.destroy(cluster)
            last.destroy(Cluster(run_id, ClusterState.UNKNOWN))
        done["destroyed"] += 1
        assert_nothing_left(libvirt, folder)
    return done


def destroy_all(made: LibvirtProvisioner) -> None:
    """Give back all that the owner has."""
    for cluster in made.find(OWNER):
        made.destroy(cluster)


def kill(pid: int) -> None:
    """Kill a process of ours; one that has ended is no error."""
    try:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    except (ProcessLookupError, ChildProcessError):
        pass


def assert_nothing_left(libvirt: Libvirt, folder: Path) -> None:
    """No machine, no process, no file."""
    assert libvirt.names() == []
    assert libvirt.pids() == {}
    left = [each.name for each in (folder / "libvirt").iterdir() if each.name != "locks"]
    assert left == []


if __name__ == "__main__":
    from tests.engines.guest_image import guest_image

    with tempfile.TemporaryDirectory() as place:
        engine = Libvirt(Path(place) / "engine", guest_image())
        try:
            engine.start()
            print(kill_controllers(engine, Path(place), int(sys.argv[1])))
        finally:
            engine.stop()
