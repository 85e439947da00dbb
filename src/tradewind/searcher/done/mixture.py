"""Several fits of the same runs, each weighted by how likely it makes them."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence

import numpy as np

from tradewind.searcher.done.expansion import Array
from tradewind.searcher.done.regression import ExpansionFamily, ExpansionShape, ResponseModel

EVIDENCE_WINDOW = 20.0
"""Shapes that make the runs so many times less likely than the best one are left out (Madigan & Raftery 1994)."""

MOST_SHAPES = 12
"""Shapes at most, the likeliest ones: each is fitted and evaluated."""


def likely_shapes(shapes: Iterable[ExpansionShape]) -> list[ExpansionShape]:
    """The shapes that are not much less likely than the best, the likeliest first, each once.

    As in "Occam's window" of Madigan & Raftery, "Model selection and accounting for model uncertainty in graphical
    models using Occam's window" (Journal of the American Statistical Association, 1994).

    Args:
        shapes: All that were judged on the same runs.
    """
    found = sorted(dict.fromkeys(shapes), key=lambda one: -one.evidence)
    return [one for one in found if one.evidence >= found[0].evidence - math.log(EVIDENCE_WINDOW)][:MOST_SHAPES]


class ModelAverage:
    """A figure by several shapes at once: Bayesian model averaging.

    With few runs several scales, penalties and sets of inputs explain them about as well, and expect different things
    of what was not run. One of them alone takes its own choice for certain, and its ranges are too narrow; the average
    counts what they disagree on as not known (Hoeting, Madigan, Raftery & Volinsky, "Bayesian model averaging: a
    tutorial", Statistical Science 1999). Mean and variance are those of the mixture.

    Args:
        family: What may be fitted.
        shapes: The shapes, the likeliest first, with their evidence; at least one.
        z: Inputs, shape (n, d).
        y: The figure, shape (n,).
    """

    def __init__(self, family: ExpansionFamily, shapes: Sequence[ExpansionShape], z: Array, y: Array) -> None:
        best = ResponseModel(family, shapes[0], z, y)
        # With more runs than columns they say which shape it is, and one alone can take in runs as they come.
        others = () if best.grows else shapes[1:]
        self.parts = [best, *(ResponseModel(family, shape, z, y) for shape in others)]
        weights = np.exp(np.array([part.shape.evidence - best.shape.evidence for part in self.parts]))
        self._weights: Array = weights / weights.sum()

    @property
    def shape(self) -> ExpansionShape:
        """The likeliest shape."""
        return self.parts[0].shape

    @property
    def shapes(self) -> list[ExpansionShape]:
        """All of them, the likeliest first."""
        return [part.shape for part in self.parts]

    @property
    def spread(self) -> float:
        """Standard deviation that the figure is expected to have, before much is known."""
        return self.parts[0].spread

    @property
    def grows(self) -> bool:
        """True when `learn` can be called."""
        return self.parts[0].grows

    def learn(self, z: Array, y: float) -> None:
        """Take in one more point; only where it `grows`. See `ResponseModel.learn`."""
        self.parts[0].learn(z, y)

    def fantasize(self, z: Array) -> ModelAverage:
        """A copy that takes its own expectations at more points, inputs of shape (n, d), for observed."""
        other = copy.copy(self)
        other.parts = [part.fantasize(z) for part in self.parts]
        return other

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the Student distribution of a prediction."""
        return self.parts[0].freedom

    def mean(self, z: Array) -> Array:
        """The expected figure, shape (n,)."""
        found: Array = self._weights @ np.array([part.mean(z) for part in self.parts])
        return found

    def deviation(self, z: Array) -> Array:
        """Scale of the distribution of a further run's figure, shape (n,): what the shapes disagree on is in it."""
        means = np.array([part.mean(z) for part in self.parts])
        scales = np.array([part.deviation(z) for part in self.parts])
        # The variance of a Student distribution is its scale's square times ν/(ν − 2).
        apart = self._weights @ (means - self._weights @ means) ** 2 * (1.0 - 2.0 / self.freedom)
        found: Array = np.sqrt(self._weights @ scales**2 + apart)
        return found

    def slope(self, z: Array) -> Array:
        """Derivative of the expected figure by each input at one point, shape (d,)."""
        found: Array = self._weights @ np.array([part.slope(z) for part in self.parts])
        return found
