"""Words about proposed configurations: how each differs from the best known, and how likely it is to keep bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tradewind.problem import COST, RUNTIME
from tradewind.reporting.words import percent
from tradewind.utils.units import format_duration, listed

MARKS = {"try": "try this", "best": "best known", "cheapest": "cheapest", "fastest": "fastest"}
"""What a proposed configuration may stand out by, with words, in the order in which they are said."""

_SAME = 0.01
"""A share of which nothing is said; a chance below it is none."""

_TIMES, _MANY = 2.0, 100
"""Ratios between which a figure is so many times another."""

_NAMES = {COST: "cost", RUNTIME: "time"}

_TIME, _MONEY = ("as long", "longer", "less time"), ("as much", "more", "less")
"""Words for a figure that is the same, greater and less."""

_SURE = 0.995
"""A chance from which on nothing is doubtful."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A configuration as it is compared with another one.

    Attributes:
        configuration: Values by parameter.
        hourly: USD per hour of its machines.
        runtime: Expected seconds, None where nothing is known.
        cost: Expected USD, None where nothing is known.
    """

    configuration: Mapping[str, Any]
    hourly: float
    runtime: float | None = None
    cost: float | None = None


def marks_words(marks: Sequence[str]) -> str:
    """Write what a configuration stands out by: ``best known, cheapest``; empty for nothing."""
    return ", ".join(words for name, words in MARKS.items() if name in marks)


def why_words(marks: Sequence[str], difference: str, reason: str) -> str:
    """Write in one line by what a configuration stands out, how it differs, and what that rests on."""
    first = marks_words(marks)
    told = f"{first}: {difference}" if first and difference else first or difference
    return "; ".join(words for words in (told, reason.removeprefix("to learn from; ")) if words)


def difference_words(one: Compared, first: Compared) -> str:
    """Write how a configuration differs from the first: in time and money, or by the hour where they are not known.

    Args:
        one: The configuration.
        first: What it is compared with: the best known where its time is known.
    """
    if one.runtime is None or one.cost is None or first.runtime is None or first.cost is None:
        same = one.hourly == first.hourly
        hourly = "" if same else f"; its machines cost {_compared(one.hourly, first.hourly, *_MONEY)} per hour"
        return f"time not known yet{hourly or _instead(one, first)}"
    time, cost = _compared(one.runtime, first.runtime, *_TIME), _compared(one.cost, first.cost, *_MONEY)
    same = (time, cost) == (_TIME[0], _MONEY[0])
    return f"takes {time} and costs {cost}{_instead(one, first) if same else ''}, compared with the best known"


def _instead(one: Compared, first: Compared) -> str:
    """``; threads 4 instead of 2``: what differs where price, time and money do not."""
    pairs = [(name, value, first.configuration.get(name)) for name, value in one.configuration.items()]
    words = listed([f"{name} {value} instead of {other}" for name, value, other in pairs if value != other], most=2)
    return f"; {words}" if words else ""


def _compared(figure: float, reference: float, same: str, more: str, less: str) -> str:
    """``25 % more``, ``2.4 times as much`` or ``as much``."""
    if reference <= 0:
        return same if figure <= 0 else more
    ratio = figure / reference
    if abs(ratio - 1) < _SAME:
        return same
    if ratio >= _TIMES:
        return f"{ratio:.1f} times {same}" if ratio < _MANY else f"over {_MANY} times {same}"
    return f"{percent(abs(ratio - 1))} {more if ratio > 1 else less}"


def best_words(metric: str, goal: str, *, measured: bool) -> str:
    """Write by what the best known is the best.

    Args:
        metric: What is to be minimised or maximised.
        goal: ``minimise`` or ``maximise``.
        measured: True where it was run with the present parameters: only those that were are compared then.
    """
    least = "least" if goal == "minimise" else "greatest"
    if measured:
        return f"{least} {_NAMES.get(metric, metric)} of those that were run with these parameters"
    return f"{least} expected {_NAMES.get(metric, metric)}"


def chance_words(chance: float | None, deadline: float | None) -> str:
    """Write how likely a run is to succeed within its bounds; empty where nothing is known, or nothing is doubtful.

    Args:
        chance: The probability, or None where nothing is known.
        deadline: Seconds that the run may take, or None.
    """
    if chance is None or (deadline is None and chance >= _SURE):
        return ""
    end = "succeed" if deadline is None else f"finish within {format_duration(deadline)}"
    if chance < _SAME:
        return f"is not expected to {end}"
    if chance >= _SURE:
        return f"is expected to {end}"
    return f"{percent(chance)} likely to {end}"
