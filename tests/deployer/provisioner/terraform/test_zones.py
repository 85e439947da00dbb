"""Which zones the terraform provisioner tries, in what order, and what it says when none has such machines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.deployer.provisioner.terraform.helpers import LATER, Sky

from tradewind.deployer.provisioner.terraform import gcp as terraform_gcp
from tradewind.deployer.provisioner.terraform.aws import AmazonCloud
from tradewind.deployer.provisioner.terraform.cli import TerraformCli, TerraformResult
from tradewind.deployer.provisioner.terraform.errors import TerraformDiagnostic
from tradewind.deployer.provisioner.terraform.gcp import GoogleCloud
from tradewind.deployer.provisioner.terraform.provisioner import ProviderClouds, TerraformProvisioner
from tradewind.deployer.provisioner.terraform.run_folder import TerraformRunFolder
from tradewind.deployer.provisioner.terraform.settings import TerraformSettings
from tradewind.errors import CapacityError, OfferRefusedError
from tradewind.problem import Offer

C3 = Offer("gcp", "c3-standard-4", 4, 16, 0.2, region="us-central1")
URL = "https://www.googleapis.com/compute/v1/projects/p/zones/"
FULL = "The zone 'z' does not have enough resources available to fulfill the request: ZONE_RESOURCE_POOL_EXHAUSTED"
NOT_FOUND = "Error 404: The resource 'projects/p/zones/z/machineTypes/c3-standard-4' was not found, notFound"
NOT_HERE = "Error 400: Machine type with name 'c3-standard-4' does not exist in zone 'us-central1-b'., invalid"


@pytest.mark.parametrize(
    ("provider", "region", "zones", "wanted"),
    [
        ("gcp", "us-central1", ("us-central1-a", "us-central10-a", "us-east1-b"), ("us-central1-a",)),
        ("gcp", "us-central1", ("1", "2"), ()),
        ("aws", "us-east-1", ("us-east-1b", "us-east-1-bos-1a", "us-east-2a"), ("us-east-1b", "us-east-1-bos-1a")),
        ("aws", "us-east-1", ("1",), ()),
        ("azure", "eastus", ("1", "3", "us-central1-a"), ("1", "3")),
        ("mine", "here", ("here-a", "7"), ("here-a", "7")),
    ],
)
def test_zones_of_a_region(provider: str, region: str, zones: tuple[str, ...], wanted: tuple[str, ...]) -> None:
    assert TerraformSettings(zones=zones).zones_in(region, provider) == wanted


def google(monkeypatch: pytest.MonkeyPatch, lists: Mapping[str, list[dict[str, Any]]]) -> list[tuple[str, ...]]:
    """Answers of gcloud, by kind; what it was asked is in the list."""
    asked: list[tuple[str, ...]] = []

    def ask(provider: str, program: str, *words: str) -> Any:
        asked.append(words)
        return lists.get(words[1], [])

    monkeypatch.setattr(terraform_gcp, "ask", ask)
    monkeypatch.setattr(GoogleCloud, "check", lambda self: None)
    return asked


def test_google_says_which_zones_have_a_type(monkeypatch: pytest.MonkeyPatch) -> None:
    zones = ("us-central1-c", URL + "us-central1-a", "us-central10-a", "us-east1-b")
    up = [{"name": "us-central1-f"}, {"name": "us-central1-b"}]
    asked = google(monkeypatch, {"machine-types": [{"zone": zone} for zone in zones], "zones": up})
    cloud = GoogleCloud("p")
    for _ in range(2):
        assert cloud.zones("us-central1", "c3-standard-4", 1) == ("us-central1-a", "us-central1-c")
    assert [words[3] for words in asked] == ["--filter=name=c3-standard-4"], "it is asked once"
    assert cloud.zones("us-central1", "n2-custom-6-20480", 1) == ("us-central1-b", "us-central1-f")
    assert asked[-1][3] == "--filter=name~^us-central1- AND status=UP"
    with pytest.raises(OfferRefusedError, match="gcp has no c3-standard-4 in any zone of us-west1"):
        cloud.zones("us-west1", "c3-standard-4", 1)
    assert AmazonCloud((), "").zones("us-east-1", "m5.large", 1) == (), "Amazon finds one by itself"


def test_several_machines_at_amazon_are_in_one_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would get a zone of its own otherwise, and what they send each other would be billed."""
    asked: list[str] = []

    def all_of(region: str, action: str, **parameters: Any) -> list[dict[str, str]]:
        asked.append(action)
        name = "Location" if action == "DescribeInstanceTypeOfferings" else "AvailabilityZone"
        zones = {"Location": "cabe", "AvailabilityZone": "dcba"}[name]
        assert name == "Location" or parameters == {"Filters": [{"Name": "default-for-az", "Values": ["true"]}]}
        return [{name: f"{region}{zone}"} for zone in zones]

    cloud = AmazonCloud((), "")
    monkeypatch.setattr(cloud._ec2, "all", all_of)
    assert cloud.zones("us-east-1", "m5.large", 1) == ()
    for _ in range(2):
        assert cloud.zones("us-east-1", "m5.large", 3) == ("us-east-1a", "us-east-1b", "us-east-1c")
    assert asked == ["DescribeInstanceTypeOfferings", "DescribeSubnets"], "once"


@pytest.mark.parametrize(("variables", "wanted"), [({}, ["us-east-1b"]), ({"subnet_id": "subnet-1"}, [""])])
def test_a_subnet_of_amazon_says_which_zone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], wanted: list[str]
) -> None:
    """Another one is refused, and in the one of the subnet the next one is no other."""
    tries = Tries(monkeypatch, {})
    offer = Offer("aws", "m5.large", 2, 8, 0.1, region="us-east-1")
    given = {"providers": ("aws",), "zones": ("us-east-1b", "us-east-1c"), "variables": variables, "sweep": False}
    at_google(tmp_path, **given).make("run-1", "me", LATER, offer)
    assert tries.zones == wanted


class Tries:
    """A Terraform that complains of zones, or makes a machine."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, complaints: Mapping[str, str]) -> None:
        self.zones: list[str] = []
        self.steps: list[str] = []

        def run(
            program: TerraformCli, folder: TerraformRunFolder, lock: int, verb: str, seconds: float
        ) -> TerraformResult:
            zone = json.loads((folder.path / "tradewind.auto.tfvars.json").read_text()).get("zone", "")
            self.zones.append(zone)
            self.steps.append(zone)
            if zone in complaints:
                return TerraformResult(1, (TerraformDiagnostic(complaints[zone]),), applying=True)
            return TerraformResult(0, outputs={"machines": [{"id": "m", "address": "192.0.2.1"}]})

        monkeypatch.setattr(TerraformCli, "prepare", lambda self, sources: Path())
        monkeypatch.setattr(TerraformCli, "settle", lambda self, folder, module: None)
        monkeypatch.setattr(TerraformCli, "run", run)


def at_google(tmp_path: Path, **settings: Any) -> TerraformProvisioner:
    given: dict[str, Any] = {"providers": ("gcp",), "variables": {"project": "p"}, "caller_cidr": "192.0.2.1/32"}
    given |= {"ready": "none", "listing_seconds": 0, **settings}
    return TerraformProvisioner(settings=TerraformSettings(**given), data_folder=tmp_path)


@pytest.mark.parametrize("complaint", [FULL, NOT_FOUND, NOT_HERE])
@pytest.mark.parametrize("named", [True, False])
def test_the_next_zone_of_google_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, complaint: str, named: bool
) -> None:
    zones = ("us-central1-a", "us-central1-b", "us-central1-c")
    google(monkeypatch, {"machine-types": [{"zone": zone} for zone in zones]})
    tries = Tries(monkeypatch, dict.fromkeys(zones[:2], complaint))
    made = at_google(tmp_path, zones=zones if named else ()).make("run-1", "me", LATER, C3)
    assert ([machine.id for machine in made.machines], tries.zones) == (["m"], list(zones))


@pytest.mark.parametrize(
    ("complaints", "kind"),
    [((NOT_FOUND, NOT_HERE), OfferRefusedError), ((NOT_HERE, FULL), CapacityError), ((FULL, NOT_HERE), CapacityError)],
)
def test_when_no_zone_of_google_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, complaints: tuple[str, str], kind: type[Exception]
) -> None:
    """It is not sold only where every zone says so: what is sold out comes back."""
    google(monkeypatch, {})
    zones = ("us-central1-a", "us-central1-b")
    tries = Tries(monkeypatch, dict(zip(zones, complaints, strict=True)))
    with pytest.raises(kind):
        at_google(tmp_path, zones=zones).make("run-1", "me", LATER, C3)
    assert tries.zones == list(zones)


def test_a_zone_is_not_looked_for_where_nobody_wants_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = google(monkeypatch, {})
    tries = Tries(monkeypatch, {})
    at_google(tmp_path, sweep=False).make("run-1", "me", LATER, C3)
    own = tmp_path / "own"
    own.mkdir()
    (own / "main.tf").write_text("")
    at_google(tmp_path, module=own).make("run-2", "me", LATER, C3)
    given = {"project": "p", "zone": "us-central1-f"}
    at_google(tmp_path, variables=given).make("run-3", "me", LATER, C3)
    assert tries.zones == ["", "", "us-central1-f"]
    assert not [words for words in asked if words[1] in ("machine-types", "zones")]


def test_what_azure_had_no_room_for_is_cleared_before_the_next_zone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that could not be allocated stays there with its interface, and Terraform's state does not have it."""
    sky, steps = Sky(), list[str]()
    monkeypatch.setattr(ProviderClouds, "_make", lambda self, provider, account: sky)

    def give_back(run_id: str, region: str) -> list[str]:
        steps.append("cleared")
        return []

    monkeypatch.setattr(sky, "give_back", give_back)
    tries = Tries(monkeypatch, {"1": "ZonalAllocationFailed: Allocation failed."})
    tries.steps = steps
    offer = Offer("azure", "Standard_D2s_v5", 2, 8, 0.1, region="eastus")
    given = {"providers": ("azure",), "variables": {}, "zones": ("1", "2", "3")}
    made = at_google(tmp_path, **given).make("run-1", "me", LATER, offer)
    assert (tries.zones, len(made.machines)) == (["1", "2"], 1)
    assert steps[0] == "1" and steps[-1] == "2" and set(steps[1:-1]) == {"cleared"}
