"""Layout shared by the pictures of workflows: rows of machines, colours of activities, use over time.

A Gantt document is plain data::

    {"title": "Montage_25 by heft",
     "vms": [{"name": "fast-1", "slots": 2, "kind": "m3.2xlarge"}],
     "tasks": [{"task": "ID01", "activity": "mProject", "vm": "fast-1", "start": 0.0, "finish": 2.5, "critical": True,
                "cores": 1, "actual_vm": "fast-1", "actual_start": 0.1, "actual_finish": 2.7}],
     "figures": [["makespan", "48.2 s"]]}

``cores``, ``critical``, ``figures`` and the ``actual_`` keys may be left out; ``vm`` is a name of ``vms``.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tradewind.errors import InputError
from tradewind.reporting.charts.document import Chart, ChartAxis, ChartLayer, chart_json, time_axis
from tradewind.utils.units import format_duration

Document = Mapping[str, Any]

COLOURS = (
    "#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#edc948", "#76b7b2", "#e15759", "#9c755f", "#ff9da7", "#7fa8d1",
    "#a6d18b", "#d4a6c8",
)  # fmt: skip
"""Colours of the activities that take most time, in that order."""

OTHER = "#a7aeb6"
"""Colour of all further activities."""

_ROW_PIXELS = ((240, 4), (120, 7), (60, 11))
"""Height of a row of tasks where there are more than so many of them."""

_FEW_IDLE = 3
"""Machines without a task that are still drawn."""

_GAP = 0.35
"""Rows between two machines."""


@dataclass(frozen=True, slots=True)
class GanttBar:
    """One task on one machine.

    Attributes:
        task: Id of the task.
        activity: Name of the activity that it belongs to.
        start: Seconds from the beginning at which it starts.
        finish: Seconds from the beginning at which it ends.
        row: First row of the bar among those of its machine, from 0.
        rows: Number of rows that it takes: the cores of the task.
        critical: True if it is on the critical path.
    """

    task: str
    activity: str
    start: float
    finish: float
    row: int
    rows: int
    critical: bool


@dataclass(frozen=True, slots=True)
class GanttLane:
    """A machine with what runs on it.

    Attributes:
        name: Name of the machine.
        kind: Instance type of the machine.
        slots: Tasks of one core that can run on it at a time.
        planned: Bars of the tasks that are planned on it.
        actual: Bars of the tasks that really ran on it.
    """

    name: str
    kind: str
    slots: int
    planned: tuple[GanttBar, ...]
    actual: tuple[GanttBar, ...]

    @property
    def planned_rows(self) -> int:
        """Rows that the planned tasks take, at least one."""
        return max((bar.row + bar.rows for bar in self.planned), default=1)

    @property
    def actual_rows(self) -> int:
        """Rows that the tasks that ran take; none where nothing did."""
        return max((bar.row + bar.rows for bar in self.actual), default=0)


def lanes(document: Document) -> list[GanttLane]:
    """The machines of a Gantt document, in its order.

    Raises:
        InputError: A task is on a machine that is not in the document.
    """
    names = [vm["name"] for vm in document["vms"]]
    planned: dict[str, list[Mapping[str, Any]]] = {name: [] for name in names}
    actual: dict[str, list[Mapping[str, Any]]] = {name: [] for name in names}
    for task in document["tasks"]:
        for where, key in ((planned, "vm"), (actual, "actual_vm")):
            vm = task.get(key)
            if vm is None:
                continue
            if vm not in where:
                raise InputError(f"task {task['task']!r} is on machine {vm!r}, which the picture does not have")
            where[vm].append(task)
    return [
        GanttLane(
            vm["name"],
            str(vm.get("kind") or ""),
            int(vm.get("slots") or 1),
            _bars(planned[vm["name"]], ""),
            _bars(actual[vm["name"]], "actual_"),
        )
        for vm in document["vms"]
    ]


def _bars(tasks: Sequence[Mapping[str, Any]], prefix: str) -> tuple[GanttBar, ...]:
    """Tasks in rows, so that none lies over another one that runs at the same time."""
    found: list[GanttBar] = []
    free: list[int] = []
    busy: list[tuple[float, int]] = []
    rows = 0
    for task in sorted(tasks, key=lambda each: (each[f"{prefix}start"], each[f"{prefix}finish"])):
        start, finish = float(task[f"{prefix}start"]), float(task[f"{prefix}finish"])
        # Figures of a schedule are sums: an end may lie a rounding error behind the start that it makes possible.
        while busy and busy[0][0] <= start + 1e-9 * max(1.0, start):
            heapq.heappush(free, heapq.heappop(busy)[1])
        cores = int(task.get("cores") or 1)
        first, rows = _take(free, rows, cores)
        for row in range(first, first + cores):
            heapq.heappush(busy, (finish, row))
        found.append(GanttBar(task["task"], task["activity"], start, finish, first, cores, bool(task.get("critical"))))
    return tuple(found)


def _take(free: list[int], rows: int, count: int) -> tuple[int, int]:
    """The first of so many neighbouring free rows, taken from ``free``, and how many rows there are now."""
    known = sorted(free)
    for place in range(len(known)):
        if known[place : place + count] == list(range(known[place], known[place] + count)):
            taken = set(known[place : place + count])
            free[:] = [row for row in known if row not in taken]
            return known[place], rows
    return rows, rows + count


def horizon(shown: Sequence[GanttLane]) -> float:
    """The end of the last task, planned or not; at least a little."""
    return max((bar.finish for lane in shown for bar in (*lane.planned, *lane.actual)), default=0.0) or 1.0


def activities(tasks: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str, int, float]]:
    """Colour, number of tasks and seconds of each activity, the one that takes most time first."""
    count: dict[str, int] = {}
    seconds: dict[str, float] = {}
    for task in tasks:
        name = task["activity"]
        count[name] = count.get(name, 0) + 1
        took = task["finish"] - task["start"] if "finish" in task else task.get("runtime", 0.0)
        seconds[name] = seconds.get(name, 0.0) + float(took)
    order = sorted(count, key=lambda name: (-seconds[name], name))
    return {
        name: (COLOURS[place] if place < len(COLOURS) else OTHER, count[name], seconds[name])
        for place, name in enumerate(order)
    }


def usage(shown: Sequence[GanttLane], *, actual: bool) -> list[tuple[float, float]]:
    """Count the slots in use, as steps: each moment in seconds, and the slots from then on."""
    changes: dict[float, float] = {}
    for lane in shown:
        for bar in lane.actual if actual else lane.planned:
            if bar.finish > bar.start:
                changes[bar.start] = changes.get(bar.start, 0.0) + bar.rows
                changes[bar.finish] = changes.get(bar.finish, 0.0) - bar.rows
    used, steps = 0.0, [(0.0, 0.0)]
    for moment in sorted(changes):
        used += changes[moment]
        steps.append((moment, used))
    return steps


def gantt_charts(document: Document) -> tuple[Chart, Chart]:
    """Chart the slots in use over time, and the tasks of each machine below each other.

    Planned times stand above those of the real run, which are drawn in full colour; the critical path is outlined.

    Args:
        document: The schedule, as described at the top of this module.

    Raises:
        InputError: A task is on a machine that is not in the document.
    """
    every = lanes(document)
    shown = [lane for lane in every if lane.planned or lane.actual]
    if len(every) - len(shown) <= _FEW_IDLE:
        shown = every
    rows = sum(lane.planned_rows + lane.actual_rows for lane in shown)
    pixels = next((size for least, size in _ROW_PIXELS if rows > least), 18)
    end, top, places = horizon(shown), 0.0, []
    for lane in shown:
        places.append((lane, top))
        top += lane.planned_rows + lane.actual_rows + _GAP
    labels = [(at + (lane.planned_rows + lane.actual_rows) / 2, lane.name) for lane, at in places]
    across = time_axis("time since tasks could begin", end, low=0.0, high=end)
    planned, ran = (usage(shown, actual=actual) for actual in (False, True))
    used = [ChartLayer("area", "planned", "use", [*planned, (end, 0.0)])] if len(planned) > 1 else []
    used += [ChartLayer("steps", "as it ran", "real", [*ran, (end, ran[-1][1])])] if len(ran) > 1 else []
    slots = float(sum(lane.slots for lane in shown)) or 1.0
    strip = replace(across, title="")
    title = str(document["title"])
    use = ChartAxis("slots in use", low=0.0, high=slots)
    machines = ChartAxis(low=-_GAP, high=top, labels=labels, down=True)
    return (
        Chart("slots", f"Slots in use: {title}", strip, use, used, height=110, zooms="x"),
        Chart(
            "gantt",
            f"Gantt chart of {title}",
            across,
            machines,
            _bar_layers(document, places),
            height=int(60 + pixels * top),
            zooms="x",
        ),
    )


def _bar_layers(document: Document, places: Sequence[tuple[GanttLane, float]]) -> list[ChartLayer]:
    """The tasks as boxes, planned and as they ran, and lines along the critical path."""
    number = {task["task"]: at for at, task in enumerate(document["tasks"])}
    colours = {name: each[0] for name, each in activities(document["tasks"]).items()}
    both = any(lane.actual for lane, _ in places)
    planned = [(bar, top + bar.row, lane) for lane, top in places for bar in lane.planned]
    ran = [(bar, top + lane.planned_rows + bar.row, lane) for lane, top in places for bar in lane.actual]
    layers = []
    for name, bars in (("planned", planned), ("as it ran", ran)):
        if bars:
            layers.append(
                ChartLayer(
                    "boxes",
                    name,
                    OTHER,
                    [(bar.start, at + 0.06, bar.finish, at + bar.rows - 0.06) for bar, at, _ in bars],
                    [_bar_words(bar, lane, name) for bar, _, lane in bars],
                    [number[bar.task] for bar, *_ in bars],
                    [bar.task for bar, *_ in bars],
                    [colours[bar.activity] for bar, *_ in bars],
                    [at for at, (bar, *_) in enumerate(bars) if bar.critical and bars is planned],
                    faint=both and bars is planned,
                )
            )
    path = sorted((bar.start, bar.finish, at + bar.rows / 2) for bar, at, _ in planned if bar.critical)
    links = [(before[1], before[2], after[0], after[2]) for before, after in itertools.pairwise(path)]
    return [*layers, *([ChartLayer("segments", "critical path", "ink", links)] if links else [])]


def _bar_words(bar: GanttBar, lane: GanttLane, kind: str) -> str:
    path = "\non the critical path" if bar.critical else ""
    begin, end, took = (exact_seconds(value) for value in (bar.start, bar.finish, bar.finish - bar.start))
    times = f"{begin} to {end} on {lane.name}, {took}"
    return f"{bar.task}\n{bar.activity}\n{kind}: {times}{path}"


def exact_seconds(seconds: float) -> str:
    """Write a duration, short ones to a hundredth of a second."""
    return f"{seconds:.2f} s" if seconds < 60 else format_duration(seconds)


def page_document(document: Document) -> dict[str, Any]:
    """A Gantt document as its charts and its tasks, for a page.

    Args:
        document: The schedule, as described at the top of this module.

    Returns:
        ``title``, ``figures``, ``activities`` (``name``, ``colour``, ``tasks``, ``seconds``), ``tasks`` (rows of
        task, activity, and of the plan and of the run machine, start and finish in seconds; None where there is none),
        ``slots`` and ``gantt`` (charts, whose keys are places in ``tasks``).

    Raises:
        InputError: A task is on a machine that is not in the document.
    """
    slots, gantt = gantt_charts(document)
    names = ("task", "activity", "vm", "start", "finish", "actual_vm", "actual_start", "actual_finish")
    return {
        "title": document["title"],
        "figures": [list(pair) for pair in document.get("figures") or ()],
        "activities": [
            {"name": name, "colour": colour, "tasks": count, "seconds": seconds}
            for name, (colour, count, seconds) in activities(document["tasks"]).items()
        ],
        "tasks": [[*(task.get(name) for name in names), bool(task.get("critical"))] for task in document["tasks"]],
        "slots": chart_json(slots),
        "gantt": chart_json(gantt),
    }
