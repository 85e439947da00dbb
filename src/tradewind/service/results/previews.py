"""Previews of results: pictures, tables, texts; any program may have written them, so nothing of them is trusted."""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import BinaryIO, Literal

from tradewind.reporting.charts.document import Chart
from tradewind.service.results.curves import curve_chart
from tradewind.service.results.file_types import Picture, is_pdf, picture_of
from tradewind.utils.units import format_memory, printable

PreviewKind = Literal["picture", "pdf", "table", "markdown", "text", "none"]

MOST_TEXT = 64 * 1024
"""Bytes of a text that are shown."""

MOST_TABLE = 2**20
"""Bytes of a table that are read."""

_MOST_ROWS, _MOST_COLUMNS, _MOST_CELL = 100, 30, 120
_MOST_CHARTS = 6
_NUMERIC = 0.9
"""Share of the values of a column that must be numbers for a curve."""

_TABLES = {".csv": "", ".tsv": "\t"}
_MARKDOWN = (".md", ".markdown")
_SHOWN = (*_TABLES, *_MARKDOWN, ".png", ".jpg", ".jpeg", ".gif", ".webp", ".pdf", ".txt", ".json", ".log", ".dat")


@dataclass(frozen=True, slots=True)
class FilePreview:
    """A preview of a file.

    Attributes:
        path: Path of the file.
        kind: How it is shown.
        note: What is not shown, or what was assumed; may be empty.
        text: The text, of text and Markdown.
        columns: Headings of a table.
        rows: Cells of a table.
        charts: Curves of the columns of a table.
        picture: Its type and size, of a picture.
    """

    path: str
    kind: PreviewKind
    note: str = ""
    text: str = ""
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    charts: Sequence[Chart] = field(default=())
    picture: Picture | None = None


def first_shown(paths: Sequence[str]) -> str:
    """Return the output that a page begins with: a picture before a table before a text; empty for none."""
    outputs = [path for path in paths if path.startswith("outputs/")]
    ranks = [".png", ".jpg", ".jpeg", ".gif", ".webp", *_TABLES, *_MARKDOWN, ".pdf", ".txt", ".json", ".dat", ".log"]
    shown = [path for path in outputs if _suffix(path) in _SHOWN]
    return min(shown, key=lambda path: (ranks.index(_suffix(path)), path), default="")


def preview_of(path: str, file: BinaryIO, size: int) -> FilePreview:
    """Read a preview of a file.

    Args:
        path: Path of the file, whose ending says what a text is; pictures are known by their content.
        file: The open file.
        size: Its length in bytes.
    """
    data = file.read(MOST_TABLE)
    if is_pdf(data):
        return FilePreview(path, "pdf")
    picture = picture_of(data)
    if picture is not None:
        note = picture.trouble(size)
        return FilePreview(path, "none" if note else "picture", note, picture=picture)
    text, encoding = _decoded(data, cut=size > len(data))
    if text is None:
        return FilePreview(path, "none", "It is no text: download it to look at it.")
    if _suffix(path) in _TABLES and (table := _table(path, text, size > len(data), encoding)) is not None:
        return table
    kind: PreviewKind = "markdown" if _suffix(path) in _MARKDOWN else "text"
    shown = text[:MOST_TEXT]
    cut = f"The beginning of {format_memory(size)}." if len(shown) < len(text) or size > len(data) else ""
    return FilePreview(path, kind, " ".join(part for part in (encoding, cut) if part), shown)


def _suffix(path: str) -> str:
    return PurePosixPath(path).suffix.lower()


def _decoded(data: bytes, *, cut: bool) -> tuple[str | None, str]:
    """Return the text, and a sentence where its encoding was guessed; None for what is no text."""
    for mark, name in ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")):
        if data.startswith(mark):
            return data[2:].decode(name, "replace"), "It is UTF-16."
    if b"\0" in data:
        return None, ""
    try:
        return codecs.getincrementaldecoder("utf-8-sig")().decode(data, final=not cut), ""
    except UnicodeDecodeError:
        return data.decode("latin-1"), "It is not UTF-8, and is read as Latin-1."


def _table(path: str, text: str, cut: bool, encoding: str) -> FilePreview | None:
    """Return a table of values with a separator; None where the text is none."""
    if cut:
        text = text[: text.rfind("\n") + 1]
    try:
        lines = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(path, text)) if row]
    except csv.Error:
        return None
    if not lines:
        return None
    headed = all(_number(cell) is None for cell in lines[0]) and any(cell.strip() for cell in lines[0])
    width = min(max(map(len, lines[: _MOST_ROWS + 1])), _MOST_COLUMNS)
    names = [_cell(cell) for cell in lines[0]] if headed else []
    names += [f"Column {place + 1}" for place in range(len(names), width)]
    body = lines[1:] if headed else lines
    notes = [encoding, _rows_shown(len(body), cut)]
    if max(map(len, lines)) > width:
        notes.append(f"Of its columns the first {width}.")
    rows = [[_cell(cell) for cell in (*row[:width], *[""] * (width - len(row)))] for row in body[:_MOST_ROWS]]
    charts = list(_charts(names[:width], body))
    return FilePreview(path, "table", " ".join(filter(None, notes)), columns=names[:width], rows=rows, charts=charts)


def _rows_shown(count: int, cut: bool) -> str:
    if cut:
        return f"The first {min(count, _MOST_ROWS):,} rows; the curves are of the first {count:,}."
    return f"The first {_MOST_ROWS:,} of {count:,} rows; the curves are of all." if count > _MOST_ROWS else ""


def _cell(text: str) -> str:
    return printable(text if len(text) <= _MOST_CELL else f"{text[:_MOST_CELL]}…")


def _delimiter(path: str, text: str) -> str:
    """Return the separator that divides the first lines into the same number of cells, and the most of them."""
    if given := _TABLES[_suffix(path)]:
        return given
    lines = [line for line in text[:20_000].splitlines()[:20] if line.strip()]

    def fit(one: str) -> tuple[int, int]:
        counts = Counter(line.count(one) for line in lines)
        cells, often = counts.most_common(1)[0] if counts else (0, 0)
        return (often if cells else 0, cells)

    return max(",;\t|", key=fit)


def _number(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def _charts(names: Sequence[str], body: Sequence[Sequence[str]]) -> Iterator[Chart]:
    """Yield a curve for each column of numbers: over the first one where that only grows, else over the rows."""
    columns: dict[int, list[float | None]] = {}
    for place in range(len(names)):
        values = [_number(row[place]) if place < len(row) else None for row in body]
        known = sum(value is not None for value in values)
        if known >= max(2, _NUMERIC * len(body)):
            columns[place] = values
    if not columns:
        return
    first = min(columns)
    grows = len(columns) > 1 and _grows(columns[first])
    across = columns.pop(first) if grows else [float(place + 1) for place in range(len(body))]
    for place, values in list(columns.items())[:_MOST_CHARTS]:
        points = [(x, y) for x, y in zip(across, values, strict=True) if x is not None and y is not None]
        yield curve_chart(names[place], points, names[first] if grows else "Row")


def _grows(values: Sequence[float | None]) -> bool:
    known = [value for value in values if value is not None]
    return len(known) == len(values) and all(one < two for one, two in itertools.pairwise(known))
