"""Scores of machines from a file of the user's, which become facts of the offers of all catalogues."""

from __future__ import annotations

import csv
import functools
import logging
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import Field

from tradewind import plugins
from tradewind.errors import CatalogueError
from tradewind.problem import Offer
from tradewind.problem.offer import is_score
from tradewind.selector.canonical_words import canonical_provider
from tradewind.selector.catalogue.base import Catalogue, DescribesOffers
from tradewind.selector.catalogue.csv_file import file_text
from tradewind.utils.paths import expand
from tradewind.utils.suggestions import did_you_mean

_log = logging.getLogger("tradewind.selector")

_TYPE = ("instance_type", "api_name", "instance", "type", "machine_type", "vm_type", "name")
_PROVIDER = ("provider", "vendor", "cloud")

_Key = tuple[str, str]
"""Provider, or nothing where the file does not name one, and type."""


class ScoresSettings(plugins.Settings):
    """Settings of a file of scores."""

    path: Path = Field(description="The CSV file: a column with the machine type, and columns with scores.")
    columns: tuple[str, ...] = Field(
        default=(),
        description="The columns that are scores, of which more is better; those of known benchmarks when not set.",
    )


class ScoresCatalogue(Catalogue, DescribesOffers):
    """Adds benchmark scores from a CSV file to the offers of the other catalogues, by machine type.

    It sells nothing. A column with the type (``instance_type``, ``API Name``, ...) is needed; where there is one with
    the provider, only that provider's types get the score. Scores are of the whole machine, and more is better.
    """

    Settings = ScoresSettings
    settings: ScoresSettings

    def offers(self) -> Sequence[Offer]:
        """None: it only says more of what others sell."""
        return ()

    def describe(self, offers: Sequence[Offer]) -> Sequence[Offer]:
        """The offers with their scores; those of which the file has none, as they were.

        Raises:
            CatalogueError: The file cannot be read, has no scores, or a cell is wrong.
        """
        path = expand(self.settings.path)
        try:
            status = path.stat()
        except OSError as error:
            raise CatalogueError(f"cannot be read: {error.strerror}", file=str(path), hint="check the path") from None
        scores = _read(path, status.st_mtime_ns, status.st_size, self.settings.columns)
        found = []
        for offer in offers:
            own = scores.get((offer.provider, offer.instance_type)) or scores.get(("", offer.instance_type))
            found.append(replace(offer, facts={**offer.facts, **own}) if own else offer)
        if offers and not any(new is not old for new, old in zip(found, offers, strict=True)):
            _log.warning("scores: %s has none of the %s that are sold", path, _few(offers))
        return found


def _few(offers: Sequence[Offer]) -> str:
    types = sorted({offer.instance_type for offer in offers})
    return f"{len(types)} types ({', '.join(types[:3])}{', ...' if len(types) > 3 else ''})"


@functools.lru_cache(maxsize=4)
def _read(path: Path, _changed: int, _size: int, wanted: tuple[str, ...]) -> Mapping[_Key, Mapping[str, float]]:
    """Scores by provider and type, then by fact."""
    reader = csv.reader(file_text(path).splitlines(), strict=True)
    found: dict[_Key, dict[str, float]] = {}
    lines: dict[_Key, int] = {}
    try:
        header = next((cells for cells in reader if any(cell.strip() for cell in cells)), None)
        if header is None:
            raise CatalogueError("is empty", file=str(path), line=1, hint="the first line names the columns")
        names = [_plain(cell) for cell in header]
        kind, provider = _place(names, _TYPE), _place(names, _PROVIDER)
        if kind is None:
            hint = f"name the column with the machine type {_TYPE[0]}"
            raise CatalogueError("no column has the machine type", file=str(path), line=reader.line_num, hint=hint)
        columns = _columns(names, wanted, path, reader.line_num)
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) != len(header):
                message = f"has {len(cells)} cells where the header has {len(header)}"
                raise CatalogueError(message, file=str(path), line=reader.line_num, hint="separate with commas")
            key = "" if provider is None else canonical_provider(cells[provider].strip()), cells[kind].strip()
            if key in lines:
                message = f"{key[1]} is there twice, first on line {lines[key]}"
                raise CatalogueError(message, file=str(path), line=reader.line_num, hint="remove one of them")
            lines[key] = reader.line_num
            for place, fact in columns.items():
                text = cells[place].strip()
                if text and (score := _score(text, header[place], path, reader.line_num)) > 0:
                    found.setdefault(key, {})[fact] = score
    except csv.Error as error:
        raise CatalogueError(f"is no CSV: {error}", file=str(path), line=max(1, reader.line_num)) from None
    return found


def _plain(cell: str) -> str:
    return "_".join(re.sub(r"[^0-9a-z]+", " ", cell.lower()).split())


def _place(names: Sequence[str], words: Sequence[str]) -> int | None:
    return next((names.index(word) for word in words if word in names), None)


def _columns(names: Sequence[str], wanted: Sequence[str], path: Path, line: int) -> dict[int, str]:
    """The fact of each column that is a score; what is no name of a benchmark becomes one of a score."""
    for name in wanted:
        if _plain(name) not in names:
            hint = did_you_mean(name, sorted(set(names)), "there is")
            raise CatalogueError(f"has no column {name!r}", file=str(path), line=line, hint=hint)
    chosen = [_plain(name) for name in wanted] or [name for name in names if is_score(name)]
    if not chosen:
        hint = f"say which are scores: catalogues: {{scores: {{path: {path.name}, columns: [NAME]}}}}"
        raise CatalogueError("no column is named after a known benchmark", file=str(path), line=line, hint=hint)
    return {names.index(name): name if is_score(name) else f"{name}_score" for name in chosen}


def _score(text: str, column: str, path: Path, line: int) -> float:
    """A score; 0 where it was not measured."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        message = f"{column.strip()} {text!r} is no score"
        raise CatalogueError(message, file=str(path), line=line, hint="write a number above zero, or leave it empty")
    return value
