"""A Gaussian process for few, expensive observations, and the evidence of observations under it."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from tradewind.searcher.surrogate.matern import Array as Array
from tradewind.searcher.surrogate.matern import distances, matern, matern_slope

JITTER = 1e-8
"""Added to the variance of each observation, so that its covariance has a factor."""

_PRIOR_OBSERVATIONS = 4.0

_BLOCK = 7
"""Triangles up to this size are inverted directly: OpenBLAS solves larger ones with several threads."""


_RESCUES = (1e-12, 1e-10, 1e-8, 1e-6)
"""Shares of the mean of a diagonal that are added to it, one after the other, until a factor is found."""


def factorise(matrix: Array) -> tuple[Array, Array]:
    """The lower Cholesky factor of a positive definite matrix, and that factor's inverse.

    Observations without noise of a very smooth function leave a matrix that is not positive definite in double
    precision; it then gets the least of some noises on its diagonal, relative to its own size, that makes it so.

    Raises:
        LinAlgError: It has no factor even then: an entry is NaN, or it is no covariance.
    """
    try:
        root: Array = np.asarray(np.linalg.cholesky(matrix), dtype=float)
    except np.linalg.LinAlgError:
        root = _rescued(matrix)
    return root, _inverted(root)


def _rescued(matrix: Array) -> Array:
    """The factor of a matrix that is not quite positive definite."""
    size = float(np.trace(matrix)) / len(matrix)
    for noise in _RESCUES:
        try:
            return np.asarray(np.linalg.cholesky(matrix + noise * size * np.eye(len(matrix))), dtype=float)
        except np.linalg.LinAlgError:
            continue
    raise np.linalg.LinAlgError(f"a matrix of {len(matrix)} rows is no covariance")


def _inverted(lower: Array) -> Array:
    """The inverse of a lower triangle: blocks of the diagonal first, then pairs of blocks by multiplication."""
    n = len(lower)
    doublings = max(0, math.ceil(math.log2(n / _BLOCK)))
    size = -(-n // 2**doublings)
    padded = np.eye(size * 2**doublings)
    padded[:n, :n] = lower
    diagonal = np.stack([padded[i : i + size, i : i + size] for i in range(0, len(padded), size)])
    inverses: Array = np.asarray(np.linalg.inv(diagonal), dtype=float)
    while size < len(padded):
        below = np.stack([padded[i + size : i + 2 * size, i : i + size] for i in range(0, len(padded), 2 * size)])
        first, second = inverses[0::2], inverses[1::2]
        inverses = np.zeros((len(first), 2 * size, 2 * size))
        inverses[:, :size, :size], inverses[:, size:, size:] = first, second
        inverses[:, size:, :size] = -second @ below @ first
        size *= 2
    return np.tril(inverses[0][:n, :n])


def likelihood(total: Array, y: Array) -> tuple[float, Array]:
    """Negative log marginal likelihood of observations, without its constant, and the weights of its gradient.

    Rasmussen & Williams 2006, equations 5.8 and 5.9: the derivative by a hyper-parameter is half the sum of the
    weights times the derivative of the covariance.

    Args:
        total: Covariance of the observations, noise included, shape (n, n).
        y: Observations less their mean, shape (n,).
    """
    root, inverse_root = factorise(total)
    alpha = (y @ inverse_root.T) @ inverse_root
    value = 0.5 * float(y @ alpha) + float(np.log(np.diag(root)).sum())
    return value, inverse_root.T @ inverse_root - np.outer(alpha, alpha)


@dataclass(frozen=True, slots=True)
class GpPriors:
    """Log-normal priors of the hyper-parameters, for standardised targets and features in [0, 1].

    Attributes:
        length: Centre of a length scale for one feature; it grows with the root of the number of features, so that
            the process does not become wilder as features are added (Hvarfner et al., ICML 2024, section 4).
        length_sd: Standard deviation of its logarithm.
        amplitude: Centre of the process's standard deviation.
        amplitude_sd: Standard deviation of its logarithm.
        noise: Centre of the noise's standard deviation.
        noise_sd: Standard deviation of its logarithm.
        mean: Standard deviation of the unknown constant mean, which is integrated out; it is not fitted.
    """

    length: float = 0.5
    length_sd: float = 1.0
    amplitude: float = 1.0
    amplitude_sd: float = 0.5
    noise: float = 0.03
    noise_sd: float = 1.0
    mean: float = 1.0


class GaussianProcess:
    """Gaussian process regression with a Matérn 5/2 kernel, one length scale a feature (ARD).

    The hyper-parameters maximise the posterior (marginal likelihood times priors; Rasmussen & Williams, "Gaussian
    Processes for Machine Learning", 2006, equation 5.8 with gradient 5.9) by BFGS from fixed starts, so that the
    model is a function of the data alone.

    Args:
        priors: Priors of the hyper-parameters.
        starts: Number of points from which the hyper-parameters are fitted.
        steps: BFGS iterations from each.
        spread: The standard deviation that observations are expected to have, in their own units: it counts as much
            as `_PRIOR_OBSERVATIONS` observations. None takes the observed one as it is.
    """

    most_fitted = 100
    """Hyper-parameters are fitted to at most so many observations, evenly chosen; all of them are conditioned on."""

    bound = 6.0
    """Hyper-parameters stay within e^±6 of their priors' centres."""

    def __init__(
        self, priors: GpPriors | None = None, *, starts: int = 2, steps: int = 40, spread: float | None = None
    ) -> None:
        self.priors = priors or GpPriors()
        self.spread = spread
        self.starts = starts
        self.steps = steps
        self._theta: Array = np.zeros(0)
        self._x: Array = np.zeros((0, 0))
        self._y: Array = np.zeros(0)
        self._extra: Array = np.zeros(0)
        self._shift = 0.0
        self._scale = 1.0

    # ------------------------------------------------------------------ fitting

    def fit(self, x: Array, y: Array, extra: Array | None = None, *, theta: Array | None = None) -> Self:
        """Fit hyper-parameters and condition on observations.

        Args:
            x: Features, shape (n, d), n at least 1.
            y: Observations, shape (n,), finite.
            extra: Variance of each observation besides the common noise, in squared units of ``y``.
            theta: Logarithms of hyper-parameters to start from (`theta` of another process), instead of the starts.

        Returns:
            Itself.
        """
        from scipy.optimize import minimize

        bare = y - self._trend(x)
        self._shift = self._level(bare)
        self._scale = self._spread_of(y)
        targets = (bare - self._shift) / self._scale
        variance = np.zeros(len(y)) if extra is None else extra / self._scale**2
        centre, width = self._prior_centre(x.shape[1])
        some = np.unique(np.linspace(0, len(x) - 1, min(len(x), self.most_fitted)).astype(int))
        loss = self._loss_at(x[some], targets[some], variance[some], centre, width)
        # BFGS, not L-BFGS-B: scipy's L-BFGS-B calls LAPACK's threaded solvers on 10 x 10 matrices in every step, which
        # takes a hundred times as long where the jobs being tuned keep all CPUs busy.
        guesses = [theta] if theta is not None else [centre, *self._other_starts(centre)][: max(1, self.starts)]
        best: tuple[float, Array] | None = None
        for guess in guesses:
            found = minimize(loss, guess, jac=True, method="BFGS", options={"maxiter": self.steps, "gtol": 1e-2})
            if best is None or float(found.fun) < best[0] - 1e-6:
                best = (float(found.fun), np.asarray(found.x))
        assert best is not None
        self._theta = np.clip(best[1], centre - self.bound, centre + self.bound)
        self._set(x, targets, variance)
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
        centre = np.array([math.log(p.amplitude), math.log(p.noise), *[length] * d])
        width = np.array([p.amplitude_sd, p.noise_sd, *[p.length_sd] * d])
        return centre, width

    @staticmethod
    def _other_starts(centre: Array) -> list[Array]:
        smooth, rough = centre.copy(), centre.copy()
        smooth[2:] += 1.0
        smooth[1] += 1.5
        rough[2:] -= 1.0
        return [smooth, rough]

    def _loss_at(
        self, x: Array, y: Array, extra: Array, centre: Array, width: Array
    ) -> Callable[[Array], tuple[float, Array]]:
        """The negative log posterior of hyper-parameters, and its gradient, given standardised observations."""
        n, base = len(y), self._fixed(x, x)
        squares = ((x[:, None, :] - x[None, :, :]) ** 2).reshape(len(x) ** 2, x.shape[1])

        def loss(theta: Array) -> tuple[float, Array]:
            away = (theta - centre) / width
            theta = np.clip(theta, centre - self.bound, centre + self.bound)
            amplitude, noise = math.exp(2 * theta[0]), math.exp(2 * theta[1])
            inverse = np.exp(-2 * theta[2:])
            r = np.sqrt(squares @ inverse).reshape(n, n)
            polynomial, decay = matern(r)
            decay = amplitude * decay
            kernel = decay * polynomial
            total = kernel + base
            total[np.diag_indices(n)] += noise + extra + JITTER
            value, weights = likelihood(total, y)
            gradient = away / width
            gradient[0] += float((weights * kernel).sum())
            gradient[1] += noise * float(np.trace(weights))
            gradient[2:] += 0.5 * (matern_slope(weights * decay, r).ravel() @ squares) * inverse
            return value + 0.5 * float(away @ away), gradient

        return loss

    # ------------------------------------------------------------------ conditioning

    def _set(self, x: Array, targets: Array, extra: Array) -> None:
        self._x, self._y, self._extra = x, targets, extra
        total = self._prior(x, x)
        total[np.diag_indices(len(x))] += math.exp(2 * self._theta[1]) + extra + JITTER
        _, self._inverse_root = factorise(total)
        self._alpha: Array = (targets @ self._inverse_root.T) @ self._inverse_root

    def _prior(self, a: Array, b: Array) -> Array:
        """Covariance of the function at ``a`` and ``b``, standardised, shape (len(a), len(b))."""
        inverse = np.exp(-self._theta[2:])
        polynomial, decay = matern(distances(a * inverse, b * inverse))
        kernel: Array = math.exp(2 * self._theta[0]) * polynomial * decay
        return kernel + self._fixed(a, b)

    def _variance(self, x: Array) -> Array:
        """Diagonal of `_prior`, shape (n,)."""
        variance: Array = math.exp(2 * self._theta[0]) + self._fixed_variance(x)
        return variance

    # What a process with more structure changes: see `TrendProcess`.

    def _trend(self, x: Array) -> Array:
        """The known part of the prior mean at ``x``, in units of the observations, shape (n,)."""
        return np.zeros(len(x))

    def _level(self, y: Array) -> float:
        """The constant of the prior mean besides its trend, given observations less the trend, shape (n,)."""
        return float(y.mean())

    def _fixed(self, a: Array, b: Array) -> Array:
        """The part of the prior covariance that no hyper-parameter changes, shape (len(a), len(b))."""
        return np.full((len(a), len(b)), self.priors.mean**2)

    def _fixed_variance(self, x: Array) -> Array:
        """Diagonal of `_prior`, shape (n,)."""
        return np.full(len(x), self.priors.mean**2)

    def predict(self, x: Array) -> tuple[Array, Array]:
        """Mean and variance of the noise-free function.

        Args:
            x: Features, shape (m, d).

        Returns:
            Two arrays of shape (m,), in units and squared units of the observations.
        """
        cross = self._prior(self._x, x)
        mean: Array = self._trend(x) + self._shift + self._scale * (cross.T @ self._alpha)
        half = self._inverse_root @ cross
        prior = self._variance(x)
        variance: Array = np.maximum(prior - (half * half).sum(axis=0), 1e-10 * prior) * self._scale**2
        return mean, variance

    def given(self, x: Array, y: Array, extra: Array | None = None) -> Self:
        """A copy with the same hyper-parameters and other observations.

        Args:
            x: Features, shape (m, d).
            y: Observations, shape (m,).
            extra: Variance of each besides the common noise, in squared units of ``y``; none without it.
        """
        other = copy.copy(self)
        more = np.zeros(len(y)) if extra is None else extra / self._scale**2
        other._set(x, (y - self._trend(x) - self._shift) / self._scale, more)
        return other

    def fantasize(self, x: Array) -> Self:
        """A copy that takes its own mean at ``x`` for observed: the kriging believer.

        Ginsbourger, Le Riche & Carraro, "Kriging is well-suited to parallelize optimization", 2010, algorithm 1.
        """
        if not len(x):
            return self
        known = self._trend(self._x) + self._shift + self._scale * self._y
        extra = np.concatenate([self._extra * self._scale**2, np.zeros(len(x))])
        return self.given(np.vstack([self._x, x]), np.concatenate([known, self.predict(x)[0]]), extra)

    # ------------------------------------------------------------------ results

    @property
    def theta(self) -> Array:
        """Logarithms of amplitude, noise and length scales, shape (2 + d,)."""
        return self._theta

    @property
    def noise_variance(self) -> float:
        """Variance of the common noise, in squared units of the observations."""
        return math.exp(2 * float(self._theta[1])) * self._scale**2

    def prior(self, x: Array) -> tuple[Array, Array]:
        """Mean and covariance of the function at ``x`` before any observation, in units of the observations."""
        return self._trend(x) + self._shift, self._prior(x, x) * self._scale**2


_BOUND_WEIGHT = 0.5
"""Bounds of similar configurations say much the same, and are counted as if every second one were new."""


def log_evidence(process: GaussianProcess, x: Array, y: Array, censored: NDArray[np.bool_]) -> float:
    """Log density of the exact observations, and log probability of the bounds given them.

    Rasmussen & Williams 2006, equation 2.30, for the exact ones; the bounds' are those of independent predictions.

    Args:
        process: The process; its hyper-parameters are taken as they are.
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
