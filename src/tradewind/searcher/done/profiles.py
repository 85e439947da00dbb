"""What the low-level metrics of earlier runs say of a job's parameters."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from tradewind.searcher.done.expansion import Array
from tradewind.searcher.done.run_history import InformingRun, parameter_group

_MOST = 8
"""Metrics that are looked at, of those that most runs have."""

_FIRST = ("cpu_seconds", "peak_memory_bytes", "network_bytes", "read_bytes", "written_bytes")
"""Metrics that are looked at before others: processor, memory, network, disk."""


class ProfileMap:
    """Turns the profiles of runs with the same job parameters into numbers of [-1, 1].

    A job whose parameters are only names (``dataset=a``) shows in its profile how much work it is. Of each metric it
    keeps the mean (of the logarithm, where all are above zero) over the runs with the same job parameters. A run's own
    profile is left out of its own mean: before a run takes place, only those of earlier runs are known. Parameters
    that have never been run are in the middle.

    Args:
        runs: Runs that came to their end.
    """

    def __init__(self, runs: Sequence[InformingRun]) -> None:
        found: dict[str, int] = defaultdict(int)
        for run in runs:
            for name, value in run.seen.profile.items():
                found[name] += math.isfinite(value)
        most = max(found.values(), default=0)
        known = [name for name, count in found.items() if count >= 0.8 * most and count >= 2]
        usual = sorted(known, key=lambda name: (name not in _FIRST, name))[:_MOST]
        self._runs = {id(run) for run in runs}
        self._log = {
            name: all(run.seen.profile[name] > 0 for run in runs if name in run.seen.profile) for name in usual
        }
        self._sums: dict[tuple[object, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
        for run in runs:
            for name in usual:
                figure = self._value(run, name)
                if figure is not None:
                    cell = self._sums[run.group, name]
                    cell[0] += figure
                    cell[1] += 1.0
        self._range: dict[str, tuple[float, float]] = {}
        for name in usual:
            means = [total / count for (_, metric), (total, count) in self._sums.items() if metric == name]
            if max(means) - min(means) > 1e-9:
                self._range[name] = (min(means), max(means))
        self.names = tuple(f"profile {name}" for name in self._range)

    @property
    def width(self) -> int:
        """The number of columns."""
        return len(self._range)

    def _value(self, run: InformingRun, name: str) -> float | None:
        value = run.seen.profile.get(name, math.nan)
        if not math.isfinite(value):
            return None
        return math.log(value) if self._log[name] else value

    def of_runs(self, runs: Sequence[InformingRun]) -> Array:
        """What was known before each run of the metrics of its job parameters, shape (n, width)."""
        table = np.zeros((len(runs), self.width))
        for i, run in enumerate(runs):
            for j, name in enumerate(self._range):
                total, count = self._sums.get((run.group, name), (0.0, 0.0))
                own = self._value(run, name) if id(run) in self._runs else None
                if own is not None:
                    total, count = total - own, count - 1.0
                table[i, j] = self._scaled(name, total, count)
        return table

    def of(self, parameters: Mapping[str, float | str]) -> Array:
        """What is known of the metrics of some job parameters, shape (width,)."""
        group = parameter_group(parameters)
        return np.array([self._scaled(name, *self._sums.get((group, name), (0.0, 0.0))) for name in self._range])

    def _scaled(self, name: str, total: float, count: float) -> float:
        if count < 0.5:
            return 0.0
        low, high = self._range[name]
        return 2.0 * (total / count - low) / (high - low) - 1.0
