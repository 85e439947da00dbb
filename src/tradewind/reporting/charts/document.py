"""The one document of a chart: axes, and layers of points, lines, boxes and segments on them, as JSON for a page.

What is drawn is decided here and by those who fill it; `tradewind.reporting.charts.picture` (matplotlib) and the
script ``chart.js`` (ECharts) only put it on the screen.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal

import numpy as np

LayerKind = Literal["points", "line", "steps", "area", "band", "boxes", "segments", "links"]
AxisKind = Literal["number", "money", "none"]

MOST = sys.float_info.max / 1000
"""The end of an axis: the length of one between this and its negative, and ten times of it, is still a number."""

DIGITS = 6
"""Figures that are kept of a number: charts show fewer."""


@dataclass(frozen=True, slots=True)
class ChartAxis:
    """An axis of a chart.

    Attributes:
        title: Words beside it, with the unit.
        kind: What its labels are written as; ``none`` for an axis that is not drawn.
        log: True for a logarithmic axis, unless the reader chooses another.
        unit: What its values are divided by, such as 60 for minutes.
        low: Value of its beginning; None leaves it to the data.
        high: Value of its end, likewise.
        labels: Places with their words, instead of numbers.
        down: True where values grow downwards.
    """

    title: str = ""
    kind: AxisKind = "number"
    log: bool = False
    unit: float = 1.0
    low: float | None = None
    high: float | None = None
    labels: Sequence[tuple[float, str]] = ()
    down: bool = False


@dataclass(frozen=True, slots=True)
class ChartLayer:
    """Things of one kind on a chart, drawn in the order of the layers.

    Attributes:
        kind: ``points`` (x, y), ``line``, ``steps`` and ``area`` (x, y; the latter two hold until the next), ``band``
            (x, low, high), ``boxes``, ``segments`` and ``links`` (x, y and x, y of two corners or ends; links are
            curves that leave and arrive upright).
        name: Words of the legend; empty for none.
        look: A name of the style sheet, such as ``feasible``, or a colour as ``#rrggbb``.
        rows: Numbers of each thing.
        words: Lines about each thing, shown where the pointer rests on it.
        keys: Number of each thing in the table beside the chart.
        texts: Words that are written in boxes.
        looks: Look of each thing, where they differ.
        strong: Places of the things that are outlined.
        faint: True where it stands behind the rest.
    """

    kind: LayerKind
    name: str
    look: str
    rows: Sequence[Sequence[float]]
    words: Sequence[str] = ()
    keys: Sequence[int] = ()
    texts: Sequence[str] = ()
    looks: Sequence[str] = ()
    strong: Sequence[int] = ()
    faint: bool = False


@dataclass(frozen=True, slots=True)
class ChartBound:
    """A line across a chart at a value of the axis that goes to the right: what lies beyond it is shaded.

    Attributes:
        at: The value.
        words: Words beside it.
    """

    at: float
    words: str


@dataclass(frozen=True, slots=True)
class ChartTable:
    """The data of a chart as a table, for those who do not see it.

    Attributes:
        columns: Headings.
        rows: Cells as words.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart with two axes.

    Attributes:
        name: Name of the files that are saved.
        title: Its heading, which also says to screen readers what it is.
        x: The axis to the right.
        y: The axis upwards.
        layers: What is on it, the last above all others.
        bound: A line that values should not pass, or None.
        note: A sentence below it.
        table: The same data as a table, or None where the page has one.
        height: Pixels.
        zooms: ``x`` where only the axis to the right can be zoomed.
    """

    name: str
    title: str
    x: ChartAxis
    y: ChartAxis
    layers: Sequence[ChartLayer]
    bound: ChartBound | None = None
    note: str = ""
    table: ChartTable | None = None
    height: int = 320
    zooms: Literal["", "x"] = ""

    def layer(self, name: str) -> ChartLayer:
        """Return the first layer of a name."""
        return next(layer for layer in self.layers if layer.name == name)


@dataclass(frozen=True, slots=True)
class ParallelAxis:
    """One of many axes side by side.

    Attributes:
        id: Name that filters know it by.
        title: Words above it.
        kind: What its labels are written as.
        log: True for a logarithmic axis.
        unit: What its values are divided by.
        labels: The words of an axis of words, whose values are places among them.
    """

    id: str
    title: str
    kind: AxisKind = "number"
    log: bool = False
    unit: float = 1.0
    labels: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ParallelChart:
    """Parallel coordinates: a line for each row over all axes.

    Attributes:
        name: Name of the files that are saved.
        title: Its heading.
        axes: The axes from left to right.
        rows: A value for each axis, NaN where there is none.
        ranks: Class of each row: 0 for the strongest colour, 5 for the faintest.
        keys: Number of each row in the table beside the chart.
        best: Key of the row that stands out, or None.
        note: A sentence below it.
        height: Pixels.
    """

    name: str
    title: str
    axes: Sequence[ParallelAxis]
    rows: Sequence[Sequence[float]]
    ranks: Sequence[int]
    keys: Sequence[int]
    best: int | None = None
    note: str = ""
    height: int = 340


def chart_json(chart: Chart | ParallelChart) -> dict[str, Any]:
    """Return a chart as JSON: numbers in the units of their axes, what is empty left out."""
    found: dict[str, Any] = _plain(chart)
    if isinstance(chart, ParallelChart):
        units = np.array([axis.unit for axis in chart.axes])
        found["rows"] = _numbers(np.array(chart.rows, dtype=float).reshape(-1, len(units)) / units)
        return found
    for layer, given in zip(found.setdefault("layers", []), chart.layers, strict=True):
        layer["rows"] = _numbers(in_units(chart, given))
    for axis, about in (("x", chart.x), ("y", chart.y)):
        found[axis] |= {end: found[axis][end] / about.unit for end in ("low", "high") if end in found[axis]}
    if chart.bound is not None:
        found["bound"]["at"] = chart.bound.at / chart.x.unit
    return found


def in_units(chart: Chart, layer: ChartLayer) -> Any:
    """Return the rows of a layer in the units of its axes, as an array."""
    rows = np.array(layer.rows, dtype=float)
    if not len(rows):
        return rows.reshape(0, 2)
    units = [chart.x.unit] + [chart.y.unit] * 2 if layer.kind == "band" else [chart.x.unit, chart.y.unit] * 2
    return np.clip(rows, -MOST, MOST) / np.array(units[: rows.shape[1]])


def _plain(thing: Any) -> Any:
    if is_dataclass(thing) and not isinstance(thing, type):
        pairs = ((field.name, getattr(thing, field.name)) for field in fields(thing) if field.name != "rows")
        kept = {name: _plain(value) for name, value in pairs if not _empty(value)}
        return kept | ({"rows": thing.rows} if isinstance(thing, ChartTable) else {})
    if isinstance(thing, Mapping):
        return dict(thing)
    if isinstance(thing, Sequence) and not isinstance(thing, str):
        return [_plain(one) for one in thing]
    return thing


def _empty(value: Any) -> bool:
    return value is None or value is False or (isinstance(value, Sequence) and not len(value))


def _numbers(rows: Any) -> list[list[float | None]]:
    """Numbers to `DIGITS` figures, None where there is none: as text they take half of the place."""
    return [[float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None for value in row] for row in rows.tolist()]


def time_unit(longest: float) -> tuple[float, str]:
    """Seconds of the unit that suits times up to ``longest`` seconds, and its name."""
    return (3600.0, "hours") if longest >= 7200 else (60.0, "minutes") if longest >= 180 else (1.0, "seconds")


def time_axis(title: str, longest: float, **more: Any) -> ChartAxis:
    """Return an axis of seconds, in the unit that suits times up to ``longest`` seconds."""
    unit, name = time_unit(longest)
    return ChartAxis(f"{title}, {name}", unit=unit, **more)
