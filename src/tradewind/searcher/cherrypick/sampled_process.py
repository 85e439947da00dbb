"""A Gaussian process whose hyper-parameters are integrated out by slice sampling."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from tradewind.searcher.surrogate.gp import Array, factorise
from tradewind.searcher.surrogate.matern import distances, matern

_JITTER = 1e-8
_EDGE = 1e-6
"""Chains stay this far inside the cube of prior probabilities, where every quantile is finite."""

_SHRINKS = 60
"""After so many shrinkings, each halving the interval on average, a chain has nowhere else to go and stays."""

_MOST_SAMPLED = 60
"""Hyper-parameters are sampled given at most so many observations, evenly chosen; all of them are conditioned on."""

_CELLS = 2_000_000
"""Numbers of one block of the kernel between observations and candidates."""


@dataclass(frozen=True, slots=True)
class SampledProcessPriors:
    """Priors of the hyper-parameters, for targets around 0 (logarithms, or standardised) and features in [0, 1].

    Attributes:
        noise: Scale of the horseshoe prior of the noise variance.
        amplitude: Standard deviation of the logarithm of the process's standard deviation, which is centred on 0.
        longest: Length scales are uniform between 0 and this.
        mean: Standard deviation of the unknown constant mean, which is integrated out in closed form.
    """

    noise: float = 0.1
    amplitude: float = 1.0
    longest: float = 2.0
    mean: float = 1.0

    def values(self, unit: Array) -> tuple[Array, Array, Array]:
        """Hyper-parameters of points in the cube of prior probabilities.

        Args:
            unit: Shape (chains, 2 + d): probabilities of noise, amplitude and the length scales.

        Returns:
            Noise variances (chains,), amplitude variances (chains,) and length scales (chains, d).
        """
        from scipy.special import ndtri

        probability, log_noise = _horseshoe()
        noise = self.noise * np.exp(np.interp(unit[:, 0], probability, log_noise))
        amplitude = np.exp(2.0 * self.amplitude * ndtri(unit[:, 1]))
        return noise, amplitude, np.maximum(self.longest * unit[:, 2:], 1e-3)


@cache
def _horseshoe() -> tuple[Array, Array]:
    """Cumulative probability and ln x of the horseshoe prior of scale 1, by its bound ln(1 + 1/x²).

    Carvalho, Polson & Scott, "Handling sparsity via the horseshoe", AISTATS 2009: the density lies between two
    multiples of ln(1 + c/x²), whose integral is elementary. The tails below e^-16 and above e^6 are cut off.
    """
    log_x = np.linspace(-16.0, 6.0, 2201)
    x = np.exp(log_x)
    probability = (x * np.log1p(x**-2.0) + 2.0 * np.arctan(x)) / math.pi
    return (probability - probability[0]) / (probability[-1] - probability[0]), log_x


def slice_sample(likelihood: Callable[[Array], Array], start: Array, steps: int, rng: np.random.Generator) -> Array:
    """Run chains side by side that leave a density on the unit cube invariant.

    One step draws a level below the density at the chain's place, takes the whole chord of the cube through it in a
    random direction (on every other step, along one axis) as the interval, and shrinks the interval towards the place
    until a point above the level is found (Neal, "Slice sampling", Annals of Statistics 2003, sections 4 and 5). The
    cube is bounded, so there is nothing to step out of.

    Args:
        likelihood: Logarithm of the density at points, shape (m, k) to (m,).
        start: First points of the chains, shape (chains, k).
        steps: Number of steps of each chain.
        rng: Draws levels, directions and points.

    Returns:
        Last points of the chains, shape (chains, k).
    """
    place = np.clip(start, _EDGE, 1.0 - _EDGE)
    chains, k = place.shape
    height = likelihood(place)
    for step in range(steps):
        level = height + np.log(rng.random(chains))
        direction = rng.standard_normal((chains, k)) if step % 2 == 0 else np.eye(k)[rng.integers(k, size=chains)]
        with np.errstate(divide="ignore", invalid="ignore"):
            edges = np.stack([(_EDGE - place) / direction, (1.0 - _EDGE - place) / direction])
        still = direction == 0.0
        low = np.where(still, -np.inf, edges.min(axis=0)).max(axis=1)
        high = np.where(still, np.inf, edges.max(axis=0)).min(axis=1)
        moving = np.arange(chains)
        for _ in range(_SHRINKS):
            along = low[moving] + rng.random(len(moving)) * (high[moving] - low[moving])
            tried = np.clip(place[moving] + along[:, None] * direction[moving], _EDGE, 1.0 - _EDGE)
            value = likelihood(tried)
            found = value > level[moving]
            place[moving[found]], height[moving[found]] = tried[found], value[found]
            short = moving[~found & (along < 0)], moving[~found & (along >= 0)]
            low[short[0]], high[short[1]] = along[~found & (along < 0)], along[~found & (along >= 0)]
            moving = moving[~found]
            if not len(moving):
                break
    return place


class SampledProcess:
    """Gaussian process regression with a Matérn 5/2 kernel and one length scale a feature, averaged over samples.

    The hyper-parameters are not fitted but integrated out: chains of slice sampling, one for each sample, walk over
    the posterior side by side, and all answers come sample by sample (Snoek, Larochelle & Adams, "Practical Bayesian
    optimization of machine learning algorithms", NIPS 2012, section 3.2).

    Args:
        x: Features in [0, 1], shape (n, d), n at least 1.
        y: Observations, shape (n,), finite; their mean is taken off.
        rng: Draws for the chains.
        spread: Divisor of the observations before the priors apply: 1 for logarithms, which have no unit; None
            for their standard deviation.
        samples: Number of samples of the hyper-parameters.
        burn_in: Steps of each chain before its sample is taken.
        priors: Priors of the hyper-parameters.
    """

    def __init__(
        self,
        x: Array,
        y: Array,
        rng: np.random.Generator,
        *,
        spread: float | None = None,
        samples: int = 10,
        burn_in: int = 100,
        priors: SampledProcessPriors | None = None,
    ) -> None:
        self.priors = priors or SampledProcessPriors()
        self._shift = float(y.mean())
        self._scale = spread or float(y.std())
        if self._scale <= 1e-9 * max(1.0, abs(self._shift)):
            self._scale = 1.0
        targets = (y - self._shift) / self._scale
        some = np.unique(np.linspace(0, len(x) - 1, min(len(x), _MOST_SAMPLED)).astype(int))
        seen, aims = x[some], targets[some]
        rows, columns = np.tril_indices(len(seen), -1)
        squares = (seen[rows] - seen[columns]) ** 2
        start = rng.random((samples, 2 + x.shape[1]))
        unit = slice_sample(lambda points: self._likelihood(points, squares, aims), start, burn_in, rng)
        self._noise, self._amplitude, self._length = self.priors.values(unit)
        self._condition(x, targets)

    def _likelihood(self, unit: Array, squares: Array, y: Array) -> Array:
        """Logarithm of the marginal likelihood at points of the cube of prior probabilities, shape (chains,)."""
        n, chains = len(y), len(unit)
        noise, amplitude, length = self.priors.values(unit)
        polynomial, decay = matern(np.sqrt(np.maximum((length**-2.0) @ squares.T, 0.0)))
        # The factor of the matrix with the targets as a further row has L⁻¹y as its last row: no system to solve.
        # Only the lower triangle is filled, for no more of it is read.
        whole = np.zeros((chains, n + 1, n + 1))
        rows, columns = np.tril_indices(n, -1)
        whole[:, rows, columns] = amplitude[:, None] * polynomial * decay + self.priors.mean**2
        diagonal = np.arange(n)
        own = amplitude * (1.0 + _JITTER) + self.priors.mean**2 + noise + _JITTER
        whole[:, diagonal, diagonal] = own[:, None]
        whole[:, n, :n] = y
        whole[:, n, n] = 1e30
        root = np.linalg.cholesky(whole)
        half_determinant = np.log(root[:, diagonal, diagonal]).sum(axis=1)
        result: Array = -0.5 * (root[:, n, :n] ** 2).sum(axis=1) - half_determinant
        return result

    def _condition(self, x: Array, targets: Array) -> None:
        self._x, self._targets = x, targets
        self._inverse_roots, self._alphas = [], []
        for i in range(len(self._noise)):
            total = self._kernel(i, x, x)
            total[np.diag_indices(len(x))] += self._noise[i] + _JITTER * (1.0 + self._amplitude[i])
            _, inverse_root = factorise(total)
            self._inverse_roots.append(inverse_root)
            self._alphas.append((targets @ inverse_root.T) @ inverse_root)

    def _kernel(self, i: int, a: Array, b: Array) -> Array:
        polynomial, decay = matern(distances(a / self._length[i], b / self._length[i]))
        kernel: Array = self._amplitude[i] * polynomial * decay + self.priors.mean**2
        return kernel

    def predict(self, x: Array) -> tuple[Array, Array]:
        """Mean and standard deviation of the noise-free function under each sample.

        Args:
            x: Features, shape (m, d).

        Returns:
            Two arrays of shape (samples, m), in units of the observations.
        """
        mean, variance = np.empty((len(self._noise), len(x))), np.empty((len(self._noise), len(x)))
        block = max(1, _CELLS // len(self._x))
        for i in range(len(self._noise)):
            prior = self._amplitude[i] + self.priors.mean**2
            for at in range(0, len(x), block):
                cross = self._kernel(i, self._x, x[at : at + block])
                half = self._inverse_roots[i] @ cross
                mean[i, at : at + block] = self._alphas[i] @ cross
                variance[i, at : at + block] = np.maximum(prior - (half * half).sum(axis=0), 1e-10 * prior)
        return self._shift + self._scale * mean, self._scale * np.sqrt(variance)

    def fantasize(self, x: Array) -> SampledProcess:
        """A copy that takes its own mean at ``x``, shape (m, d), for observed: the kriging believer.

        Ginsbourger, Le Riche & Carraro, "Kriging is well-suited to parallelize optimization", 2010, algorithm 1. The
        mean is that over all samples, and the samples stay.
        """
        other = object.__new__(SampledProcess)
        other.priors, other._shift, other._scale = self.priors, self._shift, self._scale
        other._noise, other._amplitude, other._length = self._noise, self._amplitude, self._length
        fantasized = (self.predict(x)[0].mean(axis=0) - self._shift) / self._scale
        other._condition(np.vstack([self._x, x]), np.concatenate([self._targets, fantasized]))
        return other
