"""Says what a run cost before the search and costs now, what the search cost, and what more of it would bring."""

from __future__ import annotations

import math

import numpy as np

from tradewind.problem import COST, TrialState
from tradewind.reporting.study.data import StudyData
from tradewind.reporting.words import percent
from tradewind.searcher.stopping import TrialWorth, empirical_worth, returned_words
from tradewind.utils.units import count, format_bill, format_money


def bill_sentences(data: StudyData) -> list[str]:
    """Sentences about money: a run before and now, the search, after how many runs it is paid back, another dollar.

    Before is the configuration that the user uses today (``baseline``), or else the first that kept every constraint.
    Empty where the cost is not what is minimised.
    """
    objective = data.goal.objective
    if objective.metric != COST or objective.goal != "minimise" or not data.summary.spent:
        return []
    return [*_before_and_now(data), *_another_dollar(data)]


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
        cost = format_bill(data.usual(best), "a run")
        return [
            f"{name} is still the best, at {cost}: the search, {format_money(data.summary.spent)}, found no better."
        ]
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
    old, new, spent = data.usual(before), data.usual(now), data.summary.spent
    if not new < old and not broke:
        return []
    both = f"{name} costs {format_bill(old, 'a run')}{broke}"
    if not new < old:
        return [f"{both}; this one costs {format_bill(new, 'a run')}, and the search cost {format_money(spent)}."]
    runs = count(math.ceil(spent / (old - new)), "run")
    less = "" if before == now else f", {percent((old - new) / old)} less"
    paid = "would be" if data.goal.simulated else "is"
    return [
        f"{both}, this one {format_bill(new, 'a run')}{less}: the search, {format_money(spent)}, {paid} paid back "
        f"after {runs}."
    ]


def _another_dollar(data: StudyData) -> list[str]:
    """A sentence on what more search would bring, where the reason of its end does not say so already."""
    running = data.study.state == "open" and data.summary.running_since is not None
    if (
        "another dollar" in data.study.reason
        or "has been tried" in data.study.reason
        or running
        or data.best_row is None
    ):
        return []
    worth = data.last_expected or _by_history(data)
    if worth is None or worth.spend <= 0:
        return []
    runs = data.goal.future_runs
    words = returned_words(runs * worth.saving, worth.spend)
    return [f"{words[0].upper()}{words[1:]} over {count(runs, 'run')}, as far as the trials so far tell."]


def _by_history(data: StudyData) -> TrialWorth | None:
    rows = data.by_end[data.whole[data.by_end]]
    losses = np.where(data.feasible[rows], data.loss[rows], np.inf)
    return empirical_worth(losses.tolist(), data.spent[rows].tolist())
