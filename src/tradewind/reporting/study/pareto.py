"""Several objectives at once: the trials that no other trial beats in all of them, whatever searcher proposed them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tradewind.errors import InputError
from tradewind.problem import COST, RUNTIME, Objective
from tradewind.reporting.study.data import Floats, StudyData
from tradewind.reporting.study.series import thin
from tradewind.reporting.study.tables import grid_table
from tradewind.reporting.text_layout import TableColumn, TextTable
from tradewind.reporting.words import value_words
from tradewind.utils.units import bill_column

MAX_LINES = 20
"""Trials of the front in the terminal's table."""


@dataclass(frozen=True, slots=True)
class ParetoFront:
    """The non-dominated trials of a study.

    Attributes:
        objectives: The objectives that are compared; the first is the study's objective.
        rows: Rows of the data, by the first objective, the best first; of trials that are equal in all, the first.
        values: Their values, shape (rows, objectives).
        among: Number of feasible trials on the whole input that have a value of every objective.
        wanted: True when the user named several objectives.
    """

    objectives: tuple[Objective, ...]
    rows: NDArray[np.int64]
    values: Floats
    among: int
    wanted: bool


def front(data: StudyData) -> ParetoFront:
    """Find the trials that no other one equals or beats in all objectives.

    The objectives are the study's and those in its ``also``. Where it has no others, cost stands beside the run time,
    the run time beside cost, and cost beside any other metric. Only feasible trials on the whole input count.
    """
    main = data.goal.objective
    others = main.also or (Objective(RUNTIME) if main.metric == COST else Objective(COST),)
    objectives = (replace(main, also=()), *others)
    table = np.column_stack([losses(data, one) for one in objectives])
    rows = np.flatnonzero(data.feasible & np.isfinite(table).all(axis=1))
    kept = rows[non_dominated(table[rows])]
    signs = np.array([1.0 if one.goal == "minimise" else -1.0 for one in objectives])
    return ParetoFront(objectives, kept, table[kept] * signs, len(rows), bool(main.also))


def cost_time_front(data: StudyData) -> NDArray[np.int64]:
    """Rows of the feasible trials on the whole input that no other is both as cheap and as quick as; by cost."""
    table = np.column_stack([data.cost, data.runtime])
    rows = np.flatnonzero(data.feasible & np.isfinite(table).all(axis=1))
    found: NDArray[np.int64] = rows[non_dominated(table[rows])]
    return found


def losses(data: StudyData, objective: Objective) -> Floats:
    """The values of one objective in all trials, as something to minimise; NaN where there is none."""
    known = {COST: data.cost, RUNTIME: data.runtime, data.goal.objective.metric: data.objective}
    values = known.get(objective.metric, data.extra.get(objective.metric))
    if values is None:
        return np.full(len(data), math.nan)
    return values if objective.goal == "minimise" else -values


def non_dominated(losses: Floats) -> NDArray[np.int64]:
    """The rows that no other row equals or beats in every column, by the first column.

    Args:
        losses: Values to minimise, finite, shape (n, k).

    Returns:
        Row numbers; of equal rows only the first.
    """
    order = np.lexsort((np.arange(len(losses)), *losses.T[::-1]))
    kept: list[int] = []
    best = np.zeros((0, losses.shape[1]))
    for row in order:
        # Rows come in lexicographic order, so that only those kept already can dominate the next.
        if not np.any((best <= losses[row]).all(axis=1)):
            kept.append(int(row))
            best = losses[kept]
    return np.array(kept, dtype=np.int64)


def read_also(words: Sequence[str]) -> tuple[Objective, ...]:
    """Further objectives of the command line: ``runtime``, ``max:accuracy``.

    Raises:
        InputError: One of them has no metric, or a goal that is none.
    """
    found = []
    goals = {"min": "minimise", "minimise": "minimise", "max": "maximise", "maximise": "maximise"}
    for text in words:
        goal, colon, metric = text.rpartition(":")
        if not metric or (colon and goal not in goals):
            raise InputError(f"--also {text!r} is no objective", hint="write --also runtime, or --also max:accuracy")
        found.append(Objective(metric, "maximise" if goals.get(goal) == "maximise" else "minimise"))
    return tuple(found)


# ---------------------------------------------------------------------- showing


def title(found: ParetoFront) -> str:
    """Heading that names the objectives that are traded for each other."""
    return "Trade-off between " + " and ".join(one.metric for one in found.objectives)


def sentence(found: ParetoFront) -> str:
    """Summarise the front in one sentence."""
    if not len(found.rows):
        return "No feasible trial has a value of every objective."
    if len(found.rows) == 1:
        which = f"One of {found.among:,} feasible trials" if found.among > 1 else "The only feasible trial"
        return f"{which} is the best in all objectives at once."
    return (
        f"{len(found.rows):,} of {found.among:,} feasible trials: no other trial is as good as one of them in all "
        f"objectives at once. The first is the best by {found.objectives[0].metric} alone."
    )


def front_table(data: StudyData, found: ParetoFront, width: int) -> TextTable:
    """The non-dominated trials, the best by the first objective first; of many, an even choice.

    Where a configuration would be cut, each is below its line.
    """
    unit, bill = _bills(found)
    columns = [
        TableColumn("trial", right=True),
        *(TableColumn(_heading(one, unit), right=True) for one in found.objectives),
        TableColumn("configuration", least=16, below=True),
    ]
    places = thin(np.arange(len(found.rows)), MAX_LINES)
    rows = []
    for place in places:
        row = int(found.rows[place])
        values = [
            bill(float(v)) if o.metric == COST else value_words(o.metric, float(v))
            for o, v in zip(found.objectives, found.values[place], strict=True)
        ]
        star = "★ " if row == data.best_row else ""
        rows.append([f"{star}{data.number[row]}", *values, data.words_of(row)])
    return grid_table(columns, rows, [{} for _ in rows], width)


def _bills(found: ParetoFront) -> tuple[str, Callable[[float | None], str]]:
    """The unit of the column of costs, and how each is written."""
    columns = [i for i, one in enumerate(found.objectives) if one.metric == COST]
    return bill_column(float(values[i]) for values in found.values for i in columns)


def _heading(objective: Objective, unit: str) -> str:
    words = {COST: f"cost, {unit}", RUNTIME: "run time"}.get(objective.metric, objective.metric)
    return words if objective.goal == "minimise" else f"{words}, to be large"


def front_document(data: StudyData, found: ParetoFront) -> dict[str, object]:
    """The front as JSON."""
    return {
        "objectives": [{"metric": one.metric, "goal": one.goal} for one in found.objectives],
        "among": found.among,
        "trials": [
            {
                "trial": int(data.number[row]),
                "values": {one.metric: float(v) for one, v in zip(found.objectives, values, strict=True)},
                "configuration": data.configuration(int(row)),
            }
            for row, values in zip(found.rows, found.values, strict=True)
        ],
    }
