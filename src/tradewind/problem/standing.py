"""Which trial is the best where runs vary: what repeated runs of one configuration say."""

from __future__ import annotations

import math
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
_LEAST, _MOST, _STEPS = 0.002, 0.5, 23
_LATE = 1.0
"""A missed deadline is as bad as a loss that is larger by this share."""


@dataclass(frozen=True, slots=True)
class Measured:
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
    def of(cls, trial: Trial, objective: Objective) -> Measured | None:
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
        """By which the better of two single runs is told: loss, run time, number."""
        return self.loss, self.runtime, self.number


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def spread_of_repeats(squares: float, freedom: int) -> float:
    """The standard deviation of ln time between runs of one configuration.

    The median of its posterior after deviations with ``freedom`` degrees of freedom and ``squares`` as the sum of their
    squares, where every factor between 0.002 and 0.5 was as likely before.
    """
    grid = np.geomspace(_LEAST, _MOST, _STEPS)
    weights = -freedom * np.log(grid) - 0.5 * squares / grid**2
    share = np.cumsum(np.exp(weights - weights.max()))
    return float(np.interp(0.5, share / share[-1], grid))


class _Told(NamedTuple):
    """What the runs of one configuration say: losses, ln seconds, and those of them that show how runs vary."""

    losses: list[float]
    logs: list[float]
    varied: list[float]


def _told(runs: Sequence[Measured]) -> _Told:
    """What the runs of a configuration say that was run to its end.

    A run that was cut short below the mean of the finished ones could well have become one of them, and counts as
    their mean; one that went beyond it counts as what it had reached.
    """
    ended = [one for one in runs if one.finished]
    losses, logs = [one.loss for one in ended], [_log(one) for one in ended]
    loss, log = _mean(losses), _mean(logs)
    cut = [one for one in runs if one.bounded]
    return _Told(
        [*losses, *(max(one.loss, loss) for one in cut)],
        [*logs, *(max(_log(one), log) for one in cut)],
        [*logs, *(_log(one) for one in cut if _log(one) > log)],
    )


def _log(one: Measured) -> float:
    return math.log(max(one.runtime, 1e-12))


class Standing:
    """Where the configurations stand that were run to their end.

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

    def __init__(self, measured: Iterable[Measured], deadline: float | None) -> None:
        groups: dict[str, list[Measured]] = {}
        for one in sorted(measured, key=lambda one: one.number):
            groups.setdefault(one.key, []).append(one)
        # A bound alone says too little of a configuration to compare it with others.
        self.runs = [runs for runs in groups.values() if any(one.finished for one in runs)]
        self._limit = math.inf if deadline is None else math.log(max(deadline, 1e-12))
        told = [_told(runs) for runs in self.runs]
        self.times = np.array([len(one.losses) for one in told], dtype=float)
        self.loss = np.array([_mean([loss for loss in one.losses if math.isfinite(loss)]) for one in told])
        self.log_time = np.array([_mean(one.logs) for one in told])
        self.kept = np.array([_mean([float(self._kept(one)) for one in runs]) for runs in self.runs])
        freedom = sum(len(one.varied) - 1 for one in told)
        squares = math.fsum((log - _mean(one.varied)) ** 2 for one in told if len(one.varied) > 1 for log in one.varied)
        self.spread = spread_of_repeats(squares, freedom) if freedom else None

    def _kept(self, one: Measured) -> bool:
        return one.feasible or one.censored or (one.finished and _log(one) > self._limit)

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
        """Which configurations have a feasible run, shape (k,)."""
        return np.array([any(one.feasible and one.finished for one in runs) for runs in self.runs], dtype=bool)

    @cached_property
    def value(self) -> NDArray[np.float64]:
        """What each configuration counts as where runs vary: its mean loss, raised by its risk, shape (k,)."""
        sd = (self.spread or _LEAST) / np.sqrt(self.times)
        return self.price(self.loss, self.log_time, sd)

    @cached_property
    def best(self) -> int | None:
        """The place of the best configuration, or None where no run was feasible."""
        if not self.feasible.any():
            return None
        if not self.varies:
            return min((self._least(place).rank, place) for place in np.flatnonzero(self.feasible).tolist())[1]
        return int(np.argmin(np.where(self.feasible, self.value, math.inf)))

    @cached_property
    def best_run(self) -> Measured | None:
        """The run that stands for the best configuration: its usual one, or the least one where runs do not vary."""
        if self.best is None:
            return None
        if not self.varies:
            return self._least(self.best)
        usual = float(self.loss[self.best])
        return min(self._good(self.best), key=lambda one: (abs(one.loss - usual), one.number))

    @property
    def best_loss(self) -> float | None:
        """The loss of the best configuration: the mean of its runs, or the least where runs do not vary."""
        if self.best is None or self.best_run is None:
            return None
        return float(self.loss[self.best]) if self.varies else self.best_run.loss

    def _good(self, place: int) -> list[Measured]:
        return [one for one in self.runs[place] if one.feasible and one.finished]

    def _least(self, place: int) -> Measured:
        return min(self._good(place), key=lambda one: one.rank)
