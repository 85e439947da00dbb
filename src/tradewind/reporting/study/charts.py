"""The charts of the HTML report, as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tradewind.problem import COST, RUNTIME, Objective
from tradewind.reporting.study.data import Floats, StudyData
from tradewind.reporting.study.effects import ParameterEffects
from tradewind.reporting.study.pareto import ParetoFront, cost_time_front, front, losses, title
from tradewind.reporting.study.series import ParameterLevel, best_so_far, levels, outcomes, thin, wants_log
from tradewind.reporting.svg import Scale, Svg, Words, span, time_unit
from tradewind.reporting.words import axis_words, percent, value_words
from tradewind.utils.units import count, format_bill, format_duration, format_money

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_WIDTH = 720.0
_POINTS = 600
"""Most points of the chart of a front; the front itself comes on top."""


def metric_axis(metric: str, longest: float) -> tuple[float, str, Words]:
    """Choose the unit of a metric's axis, its title, and the function that writes a label."""
    if metric == COST:
        return 1.0, "cost, this run", format_money
    if metric == RUNTIME:
        unit, name = time_unit(longest)
        return unit, f"run time, {name}", lambda value: f"{value / unit:.4g}"
    return 1.0, metric, "{:.4g}".format


def axes_frame(
    svg: Svg, x: Scale, y: Scale, titles: tuple[str, str], words: tuple[Words, Words], about: int = 6
) -> None:
    """Draw grid, labels and titles of both axes."""
    for value in y.ticks(5):
        svg.line(x.start, y(value), x.end, y(value), "grid")
        svg.text(x.start - 8, y(value) + 4, words[1](value), "tick", anchor="end")
    for value in x.ticks(about):
        svg.line(x(value), y.start, x(value), y.start + 5, "axis")
        svg.text(x(value), y.start + 19, words[0](value), "tick", anchor="middle")
    svg.line(x.start, y.start, x.end, y.start, "axis")
    svg.text((x.start + x.end) / 2, y.start + 38, titles[0], "label", anchor="middle")
    svg.text(14, y.end - 12, titles[1], "label")


def progress_chart(data: StudyData) -> str:
    """Best-so-far against money spent in total; every measured trial as a faint point. Empty without one."""
    curve = best_so_far(data)
    if not len(curve.spent):
        return ""
    objective = data.goal.objective
    order = data.by_end
    total = np.cumsum(data.spent[order])
    place = {int(row): float(total[i]) for i, row in enumerate(order)}
    shown = [int(row) for kind in outcomes(data, 600) if kind.name == "feasible" for row in kind.rows]
    shown = [row for row in shown if row in place and math.isfinite(data.objective[row])]
    values = [float(data.objective[row]) for row in shown]
    log = wants_log(values)
    unit, title, words = metric_axis(objective.metric, max(values))
    svg = Svg(_WIDTH, 330, f"Best {objective.metric} so far against money spent in total")
    x = Scale(0.0, max(curve.end * 1.02, 1e-9), 84, _WIDTH - 20)
    y = Scale(*span(values, log=log), 275, 34, log, unit)
    axes_frame(svg, x, y, ("money spent in total", title), (format_money, words))
    for row in shown:
        svg.mark("feasible", x(place[row]), y(float(data.objective[row])), point_title(data, row), 2.2)
    points: list[tuple[float, float]] = []
    for i, (spent, best) in enumerate(zip(curve.spent, curve.best, strict=True)):
        if i:
            points.append((x(spent), points[-1][1]))
        points.append((x(spent), y(best)))
    points.append((x(curve.end), points[-1][1]))
    svg.path(points, "curve")
    for spent, best, row in list(zip(curve.spent, curve.best, curve.rows, strict=True))[-60:]:
        svg.mark("feasible", x(spent), y(best), point_title(data, int(row)), 3.6)
    svg.mark("best", x(curve.spent[-1]), y(curve.best[-1]), point_title(data, int(curve.rows[-1])), 4.5)
    final = value_words(objective.metric, float(curve.best[-1]))
    above = points[-1][1] > 60
    svg.text(x(curve.end), points[-1][1] + (-10 if above else 20), f"best: {final}", "strong", anchor="end")
    return svg.render()


def map_chart(data: StudyData) -> str:
    """Cost against run time of the ended trials on the whole input, with the deadline. Empty without one."""
    kinds = outcomes(data)
    rows = [int(r) for k in kinds for r in k.rows if math.isfinite(data.cost[r]) and math.isfinite(data.runtime[r])]
    if not rows:
        return ""
    deadline = data.goal.constraints.deadline
    times = [float(data.runtime[row]) for row in rows]
    costs = [float(data.cost[row]) for row in rows]
    log_x, log_y = wants_log(times), wants_log(costs)
    unit, name = time_unit(max([*times, deadline or 0.0]))
    near = [deadline] if deadline and deadline < 8 * max(times) else []
    svg = Svg(_WIDTH, 380, "Cost and run time of every trial")
    x = Scale(*span([*times, *near], log=log_x), 84, _WIDTH - 20, log_x, unit)
    y = Scale(*span(costs, log=log_y), 325, 34, log_y)
    axes_frame(svg, x, y, (f"run time, {name}", "cost, this run"), (lambda v: f"{v / unit:.4g}", format_money))
    if near:
        at = x(near[0])
        svg.rect(at, y.end, x.end - at, y.start - y.end, "late")
        svg.line(at, y.start, at, y.end, "deadline")
        left = at > (x.start + x.end) / 2
        words = f"deadline {format_duration(near[0])}"
        svg.text(at + (-6 if left else 6), y.end + 12, words, "strong", anchor="end" if left else "start")
    for kind in reversed(kinds):
        for row in kind.rows:
            if math.isfinite(data.cost[row]) and math.isfinite(data.runtime[row]):
                place = x(float(data.runtime[row])), y(float(data.cost[row]))
                svg.mark(kind.name, *place, point_title(data, int(row)), 4.0 if len(rows) < 300 else 3.0)
    for row in cost_time_front(data):
        svg.mark("front", x(float(data.runtime[row])), y(float(data.cost[row])), point_title(data, int(row)), 6.5)
    best = data.best_row
    if best is not None:
        svg.mark("best", x(float(data.runtime[best])), y(float(data.cost[best])), point_title(data, best), 5.5)
    return svg.render()


def point_title(data: StudyData, row: int) -> str:
    """Text shown where the pointer rests on a trial: state, configuration, cost, run time and objective."""
    state = "infeasible" if data.infeasible[row] else str(data.states[row])
    bound = "at least " if state == "aborted" else ""
    lines = [
        f"trial {data.number[row]}: {state}",
        data.words_of(row),
        f"{bound}{format_bill(float(data.cost[row]), 'this run')}, {bound}{format_duration(float(data.runtime[row]))}",
    ]
    metric = data.goal.objective.metric
    if metric not in (COST, RUNTIME):
        lines.append(f"{metric} {value_words(metric, float(data.objective[row]))}")
    return "\n".join([*lines, *filter(None, [data.reason(row)])])


def effects_chart(effects: ParameterEffects, metric: str) -> str:
    """Bars: the effect of each parameter, and beside them what it is."""
    high, bar = 26, 120.0
    widest = min(200.0, 20 + 7.6 * max(len(name) for name in effects.names))
    most = max(one.weight for one in effects.found) or 1.0
    svg = Svg(_WIDTH, high * len(effects.found) + 8, "What each parameter does")
    for i, one in enumerate(effects.found):
        top = 4 + i * high
        svg.text(widest - 8, top + 17, _short(one.parameter, 24), "tick", anchor="end")
        if one.verdict != "unknown":
            svg.rect(widest, top + 4, max(1.0, one.weight / most * bar), high - 9, "bar", one.parameter)
        svg.text(widest + bar + 12, top + 17, _short(one.words(metric), 76), "tick")
    return svg.render()


def effect_chart(data: StudyData, name: str, limits: tuple[float, float] | None = None) -> str:
    """Draw the objective at each level of one parameter: range, quartiles and median. Empty without measured trials.

    Args:
        data: The study.
        name: The parameter.
        limits: The range of the objective's axis, so that all parameters can share one.
    """
    found = levels(data, data.parameters[name])
    if not found:
        return ""
    metric = data.goal.objective.metric
    low = min(level.quartiles[0] for level in found)
    high = max(level.quartiles[4] for level in found)
    log = wants_log(limits or (low, high))
    unit, title, words = metric_axis(metric, high)
    row, top = 26, 30
    widest = min(250.0, 36 + 8.0 * max(len(_short(level.label, 28)) for level in found))
    svg = Svg(_WIDTH, top + row * len(found) + 52, f"{metric} by {name}")
    x = Scale(*span(list(limits or (low, high)), log=log), widest, _WIDTH - 84, log, unit)
    bottom = top + row * len(found) + 4
    for value in x.ticks(5):
        svg.line(x(value), top - 6, x(value), bottom, "grid")
        svg.text(x(value), bottom + 16, words(value), "tick", anchor="middle")
    svg.text((x.start + x.end) / 2, bottom + 36, title, "label", anchor="middle")
    svg.text(x.end + 12, top - 10, "trials", "tick")
    for i, level in enumerate(found):
        _box(svg, x, top + i * row + row / 2, level, lambda v: axis_words(metric, v))
    return svg.render()


def _box(svg: Svg, x: Scale, middle: float, level: ParameterLevel, words: Words) -> None:
    least, q1, median, q3, most = level.quartiles
    title = (
        f"{level.label}: median {words(median)}, middle half {words(q1)} to {words(q3)}, "
        f"all {words(least)} to {words(most)}; {count(level.count, 'trial')}, {percent(level.feasible)} feasible"
    )
    svg.text(x.start - 10, middle + 4, _short(level.label, 28), "strong" if level.best else "tick", anchor="end")
    svg.line(x(least), middle, x(most), middle, "whisker")
    svg.rect(x(q1), middle - 7, max(2.0, x(q3) - x(q1)), 14, "box", title)
    svg.line(x(median), middle - 8, x(median), middle + 8, "median")
    if level.best:
        svg.mark("best", x.end + 52, middle, "the recommended value", 3.6)
    svg.text(x.end + 12, middle + 4, f"{level.count:,}", "tick")


def _short(words: str, most: int) -> str:
    return words if len(words) <= most else words[: most - 1] + "…"


def effect_limits(data: StudyData) -> tuple[float, float] | None:
    """The range of the objective over all measured trials, or None without any."""
    values: Sequence[float] = data.objective[data.measured].tolist()
    return (min(values), max(values)) if values else None


def _values(data: StudyData, objective: Objective) -> Floats:
    found = losses(data, objective)
    return found if objective.goal == "minimise" else -found


def front_chart(data: StudyData, found: ParetoFront) -> str:
    """Draw the first two objectives against each other: feasible trials as points, the front as rings on steps.

    Empty with fewer than two trials on the front.
    """
    if len(found.rows) < 2:
        return ""
    first, second = found.objectives[:2]
    columns = [_values(data, one) for one in (first, second)]
    usable = data.feasible & np.isfinite(columns[0]) & np.isfinite(columns[1])
    shown = np.union1d(thin(np.flatnonzero(usable), _POINTS), found.rows)
    xs, ys = (column[shown] for column in columns)
    svg = Svg(_WIDTH, 360, title(found))
    log_x, log_y = wants_log(xs), wants_log(ys)
    (unit_x, name_x, words_x), (unit_y, name_y, words_y) = (
        metric_axis(one.metric, float(values.max())) for one, values in ((first, xs), (second, ys))
    )
    x = Scale(*span(xs.tolist(), log=log_x), 84, _WIDTH - 20, log_x, unit_x)
    y = Scale(*span(ys.tolist(), log=log_y), 305, 34, log_y, unit_y)
    axes_frame(svg, x, y, (name_x, name_y), (words_x, words_y))
    for row, a, b in zip(shown, xs, ys, strict=True):
        svg.mark("feasible", x(float(a)), y(float(b)), point_title(data, int(row)), 2.6)
    svg.path(_stairs([(x(float(columns[0][r])), y(float(columns[1][r]))) for r in found.rows]), "curve")
    for row in found.rows:
        place = x(float(columns[0][row])), y(float(columns[1][row]))
        svg.mark("front", *place, point_title(data, int(row)), 5.5)
    if data.best_row is not None and np.isfinite([c[data.best_row] for c in columns]).all():
        row = data.best_row
        svg.mark("best", x(float(columns[0][row])), y(float(columns[1][row])), point_title(data, row), 5.0)
    return svg.render()


def _stairs(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Turn a front into steps: from one trial, nothing is gained in the second objective until the next."""
    way: list[tuple[float, float]] = []
    for at, height in points:
        if way:
            way.append((at, way[-1][1]))
        way.append((at, height))
    return way


def draw_front(data: StudyData, figure: Figure) -> bool:
    """Draw the chart of `front_chart` with matplotlib.

    Returns:
        False with fewer than two trials on the front, or where the user did not ask for a front.
    """
    found = front(data)
    if len(found.rows) < 2 or not found.wanted:
        return False
    first, second = found.objectives[:2]
    xs, ys = _values(data, first), _values(data, second)
    usable = thin(np.flatnonzero(data.feasible & np.isfinite(xs) & np.isfinite(ys)), _POINTS)
    axes = figure.add_subplot()
    axes.scatter(xs[usable], ys[usable], s=16, c="#0072b2", alpha=0.45, linewidths=0, label="feasible")
    steps = np.array(_stairs([(float(xs[r]), float(ys[r])) for r in found.rows]))
    axes.plot(steps[:, 0], steps[:, 1], c="#0072b2", lw=1.6)
    axes.scatter(
        xs[found.rows],
        ys[found.rows],
        s=80,
        facecolors="none",
        edgecolors="#1b2733",
        linewidths=1.4,
        label="no other trial is as good in all",
    )
    if wants_log(xs[usable]):
        axes.set_xscale("log")
    if wants_log(ys[usable]):
        axes.set_yscale("log")
    axes.set_xlabel(_axis(first))
    axes.set_ylabel(_axis(second))
    axes.set_title(title(found))
    axes.legend(frameon=False)
    return True


def _axis(objective: Objective) -> str:
    return {"cost": "cost, USD this run", "runtime": "run time, seconds"}.get(objective.metric, objective.metric)
