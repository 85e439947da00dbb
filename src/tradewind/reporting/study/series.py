"""Computes the numbers that the text, SVG and PNG charts of a study share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from tradewind.problem import TrialState
from tradewind.problem.ranking import ConfigurationRanking
from tradewind.reporting.study.data import Floats, Mask, ParameterColumn, StudyData

MAX_POINTS = 1200
"""Most points of a chart: more cannot be distinguished, and a page of 100,000 does not open."""

_MAX_LEVELS = 10
_BINS = 6


@dataclass(frozen=True, slots=True)
class ProgressCurve:
    """Best-so-far against money spent.

    Attributes:
        spent: USD total at each change, increasing.
        best: The best value from there on.
        rows: The trial that brought it or that stands for it, as a row of the data.
        end: USD total spent on all ended trials.
    """

    spent: Floats
    best: Floats
    rows: NDArray[np.int64]
    end: float


@dataclass(frozen=True, slots=True)
class OutcomeGroup:
    """Trials of one outcome, as points.

    Attributes:
        name: ``feasible``, ``infeasible``, ``failed``, ``aborted`` or ``lost``.
        rows: Rows of the data that are shown.
        total: Number of trials of this outcome, shown or not.
    """

    name: str
    rows: NDArray[np.int64]
    total: int


@dataclass(frozen=True, slots=True)
class ParameterLevel:
    """Measurements of the trials with one value (or one range of values) of a parameter.

    Attributes:
        label: The value, or the range.
        count: Trials.
        quartiles: Least, first quartile, median, third quartile and greatest value of the objective.
        feasible: Share of them that kept all constraints.
        best: True where the best configuration has this value.
    """

    label: str
    count: int
    quartiles: tuple[float, float, float, float, float]
    feasible: float
    best: bool


def best_so_far(data: StudyData) -> ProgressCurve:
    """The curve of the best feasible value against the money spent on all trials up to its end.

    Where repeated runs vary it is the mean of what was the best configuration then, which may get worse again.
    """
    order = data.by_end
    total = np.cumsum(data.spent[order])
    if data.standing is not None and data.standing.varies:
        return _best_on_average(data, data.standing, total)
    loss = np.where(data.feasible[order], data.loss[order], np.inf)
    best = np.minimum.accumulate(loss) if len(loss) else loss
    before = np.concatenate([[np.inf], best[:-1]]) if len(best) else best
    at = np.flatnonzero(best < before)
    sign = 1.0 if data.goal.objective.goal == "minimise" else -1.0
    return ProgressCurve(total[at], sign * best[at], order[at], float(total[-1]) if len(total) else 0.0)


def _best_on_average(data: StudyData, standing: ConfigurationRanking, total: Floats) -> ProgressCurve:
    """The curve where runs vary: the mean of the runs so far, of the configuration that looked best by it.

    The risk of missing a bound is taken from all runs: what turned out to be late was no good choice before, either.
    """
    risk = {standing.runs[i][0].key: float(standing.value[i] - standing.loss[i]) for i in standing.order.tolist()}
    sign = data.goal.objective.loss
    losses: dict[str, list[float]] = {}
    last: dict[str, int] = {}
    heap: list[tuple[float, str, int]] = []
    points: list[tuple[float, float, int]] = []
    rows = data.by_end
    columns = (total, data.words["key"][rows], data.loss[rows], data.measured[rows], data.feasible[rows], rows)
    for spent, key, loss, ran, good, row in zip(*(column.tolist() for column in columns), strict=True):
        if not ran or key not in risk:
            continue
        own = losses.setdefault(key, [])
        own.append(own[-1] + loss if own else loss)  # sums
        if good:
            last[key] = row
        if key in last:
            heappush(heap, (own[-1] / len(own) + risk[key], key, len(own)))
        while heap and heap[0][2] != len(losses[heap[0][1]]):
            heappop(heap)
        if heap:
            best = heap[0][1]
            value = sign(losses[best][-1] / len(losses[best]))
            if not points or value != points[-1][1]:
                points.append((spent, value, last[best]))
    if points and data.best_row is not None and standing.best_loss is not None:
        points[-1] = (points[-1][0], sign(standing.best_loss), data.best_row)
    spent_at, values, at = (np.array(column) for column in zip(*points, strict=True)) if points else (np.empty(0),) * 3
    return ProgressCurve(spent_at, values, at.astype(np.int64), float(total[-1]))


def outcomes(data: StudyData, limit: int = MAX_POINTS) -> list[OutcomeGroup]:
    """The ended trials on the whole input by outcome, thinned out evenly to ``limit`` points; the best ten always stay.

    What a part of the input costs and takes is no cost and time of its configuration: it would look cheap and quick.
    """
    states: list[tuple[str, Mask]] = [
        ("feasible", data.having(TrialState.SUCCEEDED) & data.feasible_flag),
        ("infeasible", data.infeasible),
        ("failed", data.having(TrialState.FAILED)),
        ("aborted", data.having(TrialState.ABORTED)),
        ("lost", data.having(TrialState.LOST)),
    ]
    masks = [(name, mask & data.whole) for name, mask in states]
    total = sum(int(mask.sum()) for _, mask in masks)
    keep = data.ranking[:10]
    kinds = []
    for name, mask in masks:
        rows = np.flatnonzero(mask)
        shown = thin(rows, max(20, int(limit * len(rows) / total)) if total > limit else len(rows))
        if name == "feasible":
            shown = np.union1d(shown, keep)
        kinds.append(OutcomeGroup(name, shown, len(rows)))
    return kinds


def thin(rows: NDArray[np.int64], limit: int) -> NDArray[np.int64]:
    """At most ``limit`` of some rows, evenly spread over them."""
    if len(rows) <= limit:
        return rows
    chosen: NDArray[np.int64] = rows[np.linspace(0, len(rows) - 1, limit).astype(np.int64)]
    return chosen


def grouping(column: ParameterColumn) -> tuple[list[str], NDArray[np.int64]]:
    """The levels of a parameter and the level of each trial.

    A number with more than ten different values is cut into ranges that hold about as many trials each. Where the
    parameter was not active, the level is ``not used``.

    Returns:
        Labels, and for each trial the index of its label.
    """
    numbers = column.numbers
    if numbers is None:
        words = np.array(["not used" if value is None else str(value) for value in column.values], dtype=str)
        labels, codes = np.unique(words, return_inverse=True)
        return [str(label) for label in labels], codes.astype(np.int64)
    known = numbers[column.active]
    distinct = np.unique(known)
    if len(distinct) <= _MAX_LEVELS:
        names = [f"{value:.6g}" for value in distinct]
        codes = np.searchsorted(distinct, np.nan_to_num(numbers))
    else:
        inner = np.unique(np.quantile(known, np.linspace(0, 1, _BINS + 1)[1:-1]))
        codes = np.searchsorted(inner, np.nan_to_num(numbers), side="left")
        names = _range_names(known, np.searchsorted(inner, known, side="left"), len(inner) + 1)
    codes = np.where(column.active, codes, len(names)).astype(np.int64)
    return [*names, *([] if column.active.all() else ["not used"])], codes


def _range_names(values: Floats, codes: NDArray[np.int64], bins: int) -> list[str]:
    names = []
    for index in range(bins):
        inside = values[codes == index]
        if not len(inside):
            names.append("")
            continue
        low, high = f"{inside.min():.3g}", f"{inside.max():.3g}"
        names.append(low if low == high else f"{low}…{high}")
    return names


def levels(data: StudyData, column: ParameterColumn, most: int = 14) -> list[ParameterLevel]:
    """Summarise the measured trials at each level of a parameter.

    Args:
        data: The study.
        column: The parameter.
        most: Levels at most; of more, those with the best medians are kept, in their own order.
    """
    labels, codes = grouping(column)
    best = data.best_row
    found = []
    for index, label in enumerate(labels):
        rows = np.flatnonzero(data.measured & (codes == index))
        if not len(rows):
            continue
        # The difference of the two greatest numbers there are is infinite, that of their quarters is not.
        q = 4.0 * np.quantile(data.objective[rows] / 4.0, [0, 0.25, 0.5, 0.75, 1])
        share = float(data.feasible[rows].mean())
        quartiles = (float(q[0]), float(q[1]), float(q[2]), float(q[3]), float(q[4]))
        found.append(ParameterLevel(label, len(rows), quartiles, share, best is not None and int(codes[best]) == index))
    if len(found) <= most:
        return found
    sign = 1.0 if data.goal.objective.goal == "minimise" else -1.0
    kept = sorted(range(len(found)), key=lambda i: (not found[i].best, sign * found[i].quartiles[2]))[:most]
    return [found[i] for i in sorted(kept)]


def wants_log(values: Sequence[float] | Floats, ratio: float = 12.0) -> bool:
    """True when values are all above zero and the greatest is more than ``ratio`` times the least.

    A linear axis would then hide the differences between the small ones.
    """
    array = np.asarray(values, dtype=float)
    array = array[np.isfinite(array)]
    return bool(len(array) > 1 and array.min() > 0 and array.min() < array.max() / ratio)
