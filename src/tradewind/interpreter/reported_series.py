"""Reads all that a run has reported: each metric over its steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from tradewind.interpreter.log_reader import BLOCK, LINE_LIMIT, json_line

_POINTS = 5_000
"""The most points of a metric that are kept; of more, as many at equal distances, the first and the last among them."""


class SeriesReader:
    """Finds the metrics in a stream of JSON lines over their steps, as ``tradewind.report()`` writes it.

    Only numbers of lines that tell their step count: what is reported without one is a result, not a curve. Lines that
    cannot be read are passed over, and of two values for a step the later one counts.

    Args:
        step: The key that counts the steps.

    Attributes:
        offset: Bytes that were taken so far.
    """

    def __init__(self, step: str = "step") -> None:
        self._step = step
        self._carry = b""
        self._found: dict[str, dict[float, float]] = {}
        self.offset = 0

    def feed(self, piece: bytes, *, last: bool = False) -> bool:
        """Take what was written since.

        Args:
            piece: The bytes.
            last: Nothing more will come: a line without its end is a line, too.

        Returns:
            True where there was a value in it.
        """
        self.offset += len(piece)
        whole, _, rest = (self._carry + piece).rpartition(b"\n")
        self._carry = b"" if last else rest[-LINE_LIMIT:]
        lines = (*whole.split(b"\n"), rest) if last else whole.split(b"\n")
        return sum(self._take(line) for line in lines) > 0

    def _take(self, line: bytes) -> bool:
        record, news = _record(line[:LINE_LIMIT]), False
        place = _finite(record.get(self._step))
        if place is None:
            return False
        for name, raw in record.items():
            if name != self._step and (value := _finite(raw)) is not None:
                self._found.setdefault(name, {})[place] = value
                news = True
        return news

    def series(self) -> dict[str, list[tuple[int, float]]]:
        """By metric its values by growing step; where steps are no whole numbers they are counted from 1 on."""
        return {name: _thinned(sorted(points.items())) for name, points in self._found.items()}


def read_series(path: Path, step: str = "step") -> dict[str, list[tuple[int, float]]]:
    """Read the metrics of a file of JSON lines over their steps, as `SeriesReader` finds them.

    Args:
        path: The file; it may be missing.
        step: The key that counts the steps.
    """
    reader = SeriesReader(step)
    try:
        with path.open("rb") as file:
            while block := file.read(BLOCK):
                reader.feed(block)
    except OSError:
        return {}
    reader.feed(b"", last=True)
    return reader.series()


def _record(line: bytes) -> Mapping[str, object]:
    try:
        record = json_line(line.decode("utf-8", "replace").strip())
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, Mapping) else {}


def _finite(raw: object) -> float | None:
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        return None
    try:
        value = float(raw)
    except OverflowError:
        return None
    return value if math.isfinite(value) else None


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[int, float]]:
    whole = all(step.is_integer() for step, _ in points)
    numbered = [(int(step) if whole else place, value) for place, (step, value) in enumerate(points, 1)]
    if len(numbered) <= _POINTS:
        return numbered
    return [numbered[round(place * (len(numbered) - 1) / (_POINTS - 1))] for place in range(_POINTS)]
