"""The run times that keep the deadline and all bounds on cost and run time: what models of time are asked about."""

from __future__ import annotations

import math

import numpy as np

from tradewind.problem import COST, RUNTIME, Problem
from tradewind.searcher.surrogate.gp import Array

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
        problem: The problem.
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
    setup, floor = price * billing.setup_seconds, price * max(billing.setup_seconds, billing.minimum_seconds)

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
        problem: The problem.
        hourly: USD per hour of all nodes together, shape (n,).
        seconds: Shape (n,); infinite where nothing limits a run.
    """
    billing, price = problem.terms.billing, hourly / 3600.0
    billed = np.maximum(billing.setup_seconds + seconds, billing.minimum_seconds)
    with np.errstate(invalid="ignore"):
        money = np.where(np.isinf(seconds), math.inf, price * billed)
    return np.where(seconds > 0, money, 0.0)
