"""The catalogue of a CSV file that the user keeps."""

from __future__ import annotations

import csv
import gzip
import io
import math
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from tradewind import plugins
from tradewind.errors import CatalogueError, InputError
from tradewind.problem import Offer
from tradewind.problem.offer import BAND_SHARES, DISK, hourly_interruptions
from tradewind.selector.canonical_words import canonical_arch, canonical_category, canonical_provider
from tradewind.selector.catalogue.base import Catalogue
from tradewind.selector.disk_sizes import disk_facts, disk_size
from tradewind.utils.paths import expand
from tradewind.utils.units import parse_memory

_ALIASES = {
    "instance_type": ("api name", "instance type", "instance", "name", "type", "machine type", "size"),
    "provider": ("provider", "cloud", "vendor"),
    "vcpu": ("cpu", "cpus", "vcpu", "vcpus"),
    "memory_gib": ("memory", "memory gb", "memory gib", "ram", "ram gb", "ram gib"),
    "category": ("category",),
    "price_per_hour": ("price", "price per hour", "hourly price", "usd per hour", "price usd per hour"),
    "region": ("region", "location"),
    "family": ("family",),
    "arch": ("arch", "architecture"),
    "gpus": ("gpus", "gpu"),
    "spot": ("spot",),
    "price_date": ("price date", "date"),
    "interruptions_per_hour": ("interruptions per hour",),
    "interruption_frequency": ("interruption frequency", "frequency of interruption"),
}
_FIELD = {alias: field for field, aliases in _ALIASES.items() for alias in aliases}
_FURTHER_ALIASES = {
    "instance_type": ("instance name", "vm type", "vm size", "machine", "flavor", "flavour", "sku"),
    "provider": ("cloud provider", "csp"),
    "vcpu": ("number of vcpus", "number of cpus", "vcpu count", "cpu count", "num vcpus", "num cpus", "cores"),
    "memory_gib": ("amount of memory", "amount of memory in gb", "memory in gb", "memory in gib", "mem", "mem gb"),
    "category": ("category of machine type", "machine category", "instance category"),
    "price_per_hour": (
        "cost", "hourly cost", "hourly rate", "cost per hour", "price hour", "price hr", "price h", "price usd",
        "price usd hour", "usd hour", "usd h", "usd hr", "cost usd per hour", "on demand price", "price in usd",
        "hourly cost of the machine", "price per hour usd", "ondemand price", "on demand",
    ),
    "arch": ("cpu architecture", "processor architecture"),
    "gpus": ("number of gpus", "gpu count", "accelerators"),
}  # fmt: skip
"""Words that mean a field where no column has one of its own names; else they are facts."""
_FURTHER_FIELD = {alias: field for field, aliases in _FURTHER_ALIASES.items() for alias in aliases}
_DISKS = re.compile(
    r"(?:local |instance |ephemeral |temp(?:orary)? |ssd |nvme )?(?:disk|storage)(?: space| size| capacity)?"
    r"(?: in)?(?: (gb|gib|tb|tib|mb|mib))?"
)
"""Names of columns that say how much disk a machine has, and the unit that some of them have."""
_KIND = re.compile(r"\s*\((?:string|str|text|float|double|int|integer|number)\)\s*$")
"""The type of a column's values, as the paper writes it behind the name."""
_REQUIRED = {
    "instance_type": "API Name",
    "provider": "Provider",
    "vcpu": "CPU",
    "memory_gib": "Memory",
    "category": "Category",
    "price_per_hour": "Price",
}
_MOST_BYTES = 1 << 28
_RESERVED = frozenset(("nodes", "source", "facts", "hourly", "key"))
_YES_NO = {"": False, "no": False, "false": False, "0": False, "yes": True, "true": True, "1": True}


class CsvSettings(plugins.Settings):
    """Settings of a CSV catalogue."""

    path: Path = Field(description="The CSV file.")


class CsvCatalogue(Catalogue):
    """Sells what a CSV file of the user's lists: API Name, Provider, CPU, Memory, Category, Price.

    The columns are those of the tool requirements for cloud configuration (section 3.2). Names of columns are
    read in any case and order, and by their usual other names (``Hourly cost``, ``Number of vCPUs``). Region, Family,
    Arch, GPUs, Spot and Price Date may follow, and for spot machines Interruptions per Hour, or Interruption Frequency:
    the share that is taken back within a month, as 7.5% or in Amazon's bands (<5%, 5-10%, 10-15%, 15-20%, >20%). Other
    columns become facts of the offer. Memory is in GiB unless a unit is written, and KB, MB, GB and TB mean KiB, MiB,
    GiB and TiB, as in price lists; the price is in USD per hour.
    """

    Settings = CsvSettings
    settings: CsvSettings

    def offers(self) -> Sequence[Offer]:
        """Read all rows of the file.

        Raises:
            CatalogueError: The file cannot be read, or a row is wrong.
        """
        path = expand(self.settings.path)
        offers: dict[str, Offer] = {}
        lines: dict[str, int] = {}
        for row in _table(path, file_text(path)):
            offer = _offer(row, str(path))
            if offer.key in offers:
                raise row.error(
                    f"{offer.instance_type} of {offer.provider} is listed twice, first on line {lines[offer.key]}",
                    "remove one of them",
                )
            offers[offer.key] = offer
            lines[offer.key] = row.line
        if not offers:
            raise CatalogueError(
                "the catalogue has no rows", file=str(path), line=1, hint="add one line a machine type"
            )
        return list(offers.values())


@dataclass(frozen=True, slots=True)
class _Row:
    file: str
    line: int
    cells: Mapping[str, str]
    facts: Mapping[str, str]

    def error(self, message: str, hint: str | None = None) -> CatalogueError:
        return CatalogueError(message, file=self.file, line=self.line, hint=hint)

    def number(self, field: str, text: str) -> float:
        """A finite number."""
        plain = text.strip().removeprefix("$").strip()
        try:
            value = float(plain)
        except ValueError:
            comma = "write a point, not a comma" if re.fullmatch(r"\d+,\d+", plain) else "write a number such as 0.25"
            raise self.error(f"{field} {text!r} is not a number", comma) from None
        if not math.isfinite(value):
            raise self.error(f"{field} {text!r} is not a finite number")
        return value


def file_text(path: Path) -> str:
    """The text of the file, unpacked and without a byte-order mark.

    Raises:
        CatalogueError: It cannot be read, or is not UTF-8.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise CatalogueError(f"cannot be read: {error.strerror}", file=str(path), hint="check the path") from None
    if raw[:2] == b"\x1f\x8b":
        raw = _unpacked(raw, path)
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise CatalogueError("is UTF-16 text", file=str(path), line=1, hint="save it as 'CSV UTF-8'")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise CatalogueError("is not UTF-8 text", file=str(path), line=line, hint="save it as 'CSV UTF-8'") from None


def _unpacked(raw: bytes, path: Path) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(raw)) as file:
            text = file.read(_MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise CatalogueError(f"is no gzip file: {error}", file=str(path), hint="unpack it") from None
    if len(text) > _MOST_BYTES:
        raise CatalogueError(f"unpacks to more than {_MOST_BYTES >> 20} MiB", file=str(path), hint="leave rows out")
    return text


def _table(path: Path, text: str) -> Iterator[_Row]:
    reader = csv.reader(io.StringIO(text), strict=True)
    header: list[tuple[str, str]] | None = None
    try:
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if header is None:
                header = _header(cells, str(path), reader.line_num)
                continue
            if len(cells) != len(header):
                raise CatalogueError(
                    f"has {len(cells)} cells where the header has {len(header)}",
                    file=str(path),
                    line=reader.line_num,
                    hint="separate with commas; quote text that has a comma in it",
                )
            pairs = list(zip(header, (cell.strip() for cell in cells), strict=True))
            yield _Row(
                str(path),
                reader.line_num,
                {name: cell for (kind, name), cell in pairs if kind == "field"},
                {name: cell for (kind, name), cell in pairs if kind == "fact" and cell},
            )
    except csv.Error as error:
        raise CatalogueError(f"is no CSV: {error}", file=str(path), line=max(1, reader.line_num)) from None
    if header is None:
        raise CatalogueError("the catalogue is empty", file=str(path), line=1, hint=_header_hint())


def _header_hint() -> str:
    return "the first line names the columns: " + ", ".join(_REQUIRED.values())


def _header(cells: Sequence[str], file: str, line: int) -> list[tuple[str, str]]:
    """For each column: ``field`` or ``fact``, and its name."""
    if len(cells) == 1 and (wrong := next((mark for mark in ";\t|" if mark in cells[0]), None)):
        shown = {"\t": "tabs"}.get(wrong, repr(wrong))
        raise CatalogueError(f"columns are separated by {shown}", file=file, line=line, hint="separate with commas")
    columns: list[tuple[str, str]] = []
    words = [" ".join(re.sub(r"[^0-9a-z]+", " ", _KIND.sub("", cell.lower())).split()) for cell in cells]
    known = dict(_FIELD)
    for plain in words:
        field = _FURTHER_FIELD.get(plain)
        if field is not None and not any(known.get(other) == field for other in words):
            known[plain] = field
    for cell, plain in zip(cells, words, strict=True):
        column = ("field", known[plain]) if plain in known else ("fact", plain.replace(" ", "_"))
        if not plain:
            raise CatalogueError("a column has no name", file=file, line=line, hint=_header_hint())
        if column in columns:
            raise CatalogueError(f"the column {cell.strip()!r} is there twice", file=file, line=line)
        if column[1] in _RESERVED:
            raise CatalogueError(f"a column cannot be named {cell.strip()!r}", file=file, line=line, hint="rename it")
        columns.append(column)
    missing = [repr(name) for field, name in _REQUIRED.items() if ("field", field) not in columns]
    if missing:
        what = f"the column {missing[0]} is" if len(missing) == 1 else f"the columns {', '.join(missing)} are"
        raise CatalogueError(f"{what} missing", file=file, line=line, hint=_header_hint())
    return columns


def _offer(row: _Row, source: str) -> Offer:
    """The offer of a row.

    Raises:
        CatalogueError: A cell is wrong.
    """
    cells = row.cells
    for field, name in _REQUIRED.items():
        if not cells[field]:
            raise row.error(f"{name} is empty")
    vcpu = row.number("CPU", cells["vcpu"])
    memory = _memory(row, cells["memory_gib"])
    price = row.number("Price", cells["price_per_hour"])
    if vcpu <= 0:
        raise row.error(f"CPU must be above zero, got {cells['vcpu']}")
    if memory <= 0:
        raise row.error(f"Memory must be above zero, got {cells['memory_gib']}")
    if price == 0:
        raise row.error("the price is 0, which means unknown", "write the price per hour, or remove the row")
    if price < 0:
        raise row.error(f"the price is negative: {cells['price_per_hour']}", "write USD per hour")
    gpus = row.number("GPUs", cells.get("gpus") or "0")
    if gpus < 0 or gpus != int(gpus):
        raise row.error(f"GPUs must be a whole number from 0, got {cells['gpus']}")
    spot = cells.get("spot", "").lower()
    if spot not in _YES_NO:
        raise row.error(f"Spot {cells['spot']!r} is neither yes nor no")
    return Offer(
        provider=canonical_provider(cells["provider"]),
        instance_type=cells["instance_type"],
        vcpu=vcpu,
        memory_gib=memory,
        price_per_hour=price,
        region=cells.get("region", ""),
        category=canonical_category(cells["category"]),
        family=cells.get("family", ""),
        arch=canonical_arch(cells.get("arch", "")),
        gpus=int(gpus),
        spot=_YES_NO[spot],
        price_date=_date(row, cells.get("price_date", "")),
        source=source,
        facts={**_disk(row), **{name: _fact(row, name, text) for name, text in row.facts.items() if name != DISK}},
        interruptions_per_hour=_interruptions(row),
    )


def _interruptions(row: _Row) -> float | None:
    """Interruptions per hour, of either column; None where both are empty."""
    text, band = (row.cells.get(name, "") for name in ("interruptions_per_hour", "interruption_frequency"))
    if text and band:
        raise row.error("has both Interruptions per Hour and an Interruption Frequency", "leave one of them empty")
    if text:
        if (rate := row.number("Interruptions per Hour", text)) < 0:
            raise row.error(f"Interruptions per Hour is negative: {text}")
        return rate
    if not band:
        return None
    plain = band.replace(" ", "").replace("–", "-")
    if plain in BAND_SHARES:
        return hourly_interruptions(BAND_SHARES[plain])
    share = row.number("Interruption Frequency", plain.removesuffix("%")) / 100.0 if plain.endswith("%") else -1.0
    if not 0 <= share < 1:
        raise row.error(
            f"Interruption Frequency {band!r} is no share of a month", "write 7.5% or " + ", ".join(BAND_SHARES)
        )
    return hourly_interruptions(share)


def _memory(row: _Row, text: str) -> float:
    if text[-1:].isalpha() and text[:1].isdigit():
        # Price lists write GB and mean GiB, as the column of the paper does; so it is with MB and TB.
        unit = re.sub(r"(?i)(?<![a-z])([kmgt])b$", r"\1iB", text)
        try:
            return parse_memory(unit) / (1 << 30)
        except InputError as error:
            raise row.error(f"Memory: {error.message}", error.hint) from None
    return row.number("Memory", text)


def _disk(row: _Row) -> dict[str, float | str]:
    """The disk of a machine, by a column for it: ``Disk GiB``, or one with a usual name whose cell is a size."""
    if text := row.facts.get(DISK):
        size = disk_size(text, 2.0**30)
        if size is None:
            raise row.error(f"Disk GiB {text!r} is no size", "write a number of GiB, or 100GB, or nothing")
        return {DISK: size / 2**30}
    for name, text in row.facts.items():
        if found := _DISKS.fullmatch(name.replace("_", " ")):
            unit = (found[1] or "gib").upper().replace("I", "i")
            plain = re.fullmatch(r"[\d.,]+", text)
            if known := disk_facts(disk_size(f"{text} {unit}" if plain else text)):
                return known
    return {}


def _date(row: _Row, text: str) -> str:
    if text and not re.fullmatch(r"\d{4}-\d{2}(-\d{2})?", text):
        raise row.error(f"Price Date {text!r} is not a date", "write 2026-07-31")
    return text


def _fact(row: _Row, name: str, text: str) -> float | str:
    """A number where the cell holds one, else its text."""
    if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?(nan|inf(inity)?)", text.lower()):
        return row.number(name, text)
    return text
