"""The Matérn 5/2 correlation of all Gaussian processes of the searchers."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_ROOT5 = math.sqrt(5.0)


def distances(a: Array, b: Array) -> Array:
    """Euclidean distance of each row of ``a`` from each of ``b``, shape (len(a), len(b))."""
    squares = (a * a).sum(1)[:, None] + (b * b).sum(1)[None, :] - 2.0 * (a @ b.T)
    root: Array = np.sqrt(np.maximum(squares, 0.0))
    return root


def matern(distance: Array) -> tuple[Array, Array]:
    """The correlation at distances in length scales: (1 + √5 r + 5/3 r²) and e^(-√5 r), whose product it is.

    Rasmussen & Williams, "Gaussian Processes for Machine Learning", 2006, equation 4.17.
    """
    polynomial: Array = 1.0 + _ROOT5 * distance + (5.0 / 3.0) * distance * distance
    decay: Array = np.exp(-_ROOT5 * distance)
    return polynomial, decay


def matern_slope(decay: Array, distance: Array) -> Array:
    """The correlation's derivative by ln(length_i), divided by (d_i / length_i)²: 5/3 (1 + √5 r) e^(-√5 r).

    Args:
        decay: e^(-√5 r), times whatever else the derivative is multiplied with.
        distance: r, in length scales.
    """
    found: Array = decay * (5.0 / 3.0) * (1.0 + _ROOT5 * distance)
    return found
