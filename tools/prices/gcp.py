"""Writes ``gcp.csv``: ``python -m tools.prices.gcp``, or with ``--packages FOLDER`` where Google cannot be reached.

Google's price API needs a key (GOOGLE_API_KEY) and prices vCPU and memory of a family: the machine types are those of
`gcp_types`. The packages: ``apache-libcloud`` has the prices of the older families by region, with their SKUs, and
``cloudwright-ai`` newer prices of SKUs. Of the other families the prices are typed, and their rows say so.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tools.prices import gcp_types
from tools.prices.machine_types import MachineType, offer_of
from tools.prices.table import main
from tools.prices.wheels import cloudwright, libcloud

from tradewind.problem import Offer
from tradewind.selector.catalogue.price_list import tidy_price

SHARED_CORE = {"e2-micro": 0.25, "e2-small": 0.5, "e2-medium": 1.0}
"""Types that are billed for a part of their vCPUs."""
AMERICAS = ("us-central1", *gcp_types.SAME_PRICE)
"""Regions whose SKUs are those of ``us-central1`` ("running in Americas")."""


def from_packages(folder: Path) -> list[Offer]:
    """The offers that a folder of wheels has, and typed ones where it has none."""
    lists = libcloud(folder)
    newer = cloudwright(folder, "gcp", gcp_types.HOME)
    offers = []
    for region, machine, typed in gcp_types.regional_prices():
        parts = _parts(lists.compute["gce_instances"].get(machine.family), region)
        if parts and all(part["sku"] in newer.prices for part in parts.values()):
            units, date, source = {n: newer.prices[part["sku"]] for n, part in parts.items()}, newer.date, newer.source
        else:
            units, date, source = {n: part["price"] for n, part in parts.items()}, lists.date, lists.source
        price = _price(machine, units)
        if price is None:
            price, date, source = typed, gcp_types.DATE, gcp_types.SOURCE
        offers.append(offer_of(machine, "gcp", region, price, date, source))
    return offers


def _parts(family: Mapping[str, Any] | None, region: str) -> dict[str, Mapping[str, Any]]:
    """Prices and SKUs of a family's vCPU and memory in a region; none where one of them is missing."""
    place = "us-central1" if region in AMERICAS else region
    found = {}
    for name, part in (family or {}).items():
        listed = part["on_demand"].get(place)
        if not listed or listed["price"] <= 0:
            return {}
        found[name] = listed
    return found


def _price(machine: MachineType, units: Mapping[str, float]) -> float | None:
    """The price of a machine type by that of its parts."""
    if "cpu" not in units:
        return None
    if "ram" not in units:
        return units["cpu"]  # f1 and g1 are sold whole
    cores = SHARED_CORE.get(machine.name, machine.vcpu)
    return tidy_price(cores * units["cpu"] + machine.memory_gib * units["ram"])


if __name__ == "__main__":
    sys.exit(main("gcp", from_packages))
