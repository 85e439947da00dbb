"""Ranks configurations where runs vary, by the repeated runs of each.

Everybody who says which configuration is the best asks `ConfigurationRanking`: the search, the store, reports,
recommendations and the searchers themselves. Each figure is judged by its own variation: the objective, the run time
where there is a deadline, and every metric that has a bound.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tradewind.problem.objective import COST, RUNTIME, Constraints, Objective, Threshold
from tradewind.problem.trial import Trial

Floats = NDArray[np.float64]

_TIMED = (COST, RUNTIME)
_STEADY = 0.01
"""Runs whose times repeat to within this share are not worth running again: the next would be like the last."""
_SAME = 1e-9
"""Figures that differ by less than this share are equal but for rounding."""
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
        figures: The metrics that have bounds, in the order of the bounds; NaN where it has none.
    """

    number: int
    key: str
    loss: float
    runtime: float
    feasible: bool
    censored: bool = False
    figures: tuple[float, ...] = ()

    @classmethod
    def of(cls, trial: Trial, objective: Objective, constraints: Constraints | None = None) -> MeasuredRun | None:
        """A trial's; None for one that has not ended, that was lost, or that ran a part of the input."""
        seen = trial.observation
        if seen is None or trial.proposal.fidelity < 1.0:
            return None
        loss = math.nan if seen.objective is None else objective.loss(seen.objective)
        figures: tuple[float, ...] = ()
        if constraints is not None and constraints.thresholds:
            known = seen.figures
            figures = tuple(known.get(threshold.metric, math.nan) for threshold in constraints.thresholds)
        return cls(trial.number, trial.key, loss, seen.runtime, seen.feasible, seen.censored, figures)

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


@dataclass(frozen=True, slots=True)
class Variation:
    """Variation of one figure between the runs of one configuration.

    Attributes:
        metric: The figure's name.
        spread: Its standard deviation; 0 where it repeats exactly.
        relative: True where that is a share of the figure (the deviation of its logarithm), False in its own unit.
    """

    metric: str
    spread: float
    relative: bool


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def spread_of_repeats(squares: float, freedom: int) -> float:
    """The standard deviation of ln time between runs of one configuration.

    The median of its posterior after deviations with ``freedom`` degrees of freedom and ``squares`` as the sum of their
    squares. Before, it is the least of the grid with probability `_EXACT`, for runs that do not vary at all, and
    otherwise log-normal: that two runs of one configuration happen to agree to within 1 % does not make it so.
    """
    grid, before = _GRID
    weights = before - freedom * np.log(grid) - 0.5 * squares / grid**2
    share = np.cumsum(np.exp(weights - weights.max()))
    return float(np.interp(0.5, share / share[-1], grid))


def _grid() -> tuple[Floats, Floats]:
    grid = np.geomspace(_LEAST, _MOST, _STEPS)
    before = np.exp(-0.5 * (np.log(grid / _USUAL) / _USUAL_SD) ** 2)
    before *= (1.0 - _EXACT) / before.sum()
    before[0] += _EXACT
    return grid, np.log(before)


_GRID = _grid()


def spread_of_metric(squares: float, freedom: int) -> float:
    """The standard deviation of a metric between runs of one configuration, whatever its unit.

    Of a metric nothing is known beforehand, not even the size of its values. This is the median of what the deviations
    alone say (the posterior under Jeffreys' prior); the median of χ² is that of Wilson & Hilferty, "The distribution of
    chi-square", PNAS 1931.

    Args:
        squares: Sum of the squared deviations from the means of the configurations.
        freedom: Their degrees of freedom, at least 1.
    """
    return math.sqrt(squares / (freedom * (1.0 - 2.0 / (9.0 * freedom)) ** 3))


# ---------------------------------------------------------------------- one configuration

_COUNT, _MEAN, _SQUARES, _LOG_MEAN, _LOG_SQUARES, _LOW, _HIGH = range(7)
_WIDTH = 7
_FIRST, _TIMES, _LOSS, _LOG_TIME, _KEPT, _GOOD = range(6)
_LEAST_LOSS, _LEAST_TIME, _LEAST_NUMBER, _FREEDOM, _TIME_SQUARES = range(6, 11)
_FIGURES = 11
"""Columns of `IncrementalRanking`: one row is one configuration; behind these, each figure has `_WIDTH` of its own."""


def _deviations(values: Sequence[float], size: float = 1.0) -> tuple[float, float]:
    """Mean, and sum of the squares of what is off it; 0 where that is rounding, of values of a size."""
    if len(values) == 1:
        return values[0], 0.0
    mean = _mean(values)
    if max(values) - min(values) <= _SAME * size:
        return mean, 0.0
    return mean, math.fsum((value - mean) * (value - mean) for value in values)


def _figure(values: Sequence[float]) -> tuple[float, ...]:
    """Columns of one figure from its values in the runs of one configuration."""
    if len(values) == 1:
        (value,) = values
        return (1.0, value, 0.0, math.log(abs(value)) if value else math.nan, 0.0, value, value)
    if not values:
        return (0.0, math.nan, 0.0, math.nan, 0.0, math.inf, -math.inf)
    low, high = min(values), max(values)
    logs = (math.nan, 0.0)
    if low > 0 or high < 0:
        logs = _deviations([math.log(abs(value)) for value in values])
    return (float(len(values)), *_deviations(values, max(abs(low), abs(high))), *logs, low, high)


def _log(one: MeasuredRun) -> float:
    return math.log(max(one.runtime, 1e-12))


def _run_statistics(runs: Sequence[MeasuredRun], limit: float, thresholds: Sequence[Threshold]) -> list[float]:
    """Columns of a configuration that was run to its end.

    A run that was cut short below the mean of the finished ones could well have become one of them, and counts as
    their mean; one that went beyond it counts as what it had reached.
    """
    ended = [one for one in runs if one.finished]
    cut = [one for one in runs if one.bounded]
    losses, logs = [one.loss for one in ended], [_log(one) for one in ended]
    loss, log = _mean(losses), _mean(logs)
    reached = [*losses, *(max(one.loss, loss) for one in cut)]
    varied = [*logs, *(_log(one) for one in cut if _log(one) > log)]
    good = [one for one in ended if one.feasible]
    least = min(good, key=lambda one: one.rank).rank if good else (math.inf, math.inf, math.inf)
    columns: list[float] = [
        float(runs[0].number),
        float(len(reached)),
        _mean([one for one in reached if math.isfinite(one)]),
        _mean([*logs, *(max(_log(one), log) for one in cut)]),
        _mean([float(_kept(one, limit, thresholds)) for one in runs]),
        float(bool(good)),
        *least,
        float(len(varied) - 1),
        _deviations(varied)[1],
        *_figure([*losses, *(one.loss for one in cut if loss < one.loss < math.inf)]),
    ]
    for place, threshold in enumerate(thresholds):
        values = [one.figures[place] for one in ended if math.isfinite(one.figures[place])]
        if threshold.metric in _TIMED and values:
            usual = _mean(values)
            values += [max(one.figures[place], usual) for one in cut if math.isfinite(one.figures[place])]
        columns += _figure(values)
    return columns


def _kept(one: MeasuredRun, limit: float, thresholds: Sequence[Threshold]) -> bool:
    """True unless it broke something that the usual figures of its configuration do not show."""
    if one.feasible or one.censored:
        return True
    if not one.finished or any(math.isnan(value) for value in one.figures):
        return False
    broken = (not bound.holds(value) for bound, value in zip(thresholds, one.figures, strict=True))
    return _log(one) > limit or any(broken)


# ---------------------------------------------------------------------- all of them


class IncrementalRanking:
    """Gathers the runs of a running search for `ConfigurationRanking.of`; each run is counted once, when added.

    Args:
        objective: The objective whose losses the runs have.
        constraints: What is to hold; the runs' figures are those of its bounds.

    Attributes:
        limit: Logarithm of the deadline; infinite without one.
        ended: The runs of each configuration that has a finished one, as of the last `table`.
    """

    def __init__(self, objective: Objective, constraints: Constraints | None = None) -> None:
        self.objective = objective
        self.constraints = constraints or Constraints()
        deadline = self.constraints.deadline
        self.limit = math.inf if deadline is None else math.log(max(deadline, 1e-12))
        self._runs: dict[str, list[MeasuredRun]] = {}
        self._places: dict[str, int] = {}
        self.ended: list[list[MeasuredRun]] = []
        self._changed: dict[str, None] = {}
        self._table = np.empty((16, _FIGURES + _WIDTH * (1 + len(self.constraints.thresholds))))

    def add(self, one: MeasuredRun) -> None:
        """Take a run that has ended."""
        insort(self._runs.setdefault(one.key, []), one, key=lambda run: run.number)
        self._changed[one.key] = None

    def table(self) -> tuple[NDArray[np.intp], Floats]:
        """Places and columns of those with a finished run, in the order of their first runs.

        A bound alone says too little to compare.
        """
        for key in self._changed:
            if any(one.finished for one in self._runs[key]):
                place = self._places.setdefault(key, len(self._places))
                if place == len(self.ended):
                    self.ended.append(self._runs[key])
                if place >= len(self._table):
                    self._table = np.vstack([self._table, np.empty_like(self._table)])
                self._table[place] = _run_statistics(self._runs[key], self.limit, self.constraints.thresholds)
        self._changed.clear()
        filled = self._table[: len(self._places)]
        order = np.argsort(filled[:, _FIRST], kind="stable")
        return order, filled[order]


class ConfigurationRanking:
    """Rank the configurations that were run to their end.

    Where a score varies by 10 % from run to run, the best of many single runs is a lucky one. So the runs of a
    configuration count together, and whether it keeps the deadline and the bounds is judged by its usual figures. As
    long as no configuration was run twice, or repeated runs are equal, the least feasible run is the best.

    Args:
        measured: Runs that ended, in any order.
        objective: The objective whose losses the runs have.
        constraints: What is to hold; the runs' figures are those of its bounds.

    Attributes:
        times: How often each ran to its end or to a cap, shape (k,).
        loss: Its mean loss, shape (k,); a run that was cut short counts as the mean of the others at least.
        log_time: Its mean ln seconds, shape (k,).
        kept: Share of its runs that broke nothing but the deadline and known bounds, shape (k,).
        spread: Standard deviation of ln time between runs of one configuration; None where none was run twice.
        loss_variation: Variation of the objective; None where none was run twice.
        bound_variations: The same of each figure that has a bound.
    """

    def __init__(
        self, measured: Iterable[MeasuredRun], objective: Objective, constraints: Constraints | None = None
    ) -> None:
        growing = IncrementalRanking(objective, constraints)
        for one in measured:
            growing.add(one)
        self._take(growing)

    @classmethod
    def of(cls, growing: IncrementalRanking) -> ConfigurationRanking:
        """The ranking after the runs that were added so far; it is to be asked before others are added."""
        made = cls.__new__(cls)
        made._take(growing)
        return made

    @classmethod
    def of_trials(
        cls, trials: Iterable[Trial], objective: Objective, constraints: Constraints | None = None
    ) -> ConfigurationRanking:
        """The ranking of the trials that have ended and inform, in any order."""
        found = (MeasuredRun.of(trial, objective, constraints) for trial in trials if trial.state.informs)
        return cls((one for one in found if one is not None), objective, constraints)

    def _take(self, growing: IncrementalRanking) -> None:
        self._objective, self._limit = growing.objective, growing.limit
        self._thresholds = growing.constraints.thresholds
        self._order, self._table = growing.table()
        self._ended: list[list[MeasuredRun]] = growing.ended
        self.times, self.loss = self._table[:, _TIMES], self._table[:, _LOSS]
        self.log_time, self.kept = self._table[:, _LOG_TIME], self._table[:, _KEPT]
        freedom, squares = int(self._table[:, _FREEDOM].sum()), float(self._table[:, _TIME_SQUARES].sum())
        self.spread = spread_of_repeats(squares, freedom) if freedom else None
        self._time_spread = self.spread or 0.0
        if freedom and self._time_spread <= _STEADY:
            self._time_spread = spread_of_metric(squares, freedom)
        self.loss_variation = self._variation(self._objective.metric, 0, signed=True)
        self.bound_variations = [
            self._variation(threshold.metric, place) for place, threshold in enumerate(self._thresholds, 1)
        ]

    @cached_property
    def runs(self) -> list[list[MeasuredRun]]:
        """The runs of each of the k configurations by number, in the order of their first ones."""
        return [self._ended[place] for place in self._order.tolist()]

    def _figure(self, place: int) -> Floats:
        first = _FIGURES + _WIDTH * place
        return self._table[:, first : first + _WIDTH]

    def _variation(self, metric: str, place: int, *, signed: bool = False) -> Variation | None:
        figure = self._figure(place)
        freedom = int(np.maximum(figure[:, _COUNT] - 1.0, 0.0).sum())
        if not freedom:
            return None
        low, high = float(figure[:, _LOW].min()), float(figure[:, _HIGH].max())
        relative = low > 0 or (signed and high < 0)
        squares = float(figure[:, _LOG_SQUARES if relative else _SQUARES].sum())
        return Variation(metric, spread_of_metric(squares, freedom), relative)

    @cached_property
    def variations(self) -> list[Variation]:
        """The figures that matter for who is the best and that vary between runs of one configuration."""
        time = Variation(RUNTIME, self._time_spread if self._limit < math.inf else 0.0, relative=True)
        found: dict[str, Variation] = {}
        for one in (self.loss_variation, time, *self.bound_variations):
            if one is not None and one.spread > 0.0:
                found.setdefault(one.metric, one)
        return list(found.values())

    @property
    def repeated(self) -> bool:
        """True when a configuration has several runs that can be compared."""
        return self.spread is not None or self.loss_variation is not None

    @property
    def varies(self) -> bool:
        """True when repeated runs showed that a figure varies which matters for who is the best."""
        return bool(self.variations)

    @property
    def worth_repeating(self) -> bool:
        """True when repeated runs showed that further ones can change who is the best.

        Times that agree to within 1 % are taken for exact, as those of simulators and records are.
        """
        bounded = self._limit < math.inf or any(bound.metric in _TIMED for bound in self._thresholds)
        if (bounded or self._objective.grows_with_time) and self.spread is not None and self.spread > _STEADY:
            return True
        return any(one.metric not in _TIMED for one in self.variations)

    def price(self, loss: Floats, log_time: Floats, sd: Floats, within: Floats | None = None) -> Floats:
        """The loss, raised by the risk of missing the deadline or another bound.

        Args:
            loss: Of each configuration, shape (k,).
            log_time: Believed mean of ln seconds of each, shape (k,).
            sd: Standard deviation of that belief, shape (k,); 0 where it is known.
            within: Believed probability of keeping the bounds, shape (k,); by default `within_bounds`.
        """
        kept = self.kept * (self.within_bounds if within is None else within)
        if self._limit < math.inf:
            kept = kept * _below(self._limit, log_time, sd)
        size = np.abs(loss)
        if not self._objective.grows_with_time and len(self.loss):
            size = np.maximum(size, np.ptp(self.loss))  # a score may be about zero, where its own size means nothing
        price: Floats = loss + _LATE * size * (1.0 - kept)
        return price

    @cached_property
    def within_bounds(self) -> Floats:
        """Probability that the usual figures of each configuration are within their bounds, shape (k,)."""
        within = np.ones(len(self.times))
        for place in range(len(self._thresholds)):
            within = within * self.within(place)
        return within

    def within(self, place: int, shift: float = 0.0, times: Floats | None = None) -> Floats:
        """Probability that a figure's mean keeps its bound, shape (k,).

        Args:
            place: The bound's, in the order of the constraints.
            shift: Standard deviations by which one more run is taken to have moved the mean.
            times: Runs of each configuration before that one, shape (k,); without it there is none more.
        """
        figure, variation, bound = self._figure(place + 1), self.bound_variations[place], self._thresholds[place]
        count = np.maximum(figure[:, _COUNT], 1.0) if times is None else times
        log = variation is not None and variation.relative
        mean, spread = figure[:, _LOG_MEAN if log else _MEAN], 0.0 if variation is None else variation.spread
        if times is not None:
            mean = mean + shift * spread * np.sqrt(1.0 / times - 1.0 / (times + 1.0))
            count = times + 1.0
        sd = spread / np.sqrt(count)
        low, high = self._relaxed(place, bound) if spread else (bound.at_least, bound.at_most)
        chance = np.ones(len(count))
        for limit, sign in ((low, -1.0), (high, 1.0)):
            if limit is None:
                continue
            at = (math.log(limit) if limit > 0 else -math.inf) if log else limit
            chance = chance - 1.0 + _below(sign * at, sign * mean, sd)
        known: Floats = np.where(figure[:, _COUNT] > 0, np.maximum(chance, 0.0), 1.0)
        return known

    def _relaxed(self, place: int, bound: Threshold) -> tuple[float | None, float | None]:
        """The bound, moved outwards where usual figures lie on it: `Threshold.relaxed`."""
        means = self._figure(place + 1)[:, _MEAN]
        if any(limit is not None and (means == limit).any() for limit in (bound.at_least, bound.at_most)):
            bound = bound.relaxed([one.figures[place] for runs in self.runs for one in runs if one.finished])
        return bound.at_least, bound.at_most

    @cached_property
    def feasible(self) -> NDArray[np.bool_]:
        """Mask of the configurations that have a feasible run, shape (k,)."""
        return self._table[:, _GOOD] > 0.0

    @cached_property
    def value(self) -> Floats:
        """Value of each configuration where runs vary: its mean loss, raised by its risk, shape (k,)."""
        return self.price_of(self.loss)

    def price_of(self, loss: Floats, within: Floats | None = None) -> Floats:
        """`price` with the usual times, shape (k,).

        Args:
            loss: Of each configuration, shape (k,).
            within: Probability of keeping the bounds; by default `within_bounds`.
        """
        return self.price(loss, self.log_time, self._time_spread / np.sqrt(self.times), within)

    def value_if_within(self, place: int, shift: float, times: Floats) -> Floats:
        """Value of each configuration after one more run that moved a bounded figure, shape (k,).

        Args:
            place: The bound's, in the order of the constraints.
            shift: Standard deviations by which the run moved the mean of the figure.
            times: Runs of each configuration before it, shape (k,).
        """
        within = self.within(place, shift, times)
        for other in range(len(self._thresholds)):
            if other != place:
                within = within * self.within(other)
        return self.price_of(self.loss, within)

    @property
    def follows_time(self) -> bool:
        """True when the objective grows with the time, so that it varies as the time does."""
        return self._objective.grows_with_time

    @property
    def has_deadline(self) -> bool:
        """True when runs have a deadline."""
        return self._limit < math.inf

    @cached_property
    def order(self) -> NDArray[np.intp]:
        """Places of the configurations that have a feasible run, the best first."""
        return self._sorted(np.flatnonzero(self.feasible))

    def _sorted(self, places: NDArray[np.intp]) -> NDArray[np.intp]:
        rows = self._table[places]
        keys = [rows[:, _LEAST_NUMBER], rows[:, _LEAST_TIME], rows[:, _LEAST_LOSS]]
        if self.varies:
            keys.append(self.value[places])
        found: NDArray[np.intp] = places[np.lexsort(keys)]
        return found

    @cached_property
    def best(self) -> int | None:
        """The place of the best configuration, or None where no run was feasible."""
        if not self.feasible.any():
            return None
        worth = np.where(self.feasible, self.value if self.varies else self._table[:, _LEAST_LOSS], math.inf)
        return int(self._sorted(np.flatnonzero(self.feasible & (worth <= worth.min())))[0])

    @cached_property
    def best_run(self) -> MeasuredRun | None:
        """The run that stands for the best configuration: its usual one, or the least one where runs do not vary."""
        return None if self.best is None else self.usual_run(self.best)

    def usual_run(self, place: int) -> MeasuredRun:
        """The feasible run that stands for a configuration which has one."""
        good: list[MeasuredRun] = [one for one in self._ended[self._order[place]] if one.feasible and one.finished]
        if not self.varies:
            return min(good, key=lambda one: one.rank)
        away = self.away(np.array([one.loss for one in good]), np.full(len(good), place))
        return good[min(range(len(good)), key=lambda i: (away[i], good[i].number))]

    def away(self, loss: Floats, places: NDArray[np.intp]) -> Floats:
        """Distances of losses from the mean losses of configurations, so that the usual run is the nearest, shape (n,).

        Rounded, so that the last bit does not decide between two runs on both sides of their mean.
        """
        usual = self.loss[places]
        found: Floats = np.round(np.abs(loss - usual) / np.maximum(np.abs(usual), 1e-300), 9)
        return found

    @property
    def best_loss(self) -> float | None:
        """The loss of the best configuration: the mean of its runs, or the least where runs do not vary."""
        if self.best is None or self.best_run is None:
            return None
        return float(self.loss[self.best]) if self.varies else self.best_run.loss


def _below(limit: float, mean: Floats, sd: Floats) -> Floats:
    """Probability that a normal figure is at most a limit, shape (k,); 0 or 1 where its deviation is 0."""
    from scipy.special import ndtr

    with np.errstate(divide="ignore", invalid="ignore"):
        found: Floats = np.where(
            sd > 0, ndtr((limit - mean) / sd), mean <= limit + _SAME * abs(limit if math.isfinite(limit) else 0.0)
        )
    return found
