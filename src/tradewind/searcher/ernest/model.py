"""Ernest's model of the run time against the share of the input and the number of machines."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tradewind.searcher.surrogate.gp import Array

TERMS = ("1", "s/m", "m", "ln m")
"""Terms that the time is a sum of: s is the share of the input, m the number of machines."""

_NEW = 1e-6
"""A column adds something when this much of its length is no mixture of those before it."""


def model_terms(share: Array, machines: Array) -> Array:
    """The terms of each run, shape (n, 4).

    Args:
        share: Share of the input, shape (n,).
        machines: Number of machines, shape (n,).
    """
    share, machines = np.asarray(share, dtype=float), np.asarray(machines, dtype=float)
    table: Array = np.column_stack([np.ones(len(share)), share / machines, machines, np.log(machines)])
    return table


def independent_columns(table: Array) -> list[int]:
    """The columns that some runs can distinguish, in order: each adds to the rank of those before it.

    With a single number of machines, for example, ``m`` and ``ln m`` cannot be distinguished from the constant.

    Args:
        table: Terms, shape (n, terms).
    """
    kept: list[int] = []
    base: list[Array] = []
    for i, column in enumerate(table.T):
        size = float(np.sqrt(column @ column))
        if size == 0.0:
            continue
        rest = column / size
        for _ in range(2):  # the second pass removes what rounding left
            for other in base:
                rest = rest - (rest @ other) * other
        left = float(np.sqrt(rest @ rest))
        if left > _NEW:
            kept.append(i)
            base.append(rest / left)
    return kept


@dataclass(frozen=True, slots=True)
class ErnestModel:
    """time(s, m) = θ0 + θ1·s/m + θ2·m + θ3·ln m with θ ≥ 0 (Venkataraman et al., NSDI 2016, section 3.1).

    Attributes:
        theta: Seconds per unit of each term, shape (4,); 0 for a term that the runs could not identify.
    """

    theta: Array

    @classmethod
    def fit(cls, share: Array, machines: Array, seconds: Array) -> ErnestModel:
        """Fit by non-negative least squares.

        Args:
            share: Share of the input of each run, shape (n,), n at least 1.
            machines: Number of machines of each run, shape (n,).
            seconds: Run time of each run, shape (n,).
        """
        from scipy.optimize import nnls

        table = model_terms(share, machines)
        kept = independent_columns(table)
        scale = np.abs(table[:, kept]).mean(axis=0)
        found, _ = nnls(table[:, kept] / scale, np.asarray(seconds, dtype=float))
        theta = np.zeros(len(TERMS))
        theta[kept] = found / scale
        return cls(theta)

    def predict(self, share: Array, machines: Array) -> Array:
        """Predict the seconds of runs, shape (n,)."""
        seconds: Array = model_terms(share, machines) @ self.theta
        return seconds

    def __str__(self) -> str:
        parts = [f"{value:.4g}·{name}" for value, name in zip(self.theta, TERMS, strict=True) if value > 0]
        return " + ".join(parts).replace("·1 ", " ").removesuffix("·1") or "0"
