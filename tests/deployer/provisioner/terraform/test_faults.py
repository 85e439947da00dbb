"""Terraform and its controllers are killed at random and at the worst moments; nothing is left at the provider."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import psutil
import pytest
from tests.deployer.helpers import OWNER, deployer_over, request_for, row
from tests.deployer.provisioner.terraform.helpers import LATER, OFFER, at_once, over
from tests.engines import moto as engine
from tests.engines.moto import Moto
from tests.waiting import eventually

from tradewind.deployer.provisioner.base import ClusterState
from tradewind.deployer.provisioner.terraform.run_folder import TerraformRunFolder
from tradewind.problem import RunState

pytestmark = [pytest.mark.xdist_group("terraform"), pytest.mark.slow, pytest.mark.timeout(300)]

_CONTROLLER = """
import sys
from dataclasses import replace
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.deployer.provisioner.terraform.helpers import LATER, OFFER, over
provisioner = over(Path({data!r}), {endpoint!r}, Path({modules!r}), regions=[{region!r}])
print("ready", flush=True)
provisioner.make("run-1", "me", LATER, replace(OFFER, region={region!r}, nodes=2))
"""

_REGIONS = ("us-east-1", "us-east-2", "us-west-1", "us-west-2", "eu-west-1", "eu-west-2", "eu-central-1", "sa-east-1")


@dataclass(frozen=True)
class Kill:
    """What is killed, and when.

    Attributes:
        victims: ``controller``, ``terraform`` (the program alone), ``session`` (with its providers).
        moment: Seconds after the controller began, or the request in the middle of which it happens.
        forget: The data folder is lost as well.
        again: The machines are made again before they are destroyed.
    """

    victims: tuple[str, ...]
    moment: float | str
    forget: bool = False
    again: bool = False


_WORST = (
    Kill(("terraform",), "RunInstances"),
    Kill(("controller", "session"), "RunInstances", forget=True),
    Kill(("controller",), "CreateSecurityGroup"),
    Kill(("controller", "terraform"), "RunInstances", again=True),
)


@pytest.fixture(autouse=True)
def _environment(moto: Moto, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in engine.environment(moto.folder).items():
        monkeypatch.setenv(name, value)


def strike(kill: Kill, folder: TerraformRunFolder, controller: subprocess.Popen[str]) -> None:
    """Kill the victims."""
    if "controller" in kill.victims:
        controller.kill()
    pids = folder.processes()
    for pid in pids if "session" in kill.victims else pids[:1] if "terraform" in kill.victims else ():
        with_it = psutil.pid_exists(pid)
        if with_it:
            os.kill(pid, signal.SIGKILL)


def one_kill(moto: Moto, base: Path, region: str, kill: Kill) -> None:
    """Make machines, kill, and let another process find and destroy what there is."""
    data, modules = base / "data", base.parent / "modules"
    code = _CONTROLLER.format(
        root=str(Path(__file__).parents[4]),
        data=str(data),
        endpoint=moto.endpoint,
        modules=str(modules),
        region=region,
    )
    folder = TerraformRunFolder(data / "terraform/runs", "run-1")
    struck = threading.Event()
    base.mkdir()
    log = (base / "controller.log").open("w")
    with log, subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=log, text=True) as run:
        if isinstance(kill.moment, str):

            def at_request(_: dict[str, str]) -> None:
                if not struck.is_set():
                    struck.set()
                    strike(kill, folder, run)

            moto.refusals[region, kill.moment] = at_request
            assert struck.wait(200), f"{kill}: {(base / 'controller.log').read_text()}"
        else:
            assert run.stdout is not None
            run.stdout.readline()
            time.sleep(kill.moment)
            strike(kill, folder, run)
        time.sleep(0.2)
        run.kill()
    moto.refusals.pop((region, str(kill.moment)), None)
    if kill.forget:
        folder.stop(0)
        shutil.rmtree(data)
    provisioner = over(data, moto.endpoint, modules, regions=[region])
    if kill.again:
        cluster = provisioner.make("run-1", "me", LATER, replace(OFFER, region=region, nodes=2))
        assert sorted(machine.id for machine in cluster.machines) == sorted(moto.machines(region)), kill
    for cluster in provisioner.find("me"):
        assert cluster.run_id == "run-1"
        assert provisioner.destroy(cluster).state is ClusterState.GONE
    assert provisioner.find("me") == [], kill
    assert moto.leftovers(region) == [], kill
    assert folder.processes() == [], kill


def verify_kills(moto: Moto, base: Path, number: int, seed: int) -> None:
    """Some kills, a few at a time: the worst moments first, then random ones."""
    chance = random.Random(seed)
    victims = (("controller",), ("terraform",), ("controller", "terraform"), ("controller", "session"))
    plan = list(_WORST[:number])
    while len(plan) < number:
        plan.append(Kill(chance.choice(victims), chance.uniform(0, 20), chance.random() < 0.3, chance.random() < 0.2))
    (base / "modules").mkdir(parents=True, exist_ok=True)
    for first in range(0, number, len(_REGIONS)):
        some = plan[first : first + len(_REGIONS)]
        places = zip(_REGIONS, some, strict=False)
        work = {region: partial(one_kill, moto, base / f"{first}-{region}", region, kill) for region, kill in places}
        problems = [each for each in at_once(work).values() if each is not None]
        if problems:
            raise problems[0]


def test_nothing_is_left_after_kill_9(moto: Moto, tmp_path: Path) -> None:
    verify_kills(moto, tmp_path, 8, seed=1)


def test_a_cancel_in_the_middle_of_an_apply(moto: Moto, tmp_path: Path) -> None:
    """Terraform is killed while Amazon still makes the machines, which appear later, and are found by their tags."""
    region, asked = "ca-central-1", threading.Event()

    def slowly(_: dict[str, str]) -> None:
        asked.set()
        time.sleep(8)

    moto.refusals[region, "RunInstances"] = slowly
    provisioner = over(tmp_path / "data", moto.endpoint, regions=[region], stop_seconds=2, listing_seconds=15)
    deployer = deployer_over(tmp_path, provisioner=provisioner)
    deployer.launch(row(), request_for(tmp_path, ("true",), offer=replace(OFFER, region=region)))
    eventually(lambda: deployer.poll() or asked.is_set(), 200)
    assert asked.wait(200)
    begun = time.monotonic()
    ended = deployer.cancel("run-1", "enough")
    assert ended is not None
    assert (ended.state, ended.machines, ended.cost > 0) == (RunState.CANCELLED, (), True)
    assert time.monotonic() - begun < 120, "it may take 15 minutes for machines to come up"
    assert moto.leftovers(region) == []
    assert provisioner.find(OWNER) == []
    deployer.close()


def test_several_applies_are_cancelled_together(moto: Moto, tmp_path: Path) -> None:
    """Each is interrupted while Amazon makes its machines; none waits for another's end."""
    regions = ("ap-south-1", "eu-north-1", "eu-west-3")
    asked = {region: threading.Event() for region in regions}

    def slowly(region: str, _: dict[str, str]) -> None:
        asked[region].set()
        time.sleep(8)

    for region in regions:
        moto.refusals[region, "RunInstances"] = partial(slowly, region)
    data = tmp_path / "data"
    provisioner = over(data, moto.endpoint, regions=list(regions), stop_seconds=2, listing_seconds=15)
    deployer = deployer_over(tmp_path, provisioner=provisioner)
    names = {f"run-{region}": region for region in regions}
    for name, region in names.items():
        deployer.launch(row(name), request_for(tmp_path, ("true",), name, offer=replace(OFFER, region=region)))
    eventually(lambda: deployer.poll() is not None and all(event.is_set() for event in asked.values()), 250)
    begun = time.monotonic()
    deployer.stop(dict.fromkeys(names, "enough"))
    ends = []
    for name in names:
        ended = deployer.cancel(name, "enough")
        assert ended is not None
        assert (ended.state, ended.machines, ended.cost > 0) == (RunState.CANCELLED, (), True)
        ends.append(time.monotonic() - begun)
    # The first is waited for as long as one takes; the others are over by then, but for what two cores are short of.
    assert ends[-1] < 1.8 * ends[0], ends
    assert [thing for region in regions for thing in moto.leftovers(region)] == []
    assert provisioner.find(OWNER) == []
    deployer.close()
