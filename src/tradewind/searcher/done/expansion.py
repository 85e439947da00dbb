"""The random Fourier expansion: cosines of random frequencies and phases, and straight lines or a law beside them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_CONSTANT = 10.0
"""Prior standard deviation of the constant, in units of the amplitude: it is free for all practical purposes."""


class AdditiveTerm(Protocol):
    """What may stand beside the cosines in place of straight lines; see `tradewind.searcher.done.law.ScalingLaw`."""

    def columns(self, z: Array) -> Array:
        """Columns of the linear model, shape (n, c)."""
        ...

    def start(self, z: Array) -> Array:
        """What the linear model is added to, shape (n,)."""
        ...

    def slope(self, z: Array, weights: Array) -> Array:
        """The derivative of both at one point, shape (d,)."""
        ...


@dataclass(frozen=True)
class FourierExpansion:
    """A linear model's columns: ``√(2/m)·cos(ω_kᵀz + b_k)``, a constant, and the inputs themselves.

    The cosines are those of DONE (Bliek, Verstraete, Verhaegen & Wahls, IEEE TNNLS 2016, eq. 6). With the factor
    ``√(2/m)`` their weights have a prior variance that does not depend on m, and two columns' product is a Gaussian
    kernel (Rahimi & Recht, NIPS 2007). Straight lines are added because an expansion of cosines does not go on where
    the points end, and job parameters often lie outside of what has been run.

    Attributes:
        directions: Standard normal draws, shape (m, d).
        phases: Uniform draws of [0, 2π), shape (m,).
        scales: What each input's frequency is multiplied with, shape (d,); 0 leaves the input out.
        trend: Prior standard deviation of a line's slope, in units of the amplitude; 0 for no lines.
        law: What stands there instead of lines. Inputs may then have one more column, which only the law looks at.
    """

    directions: Array
    phases: Array
    scales: Array
    trend: float = 0.0
    law: AdditiveTerm | None = None

    @classmethod
    def draw(cls, rng: np.random.Generator, terms: int, inputs: int) -> FourierExpansion:
        """An expansion of ``terms`` cosines over ``inputs`` inputs, all of scale 1 and without lines."""
        directions = rng.standard_normal((terms, inputs))
        return cls(directions, rng.uniform(0.0, 2.0 * np.pi, terms), np.ones(inputs))

    @cached_property
    def frequencies(self) -> Array:
        """ω, shape (m, d)."""
        return self.directions * self.scales

    @cached_property
    def slopes(self) -> Array:
        """Prior standard deviation of each input's line, shape (d,)."""
        return np.where(self.scales > 0, self.trend, 0.0)

    def columns(self, z: Array) -> Array:
        """The columns at some inputs, shape (n, columns).

        Args:
            z: Inputs, about in [-1, 1], shape (n, d).
        """
        seen = z[:, : len(self.scales)]
        waves: Array = np.cos(seen @ self.frequencies.T + self.phases)
        waves *= math.sqrt(2.0 / len(self.phases))
        if self.law is not None:
            return np.hstack([waves, self.law.columns(z)])
        if self.trend <= 0:
            return waves
        table: Array = np.hstack([waves, np.full((len(z), 1), _CONSTANT), seen * self.slopes])
        return table

    def start(self, z: Array) -> Array:
        """What ``columns(z) @ weights`` is added to, shape (n,): 0 without a law."""
        return np.zeros(len(z)) if self.law is None else self.law.start(z)

    def gradient(self, z: Array, weights: Array) -> Array:
        """The derivative of ``start(z) + columns(z) @ weights`` by each input of one point, shape (d,).

        Args:
            z: One point, shape (d,).
            weights: Shape (columns,).
        """
        terms = len(self.phases)
        seen = z[: len(self.scales)]
        waves = -np.sqrt(2.0 / terms) * np.sin(self.frequencies @ seen + self.phases) * weights[:terms]
        slope: Array = waves @ self.frequencies
        if self.law is not None:
            slope = slope + self.law.slope(z, weights[terms:])
        elif self.trend > 0:
            slope = slope + weights[terms + 1 :] * self.slopes
        return slope
