"""A Gaussian process over configurations and shares of the input."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tradewind.searcher.surrogate.gp import Array, factorise

_ROOT5 = math.sqrt(5.0)
_JITTER = 1e-8
_MOST_FITTED = 60
"""Hyper-parameters are fitted to at most so many observations, evenly chosen; all of them are conditioned on."""
_PRIOR_OBSERVATIONS = 4.0
_BOUND = 5.0


@dataclass(frozen=True, slots=True)
class FidelityPriors:
    """Normal priors of the hyper-parameters, for standardised targets, features and levels in [0, 1].

    Attributes:
        length: Centre of a length scale for one feature; it grows with the root of the number of features.
        noise: Centre of the noise's standard deviation.
        slope: Standard deviation of how much of the whole's function returns in the effect of the level.
        own: Centre of the standard deviation of the level's own effect.
        mean: Standard deviation of the constant and of the common slope, which are integrated out.
    """

    length: float = 0.5
    noise: float = 0.05
    slope: float = 0.5
    own: float = 0.4
    mean: float = 1.0


class FidelityProcess:
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

    def __init__(self, priors: FidelityPriors | None = None, *, spread: float | None = None) -> None:
        self.priors = priors or FidelityPriors()
        self.spread = spread
        self._theta: Array = np.zeros(4)
        self._shift, self._scale = 0.0, 1.0
        self._x: Array = np.zeros((0, 1))
        self._y: Array = np.zeros(0)
        self._extra: Array = np.zeros(0)

    # ------------------------------------------------------------------ fitting

    def fit(self, x: Array, y: Array) -> FidelityProcess:
        """Fit hyper-parameters and condition on observations.

        Args:
            x: Features, the level in the last column, shape (n, d + 1), n at least 1.
            y: Observations, shape (n,), finite.

        Returns:
            Itself.
        """
        from scipy.optimize import minimize

        self._shift, self._scale = float(y.mean()), self._spread_of(y)
        targets = (y - self._shift) / self._scale
        centre, width = self._prior_centre(x.shape[1] - 1)
        some = np.unique(np.linspace(0, len(x) - 1, min(len(x), _MOST_FITTED)).astype(int))
        spots = x[some, :-1]
        squares = ((spots[:, None, :] - spots[None, :, :]) ** 2).reshape(len(some) ** 2, -1)
        found = minimize(
            self._loss,
            centre,
            args=(squares, x[some, -1], targets[some], centre, width),
            jac=True,
            method="BFGS",
            options={"maxiter": 40, "gtol": 1e-2},
        )
        self._theta = np.clip(np.asarray(found.x, dtype=float), centre - _BOUND, centre + _BOUND)
        self._set(x, targets, np.zeros(len(y)))
        return self

    def _spread_of(self, y: Array) -> float:
        seen = float(y.std())
        if self.spread is not None:
            n, prior = len(y), _PRIOR_OBSERVATIONS
            return math.sqrt((n * seen**2 + prior * self.spread**2) / (n + prior))
        return seen if seen > 1e-12 * max(1.0, abs(self._shift)) else 1.0

    def _prior_centre(self, d: int) -> tuple[Array, Array]:
        p = self.priors
        length = math.log(p.length * math.sqrt(max(1, d)))
        centre = np.array([0.0, math.log(p.noise), 0.0, math.log(p.own), *[length] * d])
        width = np.array([0.5, 1.0, p.slope, 0.7, *[1.0] * d])
        return centre, width

    def _loss(
        self, theta: Array, squares: Array, level: Array, y: Array, centre: Array, width: Array
    ) -> tuple[float, Array]:
        """Negative log posterior of the hyper-parameters, and its gradient."""
        n = len(y)
        away = (theta - centre) / width
        theta = np.clip(theta, centre - _BOUND, centre + _BOUND)
        amplitude, noise = math.exp(2 * theta[0]), math.exp(2 * theta[1])
        b, own = float(theta[2]), math.exp(2 * theta[3])
        inverse = np.exp(-2 * theta[4:])
        r = np.sqrt(squares @ inverse).reshape(n, n)
        both, product = level[:, None] + level[None, :], level[:, None] * level[None, :]
        line = 1.0 + b * both + (b * b + own) * product
        decay = amplitude * np.exp(-_ROOT5 * r)
        matern = decay * (1.0 + _ROOT5 * r + (5.0 / 3.0) * r * r)
        kernel = matern * line
        total = kernel + self.priors.mean**2 * (1.0 + product)
        total[np.diag_indices(n)] += noise + _JITTER
        root, inverse_root = factorise(total)
        alpha = (y @ inverse_root.T) @ inverse_root
        value = 0.5 * float(y @ alpha) + float(np.log(np.diag(root)).sum()) + 0.5 * float(away @ away)
        weights = inverse_root.T @ inverse_root - np.outer(alpha, alpha)
        gradient = away / width
        gradient[0] += float((weights * kernel).sum())
        gradient[1] += noise * float(np.trace(weights))
        gradient[2] += 0.5 * float((weights * matern * (both + 2.0 * b * product)).sum())
        gradient[3] += own * float((weights * matern * product).sum())
        slope = (weights * line * decay * (5.0 / 3.0) * (1.0 + _ROOT5 * r)).ravel()
        gradient[4:] += 0.5 * (slope @ squares) * inverse
        return value, gradient

    # ------------------------------------------------------------------ conditioning

    def _set(self, x: Array, targets: Array, extra: Array) -> None:
        self._x, self._y, self._extra = x, targets, extra
        total = self._kernel(x, x)
        total[np.diag_indices(len(x))] += math.exp(2 * self._theta[1]) + extra + _JITTER
        _, self._inverse_root = factorise(total)
        self._alpha: Array = (targets @ self._inverse_root.T) @ self._inverse_root

    def _kernel(self, a: Array, c: Array) -> Array:
        inverse = np.exp(-self._theta[4:])
        u, v = a[:, :-1] * inverse, c[:, :-1] * inverse
        squares = (u * u).sum(1)[:, None] + (v * v).sum(1)[None, :] - 2.0 * (u @ v.T)
        r = np.sqrt(np.maximum(squares, 0.0))
        matern = math.exp(2 * self._theta[0]) * (1.0 + _ROOT5 * r + (5.0 / 3.0) * r * r) * np.exp(-_ROOT5 * r)
        both, product = a[:, -1][:, None] + c[:, -1][None, :], a[:, -1][:, None] * c[:, -1][None, :]
        kernel: Array = matern * self._line(both, product) + self.priors.mean**2 * (1.0 + product)
        return kernel

    def _line(self, both: Array, product: Array) -> Array:
        b, own = float(self._theta[2]), math.exp(2 * self._theta[3])
        return np.asarray(1.0 + b * both + (b * b + own) * product)

    def _diagonal(self, x: Array) -> Array:
        level = x[:, -1]
        own: Array = math.exp(2 * self._theta[0]) * self._line(2 * level, level**2)
        return own + self.priors.mean**2 * (1.0 + level**2)

    def predict(self, x: Array) -> tuple[Array, Array]:
        """Mean and variance of the noise-free function.

        Args:
            x: Features and level, shape (m, d + 1).

        Returns:
            Two arrays of shape (m,), in units and squared units of the observations.
        """
        cross = self._kernel(self._x, x)
        mean: Array = self._shift + self._scale * (cross.T @ self._alpha)
        half = self._inverse_root @ cross
        prior = self._diagonal(x)
        variance: Array = np.maximum(prior - (half * half).sum(axis=0), 1e-10 * prior) * self._scale**2
        return mean, variance

    def joint(self, x: Array) -> tuple[Array, Array]:
        """Mean, shape (m,), and covariance, shape (m, m), of the noise-free function."""
        cross = self._kernel(self._x, x)
        half = self._inverse_root @ cross
        covariance: Array = (self._kernel(x, x) - half.T @ half) * self._scale**2
        return self._shift + self._scale * (cross.T @ self._alpha), covariance

    def given(self, x: Array, y: Array, extra: Array | None = None) -> FidelityProcess:
        """A copy with the same hyper-parameters and other observations.

        Args:
            x: Features and level, shape (m, d + 1).
            y: Observations, shape (m,).
            extra: Variance of each besides the common noise.
        """
        other = FidelityProcess(self.priors, spread=self.spread)
        other._theta, other._shift, other._scale = self._theta, self._shift, self._scale
        more = np.zeros(len(y)) if extra is None else extra / self._scale**2
        other._set(x, (y - self._shift) / self._scale, more)
        return other

    def believing(self, x: Array) -> FidelityProcess:
        """A copy that takes its own mean at ``x`` for observed: the kriging believer."""
        known = self._shift + self._scale * self._y
        extra = np.concatenate([self._extra * self._scale**2, np.zeros(len(x))])
        return self.given(np.vstack([self._x, x]), np.concatenate([known, self.predict(x)[0]]), extra)

    # ------------------------------------------------------------------ what it found

    @property
    def noise_variance(self) -> float:
        """Variance of the common noise, in squared units of the observations."""
        return math.exp(2 * float(self._theta[1])) * self._scale**2

    def prior(self, x: Array) -> tuple[float, Array]:
        """Mean and covariance of the function at ``x`` before any observation, in units of the observations."""
        return self._shift, self._kernel(x, x) * self._scale**2
