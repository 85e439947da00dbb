"""Computes the importance of each parameter for the objective.

The objective (its logarithm, where it is above zero) of the measured trials is explained by an additive model: one
free constant for each level of each parameter, shrunk by a small ridge. How well a set of parameters explains it is
the share of variance that the model predicts for trials that it did not see (leave-one-out, by the PRESS statistic:
Allen, Technometrics 1974), so that a parameter with many levels gains nothing by fitting noise. The share is divided
among the parameters by Shapley's rule, the average gain over all orders of adding them (known for regression as LMG:
Lindeman, Merenda and Gold 1980; Grömping, The American Statistician 2007, eq. 5), which is fair although a searcher
does not try all combinations equally often. What is left is interplay between parameters, and noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import factorial

import numpy as np
from numpy.typing import NDArray

from tradewind.reporting.study.data import Floats, StudyData
from tradewind.reporting.study.series import grouping, thin

METHOD = (
    "Share of the differences in {what} between trials that each parameter explains: an additive model over the "
    "levels of all parameters, judged on trials that it did not see, its share divided by Shapley's rule. "
    "The rest is interplay of parameters and noise."
)

_SAMPLE = 1500
_EXACT = 8
_ORDERS = 48
_RIDGE = 0.3
_FEWEST = 8


@dataclass(frozen=True, slots=True)
class ParameterImportance:
    """Shares of the variance that an additive model ascribes to the parameters.

    Attributes:
        shares: Share of the variance by parameter, the greatest first; 0 or more, together at most 1.
        explained: Sum of all shares, at most 1.
        trials: Number of trials that it was computed from.
        constant: The parameters that had one value in all of them that had the parameter: nothing is known of these.
    """

    shares: dict[str, float]
    explained: float
    trials: int
    constant: tuple[str, ...] = ()


def importance(data: StudyData) -> ParameterImportance | None:
    """Compute the importance of each parameter; None with under eight measured trials or without differences."""
    rows = thin(np.flatnonzero(data.measured), _SAMPLE)
    if len(rows) < _FEWEST or not data.parameters:
        return None
    values = data.objective[rows]
    target = np.log(values) if values.min() > 0 else values
    # Shares do not depend on the unit; squares and differences of values like 1e300 would be infinite.
    target = target / max(1.0, float(np.abs(target).max()))
    if np.ptp(target) <= 1e-12:
        return None
    names, blocks, constant = [], [], []
    for name, column in data.parameters.items():
        groups = grouping(column)[1][rows]
        # Whether a parameter is there at all is the doing of the one that its condition names.
        if len(np.unique(groups[column.active[rows]])) < 2:
            constant.append(name)
            continue
        codes = np.unique(groups, return_inverse=True)[1]
        names.append(name)
        blocks.append(np.eye(codes.max() + 1)[codes])
    if not names:
        return None
    shares = _shapley(_Model(blocks, target), len(names))
    if not np.isfinite(shares).all():
        return None
    positive = np.maximum(shares, 0.0)
    positive = positive / max(1.0, float(positive.sum()))
    ranked = sorted(zip(names, positive.tolist(), strict=True), key=lambda pair: -pair[1])
    return ParameterImportance(dict(ranked), float(positive.sum()), len(rows), tuple(constant))


class _Model:
    """The additive model; the score of a set of parameters is kept, as Shapley's rule asks for it often."""

    def __init__(self, blocks: list[NDArray[np.float64]], target: Floats) -> None:
        self._blocks = [block - block.mean(axis=0) for block in blocks]
        self._target = target - target.mean()
        self._known: dict[int, float] = {0: 0.0}

    def score(self, chosen: int) -> float:
        """Share of variance that the parameters in the bit set ``chosen`` predict for unseen trials."""
        if chosen not in self._known:
            matrix = np.hstack([block for i, block in enumerate(self._blocks) if chosen >> i & 1])
            self._known[chosen] = self._press(matrix)
        return self._known[chosen]

    def _press(self, matrix: Floats) -> float:
        n = len(matrix)
        gram = matrix.T @ matrix + _RIDGE * np.eye(matrix.shape[1])
        solved = np.linalg.solve(gram, matrix.T)
        leverage = np.einsum("ij,ji->i", matrix, solved) + 1.0 / n
        residual = (self._target - matrix @ (solved @ self._target)) / np.maximum(1.0 - leverage, 1e-6)
        # Leaving one out changes the mean as well: the baseline pays for that too.
        baseline = self._target * n / (n - 1)
        return float(1.0 - (residual @ residual) / (baseline @ baseline))


def _shapley(model: _Model, count: int) -> Floats:
    """Each parameter's average gain over all orders; over a fixed sample of orders where there are many."""
    gains = np.zeros(count)
    if count <= _EXACT:
        for chosen in range(1 << count):
            size = chosen.bit_count()
            for i in range(count):
                if not chosen >> i & 1:
                    weight = factorial(size) * factorial(count - size - 1) / factorial(count)
                    gains[i] += weight * (model.score(chosen | 1 << i) - model.score(chosen))
        return gains
    rng = np.random.default_rng(0)
    for _ in range(_ORDERS):
        chosen = 0
        for i in rng.permutation(count):
            gains[i] += model.score(chosen | 1 << int(i)) - model.score(chosen)
            chosen |= 1 << int(i)
    return gains / _ORDERS
