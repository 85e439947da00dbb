"""Draws chart documents with matplotlib, for PNG and SVG files."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tradewind.errors import InputError, MissingProgramError
from tradewind.reporting.charts.document import Chart, ChartAxis, ChartLayer, in_units
from tradewind.utils.dependencies import install_command
from tradewind.utils.units import format_money

COLOURS = {
    "feasible": "#0072b2", "infeasible": "#c98500", "failed": "#c1440e", "aborted": "#a3528a", "lost": "#7a828c",
    "front": "#1b2733", "best": "#007d5a", "curve": "#0072b2", "soft": "#5b6675", "ink": "#1c2430", "box": "#9cc4e0",
    "best-box": "#8ccbb4", "use": "#9db9d6", "real": "#c1440e",
    "cheapest": "#007d5a", "fastest": "#c98500", "try": "#a3528a",
}  # fmt: skip
"""Colours of the looks, on white."""

_MARKS: dict[str, dict[str, Any]] = {
    "infeasible": {"marker": "^", "s": 30}, "failed": {"marker": "x", "s": 28}, "aborted": {"marker": "D", "s": 24},
    "lost": {"marker": "+", "s": 34}, "front": {"marker": "o", "s": 90, "linewidths": 1.2},
    "cheapest": {"marker": "o", "s": 130, "linewidths": 1.6}, "fastest": {"marker": "^", "s": 80, "zorder": 4},
    "try": {"marker": "D", "s": 60, "zorder": 4},
    "best": {"marker": "*", "s": 190, "edgecolors": "white", "zorder": 5},
}  # fmt: skip
_WRITTEN = 0.5
"""Height of a box in which words are written, in units of the axis."""
_POINTS = 95.0
"""Pixels of a chart without axes that are an inch of a picture."""
_LARGEST, _NARROWEST = 22.0, 6.0
"""Inches of a picture of such charts."""
_HOLLOW = ("infeasible", "aborted", "front", "cheapest")

STYLE: dict[Any, Any] = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e9edf1",
    "font.size": 11,
    "axes.titlesize": 13,
    "axes.titlelocation": "left",
    "figure.constrained_layout.use": True,
    "svg.fonttype": "none",
    "text.usetex": False,
    "text.parse_math": False,
}
"""Settings of matplotlib for all charts."""


def write_picture(path: Path, size: tuple[float, float], draw: Callable[[Any], None]) -> Path:
    """Write one picture, as PNG or as what the file's name ends in.

    Args:
        path: The file.
        size: Inches across and down.
        draw: Draws on a figure.

    Raises:
        MissingProgramError: matplotlib is not installed.
        InputError: The file cannot be written.
    """
    try:
        import matplotlib as mpl
    except ImportError:
        raise MissingProgramError("PNG charts need matplotlib", hint=install_command("plots")) from None
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=size, dpi=130)
        FigureCanvasAgg(figure)
        draw(figure)
        try:
            figure.savefig(path, format="svg" if path.suffix.lower() == ".svg" else "png")
        except OSError as error:
            hint = "choose another file"
            raise InputError(f"cannot write {path}: {error.strerror or error}", hint=hint) from None
    return path


def write_charts(charts: Sequence[Chart], path: Path, title: str, decorate: Callable[[Any], None]) -> Path:
    """Write charts without axes side by side as one picture, as large as what is on them; see `write_picture`.

    Args:
        charts: The charts.
        path: The file.
        title: Heading above all of them.
        decorate: Draws on the figure what belongs to all of them, such as a legend.
    """
    sizes = [((chart.x.high or 1.0) / _POINTS, (chart.y.high or 1.0) / _POINTS) for chart in charts] or [(1.0, 1.0)]
    width, height = sum(wide for wide, _ in sizes), max(high for _, high in sizes)
    scale = min(1.0, _LARGEST / max(width, height))

    def draw(figure: Any) -> None:
        ratios = {"width_ratios": [wide for wide, _ in sizes]}
        for chart, axes in zip(
            charts, figure.subplots(1, len(sizes), squeeze=False, gridspec_kw=ratios)[0], strict=False
        ):
            draw_chart(chart, axes, " ", legend=False)
        figure.suptitle(title, x=0.01, ha="left", fontsize=12)
        decorate(figure)

    return write_picture(path, (max(_NARROWEST, width * scale), max(2.0, height * scale + 1.2)), draw)


def write_chart(chart: Chart, path: Path, title: str = "") -> Path:
    """Write one chart as a picture; see `write_picture`."""

    def draw(figure: Any) -> None:
        draw_chart(chart, figure.add_subplot(), title or chart.title)

    return write_picture(path, (9.0, 5.2), draw)


def draw_chart(chart: Chart, axes: Any, title: str = "", *, size: float = 11.0, legend: bool = True) -> None:
    """Draw a chart.

    Args:
        chart: The chart.
        axes: Axes of matplotlib.
        title: Heading, instead of the chart's own.
        size: Points of the letters of the axes.
        legend: Name the layers beside it.
    """
    for layer in chart.layers:
        rows = in_units(chart, layer)
        if len(rows):
            _LAYERS[layer.kind](axes, layer, rows)
    # Before the limits, which are fixed once they are set: a bound beyond all points is to be seen.
    if chart.bound is not None:
        at = chart.bound.at / chart.x.unit
        axes.axvline(at, color="#c1440e", linestyle="--", linewidth=1.4, label=chart.bound.words)
    for about, axis, scale, limit in (
        (chart.x, axes.xaxis, axes.set_xscale, axes.set_xlim),
        (chart.y, axes.yaxis, axes.set_yscale, axes.set_ylim),
    ):
        scale("log" if about.log else "linear")
        ends = [None if end is None else end / about.unit for end in (about.low, about.high)]
        limit(*(ends[::-1] if about.down else ends))
        _label(about, axis, size)
    if chart.x.kind == "none":
        axes.axis("off")
    axes.set_title(title or chart.title, fontsize=size + 2)
    axes.set_xlabel(chart.x.title, fontsize=size)
    axes.set_ylabel(chart.y.title, fontsize=size)
    names = [name for name in axes.get_legend_handles_labels()[1] if name]
    if legend and names:
        axes.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))


def words_axis(axis: Any, words: Callable[[float], str], *, log: bool) -> None:
    """Write an axis's labels by ``words``; a logarithmic one gets enough of them."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    if log:
        axis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0), numticks=12))
        axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(FuncFormatter(lambda value, _: words(value)))


def _label(about: ChartAxis, axis: Any, size: float) -> None:
    if not about.labels:
        words_axis(axis, format_money if about.kind == "money" else lambda value: f"{value:.4g}", log=about.log)
    else:
        # As many names as there is room for.
        every = max(1, math.ceil(len(about.labels) / 60))
        shown = about.labels[::every]
        axis.set_ticks([at for at, _ in shown], [words for _, words in shown])
    axis.set_tick_params(labelsize=size - 1.5)


def _colours(layer: ChartLayer) -> Any:
    looks: Sequence[str] = layer.looks or [layer.look]
    return [COLOURS.get(look, look) for look in looks]


def _points(axes: Any, layer: ChartLayer, rows: Any) -> None:
    colour = _colours(layer)[0]
    look = {"s": 22.0, "linewidths": 0, "alpha": 0.35 if layer.faint else 0.6, **_MARKS.get(layer.look, {})}
    if layer.look in _MARKS:
        look = {"alpha": 1.0, **_MARKS[layer.look]}
    paint = {"facecolors": "none", "edgecolors": colour} if layer.look in _HOLLOW else {"c": colour}
    axes.scatter(rows[:, 0], rows[:, 1], label=layer.name, **paint, **look)


def _line(axes: Any, layer: ChartLayer, rows: Any) -> None:
    draw = axes.plot if layer.kind == "line" else axes.step
    more = {} if layer.kind == "line" else {"where": "post"}
    draw(rows[:, 0], rows[:, 1], color=_colours(layer)[0], linewidth=2, label=layer.name, **more)


def _area(axes: Any, layer: ChartLayer, rows: Any) -> None:
    low, high = (0.0, rows[:, 1]) if layer.kind == "area" else (rows[:, 1], rows[:, 2])
    step = "post" if layer.kind == "area" else None
    axes.fill_between(
        rows[:, 0], low, high, step=step, color=_colours(layer)[0], alpha=0.4, linewidth=0, label=layer.name
    )


def _boxes(axes: Any, layer: ChartLayer, rows: Any) -> None:
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    strong = set(layer.strong)
    axes.add_collection(
        PatchCollection(
            [Rectangle((x1, y1), x2 - x1, y2 - y1) for x1, y1, x2, y2 in rows],
            facecolors=_colours(layer),
            edgecolors=[COLOURS["ink"] if at in strong else "white" for at in range(len(rows))],
            linewidths=[1.3 if at in strong else 0.4 for at in range(len(rows))],
            alpha=0.5 if layer.faint else 1.0,
            zorder=2,
        )
    )
    axes.autoscale_view()
    span = float(rows[:, 2].max() - min(rows[:, 0].min(), 0.0)) or 1.0
    points = axes.get_window_extent().width * 72 / axes.figure.dpi
    colours = _colours(layer)
    for at, (text, (x1, y1, x2, y2)) in enumerate(zip(layer.texts, rows, strict=False)):
        # About as much as the letters of a name take.
        if (x2 - x1) / span * points >= 4.6 * len(text) + 6 and abs(y2 - y1) >= _WRITTEN:
            ink = "white" if not layer.faint and dark(colours[at % len(colours)]) else COLOURS["ink"]
            place = ((x1 + x2) / 2, (y1 + y2) / 2)
            axes.annotate(text, place, fontsize=7.5, ha="center", va="center", zorder=4, color=ink)


def dark(colour: str) -> bool:
    """True for a colour on which white words can be read better than black ones."""
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return 0.299 * red + 0.587 * green + 0.114 * blue < 140


def _links(axes: Any, layer: ChartLayer, rows: Any) -> None:
    from matplotlib.collections import PathCollection
    from matplotlib.path import Path as Outline

    way = [Outline.MOVETO, *[Outline.CURVE4] * 3]
    curves = [
        Outline([(x1, y1), (x1, (y1 + y2) / 2), (x2, (y1 + y2) / 2), (x2, y2)], way) for x1, y1, x2, y2 in rows.tolist()
    ]
    # The more there are, the fainter each: where many lie over each other, none can be seen anyhow.
    alpha = min(0.75, max(0.1, 60 / len(rows))) if layer.faint else 1.0
    width = 0.8 if layer.faint else 1.5
    axes.add_collection(
        PathCollection(curves, facecolors="none", edgecolors=_colours(layer), linewidths=width, alpha=alpha)
    )


def _segments(axes: Any, layer: ChartLayer, rows: Any) -> None:
    from matplotlib.collections import LineCollection

    lines = [((x1, y1), (x2, y2)) for x1, y1, x2, y2 in rows]
    alpha = 0.4 if layer.faint else 1.0
    axes.add_collection(LineCollection(lines, colors=_colours(layer), linewidths=1.4, alpha=alpha, zorder=3))
    axes.autoscale_view()


_LAYERS: dict[str, Callable[[Any, ChartLayer, Any], None]] = {
    "points": _points, "line": _line, "steps": _line, "area": _area, "band": _area, "boxes": _boxes,
    "segments": _segments, "links": _links,
}  # fmt: skip
