"""Draws workflows, schedules and learning curves as PNG files, with matplotlib."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tradewind.reporting.charts.document import Chart, ChartAxis, ChartLayer, time_axis
from tradewind.reporting.charts.picture import COLOURS, draw_chart, write_chart, write_charts, write_picture
from tradewind.reporting.text_layout import shortened_names, step_plot
from tradewind.reporting.workflow.dag import graph_charts
from tradewind.reporting.workflow.layout import OTHER, Document, activities, gantt_charts, lanes
from tradewind.utils.units import format_duration

_LOOKS = ("failed", "best", "lost")
"""Looks of the lines beside a learning curve."""
_CRITICAL = "critical path"
_LEGEND = 40
"""Letters of a name in the legend, at most."""


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
    marks = _marks(document, critical=True)
    write_charts(graph_charts(document), path, str(document["title"]), lambda figure: _legend(figure, marks))


def _legend(figure: Any, marks: Sequence[tuple[str, str]]) -> None:
    from matplotlib.patches import Patch

    handles = [
        Patch(facecolor=colour, edgecolor=COLOURS["ink"] if words == _CRITICAL else colour, label=words)
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
    write_chart(learning_chart(title, makespans, lines, best=best), path)


def learning_chart(title: str, makespans: Sequence[float], lines: Mapping[str, float], *, best: bool = True) -> Chart:
    """Chart the makespans of episodes; the arguments are those of `draw_learning_curve`."""
    episodes = [(float(at), makespan) for at, makespan in enumerate(makespans, 1)]
    least = [(at, makespan) for (at, _), makespan in zip(episodes, itertools.accumulate(makespans, min), strict=True)]
    ends = (0.5, len(makespans) + 0.5)
    layers = [ChartLayer("points", "episode", "feasible", episodes, faint=True)]
    layers += [ChartLayer("steps", "best so far", "feasible", least)] if best else []
    layers += [
        ChartLayer("line", f"{name}: {format_duration(length)}", look, [(end, length) for end in ends])
        for look, (name, length) in zip(_LOOKS, lines.items(), strict=False)
    ]
    up = time_axis("makespan", max([*makespans, *lines.values()], default=0.0))
    return Chart("learning", title, ChartAxis("episode", low=ends[0], high=ends[1]), up, layers)
