"""The runs that teach Ernest's model most for their cost: an A-optimal design (Venkataraman et al., NSDI 2016, 3.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tradewind.searcher.ernest.model import independent_columns, model_terms
from tradewind.searcher.surrogate.gp import Array

_GAP = 1e-7
"""Relative distance from the optimum at which the solver stops."""

_TIGHTER = 8.0
"""Factor by which each round of the barrier goes nearer to the optimum."""

_NOTHING = 1e-4
"""A λ below this is zero but for the solver's distance from the optimum."""

_CONTROL = 2.0
"""Two runs on equal machines whose shares differ this much show whether the job scales with the share."""


def a_criterion(columns: Array, weights: Array) -> float:
    """The objective of the design: the sum over i of e_iᵀ (Σ_j λ_j a_j a_jᵀ)⁻¹ e_i; infinite where it is singular.

    Args:
        columns: The a_j, shape (n, k).
        weights: The λ_j, shape (n,).
    """
    information = columns.T @ (columns * weights[:, None])
    try:
        root = np.linalg.cholesky(information)
    except np.linalg.LinAlgError:
        return float("inf")
    inverse = np.linalg.inv(root)
    return float((inverse**2).sum())


def a_optimal(columns: Array, costs: Array, budget: float) -> Array:
    """The relaxed A-optimal design: min `a_criterion` with 0 ≤ λ ≤ 1 and Σ λ_j·cost_j ≤ budget.

    A log-barrier interior-point method; the Hessian is 2·(A M⁻¹ Aᵀ) ∘ (A M⁻² Aᵀ) with M = Σ λ_j a_j a_jᵀ.

    Args:
        columns: Terms divided by their means, shape (n, k), of rank k.
        costs: Positive, shape (n,).
        budget: In the unit of the costs.

    Returns:
        λ, shape (n,).
    """
    n = len(costs)
    if float(costs.sum()) <= budget:
        return np.ones(n)
    costs = costs / budget
    weights = np.full(n, min(0.5, 0.5 / float(costs.sum())))
    size = a_criterion(columns, weights)
    scaled = columns * np.sqrt(size)  # the objective begins at 1, whatever the unit of the terms
    sharpness = 1.0
    while (2 * n + 1) / sharpness > _GAP * a_criterion(scaled, weights):
        sharpness *= _TIGHTER
        weights = _centre(scaled, costs, weights, sharpness)
    return weights


def _barrier(columns: Array, costs: Array, weights: Array, sharpness: float) -> float:
    slack = 1.0 - float(costs @ weights)
    if slack <= 0.0 or float(weights.min()) <= 0.0 or float(weights.max()) >= 1.0:
        return float("inf")
    logs = np.log(weights).sum() + np.log1p(-weights).sum() + np.log(slack)
    return sharpness * a_criterion(columns, weights) - float(logs)


def _centre(columns: Array, costs: Array, weights: Array, sharpness: float) -> Array:
    """Newton's method on the barrier function.

    The Hessian is a diagonal plus V Vᵀ with k² + 1 columns, so each step takes time linear in the runs (Woodbury).
    """
    value = _barrier(columns, costs, weights, sharpness)
    for _ in range(50):
        inverse = np.linalg.inv(columns.T @ (columns * weights[:, None]))
        solved = columns @ inverse
        slack = 1.0 - float(costs @ weights)
        gradient = -sharpness * (solved**2).sum(axis=1) - 1 / weights + 1 / (1 - weights) + costs / slack
        rooted = columns @ np.linalg.cholesky(inverse)
        products = (rooted[:, :, None] * solved[:, None, :]).reshape(len(costs), -1)
        low_rank = np.hstack([np.sqrt(2.0 * sharpness) * products, (costs / slack)[:, None]])
        diagonal = 1 / weights**2 + 1 / (1 - weights) ** 2
        scaled = low_rank / diagonal[:, None]
        small = np.eye(low_rank.shape[1]) + low_rank.T @ scaled
        step = -(gradient / diagonal - scaled @ np.linalg.solve(small, scaled.T @ gradient))
        decrement = -float(gradient @ step)
        if decrement < 1e-9:
            break
        length = 1.0
        while (after := _barrier(columns, costs, weights + length * step, sharpness)) > (
            value - 0.1 * length * decrement
        ):
            length *= 0.5
            if length < 1e-10:
                return weights
        weights, value = weights + length * step, after
    return weights


@dataclass(frozen=True, slots=True)
class TrainingPoint:
    """A training run on a part of the input.

    Attributes:
        share: Share of the input.
        nodes: Number of nodes.
    """

    share: float
    nodes: int


@dataclass(frozen=True, slots=True)
class ExperimentDesign:
    """Limits within which training runs are chosen.

    Attributes:
        shares: Shares of the input to choose from, ascending.
        budget: Cost of all runs together; a run on the smallest share with one machine costs 1.
        partitions: Parts that the whole input is cut into, or None where any share keeps all cores busy.
        most: Runs at most.
    """

    shares: Sequence[float]
    budget: float = 10.0
    partitions: int | None = None
    most: int = 10

    def candidates(self, nodes: Sequence[int], cores: float) -> list[TrainingPoint]:
        """List the runs to choose from: those where every core gets at least one partition.

        Args:
            nodes: Numbers of nodes that can be bought.
            cores: Cores of one node.
        """
        return [
            TrainingPoint(share, count)
            for share in self.shares
            for count in nodes
            if self.partitions is None or round(share * self.partitions) >= cores * count
        ]

    def choose(self, nodes: Sequence[int], cores: float, per_node: float = 1.0) -> list[TrainingPoint]:
        """Choose the training runs for one instance type, the most informative first.

        As `select_training_runs` chooses, and one more where no two runs on equal machines would show whether the job
        scales with the share.

        Args:
            nodes: Numbers of nodes that can be bought.
            cores: Cores of one node.
            per_node: Machines that one node counts for in the model.
        """
        points = self.candidates(nodes, cores)
        if not points:
            return []
        share, machines = np.array([p.share for p in points]), np.array([p.nodes * per_node for p in points])
        costs = share / min(self.shares) / machines
        chosen = select_training_runs(model_terms(share, machines), costs, self.budget, self.most)
        return [points[i] for i in chosen + _control(points, costs, chosen)]


def select_training_runs(table: Array, costs: Array, budget: float, most: int) -> list[int]:
    """Select the runs of a list to carry out, the most informative first.

    The largest λ are taken until the budget is used, then more where the terms could not be distinguished. Of more than
    ``most`` those are left out that the objective misses least.

    Args:
        table: Terms of each run, shape (n, terms).
        costs: Positive, shape (n,).
        budget: In the unit of the costs.
        most: Largest number of runs; as many as there are terms in any case.

    Returns:
        Places in the list.
    """
    kept = independent_columns(table)
    columns = table[:, kept] / table[:, kept].mean(axis=0)
    weights = a_optimal(columns, costs, budget)
    # Rounded, so that equal weights are taken in order whatever the last bit says.
    order = sorted(range(len(costs)), key=lambda i: (-round(float(weights[i]), 6), i))
    chosen: list[int] = []
    spent = 0.0
    for i in order:
        if weights[i] > _NOTHING and spent + costs[i] <= budget * (1 + 1e-9):
            chosen.append(i)
            spent += float(costs[i])
    for i in order:
        rank = len(independent_columns(table[chosen]))
        if rank == len(kept):
            break
        if len(independent_columns(table[[*chosen, i]])) > rank:
            chosen.append(i)
    return _thinned(columns, chosen, max(most, len(kept)))


def _thinned(columns: Array, chosen: Sequence[int], most: int) -> list[int]:
    """Choose at most so many runs: one after the other, that one is left out without which the objective is least."""
    kept = list(chosen)
    while len(kept) > most:
        without = [a_criterion(columns[kept[:i] + kept[i + 1 :]], np.ones(len(kept) - 1)) for i in range(len(kept))]
        kept.pop(min(range(len(kept)), key=lambda i: (float(f"{without[i]:.9g}"), -i)))
    return kept


def _control(points: Sequence[TrainingPoint], costs: Array, chosen: Sequence[int]) -> list[int]:
    """The cheapest run that makes a pair on equal machines with different shares, where there is none."""

    def pairs(i: int) -> bool:
        one = points[i]
        return any(
            points[j].nodes == one.nodes
            and max(points[j].share, one.share) >= _CONTROL * min(points[j].share, one.share)
            for j in chosen
        )

    if any(pairs(i) for i in chosen):
        return []
    makes = [i for i in range(len(points)) if i not in chosen and pairs(i)]
    return [min(makes, key=lambda i: (round(float(costs[i]), 9), i))] if makes else []
