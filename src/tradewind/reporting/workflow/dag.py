"""The graph of a workflow, in layers from top to bottom, as one HTML file that asks no host for anything.

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
from html import escape
from typing import Any

from tradewind.reporting.text_layout import CUTS
from tradewind.reporting.workflow.layout import Document, activities, dark
from tradewind.utils.units import count, format_duration

WIDTH = 1150.0
"""Units across; a picture of few tasks is narrower."""

BOXES = 16
"""Tasks side by side that still have room for their names."""

MOST = 6000
"""Tasks of the largest graph that is drawn task by task."""

GROUPED = 40
"""Tasks from which on the graph is first drawn by activities."""

_LETTER, _CAPITAL = 6.2, 7.6
"""Units across of a letter in a box."""

_SWEEPS = 6
_BAND = 34.0


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A task, or all tasks of one activity at one depth, where it stands.

    Attributes:
        label: Words written in it.
        about: Words shown where the pointer rests on it.
        colour: Fill colour, as ``#rrggbb``.
        x: Middle across, in units of the drawing.
        y: Middle down, in units of the drawing.
        width: Units across; of a disc, the diameter.
        height: Units down.
        critical: True if it is on the critical path.
    """

    label: str
    about: str
    colour: str
    x: float
    y: float
    width: float
    height: float
    critical: bool


@dataclass(frozen=True, slots=True)
class GraphDrawing:
    """Nodes and edges in the plane.

    Attributes:
        width: Units across.
        height: Units down.
        nodes: The nodes.
        edges: Triples of parent node, child node, and the number of edges of the graph that it stands for.
        boxes: True for boxes with names, False for discs.
    """

    width: float
    height: float
    nodes: tuple[GraphNode, ...]
    edges: tuple[tuple[int, int, int], ...]
    boxes: bool


def dag_html(document: Document) -> str:
    """Render the graph as a page: by activities where there are many tasks, and task by task.

    Args:
        document: The graph, as described at the top of this module.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("tradewind.reporting"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    tasks = document["tasks"]
    pictures = []
    if len(tasks) > GROUPED:
        pictures.append(("By activity", grouped(document)))
    if len(tasks) <= MOST:
        pictures.append(("Task by task" if pictures else "Tasks", single(document)))
    return environment.get_template("dag.html.j2").render(
        title=document["title"],
        heading=[
            count(len(tasks), "task"),
            count(len(document["edges"]), "edge"),
            count(1 + max((task["depth"] for task in tasks), default=0), "level"),
        ],
        legend=[(colour, name, f"{members}") for name, (colour, members, _) in activities(tasks).items()],
        pictures=[(name, Markup(_svg(drawing))) for name, drawing in pictures],  # noqa: S704  (our own drawings, their words escaped)
        most=MOST if len(tasks) > MOST else 0,
    )


def single(document: Document) -> GraphDrawing:
    """Lay out every task as a node: boxes where no layer is wide, else discs in folded layers."""
    tasks = document["tasks"]
    colours = {name: each[0] for name, each in activities(tasks).items()}
    layers = _ordered(tasks, document["edges"])
    boxes = max((len(layer) for layer in layers), default=0) <= BOXES
    places: dict[int, tuple[float, float]] = {}
    size = 11.0 if len(tasks) <= 400 else 8.0
    width = max(320.0, 92.0 * max((len(each) for each in layers), default=1)) if boxes else WIDTH
    top = 18.0
    for layer in layers:
        if boxes:
            for place, task in enumerate(layer):
                places[task] = (width * (place + 0.5) / len(layer), top)
            top += 28.0 + _BAND
            continue
        rows = math.ceil(len(layer) * (size + 3) / (width - 20))
        columns = math.ceil(len(layer) / rows)
        step = min((width - 20) / columns, 46.0)
        left = width / 2 - step * (columns - 1) / 2
        for place, task in enumerate(layer):
            places[task] = (left + step * (place // rows), top + (size + 3) * (place % rows))
        top += (size + 3) * rows + _BAND
    nodes = tuple(
        GraphNode(
            task["task"],
            f"{task['task']} ({task['activity']})\n{format_duration(task['runtime'])} on the reference machine"
            + ("\non the critical path" if task.get("critical") else ""),
            colours[task["activity"]],
            *places[place],
            86.0 if boxes else size,
            28.0 if boxes else size,
            bool(task.get("critical")),
        )
        for place, task in enumerate(tasks)
    )
    edges = tuple((parent, child, 1) for parent, child in document["edges"])
    return GraphDrawing(width, top - _BAND + 18.0, nodes, edges, boxes)


def grouped(document: Document) -> GraphDrawing:
    """Lay out all tasks of one activity at one depth as one node."""
    tasks = document["tasks"]
    colours = {name: each[0] for name, each in activities(tasks).items()}
    members: dict[tuple[int, str], list[Mapping[str, Any]]] = defaultdict(list)
    for task in tasks:
        members[task["depth"], task["activity"]].append(task)
    keys = sorted(members)
    number = {key: place for place, key in enumerate(keys)}
    groups = [number[task["depth"], task["activity"]] for task in tasks]
    between = Counter((groups[parent], groups[child]) for parent, child in document["edges"])
    layers = _ordered([{"depth": key[0]} for key in keys], list(between))
    widest = max((len(layer) for layer in layers), default=1)
    width = max(320.0, min(WIDTH, 190.0 * widest))
    box = min(176.0, width / widest - 10.0)
    places = {
        group: (width * (place + 0.5) / len(layer), 24.0 + 78.0 * depth)
        for depth, layer in enumerate(layers)
        for place, group in enumerate(layer)
    }
    nodes = []
    for place, key in enumerate(keys):
        inside = members[key]
        seconds = sum(float(task["runtime"]) for task in inside)
        times = f" × {len(inside)}" if len(inside) > 1 else ""
        words = f"{count(len(inside), 'task')} of {key[1]} at depth {key[0]}"
        about = f"{words}\n{format_duration(seconds)} on the reference machine"
        critical = any(task.get("critical") for task in inside)
        nodes.append(GraphNode(key[1] + times, about, colours[key[1]], *places[place], box, 36.0, critical))
    edges = tuple((parent, child, count) for (parent, child), count in sorted(between.items()))
    return GraphDrawing(width, 48.0 + 78.0 * (len(layers) - 1), tuple(nodes), edges, True)


def _ordered(tasks: Sequence[Mapping[str, Any]], edges: Sequence[Sequence[int]]) -> list[list[int]]:
    """The nodes of each depth, so ordered that few edges cross.

    Barycentres, up and down: Sugiyama, Tagawa and Toda, "Methods for visual understanding of hierarchical system
    structures", IEEE Trans. SMC 11(2), 1981.
    """
    layers: dict[int, list[int]] = defaultdict(list)
    for place, task in enumerate(tasks):
        layers[task["depth"]].append(place)
    found = [layers[depth] for depth in sorted(layers)]
    near: tuple[dict[int, list[int]], dict[int, list[int]]] = (defaultdict(list), defaultdict(list))
    for parent, child in edges:
        near[0][child].append(parent)
        near[1][parent].append(child)
    position = [0.0] * len(tasks)
    for layer in found:
        for place, node in enumerate(layer):
            position[node] = (place + 0.5) / len(layer)
    for sweep in range(_SWEEPS):
        neighbours = near[sweep % 2]
        for layer in found if sweep % 2 == 0 else found[::-1]:
            centre = {
                node: sum(position[each] for each in neighbours[node]) / len(neighbours[node])
                if neighbours[node]
                else position[node]
                for node in layer
            }
            layer.sort(key=lambda node: (centre[node], position[node]))
            for place, node in enumerate(layer):
                position[node] = (place + 0.5) / len(layer)
    return found


def edge_points(drawing: GraphDrawing, parent: int, child: int) -> tuple[tuple[float, float], ...]:
    """The four points of an edge's curve: where it begins, two that draw it, and where it ends."""
    first, last = drawing.nodes[parent], drawing.nodes[child]
    y1, y2 = first.y + first.height / 2, last.y - last.height / 2
    bend = max(10.0, 0.45 * (y2 - y1))
    return (first.x, y1), (first.x, y1 + bend), (last.x, y2 - bend), (last.x, y2)


def _svg(drawing: GraphDrawing) -> str:
    share = min(1.0, max(0.08, 60.0 / max(1, len(drawing.edges))))
    parts = [
        f'<svg viewBox="0 0 {drawing.width:.0f} {drawing.height:.0f}" width="{drawing.width:.0f}" role="img" '
        'aria-label="graph of the workflow" class="dag">'
    ]
    for critical in (False, True):
        for parent, child, times in drawing.edges:
            both = drawing.nodes[parent].critical and drawing.nodes[child].critical
            if both != critical:
                continue
            (x1, y1), (x2, y2), (x3, y3), (x4, y4) = edge_points(drawing, parent, child)
            look = 'class="e critical"' if both else f'class="e" opacity="{max(share, 0.75 if times > 1 else 0):.2f}"'
            thick = f' stroke-width="{min(7.0, 1 + math.log2(times)):.1f}"' if times > 1 else ""
            way = f"M{x1:.1f} {y1:.1f}C{x2:.1f} {y2:.1f} {x3:.1f} {y3:.1f} {x4:.1f} {y4:.1f}"
            words = f"<title>{times} edges</title>" if times > 1 else ""
            parts.append(f'<path d="{way}" {look}{thick}>{words}</path>' if words else f'<path d="{way}" {look}/>')
    inside = labels(drawing) if drawing.boxes else [""] * len(drawing.nodes)
    parts += [_node(node, drawing.boxes, label) for node, label in zip(drawing.nodes, inside, strict=True)]
    return "".join(parts) + "</svg>"


def _node(node: GraphNode, box: bool, label: str) -> str:
    style = "n critical" if node.critical else "n"
    title = f"<title>{escape(node.about)}</title>"
    if not box:
        return (
            f'<circle cx="{node.x:.1f}" cy="{node.y:.1f}" r="{node.width / 2:.1f}" fill="{node.colour}" '
            f'class="{style}">{title}</circle>'
        )
    ink = "w" if dark(node.colour) else "k"
    return (
        f'<g><rect x="{node.x - node.width / 2:.1f}" y="{node.y - node.height / 2:.1f}" width="{node.width:.1f}" '
        f'height="{node.height:.1f}" rx="5" fill="{node.colour}" class="{style}">{title}</rect>'
        f'<text x="{node.x:.1f}" y="{node.y + 4:.1f}" text-anchor="middle" class="{ink}">'
        f"{escape(label)}</text></g>"
    )


def labels(drawing: GraphDrawing) -> list[str]:
    """The words in the boxes: all cut at the same place, where that leaves most of them distinct."""
    tried = [[_fitting(node.label, node.width, cut) for node in drawing.nodes] for cut in reversed(CUTS)]
    return max(tried, key=lambda found: len(set(found)))


def _fitting(words: str, width: float, cut: Callable[[str, int], str]) -> str:
    """Words cut to so many units of width."""
    most = len(words)
    while most > 3 and sum(_CAPITAL if letter.isupper() else _LETTER for letter in cut(words, most)) > width - 6:
        most -= 1
    return cut(words, most)
