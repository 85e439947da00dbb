"""Reads all that a run has reported: each metric over its steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from tradewind.interpreter.log_reader import LINE_LIMIT, json_line

_POINTS = 5_000
"""The most points of a metric that are kept; of more, as many at equal distances, the first and the last among them."""


def read_series(path: Path, step: str = "step") -> dict[str, list[tuple[int, float]]]:
    """Read the metrics of a file of JSON lines over their steps, as ``tradewind.report()`` writes it.

    Only numbers of lines that tell their step count: what is reported without one is a result, not a curve. Lines that
    cannot be read are passed over, and of two values for a step the later one counts.

    Args:
        path: The file; it may be missing.
        step: The key that counts the steps.

    Returns:
        By metric its values by growing step. Where steps are no whole numbers they are counted from 1 on.
    """
    found: dict[str, dict[float, float]] = {}
    try:
        with path.open("rb") as file:
            while line := file.readline(LINE_LIMIT):
                record = _record(line)
                place = _finite(record.get(step))
                if place is None:
                    continue
                for name, raw in record.items():
                    if name != step and (value := _finite(raw)) is not None:
                        found.setdefault(name, {})[place] = value
    except OSError:
        return {}
    return {name: _thinned(sorted(points.items())) for name, points in found.items()}


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
