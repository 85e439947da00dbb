"""Curves of the metrics that a program reports while it runs, as documents of charts."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, BinaryIO

from tradewind.reporting.charts.document import Chart, ChartAxis, ChartLayer, ChartTable
from tradewind.utils.units import format_number, printable, shortened

Point = tuple[float, float]

MOST_READ = 8 * 2**20
"""Bytes of the reports that are read."""

_MOST_CURVES = 12
_MOST_POINTS = 1000
_MOST_LISTED = 100
_STEP = "step"
_COLOUR = "feasible"
_LONGEST_NAME = 80
_LARGEST = 1e300
"""Beyond it there is nothing to draw; not a number is beyond it, too."""


def reported_curves(file: BinaryIO, size: int) -> list[Chart]:
    """Return a chart for each metric that was reported twice or more, over its steps.

    Args:
        file: The open file of reports, a JSON object in each line; what cannot be read is passed over.
        size: Its length in bytes.
    """
    series: dict[str, list[Point]] = {}
    text = file.read(MOST_READ)
    lines = text[: text.rfind(b"\n") + 1].splitlines()  # the last one may be half of a line
    for place, record in enumerate(_records(lines), start=1):
        step = record.get(_STEP)
        across = float(step) if step is not None and _is_number(step) else float(place)
        for name, value in record.items():
            if name != _STEP and _is_number(value) and (name in series or len(series) < _MOST_CURVES):
                series.setdefault(name, []).append((across, float(value)))
    note = "Of its reports the first 8 MiB." if size > len(text) else ""
    return [curve_chart(name, points, "Step", note, listed=True) for name, points in series.items() if len(points) > 1]


def _records(lines: Iterable[bytes]) -> Iterable[Mapping[str, Any]]:
    for line in lines:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, Mapping):
            yield found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LARGEST


def curve_chart(title: str, points: Sequence[Point], across: str, note: str = "", *, listed: bool = False) -> Chart:
    """Return the chart of a curve.

    Args:
        title: Its heading.
        points: Places across and upwards, finite numbers.
        across: Words beside the axis to the right.
        note: A sentence below it.
        listed: True to put the data beside it as a table.
    """
    title = printable(shortened(title, _LONGEST_NAME)) or "Values"
    rows = thinned(points)
    words = [f"{across} {format_number(x, 6)}: {format_number(y, 6)}" for x, y in rows]
    table = ChartTable(
        (across, title), [(format_number(x, 6), format_number(y, 6)) for x, y in thinned(rows, _MOST_LISTED)]
    )
    layer = ChartLayer("line", "", _COLOUR, rows, words)
    return Chart(
        "curve", title, ChartAxis(across), ChartAxis(), [layer], note=note, table=table if listed else None, height=220
    )


def thinned(points: Sequence[Point], most: int = _MOST_POINTS) -> list[Point]:
    """Return so many points at most: of each stretch the lowest and the highest, so that no peak is lost."""
    known = [point for point in points if all(map(math.isfinite, point))]
    if len(known) <= most:
        return known
    length = math.ceil(2 * len(known) / most)
    found: list[Point] = []
    for begin in range(0, len(known), length):
        piece = known[begin : begin + length]
        ends = (min(piece, key=lambda point: point[1]), max(piece, key=lambda point: point[1]))
        found += sorted(set(ends))
    return found
