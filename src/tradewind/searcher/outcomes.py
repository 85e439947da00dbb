"""Training data that all models with processes take from trials: losses, metrics, bounds, and success.

`runtime_window` gives the run times that keep the deadline and all bounds on cost and run time: models of time are
asked for the probability of ending in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tradewind.problem import COST, RUNTIME, Objective, Observation, Problem, Threshold, Trial, TrialState
from tradewind.problem.ranking import ConfigurationRanking
from tradewind.searcher import acquisition
from tradewind.searcher.surrogate.gp import Array, GaussianProcess

TIME_METRICS = (COST, RUNTIME)
"""Metrics whose bounds are read off the model of time.

A run is cut short where it breaks one of them for good, so that no finished run ever shows such a value: a model made
of finished runs alone would never see a breach.
"""


def has_time_bounds(problem: Problem) -> bool:
    """True when there is a bound on cost or run time besides the deadline."""
    return any(threshold.metric in TIME_METRICS for threshold in problem.constraints.thresholds)


def runtime_window(problem: Problem, hourly: Array, *, deadline: bool = True) -> tuple[Array, Array]:
    """The seconds between which a run keeps the deadline and all bounds on cost and run time.

    Args:
        problem: The tuning problem: constraints and billing.
        hourly: USD per hour of all nodes together, shape (n,).
        deadline: False to leave the deadline out.

    Returns:
        The least and the greatest, shape (n,) each: 0 and infinite where nothing limits them; a greatest of 0 where
        set-up and the smallest bill alone break a bound.
    """
    low, high = np.zeros(len(hourly)), np.full(len(hourly), math.inf)
    if deadline and problem.constraints.deadline is not None:
        high = np.minimum(high, problem.constraints.deadline)
    billing, price = problem.terms.billing, hourly / 3600.0
    setup, floor = price * billing.setup_seconds, price * billing.shortest_billed

    def longest(money: float) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            seconds = np.where(price > 0, (money - setup) / price, math.inf if money >= 0 else 0.0)
        return np.where(floor <= money, np.maximum(seconds, 0.0), 0.0)

    for threshold in problem.constraints.thresholds:
        if threshold.metric not in TIME_METRICS:
            continue
        for bound, lower in ((threshold.at_least, True), (threshold.at_most, False)):
            if bound is not None:
                seconds = longest(bound) if threshold.metric == COST else np.full(len(hourly), max(bound, 0.0))
                low, high = (np.maximum(low, seconds), high) if lower else (low, np.minimum(high, seconds))
    return low, high


def run_bill(problem: Problem, hourly: Array, seconds: Array) -> Array:
    """USD of runs of so many seconds, set-up and smallest bill included, not rounded; 0 for 0 seconds, shape (n,).

    Args:
        problem: The tuning problem: its billing counts.
        hourly: USD per hour of all nodes together, shape (n,).
        seconds: Shape (n,); infinite where nothing limits a run.
    """
    billing, price = problem.terms.billing, hourly / 3600.0
    billed = np.maximum(billing.setup_seconds + seconds, billing.shortest_billed)
    with np.errstate(invalid="ignore"):
        money = np.where(np.isinf(seconds), math.inf, price * billed)
    return np.where(seconds > 0, money, 0.0)


ObservedRuns = Sequence[tuple[Array, Observation]]
"""Features, shape (d,), and observation of each run that came to its end."""


def observed_losses(objective: Objective, seen: ObservedRuns) -> list[tuple[Array, float]]:
    """Features and loss of the runs whose objective is a number."""
    known = [(row, run.objective) for row, run in seen if run.objective is not None and math.isfinite(run.objective)]
    return [(row, objective.loss(value)) for row, value in known]


def best_loss(problem: Problem, trials: Iterable[Trial]) -> float | None:
    """The loss of the best configuration, by all of its runs (`ConfigurationRanking`); None where none was feasible."""
    return ConfigurationRanking.of_trials(trials, problem.objective, problem.constraints).best_loss


def metric_values(metric: str, seen: ObservedRuns) -> list[tuple[Array, float]]:
    """Features and metric of the runs that have it as a number."""
    known = [(row, run.metrics.get(metric, math.nan)) for row, run in seen]
    return [(row, value) for row, value in known if math.isfinite(value)]


def probability_within(mean: Array, sd: Array, threshold: Threshold, *, log: bool) -> Array:
    """Probability that a normal figure keeps a bound.

    Args:
        mean: Mean of the figure, or of its logarithm, shape (n,).
        sd: Standard deviation of the same, shape (n,).
        threshold: The bound.
        log: True for the logarithm.
    """
    low, high = threshold_interval(threshold, log=log)
    return acquisition.probability_between(mean, sd, low, high)


def threshold_interval(threshold: Threshold, *, log: bool) -> tuple[float, float]:
    """The interval that a figure, or its logarithm, has to lie in; infinite where nothing bounds it."""
    low = -math.inf if threshold.at_least is None else threshold.at_least
    high = math.inf if threshold.at_most is None else threshold.at_most
    if log:
        low, high = (math.log(bound) if bound > 0 else -math.inf for bound in (low, high))
    return low, high


def allows_logarithm(threshold: Threshold) -> bool:
    """False for a bound that a figure keeps at zero or below alone, where it has no logarithm."""
    return threshold.at_most is None or threshold.at_most > 0.0


@dataclass(frozen=True, slots=True)
class SuccessModel:
    """A process on success (+1) and failure (-1).

    Attributes:
        process: The process.
        noise: Standard deviation of a run's label around what its configuration stands for.
    """

    process: GaussianProcess
    noise: float

    @classmethod
    def fit(cls, runs: Sequence[tuple[Array, TrialState]], noise: float = 0.05) -> SuccessModel | None:
        """Fit a process to runs, aborted ones left out, which show neither; None where none has failed.

        Args:
            runs: Features, shape (d,), and final state of each run.
            noise: Standard deviation of a label around what its configuration stands for.
        """
        ended = [(row, state) for row, state in runs if state != TrialState.ABORTED]
        if all(state != TrialState.FAILED for _, state in ended):
            return None
        labels = np.array([-1.0 if state == TrialState.FAILED else 1.0 for _, state in ended])
        return cls(GaussianProcess(starts=1).fit(np.array([row for row, _ in ended]), labels), noise)

    def fantasize(self, x: Array) -> SuccessModel:
        """A copy that takes its own mean at ``x``, shape (m, d), for observed; see `GaussianProcess.fantasize`."""
        return SuccessModel(self.process.fantasize(x), self.noise)

    def chance(self, x: Array) -> Array:
        """Probability that a run succeeds, shape (n,), for features of shape (n, d)."""
        mean, variance = self.process.predict(x)
        return acquisition.probability_between(mean, np.sqrt(variance + self.noise**2), 0.0, np.inf)
