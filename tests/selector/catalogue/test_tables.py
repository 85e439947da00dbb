"""The shipped facts, against themselves and against price tables that are not part of this repository."""

from __future__ import annotations

import csv
import datetime
import gzip
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tradewind import plugins
from tradewind.problem import Offer
from tradewind.selector.catalogue.price_list import PriceListCatalogue
from tradewind.selector.catalogue.shipped_prices import FOLDER, shipped_offers

PRICES = Path(__file__).resolve().parents[4] / "shared" / "datasets" / "prices"
needs_tables = pytest.mark.skipif(
    not PRICES.is_dir(), reason=f"the price tables to compare with are not at {PRICES}; they are not shipped"
)


def shipped(name: str) -> list[Offer]:
    catalogue = plugins.create("catalogue", name, {}, data_folder=Path("/nonexistent"))
    assert isinstance(catalogue, PriceListCatalogue)
    return list(catalogue.shipped())


def table(name: str) -> Iterator[Mapping[str, str]]:
    with gzip.open(PRICES / name, "rt") as file:
        yield from csv.DictReader(file)


def within(offers: Mapping[str, float], real: Mapping[str, float]) -> tuple[int, list[str]]:
    """The number of prices that can be compared, and those that are more than 2 % off."""
    both = [name for name in offers if name in real]
    return len(both), [name for name in both if abs(offers[name] / real[name] - 1) > 0.02]


@pytest.mark.parametrize(("name", "types", "regions"), [("aws", 700, 3), ("azure", 350, 3), ("gcp", 180, 3)])
def test_enough_is_shipped(name: str, types: int, regions: int) -> None:
    offers = shipped(name)
    assert len({offer.instance_type for offer in offers}) >= types
    assert len({offer.region for offer in offers}) >= regions
    for offer in offers:
        assert offer.provider == name
        assert datetime.date.fromisoformat(offer.price_date) >= datetime.date(2025, 3, 1)
        assert offer.source
        assert offer.arch in ("x86_64", "arm64")
        assert offer.category in ("general", "compute", "memory", "storage", "accelerated", "burstable")
        assert bool(offer.gpus) == (offer.category == "accelerated") == ("accelerator" in offer.facts)


@pytest.mark.parametrize("name", ["aws", "azure", "gcp"])
def test_price_per_vcpu_is_plausible(name: str) -> None:
    for offer in shipped(name):
        if not offer.gpus:
            assert 0.002 < offer.price_per_hour / offer.vcpu < 0.6, offer
            assert 0.2 < offer.memory_gib / offer.vcpu < 40, offer


@pytest.mark.parametrize(
    ("name", "instance_type", "region", "vcpu", "memory", "price", "category", "arch"),
    [
        ("aws", "m5.large", "us-east-1", 2, 8, 0.096, "general", "x86_64"),
        ("aws", "c7g.16xlarge", "us-west-2", 64, 128, 2.32, "compute", "arm64"),
        ("aws", "r5.24xlarge", "us-east-2", 96, 768, 6.048, "memory", "x86_64"),
        ("aws", "t3.medium", "eu-west-1", 2, 4, 0.0456, "burstable", "x86_64"),
        ("aws", "i3.8xlarge", "us-east-1", 32, 244, 2.496, "storage", "x86_64"),
        ("azure", "Standard_D2s_v5", "eastus", 2, 8, 0.096, "general", "x86_64"),
        ("azure", "Standard_E64_v3", "eastus", 64, 432, 3.629, "memory", "x86_64"),
        ("azure", "Standard_F72s_v2", "westus2", 72, 144, 3.045, "compute", "x86_64"),
        ("gcp", "n1-standard-1", "us-central1", 1, 3.75, 0.04749975, "general", "x86_64"),
        ("gcp", "n2-highmem-128", "us-east1", 128, 864, 7.706976, "memory", "x86_64"),
        ("gcp", "t2a-standard-1", "us-central1", 1, 4, 0.0385, "general", "arm64"),
    ],
)
def test_known_prices(
    name: str, instance_type: str, region: str, vcpu: float, memory: float, price: float, category: str, arch: str
) -> None:
    [offer] = [o for o in shipped(name) if (o.instance_type, o.region) == (instance_type, region)]
    assert (offer.vcpu, offer.memory_gib, offer.category, offer.arch) == (vcpu, memory, category, arch)
    assert offer.price_per_hour == pytest.approx(price, rel=1e-6)


@pytest.mark.parametrize("name", ["aws", "azure", "gcp"])
def test_loads_in_fifty_milliseconds(name: str) -> None:
    taken = []
    for _ in range(5):
        shipped_offers.cache_clear()
        start = time.process_time()
        shipped_offers(name)
        taken.append(time.process_time() - start)
    assert min(taken) < 0.05


def test_the_tables_are_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 350_000


def test_a_price_stands_once_in_a_table() -> None:
    for name in ("aws", "azure", "gcp"):
        keys = [offer.key for offer in shipped(name)]
        assert len(keys) == len(set(keys))


@needs_tables
def test_aws_against_the_table_of_july_2026() -> None:
    real = {row["instance_type"]: float(row["usd_per_hour"]) for row in table("aws_ec2_linux_ondemand_2026-07.csv.gz")}
    ours = {o.instance_type: o.price_per_hour for o in shipped("aws") if o.region == "us-east-1"}
    compared, off = within(ours, real)
    assert (compared, len(ours)) == (1027, 1027)
    assert off == []


@needs_tables
def test_aws_machines_against_the_table_of_2025() -> None:
    real = {row["instance_type"]: row for row in table("aws_ec2_types_2025.csv.gz")}
    compared = 0
    for offer in shipped("aws"):
        row = real.get(offer.instance_type)
        if row is not None:
            compared += 1
            assert offer.vcpu == float(row["vcpu"]), offer
            assert offer.memory_gib == pytest.approx(float(row["ram_mib"]) / 1024, rel=0.02), offer
    assert compared > 1000


@pytest.mark.slow
@needs_tables
def test_azure_against_the_table_of_june_2026() -> None:
    rows = list(table("azure_linux_ondemand_2026-06.csv.gz"))
    counts = {}
    for region in ("eastus", "eastus2", "westus2"):
        real = {row["size"]: float(row["usd_per_hour"]) for row in rows if row["region"] == region}
        ours = {o.instance_type: o.price_per_hour for o in shipped("azure") if o.region == region}
        compared, off = within(ours, real)
        counts[region] = (compared, compared - len(off))
        for name in off:
            # The table has about twice the price of its neighbours for some AMD sizes: the Windows price, it seems.
            assert real[name] / ours[name] > 1.6, (region, name)
            assert "as_v5" in name or "ads_v5" in name or "ats_v2" in name
    assert counts == {"eastus": (398, 379), "eastus2": (348, 334), "westus2": (348, 332)}


@needs_tables
def test_gcp_against_the_components_of_march_2025() -> None:
    parts = {
        (row["region"], row["component"], row["resource"]): float(row["usd_per_unit_hour"])
        for row in table("gce_components_2025-03.csv.gz")
        if row["table"] == "gce_instances" and row["purchase"] == "on_demand"
    }
    shared_core = {"e2-micro": 0.25, "e2-small": 0.5, "e2-medium": 1.0, "f1-micro": 1.0, "g1-small": 1.0}
    compared = 0
    for offer in shipped("gcp"):
        core = parts.get((offer.region, "cpu", offer.family))
        if core is None:
            continue
        ram = parts.get((offer.region, "ram", offer.family), 0.0)
        expected = shared_core.get(offer.instance_type, offer.vcpu) * core + offer.memory_gib * ram
        assert offer.price_per_hour == pytest.approx(expected, rel=0.02), offer
        compared += 1
    assert compared == 214
