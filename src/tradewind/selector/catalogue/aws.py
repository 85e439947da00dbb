"""The catalogue of Amazon EC2."""

from __future__ import annotations

import csv
import re
from collections.abc import Generator, Iterator, Mapping
from typing import ClassVar

from tradewind.errors import FetchError
from tradewind.problem import Offer
from tradewind.selector.catalogue.price_fetcher import without_query
from tradewind.selector.catalogue.price_list import PriceListCatalogue, price_or_none, todays_date
from tradewind.selector.disk_sizes import disk_facts, disk_size

_WANTED = {
    "TermType": "OnDemand",
    "Tenancy": "Shared",
    "Operating System": "Linux",
    "Pre Installed S/W": "NA",
    "CapacityStatus": "Used",
    "Unit": "Hrs",
    "Currency": "USD",
}
_NEEDED = (*_WANTED, "PricePerUnit", "Instance Type", "vCPU", "Memory")
_CATEGORIES = {
    "general purpose": "general",
    "compute optimized": "compute",
    "memory optimized": "memory",
    "storage optimized": "storage",
    "gpu instance": "accelerated",
    "gpu instances": "accelerated",
    "fpga instances": "accelerated",
    "machine learning asic instances": "accelerated",
    "media accelerator instances": "accelerated",
}


class AwsCatalogue(PriceListCatalogue):
    """Sells Amazon EC2: on-demand Linux instances, shared tenancy.

    Refreshing streams the CSV form of the public bulk price list, one file a region; each has some hundred
    megabytes and needs no account.
    """

    provider: ClassVar[str] = "aws"
    home: ClassVar[str] = "https://pricing.us-east-1.amazonaws.com"

    def fetch(self) -> Generator[str, None, list[Offer]]:
        """Read the region index, then each region's file line by line."""
        index_url = f"{self.base_url}/offers/v1.0/aws/AmazonEC2/current/region_index.json"
        yield f"aws: reading {index_url}"
        regions = self.fetcher.json(index_url).get("regions")
        if not isinstance(regions, dict):
            raise FetchError(f"aws: {index_url} has no 'regions'", hint="the old prices stay")
        found: list[Offer] = []
        for region in self.regions():
            entry = regions.get(region)
            path = entry.get("currentVersionUrl") if isinstance(entry, dict) else None
            if not isinstance(path, str):
                raise FetchError(f"aws: the price list has no region {region!r}", hint="see the region codes of EC2")
            url = self.base_url + re.sub(r"\.json$", ".csv", path)
            yield f"aws: reading {region}"
            offers = self._region(url, region)
            yield f"aws: {region} has {len(offers)} instance types"
            found += offers
        return found

    def _region(self, url: str, region: str) -> list[Offer]:
        offers: dict[str, Offer] = {}
        known = {offer.instance_type: offer for offer in self.shipped()}
        with self.fetcher.lines(url) as lines:
            for row in _rows(lines, url):
                if any(row[name] != value for name, value in _WANTED.items()):
                    continue
                offer = _offer(row, region, known, without_query(url))
                if offer is not None:
                    offers[offer.instance_type] = offer
        return list(offers.values())


def _rows(lines: Iterator[str], url: str) -> Iterator[Mapping[str, str]]:
    """The rows below the header, which follows some lines about the file itself."""
    reader = csv.reader(lines)
    header: list[str] | None = None
    try:
        for number, row in enumerate(reader):
            if header is None:
                if row and row[0] == "SKU":
                    header = row
                    missing = [name for name in _NEEDED if name not in header]
                    if missing:
                        raise FetchError(
                            f"aws: {without_query(url)} has no column {missing[0]!r}", hint="the format changed"
                        )
                elif number > 20:
                    break
            elif len(row) == len(header):
                yield dict(zip(header, row, strict=True))
            else:
                raise FetchError(f"aws: {without_query(url)} breaks off at line {reader.line_num}", hint="try again")
    except csv.Error as error:
        raise FetchError(f"aws: {without_query(url)} line {reader.line_num} is no CSV: {error}") from None
    if header is None:
        raise FetchError(f"aws: {without_query(url)} is no price list: it has no header line", hint="try again later")


def aws_category(name: str, family: str) -> str:
    """The category of a machine type, by its name and by what AWS calls its family (``GPU instance``)."""
    if re.match(r"t\d[a-z]*\.", name):
        return "burstable"
    return _CATEGORIES.get(family.lower().strip(), "general")


def _offer(row: Mapping[str, str], region: str, known: Mapping[str, Offer], source: str) -> Offer | None:
    """The offer of a row; None where price, vCPU or memory is not stated."""
    price = price_or_none(row["PricePerUnit"])
    vcpu = price_or_none(row["vCPU"])
    memory = price_or_none(row["Memory"].replace("GiB", "").replace(",", ""))
    name = row["Instance Type"]
    if price is None or vcpu is None or memory is None or "." not in name:
        return None
    old = known.get(name)
    family = name.partition(".")[0]
    category = aws_category(name, row.get("Instance Family", ""))
    arm = "graviton" in row.get("Physical Processor", "").lower()
    gpus = price_or_none(row.get("GPU", "")) or 0
    return Offer(
        provider="aws",
        instance_type=name,
        vcpu=vcpu,
        memory_gib=memory,
        price_per_hour=price,
        region=region,
        category=old.category if old else category,
        family=family,
        arch=old.arch if old else "arm64" if arm else "x86_64",
        gpus=old.gpus if old else int(gpus),
        price_date=todays_date(),
        source=source,
        facts={**(old.facts if old else {}), **disk_facts(disk_size(row.get("Storage", "")))},
    )
