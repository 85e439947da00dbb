"""Writes ``azure.csv``: ``python -m tools.prices.azure``, or with ``--packages FOLDER`` where Azure cannot be reached.

Azure's price API states no vCPU and no memory: the sizes are those of `azure_sizes`. The package ``apache-libcloud``
has what that API said of the older ones; of the others the prices are those of `azure_sizes`, and their rows say so.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tools.prices import azure_sizes
from tools.prices.machine_types import offer_of
from tools.prices.table import main
from tools.prices.wheels import libcloud

from tradewind.problem import Offer


def from_packages(folder: Path) -> list[Offer]:
    """The offers that a folder of wheels has, and typed ones where it has none."""
    lists = libcloud(folder)
    prices = lists.compute["azure_linux"]
    offers = []
    for region, machine, typed in azure_sizes.regional_prices():
        price = prices.get(machine.name.lower().replace("_", ""), {}).get(region, 0.0)
        date, source = (lists.date, lists.source) if price > 0 else (azure_sizes.DATE, azure_sizes.SOURCE)
        offers.append(offer_of(machine, "azure", region, price if price > 0 else typed, date, source))
    return offers


if __name__ == "__main__":
    sys.exit(main("azure", from_packages))
