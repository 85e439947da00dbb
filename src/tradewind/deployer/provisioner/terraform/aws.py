"""Asks Amazon EC2 for what has our tags."""

from __future__ import annotations

import concurrent.futures
import logging
import threading
from collections.abc import Collection, Iterator, Sequence
from xml.etree.ElementTree import Element

from tradewind.deployer.aws_credentials import default_region, find_aws_credentials
from tradewind.deployer.provisioner.terraform.aws_api import Ec2Client, Filter, filters, is_not_found, tags_in
from tradewind.deployer.provisioner.terraform.cloud import (
    OWNER,
    RUN,
    Cloud,
    TaggedResources,
    merge_by_run,
    resources_from_tags,
)
from tradewind.errors import CredentialsError, DeployError, TeardownError

_log = logging.getLogger("tradewind.deployer")

_ALIVE = ["pending", "running", "shutting-down", "stopping", "stopped"]
_AT_ONCE = 150
_OTHERS = {
    # what: (list, id, parameter of delete, delete)
    "volume": ("DescribeVolumes", "volumeId", "VolumeId", "DeleteVolume"),
    "network interface": (
        "DescribeNetworkInterfaces",
        "networkInterfaceId",
        "NetworkInterfaceId",
        "DeleteNetworkInterface",
    ),
    "security group": ("DescribeSecurityGroups", "groupId", "GroupId", "DeleteSecurityGroup"),
}


class AmazonCloud(Cloud):
    """Amazon EC2.

    Spot machines cannot be tagged while they are made, but their requests are, and lead to them.

    Args:
        regions: Where leftovers are looked for; all that the account has enabled when empty.
        endpoint: Another address than Amazon's, or empty.
        account: The account that things are in, where that is known: nothing is asked or ended with the credentials of
            another one, which knows nothing of them.
    """

    covers = frozenset({"aws_instance", "aws_spot_instance_request", "aws_security_group"})

    def __init__(self, regions: Sequence[str], endpoint: str, account: str = "") -> None:
        self._given = tuple(regions)
        self._ec2 = Ec2Client(endpoint)
        self._account = account
        self._guard = threading.Lock()
        self._zones: dict[tuple[str, str], tuple[str, ...]] = {}

    def account(self) -> str:
        """The number of the account; see `Cloud.account`."""
        return self._ec2.account(default_region())

    def _check_account(self) -> None:
        if not self._account:
            return
        now = self.account()
        if now != self._account:
            raise TeardownError(
                f"the machines are in the AWS account {self._account}, and the credentials of now are of {now}",
                hint="repeat this with the credentials or the AWS_PROFILE that they were made with",
            )

    def check(self) -> None:
        """Raise `CredentialsError` when there are no credentials for looking."""
        find_aws_credentials()

    def zones(self, region: str, kind: str, nodes: int) -> tuple[str, ...]:
        """See `Cloud.zones`; Amazon finds one by itself, but for each machine, and bills traffic between zones."""
        if nodes == 1:
            return ()
        with self._guard:
            found = self._zones.get((region, kind))
        if found is None:
            wanted = filters(instance_type=kind)
            offered = self._ec2.all(
                region, "DescribeInstanceTypeOfferings", LocationType="availability-zone", Filter=wanted
            )
            have = {each.findtext("location", "") for each in offered}
            subnets = self._ec2.all(region, "DescribeSubnets", Filter=filters(default_for_az="true"))
            found = tuple(sorted(have & {each.findtext("availabilityZone", "") for each in subnets}))
            with self._guard:
                self._zones[region, kind] = found
        return found

    def find(self, owner: str | None) -> list[TaggedResources]:
        """See `Cloud.find`; all regions at once."""
        wanted = filters(tag_key=RUN) if owner is None else _tagged(OWNER, owner)
        regions = self._given or tuple(
            each.findtext("regionName", "") for each in self._ec2.all(default_region(), "DescribeRegions")
        )
        with concurrent.futures.ThreadPoolExecutor(max(1, min(16, len(regions)))) as pool:
            answers = list(pool.map(lambda region: self._allowed_in(region, wanted), regions))
        return [each for answer in answers for each in answer]

    def _allowed_in(self, region: str, wanted: list[Filter]) -> list[TaggedResources]:
        try:
            return self._in_region(region, wanted)
        except CredentialsError as error:
            hint = error.hint
            if not self._given:  # an organisation may allow some of the regions that an account has
                hint = "where only some regions are allowed, list them in the setting regions of provisioner terraform"
            raise CredentialsError(f"leftovers cannot be looked for in {region}: {error.message}", hint=hint) from error

    def _in_region(self, region: str, wanted: list[Filter]) -> list[TaggedResources]:
        found = []
        for item in self._instances(region, wanted):
            tags = tags_in(item)
            if RUN in tags:
                found.append(resources_from_tags(tags[RUN], region, tags, (item.findtext("instanceId", ""),)))
        for item, machine in self._requests(region, wanted):
            tags = tags_in(item)
            if RUN in tags and (machine or item.findtext("state") == "open"):
                found.append(resources_from_tags(tags[RUN], region, tags, (machine,) if machine else ()))
        for action, *_ in _OTHERS.values():
            for item in self._ec2.all(region, action, Filter=wanted):
                tags = tags_in(item)
                if RUN in tags:
                    found.append(resources_from_tags(tags[RUN], region, tags))
        return merge_by_run(found)

    def give_back(self, run_id: str, region: str) -> list[str]:
        """See `Cloud.give_back`."""
        self._check_account()
        wanted = _tagged(RUN, run_id)
        requests = list(self._requests(region, wanted))
        open_ones = [
            r.findtext("spotInstanceRequestId") for r, _ in requests if r.findtext("state") in ("open", "active")
        ]
        if open_ones:
            self._ec2.call(region, "CancelSpotInstanceRequests", SpotInstanceRequestId=open_ones)
        states = {i.findtext("instanceId", ""): _state(i) for i in self._instances(region, wanted)}
        states |= {machine: "running" for _, machine in requests if machine}
        condemned = [machine for machine, state in states.items() if state != "shutting-down"]
        if condemned:
            try:
                self._ec2.call(region, "TerminateInstances", InstanceId=condemned)
            except DeployError as error:
                if not is_not_found(error):
                    raise
        if states:
            # What they use can be deleted only after them.
            left = [*self._instances(region, wanted), *(r for r, machine in self._requests(region, wanted) if machine)]
            if left:
                return [f"machine {machine}" for machine in states]
        return [
            f"{what} {item.findtext(name)}"
            for what, (action, name, parameter, delete) in _OTHERS.items()
            for item in self._ec2.all(region, action, Filter=wanted)
            if not self._delete(region, delete, parameter, item.findtext(name, ""))
        ]

    def alive(self, region: str, machines: Collection[str]) -> set[str]:
        """See `Cloud.alive`; by number, since spot machines get their tags late."""
        self._check_account()
        return {
            item.findtext("instanceId", "")
            for item in self._numbered(region, sorted(machines))
            if _state(item) in ("pending", "running")
        }

    def label(self, run_id: str, region: str) -> None:
        """Tag spot machines, and the disks and network interfaces of all machines; close spot machines' metadata."""
        wanted = _tagged(RUN, run_id)
        machines = {i.findtext("instanceId", ""): tags_in(i) for i in self._instances(region, wanted)}
        spot = {machine: tags_in(request) for request, machine in self._requests(region, wanted) if machine}
        machines |= spot
        if not machines:
            return
        things = list(machines)
        for item in self._instances(region, filters(instance_id=list(machines))):
            things += [e.text or "" for e in item.findall("networkInterfaceSet/item/networkInterfaceId")]
            things += [e.text or "" for e in item.findall("blockDeviceMapping/item/ebs/volumeId")]
            if item.findtext("instanceId") in spot:
                self._want_tokens(region, item)
        tags = next(iter(machines.values()))
        # Names that begin with aws: are Amazon's own.
        given = [{"Key": k, "Value": v} for k, v in tags.items() if not k.startswith("aws:")]
        self._ec2.call(region, "CreateTags", ResourceId=things, Tag=given)

    def _want_tokens(self, region: str, item: Element) -> None:
        """Have the metadata service answer with tokens only, as that of other machines does by the module."""
        machine = item.findtext("instanceId", "")
        # From a container it is one step further to the credentials of the profile.
        hops = 1 if item.find("iamInstanceProfile") is None else 2
        try:
            self._ec2.call(
                region,
                "ModifyInstanceMetadataOptions",
                InstanceId=machine,
                HttpTokens="required",
                HttpPutResponseHopLimit=hops,
            )
        except DeployError as error:
            _log.warning("the metadata service of spot machine %s answers without a token as well: %s", machine, error)

    def _instances(self, region: str, wanted: list[Filter]) -> list[Element]:
        both = [*wanted, *filters(instance_state_name=_ALIVE)]
        reservations = self._ec2.all(region, "DescribeInstances", Filter=both)
        return [item for reservation in reservations for item in reservation.findall("instancesSet/item")]

    def _numbered(self, region: str, ids: Sequence[str]) -> Iterator[Element]:
        """Machines by number; EC2 takes 200 values for a filter."""
        for at in range(0, len(ids), _AT_ONCE):
            yield from self._instances(region, filters(instance_id=list(ids[at : at + _AT_ONCE])))

    def _requests(self, region: str, wanted: list[Filter]) -> list[tuple[Element, str]]:
        """Requests for spot machines, each with the id of its machine if that is there."""
        requests = list(self._ec2.all(region, "DescribeSpotInstanceRequests", Filter=wanted))
        # Requests are listed for hours after their machines have gone, and are closed then.
        there = [request for request in requests if request.findtext("state") not in ("closed", "failed")]
        ids = [machine for request in there if (machine := request.findtext("instanceId"))]
        alive = {item.findtext("instanceId") for item in self._numbered(region, ids)}
        return [(r, m if (m := r.findtext("instanceId", "")) in alive else "") for r in requests]

    def _delete(self, region: str, action: str, parameter: str, name: str) -> bool:
        """False when something still uses it."""
        try:
            self._ec2.call(region, action, **{parameter: name})
        except DeployError as error:
            if is_not_found(error):
                return True
            if any(code in str(error) for code in ("DependencyViolation", "InUse", "in use", "IncorrectState")):
                return False
            raise
        return True


def _state(item: Element) -> str:
    return item.findtext("instanceState/name", "")


def _tagged(tag: str, value: str) -> list[Filter]:
    return [{"Name": f"tag:{tag}", "Value": [value]}]
