"""The configurations that share a model, and what their runs have taught."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tradewind.problem import Trial
from tradewind.searcher.ernest.design import TrainingPoint
from tradewind.searcher.ernest.input_scaling_check import InputScaling, TimedRun, check_input_scaling
from tradewind.searcher.ernest.model import ErnestModel, independent_columns, model_terms
from tradewind.searcher.forecast import aborted_seconds, successful_seconds
from tradewind.searcher.surrogate.gp import Array


@dataclass(frozen=True)
class ModelGroup:
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
    points: Sequence[TrainingPoint]

    def table(self, points: Sequence[TrainingPoint]) -> Array:
        """The model's terms of some runs, shape (n, 4)."""
        return model_terms(np.array([p.share for p in points]), np.array([p.nodes * self.per_node for p in points]))

    def row(self, nodes: int) -> int:
        """The candidate with so many nodes."""
        return self.rows[self.nodes.index(nodes)]

    def seconds(self, model: ErnestModel, point: TrainingPoint) -> float:
        """What a model expects of a training run."""
        return float(model.predict(np.array([point.share]), np.array([point.nodes * self.per_node]))[0])


@dataclass(frozen=True, slots=True)
class GroupFit:
    """What one group's runs taught.

    Attributes:
        model: None without enough runs.
        sign: Whether the times rise with the share; None where that was not seen.
        table: The terms of the runs, shape (n, 4).
    """

    model: ErnestModel | None
    input_scaling: InputScaling | None
    table: Array

    @classmethod
    def of(cls, group: ModelGroup, runs: Sequence[Trial], cut: Sequence[Trial], nodes: str) -> GroupFit:
        """Fit a group's runs.

        Args:
            group: The group.
            runs: Its trials that succeeded, on parts and on the whole.
            cut: Those that were cut short, which say of the share alone.
            nodes: The name of the parameter that is the number of nodes.
        """
        count = np.array([int(trial.configuration[nodes]) for trial in runs], dtype=float)
        share = np.array([trial.proposal.fidelity for trial in runs])
        seconds = np.array([successful_seconds(trial) for trial in runs], dtype=float)
        table, model = model_terms(share, count * group.per_node), None
        if runs and len(independent_columns(table)) >= len(independent_columns(group.table(group.points))):
            model = ErnestModel.fit(share, count * group.per_node, seconds)
        timed = [TimedRun(float(s), int(n), float(t)) for s, n, t in zip(share, count, seconds, strict=True)]
        timed += [
            TimedRun(trial.proposal.fidelity, int(trial.configuration[nodes]), least, cut=True)
            for trial in cut
            if (least := aborted_seconds(trial)) is not None
        ]
        return cls(model, check_input_scaling(timed, group.label), table)

    def missing(
        self, group: ModelGroup, running: Sequence[TrainingPoint], points: Sequence[TrainingPoint]
    ) -> list[TrainingPoint]:
        """The training runs that would be enough for a model; none where there is one.

        Args:
            group: The group.
            running: Those on their way.
            points: Those to choose from, the most telling first.
        """
        known = np.vstack([self.table, group.table(running)])
        rank, most = len(independent_columns(known)), len(independent_columns(group.table(group.points)))
        found: list[TrainingPoint] = []
        for point in points:
            if rank >= most:
                break
            with_it = np.vstack([known, group.table([point])])
            if len(independent_columns(with_it)) > rank:
                known, rank = with_it, rank + 1
                found.append(point)
        return found
