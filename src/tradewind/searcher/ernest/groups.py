"""The configurations that share a model, and what their runs have taught."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tradewind.problem import Trial
from tradewind.searcher.ernest.design import Point
from tradewind.searcher.ernest.model import ErnestModel, telling, terms
from tradewind.searcher.predicted import told_time
from tradewind.searcher.surrogate.gp import Array
from tradewind.units import format_duration

_UNMOVED = 1.05
"""A run on a larger share that takes less than this times as long shows no effect of the share."""


@dataclass(frozen=True)
class Group:
    """Candidates of one instance type and one combination of settings: one model.

    Attributes:
        label: In words.
        rows: Numbers of the candidates.
        nodes: The number of nodes of each.
        cores: Cores of one node.
        per_node: What a node counts for in the model's number of machines.
        points: The training runs.
    """

    label: str
    rows: Sequence[int]
    nodes: Sequence[int]
    cores: float
    per_node: float
    points: Sequence[Point]

    def table(self, points: Sequence[Point]) -> Array:
        """The model's terms of some runs, shape (n, 4)."""
        return terms(np.array([p.share for p in points]), np.array([p.nodes * self.per_node for p in points]))

    def row(self, nodes: int) -> int:
        """The candidate with so many nodes."""
        return self.rows[self.nodes.index(nodes)]

    def seconds(self, model: ErnestModel, point: Point) -> float:
        """What a model expects of a training run."""
        return float(model.predict(np.array([point.share]), np.array([point.nodes * self.per_node]))[0])


@dataclass(frozen=True, slots=True)
class Fit:
    """What one group's runs taught.

    Attributes:
        model: None without enough runs.
        unmoved: How the times failed to fall with the share; empty where they fell, None where that was not seen.
        table: The terms of the runs, shape (n, 4).
    """

    model: ErnestModel | None
    unmoved: str | None
    table: Array

    @classmethod
    def of(cls, group: Group, runs: Sequence[Trial], nodes: str) -> Fit:
        """Fit a group's runs.

        Args:
            group: The group.
            runs: Its trials that succeeded, on parts and on the whole.
            nodes: The name of the parameter that is the number of nodes.
        """
        count = np.array([int(trial.configuration[nodes]) for trial in runs], dtype=float)
        share = np.array([trial.proposal.fidelity for trial in runs])
        seconds = np.array([told_time(trial) for trial in runs], dtype=float)
        table, model = terms(share, count * group.per_node), None
        if runs and len(telling(table)) >= len(telling(group.table(group.points))):
            model = ErnestModel.fit(share, count * group.per_node, seconds)
        return cls(model, cls._unmoved(group, share, count, seconds), table)

    def missing(self, group: Group, running: Sequence[Point], points: Sequence[Point]) -> list[Point]:
        """The training runs that would be enough for a model; none where there is one.

        Args:
            group: The group.
            running: Those on their way.
            points: Those to choose from, the most telling first.
        """
        known = np.vstack([self.table, group.table(running)])
        rank, most = len(telling(known)), len(telling(group.table(group.points)))
        found: list[Point] = []
        for point in points:
            if rank >= most:
                break
            with_it = np.vstack([known, group.table([point])])
            if len(telling(with_it)) > rank:
                known, rank = with_it, rank + 1
                found.append(point)
        return found

    @staticmethod
    def _unmoved(group: Group, share: Array, count: Array, seconds: Array) -> str | None:
        """Compares the two runs on equal machines whose shares differ most."""
        pairs = [
            (-round(float(share[j] / share[i]), 9), i, j)
            for i in range(len(share))
            for j in range(len(share))
            if count[i] == count[j] and share[j] >= 1.5 * share[i]
        ]
        if not pairs:
            return None
        _, i, j = min(pairs)
        if seconds[j] >= _UNMOVED * seconds[i]:
            return ""
        less, more = (f"{share[k]:.2%} took {format_duration(float(seconds[k]))}" for k in (i, j))
        return f"on {int(count[i])} x {group.label}, {less} and {more}"
