"""The Gantt chart of a schedule as lines of text: planned and actual use of each machine."""

from __future__ import annotations

from collections.abc import Iterable

from tradewind.reporting.workflow.layout import Document, GanttBar, lanes
from tradewind.utils.units import format_duration, shortened

_MOST_NAME = 20
_LEAST_CHART = 20
_MOST_MACHINES = 40
_SHADES = " ░▒▓█"
_PLAIN = " .:*#"


def text_gantt(document: Document, width: int, *, plain: bool = False) -> list[str]:
    """Draw two lines for each machine, the planned and the actual one; the darker, the more of its slots are in use.

    Args:
        document: The chart, as `tradewind.reporting.workflow.layout` describes it.
        width: Columns that there are.
        plain: True for ASCII only.

    Raises:
        InputError: A task is on a machine that is not in the document.
    """
    every = lanes(document)
    end = max((bar.finish for lane in every for bar in (*lane.planned, *lane.actual)), default=0.0)
    if end <= 0.0:
        return ["nothing takes any time"]
    shown = every[:_MOST_MACHINES]
    names = max([7, *(min(_MOST_NAME, len(lane.name)) for lane in shown)])
    chart = max(_LEAST_CHART, width - names - 11)
    shades, lines = _PLAIN if plain else _SHADES, []
    for lane in shown:
        name = shortened(lane.name, names).ljust(names)
        lines.append(f"{name} planned |{_line(lane.planned, end, chart, lane.slots, shades)}|")
        lines.append(f"{' ' * names} actual  |{_line(lane.actual, end, chart, lane.slots, shades)}|")
    if len(every) > len(shown):
        lines.append(f"and {len(every) - len(shown):,} more machines: --html draws all")
    last = format_duration(end)
    lines.append(f"{' ' * (names + 10)}0{last.rjust(chart - 1)}")
    return lines


def _line(bars: Iterable[GanttBar], end: float, chart: int, slots: int, shades: str) -> str:
    """The use of a machine in each column of the chart."""
    used = [0.0] * chart
    for bar in bars:
        begin, stop = bar.start / end * chart, bar.finish / end * chart
        for column in range(int(begin), min(chart, int(stop) + 1)):
            share = min(stop, column + 1) - max(begin, column)
            used[column] += max(0.0, share) * bar.rows / slots
    top = len(shades) - 1
    return "".join(shades[0 if use <= 0.0 else max(1, min(top, round(use * top)))] for use in used)
