"""Fills the charts of a study: the same for its page, for its HTML report and for PNG files."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tradewind.problem import COST, RUNTIME, Objective
from tradewind.reporting.charts.document import (
    Chart,
    ChartAxis,
    ChartBound,
    ChartLayer,
    ChartTable,
    ParallelAxis,
    ParallelChart,
    time_axis,
)
from tradewind.reporting.study.data import Floats, ParameterColumn, StudyData
from tradewind.reporting.study.effects import ParameterEffects
from tradewind.reporting.study.pareto import ParetoFront, cost_time_front, losses, sentence, title
from tradewind.reporting.study.series import MAX_POINTS, best_so_far, levels, outcomes, thin, wants_log
from tradewind.reporting.words import metric_scale, natural_key, percent, value_word, value_words
from tradewind.utils.units import count, format_bill, format_duration, format_money, runs_of_unit

_FEW = 600
"""Most points of the charts beside a curve, where all trials are in the map."""

_STEPS = 200
"""Most rows of the table of a curve."""

_FIFTHS = 5

Rows = NDArray[np.int64]


def metric_axis(metric: str, values: NDArray[np.float64], **more: Any) -> ChartAxis:
    """Return the axis of a metric, in the unit that suits its values."""
    if metric == RUNTIME:
        return time_axis("run time", float(np.nanmax(values, initial=0.0)), **more)
    return cost_axis(values, **more) if metric == COST else ChartAxis(metric, **more)


def cost_axis(costs: NDArray[np.float64], **more: Any) -> ChartAxis:
    """Return the axis of costs of runs: of so many runs as make them amounts that can be read."""
    known = costs[np.isfinite(costs) & (costs > 0)]
    runs = runs_of_unit(float(np.median(known)) if len(known) else None)
    return ChartAxis("cost, this run" if runs == 1 else f"cost, {runs:,} runs", "money", unit=1.0 / runs, **more)


def progress_chart(data: StudyData, most: int = _FEW, *, words: bool = True) -> Chart | None:
    """Chart the best so far against money spent in total, feasible trials as faint points; None without one.

    Args:
        data: The study.
        most: Most points besides the curve.
        words: Add the lines that show where the pointer rests: a page that has the trials makes them itself.
    """
    curve = best_so_far(data)
    if not len(curve.spent):
        return None
    metric = data.goal.objective.metric
    order = data.by_end
    total = np.full(len(data), math.nan)
    total[order] = np.cumsum(data.spent[order])
    rows = np.concatenate([kind.rows for kind in outcomes(data, most) if kind.name == "feasible"])
    rows = rows[np.isfinite(data.objective[rows]) & np.isfinite(total[rows])]
    values = data.objective[rows]
    steps = [*zip(curve.spent.tolist(), curve.best.tolist(), strict=True)]
    final = value_words(metric, steps[-1][1])
    heading, amount = metric_scale(metric, [value for _, value in steps])
    shown = thin(np.arange(len(steps)), _STEPS)
    return Chart(
        "best-so-far",
        f"Best {metric} so far, against money spent",
        ChartAxis("money spent in total", "money", low=0.0, high=max(curve.end * 1.02, 1e-9)),
        metric_axis(metric, values, log=wants_log(values)),
        [
            _points(data, "feasible", "feasible", rows, total, data.objective, words=words, faint=True),
            ChartLayer("steps", "best so far", "curve", [*steps, (curve.end, steps[-1][1])]),
            _points(data, f"best: {final}", "best", curve.rows[-1:], total, data.objective, curve.spent[-1:], words),
        ],
        note="Each step is a trial that beat all before it; points are feasible trials.",
        table=ChartTable(
            ["trial", "spent before and on it, in total", "run time" if metric == RUNTIME else heading],
            [[str(data.number[curve.rows[at]]), format_money(steps[at][0]), amount(steps[at][1])] for at in shown],
        ),
    )


def map_chart(data: StudyData, most: int = MAX_POINTS, *, words: bool = True) -> Chart | None:
    """Chart cost against run time of the ended trials on the whole input, with the deadline; None without one.

    Args:
        data: The study.
        most: Most points; the front and the best come on top.
        words: See `progress_chart`.
    """
    known = np.isfinite(data.cost) & np.isfinite(data.runtime)
    kinds = [(kind, kind.rows[known[kind.rows]]) for kind in outcomes(data, most)]
    rows = np.concatenate([shown for _, shown in kinds])
    if not len(rows):
        return None
    deadline = data.goal.constraints.deadline
    times, costs = data.runtime[rows], data.cost[rows]
    near = deadline if deadline and deadline < 8 * times.max() else None
    layers = [
        _points(data, f"{kind.name} ({kind.total:,})", kind.name, shown, data.runtime, data.cost, words=words)
        for kind, shown in reversed(kinds)
        if len(shown)
    ]
    edge = cost_time_front(data)
    if len(edge):
        ring = "none as cheap and as quick"
        layers.append(_points(data, ring, "front", edge, data.runtime, data.cost, words=words))
    if data.best_row is not None:
        best = np.array([data.best_row])
        layers.append(_points(data, "the best", "best", best, data.runtime, data.cost, words=words))
    thinned, parts = sum(kind.total - len(kind.rows) for kind, _ in kinds), int((data.ended & ~data.whole).sum())
    return Chart(
        "cost-time-map",
        "Cost and run time of every trial",
        time_axis("run time", max(float(times.max()), near or 0.0), log=wants_log(times)),
        cost_axis(costs, log=wants_log(costs)),
        layers,
        ChartBound(near, f"deadline {format_duration(near)}") if near else None,
        note="Left of the line is in time. Trials that were cut short stand at the least that they would have cost. "
        "A ring: no other feasible trial is both as cheap and as quick."
        + (f" Left out of the drawing: {count(thinned, 'trial')}." if thinned else "")
        + (f" Runs on a part of the input ({parts:,}) are not drawn." if parts else ""),
    )


def front_chart(data: StudyData, found: ParetoFront, *, words: bool = True) -> Chart | None:
    """Chart the first two objectives against each other: feasible trials as points, the front as rings on steps.

    None with fewer than two trials on the front.
    """
    if len(found.rows) < 2:
        return None
    first, second = found.objectives[:2]
    across, up = _values(data, first), _values(data, second)
    usable = data.feasible & np.isfinite(across) & np.isfinite(up)
    shown = np.union1d(thin(np.flatnonzero(usable), _FEW), found.rows)
    x, y = (
        metric_axis(one.metric, values[shown], log=wants_log(values[shown]))
        for one, values in ((first, across), (second, up))
    )
    layers = [
        _points(data, "feasible", "feasible", shown, across, up, words=words, faint=True),
        ChartLayer("steps", "", "feasible", [(float(across[row]), float(up[row])) for row in found.rows]),
        _points(data, "no other trial is as good in all", "front", found.rows, across, up, words=words),
    ]
    if data.best_row is not None and np.isfinite([across[data.best_row], up[data.best_row]]).all():
        layers.append(_points(data, "the best", "best", np.array([data.best_row]), across, up, words=words))
    lines = [
        [str(data.number[row]), value_words(first.metric, across[row]), value_words(second.metric, up[row])]
        for row in found.rows
    ]
    table = ChartTable(["trial", first.metric, second.metric], lines)
    return Chart("trade-off", title(found), x, y, layers, note=sentence(found), table=table, height=360)


def level_chart(
    data: StudyData, name: str, limits: tuple[float, float] | None = None, *, words: str = ""
) -> Chart | None:
    """Chart the objective at each level of one parameter: range, quartiles and median; None without measured trials.

    Args:
        data: The study.
        name: The parameter.
        limits: The range of the objective's axis, so that all parameters can share one.
        words: What is known of the parameter's effect.
    """
    found = levels(data, data.parameters[name])
    if not found:
        return None
    metric = data.goal.objective.metric
    low, high = limits or (min(one.quartiles[0] for one in found), max(one.quartiles[4] for one in found))
    about = [
        f"{one.label}: median {value_words(metric, one.quartiles[2])}\n"
        f"middle half {value_words(metric, one.quartiles[1])} to {value_words(metric, one.quartiles[3])}\n"
        f"{count(one.count, 'trial')}, {percent(one.feasible)} feasible"
        for one in found
    ]
    boxes = [(one.quartiles[1], at - 0.3, one.quartiles[3], at + 0.3) for at, one in enumerate(found)]
    best = [at for at, one in enumerate(found) if one.best]
    labels = [(float(at), f"{one.label} ★" if one.best else one.label) for at, one in enumerate(found)]
    return Chart(
        f"levels-{name}",
        f"{metric} by {name}",
        metric_axis(metric, np.array([low, high]), log=wants_log([low, high])),
        ChartAxis(low=-0.6, high=len(found) - 0.4, labels=labels, down=True),
        [
            ChartLayer("segments", "", "soft", [(o.quartiles[0], i, o.quartiles[4], i) for i, o in enumerate(found)]),
            ChartLayer(
                "boxes", "", "box", boxes, about, looks=["best-box" if i in best else "box" for i in range(len(found))]
            ),
            ChartLayer(
                "segments",
                "",
                "ink",
                [(o.quartiles[2], i - 0.38, o.quartiles[2], i + 0.38) for i, o in enumerate(found)],
            ),
        ],
        note=words,
        table=ChartTable(
            [name, "least", "a quarter below", "median", "a quarter above", "greatest", "trials"],
            [[one.label, *(value_words(metric, q) for q in one.quartiles), f"{one.count:,}"] for one in found],
        ),
        height=64 + 30 * len(found),
    )


def level_charts(data: StudyData, told: ParameterEffects | None) -> dict[str, Chart]:
    """Return the chart of each parameter, those with the largest effects first."""
    known = {one.parameter: one.words(data.goal.objective.metric) for one in told.found} if told else {}
    measured = data.objective[data.measured]
    limits = (float(measured.min()), float(measured.max())) if len(measured) else None
    names = dict.fromkeys([*known, *data.parameters])
    drawn = {name: level_chart(data, name, limits, words=known.get(name, "")) for name in names}
    return {name: chart for name, chart in drawn.items() if chart is not None}


def parallel_chart(data: StudyData, told: ParameterEffects | None, most: int = MAX_POINTS) -> ParallelChart | None:
    """Chart every ended trial as a line over its parameters, the largest effects first, and its figures.

    Args:
        data: The study.
        told: What is known of the parameters.
        most: Most lines; the best trials are always among them.
    """
    metric = data.goal.objective.metric
    names = list(dict.fromkeys([*(told.names if told else []), *data.parameters]))
    pairs = [_parameter_axis(data.parameters[name]) for name in names]
    figures = {"objective": data.objective} if metric not in (COST, RUNTIME) else {}
    for id_, values in (figures | {"runtime": data.runtime, "cost": data.cost}).items():
        axis = metric_axis(metric if id_ == "objective" else id_, values)
        about = axis.title.removesuffix(", this run")
        pairs.append((ParallelAxis(id_, about, axis.kind, wants_log(values, 30.0), axis.unit), values))
    pairs = [(axis, values) for axis, values in pairs if len(np.unique(values[np.isfinite(values)])) > 1]
    ended = np.flatnonzero(data.ended)
    if len(pairs) < 2 or not len(ended):
        return None
    ranked = data.ranking
    ranks = np.full(len(data), _FIFTHS)
    ranks[ranked] = np.arange(len(ranked)) * _FIFTHS // max(1, len(ranked))
    rows = ended if len(ended) <= most else np.union1d(ranked[: most // 5], thin(ended, most * 4 // 5))
    return ParallelChart(
        "parallel-coordinates",
        "All trials, parameter by parameter",
        [axis for axis, _ in pairs],
        np.column_stack([values[rows] for _, values in pairs]).tolist(),
        ranks[rows].tolist(),
        data.number[rows].tolist(),
        None if data.best_row is None else int(data.number[data.best_row]),
        "A line is a trial, the strongest colours are the best fifth. Drag along an axis to keep a range of it."
        + (f" {len(rows):,} of {len(ended):,} lines are drawn." if len(rows) < len(ended) else ""),
    )


def point_words(data: StudyData, row: int) -> str:
    """Lines shown where the pointer rests on a trial: state, configuration, cost, run time and objective."""
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


def _points(
    data: StudyData,
    name: str,
    look: str,
    rows: Rows,
    across: Floats,
    up: Floats,
    places: Sequence[float] | Floats | None = None,
    words: bool = True,
    *,
    faint: bool = False,
) -> ChartLayer:
    """Return trials as points; ``places`` are where they stand across, if not at their own value."""
    chosen: Iterable[float] = (across[rows] if places is None else np.asarray(places)).tolist()
    pairs = list(zip(chosen, up[rows].tolist(), strict=True))
    about = [point_words(data, int(row)) for row in rows] if words else ()
    return ChartLayer("points", name, look, pairs, about, data.number[rows].tolist(), faint=faint)


def _values(data: StudyData, objective: Objective) -> Floats:
    found = losses(data, objective)
    return found if objective.goal == "minimise" else -found


def _parameter_axis(column: ParameterColumn) -> tuple[ParallelAxis, Floats]:
    if column.numbers is not None:
        numbers = np.where(column.active, column.numbers, math.nan)
        return ParallelAxis(f"p {column.name}", column.name, log=wants_log(numbers, 30.0)), numbers
    words = [None if value is None else value_word(value) for value in column.values]
    labels = sorted({word for word in words if word is not None}, key=natural_key)
    places = {word: float(at) for at, word in enumerate(labels)}
    values = np.array([math.nan if word is None else places[word] for word in words])
    return ParallelAxis(f"p {column.name}", column.name, labels=labels), values
