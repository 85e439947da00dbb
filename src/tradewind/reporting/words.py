"""Writes values of objectives, configurations and amounts of money as words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tradewind.problem import COST, RUNTIME, Objective
from tradewind.store.base import StudyTotals
from tradewind.utils.units import format_money, format_settings


def value_words(metric: str, value: float | None) -> str:
    """A value of a metric: money for ``cost``, a duration for ``runtime``, a plain number for others."""
    return Objective(metric).format(value)


def goal_words(objective: Objective) -> str:
    """``the lowest cost`` or ``the highest accuracy``."""
    return f"the {'lowest' if objective.goal == 'minimise' else 'highest'} {objective.metric}"


def comparative(objective: Objective) -> str:
    """The word for a better value: ``cheaper``, ``faster``, ``lower`` or ``higher``."""
    if objective.goal == "maximise":
        return "higher"
    return {COST: "cheaper", RUNTIME: "faster"}.get(objective.metric, "lower")


def opposite(objective: Objective) -> str:
    """The word for a worse value: ``dearer``, ``slower``, ``higher`` or ``lower``."""
    if objective.goal == "maximise":
        return "lower"
    return {COST: "dearer", RUNTIME: "slower"}.get(objective.metric, "higher")


def compact(configuration: Mapping[str, Any]) -> str:
    """A configuration on one line; numbers are cut to four digits that mean something."""
    return format_settings(configuration)


def machines_of(key: object) -> str:
    """An offer's key (``aws/us-east-1/c5.xlargex2``) as people say it: ``2 × c5.xlarge, us-east-1``."""
    if not isinstance(key, str) or key.count("/") < 2:
        return ""
    _, region, kind, *rest = key.split("/")
    last = rest[-1] if rest else kind
    last, _, nodes = last.rpartition("x")
    kind, spot = (kind, ", spot") if rest else (last, "")
    count = f"{nodes} × " if nodes != "1" else ""
    return f"{count}{kind}{f', {region}' if region else ''}{spot}"


def percent(share: float) -> str:
    """A share of one as a percentage with no false precision."""
    if 0 < share < 0.01:
        return "under 1 %"
    if 0.995 <= share < 1:
        return "over 99 %"
    return f"{100 * share:.0f} %"


def totals_words(totals: StudyTotals) -> str:
    """Write the number of studies in each state, and the cost of all of them, in a line."""
    states = ", ".join(f"{totals.states[name]:,} {name}" for name in sorted(totals.states) if totals.states.get(name))
    aside = f", {format_money(totals.reserved)} reserved" if totals.reserved else ""
    return f"all studies: {states}; {format_money(totals.spent)} spent{aside}"
