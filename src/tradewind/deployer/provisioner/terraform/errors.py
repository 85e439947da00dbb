"""Turns what Terraform and the providers complain of into one typed error with a hint."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tradewind.errors import (
    CapacityError,
    CredentialsError,
    DeployError,
    ImageError,
    MissingProgramError,
    OfferRefusedError,
    PrerequisiteError,
    UnreachableError,
)

_CAPACITY = re.compile(
    r"Insufficient\w*Capacity|InstanceLimitExceeded|VcpuLimitExceeded|MaxSpotInstanceCountExceeded|SpotMaxPriceTooLow"
    r"|UnfulfillableCapacity|VolumeLimitExceeded|AddressLimitExceeded|InsufficientFreeAddresses|(?<!Filter)LimitExceeded"
    r"|capacity-not-available|capacity-oversubscribed|price-too-low|limit-exceeded|constraint-not-fulfillable"
    r"|not supported in your requested Availability Zone"
    r"|ZONE_RESOURCE_POOL_EXHAUSTED|QUOTA_EXCEEDED|quotaExceeded|Quota '?\w*'? ?exceeded"
    r"|not have enough resources available|is currently unavailable in the [\w-]+ zone"
    r"|SkuNotAvailable|AllocationFailed|Overconstrained\w*Allocation|QuotaExceeded|exceeding approved .* quota"
    r"|PublicIPCountLimit\w+|Server\.SpotInstanceTermination|instance-terminated-(?:no-capacity|by-price)"
    r"|no Spot capacity available|requested configuration is currently not supported|IP_SPACE_EXHAUSTED"
    r"|SpotPriceGreaterThanProvidedMaxPrice|does not support Azure Spot|NotSupportAvailabilityZones"
    r"|The zone\(s\) '[\d, ]*' .*not supported",
    re.IGNORECASE,
)
_POLICY = re.compile(r"Constraint constraints/[\w.]+ violated|RequestDisallowedByPolicy", re.IGNORECASE)
_THROTTLED = re.compile(r"RequestLimitExceeded|Throttling|rateLimitExceeded|TooManyRequests", re.IGNORECASE)
_CREDENTIALS = re.compile(
    r"AuthFailure|UnauthorizedOperation|InvalidClientTokenId|ExpiredToken|SignatureDoesNotMatch|OptInRequired"
    r"|PendingVerification|No valid credential|failed to (?:get shared config profile|refresh cached credentials)"
    r"|could not find default credentials|invalid_grant|Required '[\w.]+' permission|Error 40[13]\b"
    r"|InvalidAuthenticationToken|AuthorizationFailed|building account|unable to build authorizer|az login"
    r"|no EC2 IMDS role found|AccessDenied|ReadOnlyDisabledSubscription|SubscriptionNotFound|Blocked: This account"
    r"|MissingSubscriptionRegistration|AzureSpotFeatureNotEnabledForSubscription"
    r"|subscription_id\W is a required provider property|project: required field is not set"
    r"|gcloud auth login|not currently have an active account|not have any valid credentials|Reauthentication",
    re.IGNORECASE,
)
_IMAGE = re.compile(
    r"InvalidAMIID|query returned no results.*(?:ami|image)|images?/[\w./-]+' was not found"
    r"|Could not find image|PlatformImageNotFound|MarketplacePurchaseEligibilityFailed",
    re.IGNORECASE | re.DOTALL,
)
_REFUSED = re.compile(
    r"InvalidInstanceType|Invalid value '[\w.-]+' for InstanceType|instance type '?[\w.-]+'? (?:is not|does not)"
    r"|machineTypes?/[\w.-]+' was not found|machine type with name '[\w.-]+' does not exist"
    r"|Invalid value for field 'resource.machineType'"
    r"|VMSizeNotSupported|Azure Spot (?:Virtual Machine )?is not supported for this VM size|VM size '?\w+'? .*not"
    r"|InvalidParameter.*vmSize|expected \w*(?:size|region) to be"
    r"|Invalid AWS Region|LocationNotAvailableForResourceType|Unknown zone|InvalidZone|Invalid availability zone"
    r"|architecture '\w+' of the specified instance type|not eligible for Free Tier"
    r"|not compatible with machine type architecture|only supports a CPU Architecture|Hypervisor Generation",
    re.IGNORECASE | re.DOTALL,
)
_NETWORK = re.compile(
    r"connection refused|no such host|i/o timeout|connection reset|TLS handshake timeout|request send failed"
    r"|RequestError: send request failed|network is unreachable|Service ?Unavailable|InternalError|exceeded maximum"
    r"|googleapi: Error 5\d\d\b|StatusCode(?:=|: )5\d\d\b|unexpected status 5\d\d\b",
    re.IGNORECASE,
)
_NO_NETWORK_GIVEN = re.compile(
    r"VPCIdNotSpecified|No default VPC|MissingInput.*subnet|No default subnet"
    r"|global/networks/[\w-]+' was not found|must specify a subnet",
    re.IGNORECASE | re.DOTALL,
)
_DISK_TOO_SMALL = re.compile(
    r"smaller than (?:the )?(?:snapshot|image size|size of the corresponding disk)|disk size cannot be smaller",
    re.IGNORECASE,
)
_PLUGIN = re.compile(r"required plugin|provider (?:package|plugin|requirements)|module not installed", re.IGNORECASE)

_LOOKED_AT = {
    "aws": "AWS_PROFILE, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, ~/.aws/ and the machine's role",
    "gcp": "GOOGLE_APPLICATION_CREDENTIALS and `gcloud auth application-default login`, the project in GOOGLE_PROJECT",
    "azure": "ARM_CLIENT_ID and ARM_CLIENT_SECRET, and `az login`, the subscription in ARM_SUBSCRIPTION_ID",
}

_LOG_IN = {"gcp": "`gcloud auth login`, or `gcloud auth activate-service-account`", "azure": "`az login`"}


@dataclass(frozen=True, slots=True)
class TerraformDiagnostic:
    """One complaint of Terraform.

    Attributes:
        summary: In a line.
        detail: More of it.
        file: The template's file that it is about, or empty.
        line: The line there, or 0.
        about: The resource or data source, or empty.
    """

    summary: str
    detail: str = ""
    file: str = ""
    line: int = 0
    about: str = ""

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> TerraformDiagnostic:
        """The diagnostic of a document of ``-json``."""
        place = document.get("range") or {}
        line = (place.get("start") or {}).get("line", 0)
        about = document.get("address", "")
        return cls(document.get("summary", ""), document.get("detail", ""), place.get("filename", ""), line, about)

    @property
    def about_plugins(self) -> bool:
        """True when it only says that ``init`` has not worked."""
        return bool(_PLUGIN.search(f"{self.summary} {self.detail}"))

    @property
    def text(self) -> str:
        """All of it in a line."""
        return " ".join(f"{self.summary}: {self.detail}".split()).rstrip(": ")

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}" if self.file else self.text


def terraform_error(
    diagnostics: Sequence[TerraformDiagnostic], provider: str, offer: str, *, applying: bool
) -> DeployError:
    """The typed error of a command that failed.

    Args:
        diagnostics: What it complained of.
        provider: Whose machines were asked for.
        offer: Which, for the message.
        applying: False when nothing had been asked of the provider yet: then it is the template's fault.
    """
    text = "\n".join(f"{each.text} {each.about}" for each in diagnostics)
    shown = _shorten(diagnostics[0].text) if diagnostics else "it gave no reason"
    if _THROTTLED.search(text):
        return DeployError(f"{provider} wants to be asked more slowly: {shown}")
    if _CAPACITY.search(text):
        return CapacityError(
            f"{provider} has no {offer} now, or a quota is used up: {shown}",
            hint="name more zones in the setting zones, allow other offers, or ask the provider for a higher quota",
        )
    if _POLICY.search(text):
        hint = "a rule of its organisation forbids it: its administrator knows more"
        if "vmExternalIpAccess" in text or "public" in text.lower():
            hint += "; where it is about public addresses, write variables: {public_address: false}"
        return CredentialsError(f"{provider} does not let us make machines: {shown}", hint=hint)
    if _CREDENTIALS.search(text):
        looked = _LOOKED_AT.get(provider, "the places that the module's provider looks at")
        return CredentialsError(
            f"{provider} does not let us make machines: {shown}", hint=f"credentials are in {looked}"
        )
    if _IMAGE.search(text):
        return ImageError(f"the machine image is not there: {shown}", hint="see the setting image")
    if _REFUSED.search(text):
        return OfferRefusedError(f"{provider} does not sell {offer}: {shown}", hint="see its list of instance types")
    if _NO_NETWORK_GIVEN.search(text):
        names = "network: ..., subnet_id: ..." if provider == "gcp" else "subnet_id: ..."
        hint = f"write variables: {{{names}}} under provisioner"
        return PrerequisiteError(f"the account has no default network: {shown}", hint=hint)
    if _DISK_TOO_SMALL.search(text):
        hint = "set disk to at least as many GiB as the image has"
        return PrerequisiteError(f"the disk is too small for the image: {shown}", hint=hint)
    if _NETWORK.search(text):
        return UnreachableError(f"{provider} does not answer: {shown}")
    if not applying and any(each.file for each in diagnostics):
        return template_error(diagnostics)
    return DeployError(f"terraform could not make {offer}: {shown}")


def cloud_cli_error(text: str, provider: str, command: str) -> DeployError:
    """The typed error of a provider's own program, which was asked for what is there, or to take it back.

    Args:
        text: What it complained of.
        provider: Whose program it is.
        command: The first words of the command.
    """
    shown = _shorten(" ".join(text.split()))
    if _THROTTLED.search(text):
        return DeployError(f"{provider} wants to be asked more slowly: {shown}")
    if _CREDENTIALS.search(text):
        return CredentialsError(
            f"{provider} does not answer `{command}`: {shown}",
            hint=f"{_LOG_IN.get(provider, 'log in')}: machines are looked for and given back with this program, which "
            "has credentials of its own",
        )
    if _NETWORK.search(text):
        return UnreachableError(f"{provider} does not answer: {shown}")
    return DeployError(f"`{command}` has failed: {shown}")


def template_error(diagnostics: Sequence[TerraformDiagnostic]) -> DeployError:
    """The error of a template that Terraform does not take, with its file and line."""
    first = next(
        (each for each in diagnostics if each.file), diagnostics[0] if diagnostics else TerraformDiagnostic("no reason")
    )
    hint = "`terraform validate` in the folder of the setting module shows it too"
    message = f"the Terraform template is wrong: {_shorten(str(first))}"
    # A module may take some values of its variables and refuse others; all else is wrong for every offer.
    if "Invalid value for" in first.summary:
        return DeployError(message, hint=hint, retryable=False)
    return PrerequisiteError(message, hint=hint)


def init_error(program: str, stderr: str) -> DeployError | MissingProgramError:
    """The error of an ``init`` that failed for another reason than the template."""
    words = [line.strip(" │╷╵\t") for line in stderr.splitlines()]
    shown = _shorten(" ".join(word for word in words if word)) or "no reason given"
    return MissingProgramError(
        f"{program} could not install the providers of the module: {shown}",
        hint="it needs the registry of its providers, or a mirror (provider_installation in Terraform's documentation)",
    )


def _shorten(text: str) -> str:
    return text if len(text) <= 400 else text[:400] + " ..."
