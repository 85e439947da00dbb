"""The Gantt chart of a schedule and the graph of a workflow, each as one HTML file that asks no host for anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tradewind.reporting.charts.document import Chart, ChartTable
from tradewind.reporting.charts.one_page import render_page
from tradewind.reporting.workflow.dag import MOST, graph_charts
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

_ROWS = 2000
"""Rows of a table at most."""

_MACHINES = 12
"""Machines without a task that are named."""


def dag_html(document: Document) -> str:
    """Render the graph as a page: by activities where there are many tasks, and task by task.

    Args:
        document: The graph, as `tradewind.reporting.workflow.dag` describes it.
    """
    tasks = document["tasks"]
    charts = graph_charts(document)
    levels = 1 + max((task["depth"] for task in tasks), default=0)
    head = [count(len(tasks), "task"), count(len(document["edges"]), "edge"), count(levels, "level")]
    notes = [f"Graphs of more than {MOST:,} tasks are not drawn task by task."] if len(tasks) > MOST else []
    heads = ["By activity", "Task by task"] if len(charts) > 1 else [""] * len(charts)
    return _page(
        document,
        {chart.name: chart for chart in charts},
        headings=heads,
        heading=" · ".join(head),
        legend=[(colour, name, f"{members}") for name, (colour, members, _) in activities(tasks).items()],
        marks=["critical path"],
        notes=notes,
        tables={name or "As a table": chart.table for name, chart in zip(heads, charts, strict=True)},
    )


def gantt_html(document: Document) -> str:
    """Render the chart as a page: machines downwards, time to the right, tasks coloured by activity.

    Planned times stand above, those of the real run below them; the critical path is outlined, and a strip shows how
    many slots are in use. Without a script, its tables are still there.

    Args:
        document: The schedule, as `tradewind.reporting.workflow.layout` describes it.

    Raises:
        InputError: A task is on a machine that is not in the document.
    """
    slots, gantt = gantt_charts(document)
    every = lanes(document)
    shown = {name for _, name in gantt.y.labels}
    idle = [lane.name for lane in every if lane.name not in shown]
    names = ", ".join(idle[:_MACHINES]) + (", ..." if len(idle) > _MACHINES else "")
    ran = any(lane.actual for lane in every)
    marks = ["critical path"] if any(bar.critical for lane in every for bar in lane.planned) else []
    machines = [lane for lane in every if lane.name in shown]
    return _page(
        document,
        {"slots": slots, "gantt": gantt},
        tiles=list(document.get("figures") or ()),
        legend=_legend(activities(document["tasks"])),
        marks=[*marks, "above as planned, below as it ran"] if ran else marks,
        notes=[f"{count(len(idle), 'machine')} without a task: {names}"] if idle else [],
        tables={
            count(len(machines), "machine"): _machines(machines, horizon(every), ran),
            count(len(document["tasks"]), "task"): _tasks(document["tasks"], ran),
        },
    )


def _page(document: Document, charts: Mapping[str, Chart], headings: Sequence[str] = (), **parts: Any) -> str:
    values = {"heading": "", "tiles": [], "title": document["title"], "most": _ROWS, **parts}
    shown = dict(zip(charts, headings or [""] * len(charts), strict=True))
    return render_page("workflow.html.j2", charts, charts=shown, **values)


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


def _machines(shown: Sequence[GanttLane], end: float, ran: bool) -> ChartTable:
    """Name, kind, tasks, busy time and share of each machine, planned and really."""

    def busy(bars: Sequence[GanttBar]) -> float:
        return sum((bar.finish - bar.start) * bar.rows for bar in bars)

    rows = []
    for lane in shown:
        shares = [
            f"{100 * busy(bars) / (end * lane.slots):.0f} %" if bars else "" for bars in (lane.planned, lane.actual)
        ]
        cells = [lane.name, lane.kind, f"{len(lane.planned):,}", format_duration(busy(lane.planned)), *shares]
        rows.append(cells if ran else cells[:-1])
    return ChartTable(["machine", "kind", "tasks", "busy", "use", *(["really"] if ran else [])], rows)


def _tasks(tasks: Sequence[Mapping[str, Any]], ran: bool) -> ChartTable:
    columns = ["vm", "start", "finish", *(["actual_vm", "actual_start", "actual_finish"] if ran else [])]
    heads = ["machine", "start", "end", *(["ran on", "start", "end"] if ran else [])]

    def words(value: Any) -> str:
        return exact_seconds(value) if isinstance(value, int | float) else value or ""

    rows = [[task["task"], task["activity"], *(words(task.get(name)) for name in columns)] for task in tasks[:_ROWS]]
    return ChartTable(["task", "activity", *heads], rows)
