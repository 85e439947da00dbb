"""The settings of the terraform provisioner."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from tradewind import plugins
from tradewind.deployer.ssh_target import checked_hops, parse_host
from tradewind.problem import Offer
from tradewind.utils.paths import expand

_SET_VARIABLES = {
    **dict.fromkeys(("run_id", "owner", "expires", "created", "lease_seconds"), "machines are found and ended by it"),
    **dict.fromkeys(("login_key_public", "host_key_public", "host_key_private"), "each run has keys of its own"),
    **dict.fromkeys(
        ("instance_type", "nodes", "spot", "arch", "price_per_hour"),
        "it is the offer's: choose among offers with the space and offers",
    ),
    "region": "use the setting region",
    "disk_gib": "use the setting disk",
    "image": "use the setting image",
    "caller_cidrs": "use the setting caller_cidr",
    "endpoint": "use the setting endpoint",
}
"""The variables of a module that Tradewind sets itself, and what to do instead of giving them."""

SHIPPED = ("aws", "azure", "gcp")
"""The providers that a module is shipped for."""


class TerraformSettings(plugins.Settings):
    """Settings of the terraform provisioner."""

    program: str = Field("auto", description="terraform, tofu, the path of one of them, or auto for the first found")
    providers: tuple[Literal["aws", "azure", "gcp"], ...] = Field(
        ("aws",), description="Providers whose offers are taken, and in whose accounts leftovers are looked for by tag"
    )
    module: Path | None = Field(
        None, description="Folder with a Terraform module of your own, instead of the one shipped for the provider"
    )
    variables: dict[str, Any] = Field(
        default_factory=dict, description="Further variables of the module, such as subnet_id, or project at gcp"
    )
    region: str = Field("", description="Region of offers that name none")
    regions: tuple[str, ...] = Field(
        (), description="Regions of AWS where leftovers are looked for; empty means all that the account has"
    )
    zones: tuple[str, ...] = Field(
        (),
        description="Zones to try one after the other when there is no capacity; empty means all that have the type "
        "at gcp, and the provider's choice elsewhere",
    )
    image: str = Field("", description="Machine image, as the provider names it; empty means a recent Debian or Ubuntu")
    disk: float = Field(30.0, gt=0, description="Size of each machine's disk, in GiB")
    caller_cidr: str = Field(
        "", description="Addresses that may reach the machines by SSH (198.51.100.7/32); empty means this machine's"
    )
    open_to_all: bool = Field(False, description="Allow caller_cidr: 0.0.0.0/0, which lets the whole internet try")
    address_url: str = Field(
        "https://checkip.amazonaws.com", description="Web page that says from which address it is asked"
    )
    ready: Literal["docker", "ssh", "none"] = Field(
        "docker",
        description="When a machine is ready: its container engine runs, its SSH server answers, or when it is made",
    )
    ssh: dict[str, str | int | bool] = Field(
        default_factory=dict,
        description="How machines are reached instead: host, port, user, identity, known_hosts, jump, accept_new",
    )
    boot_seconds: float = Field(
        900.0, gt=0, description="Longest time until machines are ready; then they are given up"
    )
    stop_seconds: float = Field(60.0, gt=0, description="Longest time for Terraform to stop after it was interrupted")
    destroy_seconds: float = Field(600.0, gt=0, description="Longest time for giving machines back, in one attempt")
    listing_seconds: float = Field(
        20.0,
        ge=0,
        description="How long after a killed creation the provider's lists may still miss what was created",
    )
    sweep: bool = Field(True, description="Look for leftovers by tag; without, machines of a lost state are not found")
    endpoint: str = Field("", description="Another address of EC2's interface, for tests and clouds that speak it")

    @field_validator("program")
    @classmethod
    def _expanded(cls, value: str) -> str:
        return str(expand(value)) if value.startswith("~") else value

    @field_validator("module")
    @classmethod
    def _is_module(cls, value: Path | None) -> Path | None:
        if value is None:
            return None
        value = expand(value).absolute()
        if not any(value.glob("*.tf")) and not any(value.glob("*.tf.json")):
            raise ValueError(f"{value} has no *.tf files")
        return value

    @field_validator("caller_cidr")
    @classmethod
    def _network(cls, value: str) -> str:
        """Return a network as providers want it: with its length, and without what is beyond it."""
        return str(ipaddress.ip_network(value, strict=False)) if value else ""

    @field_validator("variables")
    @classmethod
    def _not_ours(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name in value:
            if why := _SET_VARIABLES.get(name):
                raise ValueError(f"the variable {name} is set by Tradewind itself: {why}")
        return value

    @field_validator("ssh")
    @classmethod
    def _known_keys(cls, value: dict[str, str | int | bool]) -> dict[str, str | int | bool]:
        known = {"host", "port", "user", "identity", "known_hosts", "jump", "accept_new"}
        if unknown := sorted(set(value) - known):
            raise ValueError(f"unknown key {unknown[0]!r}; known are {', '.join(sorted(known))}")
        checked_hops(str(value.get("jump", "")))
        if not value.get("host"):
            return value
        user, port, host = parse_host(str(value["host"]))
        return {**({"user": user} if user else {}), **({"port": port} if port else {}), **value, "host": host}

    @model_validator(mode="after")
    def _narrow(self) -> Self:
        if self.caller_cidr:
            network = ipaddress.ip_network(self.caller_cidr)
            if network.version != 4 and self.module is None:
                raise ValueError(
                    f"caller_cidr: {network} is of IPv6, and the machines of the shipped modules have IPv4"
                )
            if network.prefixlen == 0 and not self.open_to_all:
                raise ValueError(f"caller_cidr: {network} is the whole internet; set open_to_all: true if you mean it")
        if not self.providers and self.module is None:
            raise ValueError("providers is empty, and there is no module")
        return self

    def zones_in(self, region: str, provider: str) -> tuple[str, ...]:
        """The zones of a provider's region among those that are set; the names of Azure's are numbers."""
        numbered = provider not in ("aws", "gcp")
        head = f"{region}-" if provider == "gcp" else region
        return tuple(zone for zone in self.zones if (numbered if zone.isdigit() else zone.startswith(head)))


_TYPES = {
    "aws": re.compile(r"[a-z][a-z0-9-]*\.[a-z0-9-]+"),
    "azure": re.compile(r"[A-Z][A-Za-z]+_[A-Za-z0-9_-]+"),
    "gcp": re.compile(r"[a-z][a-z0-9]*-[a-z0-9-]+"),
}
_GOOGLE_GPUS = re.compile(r"[ag]\d+[a-z]*-")
"""Google's types that have GPUs; others get them only where a machine asks for them besides."""
_BURSTABLE = re.compile(r"t[2-9][a-z]*\.")
"""Amazon's types that may borrow CPU and are billed for it; as the shipped module has them."""
_AZURES_CLOCK_SECONDS = 82800
"""Machines of shorter leases are ended by Azure, whose schedules are daily; as the shipped module has it."""


def offer_refusal(given: TerraformSettings, offer: Offer) -> str:
    """Say why an offer's machines can never be made with some settings, or would be paid for in vain; else empty."""
    if given.module is None and offer.provider not in given.providers:
        return f"provider {offer.provider} is not in the setting providers ({', '.join(given.providers)})"
    if not offer.region and not given.region:
        return "neither the offer nor the setting region names a region"
    if given.module is not None:
        return ""
    pattern = _TYPES.get(offer.provider)
    if pattern is not None and not pattern.fullmatch(offer.instance_type):
        return f"{offer.instance_type!r} is no name of an instance type of {offer.provider}"
    if why := _out_of_reach(given, offer):
        return why
    if offer.spot and offer.provider == "aws" and (why := _borrows(given, offer)):
        return why
    return _lacks_gpus(given, offer) if offer.gpus else ""


def lease_warning(given: TerraformSettings, provider: str, seconds: float) -> str:
    """Warn of machines that are still paid for when their lease has ended and nobody gives them back.

    Args:
        given: The settings.
        provider: Whose machines they are.
        seconds: How long their lease is.
    """
    if provider != "azure" or given.module is not None or seconds < _AZURES_CLOCK_SECONDS:
        return ""
    return (
        f"machines at azure have a lease of {seconds / 3600:.0f} h, and Azure's own clock ends none of more than 23 h: "
        "should nothing here give them back, they are paid for until `tradewind reap` (deploy.longest: 21h avoids this)"
    )


def _out_of_reach(given: TerraformSettings, offer: Offer) -> str:
    private = given.variables.get("public_address", True) in (False, "false")
    if offer.provider == "azure" and private and not given.variables.get("vnet_subnet_id"):
        # In a network of its own, which leads nowhere, nobody would reach such machines.
        return "public_address: false needs a subnet that is reachable from here: variables: {vnet_subnet_id: ...}"
    if given.caller_cidr or not (private or given.ssh.get("jump")):
        return ""
    way = "by their private addresses" if private else "by way of the host in ssh.jump"
    return f"machines that are reached {way} see another caller than the internet does: caller_cidr says which"


def _borrows(given: TerraformSettings, offer: Offer) -> str:
    """EC2's spot requests have no field for CPU credits, and Amazon's default bills CPU beyond a machine's share."""
    if given.variables.get("cpu_credits", "standard") != "standard" or not _BURSTABLE.match(offer.instance_type):
        return ""
    return (
        f"as a spot machine {offer.instance_type} is billed for CPU beyond its share, which is not in the offer's "
        "price: variables: {cpu_credits: unlimited} allows that"
    )


def _lacks_gpus(given: TerraformSettings, offer: Offer) -> str:
    if offer.provider == "gcp" and not _GOOGLE_GPUS.match(offer.instance_type):
        return f"the shipped module adds no GPUs, and {offer.instance_type} has none by itself"
    if not given.image and "image_name" not in given.variables:
        return "the default image has no GPU driver: name one that has, with the setting image"
    return ""
