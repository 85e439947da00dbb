"""Writes ``aws.csv``: ``python -m tools.prices.aws``, or with ``--packages FOLDER`` where AWS cannot be reached.

The packages: ``cloudwright-ai`` has AWS's bulk price list of us-east-1, ``moto`` what AWS answers to
``DescribeInstanceTypes``, ``apache-libcloud`` the price lists of all regions, with faults that `regional` works around.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tools.prices.table import main
from tools.prices.wheels import LibcloudPrices, cloudwright, libcloud, wheel

from tradewind.problem import Offer
from tradewind.selector.catalogue.price_list import tidy_price

HOME = "us-east-1"
REGIONS = ("us-east-2", "us-west-2", "eu-west-1", "eu-central-1")
AGREE = 0.004
"""Relative difference of two prices up to which they are the same but for rounding."""
WITNESSES = 3
"""Sizes of a family that must have the same ratio to the price of `HOME`, before the ratio is believed."""

NOT_IN_MOTO = (
    ("g4ad.xlarge", 4.0, 16.0, 1, "V520"),
    ("g4ad.2xlarge", 8.0, 32.0, 1, "V520"),
    ("g4ad.4xlarge", 16.0, 64.0, 1, "V520"),
    ("g4ad.8xlarge", 32.0, 128.0, 2, "V520"),
    ("g4ad.16xlarge", 64.0, 256.0, 4, "V520"),
    ("p3.2xlarge", 8.0, 61.0, 1, "V100"),
    ("p3.8xlarge", 32.0, 244.0, 4, "V100"),
    ("p3.16xlarge", 64.0, 488.0, 8, "V100"),
)
"""Types that us-east-1 has a price for, but that moto's list lacks: vCPUs, GiB, accelerators, their name."""

_CATEGORIES = (
    (r"t\d", "burstable"),
    (r"(c|hpc)\d", "compute"),
    (r"(r|x|z|u-|u7)", "memory"),
    (r"(d|h|i|im|is)\d", "storage"),
)


def from_packages(folder: Path) -> list[Offer]:
    """The offers that a folder of wheels has."""
    home = cloudwright(folder, "aws", HOME)
    types = json.loads(gzip.decompress(wheel(folder, "moto").read("moto/ec2/resources/instance_types.json.gz")))
    machines = {name: found for name, facts in types.items() if (found := _machine(name, facts)) is not None}
    machines |= dict(_left_out_by_moto())
    offers = [
        replace(machines[name], price_per_hour=tidy_price(price), region=HOME, price_date=home.date, source=home.source)
        for name, price in home.prices.items()
        if name in machines
    ]
    lists = libcloud(folder)
    everywhere = [*offers, *(offer for region in REGIONS for offer in regional(offers, lists, region))]
    # Bare metal bears witness to the prices of its family, but the package does not ship it.
    return [offer for offer in everywhere if ".metal" not in offer.instance_type]


def regional(home: list[Offer], lists: LibcloudPrices, region: str) -> Iterator[Offer]:
    """The offers of a region, from a list in which some prices are zero, or of dedicated machines (6 to 10 % more).

    Sizes of a family cost the same multiple of their price in `HOME`: the lowest one that enough sizes agree on is that
    of shared machines. Families without one are left out; a size whose own price is damaged gets the multiple.
    """
    prices: Mapping[str, Mapping[str, float]] = lists.compute["ec2_linux"]
    families: dict[str, list[tuple[Offer, float]]] = defaultdict(list)
    for offer in home:
        if region in prices.get(offer.instance_type, ()):
            families[offer.family].append((offer, prices[offer.instance_type][region] / offer.price_per_hour))
    for members in families.values():
        lowest = min((ratio for _, ratio in members if ratio > 0), default=0.0)
        agreeing = [ratio for _, ratio in members if ratio > 0 and ratio / lowest - 1 <= AGREE]
        if len(agreeing) < WITNESSES:
            continue
        usual = sorted(agreeing)[len(agreeing) // 2]
        for offer, ratio in members:
            sound = abs(ratio / usual - 1) <= AGREE
            price = prices[offer.instance_type][region] if sound else offer.price_per_hour * usual
            yield replace(
                offer,
                price_per_hour=tidy_price(price) if sound else round(price, 4),
                region=region,
                price_date=lists.date,
                source=lists.source + ("" if sound else " (family)"),
            )


def _machine(name: str, facts: Mapping[str, Any]) -> Offer | None:
    """A machine type without its price; None for a Mac, and for one with an FPGA or a part of a GPU."""
    arches = facts["ProcessorInfo"]["SupportedArchitectures"]
    arch = next((each for each in ("x86_64", "arm64") if each in arches), None)
    gpus, accelerator = _accelerators(facts)
    if arch is None or (gpus < 1 and accelerator) or "FpgaInfo" in facts or "MediaAcceleratorInfo" in facts:
        return None
    return Offer(
        "aws",
        name,
        float(facts["VCpuInfo"]["DefaultVCpus"]),
        facts["MemoryInfo"]["SizeInMiB"] / 1024,
        0.0,
        category="accelerated" if gpus else _category(name),
        family=name.partition(".")[0],
        arch=arch,
        gpus=gpus,
        facts={"accelerator": accelerator} if accelerator else {},
    )


def _left_out_by_moto() -> Iterator[tuple[str, Offer]]:
    for name, vcpu, gib, gpus, accelerator in NOT_IN_MOTO:
        yield (
            name,
            Offer(
                "aws",
                name,
                vcpu,
                gib,
                0.0,
                category="accelerated",
                family=name.partition(".")[0],
                arch="x86_64",
                gpus=gpus,
                facts={"accelerator": accelerator},
            ),
        )


def _accelerators(facts: Mapping[str, Any]) -> tuple[int, str]:
    for info, devices in (
        ("GpuInfo", "Gpus"),
        ("NeuronInfo", "NeuronDevices"),
        ("InferenceAcceleratorInfo", "Accelerators"),
    ):
        if info in facts:
            device = facts[info][devices][0]
            gib = device.get("MemoryInfo", {}).get("SizeInMiB", 0) // 1024
            name = device["Name"].upper() if info == "GpuInfo" else device["Name"]  # "T4g" is T4G elsewhere
            return device["Count"], name + ("-80GB" if (name, gib) == ("A100", 80) else "")
    return 0, ""


def _category(name: str) -> str:
    return next((category for pattern, category in _CATEGORIES if re.match(pattern, name)), "general")


if __name__ == "__main__":
    sys.exit(main("aws", from_packages))
