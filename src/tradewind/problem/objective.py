"""The objective, the constraints, and the budget of a search."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal

from tradewind.utils.units import format_bill, format_duration

COST = "cost"
RUNTIME = "runtime"
UNINTERRUPTED_COST = "uninterrupted_cost"
"""USD of a run on spot machines as it would be without interruptions; `COST` is then what is expected with them."""
UNINTERRUPTED_RUNTIME = "uninterrupted_runtime"
"""Seconds of a run on spot machines without interruptions; `RUNTIME` is then what is expected with them."""
OWN_METRICS = frozenset({COST, RUNTIME, UNINTERRUPTED_COST, UNINTERRUPTED_RUNTIME})
"""The metrics that are measured of a run whatever its program is; no interpreter reads them."""

Direction = Literal["minimise", "maximise"]


@dataclass(frozen=True, slots=True)
class Objective:
    """The figure to make small or large.

    Attributes:
        metric: ``cost`` (USD this run), ``runtime`` (seconds) or a metric that the interpreter reads.
        goal: ``minimise`` or ``maximise``.
        also: Further objectives for searchers that look for a Pareto front; others ignore them.
    """

    metric: str = COST
    goal: Direction = "minimise"
    also: tuple[Objective, ...] = ()

    def better(self, a: float, b: float) -> bool:
        """True when ``a`` is strictly better than ``b``."""
        return a < b if self.goal == "minimise" else a > b

    @property
    def worst(self) -> float:
        """A value that every finite one beats."""
        return math.inf if self.goal == "minimise" else -math.inf

    def loss(self, value: float) -> float:
        """The value as something to minimise."""
        return value if self.goal == "minimise" else -value

    def format(self, value: float | None) -> str:
        """A value as words: money for ``cost``, a duration for ``runtime``, a plain number for others."""
        if value is None or math.isnan(value):
            return "-"
        if self.metric == COST:
            return format_bill(value)
        if self.metric == RUNTIME:
            return format_duration(value)
        return f"{value:.4g}"

    @property
    def grows_with_time(self) -> bool:
        """True when a running trial's value only gets worse with time, so that it can be cut short."""
        return self.goal == "minimise" and self.metric in (COST, RUNTIME)


@dataclass(frozen=True, slots=True)
class Threshold:
    """A bound on a metric.

    Attributes:
        metric: The metric's name.
        at_least: The least allowed value, or None.
        at_most: The greatest allowed value, or None.
    """

    metric: str
    at_least: float | None = None
    at_most: float | None = None

    def holds(self, value: float) -> bool:
        """True when ``value`` is within the bound; NaN never is."""
        if math.isnan(value):
            return False
        return (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)

    def __str__(self) -> str:
        low = f"{self.at_least:g} ≤ " if self.at_least is not None else ""
        high = f" ≤ {self.at_most:g}" if self.at_most is not None else ""
        return f"{low}{self.metric}{high}"

    def miss(self, value: float) -> float:
        """Distance of a value from keeping the bound, as a share of it (of 1 for 0); 0 within it, infinite for NaN."""
        if math.isnan(value):
            return math.inf
        bounds = ((self.at_least, -1.0), (self.at_most, 1.0))
        shares = (sign * (value - bound) / (abs(bound) or 1.0) for bound, sign in bounds if bound is not None)
        return max(0.0, *shares)

    def relaxed(self, values: Sequence[float]) -> Threshold:
        """The bound, moved outwards where values lie on it exactly: a density does not see that those keep it.

        A figure that is counted (no errors) or that ends somewhere (an accuracy of 1) often lies on its bound; a normal
        density around it would then say that every second run breaks it. This is the correction for continuity: the
        bound moves half the way to the nearest value beyond it, where there is none half of the least distance among
        the values, and by its own size, or 1, where all lie on it.

        Args:
            values: Measured values of the metric.
        """

        def moved(bound: float | None, sign: float) -> float | None:
            if bound is None or bound not in values:
                return bound
            beyond = [sign * (value - bound) for value in values if sign * (value - bound) > 0.0]
            others = sorted({*values})
            apart = [high - low for low, high in pairwise(others)]
            room = 0.5 * min(beyond or apart) if apart else abs(bound) or 1.0
            return bound + sign * room

        return replace(self, at_least=moved(self.at_least, -1.0), at_most=moved(self.at_most, 1.0))


@dataclass(frozen=True, slots=True)
class Constraints:
    """Constraints that a feasible configuration keeps.

    Attributes:
        deadline: Seconds that one run may take, or None.
        thresholds: Bounds on metrics.
    """

    deadline: float | None = None
    thresholds: tuple[Threshold, ...] = ()

    def broken(self, runtime: float, metrics: Mapping[str, float]) -> list[str]:
        """The constraints that a finished run broke, in words; an empty list means feasible."""
        words = []
        if self.deadline is not None and runtime > self.deadline:
            words.append(f"runtime {runtime:.4g} s is above the deadline of {self.deadline:g} s")
        for threshold in self.thresholds:
            value = metrics.get(threshold.metric, math.nan)
            if not threshold.holds(value):
                words.append(f"{threshold.metric} is {value:.4g}, wanted {threshold}")
        return words

    def miss(self, runtime: float, metrics: Mapping[str, float]) -> float:
        """Distance of a finished run from feasible: the shares by which it missed each bound, added up.

        Args:
            runtime: Seconds.
            metrics: Its metrics, ``cost`` and ``runtime`` among them where there are bounds on them.
        """
        late = 0.0 if self.deadline is None else max(0.0, runtime / self.deadline - 1.0)
        return late + sum(each.miss(metrics.get(each.metric, math.nan)) for each in self.thresholds)


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of what a search may spend. None means no limit.

    Attributes:
        dollars: USD in total, over all runs of the study, lost and aborted ones included.
        hours: Billed machine time is not meant here: hours on the wall clock while the search is running.
        trials: Number of trials.
    """

    dollars: float | None = None
    hours: float | None = None
    trials: int | None = None


@dataclass(frozen=True, slots=True)
class JobParameters:
    """Properties in which one job differs from another job of the same program: input size, iterations, and the like.

    Attributes:
        values: The parameters by name; whole numbers are ints.
        fidelity: Share of the input that a full run takes; 1 is all of it.
    """

    values: Mapping[str, float | str] = field(default_factory=dict)
    fidelity: float = 1.0
