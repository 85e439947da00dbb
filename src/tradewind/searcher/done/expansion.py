"""The random Fourier expansion: cosines of random frequencies and phases, and straight lines or a law beside them.

The law of time (`ScalingLaw`) is the sum of work that the machines share and of a rest that they do not, each a product
of powers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_CONSTANT = 10.0
"""Prior standard deviation of the constant, in units of the amplitude: it is free for all practical purposes."""


class AdditiveTerm(Protocol):
    """A term that may stand beside the cosines in place of straight lines; see `ScalingLaw`."""

    def columns(self, z: Array) -> Array:
        """Columns of the linear model, shape (n, c)."""
        ...

    def start(self, z: Array) -> Array:
        """The part without weights that the linear model is added to, shape (n,)."""
        ...

    def slope(self, z: Array, weights: Array) -> Array:
        """The derivative of ``start(z) + columns(z) @ weights`` at one point, shape (d,)."""
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
        scales: Factor of each input's frequency, shape (d,); 0 leaves the input out.
        trend: Prior standard deviation of a line's slope, in units of the amplitude; 0 for no lines.
        law: Term instead of lines, or None. Inputs may then have one more column, which only the law looks at.
        widths: How many times ``trend`` the slope of each input's line may be, shape (d,); once where it is None.
    """

    directions: Array
    phases: Array
    scales: Array
    trend: float = 0.0
    law: AdditiveTerm | None = None
    widths: Array | None = None

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
        widths = np.ones_like(self.scales) if self.widths is None else self.widths
        return np.where(self.scales > 0, self.trend * widths, 0.0)

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
        """The part without weights that ``columns(z) @ weights`` is added to, shape (n,): 0 without a law."""
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


_ELASTICITIES = np.array([1.0, 0.0])
"""Expected powers with which the time of the two parts falls with the vCPUs: Amdahl's law."""

_INTERCEPTS = np.array([10.0, 2.0])
"""Prior standard deviations of a of the two, in units of the amplitude: that of the work is as good as free, and the
rest takes about as long in the middle of the runs as all of a run does on average, more or less by a factor of four."""

_REST_SLOPE = 0.25
"""Prior standard deviation of the rest's power of a job parameter, by that of the work: it depends less on the input.
On the configuration it depends as much as the work does: each worker costs a start, and more of them talk more."""

_NOISE = 0.1
"""Standard deviation of a logarithm around the law while it is fitted; how much there is, the evidence says later."""

_STEPS = 25
_FIRST_STEPS = 4
"""Steps after which only the start goes on that has come furthest."""

_ENOUGH = 1e-3
"""A step that improves the fit by less is the last."""


@dataclass(frozen=True)
class ScalingLaw:
    """``ln t = ln Σ_k exp(a_k + b_k·z − e_k·p)``: two products of powers of the inputs z and the vCPUs exp(p).

    Work that is shared falls with the vCPUs, the rest (start, what runs on one core, talk between the machines) does
    not: Amdahl ("Validity of the single processor approach", AFIPS 1967), with the powers left open. Such times are
    the posynomials of geometric programming, convex in the logarithms (Hoburg, Kirschen & Abbeel, "Data fitting with
    geometric-programming-compatible softmax functions", Optimization and Engineering 2016); Ernest (Venkataraman et
    al., NSDI 2016) is near to one with given powers. One product alone is the straight lines of `FourierExpansion`,
    which cannot say that more machines pay for large inputs and not for small ones.

    The law is fitted first, then put in as its derivatives by its numbers: a linear model with the prior that the law
    has, to which cosines are added and whose evidence can be compared with that of straight lines. For the law alone
    that evidence is Laplace's approximation.

    Attributes:
        numbers: a and b where the fit ended, shape (2, 1 + d).
        deviations: Their prior standard deviations in units of the amplitude, shape (2, 1 + d); 0 for what is left out.
        powers: What each part's logarithm has of p, beside ``speedup``, which the modelled figure has, shape (2,).
        middle: p in the middle of the runs.
    """

    numbers: Array
    deviations: Array
    powers: Array
    middle: float

    @classmethod
    def fit(cls, z: Array, y: Array, slopes: Array, speedup: float, spread: float, chosen: int = 0) -> ScalingLaw:
        """The likeliest law, by damped Gauss-Newton steps (Marquardt, SIAM 1963) from several starts.

        In one start nothing matters, in each other one the work falls with one column of the configuration and the
        rest grows. Where both parts have the same prior, as with workers on one machine, the first start alone is a
        saddle that no step leaves.

        Args:
            z: Inputs and p as the last column, shape (n, d + 1).
            y: Logarithms of times plus ``speedup``·p, around their mean, shape (n,).
            slopes: Prior standard deviation of each input's power, in units of the amplitude, shape (d,).
            speedup: The power of the vCPUs that is in y.
            spread: The amplitude.
            chosen: How many of the inputs, the first ones, are of the configuration.
        """
        rest = np.where(np.arange(len(slopes)) < chosen, 1.0, _REST_SLOPE) * slopes
        deviations = np.hstack([_INTERCEPTS[:, None], np.stack([slopes, rest])])
        scales = (spread * deviations).ravel()
        none = cls(np.zeros_like(deviations), deviations, speedup - _ELASTICITIES, float(z[:, -1].mean()))
        starts = [none]
        for column in 1 + np.flatnonzero(slopes[:chosen] > 0):
            apart = np.zeros_like(deviations)
            apart[:, column] = spread * deviations[:, column] * (-1.0, 1.0)
            starts.append(replace(none, numbers=apart))
        tried = [start._descended(z, y, scales, _FIRST_STEPS) for start in starts]
        # Rounded, so that of equal ones it is the first whatever the last bit says.
        best = min(tried, key=lambda law: round(law._misfit(z, y, scales), 6))
        return best._descended(z, y, scales, _STEPS)

    def _descended(self, z: Array, y: Array, scales: Array, steps: int) -> ScalingLaw:
        """The law after some steps, or fewer where they hardly lead further."""
        law, misfit, damping = self, self._misfit(z, y, scales), 1.0
        for _ in range(steps):
            value, shares = law._parts(z)
            table = law._derivatives(z, shares).reshape(len(z), -1) * scales / _NOISE
            away = np.divide(law.numbers.ravel(), scales, out=np.zeros_like(scales), where=scales > 0)
            downhill = table.T @ ((y - value) / _NOISE) - away
            curve = table.T @ table + np.eye(len(scales))
            while damping < 1e6:
                step = scales * np.linalg.solve(curve + damping * np.eye(len(scales)), downhill)
                other = replace(law, numbers=law.numbers + step.reshape(law.numbers.shape))
                found = other._misfit(z, y, scales)
                if found < misfit:
                    break
                damping *= 4.0
            else:
                return law
            gain, law, misfit, damping = misfit - found, other, found, max(damping / 8.0, 1e-6)
            if gain < _ENOUGH:
                break
        return law

    def _misfit(self, z: Array, y: Array, scales: Array) -> float:
        """Twice the negative logarithm of likelihood and prior, up to a constant."""
        away = self.numbers.ravel()[scales > 0] / scales[scales > 0]
        return float((((y - self._parts(z)[0]) / _NOISE) ** 2).sum() + (away**2).sum())

    def _parts(self, z: Array) -> tuple[Array, Array]:
        """Logarithm of t, shape (n,), and each part's share of t, shape (n, 2)."""
        logs = self.numbers[:, 0] + z[:, :-1] @ self.numbers[:, 1:].T + (z[:, -1:] - self.middle) * self.powers
        top = logs.max(axis=1, keepdims=True)
        parts = np.exp(logs - top)
        total = parts.sum(axis=1, keepdims=True)
        return (top + np.log(total))[:, 0], parts / total

    @staticmethod
    def _derivatives(z: Array, shares: Array) -> Array:
        """Derivatives of ln t by a and b, shape (n, 2, 1 + d)."""
        found: Array = shares[:, :, None] * np.hstack([np.ones((len(z), 1)), z[:, :-1]])[:, None, :]
        return found

    def columns(self, z: Array) -> Array:
        """The columns of the linear model, shape (n, 2 + 2d); z as in `fit`."""
        table = self._derivatives(z, self._parts(z)[1]) * self.deviations
        return table.reshape(len(z), -1)

    def start(self, z: Array) -> Array:
        """The part without weights that the linear model is added to, shape (n,)."""
        value, shares = self._parts(z)
        found: Array = value - (self._derivatives(z, shares) * self.numbers).sum(axis=(1, 2))
        return found

    def slope(self, z: Array, weights: Array) -> Array:
        """The derivative of ``start(z) + columns(z) @ weights`` by each input but p at one point, shape (d,).

        Args:
            z: One point, shape (d + 1,).
            weights: Weights of the law's columns, shape (2 + 2d,).
        """
        shares = self._parts(z[None, :])[1][0]
        powers = self.numbers[:, 1:]
        moved = self.deviations * weights.reshape(self.deviations.shape) - self.numbers
        by_part = moved[:, 0] + moved[:, 1:] @ z[:-1]
        steps: Array = shares @ (powers + moved[:, 1:]) + (shares * by_part) @ (powers - shares @ powers)
        return steps
