"""What the tests of the terraform provisioner share."""

from __future__ import annotations

import concurrent.futures
import itertools
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from tests.engines.moto import DEBIAN

from tradewind.deployer.provisioner.terraform.cloud import Cloud, TaggedResources
from tradewind.deployer.provisioner.terraform.provisioner import TerraformProvisioner
from tradewind.deployer.provisioner.terraform.run_folder import TerraformRunFolder, TerraformRunRecord
from tradewind.deployer.provisioner.terraform.settings import TerraformSettings
from tradewind.problem import Offer

LATER = 4e9
OFFER = Offer("aws", "t3.micro", 2, 1, 0.0104, region="us-east-1", arch="x86_64")

_REGIONS = itertools.cycle(
    f"{place}-{number}"
    for place, count in (("us-east", 2), ("us-west", 2), ("eu-west", 3), ("ap-northeast", 3), ("ap-southeast", 2))
    for number in range(1, count + 1)
)
_MORE = iter(("eu-central-1", "eu-north-1", "ap-south-1", "sa-east-1", "ca-central-1"))


def fresh_region() -> str:
    """A region that no other test uses at the same time."""
    return next(_MORE, None) or next(_REGIONS)


def over(data: Path, endpoint: str, initialised: Path | None = None, **settings: Any) -> TerraformProvisioner:
    """A provisioner over a data folder, against moto."""
    (data / "terraform").mkdir(parents=True, exist_ok=True)
    modules = data / "terraform" / "modules"
    if initialised is not None and not modules.is_symlink():
        modules.symlink_to(initialised)
    given: dict[str, Any] = {"endpoint": endpoint, "caller_cidr": "127.0.0.1/32", "ready": "none"}
    given |= {"listing_seconds": 0.5, "image": DEBIAN, **settings}
    return TerraformProvisioner(settings=TerraformSettings(**given), data_folder=data)


def at_once(work: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
    """The results of some calls made at the same time, by name; an exception counts as a result."""
    with concurrent.futures.ThreadPoolExecutor(len(work)) as pool:
        tasks = {name: pool.submit(call) for name, call in work.items()}
    return {name: task.exception() or task.result() for name, task in tasks.items()}


class Sky(Cloud):
    """A provider with the machines that a test gives it."""

    def __init__(self, *there: str) -> None:
        self.there = set(there)
        self.problem: Exception | None = None
        self.looks: list[set[str]] = []
        self.given_back: list[str] = []
        self.refusal: Exception | None = None

    def alive(self, region: str, machines: Collection[str]) -> set[str]:
        self.looks.append(set(machines))
        if self.problem is not None:
            raise self.problem
        return self.there & set(machines)

    def find(self, owner: str | None) -> list[TaggedResources]:
        return []

    def give_back(self, run_id: str, region: str) -> list[str]:
        if self.refusal is not None:
            raise self.refusal
        self.given_back.append(run_id)
        return []

    def account(self) -> str:
        return "mine"

    def check(self) -> None:
        """Leftovers can be looked for."""


def ready_run(folder: Path, **changes: Any) -> TerraformRunRecord:
    """What a process leaves whose machine is ready."""
    known: dict[str, Any] = {"started": 1.0, "made": 2.0, "ready": 3.0, "account": "mine", "provider": "aws"}
    known |= {"offer": OFFER.to_json(), "region": "us-east-1", "machines": ({"id": "m", "address": "h"},)}
    run = TerraformRunFolder(folder / "terraform" / "runs", "run-1")
    with run.locked(1.0):
        return run.create(TerraformRunRecord("run-1", "me", LATER, **{**known, **changes}))


def under_sky(folder: Path, **settings: Any) -> TerraformProvisioner:
    """A provisioner that asks no real provider; see `Sky`."""
    given = {"caller_cidr": "127.0.0.1/32", "ready": "none", "listing_seconds": 0.0, **settings}
    return TerraformProvisioner(settings=TerraformSettings(**given), data_folder=folder)
