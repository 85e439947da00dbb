"""The Gantt chart of a schedule as lines of text: planned and actual use of each machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tradewind.utils.units import format_duration, shortened

_MOST_NAME = 20
_LEAST_CHART = 20
_MOST_MACHINES = 40
_SHADES = " ░▒▓█"
_PLAIN = " .:*#"


def text_gantt(document: Mapping[str, Any], width: int, *, plain: bool = False) -> list[str]:
    """Draw two lines for each machine, the planned and the actual one; the darker, the more of its slots are in use.

    Args:
        document: The chart, as `tradewind.reporting.workflow.layout` describes it.
        width: Columns that there are.
        plain: True for ASCII only.
    """
    vms = list(document["vms"])[:_MOST_MACHINES]
    names = max([7, *(min(_MOST_NAME, len(vm["name"])) for vm in vms)])
    chart = max(_LEAST_CHART, width - names - 11)
    ends = [task[name] for task in document["tasks"] for name in ("finish", "actual_finish") if name in task]
    end = max(ends, default=0.0)
    if end <= 0.0:
        return ["nothing takes any time"]
    shades, lines = _PLAIN if plain else _SHADES, []
    for vm in vms:
        planned = [(t["start"], t["finish"], t["cores"]) for t in document["tasks"] if t["vm"] == vm["name"]]
        actual = [
            (t["actual_start"], t["actual_finish"], t["cores"])
            for t in document["tasks"]
            if t.get("actual_vm") == vm["name"]
        ]
        name = shortened(vm["name"], names).ljust(names)
        lines.append(f"{name} planned |{_line(planned, end, chart, vm['slots'], shades)}|")
        lines.append(f"{' ' * names} actual  |{_line(actual, end, chart, vm['slots'], shades)}|")
    if len(document["vms"]) > len(vms):
        lines.append(f"and {len(document['vms']) - len(vms):,} more machines: --html draws all")
    last = format_duration(end)
    lines.append(f"{' ' * (names + 10)}0{last.rjust(chart - 1)}")
    return lines


def _line(bars: Iterable[tuple[float, float, int]], end: float, chart: int, slots: int, shades: str) -> str:
    """The use of a machine in each column of the chart."""
    used = [0.0] * chart
    for start, finish, cores in bars:
        begin, stop = start / end * chart, finish / end * chart
        for column in range(int(begin), min(chart, int(stop) + 1)):
            share = min(stop, column + 1) - max(begin, column)
            used[column] += max(0.0, share) * cores / max(1, slots)
    top = len(shades) - 1
    return "".join(shades[0 if use <= 0.0 else max(1, min(top, round(use * top)))] for use in used)
