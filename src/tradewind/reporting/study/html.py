"""The report as one HTML file that asks no host for anything."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from tradewind import __version__
from tradewind.errors import InputError
from tradewind.problem import TrialState
from tradewind.reporting.charts.document import Chart, ParallelChart
from tradewind.reporting.charts.one_page import render_page
from tradewind.reporting.study.charts import front_chart, level_charts, map_chart, parallel_chart, progress_chart
from tradewind.reporting.study.data import StudyData
from tradewind.reporting.study.effects import METHOD, ParameterEffects, parameter_effects
from tradewind.reporting.study.explanation import explain_choice
from tradewind.reporting.study.pareto import front
from tradewind.reporting.study.tables import TrialLine, best_facts, share_words, state_words
from tradewind.reporting.words import compact, goal_words, value_words
from tradewind.utils.atomic_files import atomic_user_path
from tradewind.utils.units import bill_column, format_bill, format_duration, format_money

TABLE_ROWS = 200
"""Trials in the table: those of 100,000 are what `tradewind export` is for."""

_FIRST_ROWS = 25


def render_html(data: StudyData, more: Sequence[Chart] = ()) -> str:
    """The whole report as HTML text.

    Args:
        data: The study.
        more: Further charts, shown behind those of the study.
    """
    found = parameter_effects(data)
    bill_unit, rows = _table_rows(data)
    drawn = figures(data, found) + list(more)
    levels = list(level_charts(data, found).values()) if data.measured.any() else []
    objective = data.goal.objective
    return render_page(
        "report.html.j2",
        {chart.name: chart for chart in (*drawn, *levels)},
        title=data.study.name,
        version=__version__,
        written=time.strftime("%Y-%m-%d %H:%M"),
        heading=_heading(data),
        sentences=explain_choice(data, found),
        recommended=best_facts(data.best, objective) if data.best is not None else [],
        figures=drawn,
        levels=levels,
        effects=[
            (one.parameter, one.weight / _most(found), one.verdict, one.words(objective.metric)) for one in found.found
        ]
        if found
        else [],
        method=METHOD,
        tiles=_tiles(data),
        split=_split(data),
        metric="" if objective.metric in ("cost", "runtime") else objective.metric,
        bill_unit=bill_unit,
        first=rows[:_FIRST_ROWS],
        more=rows[_FIRST_ROWS:],
        total=len(data),
    )


def write_html(page: str, path: Path) -> Path:
    """Write a page in one step; a half-written one is never there.

    Args:
        page: What `render_html` returned.
        path: The file; what is there is replaced.

    Raises:
        InputError: It cannot be written.
    """
    try:
        with atomic_user_path(path) as part:
            part.write_text(page, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}", hint="choose another file") from None
    return path


def figures(data: StudyData, told: ParameterEffects | None) -> list[Chart | ParallelChart]:
    """The charts of the whole study that have something to show."""
    traded = front(data)
    found = [
        progress_chart(data),
        map_chart(data),
        front_chart(data, traded) if traded.wanted else None,
        parallel_chart(data, told),
    ]
    return [chart for chart in found if chart is not None]


def _most(told: ParameterEffects) -> float:
    return max((one.weight for one in told.found), default=0.0) or 1.0


def _heading(data: StudyData) -> list[str]:
    goal = data.goal
    words = [f"looking for {goal_words(goal.objective)}"]
    if goal.constraints.deadline:
        words.append(f"deadline {format_duration(goal.constraints.deadline)}")
    words += [str(threshold) for threshold in goal.constraints.thresholds]
    if goal.searcher:
        words.append(f"searcher {goal.searcher}")
    return [*words, state_words(data.summary)]


def _tiles(data: StudyData) -> list[tuple[str, str]]:
    """The few figures at the top: name and value."""
    summary, budget, study = data.summary, data.goal.budget, data.study
    tiles = []
    if data.best is not None and data.best.observation is not None:
        metric = data.goal.objective.metric
        value = data.best.observation.objective
        words = format_bill(value, "this run") if metric == "cost" else value_words(metric, value)
        tiles.append((f"best {metric}", words))
    money = f"{format_money(summary.spent)} total"
    if budget.dollars is not None:
        money += f" of {format_money(budget.dollars)}"
    tiles.append(("cost of the search, simulated" if data.goal.simulated else "spent on the search", money))
    limit = f" of {budget.trials:,}" if budget.trials is not None else ""
    tiles.append(("trials", f"{len(data):,}{limit}"))
    if study.elapsed:
        hours = f" of {format_duration(budget.hours * 3600)}" if budget.hours is not None else ""
        tiles.append(("time searching", format_duration(study.elapsed) + hours))
    return tiles


def _split(data: StudyData) -> list[tuple[str, int, str, float]]:
    """The money by state: state, trials, money in words and its share of all."""
    total = float(data.spent.sum())
    rows = []
    for state in TrialState:
        mask = data.having(state)
        if mask.any():
            money = float(data.spent[mask].sum())
            rows.append((state.value, int(mask.sum()), format_money(money), money / total if total else 0.0))
    return rows


def _table_rows(data: StudyData) -> tuple[str, list[dict[str, object]]]:
    """Unit of the costs, and the trials: the best first, then those that ended otherwise, the latest first."""
    ranked = data.ranking[:TABLE_ROWS].tolist()
    if len(ranked) < TABLE_ROWS:
        feasible = set(data.ranking.tolist())
        rest = [row for row in range(len(data) - 1, -1, -1) if row not in feasible]
        ranked += rest[: TABLE_ROWS - len(ranked)]
    metric = data.goal.objective.metric
    lines = [TrialLine.row(data, row) for row in ranked]
    unit, bill = bill_column(line.cost for line in lines)
    return unit, [
        {
            "number": line.number,
            "state": line.state,
            "configuration": (f"{line.machine}: " if line.machine else "")
            + compact(line.configuration)
            + (f" (on {share_words(line.share)} of the input)" if line.share < 1.0 else ""),
            "objective": value_words(metric, line.objective),
            "cost": ("≥ " if line.state == "aborted" and line.cost is not None else "") + bill(line.cost),
            "runtime": ("≥ " if line.state == "aborted" and line.runtime is not None else "")
            + format_duration(line.runtime),
            "why": line.why,
            "best": line.best,
        }
        for line in lines
    ]
