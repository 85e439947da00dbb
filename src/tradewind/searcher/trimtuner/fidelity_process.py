"""A Gaussian process over configurations and shares of the input."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tradewind.searcher.surrogate.gp import JITTER, Array, GaussianProcess, GpPriors, likelihood
from tradewind.searcher.surrogate.matern import distances, matern, matern_slope


@dataclass(frozen=True, slots=True)
class FidelityPriors(GpPriors):
    """Priors of the hyper-parameters, for standardised targets, features and levels in [0, 1].

    Attributes:
        noise: Centre of the noise's standard deviation, as in `GpPriors`, but larger by default.
        slope: Standard deviation of how much of the whole's function returns in the effect of the level.
        own: Centre of the standard deviation of the level's own effect.
    """

    noise: float = 0.05
    slope: float = 0.5
    own: float = 0.4


class FidelityProcess(GaussianProcess):
    """Gaussian process regression in (x, level) with a Matérn 5/2 kernel in x times a Bayesian linear one in the level.

    The value is ``g(x) + level · (b·g(x) + c·h(x))`` with independent processes g and h of one kernel, plus a common
    line in the level. That is the kernel ``k(x, x') · φᵀΣφ'`` of FABOLAS (Klein et al., AISTATS 2017, section 3.1),
    which TrimTuner (Mendes et al., MASCOTS 2020, section III) takes over, with ``φ = (1, level)``. The level is 0 on
    the whole input and 1 on the smallest part. Hyper-parameters maximise the posterior by BFGS from a fixed start.

    Args:
        priors: Of the hyper-parameters.
        spread: The standard deviation that observations are expected to have, in their own units; None takes the
            observed one.
    """

    most_fitted = 60
    bound = 5.0

    priors: FidelityPriors

    def __init__(self, priors: FidelityPriors | None = None, *, spread: float | None = None) -> None:
        super().__init__(priors or FidelityPriors(), starts=1, spread=spread)

    def _prior_centre(self, d: int) -> tuple[Array, Array]:
        centre, width = super()._prior_centre(d - 1)
        level = math.log(self.priors.own)
        return np.insert(centre, 2, [0.0, level]), np.insert(width, 2, [self.priors.slope, 0.7])

    def _loss_at(
        self, x: Array, y: Array, extra: Array, centre: Array, width: Array
    ) -> Callable[[Array], tuple[float, Array]]:
        n, spots = len(y), x[:, :-1]
        squares = ((spots[:, None, :] - spots[None, :, :]) ** 2).reshape(n**2, spots.shape[1])
        both, product = _levels(x, x)
        base = self._fixed(x, x)

        def loss(theta: Array) -> tuple[float, Array]:
            away = (theta - centre) / width
            theta = np.clip(theta, centre - self.bound, centre + self.bound)
            amplitude, noise = math.exp(2 * theta[0]), math.exp(2 * theta[1])
            b, own = float(theta[2]), math.exp(2 * theta[3])
            inverse = np.exp(-2 * theta[4:])
            r = np.sqrt(squares @ inverse).reshape(n, n)
            line = 1.0 + b * both + (b * b + own) * product
            polynomial, decay = matern(r)
            decay = amplitude * decay
            same = decay * polynomial
            kernel = same * line
            total = kernel + base
            total[np.diag_indices(n)] += noise + extra + JITTER
            value, weights = likelihood(total, y)
            gradient = away / width
            gradient[0] += float((weights * kernel).sum())
            gradient[1] += noise * float(np.trace(weights))
            gradient[2] += 0.5 * float((weights * same * (both + 2.0 * b * product)).sum())
            gradient[3] += own * float((weights * same * product).sum())
            gradient[4:] += 0.5 * (matern_slope(weights * line * decay, r).ravel() @ squares) * inverse
            return value + 0.5 * float(away @ away), gradient

        return loss

    def _prior(self, a: Array, b: Array) -> Array:
        inverse = np.exp(-self._theta[4:])
        polynomial, decay = matern(distances(a[:, :-1] * inverse, b[:, :-1] * inverse))
        kernel: Array = math.exp(2 * self._theta[0]) * polynomial * decay * self._line(*_levels(a, b))
        return kernel + self._fixed(a, b)

    def _line(self, both: Array, product: Array) -> Array:
        b, own = float(self._theta[2]), math.exp(2 * self._theta[3])
        return np.asarray(1.0 + b * both + (b * b + own) * product)

    def _variance(self, x: Array) -> Array:
        level = x[:, -1]
        own: Array = math.exp(2 * self._theta[0]) * self._line(2 * level, level**2)
        return own + self._fixed_variance(x)

    def _fixed(self, a: Array, b: Array) -> Array:
        fixed: Array = self.priors.mean**2 * (1.0 + _levels(a, b)[1])
        return fixed

    def _fixed_variance(self, x: Array) -> Array:
        fixed: Array = self.priors.mean**2 * (1.0 + x[:, -1] ** 2)
        return fixed

    def joint(self, x: Array) -> tuple[Array, Array]:
        """Mean, shape (m,), and covariance, shape (m, m), of the noise-free function."""
        cross = self._prior(self._x, x)
        half = self._inverse_root @ cross
        covariance: Array = (self._prior(x, x) - half.T @ half) * self._scale**2
        return self._shift + self._scale * (cross.T @ self._alpha), covariance


def _levels(a: Array, b: Array) -> tuple[Array, Array]:
    """Sum and product of the levels of each pair, shape (len(a), len(b))."""
    return a[:, -1][:, None] + b[:, -1][None, :], a[:, -1][:, None] * b[:, -1][None, :]
