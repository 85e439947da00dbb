"""The terraform provisioner: Terraform and its provider for Amazon against moto."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.deployer.terraform_helpers import LATER, OFFER, at_once, fresh_region, over
from tests.engines import moto as engine
from tests.engines.moto import Moto

from tradewind.deployer.provisioner.terraform import TerraformProvisioner
from tradewind.errors import (
    CapacityError,
)
from tradewind.testing.provisioners import Bench, ProvisionerConformance

pytestmark = [pytest.mark.xdist_group("terraform"), pytest.mark.slow]

Maker = Callable[..., TerraformProvisioner]


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moto]:
    yield from engine.start(tmp_path_factory.mktemp("moto"))


@pytest.fixture(scope="session")
def initialised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Modules are initialised once for all tests, as they would be for all runs of one data folder."""
    return tmp_path_factory.mktemp("modules")


@pytest.fixture(scope="session", autouse=True)
def _environment(moto: Moto) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in engine.environment(moto.folder).items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="session")
def early(moto: Moto, initialised: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, str]]:
    """The first machines of each test of the suite, begun all at once: Amazon's provider waits ten seconds for each.

    They are as well the test that many runs at once do not get in each other's way.
    """
    places = {}
    for test in (name for name in dir(ProvisionerConformance) if name.startswith("test_")):
        data, region = places[test] = tmp_path_factory.mktemp("data"), fresh_region()
        made = {"run-1": "owner-a", "run-2": "owner-b"} if "owner" in test else {"run-1": "owner-a"}
        for run_id, owner in made.items():
            provisioner = over(data, moto.endpoint, initialised, region=region, regions=[region])
            arguments = (run_id, owner, LATER, TestConformance.offer)
            threading.Thread(target=provisioner.make, args=arguments, daemon=True).start()
    return places


class TestConformance(ProvisionerConformance):
    """The suite of all provisioners."""

    offer = OFFER.__class__("aws", "t3.micro", 2, 1, 0.0104, nodes=2)

    @pytest.fixture
    def bench(
        self, moto: Moto, early: dict[str, tuple[Path, str]], request: pytest.FixtureRequest, initialised: Path
    ) -> Iterator[Bench]:
        data, region = early[request.node.name]
        yield partial(over, data, moto.endpoint, initialised, region=region, regions=[region])
        assert moto.leftovers(region) == []


@pytest.fixture
def cloud(moto: Moto, initialised: Path, tmp_path: Path) -> Maker:
    """Makes provisioners over one data folder."""

    def make(region: str, **settings: Any) -> TerraformProvisioner:
        data = tmp_path / "data"
        return over(data, moto.endpoint, initialised, **{"region": region, "regions": [region], **settings})

    return make


def test_all_that_is_made_has_the_tags(cloud: Maker, moto: Moto) -> None:
    plain, spot = fresh_region(), fresh_region()
    made = at_once(
        {
            "plain": lambda: cloud(plain, image="").make("run-1", "me", 4e9, OFFER.at(plain)),
            "spot": lambda: cloud(spot).make("run-2", "me", 4e9, OFFER.at(spot)),
        }
    )
    print(made)


def test_errors(cloud: Maker, moto: Moto) -> None:
    wanted = {
        CapacityError: ("InsufficientInstanceCapacity", "We currently do not have sufficient t3.micro capacity"),
    }
