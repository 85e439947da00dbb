"""The report on the terminal: the recommendation, the best trials, a plot and the reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tradewind.reporting.study import tables
from tradewind.reporting.study.data import StudyData
from tradewind.reporting.study.explanation import explain_choice
from tradewind.reporting.study.importance import ParameterImportance, importance
from tradewind.reporting.study.pareto import front, front_table, sentence, title
from tradewind.reporting.study.series import best_so_far, wants_log
from tradewind.reporting.textplot import step_plot
from tradewind.reporting.words import goal_words, percent, value_words
from tradewind.utils.units import count, format_duration, format_money

if TYPE_CHECKING:
    from rich.console import Console

_BEST = 8


def print_report(data: StudyData, console: Console) -> None:
    """Print the whole report, as wide as the console.

    Args:
        data: The study.
        console: Where to print.
    """
    weight = importance(data)
    objective = data.goal.objective
    _heading(data, console)
    _title(console, "Why this configuration" if data.best_row is not None else "What happened")
    console.print(tables.bullets(explain_choice(data, weight)))
    if data.best is not None:
        _title(console, "Recommended")
        console.print(tables.facts(tables.best_facts(data.best, objective), console.width))
    rows = [int(row) for row in data.ranking[:_BEST]]
    if rows:
        _title(console, f"Best {len(rows)} of {count(int(data.feasible.sum()), 'feasible trial')}")
        lines = [tables.TrialLine.row(data, row) for row in rows]
        tables.print_trials(console, lines, objective)
    traded = front(data)
    if traded.wanted:
        _title(console, title(traded))
        console.print(tables.bullets([sentence(traded)]))
        if len(traded.rows):
            console.print(front_table(data, traded, console.width))
    plot = curve_lines(data, console.width)
    if plot:
        _title(console, f"Best {objective.metric} so far, against money spent in total")
        for line in plot:
            console.print(line, markup=False, highlight=False)
    _weights(weight, console)


def curve_lines(data: StudyData, width: int, height: int = 8) -> list[str]:
    """Best-so-far against money spent, as lines of text; none where it has fewer than two steps."""
    curve = best_so_far(data)
    metric = data.goal.objective.metric
    if len(curve.spent) < 2:
        return []
    return step_plot(
        curve.spent.tolist(),
        curve.best.tolist(),
        width=min(width, 100),
        height=height,
        end=curve.end,
        x_words=format_money,
        y_words=lambda value: value_words(metric, value),
        log=wants_log(curve.best, 3.0),
    )


def _title(console: Console, words: str) -> None:
    console.print()
    console.print(words, style="bold", markup=False, highlight=False)


def _heading(data: StudyData, console: Console) -> None:
    study, goal = data.study, data.goal
    parts = [f"study {study.name} (id {study.id})", tables.state_words(data.summary), goal_words(goal.objective)]
    if goal.constraints.deadline:
        parts.append(f"deadline {format_duration(goal.constraints.deadline)}")
    parts += [str(threshold) for threshold in goal.constraints.thresholds]
    if goal.budget.dollars is not None:
        parts.append(f"budget {format_money(goal.budget.dollars)} total")
    if goal.searcher:
        parts.append(f"searcher {goal.searcher}")
    console.print(" · ".join(parts), style="bold", markup=False, highlight=False)


def _weights(weight: ParameterImportance | None, console: Console) -> None:
    if weight is None or not weight.explained:
        return
    _title(console, "What each parameter explains by itself")
    widest = max(len(name) for name in weight.shares)
    room = max(4, min(40, console.width - widest - 12))
    for name, share in weight.shares.items():
        bar = "█" * round(share * room)
        console.print(f"{name:<{widest}}  {bar:<{room}} {percent(share)}", markup=False, highlight=False, no_wrap=True)
