"""Says what a run cost before the search and costs now, what the search cost, and what more of it would bring."""

from __future__ import annotations

import math

import numpy as np

from tradewind.problem import COST, RUNTIME, TrialState
from tradewind.reporting.study.data import StudyData
from tradewind.reporting.words import percent, value_words
from tradewind.searcher.stopping import (
    ALL_TRIED,
    NOT_BETTER,
    NOT_CHEAPER,
    TrialWorth,
    empirical_worth,
    returned_words,
    split_reason,
)
from tradewind.utils.units import count, format_bill, format_money


def bill_sentences(data: StudyData) -> list[str]:
    """Sentences about money: a run before and now, the search, after how many runs it is paid back, another dollar.

    Before is the configuration that the user uses today (``baseline``), or else the first that kept every constraint.
    Where the run time is minimised it is paid back by what an hour is worth (``value``); where nothing says what a gain
    is worth, the sentences say what it is and what the search cost.
    """
    if not data.summary.spent or (data.goal.objective.metric == COST and data.goal.objective.goal != "minimise"):
        return []
    return [*_before_and_now(data), *_another_dollar(data)]


def _price(data: StudyData) -> float | None:
    """USD that a run saves where its objective falls by one; None where nobody said what that is worth."""
    objective, value = data.goal.objective, data.goal.value_per_hour
    if objective.metric == COST:
        return 1.0
    timed = objective.metric == RUNTIME and objective.goal == "minimise"
    return value / 3600.0 if timed and value is not None else None


def _shown(data: StudyData, value: float, other: float = math.inf) -> str:
    """A value in words; a cost for as many runs as suit the smaller one of two that are compared."""
    metric = data.goal.objective.metric
    return format_bill(value, "a run", beside=min(value, other)) if metric == COST else value_words(metric, value)


def _has(data: StudyData, value: float, other: float) -> str:
    """``costs $1.20 a run``, ``takes 3.1 s``, ``reaches accuracy 0.93``."""
    metric = data.goal.objective.metric
    verb = {COST: "costs", RUNTIME: "takes"}.get(metric, f"reaches {metric}")
    return f"{verb} {_shown(data, value, other)}"


def _before_and_now(data: StudyData) -> list[str]:
    best, today = data.best_row, data.baseline_row
    if today is not None and not data.measured[today]:
        return [_unmeasured(data, today)] if data.ended[today] else []
    if best is None:
        return []
    if today is None:
        first = int(data.ranking[np.argmin(data.number[data.ranking])])
        name = f"The first configuration that kept every constraint (trial {data.number[first]})"
        return _compared(data, first, best, name, "")
    name = f"What you use today (trial {data.number[today]})"
    if data.words["key"][today] == data.words["key"][best]:
        found = f"{name} is still the best, at {_shown(data, data.usual(best))}"
        return [f"{found}: the search, {format_money(data.summary.spent)}, found no better."]
    broke = (
        "" if data.feasible[today] else f", and did not keep every constraint ({data.reason(today) or 'see its line'})"
    )
    return _compared(data, today, best, name, broke)


def _unmeasured(data: StudyData, today: int) -> str:
    """A sentence on a baseline that did not run to its end."""
    name, reason = f"What you use today (trial {data.number[today]})", data.reason(today)
    ended = "was cut short" if data.states[today] == TrialState.ABORTED.value else "did not work"
    return f"{name} {ended}, so that nothing can be compared with it" + (f": {reason}." if reason else ".")


def _compared(data: StudyData, before: int, now: int, name: str, broke: str) -> list[str]:
    """The sentence that compares two trials; none where the later one saves nothing and the earlier one was good."""
    old, new, spent = data.usual(before), data.usual(now), format_money(data.summary.spent)
    gained = data.goal.objective.better(new, old)
    if not gained and not broke:
        return []
    both = f"{name} {_has(data, old, new)}{broke}"
    if not gained:
        return [f"{both}; this one {_has(data, new, old)}, and the search cost {spent}."]
    words = f"{both}, this one {_shown(data, new, old)}"
    if old > 0 and before != now:
        words += f", {percent(abs(old - new) / old)} {'less' if new < old else 'more'}"
    price, would = _price(data), "would be" if data.goal.simulated else "is"
    if price is None:
        return [f"{words}: the search {'would have cost' if data.goal.simulated else 'cost'} {spent}."]
    runs = count(math.ceil(data.summary.spent / (price * (old - new))), "run")
    value = data.goal.value_per_hour
    hour = "" if data.goal.objective.metric == COST else f" at {format_money(value)} for an hour of a run,"
    return [f"{words}:{hour} the search, {spent}, {would} paid back after {runs}."]


def _another_dollar(data: StudyData) -> list[str]:
    """A sentence on what more search would bring: by why it ended, or else by what is known of a further trial."""
    running = data.study.state == "open" and data.summary.running_since is not None
    if running or data.best_row is None:
        return []
    why, back = split_reason(data.study.reason.rstrip("."))
    runs = data.goal.future_runs
    if back:
        return [f"{back[0].upper()}{back[1:]} over {count(runs, 'run')}."]
    if why.startswith(NOT_BETTER):
        return [f"No further trial is expected to improve the best{why.removeprefix(NOT_BETTER)}."]
    if why.startswith(ALL_TRIED):
        return ["More search would bring back nothing: every configuration has been tried."]
    if why.startswith(NOT_CHEAPER):
        return ["More search would bring back nothing: no other configuration can cost less."]
    worth, price = data.last_expected or _by_history(data), _price(data)
    if worth is None or worth.spend <= 0:
        return []
    best = abs(data.usual(data.best_row))
    if price is not None:
        words = f"{returned_words(runs * price * worth.saving, worth.spend)} over {count(runs, 'run')}"
    elif best > 0:
        words = f"another trial would cost {format_money(worth.spend)} and improve the best by "
        words += percent(worth.saving / best)
    else:
        return []
    return [f"{words[0].upper()}{words[1:]}, as far as the trials so far tell."]


def _by_history(data: StudyData) -> TrialWorth | None:
    rows = data.by_end[data.whole[data.by_end]]
    losses = np.where(data.feasible[rows], data.loss[rows], np.inf)
    return empirical_worth(losses.tolist(), data.spent[rows].tolist())
