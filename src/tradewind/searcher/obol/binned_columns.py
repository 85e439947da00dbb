"""Configurations as rows of levels, for trees."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tradewind.errors import ConfigurationError
from tradewind.problem import Candidates, Categorical, Configuration, Instance, Offer, Parameter, Problem, Value
from tradewind.searcher.obol.arrays import Bytes, Floats, Words
from tradewind.searcher.surrogate.features import FeatureMap

_MOST = 255
"""Levels of a column; a column of more different numbers is put into this many bins of equal population."""

_INACTIVE = -1.0


class LevelFeatureMap:
    """Maps a configuration to one number a parameter, for the trees of OBOL.

    Numbers are taken on the scale of the space, words by their place in the list, instance types by their rank in
    price per hour (then vCPUs, then memory). A parameter that is inactive is below all its values.

    Args:
        problem: The tuning problem: its space and its prices.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._ranks = {p.name: _ranks(p) for p in problem.space.parameters}
        self._known: dict[str, Floats | None] = {}

    def of_candidates(self, candidates: Candidates) -> Floats:
        """Rows for candidates, shape (n, parameters)."""
        return self._rows([candidates.configuration(i) for i in range(len(candidates))])

    def of(self, configuration: Configuration, offer: Offer) -> Floats | None:
        """The row of a configuration; None where it is not in the space."""
        if configuration.key not in self._known:
            try:
                self._known[configuration.key] = self._rows([self._problem.space.check(configuration)])[0]
            except ConfigurationError:
                self._known[configuration.key] = None
        return self._known[configuration.key]

    def _rows(self, configurations: Sequence[Configuration]) -> Floats:
        table = np.full((len(configurations), len(self._problem.space.parameters)), _INACTIVE)
        for place, parameter in enumerate(self._problem.space.parameters):
            active = [i for i, c in enumerate(configurations) if parameter.name in c]
            values = [configurations[i][parameter.name] for i in active]
            ranks = self._ranks[parameter.name]
            if not values:
                continue
            if ranks is not None:
                table[active, place] = [ranks[value] for value in values]
            else:
                table[active, place] = parameter.features(np.array(values))[:, 0]
        return table


def _ranks(parameter: Parameter) -> dict[Value, float] | None:
    """The number of each value that has no number of its own; None for numbers."""
    levels = parameter.levels
    if isinstance(parameter, Instance):
        offers = parameter.offers
        order = sorted(
            parameter.values,
            key=lambda v: (offers[str(v)].price_per_hour, offers[str(v)].vcpu, offers[str(v)].memory_gib),
        )
        return {value: float(i) for i, value in enumerate(order)}
    if levels is None or (levels.dtype != object and not isinstance(parameter, Categorical)):
        return None
    return {parameter.level(i): float(i) for i in range(len(levels))}


def make_feature_map(problem: Problem, reference: Candidates, kind: str) -> LevelFeatureMap | FeatureMap:
    """The numbers that the setting ``features`` asks for."""
    return FeatureMap(problem, reference) if kind == "machines" else LevelFeatureMap(problem)


class BinnedColumns:
    """Rows of numbers as rows of levels, with the set of rows at or below each level.

    Attributes:
        codes: The levels, shape (n, d).
        values: The number of each level, shape (d, levels); unused places repeat the last.
        masks: The rows at or below each level as bits, shape (d, levels, words).
        everyone: The set of all rows, shape (words,).

    Args:
        numbers: Features of the rows, shape (n, d).
    """

    def __init__(self, numbers: Floats) -> None:
        count, width = numbers.shape
        found = [_levels(column) for column in numbers.T]
        most = max((len(values) for _, values in found), default=1)
        self.codes: Bytes = np.zeros((count, max(1, width)), dtype=np.uint8)
        self.values: Floats = np.zeros((max(1, width), most))
        self.masks: Words = np.zeros((max(1, width), most, (count + 63) // 64), dtype=np.uint64)
        self.everyone: Words = pack_bits(np.ones(count, dtype=np.bool_))
        for f, (codes, values) in enumerate(found):
            self.codes[:, f] = codes
            self.values[f] = np.pad(values, (0, most - len(values)), mode="edge")
            for level in range(len(values)):
                self.masks[f, level] = pack_bits(codes <= level)


def _levels(column: Floats) -> tuple[NDArray[np.int64], Floats]:
    """The level of each number, and the number of each level."""
    # Rounded, so that the same number computed in two ways is one level.
    values, codes = np.unique(np.round(column, 9), return_inverse=True)
    codes = codes.astype(np.int64)
    if len(values) > _MOST:
        bins = np.arange(len(values)) * _MOST // len(values)
        sizes = np.bincount(bins)
        codes, values = bins[codes], np.bincount(bins, weights=values) / sizes
    return codes, values


def pack_bits(chosen: NDArray[np.bool_]) -> Words:
    """Sets of rows as 64-bit words, of shape (..., words).

    Args:
        chosen: Masks of the rows that each set holds, shape (..., rows).
    """
    words = (chosen.shape[-1] + 63) // 64
    packed = np.zeros((*chosen.shape[:-1], 8 * words), dtype=np.uint8)
    whole = np.packbits(chosen, axis=-1, bitorder="little")
    packed[..., : whole.shape[-1]] = whole
    return packed.view(np.uint64)
