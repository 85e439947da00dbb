"""Metrics that a program wrote as JSON, one object a line."""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from tradewind.errors import InterpretationError
from tradewind.interpreter.base import Interpreter
from tradewind.interpreter.log_reader import (
    Aggregate,
    LogReader,
    MetricAggregate,
    check_file_name,
    json_line,
    locate_file,
    lookup,
    no_match_error,
    shorten,
)
from tradewind.plugins import Settings
from tradewind.problem import RunOutput

MOST_METRICS = 1000
"""Different names that a file may have where the settings name none."""


DEEPEST = 20
"""Nested objects below this depth are passed over where the settings name no metrics."""


LARGEST_DOCUMENT = 16 << 20
"""Bytes up to which a file that is not made of lines is read as one JSON object."""


def _named(value: object) -> object:
    """``[a, b]`` and ``a`` as ``{a: last, b: last}``."""
    if isinstance(value, str):
        return {value: None}
    return dict.fromkeys(value) if isinstance(value, list | tuple) else value


class JsonLinesSettings(Settings):
    """Settings of `JsonLinesInterpreter`."""

    file: Annotated[str, AfterValidator(check_file_name)] = Field(
        "metrics", description="metrics (what tradewind.report() wrote), stdout, stderr or a path below outputs/"
    )
    metrics: Annotated[
        dict[str, Aggregate | None],
        BeforeValidator(_named, json_schema_input_type=str | list[str] | dict[str, Aggregate | None]),
    ] = Field(
        default_factory=dict,
        description="Metrics to read, dotted for nested keys: a list, or name: aggregate; all numbers if empty",
    )
    aggregate: Aggregate = Field("last", description="What becomes of several values of a metric")
    step: str = Field("step", description="Key that counts the steps; it is no metric itself")
    not_a_number: Literal["fail", "skip"] = Field(
        "fail", description="A NaN or infinite result fails the trial, or such values are passed over"
    )
    errors: Literal["replace", "strict"] = Field("replace", description="What to do about bytes that are not UTF-8")
    optional: bool = Field(False, description="A missing file or metric is no error")


class JsonLinesInterpreter(Interpreter):
    """Reads metrics from lines that are JSON objects: what ``tradewind.report()`` wrote, or lines of the log.

    The last value of each metric counts unless `aggregate` says otherwise; nested objects are read as
    ``outer.inner``; keys that begin with ``_`` are passed over. In a log, lines that are not JSON objects are
    passed over, and so are those where a metric is no number, unless none has one; in a file of metrics they are an
    error, except a last line that was cut short. A file that is one JSON object over several lines is read as one
    line would be.
    """

    Settings = JsonLinesSettings
    settings: JsonLinesSettings

    def interpret(self, output: RunOutput, metrics: Mapping[str, float]) -> Mapping[str, float]:
        """Read the lines.

        Raises:
            InterpretationError: ``missing-file``, ``empty``, ``truncated``, ``too-large``, ``no-match``,
                ``not-json``, ``not-utf8`` or ``not-a-number``.
        """
        chosen = self.settings
        try:
            reader = LogReader(locate_file(output, chosen.file), chosen.file)
        except InterpretationError as error:
            if chosen.optional and error.reason in ("missing-file", "empty"):
                return {}
            raise
        wanted = {name: how or chosen.aggregate for name, how in chosen.metrics.items()}
        foreign: dict[str, Any] = {}
        try:
            if wanted and set(wanted.values()) == {"last"}:
                found = self._last(reader, set(wanted), foreign)
            else:
                found = self._tallied(self._lines(reader), wanted, foreign)
        except InterpretationError as error:
            document = _document(reader) if error.reason == "not-json" else None
            if document is None:
                raise
            found = self._tallied([document], wanted, foreign)
        missing = [name for name in wanted if name not in found]
        if missing and not chosen.optional:
            if missing[0] in foreign:
                raise self._no_number(missing[0], foreign[missing[0]])
            raise no_match_error(output, reader, f"json_lines {missing[0]}")
        if not found and not chosen.optional:
            raise no_match_error(output, reader, "json_lines", hint='write lines such as {"score": 1.5}')
        for name, value in found.items():
            if not math.isfinite(value):
                raise InterpretationError("not-a-number", f"json_lines {name} in {chosen.file} is {value}")
        return found

    def _last(self, reader: LogReader, wanted: set[str], foreign: dict[str, Any]) -> dict[str, float]:
        """The last value of each wanted metric, reading from the end until all are there."""
        found: dict[str, float] = {}
        for text in reader.text(backwards=True, strict=self.settings.errors == "strict"):
            for record in _records(reversed(text.split("\n")), strict=self._strict(), name=reader.name):
                for name in wanted - found.keys():
                    value = self._value(name, lookup(record, name), foreign)
                    if value is not None:
                        found[name] = value
                if len(found) == len(wanted):
                    return found
        return found

    def _lines(self, reader: LogReader) -> Iterator[dict[str, Any]]:
        """The records of a file, in order."""
        for text in reader.text(strict=self.settings.errors == "strict"):
            yield from _records(text.split("\n"), strict=self._strict(), name=reader.name)

    def _tallied(
        self, records: Iterable[dict[str, Any]], wanted: Mapping[str, Aggregate], foreign: dict[str, Any]
    ) -> dict[str, float]:
        """All values of each metric, aggregated."""
        tallies: dict[str, MetricAggregate] = {}
        for record in records:
            pairs = ((name, lookup(record, name)) for name in wanted) if wanted else self._numbers(record)
            for name, raw in pairs:
                value = self._value(name, raw, foreign)
                if value is not None:
                    tally = tallies.get(name)
                    if tally is None:
                        tally = tallies[name] = MetricAggregate(wanted.get(name, self.settings.aggregate))
                    tally.add(value)
            if len(tallies) > MOST_METRICS:
                raise InterpretationError(
                    "too-large",
                    f"{self.settings.file} has more than {MOST_METRICS} different metrics",
                    hint="name those to read under metrics",
                )
        return {name: tally.result() for name, tally in tallies.items()}

    def _numbers(self, record: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        for name, value in _flatten(record):
            if name != self.settings.step and isinstance(value, int | float):
                yield name, value

    def _value(self, name: str, raw: Any, foreign: dict[str, Any]) -> float | None:
        """The number of a wanted key; None where it is absent or passed over, which ``foreign`` then keeps."""
        if raw is None:
            return None
        if not isinstance(raw, int | float):
            if self._strict():
                raise self._no_number(name, raw)
            foreign.setdefault(name, raw)
            return None
        value = _as_float(raw)
        return None if self.settings.not_a_number == "skip" and not math.isfinite(value) else value

    def _no_number(self, name: str, raw: Any) -> InterpretationError:
        text = shorten(json.dumps(raw))
        return InterpretationError("not-a-number", f"json_lines {name} in {self.settings.file} is {text}")

    def _strict(self) -> bool:
        """True if every line has to be a record: in a file of metrics, not in a log."""
        return self.settings.file not in ("stdout", "stderr")


def read_learning_curves(
    path: Path, *, step: str = "step", limit: int = 100_000
) -> dict[str, list[tuple[float, float]]]:
    """Learning curves: the values of each metric in the order in which they were reported.

    Args:
        path: A file of JSON lines, such as ``metrics.jsonl``; a missing one has no curves. It may still be written.
        step: Key that counts the steps; a line without it counts on from the line before.
        limit: Points of each metric that are kept, the latest.

    Returns:
        By metric, pairs of step and value; values may be NaN.
    """
    curves: dict[str, deque[tuple[float, float]]] = {}
    if not path.is_file():
        return {}
    place = -1.0
    for text in LogReader(path, path.name).text():
        for record in _records(text.split("\n"), strict=False, name=path.name):
            given = record.get(step)
            place = _as_float(given) if isinstance(given, int | float) else place + 1
            for name, value in _flatten(record):
                if name == step or not isinstance(value, int | float):
                    continue
                if name in curves or len(curves) < MOST_METRICS:
                    curves.setdefault(name, deque(maxlen=limit)).append((place, _as_float(value)))
    return {name: list(points) for name, points in curves.items()}


def _records(lines: Iterator[str] | list[str], *, strict: bool, name: str) -> Iterator[dict[str, Any]]:
    """The JSON objects among some lines.

    With ``strict``, another line is an error; a line without its closing brace is one that was cut short.
    """
    for line in lines:
        plain = line.strip().removeprefix("\ufeff").lstrip()
        if not plain or not (strict or plain.startswith("{")):
            continue
        try:
            record = json_line(plain)
        except (ValueError, RecursionError):
            record = None
        if isinstance(record, dict):
            yield record
        elif strict and not (plain.startswith("{") and not plain.endswith("}")):
            raise InterpretationError(
                "not-json",
                f"{name} has a line that is no JSON object: {shorten(plain)!r}",
                hint="write each record on one line",
            )


def _document(reader: LogReader) -> dict[str, Any] | None:
    """The object that a whole file is, as programs print it over several lines; None where it is none."""
    if reader.path.stat().st_size > LARGEST_DOCUMENT:
        return None
    whole = LogReader(reader.path, reader.name)
    text = "".join(whole.text())
    if whole.skipped:
        return None
    try:
        found = json.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _flatten(record: Mapping[str, Any], prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    for key, value in record.items():
        if key.startswith("_"):
            continue
        if isinstance(value, dict):
            if depth < DEEPEST:
                yield from _flatten(value, f"{prefix}{key}.", depth + 1)
        else:
            yield prefix + key, value


def _as_float(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf
