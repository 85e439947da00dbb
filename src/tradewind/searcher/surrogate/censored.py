"""A Gaussian process that learns from runs that were cut short."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tradewind.searcher.surrogate.gp import Array, GaussianProcess, GpPriors, factorise

_SWEEPS = 8
_SETTLED = 0.02
"""Sites have settled when none changes its precision by this share of what is known already."""

_LEAST_NOISE = 1e-6
_MOST_BOUNDS = 80
"""With more bounds than this, only the most surprising are worked out."""
_NOTHING = 1e-6
"""A bound that teaches less than this share of what an observation would is left out."""


class PriorProcess(Protocol):
    """A process with a prior mean and covariance, as `bound_sites` takes it."""

    @property
    def noise_variance(self) -> float:
        """Variance of the common noise."""
        ...

    def prior(self, x: Array) -> tuple[float | Array, Array]:
        """Mean and covariance of the function at ``x`` before any observation."""
        ...


def fit_censored(
    x: Array,
    y: Array,
    censored: NDArray[np.bool_],
    priors: GpPriors | None = None,
    *,
    starts: int = 2,
    steps: int = 40,
    spread: float | None = None,
    make: Callable[[int, int], GaussianProcess] | None = None,
) -> GaussianProcess:
    """Fit a process to exact observations and to lower bounds.

    Hyper-parameters come from the exact observations first; the bounds then enter as the Gaussian observations that
    expectation propagation finds for them (`bound_sites`), the hyper-parameters are fitted once more with these, and
    the bounds are worked out again. A bound far below what the process expects anyway teaches nothing; one above it
    pulls it up, with the uncertainty that remains.

    Args:
        x: Features, shape (n, d).
        y: Observations, or bounds that the truth is above, shape (n,).
        censored: True for a bound, shape (n,).
        priors: See `GaussianProcess`.
        starts: See `GaussianProcess`.
        steps: See `GaussianProcess`.
        spread: See `GaussianProcess`.
        make: Makes a process of another kind, from ``starts`` and ``steps``; ``priors`` and ``spread`` are its own.
    """
    new = make or (lambda starts, steps: GaussianProcess(priors, starts=starts, steps=steps, spread=spread))
    process = new(starts, steps)
    exact = ~censored
    if not censored.any():
        return process.fit(x, y)
    if exact.sum() < 2:
        # Nothing to learn a scale from: the bounds stand in for observations.
        process.fit(x, y)
    else:
        process.fit(x[exact], y[exact])
    if censored.sum() > _MOST_BOUNDS:
        kept = exact.copy()
        kept[_most_surprising(process, x, y, censored)] = True
        x, y, censored = x[kept], y[kept], censored[kept]
    for again in (True, False):
        means, variances, useful = bound_sites(process, x, y, censored)
        if not useful.any():
            return process
        extra = np.where(censored, np.maximum(variances - process.noise_variance, 0.0), 0.0)
        if again:
            process = new(1, steps // 2).fit(x[useful], means[useful], extra[useful], theta=process.theta)
        else:
            process = process.given(x[useful], means[useful], extra[useful])
    return process


def _most_surprising(process: GaussianProcess, x: Array, y: Array, censored: NDArray[np.bool_]) -> NDArray[np.intp]:
    """The bounds that lie highest against what the process expects; the others teach least."""
    places = np.flatnonzero(censored)
    mean, variance = process.predict(x[places])
    return places[np.argsort(np.round((mean - y[places]) / np.sqrt(variance), 9), kind="stable")[:_MOST_BOUNDS]]


def bound_sites(
    process: PriorProcess, x: Array, y: Array, censored: NDArray[np.bool_]
) -> tuple[Array, Array, NDArray[np.bool_]]:
    """The Gaussian observations that stand for lower bounds, by expectation propagation.

    The likelihood of a bound b is Φ((f − b)/σ); its moments are those of Rasmussen & Williams 2006, equations 3.82
    to 3.85. Sites are updated one after the other (algorithm 3.5 there): bounds of similar configurations that were
    updated together would all answer for the same surprise, and overshoot.

    Args:
        process: Kernel, mean and noise.
        x: Features, shape (n, d).
        y: Observations or bounds, shape (n,).
        censored: True for a bound, shape (n,).

    Returns:
        Means and variances, shape (n,), equal to ``y`` and the noise where not censored; and where they say anything.
    """
    shift, prior = process.prior(x)
    noise = max(process.noise_variance, _LEAST_NOISE * float(prior[0, 0]))
    target = y - shift
    precision = np.where(censored, 0.0, 1.0 / noise)
    product = np.where(censored, 0.0, target / noise)
    for _ in range(_SWEEPS):
        mean, covariance = _posterior(prior, precision, product)
        moved = 0.0
        for i in np.flatnonzero(censored):
            site = _site(float(mean[i]), float(covariance[i, i]), precision[i], product[i], float(target[i]), noise)
            if site is None:
                continue
            more, extra = site[0] - precision[i], site[1] - product[i]
            moved = max(moved, abs(more) * float(covariance[i, i]))
            column = covariance[:, i].copy()
            scale = 1.0 / (1.0 + more * column[i])
            mean = mean + column * ((extra - more * mean[i]) * scale)
            covariance = covariance - (more * scale) * (column[:, None] * column[None, :])
            precision[i], product[i] = site
        if moved < _SETTLED:
            break
    useful = precision > _NOTHING / noise
    known = np.where(useful, precision, 1.0)
    means = np.where(useful, product / known, 0.0) + shift
    return means, np.where(useful, 1.0 / known, 0.0), useful


def _site(
    mean: float, variance: float, precision: float, product: float, bound: float, noise: float
) -> tuple[float, float] | None:
    """Precision, and precision times mean, of one bound's site; None where the rest of the data decides nothing."""
    from scipy.special import erfcx

    left = 1.0 / max(variance, 1e-300) - precision
    if left * variance < 1e-9:
        return None
    cavity_variance = 1.0 / left
    cavity_mean = cavity_variance * (mean / variance - product)
    spread = math.sqrt(cavity_variance + noise)
    z = (cavity_mean - bound) / spread
    # φ(z)/Φ(z), without the underflow of either far below the bound.
    ratio = math.sqrt(2.0 / math.pi) / float(erfcx(-z / math.sqrt(2.0)))
    new_mean = cavity_mean + cavity_variance * ratio / spread
    shrink = 1.0 - cavity_variance * ratio * (z + ratio) / (cavity_variance + noise)
    new_variance = cavity_variance * min(max(shrink, 1e-6), 1.0)
    site = max(1.0 / new_variance - left, 0.0)
    return site, (new_mean / new_variance - cavity_mean * left) if site > 0.0 else 0.0


def _posterior(prior: Array, precision: Array, product: Array) -> tuple[Array, Array]:
    """Mean and covariance of N(0, prior) times Gaussian sites (Rasmussen & Williams 2006, equations 3.53 and 3.68)."""
    root = np.sqrt(precision)
    inner = np.eye(len(prior)) + root[:, None] * prior * root[None, :]
    inner[np.diag_indices(len(prior))] += 1e-10
    half = factorise(inner)[1] @ (root[:, None] * prior)
    covariance: Array = prior - half.T @ half
    mean: Array = covariance @ product
    return mean, covariance
