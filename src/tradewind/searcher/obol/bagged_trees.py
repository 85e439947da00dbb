"""An ensemble of bagged random trees over candidates, and its predictions."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from tradewind.searcher.obol.arrays import (
    BagArrays,
    CandidateArrays,
    Floats,
    Ints,
    LookaheadRules,
    TrialArrays,
    Workspace,
    make_workspace,
)
from tradewind.searcher.obol.binned_columns import BinnedColumns, pack_bits

_FEW = 64
"""Paths below which a second thread is not worth starting."""


@dataclass(frozen=True, slots=True)
class CostTerms:
    """Terms that turn the objective of a candidate into dollars and into a deadline; arrays of shape (N,).

    Attributes:
        limit: Largest objective that meets the deadline.
        chance: Probability that everything but the deadline holds.
        rate: USD for a unit of the objective.
        fixed: USD that do not depend on the objective.
        switch: USD for changing to its machines.
        machines: Number of its machines.
    """

    limit: Floats
    chance: Floats
    rate: Floats
    fixed: Floats
    switch: Floats
    machines: Ints


@dataclass(frozen=True, slots=True)
class TreePrediction:
    """Predictions of the trees for the n candidates that may be run; arrays of shape (n,).

    Attributes:
        mean: Mean over the trees, of the objective or its logarithm.
        sd: Standard deviation over the trees.
        improvement: Constrained expected improvement.
        spend: Expected USD of the run.
        dear: USD that it stays below with the probability asked for.
        target: The objective that was to be beaten.
    """

    mean: Floats
    sd: Floats
    improvement: Floats
    spend: Floats
    dear: Floats
    target: float


@functools.lru_cache(maxsize=8)
def make_bags(size: int, depth: int, columns: int, trees: int, seed: int) -> BagArrays:
    """Draw bags and orders of columns for some trials and up to ``depth`` imagined runs.

    What is drawn for m trials depends on the seed and on m alone, so that the model is a function of data and seed.

    Args:
        size: Number of trials, at least 1.
        depth: Largest number of imagined runs.
        columns: Number of columns of the candidates.
        trees: Number of trees.
        seed: Any integer from 0.
    """
    most = size + depth
    weights = np.zeros((depth + 1, trees, most))
    newest = np.full((depth + 1, trees), -1, dtype=np.int64)
    orders = np.zeros((depth + 1, trees, most, columns), dtype=np.uint8)
    for k in range(depth + 1):
        rng = np.random.default_rng([seed, 3, size + k])
        drawn = rng.integers(size + k, size=(trees, size + k))
        for t in range(trees):
            weights[k, t] = np.bincount(drawn[t], minlength=most)
        newest[k] = np.maximum(drawn.max(axis=1) - size, -1)
        row = np.broadcast_to(np.arange(columns, dtype=np.uint8), (trees, size + k, columns))
        orders[k, :, : size + k] = rng.permuted(row, axis=2)
    return BagArrays(weights, newest, orders, int(math.log2(columns)) + 1)


class BaggedTrees:
    """Bagged random trees on some rows of a table of candidates.

    A tree is Weka's RandomTree as OBOL uses it (Casimiro et al. 2018, section 3.2): at each node int(log2 d) + 1
    columns in random order, and further ones until one gains; the split of least variance, halfway between two present
    values; nodes of weight below 2, or of less than a thousandth of the variance of the tree's bag, are leaves.

    Args:
        columns: The table; its rows are candidates first, then anything else that is asked about.
        money: Cost terms of the rows.
        rows: Rows of the trials.
        y: Objectives of the trials, or their logarithms.
        best: Best feasible objective, or infinite.
        worst: Largest objective.
        rules: Rules of the lookahead.
        trees: Number of trees.
        seed: Any integer from 0.
    """

    def __init__(
        self,
        columns: BinnedColumns,
        money: CostTerms,
        rows: Sequence[int],
        y: Floats,
        best: float,
        worst: float,
        rules: LookaheadRules,
        trees: int,
        seed: int,
    ) -> None:
        self.rules = rules
        self.trees = trees
        self.field = CandidateArrays(
            columns.codes,
            columns.values,
            columns.masks,
            columns.everyone,
            money.limit,
            money.chance,
            money.rate,
            money.fixed,
            money.switch,
            money.machines,
        )
        size, width = len(y), columns.codes.shape[1]
        self.bags = make_bags(size, rules.depth, width, trees, seed)
        shift, scale = float(np.mean(y)), float(np.std(y))
        scale = scale if scale > 1e-12 * max(1.0, abs(shift)) else 1.0
        codes = np.zeros((size + rules.depth, width), dtype=np.uint8)
        codes[:size] = columns.codes[np.asarray(rows, dtype=np.intp)]
        scaled = np.zeros(size + rules.depth)
        scaled[:size] = (np.asarray(y) - shift) / scale
        self.trials = TrialArrays(size, codes, scaled, shift, scale, best, worst)

    def prediction(self, free: Ints) -> TreePrediction:
        """Predict some rows."""
        from tradewind.searcher.obol import kernel

        workspace = make_workspace(self.trials, self.field, 0)
        kernel.renew(0, np.zeros(1, dtype=np.int64), self.field, self.bags, self.trials, workspace)
        found, target = kernel.judge(self.field, self.trees, self.trials, self.rules, free, workspace)
        return TreePrediction(found[0], found[1], found[2], found[3], found[4], float(target))

    def paths(self, free: Ints, roots: Ints, first: Floats, threads: int) -> Floats:
        """Utility and USD of the paths that begin at some rows, shape (2, roots).

        Args:
            free: Rows that may be run.
            roots: Places in ``free``.
            first: Mean, standard deviation, improvement and USD of each root, shape (4, roots).
            threads: Number of threads; thread i of n takes every n-th root.
        """
        threads = threads if len(roots) * 3**self.rules.depth > _FEW else 1
        field = _only(self.field, free)
        jobs = [(field, roots[i::threads], np.ascontiguousarray(first[:, i::threads])) for i in range(threads)]
        if threads == 1:
            return self._walk(*jobs[0])
        found = np.empty((2, len(roots)))
        with ThreadPoolExecutor(threads) as pool:
            for i, part in enumerate(pool.map(lambda job: self._walk(*job), jobs)):
                found[:, i::threads] = part
        return found

    def _walk(self, field: CandidateArrays, roots: Ints, first: Floats) -> Floats:
        from tradewind.searcher.obol import kernel

        own = self.trials._replace(codes=self.trials.codes.copy(), y=self.trials.y.copy())
        workspace: Workspace = make_workspace(own, field, self.rules.depth)
        found = np.empty((2, len(roots)))
        kernel.look_ahead(field, self.bags, own, self.rules, workspace, roots, first, found)
        return found


def _only(field: CandidateArrays, rows: Ints) -> CandidateArrays:
    """Some of the candidates: trees are then asked about no others."""
    codes = field.codes[rows]
    masks = np.zeros((*field.masks.shape[:2], (len(rows) + 63) // 64), dtype=np.uint64)
    for f, levels in enumerate(masks):
        for level in range(len(levels)):
            levels[level] = pack_bits(codes[:, f] <= level)
    return CandidateArrays(
        codes,
        field.values,
        masks,
        pack_bits(np.ones(len(rows), dtype=np.bool_)),
        field.limit[rows],
        field.chance[rows],
        field.rate[rows],
        field.fixed[rows],
        field.switch[rows],
        field.machines[rows],
    )
