"""Ridge regression three ways: by points (dual), by columns (primal), and point after point (recursive).

All three minimise ``‖t − A·w‖² + λ‖w‖²``, so that ``w = (AᵀA + λI)⁻¹Aᵀt`` (Bliek et al., IEEE TNNLS 2016, eq. 10; the
line ``w = Φ⁻¹Aᵀy`` in Algorithm 1 of the cluster-configuration thesis should read ``Aᵀt``). They differ in what they
cost: n³ for n points, D³ for D columns, and D² for one more point. Each gives the weights and, for columns ``a`` of
a new point, ``a·(AᵀA + λI)⁻¹·aᵀ·λ``: the variance of the expected value in units of the weights' prior variance.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from tradewind.searcher.done.expansion import Array


class Ridge(Protocol):
    """The interface of the three solvers."""

    weights: Array
    misfit: float
    """``‖t − A·w‖²/λ + ‖w‖²``, which equals ``tᵀ(AAᵀ + λI)⁻¹t``."""

    def variance(self, columns: Array) -> Array:
        """Variance of the expected value at new points, shape (n,), for columns of shape (n, D)."""
        ...

    def fantasize(self, columns: Array) -> Ridge:
        """A copy that takes its own expectations for the targets of more points, columns of shape (n, D).

        The weights and the misfit stay as they are, the variance falls.
        """
        ...


class DualRidge:
    """Solved over the points: for fewer points than columns.

    Args:
        columns: A, shape (n, D).
        targets: t, shape (n,).
        penalty: λ.
    """

    def __init__(self, columns: Array, targets: Array, penalty: float) -> None:
        from scipy.linalg import cho_factor, cho_solve

        kernel = columns @ columns.T
        kernel[np.diag_indices_from(kernel)] += penalty
        factor = cho_factor(kernel, lower=True)
        self._columns = columns
        self._targets = targets
        self._penalty = penalty
        self._lower = factor[0]
        self.alpha: Array = cho_solve(factor, targets)
        self.weights: Array = columns.T @ self.alpha
        self.misfit = float(targets @ self.alpha)

    def variance(self, columns: Array) -> Array:
        """See `Ridge`."""
        from scipy.linalg import solve_triangular

        seen = solve_triangular(self._lower, self._columns @ columns.T, lower=True)
        rest: Array = np.einsum("ij,ij->i", columns, columns) - np.einsum("ij,ij->j", seen, seen)
        return np.maximum(rest, 0.0)

    def fantasize(self, columns: Array) -> DualRidge:
        """See `Ridge`."""
        targets = np.concatenate([self._targets, columns @ self.weights])
        return DualRidge(np.vstack([self._columns, columns]), targets, self._penalty)


def misfits(kernel: Array, targets: Array, penalties: Sequence[float]) -> list[tuple[float, float]]:
    """Misfit of the targets under some penalties, without the weights: the columns are multiplied once for all.

    Args:
        kernel: ``AAᵀ``, shape (n, n).
        targets: t, shape (n,).
        penalties: Each λ.

    Returns:
        For each λ ``tᵀ(AAᵀ + λI)⁻¹t`` and the logarithm of the determinant of ``AAᵀ + λI``.
    """
    # A search for scale and inputs asks hundreds of times for a few points: SciPy's checks would take most of it.
    from scipy.linalg.lapack import dpotrf, dpotrs

    found = []
    for penalty in penalties:
        shifted = kernel.copy()
        shifted.flat[:: len(kernel) + 1] += penalty
        lower, failed = dpotrf(shifted, lower=1, clean=0)
        if failed:
            raise np.linalg.LinAlgError(f"the leading minor of order {failed} is not positive")
        alpha, _ = dpotrs(lower, targets, lower=1)
        found.append((float(targets @ alpha), 2.0 * float(np.log(lower.diagonal()).sum())))
    return found


class RecursiveRidge:
    """Solved over the columns, and brought up to date with each further point.

    It keeps a square root of ``P = (AᵀA + λI)⁻¹`` and updates it by the inverse QR algorithm: with the new columns u,
    a rotation turns ``[[1, uᵀP^½], [0, P^½]]`` into lower triangular form, whose parts are the gain and the new root
    (Sayed & Kailath, "Recursive least-squares adaptive filters", The Digital Signal Processing Handbook, 1998). The
    root keeps P positive, whatever the rounding.

    Args:
        columns: A of the points to begin with, shape (n, D); n may be 0.
        targets: t, shape (n,).
        penalty: λ.
    """

    def __init__(self, columns: Array, targets: Array, penalty: float) -> None:
        from scipy.linalg import cholesky, solve_triangular

        gram = columns.T @ columns
        gram[np.diag_indices_from(gram)] += penalty
        lower = cholesky(gram, lower=True)
        self._penalty = penalty
        self._root: Array = solve_triangular(lower, np.eye(len(gram)), lower=True).T
        self.weights: Array = self._root @ (self._root.T @ (columns.T @ targets))
        self.misfit = float(targets @ (targets - columns @ self.weights)) / penalty

    def update(self, columns: Array, target: float) -> None:
        """Take in one more point.

        Args:
            columns: Columns of the point, shape (D,).
            target: Target of the point.
        """
        size = len(columns)
        array = np.zeros((size + 1, size + 1))
        array[0, 0] = 1.0
        array[0, 1:] = columns @ self._root
        array[1:, 1:] = self._root
        # array·Θ is lower triangular where arrayᵀ = Q·R and Θ = Q: only R is needed.
        lower = np.asarray(np.linalg.qr(array.T, mode="r")).T
        lower = lower * np.where(np.diag(lower) < 0, -1.0, 1.0)
        error = target - float(columns @ self.weights)
        self.misfit += error * error / (self._penalty * lower[0, 0] ** 2)
        self.weights = self.weights + lower[1:, 0] / lower[0, 0] * error
        self._root = lower[1:, 1:]

    def variance(self, columns: Array) -> Array:
        """See `Ridge`."""
        part = columns @ self._root
        found: Array = self._penalty * np.einsum("ij,ij->i", part, part)
        return found

    def fantasize(self, columns: Array) -> RecursiveRidge:
        """See `Ridge`."""
        other = copy.copy(self)  # an update replaces what it changes
        for row in columns:
            other.update(row, float(row @ other.weights))
        return other
