"""The arrays that OBOL's inner loops work on, by name."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Words = NDArray[np.uint64]


class CandidateArrays(NamedTuple):
    """Arrays of N candidates with d columns, L levels at most, W words a set.

    Attributes:
        codes: Level of each column, shape (N, d).
        values: Number that each level stands for, shape (d, L).
        masks: The candidates at or below each level, shape (d, L, W).
        everyone: The set of all candidates, shape (W,).
        limit: Largest objective that meets the deadline, shape (N,).
        chance: Probability that everything but the deadline holds, shape (N,).
        rate: USD for a unit of the objective, shape (N,).
        fixed: USD besides, shape (N,).
        switch: USD for changing to its machines, shape (N,).
        machines: Number of its machines, shape (N,).
    """

    codes: Bytes
    values: Floats
    masks: Words
    everyone: Words
    limit: Floats
    chance: Floats
    rate: Floats
    fixed: Floats
    switch: Floats
    machines: Ints


class BagArrays(NamedTuple):
    """Random draws of the trees, by number of imagined runs k; T trees, m trials and imagined runs at most.

    Attributes:
        weights: Number of times that each tree has each trial, shape (k, T, m).
        newest: The newest imagined run in each bag, -1 where there is none, shape (k, T).
        orders: Order in which the columns are tried at each node, shape (k, T, nodes, d).
        tries: Number of columns tried at a node.
    """

    weights: Floats
    newest: Ints
    orders: Bytes
    tries: int


class TrialArrays(NamedTuple):
    """Arrays of the measured trials.

    Attributes:
        size: Number of trials.
        codes: Their levels, shape (m, d); rows from ``size`` on are free for imagined runs.
        y: Their objectives less ``shift`` by ``scale``, shape (m,); rows from ``size`` on are free.
        shift: Mean of the objectives.
        scale: Standard deviation of the objectives, or 1.
        best: Best feasible objective, infinite where there is none.
        worst: Largest objective.
    """

    size: int
    codes: Bytes
    y: Floats
    shift: float
    scale: float
    best: float
    worst: float


class LookaheadRules(NamedTuple):
    """Rules of the lookahead.

    Attributes:
        depth: Number of further runs that are imagined.
        gamma: Discount of a step later.
        quantile: Standard deviations that must fit into the money left.
        agreement: Standard deviation where all trees agree, as a share of the mean.
        log: True when the trees predict the logarithm.
        money: USD left.
        machines: Number of the machines of the latest run.
    """

    depth: int
    gamma: float
    quantile: float
    agreement: float
    log: bool
    money: float
    machines: int


class Workspace(NamedTuple):
    """Working memory of one thread; m trials and imagined runs at most, N candidates, W words, D runs ahead.

    Attributes:
        product: Objective of each trial by its weight in the bag, shape (m,).
        places: Trials in the order of the tree's nodes, shape (m,).
        stack: First and last trial of the nodes still to be split, shape (m + 2, 2).
        sets: Candidates of these nodes, shape (m + 2, W).
        weights: Weights of the levels of a column in a node, shape (256,), zero between uses.
        totals: Sums of the objective by level, shape (256,).
        sums: Predictions added up over the trees whose bags hold none of the imagined runs after the g-th, by number
            of imagined runs and g, shape (D + 1, D + 1, N).
        squares: Sums of the squared predictions, as ``sums``.
        stamp: Version of the g-th imagined run that each of the sums was made for, shape (D + 1, D + 1).
        used: 1 for candidates of the path, shape (N,).
        mean: Means of the candidates, shape (N,).
        sd: Standard deviations of the candidates, shape (N,).
        bound: Upper bounds of the constrained expected improvement, below zero where they may not be run, shape (N,).
    """

    product: Floats
    places: Ints
    stack: Ints
    sets: Words
    weights: Floats
    totals: Floats
    sums: Floats
    squares: Floats
    stamp: Ints
    used: Bytes
    mean: Floats
    sd: Floats
    bound: Floats


def make_workspace(trials: TrialArrays, field: CandidateArrays, depth: int) -> Workspace:
    """Allocate the working memory of one thread."""
    most, count, steps = len(trials.y), len(field.codes), depth + 1
    return Workspace(
        np.zeros(most),
        np.empty(most, np.int64),
        np.empty((most + 2, 2), np.int64),
        np.empty((most + 2, len(field.everyone)), np.uint64),
        np.zeros(256),
        np.zeros(256),
        np.zeros((steps, steps, count)),
        np.zeros((steps, steps, count)),
        np.full((steps, steps), -1, np.int64),
        np.zeros(count, np.uint8),
        np.empty(count),
        np.empty(count),
        np.empty(count),
    )
