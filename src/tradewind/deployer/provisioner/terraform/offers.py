"""Which offers the terraform provisioner can make."""

from __future__ import annotations

import re

from tradewind.deployer.provisioner.terraform.settings import TerraformSettings
from tradewind.problem import Offer

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
    """Why the machines of an offer can never be made with some settings, or would be paid for in vain; else empty."""
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
    """What to know of machines that are still paid for when their lease has ended and nobody gives them back.

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
