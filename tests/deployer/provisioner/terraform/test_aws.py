"""What Amazon is asked, however much an account has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tradewind.deployer.provisioner.terraform.aws import AmazonCloud
from tradewind.deployer.provisioner.terraform.errors import TerraformDiagnostic, terraform_error
from tradewind.errors import CredentialsError, DeployError

_MOST_VALUES = 200
"""Of one filter, as EC2 has it."""


class Region:
    """EC2 with some spot requests and their machines; a refusal by region."""

    def __init__(self, states: Mapping[str, str] | None = None) -> None:
        self.states = states or {}
        self.refused: dict[str, DeployError] = {}

    def all(self, region: str, action: str, **parameters: Any) -> list[dict[str, Any]]:
        if region in self.refused:
            raise self.refused[region]
        values = {each["Name"]: each["Values"] for each in parameters.get("Filters", ())}
        if any(len(value) > _MOST_VALUES for value in values.values()):
            raise terraform_error(
                [TerraformDiagnostic("FilterLimitExceeded: too many values")], "aws", action, applying=True
            )
        if action == "DescribeRegions":
            return [{"RegionName": name} for name in ("near", "far")]
        if action == "DescribeSpotInstanceRequests":
            tags = [{"Key": "tradewind-run", "Value": "r"}]
            return [
                {"SpotInstanceRequestId": f"s{name}", "InstanceId": name, "State": state, "Tags": tags}
                for name, state in self.states.items()
            ]
        if action == "DescribeInstances" and "instance-id" in values:
            return [{"Instances": [{"InstanceId": name} for name in values["instance-id"]]}]
        return []


def test_any_number_of_spot_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are listed for some hours after their machines have gone."""
    states = {f"i-{n}": ("active", "cancelled", "closed")[n % 3] for n in range(999)}
    amazon = AmazonCloud(("near",), "http://127.0.0.1:9")
    monkeypatch.setattr(amazon._ec2, "all", Region(states).all)
    [found] = amazon.find("me")
    assert set(found.machines) == {name for name, state in states.items() if state != "closed"}


def test_too_many_values_are_no_lack_of_machines() -> None:
    error = terraform_error(
        [TerraformDiagnostic("FilterLimitExceeded: 201 values")], "aws", "DescribeInstances", applying=True
    )
    assert type(error) is DeployError


@pytest.mark.parametrize(("regions", "hint"), [((), "setting regions"), (("near", "far"), "ask your administrator")])
def test_a_region_that_is_not_allowed_is_named(
    monkeypatch: pytest.MonkeyPatch, regions: tuple[str, ...], hint: str
) -> None:
    amazon, ec2 = AmazonCloud(regions, "http://127.0.0.1:9"), Region()
    ec2.refused["far"] = CredentialsError("UnauthorizedOperation: explicit deny", hint="ask your administrator")
    monkeypatch.setattr(amazon._ec2, "all", ec2.all)
    with pytest.raises(CredentialsError, match="cannot be looked for in far: UnauthorizedOperation") as caught:
        amazon.find(None)
    assert caught.value.hint is not None
    assert hint in caught.value.hint
    ec2.refused.clear()
    assert amazon.find(None) == []


class Spot(Region):
    """EC2 that keeps what it is asked to change, of two spot machines, one of them with a profile."""

    def __init__(self, refused: str = "") -> None:
        super().__init__({"i-1": "active", "i-2": "active"})
        self.changed: dict[str, list[dict[str, Any]]] = {}
        self.refusal = refused

    def all(self, region: str, action: str, **parameters: Any) -> list[dict[str, Any]]:
        found = super().all(region, action, **parameters)
        for item in found if action == "DescribeInstances" else ():
            for machine in item["Instances"]:
                if machine["InstanceId"] == "i-2":
                    machine["IamInstanceProfile"] = {"Arn": "a"}
        return found

    def call(self, region: str, action: str, **parameters: Any) -> dict[str, Any]:
        if action == self.refusal:
            raise CredentialsError("UnauthorizedOperation: not allowed")
        self.changed.setdefault(action, []).append(parameters)
        return {}


def test_metadata_of_spot_machines_takes_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """A spot request cannot say so; without tokens a job that fetches what it is told to could read credentials."""
    amazon, ec2 = AmazonCloud(("near",), "http://127.0.0.1:9"), Spot()
    monkeypatch.setattr(amazon, "_ec2", ec2)
    amazon.label("r", "near")
    asked = {each["InstanceId"]: each for each in ec2.changed["ModifyInstanceMetadataOptions"]}
    assert {name: each["HttpTokens"] for name, each in asked.items()} == {"i-1": "required", "i-2": "required"}
    assert {name: each["HttpPutResponseHopLimit"] for name, each in asked.items()} == {"i-1": 1, "i-2": 2}
    assert len(ec2.changed["CreateTags"]) == 1


def test_metadata_that_stays_open_is_said(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    amazon, ec2 = AmazonCloud(("near",), "http://127.0.0.1:9"), Spot("ModifyInstanceMetadataOptions")
    monkeypatch.setattr(amazon, "_ec2", ec2)
    amazon.label("r", "near")
    assert caplog.text.count("answers without a token as well: UnauthorizedOperation") == 2
    assert len(ec2.changed["CreateTags"]) == 1, "the tags are put on all the same"
