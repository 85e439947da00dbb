"""Expected saving and expected spend of a run, in closed form: pure functions of arrays.

A run's variable cost is ``X = e^G`` with ``G ~ N(mean, sd²)``: hourly price times execution time (or the time alone,
where the objective is the runtime). On top come a fixed ``setup`` that every run pays and a ``floor``, the least
that is billed, so that a full run costs ``max(setup + X, floor)``. All amounts are in the same unit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

_TINY = 1e-12
"""Least standard deviation: smaller ones are raised to it."""


def _normal(z: Array) -> Array:
    from scipy.special import ndtr

    values: Array = ndtr(z)
    return values


def _partial(mean: Array, sd: Array, at: Array) -> tuple[Array, Array]:
    """P(X ≤ at) and E[X; X ≤ at] of a log-normal X."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        z = (np.log(np.maximum(at, 0.0)) - mean) / sd
        z = np.where(np.isnan(z), np.inf, z)  # a free machine: X is zero for certain, and so is the bound
        share = _normal(z)
        # E[X] overflows where the model knows nothing and expects giants; there the capped part is nil.
        part = np.exp(np.minimum(mean + 0.5 * sd * sd, 700.0)) * _normal(z - sd)
    return share, np.minimum(np.nan_to_num(part, nan=0.0), np.where(np.isinf(at), np.inf, at))


def _prepare(*columns: ArrayLike) -> list[Array]:
    arrays = [np.asarray(c, dtype=float) for c in columns]
    arrays[1] = np.maximum(arrays[1], _TINY)
    return list(np.broadcast_arrays(*arrays))


def probability_below(mean: ArrayLike, sd: ArrayLike, at: ArrayLike) -> Array:
    """P(X ≤ at) of a log-normal X, elementwise; the arguments are broadcast against one another.

    Args:
        mean: Mean of ln X.
        sd: Standard deviation of ln X.
        at: The bound; infinite for none.
    """
    mean, sd, at = _prepare(mean, sd, at)
    return _partial(mean, sd, at)[0]


def expected_saving(
    mean: ArrayLike, sd: ArrayLike, best: ArrayLike, cap: ArrayLike, setup: ArrayLike = 0.0, floor: ArrayLike = 0.0
) -> Array:
    """Expected improvement of the cost under a cap on the variable cost: E[(best − max(setup + X, floor))⁺; X ≤ cap].

    With ``setup = floor = 0`` and ``cap = min(deadline · price, best)`` this is the exact constrained expected
    improvement ``best·Φ(z) − e^{m+s²/2}·Φ(z−s)``, ``z = (ln cap − m)/s``: cost and deadline share one posterior, so
    the product EI·P(T ≤ deadline) of CherryPick (Alipourfard et al., NSDI 2017), which takes them as independent, is
    not needed.

    Args:
        mean: Mean of ln X.
        sd: Standard deviation of ln X.
        best: The cost to beat.
        cap: The variable cost above which a run does not count (deadline, money left); infinite for none.
        setup: Fixed cost of every run.
        floor: The least that is billed for a run.
    """
    mean, sd, best, cap, setup, floor = _prepare(mean, sd, best, cap, setup, floor)
    top = np.minimum(cap, best - setup)
    level = np.minimum(np.maximum(floor - setup, 0.0), np.maximum(top, 0.0))
    low_share, low_part = _partial(mean, sd, level)
    top_share, top_part = _partial(mean, sd, np.maximum(top, 0.0))
    base = np.maximum(floor, setup)
    saving = (best - base) * low_share + (best - setup) * (top_share - low_share) - (top_part - low_part)
    result: Array = np.where((top > 0.0) & (best > base), np.maximum(saving, 0.0), 0.0)
    return result


def expected_spend(
    mean: ArrayLike, sd: ArrayLike, cap: ArrayLike, setup: ArrayLike = 0.0, floor: ArrayLike = 0.0
) -> Array:
    """Expected money that a run really costs when it is cut short at a cap: E[max(setup + min(X, cap), floor)].

    Args:
        mean: Mean of ln X.
        sd: Standard deviation of ln X.
        cap: The variable cost at which the run is cut short; infinite for never.
        setup: Fixed cost of every run.
        floor: The least that is billed for a run.
    """
    mean, sd, cap, setup, floor = _prepare(mean, sd, cap, setup, floor)
    cap = np.maximum(cap, 0.0)
    level = np.minimum(np.maximum(floor - setup, 0.0), cap)
    low_share, low_part = _partial(mean, sd, level)
    top_share, top_part = _partial(mean, sd, cap)
    with np.errstate(invalid="ignore"):
        beyond = np.where(np.isinf(cap), 0.0, cap * (1.0 - top_share))
    spend = np.maximum(floor, setup) * low_share + setup * (1.0 - low_share) + (top_part - low_part) + beyond
    result: Array = np.maximum(spend, np.maximum(floor, setup))
    return result


def expected_improvement(mean: ArrayLike, sd: ArrayLike, best: ArrayLike) -> Array:
    """E[(best − Y)⁺] of a normal Y to be made small (Jones, Schonlau & Welch, J. Global Optimization 1998, eq. 15).

    Args:
        mean: Mean of Y.
        sd: Standard deviation of Y.
        best: The value to beat.
    """
    mean, sd, best = _prepare(mean, sd, best)
    with np.errstate(over="ignore"):  # infinitely many deviations away is as good as very many
        z = (best - mean) / sd
        density: Any = np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi)
    result: Array = np.maximum((best - mean) * _normal(z) + sd * density, 0.0)
    return result


def probability_between(mean: ArrayLike, sd: ArrayLike, low: ArrayLike, high: ArrayLike) -> Array:
    """P(low ≤ Y ≤ high) of a normal Y; infinite bounds are none."""
    mean, sd, low, high = _prepare(mean, sd, low, high)
    with np.errstate(over="ignore"):  # infinitely many deviations away is as good as very many
        above, below = (high - mean) / sd, (low - mean) / sd
    result: Array = np.clip(_normal(above) - _normal(below), 0.0, 1.0)
    return result
