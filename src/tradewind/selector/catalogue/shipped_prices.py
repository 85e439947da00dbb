"""Reads the price tables that come with the package: ``prices/PROVIDER.csv``, which ``tools/prices`` writes.

A row has a machine type, the regions in which it has the same price, and the date and the source of that price.
What the machine has is said in the first row of its type.
"""

from __future__ import annotations

import csv
import functools
import re
from pathlib import Path

from tradewind.problem import Offer

FOLDER = Path(__file__).with_name("prices")
COLUMNS = (
    "type",
    "regions",
    "usd_per_hour",
    "vcpu",
    "memory_gib",
    "category",
    "arch",
    "gpus",
    "accelerator",
    "date",
    "source",
)
_SERIES = re.compile(r"^Standard_([A-Z]+)\d+")


@functools.cache
def shipped_offers(provider: str) -> tuple[Offer, ...]:
    """The offers of a provider's table."""
    return read_table(FOLDER / f"{provider}.csv")


def read_table(path: Path) -> tuple[Offer, ...]:
    """The offers of a table, whose file is named after the provider."""
    provider, family = path.stem, {"aws": _before_dot, "azure": _series, "gcp": _before_dash}[path.stem]
    offers: list[Offer] = []
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file)
        if tuple(next(rows)) != COLUMNS:
            raise ValueError(f"{path}: the columns are not {', '.join(COLUMNS)}")
        machine = None
        for name, regions, price, vcpu, memory, category, arch, gpus, accelerator, date, source in rows:
            if vcpu:
                facts = {"accelerator": accelerator} if accelerator else {}
                machine = float(vcpu), float(memory), category, family(name), arch, int(gpus or 0), facts
            if machine is None:
                raise ValueError(f"{path}: the first row does not say what the machine has")
            cpus, gib, kind, series, processor, number, known = machine
            usd = float(price)
            offers += [
                Offer(
                    provider,
                    name,
                    cpus,
                    gib,
                    usd,
                    place,
                    kind,
                    series,
                    processor,
                    number,
                    False,
                    1,
                    date,
                    source,
                    known,
                )
                for place in regions.split()
            ]
    return tuple(offers)


def _before_dot(name: str) -> str:
    return name.partition(".")[0]


def _before_dash(name: str) -> str:
    return name.partition("-")[0]


def _series(name: str) -> str:
    return _SERIES.sub(r"\1", name)
