"""Draws workflows, schedules and learning curves as PNG files, with matplotlib."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tradewind.reporting.charts.picture import draw_chart, words_axis, write_picture
from tradewind.reporting.text_layout import shortened_names, step_plot
from tradewind.reporting.workflow.dag import GROUPED, MOST, GraphDrawing, edge_points, grouped, labels, single
from tradewind.reporting.workflow.layout import OTHER, Document, activities, dark, gantt_charts, lanes
from tradewind.utils.units import format_duration

_COLOURS = ("#c1440e", "#007d5a", "#7a828c")
"""Colours of the lines beside a learning curve."""
_CRITICAL = "critical path"
_LEGEND = 40
"""Letters of a name in the legend, at most."""
_NARROWEST = 6.0
"""Inches of a graph's picture, at least: its legend has to be read."""
_INK = "#1c2430"
_SOFT = "#5b6675"


def draw_gantt(document: Document, path: Path) -> None:
    """Draw a Gantt chart as a PNG file.

    Args:
        document: The schedule, as `tradewind.reporting.workflow.layout` describes it.
        path: The PNG file.

    Raises:
        MissingProgramError: matplotlib is not installed.
        InputError: The file cannot be written.
    """
    slots, gantt = gantt_charts(document)
    high = min(18.0, max(4.5, 2.2 + 0.27 * (gantt.y.high or 0.0)))
    marks = _marks(document, any(layer.strong for layer in gantt.layers))
    more = 0.2 * max(0, math.ceil(len(marks) / _columns(marks, 13.0)) - 2)  # a legend of many rows takes no bars' room

    def draw(figure: Any) -> None:
        ratios = {"height_ratios": [0.8, high - 1.6], "hspace": 0.02}
        strip, chart = figure.subplots(2, 1, sharex=True, gridspec_kw=ratios)
        draw_chart(slots, strip, str(document["title"]), size=8.5, legend=False)
        strip.tick_params(labelbottom=False)
        draw_chart(gantt, chart, " ", size=8.5, legend=False)
        if any(lane.actual for lane in lanes(document)):
            chart.set_xlabel(f"{gantt.x.title}; above as planned, below as it ran", fontsize=8.5)
        chart.grid(axis="y", visible=False)
        _legend(figure, marks)

    write_picture(path, (13.0, high + more), draw)


def draw_dag(document: Document, path: Path) -> None:
    """Draw the graph of a workflow as a PNG file.

    Many tasks are drawn by activity on the left, and task by task on the right.

    Args:
        document: The graph, as `tradewind.reporting.workflow.dag` describes it.
        path: The PNG file.

    Raises:
        MissingProgramError: matplotlib is not installed.
        InputError: The file cannot be written.
    """
    count = len(document["tasks"])
    drawings = [grouped(document)] if count > GROUPED else []
    drawings += [single(document)] if count <= MOST else []
    width = sum(each.width for each in drawings) / 95.0
    high = max(each.height for each in drawings) / 95.0
    scale = min(1.0, 22.0 / max(width, high))
    wide = max(_NARROWEST, width * scale)
    marks = _marks(document, critical=True)
    # Beside what is drawn, room for the title and for the legend, whose letters are not scaled.
    room = 0.5 + 0.2 * math.ceil(len(marks) / _columns(marks, wide))
    write_picture(path, (wide, high * scale + room), lambda figure: _dag(figure, document, drawings, scale))


def _legend(figure: Any, marks: Sequence[tuple[str, str]]) -> None:
    from matplotlib.patches import Patch

    handles = [
        Patch(facecolor=colour, edgecolor=_INK if words == _CRITICAL else colour, label=words)
        for colour, words in marks
    ]
    columns = _columns(marks, figure.get_figwidth())
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, fontsize=8.5, frameon=False)


def _marks(document: Document, critical: bool) -> list[tuple[str, str]]:
    """Colours of the legend with their labels."""
    groups = activities(document["tasks"])
    names = [name for name, (colour, *_) in groups.items() if colour != OTHER]
    short = shortened_names(names, _LEGEND)
    marks = [(groups[name][0], f"{short[name]} ({groups[name][1]})") for name in names]
    others = sum(count for colour, count, _ in groups.values() if colour == OTHER)
    if others:
        marks.append((OTHER, f"other activities ({others})"))
    if critical:
        marks.append(("white", _CRITICAL))
    return marks


def _columns(marks: Sequence[tuple[str, str]], width: float) -> int:
    """Number of entries of the legend side by side in so many inches."""
    each = 0.6 + 0.088 * max(len(words) for _, words in marks)
    return max(1, min(6, len(marks), int(width / each)))


def _dag(figure: Any, document: Document, drawings: list[GraphDrawing], scale: float) -> None:
    ratios = [each.width for each in drawings]
    panels = figure.subplots(1, len(drawings), squeeze=False, gridspec_kw={"width_ratios": ratios})[0]
    for axes, drawing in zip(panels, drawings, strict=True):
        _draw(axes, drawing, scale)
    figure.suptitle(document["title"], x=0.01, ha="left", fontsize=12)
    _legend(figure, _marks(document, critical=True))


def _draw(axes: Any, drawing: GraphDrawing, scale: float) -> None:
    from matplotlib.collections import LineCollection, PatchCollection
    from matplotlib.patches import Circle, FancyBboxPatch

    share = min(1.0, max(0.1, 60.0 / max(1, len(drawing.edges))))
    for critical in (False, True):
        chosen = [
            (parent, child, count)
            for parent, child, count in drawing.edges
            if (drawing.nodes[parent].critical and drawing.nodes[child].critical) == critical
        ]
        axes.add_collection(
            LineCollection(
                [_curve(edge_points(drawing, parent, child)) for parent, child, _ in chosen],
                colors=_INK if critical else _SOFT,
                alpha=1.0 if critical else max(share, 0.75 if any(count > 1 for *_, count in chosen) else 0.0),
                linewidths=[(1.5 if critical else 0.8) + 0.5 * math.log2(count) for *_, count in chosen],
                zorder=1,
            )
        )
        nodes = [node for node in drawing.nodes if node.critical == critical]
        shapes = [
            FancyBboxPatch(
                (node.x - node.width / 2, node.y - node.height / 2),
                node.width,
                node.height,
                boxstyle="round,pad=0,rounding_size=5",
            )
            if drawing.boxes
            else Circle((node.x, node.y), node.width / 2)
            for node in nodes
        ]
        colours = [node.colour for node in nodes]
        edge = _INK if critical else "white"
        axes.add_collection(
            PatchCollection(shapes, facecolors=colours, edgecolors=edge, linewidths=1.4 if critical else 0.5, zorder=2)
        )
    for node, words in zip(drawing.nodes, labels(drawing), strict=True) if drawing.boxes else ():
        colour = "white" if dark(node.colour) else _INK
        axes.text(node.x, node.y, words, fontsize=8.0 * scale, ha="center", va="center", color=colour, zorder=3)
    axes.set_xlim(-4, drawing.width + 4)
    axes.set_ylim(drawing.height + 4, -4)
    axes.set_aspect("equal")
    axes.axis("off")


def _curve(points: tuple[tuple[float, float], ...]) -> list[tuple[float, float]]:
    """A cubic curve as a line of points."""
    found = []
    for step in range(9):
        t = step / 8
        weights = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3)
        found.append(
            (
                sum(w * x for w, (x, _) in zip(weights, points, strict=True)),
                sum(w * y for w, (_, y) in zip(weights, points, strict=True)),
            )
        )
    return found


def learning_curve_lines(makespans: Sequence[float], width: int) -> list[str]:
    """Plot the makespans of episodes as lines of text."""
    places = [float(place) for place in range(1, len(makespans) + 1)]
    return step_plot(places, makespans, width=width, y_words=format_duration, x_words=lambda at: f"{at:.0f}")


def draw_learning_curve(
    title: str, makespans: Sequence[float], lines: Mapping[str, float], path: Path, *, best: bool = True
) -> None:
    """Draw the makespans of episodes, the best so far, and what they are compared with.

    Args:
        title: Title of the picture.
        makespans: Seconds of each episode.
        lines: Makespans of other policies in seconds, by their names; drawn as horizontal lines.
        path: The PNG file.
        best: Draw the best so far: where episodes meet different worlds, it would show their luck.

    Raises:
        MissingProgramError: matplotlib is not installed.
        InputError: The file cannot be written.
    """
    write_picture(path, (9, 5.2), lambda figure: _draw_learning(figure, title, makespans, lines, best))


def _draw_learning(figure: Any, title: str, makespans: Sequence[float], lines: Mapping[str, float], best: bool) -> None:
    axes = figure.add_subplot()
    episodes = range(1, len(makespans) + 1)
    axes.scatter(episodes, makespans, s=12, c="#0072b2", alpha=0.5, linewidths=0, label="episode")
    if best:
        least = [min(makespans[: at + 1]) for at in range(len(makespans))]
        axes.step(episodes, least, where="post", color="#0072b2", linewidth=2, label="best so far")
    for colour, (name, length) in zip(_COLOURS, lines.items(), strict=False):
        axes.axhline(length, color=colour, linewidth=1.5, linestyle="--", label=f"{name}: {format_duration(length)}")
    axes.set_title(title)
    axes.set_xlabel("episode")
    axes.set_ylabel("makespan")
    axes.set_xlim(0.5, len(makespans) + 0.5)
    words_axis(axes.yaxis, format_duration, log=False)
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
