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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tradewind.errors import InputError

Document = Mapping[str, Any]

COLOURS = (
    "#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#edc948", "#76b7b2", "#e15759", "#9c755f", "#ff9da7", "#7fa8d1",
    "#a6d18b", "#d4a6c8",
)  # fmt: skip
"""Colours of the activities that take most time, in that order."""

OTHER = "#a7aeb6"
"""Colour of all further activities."""


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


def dark(colour: str) -> bool:
    """True for a colour on which white words can be read better than black ones."""
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return 0.299 * red + 0.587 * green + 0.114 * blue < 140


def page_document(document: Document) -> dict[str, Any]:
    """A Gantt document with its bars laid out, for a page that draws them.

    Args:
        document: The schedule, as described at the top of this module.

    Returns:
        ``title``, ``figures``, ``end`` (s), ``activities`` (``name``, ``colour``, ``tasks``, ``seconds``), ``lanes``
        (``name``, ``kind``, ``slots``, ``planned_rows``, ``actual_rows``, and ``planned`` and ``actual`` as rows of
        task, place of its activity, start, finish, row, rows, and 1 for the critical path), ``usage`` (``planned``
        and ``actual``: slots in use from each second on).

    Raises:
        InputError: A task is on a machine that is not in the document.
    """
    shown = lanes(document)
    groups = activities(document["tasks"])
    place = {name: i for i, name in enumerate(groups)}

    def rows(bars: Sequence[GanttBar]) -> list[list[Any]]:
        return [[b.task, place[b.activity], b.start, b.finish, b.row, b.rows, int(b.critical)] for b in bars]

    return {
        "title": document["title"],
        "figures": [list(pair) for pair in document.get("figures") or ()],
        "end": horizon(shown),
        "activities": [
            {"name": name, "colour": colour, "tasks": count, "seconds": seconds}
            for name, (colour, count, seconds) in groups.items()
        ],
        "lanes": [
            {
                "name": lane.name,
                "kind": lane.kind,
                "slots": lane.slots,
                "planned_rows": lane.planned_rows,
                "actual_rows": lane.actual_rows,
                "planned": rows(lane.planned),
                "actual": rows(lane.actual),
            }
            for lane in shown
        ],
        "usage": {"planned": usage(shown, actual=False), "actual": usage(shown, actual=True)},
    }
