"""Reads trials out of a CSV file with named columns."""

from __future__ import annotations

import codecs
import csv
import hashlib
import io
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tradewind.engine.records.foreign_trials import ForeignTrial, match_names
from tradewind.errors import InputError, RecordError
from tradewind.problem import COST, RUNTIME
from tradewind.problem.objective import OWN_METRICS
from tradewind.utils.units import parse_duration, parse_money

_STATES = {
    "": "succeeded", "succeeded": "succeeded", "success": "succeeded", "ok": "succeeded", "done": "succeeded",
    "complete": "succeeded", "completed": "succeeded", "finished": "succeeded", "infeasible": "succeeded",
    "terminated": "succeeded",
    "failed": "failed", "fail": "failed", "error": "failed", "crashed": "failed", "timeout": "failed",
    "aborted": "aborted", "pruned": "aborted", "cut short": "aborted", "stopped": "aborted", "killed": "aborted",
    "cancelled": "aborted", "canceled": "aborted",
    "running": "unfinished", "pending": "unfinished", "waiting": "unfinished", "scheduled": "unfinished",
    "queued": "unfinished", "paused": "unfinished", "lost": "unfinished",
}  # fmt: skip
"""What a state of a table, in small letters, is called here."""

_OURS = ("number", "trial", "id", "run_id", "reason", "state", "started", "ended", RUNTIME, COST)
"""Columns with a meaning of their own, which are no metrics; all but the parameters may be missing."""

_PREFIXES = {"config.": ("metric.",), "config/": ("",), "params_": ("user_attrs_",), "params.": ("metrics.",)}
"""How tools begin the names of columns of parameters, and those of metrics."""

_NOTHING = frozenset({"", "-", "na", "n/a", "null", "none"})
"""Cells, in small letters, of results that there are none of."""

_DELIMITERS = ",;\t|"
_DECIMAL_COMMA = re.compile(r"[+-]?(?:\d+|\d{1,3}(?:\.\d{3})+),\d+(?:[eE][+-]?\d+)?")
_UNIT = re.compile(r"(.*?)\s*[(\[]([^()\[\]]*)[)\]]\s*")
_DOLLARS = frozenset({"$", "usd", "us$", "dollar", "dollars"})


def read_csv_trials(
    path: Path, parameters: Sequence[str], metrics: Sequence[str], said: Mapping[str, str] | None = None
) -> Iterator[ForeignTrial]:
    """Read a CSV file with a column for each parameter.

    ``state``, ``runtime`` (seconds, or a duration), ``cost`` (USD), ``started``, ``ended`` (seconds since the epoch, or
    a date and time) and ``reason`` are what they say; every other column of numbers is a metric. Names in words,
    ``Learning rate``, are taken for ``learning_rate``, and a unit in brackets is no part of a name. An empty cell is
    nothing. Cells may be parted by semicolons or tabs; numbers may then have decimal commas. Tables that ``tradewind
    export``, Ray Tune (``config/x``), Optuna (``params_x``, ``value``) and MLflow (``params.x``) write are read as they
    are.

    Args:
        path: The file.
        parameters: Names of the parameters.
        metrics: Metrics that the job asks for, its objective first, of which Optuna writes the value only.
        said: Names of parameters by those of columns, as the user has said them.

    Raises:
        RecordError: It cannot be read, or a value is none; with the line.
    """
    raw = _bytes(path)
    text = _decoded(raw)
    digest = hashlib.sha256(raw).hexdigest()[:10]
    said = said or {}
    delimiter, separated = _delimiter(text, {*parameters, *metrics, *_OURS, *said})
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        if separated:
            next(rows)
        columns = _Columns.of([name.strip() for name in next(rows, [])], parameters, metrics, said)
        for row in rows:
            if not any(cell.strip() for cell in row):
                continue
            place = f"line {rows.line_num}"
            cells = columns.cells(row, place, decimal_comma=delimiter != ",")
            yield _trial(cells, place, f"csv-{digest}-{rows.line_num:05d}", parameters, metrics, columns)
    except csv.Error as error:
        raise RecordError(f"line {rows.line_num}: it is no CSV: {error}") from None


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise RecordError(f"it cannot be read: {error.strerror}") from None


def _decoded(raw: bytes) -> str:
    wide = raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = raw.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError:
        raise RecordError("it is not UTF-8", hint="save it as UTF-8") from None
    if not text.strip():
        raise RecordError("it is empty")
    return text


def _delimiter(text: str, wanted: Set[str]) -> tuple[str, bool]:
    """The sign between cells, and True where a line before that of the names says it, as Excel writes it."""
    first = text.split("\n", 1)[0].strip("\r")
    if said := re.fullmatch(r"sep=(.)", first):
        return said[1], True

    def fits(delimiter: str) -> tuple[int, int]:
        names = next(csv.reader([first], delimiter=delimiter), [])
        return sum(name in wanted for name in match_names(map(_without_unit, names), wanted).values()), len(names)

    return max(_DELIMITERS, key=fits), False


def _without_unit(name: str) -> str:
    found = _UNIT.fullmatch(name)
    return found[1] if found is not None and found[1] else name.strip()


@dataclass(frozen=True)
class _Columns:
    """The columns of a table.

    Attributes:
        header: Their names, as they stand.
        meanings: What each is called here, by its name.
        factor: Seconds of one unit of the run time.
    """

    header: Sequence[str]
    meanings: Mapping[str, str]
    factor: float = 1.0

    @classmethod
    def of(
        cls, header: Sequence[str], parameters: Sequence[str], metrics: Sequence[str], said: Mapping[str, str]
    ) -> _Columns:
        """Find out what the columns mean.

        Raises:
            RecordError: One that the user has named is missing, none is a parameter, two are the same, or a unit is
                not known.
        """
        wanted = {*parameters, *metrics, *_OURS}
        meanings = _meanings([name for name in header if name], metrics[0])
        names = [_without_unit(name) for name in meanings.values()]
        if missing := [name for name in said if name not in names]:
            hint = f"they are {', '.join(names)}"
            raise RecordError(f"its first line names no column {missing[0]!r}", hint=hint)
        plain = match_names(names, wanted, said)
        named = {column: plain[_without_unit(name)] for column, name in meanings.items()}
        meanings = {column: named[column] if named[column] in wanted else name for column, name in meanings.items()}
        if not set(meanings.values()) & set(parameters):
            hint = f"name a column after each parameter: {', '.join(parameters)}"
            raise RecordError("its first line names no parameter of the job", hint=hint)
        for name, many in Counter(header).items():
            if many > 1 and meanings.get(name) in wanted:
                raise RecordError(f"its first line names {name} {many} times", hint="keep one of these columns")
        factor = 1.0
        for column, name in meanings.items():
            unit = found[2].strip() if (found := _UNIT.fullmatch(column)) is not None else ""
            if unit and name == COST and unit.lower() not in _DOLLARS:
                raise RecordError(f"the column {column!r} is in {unit}", hint="costs are in USD")
            if unit and name == RUNTIME:
                factor = _seconds_of(unit, column)
        return cls(header, meanings, factor)

    def cells(self, row: Sequence[str], place: str, *, decimal_comma: bool) -> dict[str, str]:
        """The cells of a row by what they are called here.

        Raises:
            RecordError: It has more cells than there are columns, or two values for one parameter or metric.
        """
        if any(cell.strip() for cell in row[len(self.header) :]):
            raise RecordError(
                f"{place}: it has {len(row)} cells, and the first line {len(self.header)}",
                hint="put a text with a comma in quotes, and write numbers with a point",
            )
        found: dict[str, str] = {}
        for column, cell in zip(self.header, row, strict=False):
            if (name := self.meanings.get(column)) is not None:
                text = cell.strip()
                if decimal_comma and _DECIMAL_COMMA.fullmatch(text):
                    text = text.replace(".", "").replace(",", ".")
                if name not in _OURS and found.get(name, text) not in ("", text) and text:
                    raise RecordError(
                        f"{place}: two columns are {name}, with different values", hint="keep one of them"
                    )
                found[name] = text or found.get(name, "")
        return found


def _seconds_of(unit: str, column: str) -> float:
    if unit.lower() in ("ms", "milliseconds"):
        return 0.001
    try:
        return parse_duration(f"1 {unit}")
    except InputError:
        raise RecordError(f"the column {column!r}: {unit} is no unit of time", hint="s, min, h") from None


def _meanings(columns: Sequence[str], metric: str) -> dict[str, str]:
    """Name each column as it is called here; of other tools' tables only those that say something."""
    before = next((word for word in _PREFIXES if any(name.startswith(word) for name in columns)), None)
    state = {"status": "state"} if "state" not in columns else {}
    if before is None:
        return {name: state.get(name.lower(), name) for name in columns}
    found = {name: name for name in columns if name in _OURS} | ({"value": metric} if before == "params_" else {})
    found |= {name: state[name.lower()] for name in columns if name.lower() in state}
    for name in columns:
        for word in (before, *_PREFIXES[before]):
            if word and name.startswith(word):
                found[name] = name.removeprefix(word)
        if "" in _PREFIXES[before]:
            found.setdefault(name, name)
    return {name: meaning for name, meaning in found.items() if name in columns}


def _trial(
    cells: Mapping[str, str],
    place: str,
    run_id: str,
    parameters: Sequence[str],
    wanted: Sequence[str],
    columns: _Columns,
) -> ForeignTrial:
    said = cells.get("state", "").lower()
    if said not in _STATES:
        raise RecordError(f"{place}: there is no state {said!r}", hint="succeeded, failed, aborted or running")
    metrics = {}
    for name, text in cells.items():
        if text.lower() in _NOTHING or name in parameters or name in _OURS:
            continue
        try:
            metrics[name] = _figure(text)
        except ValueError:
            if name in wanted:
                hint = "write it with a point" if _DECIMAL_COMMA.fullmatch(text) else ""
                raise RecordError(f"{place}: {name} is {text!r}, which is no number", hint=hint) from None
            continue  # a note, a date
    aim = wanted[0]
    if _STATES[said] == "succeeded" and aim not in OWN_METRICS and aim not in columns.meanings.values():
        have = ", ".join(sorted(metrics)) or "none"
        raise RecordError(f"its first line names no {aim}, the objective of the job", hint=f"its metrics: {have}")
    return ForeignTrial(
        run_id,
        place,
        {name: cells[name] for name in parameters if cells.get(name)},
        _STATES[said],  # type: ignore[arg-type]
        metrics,
        _seconds(cells, place, columns.factor),
        _dollars(cells, place),
        cells.get("reason", ""),
        _moment(cells, "started", place),
        _moment(cells, "ended", place),
    )


def _figure(text: str) -> float:
    """As ``float``, for which 54329_00001, a trial of Ray Tune, is a number, too."""
    if "_" in text:
        raise ValueError
    return float(text)


def _seconds(cells: Mapping[str, str], place: str, factor: float) -> float | None:
    text = cells.get(RUNTIME, "")
    if text.lower() in _NOTHING:
        return None
    try:
        value = float(text) * factor
    except ValueError:
        try:
            value = parse_duration(text)
        except InputError:
            value = math.nan
    return _checked(value, RUNTIME, text, place)


def _dollars(cells: Mapping[str, str], place: str) -> float | None:
    text = cells.get(COST, "")
    if text.lower() in _NOTHING:
        return None
    try:
        return _checked(parse_money(text), COST, text, place)
    except RecordError:
        raise
    except InputError:
        return _checked(math.nan, COST, text, place)


def _moment(cells: Mapping[str, str], name: str, place: str) -> float | None:
    text = cells.get(name, "")
    if text.lower() in _NOTHING:
        return None
    try:
        return _checked(float(text), name, text, place)
    except ValueError:
        pass
    try:
        return _checked(datetime.fromisoformat(text).timestamp(), name, text, place)
    except ValueError:
        hint = "seconds since 1970, or 2026-07-31T12:00:00"
        raise RecordError(f"{place}: {name} is {text!r}, which is no date and time", hint=hint) from None


def _checked(value: float, name: str, text: str, place: str) -> float:
    if not math.isfinite(value) or value < 0:
        raise RecordError(f"{place}: {name} is {text!r}, which is no number of 0 or more")
    return value
