"""Estimates the effect of each parameter on the objective, with its uncertainty.

Effects are factors where the objective is above zero, as those of prices, times and rates are, and differences
otherwise. Repeated runs of a configuration count as their mean. Two levels of a parameter are compared by the pairs of
configurations that differ in this parameter alone: nothing else can have made the difference. Where there are fewer
than three pairs, an additive model over the levels of all parameters (least squares) stands in, if the runs determine
the difference at all. Ranges hold 95 %, by Student's distribution, for all levels of a parameter together (Bonferroni):
the largest of many differences is otherwise easily one of chance.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tradewind.problem import RUNTIME
from tradewind.reporting.study.data import Floats, StudyData
from tradewind.reporting.study.series import grouping, thin

METHOD = (
    "Each line compares two values of a parameter, by the pairs of configurations that differ in nothing else, or by "
    "an additive model over all parameters where there are fewer than three pairs. In brackets: the range that holds "
    "the effect with 95 %."
)

_SAMPLE = 1500
_LEVEL = 0.95
_PAIRS = 3
"""Pairs from which how much they differ says how sure their mean is."""
_FREEDOM = 3
"""Configurations beyond what the additive model needs, for the same."""
_ROUNDING = 1e-9
"""Share of the values, or difference of logarithms, below which two of them are the same."""
_HARDLY = 0.1
"""An effect that is surely below this share of the objective, or of its deviation, hardly matters."""

Verdict = Literal["tells", "hardly", "unknown"]


@dataclass(frozen=True, slots=True)
class ParameterEffect:
    """Effect of one parameter on the objective, between two of its values.

    Attributes:
        parameter: Its name.
        verdict: ``tells`` where the range leaves no doubt that it matters, ``hardly`` where it surely changes next to
            nothing, ``unknown`` where the runs do not tell: there is no figure then.
        level: The better value, or range of values.
        reference: The value that it is compared with.
        size: The factor by which the objective changes, or the difference.
        low: Lower end of its range.
        high: Upper end of its range.
        factor: True where these are factors.
        pairs: Pairs of configurations that it comes from; 0 where it comes from the additive model.
        runs: Runs of the study that were measured.
    """

    parameter: str
    verdict: Verdict = "unknown"
    level: str = ""
    reference: str = ""
    size: float = math.nan
    low: float = math.nan
    high: float = math.nan
    factor: bool = True
    pairs: int = 0
    runs: int = 0

    @property
    def weight(self) -> float:
        """The size on the scale on which effects add up; 0 where the runs do not tell."""
        if self.verdict == "unknown":
            return 0.0
        return abs(math.log(self.size)) if self.factor else abs(self.size)

    def words(self, metric: str) -> str:
        """``bf16 instead of fp32: 3.2 times the throughput (3.1 to 3.4, from 4 pairs)``."""
        if self.verdict == "unknown":
            return "the runs do not tell"
        name = "run time" if metric == RUNTIME else metric
        source = f"from {self.pairs} pairs" if self.pairs else f"from {self.runs} runs by an additive model"
        if self.size == self.low == self.high == (1.0 if self.factor else 0.0):
            return f"{self.level} instead of {self.reference}: the same {name} ({source})"
        if self.factor:
            size, low, high = (_digits(value) for value in (self.size, self.low, self.high))
            return f"{self.level} instead of {self.reference}: {size} times the {name} ({low} to {high}, {source})"
        size, low, high = (f"{value:+.3g}" for value in (self.size, self.low, self.high))
        return f"{self.level} instead of {self.reference}: {size} in {name} ({low} to {high}, {source})"


def _digits(factor: float) -> str:
    """A factor as people write it: ``3.2``, ``0.45``, ``12``; a third digit near 1, where it would all be ``1.0``."""
    return f"{factor:.3g}" if 0.9 < factor < 1.1 else f"{factor:.2g}" if factor < 100 else f"{factor:,.0f}"


@dataclass(frozen=True, slots=True)
class ParameterEffects:
    """Effects of all parameters that were varied.

    Attributes:
        found: One for each of them: the largest first, then those of which the runs do not tell.
        runs: Number of runs that they come from.
        constant: The parameters that had one value in all runs that had the parameter: nothing is known of these.
    """

    found: tuple[ParameterEffect, ...]
    runs: int
    constant: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """Parameters, the one with the largest effect first."""
        return [one.parameter for one in self.found]

    def of(self, verdict: Verdict) -> list[ParameterEffect]:
        """Effects with a verdict."""
        return [one for one in self.found if one.verdict == verdict]


@dataclass(frozen=True, slots=True)
class _Column:
    """A varied parameter: labels of its levels, and the level of each configuration; -1 where it had none."""

    name: str
    labels: Sequence[str]
    codes: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Contrast:
    """The difference that one level makes against another, with the half of its range."""

    level: int
    reference: int
    mean: float
    half: float
    pairs: int


def parameter_effects(data: StudyData) -> ParameterEffects | None:
    """Estimate the effect of each parameter; None where no parameter was varied."""
    rows = thin(np.flatnonzero(data.measured), _SAMPLE)
    if len(rows) < 2 or not data.parameters:
        return None
    factor = bool(data.objective[rows].min() > 0)
    # Differences of values like 1e300 would be infinite, so others are measured by their size.
    unit = 1.0 if factor else max(1.0, float(np.abs(data.objective[rows]).max()))
    texts = np.array([data.configurations[row] for row in rows], dtype=str)
    _, first, cell = np.unique(texts, return_index=True, return_inverse=True)
    runs = np.log(data.objective[rows]) if factor else data.objective[rows] / unit
    many = np.bincount(cell)
    values: Floats = np.bincount(cell, weights=runs) / many
    cells = rows[first]
    columns, constant = _columns(data, cells)
    if not columns:
        return None
    model = _AdditiveModel(columns, values, many, runs - values[cell])
    rest = [data.decoded[row] for row in cells.tolist()]
    spread = 1.0 if factor else float(np.std(values))
    # Sums and means of values are only as exact as the values: what is smaller is no difference.
    noise = _ROUNDING * (1.0 if factor else float(np.abs(values).max()))
    scale = _EffectScale(data.goal.objective.goal == "maximise", factor, unit, spread, noise, len(rows))
    found = [_effect(column, list(_contrasts(column, values, rest, model)), scale) for column in columns]
    # Rounded, so that equal ones stay in order whatever the last bit says.
    found.sort(key=lambda one: (one.verdict == "unknown", -round(one.weight, 9)))
    return ParameterEffects(tuple(found), len(rows), tuple(constant))


def _columns(data: StudyData, cells: NDArray[np.int64]) -> tuple[list[_Column], list[str]]:
    """The parameters that were varied, and the names of those that were not."""
    columns, constant = [], []
    for name, column in data.parameters.items():
        labels, codes = grouping(column)
        # Whether a parameter is there at all is the doing of the one that its condition names.
        known = np.where(column.active[cells], codes[cells], -1)
        if len(np.unique(known[known >= 0])) < 2:
            constant.append(name)
        else:
            columns.append(_Column(name, labels, known))
    return columns, constant


def _contrasts(
    column: _Column, values: Floats, configurations: Sequence[dict[str, object]], model: _AdditiveModel
) -> Iterator[_Contrast]:
    """Differences between each two levels of a parameter, where the runs tell."""
    among: dict[tuple[object, ...], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for code, value, configuration in zip(column.codes.tolist(), values.tolist(), configurations, strict=True):
        others = tuple(sorted((k, repr(v)) for k, v in configuration.items() if k != column.name))
        among[others][code].append(value)
    levels = [int(code) for code in np.unique(column.codes) if code >= 0]
    tail = 1.0 - (1.0 - _LEVEL) / (len(levels) * (len(levels) - 1))  # of both sides, for all contrasts together
    for a, b in combinations(levels, 2):
        both = [one for one in among.values() if a in one and b in one]
        apart = np.array([np.mean(one[b]) - np.mean(one[a]) for one in both])
        if len(apart) >= _PAIRS:
            deviation = float(apart.std(ddof=1)) / math.sqrt(len(apart))
            half = _student(len(apart) - 1, tail) * deviation
            yield _Contrast(b, a, float(apart.mean()), half, len(apart))
        elif (told := model.contrast(column.name, a, b)) is not None:
            mean, deviation, freedom = told
            yield _Contrast(b, a, mean, _student(freedom, tail) * deviation, 0)


def _student(freedom: int, chance: float) -> float:
    """The value that a Student distribution stays below with a chance."""
    from scipy.special import stdtrit  # a third of a second, which most short searches do not need

    return float(stdtrit(freedom, chance))


class _AdditiveModel:
    """Least squares over the levels of all parameters.

    How far it is off says how sure it is; where there are hardly more configurations than levels, how much the runs of
    one configuration differ.

    Args:
        columns: The parameters.
        values: Mean of each configuration, shape (n,).
        many: Runs of each, shape (n,).
        left: What is left over of each run by the mean of its configuration.
    """

    def __init__(self, columns: Sequence[_Column], values: Floats, many: NDArray[np.intp], left: Floats) -> None:
        self._places: dict[tuple[str, int], int] = {}
        blocks = [np.ones((len(values), 1))]
        for column in columns:
            for code in np.unique(column.codes).tolist():
                self._places[column.name, code] = 1 + len(self._places)
                blocks.append((column.codes == code).astype(float)[:, None])
        matrix = np.hstack(blocks)
        self._inverse, self._values, self._many = np.linalg.pinv(matrix), values, many
        self._spanned = self._inverse @ matrix
        off = values - matrix @ (self._inverse @ values)
        self._freedom = len(values) - round(float(np.trace(self._spanned)))
        self._variance = float(off @ off) / max(1, self._freedom)
        self._repeats = len(left) - len(values)
        self._noise = float(left @ left) / max(1, self._repeats)

    def contrast(self, name: str, a: int, b: int) -> tuple[float, float, int] | None:
        """Difference of level b from level a, its standard deviation and the degrees of freedom of that.

        None where the runs do not determine the difference, or do not say how sure it is.
        """
        places = self._places[name, b], self._places[name, a]
        wanted = np.zeros(len(self._inverse))
        wanted[list(places)] = 1.0, -1.0
        if np.abs(wanted - wanted @ self._spanned).max() > 1e-6:
            return None
        weights = wanted @ self._inverse
        mean = float(weights @ self._values)
        if self._freedom >= _FREEDOM:
            return mean, math.sqrt(self._variance * float(weights @ weights)), self._freedom
        if self._repeats >= _FREEDOM:
            return mean, math.sqrt(self._noise * float((weights**2 / self._many).sum())), self._repeats
        return None


@dataclass(frozen=True, slots=True)
class _EffectScale:
    """The scale on which effects are reckoned: logarithms for factors, otherwise values by a unit."""

    maximise: bool
    factor: bool
    unit: float
    spread: float
    noise: float
    runs: int


def _effect(column: _Column, contrasts: Sequence[_Contrast], scale: _EffectScale) -> ParameterEffect:
    """The largest difference that is beyond doubt; that nothing differs much, where this is so of all."""
    sure = [one for one in contrasts if abs(one.mean) - one.half > scale.noise]
    small = math.log1p(_HARDLY) if scale.factor else max(_HARDLY * scale.spread, 2.0 * scale.noise)
    verdict: Verdict = "tells"
    levels = len(np.unique(column.codes[column.codes >= 0]))
    if len(contrasts) == levels * (levels - 1) // 2 and all(abs(one.mean) + one.half <= small for one in contrasts):
        verdict, sure = "hardly", list(contrasts)
    if not sure:
        return ParameterEffect(column.name)
    one = max(sure, key=lambda contrast: (round(abs(contrast.mean), 9), contrast.pairs))
    # The better value is named first.
    flipped = (one.mean > 0) != scale.maximise
    level, reference = (one.reference, one.level) if flipped else (one.level, one.reference)
    mean = -one.mean if flipped else one.mean
    ends = (0.0 if abs(end) <= scale.noise else end for end in (mean, mean - one.half, mean + one.half))
    most = sys.float_info.max
    size, low, high = (
        math.exp(min(end, 700.0)) if scale.factor else min(max(end * scale.unit, -most), most) for end in ends
    )
    names = column.labels[level], column.labels[reference]
    return ParameterEffect(column.name, verdict, *names, size, low, high, scale.factor, one.pairs, scale.runs)
