"""Asks Amazon EC2 for what has our tags."""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from tradewind.deployer.aws_credentials import aws_session, credentials_error, default_region, find_aws_credentials
from tradewind.deployer.provisioner.terraform.cloud import (
    OWNER,
    RUN,
    Cloud,
    TaggedResources,
    merge_by_run,
    resources_from_tags,
)
from tradewind.deployer.provisioner.terraform.errors import TerraformDiagnostic, terraform_error
from tradewind.errors import CredentialsError, DeployError, TeardownError, UnreachableError

_SECONDS = 10.0
_TRIES = 3
# Sessions do not see that the user has renewed the credentials in ~/.aws.
_KEPT_SECONDS = 300.0

Item = Mapping[str, Any]
"""One thing of an answer of EC2, with the names of its reference: ``InstanceId``, ``Tags``."""

Filter = dict[str, Any]


class Ec2Client:
    """EC2 of all regions of one account; may be used by several threads.

    Args:
        endpoint: Another address than Amazon's, or empty.
    """

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._session: Any = None
        self._until = 0.0
        self._clients: dict[tuple[str, str], Any] = {}
        self._guard = threading.Lock()

    def all(self, region: str, action: str, **parameters: Any) -> Iterator[Item]:
        """The items of a list, page by page: those of the only list that an answer has.

        Args:
            region: The region; empty means the default one.
            action: Its name in EC2's reference, such as ``DescribeInstances``.
            parameters: Its parameters, with the names of botocore (``Filters``, ``InstanceIds``).

        Raises:
            CredentialsError: Amazon does not know us, or does not let us.
            UnreachableError: It does not answer.
        """
        client, name = self._client("ec2", region), _method(action)
        with _typed(action, region):
            if client.can_paginate(name):
                pages = client.get_paginator(name).paginate(**parameters)
            else:
                pages = [getattr(client, name)(**parameters)]
            for page in pages:
                for value in page.values():
                    if isinstance(value, list):
                        yield from value

    def account(self, region: str) -> str:
        """The number of the account that the credentials are of, which anybody may ask for.

        Args:
            region: The region whose STS is asked; empty means the default one.

        Raises:
            DeployError: Amazon does not say.
        """
        return str(self.call(region, "GetCallerIdentity", service="sts").get("Account", ""))

    def call(self, region: str, action: str, *, service: str = "ec2", **parameters: Any) -> Item:
        """Make one request, up to three times if Amazon does not answer.

        Args:
            region: The region; empty means the default one.
            action: Its name in the service's reference, such as ``TerminateInstances``.
            service: ``ec2`` or ``sts``.
            parameters: Its parameters, with the names of botocore.

        Raises:
            DeployError: What Amazon complained of, typed; its code stands in the message.
        """
        client = self._client(service, region)
        with _typed(action, region):
            answer: Item = getattr(client, _method(action))(**parameters)
            return answer

    def _client(self, service: str, region: str) -> Any:
        with self._guard:
            if self._session is None or time.monotonic() > self._until:
                session = aws_session()
                find_aws_credentials(session)
                self._session, self._until = session, time.monotonic() + _KEPT_SECONDS
                self._clients = {}
            key = (service, region or default_region())
            if key not in self._clients:
                from botocore.config import Config

                retries = {"mode": "standard", "total_max_attempts": _TRIES}
                with _typed("its interface", key[1]):
                    self._clients[key] = self._session.create_client(
                        service,
                        region_name=key[1],
                        endpoint_url=self._endpoint or None,
                        config=Config(connect_timeout=_SECONDS, read_timeout=_SECONDS, retries=retries),
                    )
            return self._clients[key]


def _method(action: str) -> str:
    from botocore import xform_name

    name: str = xform_name(action)
    return name


@contextlib.contextmanager
def _typed(action: str, region: str) -> Iterator[None]:
    """Raise what botocore complains of as one of our errors."""
    from botocore import exceptions
    from botocore.parsers import ResponseParserError

    silent = f"aws does not answer {action} in {region}"
    try:
        yield
    except exceptions.ClientError as error:
        said = error.response.get("Error", {})
        problem = f"{said.get('Code')}: {said.get('Message')}"
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if status >= 500 or "RequestLimitExceeded" in problem:
            raise UnreachableError(f"{silent}: {problem}") from None
        raise terraform_error([TerraformDiagnostic(problem)], "aws", action, applying=True) from None
    except (exceptions.ConnectionError, exceptions.HTTPClientError, ResponseParserError, OSError) as error:
        raise UnreachableError(f"{silent}: {error}") from None
    except (
        exceptions.ValidationError,
        exceptions.ParamValidationError,
        exceptions.BaseEndpointResolverError,
        exceptions.PaginationError,
    ) as error:
        raise DeployError(f"aws cannot be asked {action} in {region}: {error}") from error
    except exceptions.BotoCoreError as error:
        raise credentials_error(error) from None


def filters(**wanted: str | list[str]) -> list[Filter]:
    """Filters as EC2 wants them, ``_`` standing for ``-`` in their names."""
    return [
        {"Name": name.replace("_", "-"), "Values": [value] if isinstance(value, str) else value}
        for name, value in wanted.items()
    ]


def tags_in(item: Item) -> dict[str, str]:
    """The tags of an item; those of a network interface have a name of their own."""
    return {each["Key"]: each["Value"] for each in item.get("Tags") or item.get("TagSet") or ()}


def is_not_found(error: DeployError) -> bool:
    """True when an error says that a thing is not there."""
    return ".NotFound" in str(error) or "NotFound:" in str(error)


_log = logging.getLogger("tradewind.deployer")

_ALIVE = ["pending", "running", "shutting-down", "stopping", "stopped"]
_AT_ONCE = 150
_OTHERS = {
    # what: (list, id, delete)
    "volume": ("DescribeVolumes", "VolumeId", "DeleteVolume"),
    "network interface": ("DescribeNetworkInterfaces", "NetworkInterfaceId", "DeleteNetworkInterface"),
    "security group": ("DescribeSecurityGroups", "GroupId", "DeleteSecurityGroup"),
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
                region, "DescribeInstanceTypeOfferings", LocationType="availability-zone", Filters=wanted
            )
            have = {each["Location"] for each in offered}
            subnets = self._ec2.all(region, "DescribeSubnets", Filters=filters(default_for_az="true"))
            found = tuple(sorted(have & {each["AvailabilityZone"] for each in subnets}))
            with self._guard:
                self._zones[region, kind] = found
        return found

    def find(self, owner: str | None) -> list[TaggedResources]:
        """See `Cloud.find`; all regions at once."""
        wanted = filters(tag_key=RUN) if owner is None else _tagged(OWNER, owner)
        regions = self._given or tuple(
            each["RegionName"] for each in self._ec2.all(default_region(), "DescribeRegions")
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
                found.append(resources_from_tags(tags[RUN], region, tags, (item["InstanceId"],)))
        for item, machine in self._requests(region, wanted):
            tags = tags_in(item)
            if RUN in tags and (machine or item["State"] == "open"):
                found.append(resources_from_tags(tags[RUN], region, tags, (machine,) if machine else ()))
        for action, *_ in _OTHERS.values():
            for item in self._ec2.all(region, action, Filters=wanted):
                tags = tags_in(item)
                if RUN in tags:
                    found.append(resources_from_tags(tags[RUN], region, tags))
        return merge_by_run(found)

    def give_back(self, run_id: str, region: str) -> list[str]:
        """See `Cloud.give_back`."""
        self._check_account()
        wanted = _tagged(RUN, run_id)
        requests = list(self._requests(region, wanted))
        open_ones = [r["SpotInstanceRequestId"] for r, _ in requests if r["State"] in ("open", "active")]
        if open_ones:
            self._ec2.call(region, "CancelSpotInstanceRequests", SpotInstanceRequestIds=open_ones)
        states = {i["InstanceId"]: _state(i) for i in self._instances(region, wanted)}
        states |= {machine: "running" for _, machine in requests if machine}
        condemned = [machine for machine, state in states.items() if state != "shutting-down"]
        if condemned:
            try:
                self._ec2.call(region, "TerminateInstances", InstanceIds=condemned)
            except DeployError as error:
                if not is_not_found(error):
                    raise
        if states:
            # What they use can be deleted only after them.
            left = [*self._instances(region, wanted), *(r for r, machine in self._requests(region, wanted) if machine)]
            if left:
                return [f"machine {machine}" for machine in states]
        return [
            f"{what} {item[name]}"
            for what, (action, name, delete) in _OTHERS.items()
            for item in self._ec2.all(region, action, Filters=wanted)
            if not self._delete(region, delete, name, item[name])
        ]

    def alive(self, region: str, machines: Collection[str]) -> set[str]:
        """See `Cloud.alive`; by number, since spot machines get their tags late."""
        self._check_account()
        return {
            item["InstanceId"]
            for item in self._numbered(region, sorted(machines))
            if _state(item) in ("pending", "running")
        }

    def label(self, run_id: str, region: str) -> None:
        """Tag spot machines, and the disks and network interfaces of all machines; close spot machines' metadata."""
        wanted = _tagged(RUN, run_id)
        machines = {i["InstanceId"]: tags_in(i) for i in self._instances(region, wanted)}
        spot = {machine: tags_in(request) for request, machine in self._requests(region, wanted) if machine}
        machines |= spot
        if not machines:
            return
        things = list(machines)
        for item in self._instances(region, filters(instance_id=list(machines))):
            things += [each["NetworkInterfaceId"] for each in item.get("NetworkInterfaces", ())]
            things += [each["Ebs"]["VolumeId"] for each in item.get("BlockDeviceMappings", ()) if "Ebs" in each]
            if item["InstanceId"] in spot:
                self._want_tokens(region, item)
        tags = next(iter(machines.values()))
        # Names that begin with aws: are Amazon's own.
        given = [{"Key": k, "Value": v} for k, v in tags.items() if not k.startswith("aws:")]
        self._ec2.call(region, "CreateTags", Resources=things, Tags=given)

    def _want_tokens(self, region: str, item: Item) -> None:
        """Have the metadata service answer with tokens only, as that of other machines does by the module."""
        machine = item["InstanceId"]
        # From a container it is one step further to the credentials of the profile.
        hops = 2 if item.get("IamInstanceProfile") else 1
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

    def _instances(self, region: str, wanted: list[Filter]) -> list[Item]:
        both = [*wanted, *filters(instance_state_name=_ALIVE)]
        reservations = self._ec2.all(region, "DescribeInstances", Filters=both)
        return [item for reservation in reservations for item in reservation["Instances"]]

    def _numbered(self, region: str, ids: Sequence[str]) -> Iterator[Item]:
        """Machines by number; EC2 takes 200 values for a filter."""
        for at in range(0, len(ids), _AT_ONCE):
            yield from self._instances(region, filters(instance_id=list(ids[at : at + _AT_ONCE])))

    def _requests(self, region: str, wanted: list[Filter]) -> list[tuple[Item, str]]:
        """Requests for spot machines, each with the id of its machine if that is there."""
        requests = list(self._ec2.all(region, "DescribeSpotInstanceRequests", Filters=wanted))
        # Requests are listed for hours after their machines have gone, and are closed then.
        there = [request for request in requests if request["State"] not in ("closed", "failed")]
        ids = [machine for request in there if (machine := request.get("InstanceId"))]
        alive = {item["InstanceId"] for item in self._numbered(region, ids)}
        return [(r, m if (m := r.get("InstanceId", "")) in alive else "") for r in requests]

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


def _state(item: Item) -> str:
    return str(item["State"]["Name"])


def _tagged(tag: str, value: str) -> list[Filter]:
    return [{"Name": f"tag:{tag}", "Values": [value]}]
