"""Speaks EC2's query interface: requests signed with version 4 of Amazon's signatures, answers as XML.

It is small on purpose: leftovers can be looked for wherever Terraform runs, without Amazon's packages for Python.
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any
from xml.etree import ElementTree

from tradewind.deployer.aws_credentials import AwsCredentials, find_aws_credentials
from tradewind.deployer.provisioner.terraform.errors import TerraformDiagnostic, terraform_error
from tradewind.errors import DeployError, UnreachableError

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
