"""Reads the goal of a stored specification: objective, constraints and budget.

It is read tolerantly: an older or newer version of a specification, or one that a program made through
`tradewind.Study`, still gives what it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tradewind.errors import InputError
from tradewind.problem.objective import COST, Budget, Constraints, Objective, Threshold
from tradewind.utils.units import parse_duration, parse_money


def goal_document(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """The mapping of a stored specification that has its goal: the YAML's keys may be below ``job``."""
    job = spec.get("job")
    return job if isinstance(job, Mapping) and "space" in job else spec


def read_objective(spec: Mapping[str, Any]) -> Objective:
    """The objective of a stored specification.

    Args:
        spec: The document of `StudyRow.spec`; any part of it may be missing.
    """
    return _objective(goal_document(spec).get("objective"))


def read_constraints(spec: Mapping[str, Any]) -> Constraints:
    """The constraints of a stored specification; see `read_objective`.

    The plain keys come first, in which the engine writes them as they hold after all options.
    """
    plain = _mapping(spec.get("constraints"))
    return _constraints(plain or _mapping(goal_document(spec).get("constraints")))


def read_budget(spec: Mapping[str, Any]) -> Budget:
    """The budget of a stored specification; see `read_objective`."""
    return _budget(_mapping(goal_document(spec).get("budget")))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _objective(value: Any) -> Objective:
    if isinstance(value, str):
        return Objective(metric=value)
    if isinstance(value, Sequence) and value:
        first = _objective(value[0])
        return Objective(first.metric, first.goal, tuple(_objective(other) for other in value[1:]))
    document = _mapping(value)
    also = document.get("also") or ()
    others = tuple(_objective(other) for other in also) if isinstance(also, Sequence) else ()
    for word in ("minimise", "minimize"):
        if document.get(word):
            return Objective(str(document[word]), "minimise", others)
    for word in ("maximise", "maximize"):
        if document.get(word):
            return Objective(str(document[word]), "maximise", others)
    goal = document.get("goal")
    return Objective(str(document.get("metric") or COST), "maximise" if goal == "maximise" else "minimise", others)


def _constraints(document: Mapping[str, Any]) -> Constraints:
    found = document.get("metrics", document.get("thresholds"))
    thresholds: list[Threshold] = []
    if isinstance(found, Mapping):
        thresholds = [_threshold(str(name), _mapping(bounds)) for name, bounds in found.items()]
    elif isinstance(found, Sequence) and not isinstance(found, str):
        thresholds = [_threshold(str(b["metric"]), b) for b in found if isinstance(b, Mapping) and "metric" in b]
    return Constraints(_seconds(document.get("deadline")), tuple(thresholds))


def _threshold(metric: str, bounds: Mapping[str, Any]) -> Threshold:
    low = bounds.get("at_least", bounds.get("min"))
    high = bounds.get("at_most", bounds.get("max"))
    return Threshold(metric, _number(low), _number(high))


def _budget(document: Mapping[str, Any]) -> Budget:
    trials = _number(document.get("trials"))
    dollars = document.get("dollars")
    hours = document.get("hours")
    try:
        money = None if dollars is None else parse_money(dollars)
    except InputError:
        money = None
    seconds = _seconds(hours) if isinstance(hours, str) and not hours.replace(".", "", 1).isdigit() else None
    return Budget(
        money, seconds / 3600.0 if seconds is not None else _number(hours), None if trials is None else int(trials)
    )


def _number(value: Any) -> float | None:
    try:
        return None if value is None else float(value)
    except (TypeError, ValueError):
        return None


def _seconds(value: Any) -> float | None:
    try:
        return None if value is None else parse_duration(value)
    except InputError:
        return None
