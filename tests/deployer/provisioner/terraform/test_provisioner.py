"""The terraform provisioner: Terraform and its provider for Amazon against moto."""

from __future__ import annotations

import itertools
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.deployer.provisioner.terraform.helpers import LATER, OFFER, at_once, fresh_region, over
from tests.engines import moto as engine
from tests.engines.moto import Moto

from tradewind.deployer.provisioner.base import Cluster, ClusterState
from tradewind.deployer.provisioner.terraform.aws import AmazonCloud, Ec2Client, Item, tags_in
from tradewind.deployer.provisioner.terraform.provisioner import TerraformProvisioner
from tradewind.errors import (
    CapacityError,
    CredentialsError,
    DeployError,
    ImageError,
    OfferRefusedError,
    TeardownError,
    UnreachableError,
)
from tradewind.testing.provisioners import Bench, ProvisionerConformance

pytestmark = [pytest.mark.xdist_group("terraform"), pytest.mark.slow, pytest.mark.timeout(300)]

Maker = Callable[..., TerraformProvisioner]


@pytest.fixture(scope="module")
def initialised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Modules are initialised once for all tests, as they would be for all runs of one data folder."""
    return tmp_path_factory.mktemp("modules")


@pytest.fixture(scope="module", autouse=True)
def _environment(moto: Moto) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in engine.environment(moto.folder).items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="module")
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

    offer = replace(OFFER, region="", nodes=2)

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
        given = {"region": region, "regions": [region], **settings}
        return over(data, given.pop("endpoint", moto.endpoint), initialised, **given)

    return make


def tags(ec2: Ec2Client, region: str, action: str) -> list[dict[str, str]]:
    return [tags_in(item) for item in ec2.all(region, action)]


def instances(ec2: Ec2Client, region: str) -> list[Item]:
    return [item for each in ec2.all(region, "DescribeInstances") for item in each["Instances"]]


def test_all_that_is_made_has_the_tags(cloud: Maker, moto: Moto) -> None:
    plain, spot = fresh_region(), fresh_region()
    makers = {"run-1": cloud(plain, image="", disk=11), "run-2": cloud(spot)}
    large = replace(OFFER, instance_type="m5.large", region=spot, spot=True, nodes=2)
    offers = {"run-1": replace(OFFER, region=plain), "run-2": large}
    launches: list[dict[str, str]] = []
    moto.refusals[plain, "RunInstances"] = launches.append
    made = at_once({run: partial(maker.make, run, "me", 4e9, offers[run]) for run, maker in makers.items()})
    wanted = {"tradewind-owner": "me", "tradewind-expires": "4000000000"}
    ec2 = Ec2Client(moto.endpoint)
    for run_id, region, nodes in (("run-1", plain, 1), ("run-2", spot, 2)):
        cluster = made[run_id]
        assert (cluster.state, len(cluster.machines)) == (ClusterState.READY, nodes), cluster
        there = instances(ec2, region)
        there = [item for item in there if item["State"]["Name"] == "running"]
        assert {item["InstanceId"] for item in there} == {machine.id for machine in cluster.machines}
        groups = [found for found in tags(ec2, region, "DescribeSecurityGroups") if found]
        others = [each for what in ("Volumes", "NetworkInterfaces") for each in tags(ec2, region, f"Describe{what}")]
        assert len(others) == 2 * nodes
        for found in [*map(tags_in, there), *groups, *others]:
            assert {**wanted, "tradewind-run": run_id}.items() <= found.items()
        amazon = AmazonCloud((region,), moto.endpoint)
        assert json.loads(Path(cluster.data["folder"], "run.json").read_text())["account"] == amazon.account()
        with pytest.raises(TeardownError, match=f"AWS account 1, and the credentials of now are of {amazon.account()}"):
            AmazonCloud((region,), moto.endpoint, "1").give_back(run_id, region)
        [listed] = amazon.find("me")
        assert listed.price_per_hour == pytest.approx(offers[run_id].hourly)
        assert listed.created is not None and 0 <= time.time() - listed.created < 600
    [request, _] = ec2.all(spot, "DescribeSpotInstanceRequests")
    assert tags_in(request)["tradewind-run"] == "run-2"
    [disk] = ec2.all(plain, "DescribeVolumes")
    assert disk["Size"] == 11
    [group] = [g for g in ec2.all(plain, "DescribeSecurityGroups") if g["GroupName"] != "default"]
    [ssh] = [rule for rule in group["IpPermissions"] if rule.get("FromPort") == 22]
    assert [each["CidrIp"] for each in ssh["IpRanges"]] == ["127.0.0.1/32"]
    [machine] = made["run-1"].machines
    key = Path(machine.data["ssh"]["identity"])
    assert (key.stat().st_mode & 0o777, key.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    behaviour = ec2.call(
        plain, "DescribeInstanceAttribute", InstanceId=machine.id, Attribute="instanceInitiatedShutdownBehavior"
    )
    assert behaviour["InstanceInitiatedShutdownBehavior"]["Value"] == "terminate"
    [launch] = launches
    assert launch["CreditSpecification.CpuCredits"] == "standard", "unlimited is billed besides"
    assert (launch["MetadataOptions.HttpTokens"], launch["MetadataOptions.HttpPutResponseHopLimit"]) == (
        "required",
        "1",
    )
    options = [item["MetadataOptions"] for item in instances(ec2, spot)]
    assert [each["HttpTokens"] for each in options] == ["required"] * 2
    assert [each["HttpPutResponseHopLimit"] for each in options] == [1] * 2
    zones = {item["Placement"]["AvailabilityZone"] for item in instances(ec2, spot)}
    assert len(zones) == 1, zones

    # Another process whose data folder is lost finds and destroys them all the same.
    shutil.rmtree(makers["run-1"].data_folder / "terraform" / "runs")
    for run_id, region in (("run-1", plain), ("run-2", spot)):
        [orphan] = makers[run_id].find("me")
        assert (orphan.run_id, orphan.owner, orphan.expires, orphan.state) == (run_id, "me", 4e9, ClusterState.UNKNOWN)
        assert {machine.id for machine in orphan.machines} == {machine.id for machine in made[run_id].machines}
        assert makers[run_id].destroy(orphan).state is ClusterState.GONE
        assert moto.leftovers(region) == []


def test_what_amazon_refuses_is_one_typed_error(cloud: Maker, moto: Moto) -> None:
    """All at once, each in a region of its own; nothing is left of any. Another zone is tried when one is full."""
    regions = {name: fresh_region() for name in ("capacity", "second", "type", "credentials", "image", "zone")}

    def refuse(name: str, action: str, code: str, message: str, turn: int = 1) -> None:
        turns = itertools.count(1)
        moto.refusals[regions[name], action] = lambda _: (code, message) if next(turns) >= turn else None

    full = "We currently do not have sufficient t3.micro capacity"
    refuse("capacity", "RunInstances", "InsufficientInstanceCapacity", full)
    refuse("second", "RunInstances", "VcpuLimitExceeded", "You have requested more vCPU capacity than allowed", turn=2)
    refuse("type", "RunInstances", "InvalidParameterValue", "Invalid value 't3.micro' for InstanceType.")
    refuse("credentials", "CreateSecurityGroup", "AuthFailure", "AWS was not able to validate the credentials")
    here = regions["zone"]
    elsewhere = ("InsufficientInstanceCapacity", "no t3.micro there")
    moto.refusals[here, "RunInstances"] = lambda asked: (
        elsewhere if asked.get("Placement.AvailabilityZone") == f"{here}a" else None
    )
    settings: dict[str, dict[str, Any]] = {
        "image": {"image": "", "variables": {"image_name": "no-such-image"}},
        "zone": {"zones": [f"{here}a", f"{here}b", "mars-1a"]},
    }
    offer = replace(OFFER, nodes=2)
    made = at_once(
        {
            name: partial(
                cloud(region, **settings.get(name, {})).make, f"run-{name}", "me", LATER, replace(offer, region=region)
            )
            for name, region in regions.items()
        }
    )
    moto.refusals.clear()
    cluster = made.pop("zone")
    reservations = Ec2Client(moto.endpoint).all(here, "DescribeInstances", InstanceIds=[m.id for m in cluster.machines])
    zones = [machine["Placement"]["AvailabilityZone"] for each in reservations for machine in each["Instances"]]
    assert zones == [f"{here}b"] * 2, cluster
    assert cloud(here).destroy(cluster).state is ClusterState.GONE
    kinds = {name: type(error) for name, error in made.items()}
    assert kinds == {
        "capacity": CapacityError,
        "second": CapacityError,
        "type": OfferRefusedError,
        "credentials": CredentialsError,
        "image": ImageError,
    }, made
    assert full in str(made["capacity"])
    assert "AWS_PROFILE" in made["credentials"].hint
    assert [error.retryable for error in made.values()] == [True, True, False, False, False]
    for name, region in regions.items():
        assert moto.leftovers(region) == []
        assert cloud(region).find("me") == [], name


def test_a_provider_that_does_not_answer(cloud: Maker) -> None:
    """What it has is not known: nothing is said to be gone."""
    region = fresh_region()
    provisioner = cloud(region, endpoint="http://127.0.0.1:9", boot_seconds=5)
    with pytest.raises(UnreachableError, match="aws does not answer"):
        provisioner.find("me")
    with pytest.raises(DeployError) as caught:
        provisioner.make("run-1", "me", LATER, replace(OFFER, region=region))
    assert caught.value.retryable
    [record] = (Path(path) for path in provisioner.data_folder.glob("terraform/runs/*/run.json"))
    assert "giving it back has failed" in json.loads(record.read_text())["reason"]
    begun = time.monotonic()
    cluster = provisioner.poll([Cluster("run-1", ClusterState.BOOTING)])["run-1"]
    assert time.monotonic() - begun < 4  # an answer is waited for longer
    assert (cluster.state, "giving it back" in cluster.reason) == (ClusterState.FAILED, True)
    again = cloud(region)
    assert [each.run_id for each in again.find("me")] == ["run-1"]
    assert again.destroy(cluster).state is ClusterState.GONE
    assert again.find("me") == []
