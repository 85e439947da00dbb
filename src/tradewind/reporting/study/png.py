"""The main charts as PNG files, drawn by matplotlib."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from tradewind.errors import InputError, MissingProgramError
from tradewind.problem import COST, RUNTIME
from tradewind.reporting.study.charts import draw_front, effect_limits, metric_axis
from tradewind.reporting.study.data import StudyData
from tradewind.reporting.study.effects import parameter_effects
from tradewind.reporting.study.pareto import cost_time_front
from tradewind.reporting.study.series import best_so_far, levels, outcomes, wants_log
from tradewind.reporting.svg import MOST, time_unit
from tradewind.reporting.words import value_words
from tradewind.utils.dependencies import install_command
from tradewind.utils.units import format_duration, format_money

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LOOK: dict[str, dict[str, Any]] = {
    "feasible": {"marker": "o", "c": "#0072b2", "alpha": 0.6, "linewidths": 0, "s": 22},
    "infeasible": {"marker": "^", "facecolors": "none", "edgecolors": "#c98500", "s": 30},
    "failed": {"marker": "x", "c": "#c1440e", "s": 28},
    "aborted": {"marker": "D", "facecolors": "none", "edgecolors": "#a3528a", "s": 24},
    "lost": {"marker": "+", "c": "#7a828c", "s": 34},
}
_RING: dict[str, Any] = {"marker": "o", "s": 90, "facecolors": "none", "edgecolors": "#1b2733", "linewidths": 1.2}
_BEST: dict[str, Any] = {"marker": "*", "c": "#007d5a", "s": 190, "edgecolors": "white", "zorder": 5}

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
    "text.usetex": False,
    "text.parse_math": False,
}
"""Settings of matplotlib for all charts."""


def write_pngs(data: StudyData, folder: Path) -> list[Path]:
    """Write the charts that have something to show.

    Args:
        data: The study.
        folder: Folder for the files; it is made.

    Returns:
        The files: ``best-so-far.png``, ``cost-time.png``, ``parameters.png``, and ``trade-off.png`` where the study has
        several objectives.

    Raises:
        MissingProgramError: matplotlib is not installed.
        InputError: The folder cannot be written.
    """
    try:
        import matplotlib as mpl
    except ImportError:
        raise MissingProgramError("PNG charts need matplotlib", hint=install_command("plots")) from None
    data = _drawable(data)
    charts: dict[str, Callable[[StudyData, Figure], bool]] = {
        "best-so-far.png": _progress,
        "cost-time.png": _map,
        "parameters.png": _parameters,
        "trade-off.png": draw_front,
    }
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with mpl.rc_context(STYLE):
            from matplotlib.backends.backend_agg import FigureCanvasAgg
            from matplotlib.figure import Figure

            for name, draw in charts.items():
                figure = Figure(figsize=(9, 5.2), dpi=130)
                FigureCanvasAgg(figure)
                if draw(data, figure):
                    figure.savefig(folder / name)
                    written.append(folder / name)
    except OSError as error:
        raise InputError(f"cannot write charts into {folder}: {error.strerror}", hint="choose another folder") from None
    return written


def words_axis(axis: Any, words: Callable[[float], str], log: bool) -> None:
    """Write an axis's labels by ``words``; a logarithmic one gets enough of them."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    if log:
        axis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0), numticks=12))
        axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(FuncFormatter(lambda value, _: words(value)))


def _drawable(data: StudyData) -> StudyData:
    """The same study with its values within the ends of an axis: matplotlib's margins go beyond the greatest ones."""
    floats = {**data.floats, "objective": np.clip(data.objective, -MOST, MOST)}
    return replace(data, floats=floats, extra={name: np.clip(one, -MOST, MOST) for name, one in data.extra.items()})


def _progress(data: StudyData, figure: Figure) -> bool:
    curve = best_so_far(data)
    if not len(curve.spent):
        return False
    metric = data.goal.objective.metric
    order = data.by_end
    total = np.cumsum(data.spent[order])
    feasible = data.feasible[order]
    _, title, words = metric_axis(metric, float(curve.best.max()))
    log = wants_log(data.objective[data.feasible])
    axes = figure.add_subplot()
    axes.set_yscale("log" if log else "linear")
    axes.scatter(total[feasible], data.objective[order][feasible], s=7, c="#0072b2", alpha=0.35, linewidths=0)
    x = [*curve.spent, curve.end]
    axes.step(x, [*curve.best, curve.best[-1]], where="post", color="#0072b2", linewidth=2)
    axes.scatter([curve.spent[-1]], [curve.best[-1]], **_BEST)
    axes.set_title(f"{data.study.name}: best {metric} so far, {value_words(metric, float(curve.best[-1]))}")
    axes.set_xlabel("money spent in total")
    axes.set_ylabel(title)
    axes.set_xlim(left=0)
    words_axis(axes.xaxis, format_money, log=False)
    words_axis(axes.yaxis, words, log=log)
    return True


def _map(data: StudyData, figure: Figure) -> bool:
    known = np.isfinite(data.cost) & np.isfinite(data.runtime)
    kinds = [(kind, kind.rows[known[kind.rows]]) for kind in outcomes(data)]
    rows = np.concatenate([shown for _, shown in kinds])
    if not len(rows):
        return False
    deadline = data.goal.constraints.deadline
    unit, name = time_unit(max(float(data.runtime[rows].max()), deadline or 0.0))
    axes = figure.add_subplot()
    log_x, log_y = wants_log(data.runtime[rows]), wants_log(data.cost[rows])
    axes.set_xscale("log" if log_x else "linear")
    axes.set_yscale("log" if log_y else "linear")
    for kind, shown in kinds:
        if len(shown):
            label = f"{kind.name} ({kind.total:,})"
            axes.scatter(data.runtime[shown] / unit, data.cost[shown], label=label, **_LOOK[kind.name])
    edge = cost_time_front(data)
    if len(edge) > 1:
        axes.scatter(data.runtime[edge] / unit, data.cost[edge], label="none as cheap and as quick", **_RING)
    best = data.best_row
    if best is not None:
        axes.scatter([data.runtime[best] / unit], [data.cost[best]], label="recommended", **_BEST)
    if deadline:
        label = f"deadline {format_duration(deadline)}"
        axes.axvline(deadline / unit, color="#c1440e", linestyle="--", linewidth=1.4, label=label)
    on = "" if data.whole.all() else " on the whole input"
    axes.set_title(f"{data.study.name}: cost and run time of every trial{on}")
    axes.set_xlabel(f"run time, {name}")
    axes.set_ylabel("cost, this run")
    axes.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
    words_axis(axes.xaxis, lambda value: f"{value:.4g}", log_x)
    words_axis(axes.yaxis, format_money, log_y)
    return True


def _parameters(data: StudyData, figure: Figure) -> bool:
    """Boxes by level for up to six parameters, those with the largest effects first."""
    effects = parameter_effects(data)
    known = {one.parameter: one.words(data.goal.objective.metric) for one in effects.found} if effects else {}
    names = [*known, *data.parameters]
    names = list(dict.fromkeys(names))[:6]
    limits = effect_limits(data)
    if not names or limits is None:
        return False
    columns = min(3, len(names))
    rows = -(-len(names) // columns)
    figure.set_size_inches(4.2 * columns + 0.5, 3.6 * rows)
    for i, name in enumerate(names):
        axes = figure.add_subplot(rows, columns, i + 1)
        axes.set_title(f"{name}\n{fill(known[name], 48)}" if name in known else name, fontsize=9)
        _boxes(data, axes, name, wants_log(limits))
    return True


def _boxes(data: StudyData, axes: Axes, name: str, log: bool) -> None:
    found = levels(data, data.parameters[name], most=10)
    metric = data.goal.objective.metric
    _, title, words = metric_axis(metric, max((level.quartiles[4] for level in found), default=1.0))
    axes.set_xscale("log" if log else "linear")
    boxes = []
    for level in found:
        low, q1, median, q3, high = level.quartiles
        boxes.append({"label": level.label, "whislo": low, "q1": q1, "med": median, "q3": q3, "whishi": high})
    look = {"facecolor": "#9cc4e0", "edgecolor": "#0072b2"}
    median_look = {"color": "#1c2430", "linewidth": 1.6}
    places = list(range(len(found), 0, -1))
    axes.bxp(
        boxes, positions=places, orientation="horizontal", showfliers=False, patch_artist=True, widths=0.55,
        boxprops=look, medianprops=median_look,
    )  # fmt: skip
    for label, level in zip(axes.get_yticklabels(), found, strict=True):
        label.set_fontweight("bold" if level.best else "normal")
        label.set_fontsize(9)
    axes.set_xlabel(title, fontsize=9)
    axes.tick_params(axis="x", labelsize=8)
    if metric in (COST, RUNTIME):
        from matplotlib.ticker import MaxNLocator

        words_axis(axes.xaxis, words, log)
        if not log:
            axes.xaxis.set_major_locator(MaxNLocator(4))
