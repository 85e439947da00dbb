"""The catalogue of the list of EC2 instances that Vantage keeps (ec2instances.info)."""

from __future__ import annotations

import datetime
import functools
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from tradewind import plugins
from tradewind.errors import CatalogueError
from tradewind.problem import Offer, OfferQuery
from tradewind.selector.canonical_words import canonical_arch
from tradewind.selector.catalogue.aws import aws_category
from tradewind.selector.catalogue.price_list import price_or_none
from tradewind.selector.catalogue.price_table import PriceRow, PriceTable, PriceTableCatalogue, accelerators
from tradewind.selector.disk_sizes import disk_facts, disk_size
from tradewind.utils.paths import expand

_FETCH = "get instances.json from https://instances.vantage.sh and set 'path' of the catalogue vantage to it"
_MAKERS = re.compile(r"^(NVIDIA|AMD|AWS|Habana|Xilinx|Qualcomm)\s+(Tesla\s+)?", re.IGNORECASE)


class VantageSettings(plugins.Settings):
    """Settings of the Vantage catalogue."""

    path: Path = Field(description="The file instances.json of instances.vantage.sh (ec2instances.info).")


class VantageCatalogue(PriceTableCatalogue):
    """Sells the EC2 instance types that Vantage lists, for Linux: on demand, and spot at its average price.

    The date of a price is that of the file. Types without vCPUs, memory or a price are left out, and so are those with
    accelerators whose number the list does not say.
    """

    Settings = VantageSettings
    settings: VantageSettings

    def table(self, query: OfferQuery) -> PriceTable:
        """The table of the whole file.

        Raises:
            CatalogueError: It cannot be read, or is no such list.
        """
        path = expand(self.settings.path)
        try:
            status = path.stat()
        except OSError as error:
            raise CatalogueError(f"cannot be read: {error.strerror}", file=str(path), hint=_FETCH) from None
        return _read(path, status.st_mtime_ns, status.st_size)


@functools.lru_cache(maxsize=2)
def _read(path: Path, changed: int, _size: int) -> PriceTable:
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise CatalogueError(f"cannot be read: {error.strerror}", file=str(path), hint=_FETCH) from None
    except (ValueError, RecursionError):
        raise CatalogueError("is no JSON", file=str(path), hint=_FETCH) from None
    if not isinstance(document, list):
        raise CatalogueError("is no list of instance types", file=str(path), hint=_FETCH)
    date = datetime.datetime.fromtimestamp(changed / 1e9, datetime.UTC).date().isoformat()
    machines: list[Offer] = []
    rows: list[PriceRow] = []
    for number, entry in enumerate(document, start=1):
        try:
            machine = _machine(entry, path)
            if machine is not None:
                rows += _rows(len(machines), entry["pricing"], date)
                machines.append(machine)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            name = entry.get("instance_type", "") if isinstance(entry, dict) else ""
            words = (
                f"has no {error}" if isinstance(error, KeyError) else "has a value of another kind than Vantage's list"
            )
            raise CatalogueError(f"entry {number} {name}".rstrip() + f" {words}", file=str(path), hint=_FETCH) from None
    return PriceTable.of_prices(machines, rows)


def _machine(entry: Mapping[str, Any], path: Path) -> Offer | None:
    """The machine type of an entry; None where it is of no use."""
    name, vcpu, memory = str(entry["instance_type"]), price_or_none(entry["vCPU"]), price_or_none(entry["memory"])
    number, facts = accelerators(price_or_none(entry.get("GPU")) or 0.0, _MAKERS.sub("", entry.get("GPU_model") or ""))
    category = "accelerated" if number else aws_category(name, entry["family"])
    if vcpu is None or memory is None or (category == "accelerated" and not number):
        return None
    arches = [canonical_arch(arch) for arch in entry.get("arch") or ()]
    return Offer(
        provider="aws",
        instance_type=name,
        vcpu=vcpu,
        memory_gib=memory,
        price_per_hour=0.0,
        category=category,
        family=name.partition(".")[0],
        arch=next((arch for arch in ("x86_64", "arm64") if arch in arches), ""),
        gpus=number,
        source=f"Vantage: {path}",
        facts={**facts, **disk_facts(_disk(entry.get("storage")))},
    )


def _disk(storage: Any) -> float | None:
    """Bytes of the instance store, of which there may be several devices of one size; None where there is none."""
    if not isinstance(storage, Mapping):
        return None
    size, devices = price_or_none(storage.get("size")), price_or_none(storage.get("devices"))
    unit = str(storage.get("size_unit") or "GB")
    return None if size is None or devices is None else disk_size(f"{size * devices:.3f} {unit}")


def _rows(machine: int, pricing: Mapping[str, Any], date: str) -> Iterator[PriceRow]:
    for region, systems in pricing.items():
        linux = systems.get("linux") or {}
        # Until 2017 the price itself stood here.
        prices = linux if isinstance(linux, Mapping) else {"ondemand": linux}
        for name, spot in (("ondemand", False), ("spot_avg", True)):
            price = price_or_none(prices.get(name))
            if price is not None:
                yield PriceRow(machine, region, spot, price, date)
