"""Reads points of learning curves from what a running program writes, piece by piece."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Collection, Iterable, Iterator

from tradewind.errors import InterpretationError
from tradewind.interpreter.log_reader import LINE_LIMIT, json_line, lookup, parse_number

CurvePoint = tuple[float, float]
"""Step and value."""


class CurvePoints(Collection[CurvePoint]):
    """Points in their order, in 16 bytes each: a program may report a million.

    Args:
        points: The first of them.
    """

    def __init__(self, points: Iterable[CurvePoint] = ()) -> None:
        self._numbers = array("d")
        self.extend(points)

    def extend(self, points: Iterable[CurvePoint]) -> None:
        """Add points at the end."""
        for point in points:
            self._numbers.extend(point)

    def __len__(self) -> int:
        return len(self._numbers) // 2

    def __iter__(self) -> Iterator[CurvePoint]:
        numbers = iter(self._numbers)
        return zip(numbers, numbers, strict=True)

    def __contains__(self, point: object) -> bool:
        return any(one == point for one in self)


class CurvePointReader:
    r"""Finds the values of one metric, and their steps, in a stream of bytes.

    Lines that say nothing of the metric are passed over, and so are lines that cannot be read: the interpreters say
    what is wrong with a file when the run has ended. ``\r`` ends a line as ``\n`` does.

    Args:
        metric: The metric's name, dotted for nested keys of a JSON line.
        step: The key that counts the steps; a line without it counts on from the one before, beginning at 1.
        pattern: A regular expression with a group ``value`` and perhaps a group ``step``, instead of JSON lines.

    Attributes:
        offset: Bytes that were taken so far.
    """

    def __init__(self, metric: str, step: str = "step", pattern: str = "") -> None:
        self._metric = metric
        self._step = step
        self._pattern = re.compile(pattern) if pattern else None
        self._carry = b""
        self._place = 0.0
        self.offset = 0

    def feed(self, piece: bytes, *, last: bool = False) -> list[CurvePoint]:
        """The points of the lines that are whole now.

        Args:
            piece: What was written since.
            last: Nothing more will come: a line without its end is a line, too.
        """
        self.offset += len(piece)
        text = (self._carry + piece).replace(b"\r", b"\n")
        whole, _, rest = text.rpartition(b"\n")
        self._carry = b"" if last else rest[-LINE_LIMIT:]
        lines = (text if last else whole).split(b"\n")
        return [point for line in lines for point in self._points(line.decode("utf-8", "replace"))]

    def _points(self, line: str) -> Iterator[CurvePoint]:
        found = self._from_json(line) if self._pattern is None else self._from_text(line)
        if found is None:
            return
        value, step = found
        self._place = self._place + 1 if step is None else step
        yield self._place, value

    def _from_json(self, line: str) -> tuple[float, float | None] | None:
        line = line.strip(" \t")
        if not line.startswith("{"):
            return None
        try:
            record = json_line(line)
        except (ValueError, RecursionError):
            return None
        value, step = _curve_number(lookup(record, self._metric)), _curve_number(record.get(self._step))
        return None if value is None else (value, step)

    def _from_text(self, line: str) -> tuple[float, float | None] | None:
        assert self._pattern is not None
        match = self._pattern.search(line)
        if match is None or match["value"] is None:
            return None
        given = match["step"] if "step" in self._pattern.groupindex else None
        try:
            return parse_number(match["value"]), None if given is None else parse_number(given)
        except InterpretationError:
            return None


def _curve_number(raw: object) -> float | None:
    if not isinstance(raw, int | float):
        return None
    try:
        return float(raw)
    except OverflowError:
        return math.inf
