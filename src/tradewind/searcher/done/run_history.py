"""The runs that a model is fitted to: those of earlier studies of the same job, and those of this one.

`JobParameterMap` turns job parameters into numbers, `ProfileMap` the low-level metrics that runs with them had, and
`select_runs` chooses which runs count.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tradewind.problem import Observation, PastStudy, Problem, Trial, TrialState
from tradewind.searcher.base import bounded_figure
from tradewind.searcher.done.expansion import Array
from tradewind.searcher.surrogate.features import FeatureMap

FRACTION = "(fraction of the input)"
"""The name under which the share of the input that a run took is treated as one more job parameter."""

LOG_SPREAD = 0.7
"""Standard deviation of the logarithm of a figure before anything is known of it: runs differ by a factor of two."""

_WIDEST = 2.0
"""ln width to which the present value may stretch a scale: time in proportion to the value is a likely slope on it."""

_SURE = 0.5
"""ln range of a number over which runs say half of how the time goes on beyond them."""

_LEAST_SECONDS = 1e-6


@dataclass(frozen=True)
class PastRun:
    """A run that ended, of this study or an earlier one: its job parameters, its configuration and its observation.

    Attributes:
        parameters: The job's parameters by name, `FRACTION` among them.
        row: The configuration's features, shape (k,).
        trial: The trial that it is.
        seen: Observation of the trial.
        own: True for a run of the present study.
    """

    parameters: Mapping[str, float | str]
    row: Array
    trial: Trial
    seen: Observation
    own: bool

    @property
    def group(self) -> tuple[tuple[str, float | str], ...]:
        """Key that is equal for runs with the same job parameters."""
        return parameter_group(self.parameters)

    def given(self, wanted: Mapping[str, float | str]) -> bool:
        """True when the run had just these job parameters."""
        return all(self.parameters[name] == value for name, value in wanted.items())

    @property
    def log_seconds(self) -> float:
        """Logarithm of the runtime; NaN where there is none."""
        seconds = self.seen.runtime
        if not math.isfinite(seconds) or (seconds <= 0 and self.seen.censored):
            return math.nan
        return math.log(max(seconds, _LEAST_SECONDS))

    @property
    def failed(self) -> bool:
        """True when the configuration did not get through."""
        return self.trial.state == TrialState.FAILED

    def metric(self, name: str) -> float:
        """A metric of a run that came to its end; NaN where it has none."""
        if self.failed or self.seen.censored:
            return math.nan
        value = self.seen.metrics.get(name, math.nan)
        return bounded_figure(value) if math.isfinite(value) else math.nan


def parameter_group(parameters: Mapping[str, float | str]) -> tuple[tuple[str, float | str], ...]:
    """Key that is equal for runs with the same job parameters."""
    return tuple(sorted(parameters.items()))


def wanted_parameters(problem: Problem) -> dict[str, float | str]:
    """The present job's parameters, with the share of its input."""
    own = problem.job.parameters
    return {**own.values, FRACTION: own.fidelity}


def own_runs(problem: Problem, trials: Sequence[Trial], features: FeatureMap) -> list[PastRun]:
    """The present study's trials that inform and are of this space, in the order of their numbers."""
    wanted = wanted_parameters(problem)
    found = (_read(trial, wanted, features, own=True) for trial in trials)
    return [run for run in found if run is not None]


def earlier_runs(problem: Problem, features: FeatureMap) -> tuple[list[PastRun], int]:
    """The runs of earlier studies of the job of this name, the oldest first.

    Args:
        problem: The tuning problem; its ``past`` is read.
        features: Turns configurations into rows of numbers.

    Returns:
        The runs, and how many were left out because their configuration is not of this space, or because they do not
        say a job parameter that the present job has.
    """
    wanted = wanted_parameters(problem)
    found: list[PastRun] = []
    left_out = 0
    for study in problem.past:
        if study.name != problem.job.name:
            continue
        for trial in study.trials:
            run = _read(trial, _parameters(study), features, own=False)
            if run is None or not _comparable(run.parameters, wanted):
                left_out += 1
            else:
                found.append(run)
    return found, left_out


def _parameters(study: PastStudy) -> dict[str, float | str]:
    return {**study.values, FRACTION: study.parameters.fidelity}


def _read(trial: Trial, parameters: Mapping[str, float | str], features: FeatureMap, *, own: bool) -> PastRun | None:
    row = features.of(trial.configuration, trial.offer)
    if row is None or trial.observation is None or not trial.state.informs:
        return None
    share = float(parameters[FRACTION]) * trial.proposal.fidelity
    return PastRun({**parameters, FRACTION: share}, 2.0 * row - 1.0, trial, trial.observation, own)


def _comparable(given: Mapping[str, float | str], wanted: Mapping[str, float | str]) -> bool:
    return all(name in given and isinstance(given[name], str) == isinstance(wanted[name], str) for name in wanted)


def shared_parameters(wanted: Mapping[str, float | str], runs: Sequence[PastRun]) -> dict[str, float | str]:
    """The job parameters that are the same in all of some runs, at least one, with their values."""
    return {name: runs[0].parameters[name] for name in wanted if len({run.parameters[name] for run in runs}) == 1}


def constant_parameter_spread(wanted: Mapping[str, float | str], shared: Mapping[str, float | str]) -> float:
    """Standard deviation that ln time has because job parameters are wanted that never varied.

    The standard deviation of a time that grows or falls with any power of a number, as likely as not with the first or
    none, is taken to be that of the number itself: |Δ ln value|. The share of the input is such a number. For words,
    and numbers of which one is not above zero, it is that of a figure of which nothing is known.

    Args:
        wanted: The present job's parameters.
        shared: Values that all runs had, by name; those that are as wanted add nothing.
    """
    total = 0.0
    for name, value in shared.items():
        other = wanted[name]
        if isinstance(value, str) or isinstance(other, str) or min(value, other) <= 0:
            total += LOG_SPREAD**2 if value != other else 0.0
        else:
            total += math.log(other / value) ** 2
    return math.sqrt(total)


def extrapolation_spreads(wanted: Mapping[str, float | str], runs: Sequence[PastRun]) -> dict[str, float]:
    """Standard deviation that ln time has because job parameters are wanted beyond all runs, by name.

    What the runs show of a number goes on beyond them as a straight line, if at all. The standard deviation of where
    the time is then is a share of |Δ ln value| from the nearest run: nearly all of it where the runs hardly differ, as
    for a number that never varied (`constant_parameter_spread`), and the less the wider they are apart. It comes on top
    of what is not known of the line. A word that no run had is as good as unknown.

    Args:
        wanted: The present job's parameters.
        runs: Runs that show how the time depends on them.
    """
    found: dict[str, float] = {}
    for name, value in wanted.items():
        values = {run.parameters[name] for run in runs}
        if len(values) < 2 or value in values:
            continue
        if isinstance(value, str):
            found[name] = LOG_SPREAD
            continue
        low, high = min(map(float, values)), max(map(float, values))
        if low < value < high:
            continue
        if min(low, value) > 0:
            away = math.log(value / high) if value > high else math.log(low / value)
            found[name] = away * _SURE / (_SURE + math.log(high / low))
        else:
            found[name] = LOG_SPREAD * math.log1p((value - high if value > high else low - value) / (high - low))
    return found


class JobParameterMap:
    """Turns job parameters into numbers of [-1, 1].

    Numbers that are all above zero are taken on a log scale, others on a linear one, from the least to the greatest of
    the runs and the present job; words become one column each. A parameter that never varies has no column.

    A present value far from all runs does not move the scale with it: it lies beyond [-1, 1] then. How steep a line may
    be is said for the scale, so that on one that is stretched to the present value nothing but a flat one would be
    likely, and a prediction would be the surer the further away it is.

    Args:
        wanted: The present job's parameters.
        runs: Runs that the model may use.
    """

    def __init__(self, wanted: Mapping[str, float | str], runs: Sequence[PastRun]) -> None:
        self._columns: list[tuple[str, float, float, bool] | tuple[str, str]] = []
        self.groups: dict[str, list[int]] = {}
        for name in wanted:
            values = [run.parameters[name] for run in runs]
            for column in _columns(name, wanted[name], values):
                self.groups.setdefault(name, []).append(len(self._columns))
                self._columns.append(column)

    @property
    def width(self) -> int:
        """The number of columns."""
        return len(self._columns)

    @property
    def log_widths(self) -> Array:
        """Half the range of each column's logarithm; 0 for words and for numbers on a linear scale, shape (width,)."""
        ranges = [column[2] - column[1] if len(column) == 4 and column[3] else 0.0 for column in self._columns]
        return 0.5 * np.array(ranges)

    def rows(self, parameters: Sequence[Mapping[str, float | str]]) -> Array:
        """Parameters as numbers, shape (n, width)."""
        table = np.empty((len(parameters), self.width))
        for i, column in enumerate(self._columns):
            if len(column) == 2:
                name, word = column
                table[:, i] = [1.0 if given[name] == word else -1.0 for given in parameters]
            else:
                name, low, high, log = column
                values = np.array([float(given[name]) for given in parameters])
                values = np.log(values) if log else values
                table[:, i] = 2.0 * (values - low) / (high - low) - 1.0
        return table


def _columns(
    name: str, wanted: float | str, ran: Sequence[float | str]
) -> list[tuple[str, float, float, bool]] | list[tuple[str, str]]:
    if isinstance(wanted, str):
        words = sorted({wanted, *map(str, ran)})
        if len(words) == 1:
            return []
        return [(name, word) for word in (words if len(words) > 2 else words[1:])]
    at = float(wanted)
    numbers = [float(value) for value in ran]
    log = min([at, *numbers]) > 0
    if log:
        at, numbers = math.log(at), [math.log(number) for number in numbers]
    first, last = (min(numbers), max(numbers)) if numbers else (at, at)
    low, high = min(first, at), max(last, at)
    # Where the runs show no range there is none to go beyond, and the parameter stands at what they had.
    widest = max(last - first, _WIDEST) if log else 2.0 * (last - first)
    if last > first and high - low > widest:
        low, high = (first, first + widest) if at > last else (last - widest, last)
    return [(name, low, high, log)] if high - low > 1e-12 * max(1.0, abs(high)) else []


def select_runs(distances: Array, configurations: Sequence[str], most: int, reach: float, *, merge: bool) -> list[int]:
    """Choose the runs that the model is fitted to (Algorithm 1 of the thesis, its data selection).

    All runs with the present job parameters come first, then the others by growing distance, up to a number and a
    distance. The published algorithm takes of these others only those whose configuration is not among the chosen
    ones, because its model knows nothing of job parameters and two times for one configuration would contradict each
    other.

    Args:
        distances: Distances of each run's job parameters from the present ones, shape (n,); 0 for the same.
        configurations: Key of each run's configuration.
        most: S_max; the runs with the present parameters are never cut, as in the published algorithm.
        reach: P_max, the largest distance.
        merge: True to leave out runs whose configuration was chosen already.

    Returns:
        Places of the chosen runs, in order.
    """
    same = [int(i) for i in np.flatnonzero(distances == 0.0)]
    chosen = list(same)
    known = {configurations[i] for i in same}
    for place in np.argsort(np.round(distances, 9), kind="stable"):
        i = int(place)
        if len(chosen) >= most:
            break
        if distances[i] == 0.0 or distances[i] >= reach or (merge and configurations[i] in known):
            continue
        chosen.append(i)
        known.add(configurations[i])
    return chosen


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

    def __init__(self, runs: Sequence[PastRun]) -> None:
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

    def _value(self, run: PastRun, name: str) -> float | None:
        value = run.seen.profile.get(name, math.nan)
        if not math.isfinite(value):
            return None
        return math.log(value) if self._log[name] else value

    def of_runs(self, runs: Sequence[PastRun]) -> Array:
        """Profiles that were known of each run's job parameters before it ran, shape (n, width)."""
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
        """Profile that is known of some job parameters, shape (width,)."""
        group = parameter_group(parameters)
        return np.array([self._scaled(name, *self._sums.get((group, name), (0.0, 0.0))) for name in self._range])

    def _scaled(self, name: str, total: float, count: float) -> float:
        if count < 0.5:
            return 0.0
        low, high = self._range[name]
        return 2.0 * (total / count - low) / (high - low) - 1.0
