"""Extremely randomised trees over configurations and shares of the input."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tradewind.searcher.surrogate.gp import Array

_LEAST_SPREAD = 1e-3
"""Least standard deviation over trees that agree, as a share of the observations': nothing is ever certain."""


@dataclass(frozen=True, slots=True)
class ExtraTree:
    """One tree as arrays; node 0 is the root.

    Attributes:
        column: The feature that a node asks for, -1 in a leaf.
        threshold: Rows at most this go left.
        left: The left child; the right one follows it.
        value: Mean of a node's observations.
        count: Number of a node's observations.
    """

    column: NDArray[np.int64]
    threshold: Array
    left: NDArray[np.int64]
    value: Array
    count: Array

    def leaves(self, x: Array) -> NDArray[np.int64]:
        """The leaf of each row."""
        at = np.zeros(len(x), dtype=np.int64)
        rows = np.arange(len(x))
        while True:
            inner = self.column[at] >= 0
            if not inner.any():
                return at
            column = np.where(inner, self.column[at], 0)
            right = x[rows, column] > self.threshold[at]
            at = np.where(inner, self.left[at] + right, at)


class ExtraTrees:
    """An ensemble of extremely randomised trees (Geurts, Ernst & Wehenkel, Machine Learning 2006, table 1).

    Every tree is grown on a bootstrap sample until its leaves hold one observation: a node draws a threshold for each
    of √d features and takes the one that lowers the variance most. Mean and spread over the trees are taken for those
    of a normal distribution, as TrimTuner does (Mendes et al., MASCOTS 2020, section III).

    Args:
        x: Features, the level in the last column, shape (n, d + 1).
        y: Observations, shape (n,).
        seed: Equal seeds and data give equal trees.
        trees: Number of trees.
    """

    def __init__(self, x: Array, y: Array, *, seed: int, trees: int = 10) -> None:
        self._x, self._y, self._seed, self._count = x, y, seed, trees
        self._floor = _LEAST_SPREAD * max(float(y.std()), 1e-9 * max(1.0, float(np.abs(y).max())))
        rng = np.random.default_rng([seed & 0xFFFFFFFF, len(y)])
        self.trees = [_grow(x, y, rng) for _ in range(trees)]

    def table(self, x: Array) -> Array:
        """Each tree's answer, shape (trees, m)."""
        return np.array([tree.value[tree.leaves(x)] for tree in self.trees])

    def predict(self, x: Array) -> tuple[Array, Array]:
        """Mean and variance over the trees, shape (m,) each."""
        return self.moments(self.table(x))

    def moments(self, answers: Array) -> tuple[Array, Array]:
        """Mean and variance over the trees of some answers, shape (..., trees, m)."""
        variance: Array = np.maximum(answers.var(axis=-2, ddof=1), self._floor**2)
        return answers.mean(axis=-2), variance

    def after(self, targets: Array, tried: Array, values: Array) -> Iterator[Array]:
        """Each tree's answers once something more was observed; the trees keep their shape.

        Args:
            targets: Points to predict, shape (m, d + 1).
            tried: Points that are observed, each by itself, shape (k, d + 1).
            values: Observations at these points, shape (k, nodes).

        Returns:
            For each of ``tried``, an array of shape (nodes, trees, m).
        """
        aims = np.array([tree.leaves(targets) for tree in self.trees])
        spots = np.array([tree.leaves(tried) for tree in self.trees])
        now = np.array([tree.value[leaves] for tree, leaves in zip(self.trees, aims, strict=True)])
        for k, shown in enumerate(values):
            leaf = spots[:, k]
            known = np.array([tree.value[at] for tree, at in zip(self.trees, leaf, strict=True)])
            count = np.array([tree.count[at] for tree, at in zip(self.trees, leaf, strict=True)])
            moved = (known * count + shown[:, None]) / (count + 1.0)
            yield np.where((aims == leaf[:, None])[None], moved[:, :, None], now[None])

    def fantasize(self, x: Array) -> ExtraTrees:
        """Trees grown with their own mean at ``x`` as further observations."""
        mean, _ = self.predict(x)
        return ExtraTrees(np.vstack([self._x, x]), np.concatenate([self._y, mean]), seed=self._seed, trees=self._count)


def _grow(x: Array, y: Array, rng: np.random.Generator) -> ExtraTree:
    rows = rng.integers(len(y), size=len(y))
    column: list[int] = [-1]
    threshold: list[float] = [0.0]
    left: list[int] = [0]
    value: list[float] = [float(y[rows].mean())]
    count: list[float] = [float(len(rows))]
    waiting = [(0, rows)]
    while waiting:
        node, inside = waiting.pop()
        cut = _cut(x[inside], y[inside], rng)
        if cut is None:
            continue
        column[node], threshold[node], left[node] = cut[0], cut[1], len(value)
        below = x[inside, cut[0]] <= cut[1]
        for part in (inside[below], inside[~below]):
            waiting.append((len(value), part))
            column.append(-1)
            threshold.append(0.0)
            left.append(0)
            value.append(float(y[part].mean()))
            count.append(float(len(part)))
    return ExtraTree(np.array(column), np.array(threshold), np.array(left), np.array(value), np.array(count))


def _cut(x: Array, y: Array, rng: np.random.Generator) -> tuple[int, float] | None:
    """The best of √d random cuts: feature and threshold; None for a leaf."""
    low, high = x.min(axis=0), x.max(axis=0)
    usable = np.flatnonzero(high > low)
    if len(y) < 2 or not len(usable) or float(np.ptp(y)) <= 0.0:
        return None
    tried = rng.permutation(usable)[: max(1, round(float(np.sqrt(x.shape[1]))))]
    best: tuple[float, int, float] | None = None
    for feature in tried:
        at = float(rng.uniform(low[feature], high[feature]))
        below = x[:, feature] <= at
        if below.all():
            at = float(low[feature])
            below = x[:, feature] <= at
        loss = float(y[below].var() * below.sum() + y[~below].var() * (~below).sum())
        if best is None or loss < best[0] - 1e-12 * abs(best[0]):
            best = (loss, int(feature), at)
    assert best is not None
    return best[1], best[2]
