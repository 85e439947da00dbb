"""Whether earlier jobs foresee one another: if they do not, they will not foresee this one either."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tradewind.searcher.surrogate.gp import Array, likelihood
from tradewind.searcher.surrogate.matern import distances, matern
from tradewind.searcher.surrogate.trend import Trend

LEAST_JOBS = 3
"""Of fewer, each is foreseen by one other at most: they say nothing of how alike jobs are."""
UNRELATED = -1.0
"""Log evidence a job at which a past is left alone: e times likelier without it."""
LEVEL_SD = 3.0
_MOST_RUNS = 60
_AMPLITUDES = (0.05, 0.1, 0.2, 0.4, 0.8)
_NOISES = (0.05, 0.15, 0.4, 1.0)


def kinship(runs: Sequence[tuple[Array, Array]], seen: Sequence[Array], trend: Trend) -> float:
    """How much likelier earlier jobs make the runs of one another than prices alone do.

    Each job's runs are foreseen by the others, as a new job's would be (`Lessons`): by the median of the others, their
    deviations from it, and what is peculiar to a job. Against that stands the better of a flat process and one with
    the trend of prices. All have the amplitude and the noise that suit them best.

    Args:
        runs: Features, shape (n, d), and ln seconds, shape (n,), of each job's runs; at least two jobs.
        seen: What all jobs make of each job's features, by processes that have seen that job alone, as logarithms
            around each job's own level, shapes (jobs, n).
        trend: Of ln seconds.

    Returns:
        Log evidence a job: above zero where jobs are alike, below where what one shows says nothing of the others.
    """
    total = 0.0
    for k, (x, y) in enumerate(runs):
        some = np.unique(np.linspace(0, len(x) - 1, min(len(x), _MOST_RUNS)).astype(int))
        rows, times = x[some], y[some]
        others = np.delete(seen[k][:, some], k, axis=0)
        centre = np.median(others, axis=0)
        away = (others - centre).T / math.sqrt(max(1, len(others) - 1))
        middle = rows - 0.5
        slopes = middle * trend.sd
        flat = _best(rows, times, np.zeros((len(rows), len(rows))))
        alone = max(flat, _best(rows, times - middle @ trend.mean, slopes @ slopes.T))
        total += _best(rows, times - centre, away @ away.T) - alone
    return total / len(runs)


def _best(x: Array, rest: Array, fixed: Array) -> float:
    """Log evidence of what is left over, without its constant, under the amplitude and noise that suit it best."""
    length = 0.5 * math.sqrt(x.shape[1])
    polynomial, decay = matern(distances(x / length, x / length))
    level = fixed + LEVEL_SD**2
    return max(
        -likelihood(level + a**2 * polynomial * decay + (n**2 + 1e-8) * np.eye(len(rest)), rest - rest.mean())[0]
        for a in _AMPLITUDES
        for n in _NOISES
    )
