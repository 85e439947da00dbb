"""How well a process foresaw what was observed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tradewind.searcher.surrogate.gp import Array, GaussianProcess, factorise

_BOUND_WEIGHT = 0.5
"""Bounds of similar configurations say much the same, and are counted as if every second one were new."""


def log_evidence(process: GaussianProcess, x: Array, y: Array, censored: NDArray[np.bool_]) -> float:
    """Log density of the exact observations, and log probability of the bounds given them.

    Rasmussen & Williams 2006, equation 2.30, for the exact ones; the bounds' are those of independent predictions.

    Args:
        process: With its hyper-parameters.
        x: Features, shape (n, d).
        y: Observations or bounds, shape (n,).
        censored: True for a bound, shape (n,).
    """
    from scipy.special import log_ndtr

    exact = ~censored
    mean, covariance = process.prior(x)
    noise = process.noise_variance + 1e-8
    total = 0.0
    after, spread = np.broadcast_to(mean, y.shape)[censored], np.diag(covariance)[censored]
    if exact.any():
        root, inverse = factorise(covariance[np.ix_(exact, exact)] + noise * np.eye(int(exact.sum())))
        z = inverse @ (y - mean)[exact]
        total = -0.5 * float(z @ z) - float(np.log(np.diag(root)).sum())
        half = inverse @ covariance[np.ix_(exact, censored)]
        after, spread = after + half.T @ z, spread - (half * half).sum(axis=0)
    sd = np.sqrt(np.maximum(spread, 0.0) + noise)
    return total + _BOUND_WEIGHT * float(log_ndtr((after - y[censored]) / sd).sum())
