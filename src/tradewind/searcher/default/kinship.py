"""Whether earlier jobs foresee one another: if they do not, they will not foresee this one either."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tradewind.searcher.surrogate.gp import Array, factorise
from tradewind.searcher.surrogate.matern import distances, matern
from tradewind.searcher.surrogate.trend import LinearTrend

LEAST_RELATED_JOBS = 3
"""Of fewer, each is foreseen by one other at most: they say nothing of how alike jobs are."""
LEAST_RELATEDNESS = -1.0
"""Log evidence a job at which a past is left alone: e times likelier without it."""
_LEVEL_SD = 3.0
_MOST_COMPARED_RUNS = 60
_COMPARED_AMPLITUDES = (0.05, 0.1, 0.2, 0.4, 0.8)
_COMPARED_NOISES = (0.05, 0.15, 0.4, 1.0)


def relatedness(runs: Sequence[tuple[Array, Array]], seen: Sequence[Array], trend: LinearTrend) -> float:
    """How much likelier earlier jobs make the runs of one another than prices alone do.

    Each job's runs are foreseen by the others, as a new job's would be (`TransferPrior`): by the median of the others, their
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
        some = np.unique(np.linspace(0, len(x) - 1, min(len(x), _MOST_COMPARED_RUNS)).astype(int))
        rows, times = x[some], y[some]
        centre, away = median_and_deviations(np.delete(seen[k][:, some], k, axis=0))
        middle = rows - 0.5
        slopes = middle * trend.sd
        flat, trended, predicted_evidence = (
            max(scale_evidence(rows, rest, spread, _COMPARED_AMPLITUDES, _COMPARED_NOISES))[0]
            for rest, spread in (
                (times, np.zeros((len(rows), 1))),
                (times - middle @ trend.mean, slopes),
                (times - centre, away),
            )
        )
        total += predicted_evidence - max(flat, trended)
    return total / len(runs)


def median_and_deviations(table: Array) -> tuple[Array, Array]:
    """Median over jobs of a (jobs, n) table, and the scaled deviations from it, shape (n, jobs)."""
    centre = np.median(table, axis=0)
    away = (table - centre).T / math.sqrt(max(1, len(table) - 1))
    return centre, away


def scale_evidence(
    x: Array, rest: Array, spread: Array, amplitudes: Sequence[float], noises: Sequence[float]
) -> list[tuple[float, float, float]]:
    """Log evidence of what is left over of a job's runs, without its constant, under each amplitude and noise.

    Args:
        x: Features of the runs, shape (n, d).
        rest: ln seconds less what is expected of them, shape (n,), up to a level.
        spread: What else they vary by: its outer product is a covariance, shape (n, k).
        amplitudes: Standard deviations of a smooth rest to try.
        noises: And of one that is not smooth.

    Returns:
        Evidence, amplitude and noise of each pair.
    """
    length = 0.5 * math.sqrt(x.shape[1])
    polynomial, decay = matern(distances(x / length, x / length))
    fixed, shape = spread @ spread.T + _LEVEL_SD**2, polynomial * decay
    rest = rest - rest.mean()
    found = []
    for amplitude in amplitudes:
        for noise in noises:
            root, inverse = factorise(fixed + amplitude**2 * shape + (noise**2 + 1e-8) * np.eye(len(rest)))
            z = inverse @ rest
            found.append((round(-0.5 * float(z @ z) - float(np.log(np.diag(root)).sum()), 6), amplitude, noise))
    return found
