"""The Gantt chart of a schedule as one HTML file that asks no host for anything.

The document that it takes is described in `tradewind.reporting.workflow.layout`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from tradewind.reporting.svg import Scale, time_unit
from tradewind.reporting.workflow.layout import (
    OTHER,
    Document,
    GanttBar,
    GanttLane,
    activities,
    dark,
    horizon,
    lanes,
    usage,
)
from tradewind.utils.units import count, format_duration

ZOOMS = (1, 2, 4, 8, 16, 32)
"""Widths that the chart may have, in widths of the page."""

_WIDTH = 1150.0
"""Pixels that the page gives the chart, about, on a usual screen."""

_LETTER = 6.4
_TALL = 640.0
_STRIP = 54.0
_AXIS = 22.0


@dataclass(frozen=True, slots=True)
class _Row:
    """Place of a machine in the chart, in pixels."""

    lane: GanttLane
    top: float
    height: float
    bottom: float


def gantt_html(document: Document) -> str:
    """Render the chart as a page: machines downwards, time to the right, tasks coloured by activity.

    Planned times stand above, those of the real run below them; the critical path is outlined, and a strip shows how
    many slots are in use. Without a script, the page can be widened up to 32 times; names appear where they fit.

    Args:
        document: The schedule, as `tradewind.reporting.workflow.layout` describes it.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("tradewind.reporting"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["count"] = count
    every = lanes(document)
    shown = [lane for lane in every if lane.planned or lane.actual]
    idle = [lane for lane in every if not (lane.planned or lane.actual)]
    if len(idle) <= 3:
        shown, idle = every, []
    groups = activities(document["tasks"])
    end = horizon(shown)
    rows = _rows(shown)
    return environment.get_template("gantt.html.j2").render(
        title=document["title"],
        figures=list(document.get("figures") or ()),
        legend=_legend(groups),
        zooms=ZOOMS,
        name_width=round(14 + _LETTER * max(12, *(len(lane.name) for lane in (*shown, *shown[:1])))),
        names=Markup(_names(rows, _axis_top(rows))),  # noqa: S704  (our own drawings, their words escaped)
        chart=Markup(_chart(rows, shown, {name: each[0] for name, each in groups.items()}, end)),  # noqa: S704
        idle=[lane.name for lane in idle],
        actual=any(lane.actual for lane in shown),
        critical=any(bar.critical for lane in shown for bar in lane.planned),
        machines=[_machine(lane, end) for lane in shown],
    )


def _rows(shown: Sequence[GanttLane]) -> list[_Row]:
    """The machines one below the other, as high as a page allows."""
    rows = sum(lane.planned_rows + lane.actual_rows for lane in shown)
    height = min(26.0, max(4.0, _TALL / max(1, rows)))
    gap = 5.0 if height > 9 else 2.0
    found, top = [], _STRIP + 14.0
    for lane in shown:
        bottom = top + height * (lane.planned_rows + lane.actual_rows)
        found.append(_Row(lane, top, height, bottom))
        top = bottom + gap
    return found


def _axis_top(rows: Sequence[_Row]) -> float:
    return rows[-1].bottom + 4.0 if rows else _STRIP + 14.0


def _names(rows: Sequence[_Row], bottom: float) -> str:
    """The names of the machines, at the left of the chart; where rows are low, those that find room."""
    parts = [f'<svg class="names" width="100%" height="{bottom + _AXIS:.0f}">']
    parts.append(f'<text x="100%" dx="-8" y="{_STRIP / 2 + 4:.1f}" text-anchor="end">slots in use</text>')
    last = 0.0
    for row in rows:
        middle = (row.top + row.bottom) / 2 + 4
        if middle - last < 11.5:
            continue
        last = middle
        words = escape(row.lane.name)
        about = escape(f"{row.lane.name}: {row.lane.kind or 'machine'}, {row.lane.slots} slots")
        parts.append(
            f'<text x="100%" dx="-8" y="{middle:.1f}" text-anchor="end" class="vm">{words}<title>{about}</title></text>'
        )
    return "".join(parts) + "</svg>"


def _chart(rows: Sequence[_Row], shown: Sequence[GanttLane], colours: dict[str, str], end: float) -> str:
    bottom = _axis_top(rows)
    parts = [f'<svg class="gantt" width="100%" height="{bottom + _AXIS:.0f}" role="img" aria-label="Gantt chart">']
    parts += _axis(end, bottom)
    parts += _strip(shown, end)
    for place, row in enumerate(rows):
        style = "lane odd" if place % 2 else "lane"
        parts.append(
            f'<rect x="0" y="{row.top - 1:.1f}" width="100%" height="{row.bottom - row.top + 2:.1f}" class="{style}"/>'
        )
        down = row.top + row.lane.planned_rows * row.height
        both = bool(row.lane.actual)
        for bar in row.lane.planned:
            parts.append(_bar(bar, row.top, row, colours[bar.activity], end, "planned" if both else ""))
        for bar in row.lane.actual:
            parts.append(_bar(bar, down, row, colours[bar.activity], end, "actual"))
    parts += _links(rows, end)
    return "".join(parts) + "</svg>"


def _percent(value: float, end: float) -> str:
    return f"{100.0 * value / end:.4f}".rstrip("0").rstrip(".") + "%"


def _bar(bar: GanttBar, top: float, row: _Row, colour: str, end: float, kind: str) -> str:
    """One task; its name is there from the zoom on at which it fits."""
    inset = 0.5 if row.height < 9 else 1.5
    high = row.height * bar.rows - inset
    when = f"{_seconds(bar.start)} to {_seconds(bar.finish)}, {_seconds(bar.finish - bar.start)} long"
    what = f"{kind}: " if kind else ""
    path = ", on the critical path" if bar.critical and kind != "actual" else ""
    title = escape(f"{bar.task} ({bar.activity})\n{what}{when}{path}")
    style = " ".join(word for word in ("b", kind, "critical" if bar.critical and kind != "actual" else "") if word)
    box = (
        f'x="{_percent(bar.start, end)}" y="{top + bar.row * row.height:.1f}" '
        f'width="{_percent(bar.finish - bar.start, end)}" height="{max(high, 1):.1f}"'
    )
    fill = f'<rect {box} fill="{colour}" class="{style}"><title>{title}</title></rect>'
    zoom = _zoom(len(bar.task) * _LETTER + 8, (bar.finish - bar.start) / end) if high >= 12 else None
    if zoom is None:
        return fill
    ink = "w" if dark(colour) else "k"
    text = f'<text x="4" y="{high / 2 + 4:.1f}" class="{ink}">{escape(bar.task)}</text>'
    return f'{fill}<svg {box} class="t t{zoom}">{text}</svg>'


def _zoom(needed: float, share: float) -> int | None:
    """The first zoom at which so many pixels fit into a share of the chart."""
    return next((zoom for zoom in ZOOMS if share * _WIDTH * zoom >= needed), None)


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value < 60 else format_duration(value)


def _axis(end: float, bottom: float) -> list[str]:
    """Lines and times; the wider the page, the more of them."""
    unit, name = time_unit(end)
    parts: list[str] = []
    known: set[float] = set()
    for zoom in (1, 4, 16):
        scale = Scale(0.0, end, 0.0, 1.0, unit=unit)
        for value in scale.ticks(10 * zoom):
            if round(value, 9) in known or value > end * (1 - 0.04 / zoom):
                continue
            known.add(round(value, 9))
            x, words = _percent(value, end), f"{value / unit:.6g}"
            anchor = "start" if value == 0 else "middle"
            shown = f" {name}" if value == 0 else ""
            parts.append(
                f'<g class="t t{zoom}"><line x1="{x}" x2="{x}" y1="0" y2="{bottom + 4:.1f}" class="grid"/>'
                f'<text x="{x}" y="{bottom + 18:.1f}" text-anchor="{anchor}">{words}{shown}</text></g>'
            )
    return parts


def _strip(shown: Sequence[GanttLane], end: float) -> list[str]:
    """Slots in use over time: planned as an area, the real run as a line over it."""
    slots = float(sum(lane.slots for lane in shown)) or 1.0
    parts = [
        f'<svg x="0" y="4" width="100%" height="{_STRIP:.0f}" viewBox="0 0 1000 100" preserveAspectRatio="none">'
        '<rect width="1000" height="100" class="room"/>'
    ]
    for actual in (False, True):
        points = []
        before = 0.0
        for moment, used in usage(shown, actual=actual):
            x = 1000.0 * moment / end
            points += [f"{x:.2f} {100 - 100 * before / slots:.2f}", f"{x:.2f} {100 - 100 * used / slots:.2f}"]
            before = used
        if len(points) > 2:
            way = "M0 100L" + "L".join(points)
            style = "use actual" if actual else "use"
            parts.append(f'<path d="{way}" class="{style}" vector-effect="non-scaling-stroke"/>')
    parts.append(f'</svg><text x="4" y="15" class="soft">{slots:g}</text>')
    return parts


def _links(rows: Sequence[_Row], end: float) -> list[str]:
    """The critical path from task to task."""
    path = [
        (bar.start, bar.finish, row.top + (bar.row + bar.rows / 2) * row.height)
        for row in rows
        for bar in row.lane.planned
        if bar.critical
    ]
    path.sort()
    return [
        f'<line x1="{_percent(before[1], end)}" y1="{before[2]:.1f}" x2="{_percent(after[0], end)}" '
        f'y2="{after[2]:.1f}" class="link"/>'
        for before, after in itertools.pairwise(path)
    ]


def _legend(groups: dict[str, tuple[str, int, float]]) -> list[tuple[str, str, str]]:
    """Colour, name and numbers of the activities; those without a colour of their own together."""
    found = [
        (colour, name, f"{tasks} × {_seconds(seconds / tasks)}")
        for name, (colour, tasks, seconds) in groups.items()
        if colour != OTHER
    ]
    others = [each for each in groups.values() if each[0] == OTHER]
    if others:
        which = f"{len(others)} other activities" if len(others) > 1 else "another activity"
        found.append((OTHER, which, count(sum(each[1] for each in others), "task")))
    return found


def _machine(lane: GanttLane, end: float) -> tuple[str, str, int, str, str, str]:
    """Name, kind, tasks, busy time and share of a machine, planned and really."""

    def share(bars: Sequence[GanttBar]) -> str:
        busy = sum((bar.finish - bar.start) * bar.rows for bar in bars)
        return f"{100 * busy / (end * lane.slots):.0f} %"

    busy = sum((bar.finish - bar.start) * bar.rows for bar in lane.planned)
    return (
        lane.name,
        lane.kind,
        len(lane.planned),
        format_duration(busy),
        share(lane.planned),
        share(lane.actual) if lane.actual else "",
    )
