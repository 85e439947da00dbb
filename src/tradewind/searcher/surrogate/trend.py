"""A Gaussian process around a linear trend, for the logarithm of cost or time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from tradewind.searcher.surrogate.gp import Array, GaussianProcess, GpPriors

LOG_PRIORS = GpPriors(length=0.5, length_sd=0.7, amplitude=0.6, amplitude_sd=0.3, noise=0.05, noise_sd=1.0, mean=3.0)
"""For ln cost and ln time: what the linear part leaves over differs by a factor of two, a repetition by 5 %.

The amplitude is held to its centre: the first few runs are of cheap machines and often cost about the same, and a
process that took that for the whole truth would look no further."""

_CENTRE = 0.5


@dataclass(frozen=True)
class LinearTrend:
    """Prior of the slopes of the linear part, per unit of each feature.

    Attributes:
        mean: Expected slopes, shape (d,).
        sd: Standard deviations of the slopes, shape (d,).
    """

    mean: Array
    sd: Array

    @classmethod
    def of_price(
        cls, d: int, column: int | None, span: float, *, slope: float, slope_sd: float, other_sd: float
    ) -> LinearTrend:
        """A trend along the logarithm of the price per hour, and weak ones along all other features.

        Args:
            d: Number of features.
            column: The feature that is linear in ln price per hour; None where the price does not vary.
            span: Change of ln price per hour over that feature's unit.
            slope: Expected change of the observation per unit of ln price per hour.
            slope_sd: Standard deviation of it.
            other_sd: Standard deviation of the slopes along each feature.
        """
        mean, sd = np.zeros(d), np.full(d, other_sd)
        if column is not None:
            mean[column] = slope * span
            sd[column] = np.hypot(other_sd, slope_sd * span)
        return cls(mean, sd)

    def along(self, column: int, span: float, *, slope: float, slope_sd: float) -> LinearTrend:
        """A trend that goes along one more figure as well.

        Args:
            column: The feature that is linear in the figure.
            span: Change of the figure over that feature's unit.
            slope: Expected change of the observation per unit of the figure.
            slope_sd: Standard deviation of it.
        """
        mean, sd = self.mean.copy(), self.sd.copy()
        mean[column] += slope * span
        sd[column] = np.hypot(sd[column], slope_sd * span)
        return LinearTrend(mean, sd)


class TrendProcess(GaussianProcess):
    """A process whose mean is linear in the features, with Gaussian slopes that are integrated out.

    Observations are logarithms, and are taken in their own unit: a factor of two is a factor of two whatever the
    first few runs cost. The slopes' prior enters as a linear kernel (Rasmussen & Williams 2006, section 2.7), so
    that the process extrapolates along more machines or larger types after few runs.

    Args:
        trend: Prior of the slopes.
        priors: Priors of the hyper-parameters, in units of the observations.
        level: Prior mean in the middle of the features, of standard deviation ``priors.mean``; the mean of what is
            observed if not given.
        starts: See `GaussianProcess`.
        steps: See `GaussianProcess`.
    """

    def __init__(
        self,
        trend: LinearTrend,
        priors: GpPriors = LOG_PRIORS,
        *,
        level: float | None = None,
        starts: int = 2,
        steps: int = 40,
    ) -> None:
        super().__init__(priors, starts=starts, steps=steps)
        self.trend = trend
        self.level = level

    def unobserved(self, d: int) -> Self:
        """Set the process to its prior before any observation: hyper-parameters are at the centres of their priors.

        Args:
            d: Number of features.
        """
        self._theta, _ = self._prior_centre(d)
        self._shift = 0.0 if self.level is None else self.level
        self._x, self._y, self._extra = np.zeros((0, d)), np.zeros(0), np.zeros(0)
        self._inverse_root, self._alpha = np.zeros((0, 0)), np.zeros(0)
        return self

    def expected(self, x: Array) -> Array:
        """The prior mean less its level, shape (n,)."""
        return self._trend(x)

    def _spread_of(self, y: Array) -> float:
        return 1.0

    def _level(self, y: Array) -> float:
        return super()._level(y) if self.level is None else self.level

    def _trend(self, x: Array) -> Array:
        mean: Array = (x - _CENTRE) @ self.trend.mean
        return mean

    def _fixed(self, a: Array, b: Array) -> Array:
        u, v = (a - _CENTRE) * self.trend.sd, (b - _CENTRE) * self.trend.sd
        covariance: Array = self.priors.mean**2 + u @ v.T
        return covariance

    def _fixed_variance(self, x: Array) -> Array:
        u = (x - _CENTRE) * self.trend.sd
        variance: Array = self.priors.mean**2 + (u * u).sum(axis=1)
        return variance
