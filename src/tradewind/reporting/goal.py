"""What a study wanted, read from its stored specification.

The reading is tolerant: a specification of an older or newer version, or one that was made by a program through
`tradewind.Study`, still gives its objective, deadline and budget; what is missing is simply not shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tradewind import plugins
from tradewind.deployer.runner.base import Simulates
from tradewind.errors import InputError, PluginError
from tradewind.problem import COST, Budget, Constraints, Objective, Threshold
from tradewind.utils.units import parse_duration, parse_money


@dataclass(frozen=True, slots=True)
class StudyGoal:
    """What was wanted, what had to hold and what could be spent.

    Attributes:
        objective: The figure to make small or large.
        constraints: What had to hold.
        budget: What could be spent.
        searcher: The searcher's name, or empty where it is not known.
        simulated: Nothing was really run, and nothing was paid.
    """

    objective: Objective
    constraints: Constraints
    budget: Budget
    searcher: str = ""
    simulated: bool = False


def read_goal(spec: Mapping[str, Any]) -> StudyGoal:
    """The goal of a stored specification.

    Args:
        spec: The document of `StudyRow.spec`; any part of it may be missing.
    """
    job = spec.get("job")
    if (
        isinstance(job, Mapping) and "space" in job
    ):  # the document of `JobSpec.document`: the YAML's keys are below "job"
        spec = job
    return StudyGoal(
        _objective(spec.get("objective")),
        _constraints(_mapping(spec.get("constraints"))),
        _budget(_mapping(spec.get("budget"))),
        _choice(spec.get("searcher")),
        _simulated(_choice(_mapping(spec.get("deploy")).get("runner"))),
    )


def _simulated(runner: str) -> bool:
    """True for a runner that simulates; one that is not installed here is not known to."""
    try:
        return bool(runner) and issubclass(plugins.load("runner", runner), Simulates)
    except PluginError:
        return False


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _choice(value: Any) -> str:
    if isinstance(value, Mapping):
        value = value.get("use") or value.get("name") or ""
    return str(value or "")


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
