"""Custom machine types of Google Compute Engine: which there are, and what they cost.

A name says what is in it: ``n2-custom-6-20480`` has 6 vCPUs and 20,480 MiB. Sizes that may be had are those of
https://cloud.google.com/compute/docs/instances/creating-instance-with-custom-machine-type, prices are 5 % above those
of the vCPUs and the memory of predefined types of the family.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tradewind.errors import NoOfferError
from tradewind.problem import Offer
from tradewind.selector.catalogue.price_list import tidy_price

_PREMIUM = 1.05
_STEP_MIB = 256
_NAME = re.compile(r"(?:(?P<family>e2|n1|n2|n2d)-)?custom-(?P<vcpu>\d{1,3})-(?P<mib>\d{1,7})")


@dataclass(frozen=True, slots=True)
class CustomSizes:
    """Sizes of a family's custom machine types.

    Attributes:
        vcpus: Numbers of vCPUs.
        least: Least GiB per vCPU.
        most: Most GiB per vCPU.
    """

    vcpus: tuple[int, ...]
    least: float
    most: float


CUSTOM_SIZES: Mapping[str, CustomSizes] = {
    "e2": CustomSizes(tuple(range(2, 33, 2)), 0.5, 8.0),
    "n1": CustomSizes((1, *range(2, 97, 2)), 0.9, 6.5),
    "n2": CustomSizes((*range(2, 33, 2), *range(36, 81, 4)), 0.5, 8.0),
    "n2d": CustomSizes((2, 4, 8, *range(16, 97, 16)), 0.5, 8.0),
}
"""The families that have custom machine types."""


def usual_types(family: str) -> Iterator[str]:
    """The custom machine types of a family with whole GiB per vCPU, by name.

    Args:
        family: One of `CUSTOM_SIZES`.
    """
    sizes = CUSTOM_SIZES[family]
    for vcpu in sizes.vcpus:
        for each in range(1, int(sizes.most) + 1):
            yield f"{family}-custom-{vcpu}-{vcpu * each * 1024}"


def custom_offers(listed: Sequence[Offer], types: Sequence[str]) -> list[Offer]:
    """Price custom machine types by the predefined ones of their family, in each region and on spot where known.

    Args:
        listed: The predefined types.
        types: Names; those that are no custom machine types are passed over.

    Raises:
        NoOfferError: A custom machine type cannot be had in that size.
    """
    matches = ((name, _NAME.fullmatch(name)) for name in dict.fromkeys(types))
    wanted = [(name, match) for name, match in matches if match is not None]
    found: list[Offer] = []
    by_place: dict[tuple[str, str, bool], list[Offer]] = defaultdict(list)
    if wanted:
        for offer in listed:
            if offer.family in CUSTOM_SIZES and offer.category != "burstable" and not offer.gpus:
                by_place[offer.family, offer.region, offer.spot].append(offer)
    units = {place: unit for place, offers in by_place.items() if (unit := _unit_prices(offers)) is not None}
    for name, match in wanted:
        family, vcpu, mib = match["family"] or "n1", int(match["vcpu"]), int(match["mib"])
        try:
            _check_size(name, family, vcpu, mib)
        except NoOfferError:
            if match["family"] is None:
                continue  # anybody's machines may be called so
            raise
        for (other, _, _), (sample, per_vcpu, per_gib) in units.items():
            if other == family:
                price = tidy_price(_PREMIUM * (vcpu * per_vcpu + mib / 1024 * per_gib))
                category = _category(mib / 1024 / vcpu)
                found.append(
                    replace(
                        sample,
                        instance_type=name,
                        vcpu=float(vcpu),
                        memory_gib=mib / 1024,
                        price_per_hour=price,
                        category=category,
                    )
                )
    return found


def _unit_prices(offers: Sequence[Offer]) -> tuple[Offer, float, float] | None:
    """One of some types of a family, and USD per vCPU and per GiB that follow from two with different ratios."""
    lean = min(offers, key=lambda offer: (offer.memory_gib / offer.vcpu, offer.vcpu))
    rich = max(offers, key=lambda offer: (offer.memory_gib / offer.vcpu, -offer.vcpu))
    ratios = lean.memory_gib / lean.vcpu, rich.memory_gib / rich.vcpu
    if ratios[0] == ratios[1]:
        return None
    per_gib = (rich.price_per_hour / rich.vcpu - lean.price_per_hour / lean.vcpu) / (ratios[1] - ratios[0])
    per_vcpu = lean.price_per_hour / lean.vcpu - ratios[0] * per_gib
    return (lean, per_vcpu, per_gib) if per_gib > 0 and per_vcpu > 0 else None


def _check_size(name: str, family: str, vcpu: int, mib: int) -> None:
    sizes = CUSTOM_SIZES[family]
    if vcpu not in sizes.vcpus:
        near = sorted(sizes.vcpus, key=lambda count: (abs(count - vcpu), count))[:2]
        hint = f"the nearest are {' and '.join(str(count) for count in sorted(near))}"
        raise NoOfferError(f"{name}: {family} has no custom machine types with {vcpu} vCPUs", hint=hint)
    if mib % _STEP_MIB:
        raise NoOfferError(
            f"{name}: memory comes in steps of {_STEP_MIB} MiB", hint=f"write {round(mib / _STEP_MIB) * _STEP_MIB}"
        )
    if not sizes.least * vcpu * 1024 <= mib <= sizes.most * vcpu * 1024:
        least = -(-int(sizes.least * vcpu * 1024) // _STEP_MIB) * _STEP_MIB
        hint = f"{vcpu} vCPUs of {family} take {least} to {int(sizes.most * vcpu * 1024)} MiB"
        raise NoOfferError(f"{name}: {mib} MiB are too {'little' if mib < least else 'much'}", hint=hint)


def _category(gib_per_vcpu: float) -> str:
    """The category of the predefined types that have about as much memory."""
    return "compute" if gib_per_vcpu < 2 else "memory" if gib_per_vcpu > 6 else "general"
