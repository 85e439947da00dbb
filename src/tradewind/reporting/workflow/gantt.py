"""The Gantt chart of a schedule as one HTML file that asks no host for anything.

The document that it takes is described in `tradewind.reporting.workflow.layout`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tradewind.reporting.charts.one_page import embed
from tradewind.reporting.workflow.layout import (
    OTHER,
    Document,
    GanttBar,
    GanttLane,
    activities,
    exact_seconds,
    gantt_charts,
    horizon,
    lanes,
)
from tradewind.utils.units import count, format_duration


def gantt_html(document: Document) -> str:
    """Render the chart as a page: machines downwards, time to the right, tasks coloured by activity.

    Planned times stand above, those of the real run below them; the critical path is outlined, and a strip shows how
    many slots are in use. Without a script, its tables are still there.

    Args:
        document: The schedule, as `tradewind.reporting.workflow.layout` describes it.

    Raises:
        InputError: A task is on a machine that is not in the document.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("tradewind.reporting"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["count"] = count
    environment.filters["seconds"] = lambda value: "" if value is None else exact_seconds(value)
    slots, gantt = gantt_charts(document)
    every = lanes(document)
    embedded = embed({"slots": slots, "gantt": gantt})
    shown = {name for _, name in gantt.y.labels}
    end = horizon(every)
    return environment.get_template("gantt.html.j2").render(
        title=document["title"],
        figures=list(document.get("figures") or ()),
        legend=_legend(activities(document["tasks"])),
        idle=[lane.name for lane in every if lane.name not in shown],
        actual=any(lane.actual for lane in every),
        critical=any(bar.critical for lane in every for bar in lane.planned),
        machines=[_machine(lane, end) for lane in every if lane.name in shown],
        tasks=document["tasks"],
        policy=embedded.policy,
        # Our own scripts and styles, and JSON without a "<".
        **{name: Markup(getattr(embedded, name)) for name in ("style", "library", "script", "data")},  # noqa: S704
    )


def _legend(groups: dict[str, tuple[str, int, float]]) -> list[tuple[str, str, str]]:
    """Colour, name and numbers of the activities; those without a colour of their own together."""
    found = [
        (colour, name, f"{tasks} × {exact_seconds(seconds / tasks)}")
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
