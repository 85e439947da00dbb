"""Gradients against differences."""

from __future__ import annotations

import numpy as np
from scipy.optimize import check_grad

from tradewind.searcher.surrogate.gp import Array, GaussianProcess


def check_gradient(
    process: GaussianProcess, x: Array, y: Array, extra: Array, *, spread: float, tolerance: float
) -> None:
    """See that the gradient of the loss is that of its values, at four places around the centre of the priors.

    Args:
        process: Whose loss it is.
        x: Features, shape (n, d).
        y: Standardised observations, shape (n,).
        extra: Variance of each, shape (n,).
        spread: Standard deviation of the places.
        tolerance: Of the error, as a share of the gradient, or of 1 where that is less.
    """
    centre, width = process._prior_centre(x.shape[1])
    loss = process._loss_at(x, y, extra, centre, width)

    def value(theta: Array) -> float:
        return loss(theta)[0]

    def gradient(theta: Array) -> Array:
        return loss(theta)[1]

    for seed in range(4):
        theta = centre + spread * np.random.default_rng(seed).standard_normal(len(centre))
        error = check_grad(value, gradient, theta)
        assert error < tolerance * max(1.0, float(np.linalg.norm(gradient(theta))))
