"""Ranks configurations where runs vary, by the repeated runs of each."""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tradewind.problem.objective import Objective
from tradewind.problem.trial import Trial

_STEADY = 0.01
"""Runs that repeat to within this share are taken for exact: the best that was measured is the best."""
_LEAST, _MOST, _STEPS = 0.002, 0.5, 45
_EXACT = 0.3
"""How likely it is, before anything was run twice, that runs do not vary: as those of simulators and records."""
_USUAL, _USUAL_SD = 0.07, 0.8
"""Otherwise, by how much runs in the cloud usually vary, and the standard deviation of that in its logarithm."""
_LATE = 1.0
"""A missed deadline is as bad as a loss that is larger by this share."""


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A whole run that ended, as far as it matters for who is the best.

    Attributes:
        number: Of the trial.
        key: What makes two trials the same.
        loss: The objective as something to minimise; NaN for a run that failed.
        runtime: Seconds.
        feasible: True when every constraint held.
        censored: True for a run that was cut short: its loss and its time are lower bounds.
    """

    number: int
    key: str
    loss: float
    runtime: float
    feasible: bool
    censored: bool = False

    @classmethod
    def of(cls, trial: Trial, objective: Objective) -> MeasuredRun | None:
        """A trial's; None for one that has not ended, that was lost, or that ran a part of the input."""
        seen = trial.observation
        if seen is None or trial.proposal.fidelity < 1.0:
            return None
        loss = math.nan if seen.objective is None else objective.loss(seen.objective)
        return cls(trial.number, trial.key, loss, seen.runtime, seen.feasible, seen.censored)

    @property
    def finished(self) -> bool:
        """True when it ran to its end, with a value and a time."""
        return not self.censored and math.isfinite(self.loss) and 0.0 <= self.runtime < math.inf

    @property
    def bounded(self) -> bool:
        """True when it was cut short and says how long it takes at least."""
        return self.censored and 0.0 < self.runtime < math.inf

    @property
    def rank(self) -> tuple[float, float, int]:
        """Sort key of single runs, the better first: loss, run time, number."""
        return self.loss, self.runtime, self.number


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def spread_of_repeats(squares: float, freedom: int) -> float:
    """The standard deviation of ln time between runs of one configuration.

    The median of its posterior after deviations with ``freedom`` degrees of freedom and ``squares`` as the sum of their
    squares. Before, it is the least of the grid with probability `_EXACT`, for runs that do not vary at all, and
    otherwise log-normal: that two runs of one configuration happen to agree to within 1 % does not make it so.
    """
    grid = np.geomspace(_LEAST, _MOST, _STEPS)
    before = np.exp(-0.5 * (np.log(grid / _USUAL) / _USUAL_SD) ** 2)
    before *= (1.0 - _EXACT) / before.sum()
    before[0] += _EXACT
    weights = np.log(before) - freedom * np.log(grid) - 0.5 * squares / grid**2
    share = np.cumsum(np.exp(weights - weights.max()))
    return float(np.interp(0.5, share / share[-1], grid))


class _RunStatistics(NamedTuple):
    """Statistics of the runs of one configuration: losses, ln seconds, and those of them that show how runs vary."""

    losses: list[float]
    logs: list[float]
    varied: list[float]


def _run_statistics(runs: Sequence[MeasuredRun]) -> _RunStatistics:
    """Statistics of the runs of a configuration that was run to its end.

    A run that was cut short below the mean of the finished ones could well have become one of them, and counts as
    their mean; one that went beyond it counts as what it had reached.
    """
    ended = [one for one in runs if one.finished]
    losses, logs = [one.loss for one in ended], [_log(one) for one in ended]
    loss, log = _mean(losses), _mean(logs)
    cut = [one for one in runs if one.bounded]
    return _RunStatistics(
        [*losses, *(max(one.loss, loss) for one in cut)],
        [*logs, *(max(_log(one), log) for one in cut)],
        [*logs, *(_log(one) for one in cut if _log(one) > log)],
    )


def _log(one: MeasuredRun) -> float:
    return math.log(max(one.runtime, 1e-12))


class _Group:
    """The runs of one configuration by number, one of which has finished, and what they say together."""

    def __init__(self, runs: Sequence[MeasuredRun], limit: float) -> None:
        statistics = _run_statistics(runs)
        self.runs = list(runs)  # more may come
        self.times = len(statistics.losses)
        self.loss = _mean([loss for loss in statistics.losses if math.isfinite(loss)])
        self.log_time = _mean(statistics.logs)
        self.kept = _mean([float(_kept(one, limit)) for one in runs])
        self.freedom = len(statistics.varied) - 1
        mean = _mean(statistics.varied)
        self.squares = [(log - mean) ** 2 for log in statistics.varied] if self.freedom else []
        self.good = [one for one in runs if one.feasible and one.finished]

    @cached_property
    def least(self) -> MeasuredRun:
        """The best single run of those that are good; there must be one."""
        return min(self.good, key=lambda one: one.rank)


def _kept(one: MeasuredRun, limit: float) -> bool:
    return one.feasible or one.censored or (one.finished and _log(one) > limit)


class IncrementalRanking:
    """Gathers the runs of a running search for `ConfigurationRanking.of`; each run is counted once, when added.

    Args:
        deadline: Seconds, or None.

    Attributes:
        limit: Its logarithm; infinite without one.
    """

    def __init__(self, deadline: float | None) -> None:
        self.limit = math.inf if deadline is None else math.log(max(deadline, 1e-12))
        self._runs: dict[str, list[MeasuredRun]] = {}
        self._groups: dict[str, _Group] = {}
        self._changed: dict[str, None] = {}

    def add(self, one: MeasuredRun) -> None:
        """Take a run that has ended."""
        insort(self._runs.setdefault(one.key, []), one, key=lambda run: run.number)
        self._changed[one.key] = None

    def groups(self) -> list[_Group]:
        """Those with a finished run, in the order of their first runs: a bound alone says too little to compare."""
        for key in self._changed:
            if any(one.finished for one in self._runs[key]):
                self._groups[key] = _Group(self._runs[key], self.limit)
        self._changed.clear()
        return sorted(self._groups.values(), key=lambda group: group.runs[0].number)


class ConfigurationRanking:
    """Rank the configurations that were run to their end.

    Where runs vary by 10 %, the least of many single runs is a lucky one. So the runs of a configuration count
    together, and whether it meets the deadline is judged by its usual time. As long as no configuration was run
    twice, or repeated runs hardly differ, the least feasible run is the best.

    Args:
        measured: Runs that ended, in any order.
        deadline: Seconds, or None.

    Attributes:
        runs: The runs of each configuration by number, in the order of their first ones; k configurations.
        times: How often each ran to its end or to a cap, shape (k,).
        loss: Its mean loss, shape (k,); a run that was cut short counts as the mean of the others at least.
        log_time: Its mean ln seconds, shape (k,).
        kept: Share of its runs that broke nothing but the deadline, shape (k,).
        spread: Standard deviation of ln time between runs of one configuration; None where none was run twice.
    """

    def __init__(self, measured: Iterable[MeasuredRun], deadline: float | None) -> None:
        growing = IncrementalRanking(deadline)
        for one in measured:
            growing.add(one)
        self._take(growing.groups(), growing.limit)

    @classmethod
    def of(cls, growing: IncrementalRanking) -> ConfigurationRanking:
        """The ranking after the runs that were added so far."""
        made = cls.__new__(cls)
        made._take(growing.groups(), growing.limit)
        return made

    def _take(self, groups: Sequence[_Group], limit: float) -> None:
        self._groups, self._limit = groups, limit
        self.runs = [group.runs for group in groups]
        self.times = np.array([group.times for group in groups], dtype=float)
        self.loss = np.array([group.loss for group in groups])
        self.log_time = np.array([group.log_time for group in groups])
        self.kept = np.array([group.kept for group in groups])
        freedom = sum(group.freedom for group in groups)
        squares = math.fsum(square for group in groups for square in group.squares)
        self.spread = spread_of_repeats(squares, freedom) if freedom else None

    @property
    def varies(self) -> bool:
        """True when repeated runs showed that runs vary."""
        return self.spread is not None and self.spread > _STEADY

    def price(
        self, loss: NDArray[np.float64], log_time: NDArray[np.float64], sd: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """The loss, raised by the risk of missing the deadline or another bound.

        Args:
            loss: Of each configuration, shape (k,).
            log_time: Believed mean of ln seconds of each, shape (k,).
            sd: Standard deviation of that belief, shape (k,).
        """
        from scipy.special import ndtr

        kept = self.kept * ndtr((self._limit - log_time) / sd)
        price: NDArray[np.float64] = loss + _LATE * np.abs(loss) * (1.0 - kept)
        return price

    @cached_property
    def feasible(self) -> NDArray[np.bool_]:
        """Mask of the configurations that have a feasible run, shape (k,)."""
        return np.array([bool(group.good) for group in self._groups], dtype=bool)

    @cached_property
    def value(self) -> NDArray[np.float64]:
        """Value of each configuration where runs vary: its mean loss, raised by its risk, shape (k,)."""
        sd = (self.spread or _LEAST) / np.sqrt(self.times)
        return self.price(self.loss, self.log_time, sd)

    @cached_property
    def best(self) -> int | None:
        """The place of the best configuration, or None where no run was feasible."""
        if not self.feasible.any():
            return None
        if not self.varies:
            return min((group.least.rank, place) for place, group in enumerate(self._groups) if group.good)[1]
        return int(np.argmin(np.where(self.feasible, self.value, math.inf)))

    @cached_property
    def best_run(self) -> MeasuredRun | None:
        """The run that stands for the best configuration: its usual one, or the least one where runs do not vary."""
        if self.best is None:
            return None
        if not self.varies:
            return self._groups[self.best].least
        usual = float(self.loss[self.best])
        return min(self._groups[self.best].good, key=lambda one: (abs(one.loss - usual), one.number))

    @property
    def best_loss(self) -> float | None:
        """The loss of the best configuration: the mean of its runs, or the least where runs do not vary."""
        if self.best is None or self.best_run is None:
            return None
        return float(self.loss[self.best]) if self.varies else self.best_run.loss
