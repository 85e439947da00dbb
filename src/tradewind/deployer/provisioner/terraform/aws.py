"""Asks Amazon EC2 for what has our tags."""

from __future__ import annotations

import concurrent.futures
import datetime
import hashlib
import hmac
import logging
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from tradewind.deployer.aws_credentials import AwsCredentials, default_region, find_aws_credentials
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

_VERSIONS = {"ec2": "2016-11-15", "sts": "2011-06-15"}
_SECONDS = 10.0
_TRIES = 3
_KEPT_SECONDS = 300.0


Filter = dict[str, Any]


class Ec2Client:
    """EC2 of all regions of one account; may be used by several threads.

    Args:
        endpoint: Another address than Amazon's, or empty.
    """

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._keys: tuple[AwsCredentials, float] | None = None
        self._guard = threading.Lock()

    def all(self, region: str, action: str, **parameters: Any) -> Iterator[ElementTree.Element]:
        """The items of a list, page by page: the children ``item`` of the answer's only list.

        Raises:
            CredentialsError: Amazon does not know us, or does not let us.
            UnreachableError: It does not answer.
        """
        page: dict[str, Any] = {}
        while True:
            answer = self.call(region, action, **parameters, **page)
            for child in answer:
                yield from child.findall("item")
            token = answer.findtext("nextToken")
            if not token:
                return
            page = {"NextToken": token}

    def account(self, region: str) -> str:
        """The number of the account that the credentials are of, which anybody may ask for.

        Raises:
            DeployError: It cannot be told.
        """
        answer = self.call(region, "GetCallerIdentity", service="sts")
        return answer.findtext(".//Account", "")

    def call(self, region: str, action: str, *, service: str = "ec2", **parameters: Any) -> ElementTree.Element:
        """One request; its answer without namespaces. Lists and filters are written out as EC2 wants them.

        Raises:
            DeployError: What Amazon complained of, typed; its code stands in the message.
        """
        known = {"Action": action, "Version": _VERSIONS[service]}
        body = urllib.parse.urlencode(sorted(_flat({**known, **parameters})))
        for turn in range(1, _TRIES + 1):
            try:
                return _parse(self._send(service, region, body.encode()))
            except urllib.error.HTTPError as error:
                problem = _refusal(error.read(), error.code)
                if error.code < 500 and "RequestLimitExceeded" not in problem:
                    raise terraform_error([TerraformDiagnostic(problem)], "aws", action, applying=True) from None
            except (OSError, ElementTree.ParseError) as error:
                problem = str(getattr(error, "reason", error))
            if turn < _TRIES:
                time.sleep(0.2 * 4**turn / 4)
        raise UnreachableError(f"aws does not answer {action} in {region}: {problem}")

    def _send(self, service: str, region: str, body: bytes) -> bytes:
        china = ".cn" if region.startswith("cn-") else ""
        url = self._endpoint or f"https://{service}.{region}.amazonaws.com{china}"
        parts = urllib.parse.urlsplit(url)
        headers = _signed(self._sign_with(), service, region, parts.netloc, parts.path or "/", body)
        # The address is Amazon's, or the one in the user's own settings.
        request = urllib.request.Request(url, data=body, headers=headers)  # noqa: S310
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310
            content: bytes = answer.read()
            return content

    def _sign_with(self) -> AwsCredentials:
        with self._guard:
            if self._keys is None or time.monotonic() > self._keys[1]:
                self._keys = (find_aws_credentials(), time.monotonic() + _KEPT_SECONDS)
            return self._keys[0]


def filters(**wanted: str | list[str]) -> list[Filter]:
    """Filters as EC2 wants them, ``_`` standing for ``-`` in their names."""
    return [
        {"Name": name.replace("_", "-"), "Value": [value] if isinstance(value, str) else value}
        for name, value in wanted.items()
    ]


def tags_in(element: ElementTree.Element) -> dict[str, str]:
    """The tags of an item."""
    return {each.findtext("key", ""): each.findtext("value", "") for each in element.findall("tagSet/item")}


def _signed(keys: AwsCredentials, service: str, region: str, host: str, path: str, body: bytes) -> dict[str, str]:
    """The headers of a signed POST (AWS, "Signature Version 4 signing process")."""
    moment = datetime.datetime.now(datetime.UTC)
    stamp, day = moment.strftime("%Y%m%dT%H%M%SZ"), moment.strftime("%Y%m%d")
    headers = {"content-type": "application/x-www-form-urlencoded; charset=utf-8", "host": host, "x-amz-date": stamp}
    if keys.token:
        headers["x-amz-security-token"] = keys.token
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    request = f"POST\n{path}\n\n{lines}\n{names}\n{hashlib.sha256(body).hexdigest()}"
    scope = f"{day}/{region}/{service}/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    key = f"AWS4{keys.secret}".encode()
    for piece in (day, region, service, "aws4_request"):
        key = hmac.digest(key, piece.encode(), "sha256")
    signature = hmac.new(key, text.encode(), "sha256").hexdigest()
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={keys.access}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return headers


def _flat(value: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """``{"Filter": [{"Name": "x", "Value": ["y"]}]}`` as ``Filter.1.Name=x`` and ``Filter.1.Value.1=y``."""
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from _flat(each, f"{prefix}.{name}" if prefix else str(name))
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value, 1):
            yield from _flat(each, f"{prefix}.{number}")
    else:
        yield prefix, str(value)


def _parse(content: bytes) -> ElementTree.Element:
    root = ElementTree.fromstring(content)  # noqa: S314  (the provider's own answer over its own connection)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
    return root


def _refusal(content: bytes, status: int) -> str:
    try:
        error = _parse(content).find(".//Error")
    except ElementTree.ParseError:
        error = None
    if error is None:
        return f"HTTP {status}"
    return f"{error.findtext('Code')}: {error.findtext('Message')}"


def is_not_found(error: DeployError) -> bool:
    """True when an error says that a thing is not there."""
    return ".NotFound" in str(error) or "NotFound:" in str(error)


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
