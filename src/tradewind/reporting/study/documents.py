"""A study as JSON-able documents: what ``--json`` prints, and what pages draw."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import IO, Any

import numpy as np

from tradewind.problem import COST, RUNTIME, TrialState
from tradewind.reporting.charts.document import DIGITS, Chart, ParallelChart, chart_json
from tradewind.reporting.study.charts import level_charts, map_chart, parallel_chart, progress_chart
from tradewind.reporting.study.data import Floats, ParameterColumn, StudyData, read_goal
from tradewind.reporting.study.effects import METHOD, ParameterEffects, parameter_effects
from tradewind.reporting.study.explanation import explain_choice
from tradewind.reporting.study.pareto import front, front_document
from tradewind.reporting.study.series import best_so_far
from tradewind.reporting.study.tables import state_words
from tradewind.reporting.words import natural_key, value_word
from tradewind.store.base import Store, StudySummary
from tradewind.store.studies.tabular import flat_rows
from tradewind.store.studies.tabular import trial_document as trial_document


def summary_document(summary: StudySummary) -> dict[str, Any]:
    """Describe a study as a whole: its goal, its progress, what it has spent, and its best trial."""
    study = summary.study
    goal = read_goal(study.spec)
    kept = [
        {
            "machines_of": lease.cluster,
            "offer": lease.offer_key,
            "price_per_hour": lease.hourly,
            "until": lease.until,
            "cost": lease.cost,
        }
        for lease in summary.kept
    ]
    return {
        "id": study.id,
        "name": study.name,
        "kind": study.kind,
        "state": state_words(summary),
        "reason": study.reason,
        "objective": {"metric": goal.objective.metric, "goal": goal.objective.goal},
        "deadline": goal.constraints.deadline,
        "budget": {"dollars": goal.budget.dollars, "hours": goal.budget.hours, "trials": goal.budget.trials},
        "searcher": goal.searcher,
        "counts": dict(summary.counts),
        "spent": summary.spent,
        "simulated": goal.simulated,
        "reserved": summary.reserved,
        **({"kept": kept} if kept else {}),
        "elapsed": study.elapsed,
        "created": study.created,
        "running_since": summary.running_since,
        "holder": summary.holder,
        "best": trial_document(summary.best) if summary.best is not None else None,
    }


def write_csv(store: Store, study_id: int, stream: IO[str], *, guarded: bool = False) -> int:
    """Write all trials as CSV with a heading.

    Args:
        store: An open store.
        study_id: The study's number in it.
        stream: Text stream that is written to.
        guarded: Put an apostrophe before words that a spreadsheet would carry out as a formula. For files that people
            get of others; a program would read another word than was written.

    Returns:
        The number of trials.
    """
    found = flat_rows(store, study_id)
    if guarded:
        found = [{_unspoken(name): _unspoken(value) for name, value in row.items()} for row in found]
    names = list(found[0]) if found else ["number", "state", "configuration"]
    writer = csv.DictWriter(stream, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(found)
    return len(found)


def _unspoken(value: Any) -> Any:
    if not isinstance(value, str) or not value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def write_json_lines(found: Iterator[Mapping[str, Any]], stream: IO[str]) -> int:
    """Write documents as JSON, one a line; returns how many."""
    written = 0
    for one in found:
        stream.write(json.dumps(one, ensure_ascii=False, default=str) + "\n")
        written += 1
    return written


def write_json(found: Iterator[Mapping[str, Any]], stream: IO[str]) -> int:
    """Write documents as one JSON array, one a line, without holding them all; returns how many."""
    written = 0
    stream.write("[")
    for one in found:
        stream.write(("\n" if not written else ",\n") + json.dumps(one, ensure_ascii=False, default=str))
        written += 1
    stream.write("\n]\n" if written else "]\n")
    return written


PAGE_POINTS = 20_000
"""Most points of a chart on a page, whose library draws so many at once."""

_TIMES = ("created", "started", "ended")
_FIGURES = ("objective", "cost", "runtime", "spent", "fidelity", "price_per_hour")
_MOST_REASONS = 300


def report_document(data: StudyData) -> dict[str, Any]:
    """The recommendation, the reasons, and the curve."""
    effects = parameter_effects(data)
    curve = best_so_far(data)
    return {
        **summary_document(data.summary),
        "best": trial_document(data.best) if data.best is not None else None,
        "why": explain_choice(data, effects),
        "effects": _effects(data, effects),
        "pareto": front_document(data, front(data)),
        "best_so_far": [
            {"spent": spent, "objective": best, "trial": int(data.number[row])}
            for spent, best, row in zip(curve.spent.tolist(), curve.best.tolist(), curve.rows, strict=True)
        ],
    }


def figures_document(data: StudyData, *, by_command: bool = True) -> dict[str, Any]:
    """Make the document of a study's charts beside its trials: curve, fronts, effects, levels and sentences.

    Args:
        data: The study.
        by_command: See `explain_choice`.

    Returns:
        ``words`` (sentences), ``curve`` (``spent``, ``best``, ``number``: the trial that brought it; ``end``),
        ``pareto`` (where several objectives are named), ``effects`` (of each varied parameter, the largest first),
        ``method`` (how they were estimated), ``charts`` (``progress``, ``map`` and ``parallel``, as
        `tradewind.reporting.charts.document` describes them, None where there is nothing to draw), ``levels`` (the
        chart of each parameter) and ``split`` (money by state).
    """
    effects = parameter_effects(data)
    curve = best_so_far(data)
    traded = front(data)
    return {
        "words": explain_choice(data, effects, by_command=by_command),
        "curve": {
            "spent": short(curve.spent),
            "best": short(curve.best),
            "number": data.number[curve.rows].tolist(),
            "end": curve.end,
        },
        "pareto": front_document(data, traded) if traded.wanted else None,
        "effects": _effects(data, effects),
        "method": METHOD,
        "charts": {
            "progress": _drawn(progress_chart(data, PAGE_POINTS, words=False)),
            "map": _drawn(map_chart(data, PAGE_POINTS, words=False)),
            "parallel": _drawn(parallel_chart(data, effects)),
        },
        "levels": {name: chart_json(chart) for name, chart in level_charts(data, effects).items()},
        "split": _split(data),
    }


def trials_document(data: StudyData, since: int = 0, limit: int | None = None) -> dict[str, Any]:
    """Trials by column, small enough to send 10,000 of them to a page.

    Args:
        data: The study.
        since: The number of the first trial.
        limit: Most trials to return; None for all.

    Returns:
        ``total`` (trials of the study), ``next`` (where the next page begins, or None), ``columns`` (numbers as lists
        with None where there is none, words as ``{"words": [...], "codes": [...]}``, times as seconds after
        ``origin``), ``parameters`` (``name`` and ``values``, likewise; None where a parameter was not active),
        ``reasons`` (by trial number, of the trials that matter most), ``best`` (a trial number or None), ``early``
        (numbers of the trials that were stopped early) and ``open_from`` (the first number that may still change).
    """
    first = int(np.searchsorted(data.number, since))
    last = len(data) if limit is None else min(len(data), first + limit)
    rows = slice(first, last)
    states = np.where(data.infeasible, "infeasible", data.states)
    columns: dict[str, Any] = {"number": data.number[rows].tolist(), "state": coded(states[rows])}
    columns |= {name: short(data.floats[name][rows]) for name in _FIGURES}
    columns |= {name: _after(data.floats[name][rows], data.study.created) for name in _TIMES}
    columns["nodes"] = data.nodes[rows].tolist()
    columns |= {name: coded(data.words[name][rows]) for name in ("provider", "instance_type")}
    unended = np.flatnonzero(~data.ended)
    return {
        "total": len(data),
        "next": int(data.number[last]) if last < len(data) else None,
        "origin": data.study.created,
        "columns": columns,
        "parameters": [{"name": name, "values": _values(column, rows)} for name, column in data.parameters.items()],
        "reasons": _reasons(data, first, last),
        "best": int(data.number[data.best_row]) if data.best_row is not None else None,
        "early": data.number[rows][data.early[rows]].tolist(),
        "open_from": int(data.number[unended[0]]) if len(unended) else (int(data.number[-1]) + 1 if len(data) else 0),
    }


def short(values: Floats) -> list[float | None]:
    """Numbers to `DIGITS` figures, None where there is none: as text they take half of the place."""
    known = np.isfinite(values) & (values != 0)
    size = np.zeros(len(values))
    size[known] = np.floor(np.log10(np.abs(values[known])))
    places = np.clip(DIGITS - 1 - size, -300, 300)
    # Only a whole power of ten keeps 0.1 at 0.1: one below zero would multiply with something that is not exact.
    up, down = 10.0 ** np.maximum(places, 0), 10.0 ** np.maximum(-places, 0)
    rounded = np.round(values * up / down) * down / up
    return _known(rounded)


def coded(words: Any) -> dict[str, Any]:
    """Words that repeat, each once, and the place of each row's word among them."""
    distinct, codes = np.unique(np.asarray(words, dtype=str), return_inverse=True)
    return {"words": distinct.tolist(), "codes": codes.tolist()}


def _after(moments: Floats, origin: float) -> list[float | None]:
    return _known(np.round(moments - origin, 3))


def _known(values: Floats) -> list[float | None]:
    numbers: list[float] = values.tolist()
    return [number if math.isfinite(number) else None for number in numbers]


def _values(column: ParameterColumn, rows: slice) -> Any:
    values = column.values[rows]
    if column.numbers is not None:
        return short(column.numbers[rows])
    words = [None if value is None else value_word(value) for value in values]
    distinct = sorted({word for word in words if word is not None}, key=natural_key)
    place = {word: i for i, word in enumerate(distinct)}
    return {"words": distinct, "codes": [None if word is None else place[word] for word in words]}


def _reasons(data: StudyData, first: int, last: int) -> Mapping[str, str]:
    low, high = (int(data.number[first]), int(data.number[last - 1])) if last > first else (0, -1)
    return {str(n): text[:_MOST_REASONS] for n, text in data.reasons.items() if low <= n <= high}


def _effects(data: StudyData, effects: ParameterEffects | None) -> list[dict[str, Any]]:
    """The effects with their words; ``weight`` compares them, 1 for the largest and 0 where the runs do not tell."""
    if effects is None:
        return []
    most = max((one.weight for one in effects.found), default=0.0) or 1.0
    return [
        {
            **{name: _figure(value) for name, value in asdict(one).items()},
            "weight": one.weight / most,
            "words": one.words(data.goal.objective.metric),
        }
        for one in effects.found
    ]


def _figure(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _drawn(chart: Chart | ParallelChart | None) -> dict[str, Any] | None:
    return None if chart is None else chart_json(chart)


def _split(data: StudyData) -> list[dict[str, Any]]:
    total = float(data.spent.sum())
    rows = []
    for state in TrialState:
        mask = data.having(state)
        if mask.any():
            money = float(data.spent[mask].sum())
            share = money / total if math.isfinite(total) and total > 0 else 0.0
            rows.append({"state": state.value, "trials": int(mask.sum()), "dollars": money, "share": share})
    return rows


def axis_words(metric: str) -> dict[str, str]:
    """Unit in which an axis of a metric counts (``money``, ``time`` or ``number``), and the title of the axis."""
    if metric == COST:
        return {"kind": "money", "title": "cost, this run"}
    if metric == RUNTIME:
        return {"kind": "time", "title": "run time"}
    return {"kind": "number", "title": metric}
