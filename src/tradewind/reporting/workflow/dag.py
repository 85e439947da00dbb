"""The graph of a workflow as charts, in layers from top to bottom.

A graph document is plain data::

    {"title": "Montage_25",
     "tasks": [{"task": "ID01", "activity": "mProject", "runtime": 13.4, "depth": 0, "critical": True}],
     "edges": [[0, 5]]}

``edges`` are pairs of places in ``tasks``, parent first; ``critical`` may be left out.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tradewind.reporting.charts.document import Chart, ChartAxis, ChartLayer, ChartTable
from tradewind.reporting.text_layout import shortened_names
from tradewind.reporting.workflow.layout import Document, activities
from tradewind.utils.units import count, format_duration

WIDTH = 1150.0
"""Units across of a graph with wide layers; the picture of few tasks is narrower."""

BOXES = 16
"""Tasks side by side that still have room for their names."""

MOST = 6000
"""Tasks of the largest graph that is drawn task by task."""

GROUPED = 40
"""Tasks from which on the graph is first drawn by activities."""

_LETTER = 7.0
"""Units across of a letter in a box."""

_SWEEPS = 6
_BAND = 34.0
_NAMED = 5
"""Neighbours of a node that the table names."""


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A task, or all tasks of one activity at one depth.

    Attributes:
        label: Words written in it.
        activity: The activity.
        depth: Its layer from the top.
        tasks: Number of tasks.
        seconds: Their run times on the reference machine.
        critical: True if it is on the critical path.
    """

    label: str
    activity: str
    depth: int
    tasks: int
    seconds: float
    critical: bool


Edge = tuple[int, int, int]
"""Parent and child as places among the nodes, and the number of edges of the graph that it stands for."""

Box = tuple[float, float, float, float]
"""Left, top, right and bottom of a node."""


def graph_charts(document: Document) -> list[Chart]:
    """Chart the graph by activities where there are many tasks, and task by task where there are not too many.

    Args:
        document: The graph, as described at the top of this module.
    """
    charts = []
    if len(document["tasks"]) > GROUPED:
        nodes, edges = grouped(document)
        charts.append(_chart(document, "activities", "By activity", nodes, edges, _boxes(_ordered(nodes, edges))))
    if len(document["tasks"]) <= MOST:
        nodes = [
            GraphNode(t["task"], t["activity"], t["depth"], 1, float(t["runtime"]), bool(t.get("critical")))
            for t in document["tasks"]
        ]
        edges = [(parent, child, 1) for parent, child in document["edges"]]
        layers = _ordered(nodes, edges)
        wide = max(map(len, layers), default=0) > BOXES
        boxes = _folded(layers, len(nodes)) if wide else _boxes(layers)
        charts.append(_chart(document, "tasks", "Task by task" if charts else "Tasks", nodes, edges, boxes))
    return charts


def grouped(document: Document) -> tuple[list[GraphNode], list[Edge]]:
    """Put all tasks of one activity at one depth together."""
    members: dict[tuple[int, str], list[Mapping[str, Any]]] = defaultdict(list)
    for task in document["tasks"]:
        members[task["depth"], task["activity"]].append(task)
    keys = sorted(members)
    number = {key: place for place, key in enumerate(keys)}
    groups = [number[task["depth"], task["activity"]] for task in document["tasks"]]
    between = Counter((groups[parent], groups[child]) for parent, child in document["edges"])
    nodes = [
        GraphNode(
            name,
            name,
            depth,
            len(members[depth, name]),
            sum(float(task["runtime"]) for task in members[depth, name]),
            any(task.get("critical") for task in members[depth, name]),
        )
        for depth, name in keys
    ]
    return nodes, [(parent, child, times) for (parent, child), times in sorted(between.items())]


# ---------------------------------------------------------------------- where nodes stand


def _boxes(layers: Sequence[Sequence[int]]) -> dict[int, Box]:
    """Boxes with room for names, the layers below each other."""
    widest = max(map(len, layers), default=1)
    width = max(320.0, min(WIDTH, 190.0 * widest)) if widest <= 6 else max(WIDTH, 92.0 * widest)
    half = min(88.0, width / widest / 2 - 4.0)
    step = 28.0 + _BAND
    return {
        node: (middle - half, 4.0 + step * depth, middle + half, 32.0 + step * depth)
        for depth, layer in enumerate(layers)
        for place, node in enumerate(layer)
        for middle in [width * (place + 0.5) / len(layer)]
    }


def _folded(layers: Sequence[Sequence[int]], nodes: int) -> dict[int, Box]:
    """Small squares, each layer in as many rows as it needs."""
    size = 11.0 if nodes <= 400 else 8.0
    places: dict[int, Box] = {}
    top = 4.0
    for layer in layers:
        rows = math.ceil(len(layer) * (size + 3) / (WIDTH - 20))
        columns = math.ceil(len(layer) / rows)
        step = min((WIDTH - 20) / columns, 46.0)
        left = (WIDTH - step * (columns - 1) - size) / 2
        for place, node in enumerate(layer):
            x, y = left + step * (place // rows), top + (size + 3) * (place % rows)
            places[node] = (x, y, x + size, y + size)
        top += (size + 3) * rows + _BAND
    return places


def _ordered(nodes: Sequence[GraphNode], edges: Sequence[Edge]) -> list[list[int]]:
    """The nodes of each depth, so ordered that few edges cross.

    Barycentres, up and down: Sugiyama, Tagawa and Toda, "Methods for visual understanding of hierarchical system
    structures", IEEE Trans. SMC 11(2), 1981.
    """
    layers: dict[int, list[int]] = defaultdict(list)
    for place, node in enumerate(nodes):
        layers[node.depth].append(place)
    found = [layers[depth] for depth in sorted(layers)]
    near: tuple[dict[int, list[int]], dict[int, list[int]]] = (defaultdict(list), defaultdict(list))
    for parent, child, _ in edges:
        near[0][child].append(parent)
        near[1][parent].append(child)
    position = [0.0] * len(nodes)
    for layer in found:
        for place, at in enumerate(layer):
            position[at] = (place + 0.5) / len(layer)
    for sweep in range(_SWEEPS):
        neighbours = near[sweep % 2]
        for layer in found if sweep % 2 == 0 else found[::-1]:
            centre = {
                at: sum(position[each] for each in neighbours[at]) / len(neighbours[at])
                if neighbours[at]
                else position[at]
                for at in layer
            }
            layer.sort(key=lambda at: (centre[at], position[at]))
            for place, at in enumerate(layer):
                position[at] = (place + 0.5) / len(layer)
    return found


# ---------------------------------------------------------------------- the chart


def _chart(
    document: Document,
    name: str,
    title: str,
    nodes: Sequence[GraphNode],
    edges: Sequence[Edge],
    boxes: Mapping[int, Box],
) -> Chart:
    colours = {activity: each[0] for activity, each in activities(document["tasks"]).items()}
    every = [boxes[at] for at in range(len(nodes))]
    links: dict[bool, list[Box]] = {False: [], True: []}
    for parent, child, _ in edges:
        first, last = boxes[parent], boxes[child]
        critical = nodes[parent].critical and nodes[child].critical
        links[critical].append(((first[0] + first[2]) / 2, first[3], (last[0] + last[2]) / 2, last[1]))
    after: dict[int, list[str]] = defaultdict(list)
    for parent, child, many in edges:
        after[parent].append(_called(nodes[child], name) + (f" ({count(many, 'edge')})" if many > 1 else ""))
    letters = max(3, int((every[0][2] - every[0][0] - 8) / _LETTER)) if every else 3
    times = [f" × {node.tasks}" if node.tasks > 1 else "" for node in nodes]
    short = shortened_names({node.label for node in nodes}, max(3, letters - max(map(len, times), default=0)))
    width = max([320.0, *(right + 4.0 for _, _, right, _ in every)])
    height = max([40.0, *(bottom + 4.0 for *_, bottom in every)])
    layers = [
        ChartLayer("links", "", "soft", links[False], faint=True),
        ChartLayer("links", "critical path", "ink", links[True]),
        ChartLayer(
            "boxes",
            "tasks",
            "use",
            every,
            [_words(node, name, after[at]) for at, node in enumerate(nodes)],
            range(len(nodes)),
            [short[node.label] + more for node, more in zip(nodes, times, strict=True)],
            [colours[node.activity] for node in nodes],
            [at for at, node in enumerate(nodes) if node.critical],
        ),
    ]
    return Chart(
        name,
        f"Graph of {document['title']}: {title[:1].lower()}{title[1:]}",
        ChartAxis(kind="none", low=0.0, high=width),
        ChartAxis(kind="none", low=0.0, high=height, down=True),
        [layer for layer in layers if len(layer.rows)],
        table=_table(nodes, name, after),
        height=round(height),
    )


def _called(node: GraphNode, name: str) -> str:
    return node.label if name == "tasks" else f"{node.label} at depth {node.depth}"


def _words(node: GraphNode, name: str, after: Sequence[str]) -> str:
    head = f"{node.label} ({node.activity})" if name == "tasks" else f"{count(node.tasks, 'task')} of {node.label}"
    lines = [head, f"depth {node.depth}, {format_duration(node.seconds)} on the reference machine"]
    lines += [f"then {_few(after)}"] if after else []
    return "\n".join([*lines, "on the critical path"] if node.critical else lines)


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _table(nodes: Sequence[GraphNode], name: str, after: Mapping[int, Sequence[str]]) -> ChartTable:
    first: list[tuple[str, Callable[[GraphNode], str]]] = [("activity", lambda node: node.activity)]
    first = (
        [("task", lambda node: node.label), *first]
        if name == "tasks"
        else [*first, ("tasks", lambda n: f"{n.tasks:,}")]
    )
    columns = [
        *first,
        ("depth", lambda node: str(node.depth)),
        ("run time", lambda node: format_duration(node.seconds)),
        ("critical", lambda node: "yes" if node.critical else ""),
    ]
    rows = [[*(write(node) for _, write in columns), _few(after.get(at, ()))] for at, node in enumerate(nodes)]
    return ChartTable([*(title for title, _ in columns), "then"], rows)
