"""Recorded runs: read from a CSV or from exported records, and found by configuration."""

from __future__ import annotations

import csv
import gzip
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, cast

from tradewind.errors import RecordError
from tradewind.problem import Value

FRACTION = "fraction"
"""The column with the share of the input data that a run has used (the fidelity)."""

_FRACTION_DIGITS = 1e-6
"""Fractions that differ by less are one, since people write six decimals of them ..."""
_FRACTION_SHARE = 0.01
"""... unless they are so small that this is more than one part in a hundred."""

_TIME = "; the setting time names the one with the run time"
_TRUE = frozenset({"true", "yes"})
_FALSE = frozenset({"false", "no"})


def canonical_text(value: Value | None) -> str:
    """Spell a value in one way: 1, 1.0, ``1`` and ``1e0`` give the same text, and so do ``True`` and ``yes``."""
    text = "" if value is None else str(value).strip()
    if text.lower() in _TRUE | _FALSE:
        return "true" if text.lower() in _TRUE else "false"
    try:
        return f"{float(text):.12g}"
    except ValueError:
        return text


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """One recorded run.

    Attributes:
        values: The values of its parameters, by name, in the spelling of `canonical_text`.
        seconds: Its run time.
        failed: The reason for which it failed, or empty.
        metrics: Its other metrics, by name.
        place: The file and line that it was read from, for messages.
        profile: Its low-level metrics, by name.
    """

    values: Mapping[str, str]
    seconds: float
    failed: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    place: str = ""
    profile: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CsvLayout:
    """The meaning of the columns of a CSV.

    Attributes:
        time: Column of the run time.
        unit: Seconds in one unit of the time column.
        columns: Parameter -> column, where they differ in name.
        cost: Column of the recorded cost (USD), or empty.
        status: Column that says whether the run went well, or empty.
        ok: The values of the status column of runs that went well.
        metrics: Metric -> column.
        where: Column -> value: only rows with these values are read.
        delimiter: The character between columns.
    """

    time: str
    unit: float = 1.0
    columns: Mapping[str, str] = field(default_factory=dict)
    cost: str = ""
    status: str = ""
    ok: Sequence[str] = ()
    metrics: Mapping[str, str] = field(default_factory=dict)
    where: Mapping[str, str] = field(default_factory=dict)
    delimiter: str = ","


def _open(path: Path) -> IO[str]:
    try:
        if path.suffix == ".gz":
            return cast("IO[str]", gzip.open(path, "rt", encoding="utf-8-sig", newline=""))
        return path.open(encoding="utf-8-sig", newline="")
    except OSError as error:
        raise RecordError(
            f"the recorded runs cannot be read: {error.strerror}",
            file=str(path),
            hint="paths start at the YAML's folder",
        ) from None


def _amount(text: str | None, what: str, path: Path, line: int) -> float:
    try:
        number = float(text or "")
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or number < 0:
        raise RecordError(f"{what} is {text!r}, which is not a number of zero or more", file=str(path), line=line)
    return number


def read_csv(path: Path, layout: CsvLayout) -> list[RecordedRun]:
    """Read the recorded runs of a CSV with a header line; ``.gz`` is unpacked.

    Args:
        path: The file.
        layout: The meaning of its columns.

    Raises:
        RecordError: With file and line.
    """
    with _open(path) as file:
        try:
            return list(_rows(path, file, layout))
        except (UnicodeDecodeError, csv.Error, EOFError, gzip.BadGzipFile) as error:
            raise RecordError(f"it is not a CSV file in UTF-8: {error}", file=str(path)) from None


def _rows(path: Path, file: IO[str], layout: CsvLayout) -> Iterator[RecordedRun]:
    reader = csv.reader(file, delimiter=layout.delimiter)
    header = [name.strip() for name in next(reader, [])]
    if len(header) == 1 and (other := next((mark for mark in "\t;|," if mark in header[0]), None)):
        shown = {"\t": "tabs", ",": "commas", ";": "semicolons"}.get(other, repr(other))
        hint = 'write delimiter: "\\t"' if other == "\t" else f'write delimiter: "{other}"'
        raise RecordError(f"its columns are separated by {shown}", file=str(path), line=1, hint=hint)
    wanted = [
        layout.time,
        layout.cost,
        layout.status,
        *layout.columns.values(),
        *layout.metrics.values(),
        *layout.where,
    ]
    for name in filter(None, wanted):
        if name not in header:
            raise RecordError(
                f"there is no column {name!r}",
                file=str(path),
                line=1,
                hint=f"columns: {', '.join(filter(None, header))}" + _TIME * (name == layout.time),
            )
    for cells in reader:
        if not cells:
            continue
        line = reader.line_num
        if len(cells) != len(header):
            raise RecordError(
                f"{len(cells)} columns stand here and {len(header)} in the header", file=str(path), line=line
            )
        row = dict(zip(header, cells, strict=True))
        if any(canonical_text(row[name]) != canonical_text(value) for name, value in layout.where.items()):
            continue
        yield _recorded(path, line, row, layout)


def _recorded(path: Path, line: int, row: Mapping[str, str], layout: CsvLayout) -> RecordedRun:
    status = row.get(layout.status, "").strip() if layout.status else ""
    failed = bool(layout.status) and status.lower() not in {word.lower() for word in layout.ok}
    empty = not row[layout.time].strip()
    # A run that failed may have no time at all; one that went well must.
    seconds = 0.0 if failed and empty else _amount(row[layout.time], layout.time, path, line) * layout.unit
    metrics: dict[str, float] = {}
    for name, column in layout.metrics.items():
        if row[column].strip():
            try:
                metrics[name] = float(row[column])
            except ValueError:
                raise RecordError(f"{column} is {row[column]!r}, not a number", file=str(path), line=line) from None
    if layout.cost and row[layout.cost].strip():
        metrics["recorded_cost"] = _amount(row[layout.cost], layout.cost, path, line)
    values = {name: canonical_text(cell) for name, cell in row.items()}
    values |= {name: canonical_text(row[column]) for name, column in layout.columns.items()}
    return RecordedRun(
        values, seconds, f"it failed when it was recorded ({status})" if failed else "", metrics, f"{path}:{line}"
    )


def read_records(path: Path) -> list[RecordedRun]:
    """Read the ended trials of a file that ``tradewind export --format records`` wrote, one JSON document a line.

    Lost trials have no result, and the run time of aborted ones is not known: both are passed over.

    Raises:
        RecordError: With file and line.
    """
    found = []
    with _open(path) as file:
        try:
            for line, text in enumerate(file, 1):
                recorded = _trial(path, line, text) if text.strip() else None
                if recorded is not None:
                    found.append(recorded)
        except (UnicodeDecodeError, EOFError, gzip.BadGzipFile) as error:
            raise RecordError(f"it is not JSON in UTF-8: {error}", file=str(path)) from None
    return found


def _trial(path: Path, line: int, text: str) -> RecordedRun | None:
    try:
        document = json.loads(text)
        state, observation = document["state"], document["observation"]
        if state not in ("succeeded", "failed") or observation is None:
            return None
        values = {name: canonical_text(value) for name, value in document["configuration"].items()}
        values[FRACTION] = canonical_text(document.get("proposal", {}).get("fidelity", 1.0))
        seconds = float(observation["runtime"])
        metrics = {
            name: float(value)
            for name, value in observation.get("metrics", {}).items()
            if isinstance(value, int | float) and name not in ("runtime", "cost")
        }
        profile = {
            name: float(value)
            for name, value in observation.get("profile", {}).items()
            if isinstance(value, int | float)
        }
        reason = str(observation.get("reason", ""))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordError(
            f"it is not a record of a trial: {type(error).__name__} {error}",
            file=str(path),
            line=line,
            hint="tradewind export --format records writes them",
        ) from None
    if not math.isfinite(seconds) or seconds < 0:
        raise RecordError("observation.runtime is not a number of zero or more", file=str(path), line=line)
    failed = (reason or "it failed when it was recorded") if state == "failed" else ""
    return RecordedRun(values, seconds, failed, metrics, f"{path}:{line}", profile)


class RecordedRunTable:
    """Recorded runs, found by configuration.

    Args:
        runs: The runs; at least one.

    Attributes:
        columns: The names of all parameters that the runs have values of.
    """

    def __init__(self, runs: Sequence[RecordedRun]) -> None:
        self._runs = runs
        # A trial's record lacks the parameters that were not active: those are empty in it.
        self.columns = tuple(dict.fromkeys(name for run in runs for name in run.values))
        self._index: dict[tuple[str, ...], dict[tuple[str, ...], list[RecordedRun]]] = {}
        self._fractions: list[tuple[float, str]] | None = None

    def __len__(self) -> int:
        return len(self._runs)

    def names(self, configuration: Sequence[str], mapped: Sequence[str]) -> tuple[str, ...]:
        """The columns by which a run is looked up: the configuration's, ``fraction``, and mapped ones.

        Args:
            configuration: The names of the configuration's parameters.
            mapped: The names that the settings map to columns.
        """
        return tuple(sorted({*(n for n in (*configuration, FRACTION) if n in self.columns), *mapped}))

    def exactly(self, names: tuple[str, ...], value: Callable[[str], Value | None]) -> list[RecordedRun]:
        """The recorded runs with the same values.

        A fraction is the same to six decimals: a third is found where 0.333333 was recorded.

        Args:
            names: The columns that are compared.
            value: Gives the value that is looked for, by column.
        """
        if names not in self._index:
            index: dict[tuple[str, ...], list[RecordedRun]] = {}
            for run in self._runs:
                index.setdefault(_cells(run, names), []).append(run)
            self._index[names] = index
        wanted = {name: canonical_text(value(name)) for name in names}
        found = self._index[names].get(tuple(wanted.values()), [])
        if not found and FRACTION in wanted:
            wanted[FRACTION] = self._recorded_fraction(wanted[FRACTION])
            found = self._index[names].get(tuple(wanted.values()), [])
        return found

    def _recorded_fraction(self, wanted: str) -> str:
        """The recorded fraction that is the wanted one as people write it; the wanted one where none is."""
        number = _number(wanted)
        if number is None:
            return wanted
        if self._fractions is None:
            recorded = ((_number(text), text) for text in self.values(FRACTION))
            self._fractions = [(share, text) for share, text in recorded if share is not None]
        away, text = min(((abs(share - number), text) for share, text in self._fractions), default=(math.inf, wanted))
        return text if away < min(_FRACTION_DIGITS, _FRACTION_SHARE * abs(number)) else wanted

    def values(self, name: str) -> list[str]:
        """The values of a column, each once, in the order of the file."""
        return list(dict.fromkeys(run.values.get(name, "") for run in self._runs))

    def nearest(self, names: tuple[str, ...], value: Callable[[str], Value | None]) -> list[RecordedRun]:
        """The recorded runs at the smallest distance.

        The distance is the sum over the columns: for numbers the squared difference as a share of the column's range,
        for words 0 or 1.

        Args:
            names: The columns that are compared.
            value: Gives the value that is looked for, by column.
        """
        wanted = [canonical_text(value(name)) for name in names]
        spans = [self._span(name) for name in names]

        def distance(run: RecordedRun) -> float:
            total = 0.0
            for name, mine, span in zip(names, wanted, spans, strict=True):
                theirs = run.values.get(name, "")
                numbers = _number(mine), _number(theirs)
                if numbers[0] is None or numbers[1] is None or not span:
                    total += mine != theirs
                else:
                    total += ((numbers[0] - numbers[1]) / span) ** 2
            return total

        distances = [distance(run) for run in self._runs]
        least = min(distances)
        first = self._runs[distances.index(least)]
        same = _cells(first, names)
        return [run for run in self._runs if _cells(run, names) == same]

    def _span(self, name: str) -> float:
        numbers = [number for run in self._runs if (number := _number(run.values.get(name, ""))) is not None]
        return max(numbers) - min(numbers) if numbers else 0.0


def _cells(run: RecordedRun, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(run.values.get(name, "") for name in names)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
