"""The catalogue of the price lists that SkyPilot keeps."""

from __future__ import annotations

import csv
import datetime
import functools
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import Field

from tradewind import plugins
from tradewind.errors import CatalogueError
from tradewind.problem import Offer, OfferQuery
from tradewind.selector.canonical_words import canonical_arch, canonical_provider
from tradewind.selector.catalogue.price_table import (
    PriceRow,
    PriceTable,
    PriceTableCatalogue,
    accelerators,
    usual_category,
)
from tradewind.utils.paths import expand

_FILE = "vms.csv"
_NEEDED = ("InstanceType", "vCPUs", "MemoryGiB", "Price", "Region")
_FETCH = "SkyPilot fetches its lists with 'sky check'; or set 'path' of the catalogue skypilot"
_ARM = {
    "aws": re.compile(r"(a1|[a-z]+\d+g[a-z]*)\."),
    "azure": re.compile(r"Standard_[A-Z]+\d+(-\d+)?[a-z]*p[a-z]*_v\d"),
    "gcp": re.compile(r"(t2a|c4a|n4a)-"),
}
"""Types of processors with the architecture arm64, where the list has no column for it."""
_UNKNOWN_ARCH = {"aws": re.compile(r"mac|p6e"), "azure": re.compile(r".*GB\d"), "gcp": re.compile(r"a4x-")}
_BURSTABLE = {
    "aws": re.compile(r"t\d"),
    "azure": re.compile(r"Standard_B\d"),
    "gcp": re.compile(r"(f1-micro|g1-small|e2-(micro|small|medium))$"),
}
_HOSTS = re.compile(r"(a2|a3|a4|a4x|g2|g4|ct\w*)-")
"""Google's types with accelerators: SkyPilot lists the price of the host without them."""


class SkypilotSettings(plugins.Settings):
    """Settings of the SkyPilot catalogue."""

    path: Path = Field(
        default=Path("~/.sky/catalogs"),
        description="Folder with SkyPilot's lists (CLOUD/vms.csv), or one with a folder vN for each of their versions.",
    )


class SkypilotCatalogue(PriceTableCatalogue):
    """Sells the machine types that SkyPilot lists, on demand and spot: some twenty clouds.

    The date of a price is that of its file. Lines without an instance type, a price, vCPUs or memory are left out, and
    so are Google's types with accelerators, whose price there is that of the host alone.
    """

    Settings = SkypilotSettings
    settings: SkypilotSettings

    def table(self, query: OfferQuery) -> PriceTable:
        """The table of all lists in the folder.

        Raises:
            CatalogueError: There are none, or one cannot be read.
        """
        folder = _newest(expand(self.settings.path))
        files = sorted(folder.glob(f"*/{_FILE}"))
        if not files:
            raise CatalogueError(f"has no list CLOUD/{_FILE}", file=str(folder), hint=_FETCH)
        try:
            stamps = [(path, path.stat()) for path in files]
        except OSError as error:
            raise CatalogueError(f"cannot be read: {error.strerror}", file=str(error.filename)) from None
        return _read(tuple((path, status.st_mtime_ns, status.st_size) for path, status in stamps))


class _Kinds:
    """Machine types in the order in which they come up, each once."""

    def __init__(self) -> None:
        self._places: dict[tuple[str | float, ...], int] = {}
        self.machines: list[Offer] = []

    def place(self, provider: str, cells: _Cells) -> int | None:
        """The place of the machine type of a line; None where the line is of none that can be used."""
        name, vcpu, memory = cells.text("InstanceType"), cells.number("vCPUs"), cells.number("MemoryGiB")
        count, accelerator, arch = cells.number("AcceleratorCount"), cells.text("AcceleratorName"), cells.text("Arch")
        if not name or vcpu <= 0 or memory <= 0 or (provider == "gcp" and not count and _HOSTS.match(name)):
            return None
        key = provider, name, vcpu, memory, count, accelerator, arch
        if key not in self._places:
            self._places[key] = len(self.machines)
            self.machines.append(_machine(*key))
        return self._places[key]


def _newest(folder: Path) -> Path:
    versions = {int(path.name[1:]): path for path in folder.glob("v*") if re.fullmatch(r"v\d+", path.name)}
    return versions[max(versions)] if versions else folder


@functools.lru_cache(maxsize=4)
def _read(files: tuple[tuple[Path, int, int], ...]) -> PriceTable:
    kinds = _Kinds()
    rows: list[PriceRow] = []
    for path, changed, _ in files:
        date = datetime.datetime.fromtimestamp(changed / 1e9, datetime.UTC).date().isoformat()
        rows += _rows(path, date, kinds)
    return PriceTable.of_prices(kinds.machines, rows)


def _rows(path: Path, date: str, kinds: _Kinds) -> Iterator[PriceRow]:
    provider = canonical_provider(path.parent.name)
    line = 1
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.reader(file, strict=True)
            columns = {name: place for place, name in enumerate(next(reader, []))}
            if missing := [name for name in _NEEDED if name not in columns]:
                raise CatalogueError(
                    f"has no column {missing[0]!r}", file=str(path), line=1, hint="the lists of SkyPilot have it"
                )
            for cells in reader:
                line = reader.line_num
                yield from _row(_Cells(cells, columns), provider, date, kinds)
    except OSError as error:
        raise CatalogueError(f"cannot be read: {error.strerror}", file=str(path)) from None
    except (ValueError, IndexError, csv.Error) as error:
        words = "has too few cells" if isinstance(error, IndexError) else str(error)
        raise CatalogueError(words, file=str(path), line=line, hint=_FETCH) from None


class _Cells:
    """The cells of a line by the names of their columns."""

    __slots__ = ("_cells", "_columns")

    def __init__(self, cells: list[str], columns: Mapping[str, int]) -> None:
        self._cells, self._columns = cells, columns

    def text(self, name: str) -> str:
        place = self._columns.get(name)
        return "" if place is None else self._cells[place]

    def number(self, name: str) -> float:
        """A number; 0 where there is none."""
        text = self.text(name)
        value = float(text) if text else 0.0
        return value if math.isfinite(value) else 0.0


def _row(cells: _Cells, provider: str, date: str, kinds: _Kinds) -> Iterator[PriceRow]:
    machine = kinds.place(provider, cells)
    if machine is None:
        return
    region, zone = cells.text("Region"), cells.text("AvailabilityZone")
    for column, spot in (("Price", False), ("SpotPrice", True)):
        price = cells.number(column)
        if price > 0:
            yield PriceRow(machine, region, spot, price, date, zone)


def _machine(provider: str, name: str, vcpu: float, memory: float, count: float, accelerator: str, arch: str) -> Offer:
    gpus, facts = accelerators(count, accelerator)
    sign = {"aws": ".", "gcp": "-"}.get(provider)
    burstable = provider in _BURSTABLE and _BURSTABLE[provider].match(name) is not None
    return Offer(
        provider=provider,
        instance_type=name,
        vcpu=vcpu,
        memory_gib=memory,
        price_per_hour=0.0,
        category=usual_category(vcpu, memory, gpus=gpus, burstable=burstable),
        family=name.partition(sign)[0] if sign else "",
        arch=canonical_arch(arch) if arch else _usual_arch(provider, name),
        gpus=gpus,
        source="SkyPilot catalog",
        facts=facts,
    )


def _usual_arch(provider: str, name: str) -> str:
    """The architecture that a type's name says; empty where the provider's names say nothing."""
    if provider not in _ARM or _UNKNOWN_ARCH[provider].match(name):
        return ""
    return "arm64" if _ARM[provider].match(name) else "x86_64"
