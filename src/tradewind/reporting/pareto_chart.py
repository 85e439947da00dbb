"""The trade-off between two objectives, drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tradewind.problem import Objective
from tradewind.reporting.study.charts import axes_frame, metric_axis, point_title
from tradewind.reporting.study.data import Floats, StudyData
from tradewind.reporting.study.pareto import ParetoFront, front, losses, title
from tradewind.reporting.study.series import thin, wants_log
from tradewind.reporting.svg import Scale, Svg, span

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_POINTS = 600
_FRONT_WIDTH = 720.0


def _values(data: StudyData, objective: Objective) -> Floats:
    found = losses(data, objective)
    return found if objective.goal == "minimise" else -found


def front_chart(data: StudyData, found: ParetoFront) -> str:
    """The first two objectives against each other: feasible trials as points, the front as rings on steps.

    Empty with fewer than two trials on the front.
    """
    if len(found.rows) < 2:
        return ""
    first, second = found.objectives[:2]
    columns = [_values(data, one) for one in (first, second)]
    usable = data.feasible & np.isfinite(columns[0]) & np.isfinite(columns[1])
    shown = np.union1d(thin(np.flatnonzero(usable), _POINTS), found.rows)
    xs, ys = (column[shown] for column in columns)
    svg = Svg(_FRONT_WIDTH, 360, title(found))
    log_x, log_y = wants_log(xs), wants_log(ys)
    (unit_x, name_x, words_x), (unit_y, name_y, words_y) = (
        metric_axis(one.metric, float(values.max())) for one, values in ((first, xs), (second, ys))
    )
    x = Scale(*span(xs.tolist(), log=log_x), 84, _FRONT_WIDTH - 20, log_x, unit_x)
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
    """The front as steps: from one trial, nothing is gained in the second objective until the next."""
    way: list[tuple[float, float]] = []
    for at, height in points:
        if way:
            way.append((at, way[-1][1]))
        way.append((at, height))
    return way


def draw_front(data: StudyData, figure: Figure) -> bool:
    """As `front_chart`, by matplotlib; False with fewer than two trials on the front or without a wish for it."""
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
