"""A Gaussian process that learns from runs that were cut short."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tradewind.searcher.surrogate.gp import Array, GaussianProcess, Priors, factorise

_SWEEPS = 12
_DAMPING = 0.8
_NOTHING = 1e-6
"""A bound that teaches less than this share of what an observation would is left out."""


def fit_censored(
    x: Array, y: Array, censored: NDArray[np.bool_], priors: Priors | None = None, *, starts: int = 2, steps: int = 40
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
    """
    process = GaussianProcess(priors, starts=starts, steps=steps)
    exact = ~censored
    if not censored.any():
        return process.fit(x, y)
    if exact.sum() < 2:
        # Nothing to learn a scale from: the bounds stand in for observations.
        process.fit(x, y)
    else:
        process.fit(x[exact], y[exact])
    for again in (True, False):
        means, variances, useful = bound_sites(process, x, y, censored)
        extra = np.where(censored, np.maximum(variances - process.noise_variance, 0.0), 0.0)
        if again:
            refit = GaussianProcess(priors, starts=1, steps=steps // 2)
            process = refit.fit(x[useful], means[useful], extra[useful], theta=process.theta)
        else:
            process = process.given(x[useful], means[useful], extra[useful])
    return process


def bound_sites(
    process: GaussianProcess, x: Array, y: Array, censored: NDArray[np.bool_]
) -> tuple[Array, Array, NDArray[np.bool_]]:
    """The Gaussian observations that stand for lower bounds, by expectation propagation.

    The likelihood of a bound b is Φ((f − b)/σ); its moments are those of Rasmussen & Williams 2006, equations 3.82
    to 3.85. All sites are updated at once, damped.

    Args:
        process: Kernel, mean and noise.
        x: Features, shape (n, d).
        y: Observations or bounds, shape (n,).
        censored: True for a bound, shape (n,).

    Returns:
        Means and variances, shape (n,), equal to ``y`` and the noise where not censored; and where they say anything.
    """
    from scipy.special import log_ndtr

    shift, prior = process.prior(x)
    noise = max(process.noise_variance, 1e-12)
    target = y - shift
    precision = np.where(censored, 0.0, 1.0 / noise)
    product = np.where(censored, 0.0, target / noise)
    at = np.flatnonzero(censored)
    for _ in range(_SWEEPS):
        mean, covariance = _posterior(prior, precision, product)
        variance = np.maximum(np.diag(covariance)[at], 1e-12)
        left = np.maximum(1.0 / variance - precision[at], 1e-12)
        cavity_variance = 1.0 / left
        cavity_mean = cavity_variance * (mean[at] / variance - product[at])
        spread = np.sqrt(cavity_variance + noise)
        z = (cavity_mean - target[at]) / spread
        ratio = np.exp(-0.5 * z * z - 0.5 * np.log(2 * np.pi) - log_ndtr(z))
        new_mean = cavity_mean + cavity_variance * ratio / spread
        new_variance = cavity_variance * (1.0 - cavity_variance * ratio * (z + ratio) / (cavity_variance + noise))
        new_variance = np.clip(new_variance, 1e-12, cavity_variance)
        site = np.maximum(1.0 / new_variance - left, 0.0)
        weighted = new_mean / new_variance - cavity_mean * left
        precision[at] += _DAMPING * (site - precision[at])
        product[at] += _DAMPING * (weighted - product[at])
    useful = precision > _NOTHING / noise
    means = np.where(useful, product / np.where(useful, precision, 1.0), 0.0) + shift
    variances = np.where(useful, 1.0 / np.where(useful, precision, 1.0), np.inf)
    return means, np.where(useful, variances, 0.0), useful


def _posterior(prior: Array, precision: Array, product: Array) -> tuple[Array, Array]:
    """Mean and covariance of N(0, prior) times Gaussian sites (Rasmussen & Williams 2006, equations 3.53 and 3.68)."""
    root = np.sqrt(precision)
    inner = np.eye(len(prior)) + root[:, None] * prior * root[None, :]
    inner[np.diag_indices(len(prior))] += 1e-10
    half = factorise(inner)[1] @ (root[:, None] * prior)
    covariance: Array = prior - half.T @ half
    mean: Array = covariance @ product
    return mean, covariance
