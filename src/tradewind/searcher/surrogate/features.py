"""Features of configurations for models: those of the space, and totals over the machines of an offer."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from tradewind.errors import ConfigurationError, NoOfferError
from tradewind.problem import (
    Candidates,
    Configuration,
    Float,
    Instance,
    Integer,
    Nodes,
    Offer,
    Ordinal,
    Parameter,
    Problem,
)
from tradewind.problem.offer import is_score
from tradewind.searcher.surrogate.gp import Array
from tradewind.searcher.surrogate.speed import MachineSpeed

_SAME = 0.9999
"""Two columns that correlate more than this are one."""


class FeatureMap:
    """Turns candidates and trials into rows of numbers, about in [0, 1].

    The logarithms of the price, of the vCPUs and of the memory of all nodes together are added to the space's own
    features: a kernel with one length scale a feature cannot see that twice the nodes of half the size are alike.
    Where the offers have scores (`Offer.scores`), how quick a vCPU is by them is one more (`MachineSpeed`).
    Columns that never vary, or that say the same as an earlier one, are left out.

    Args:
        problem: The tuning problem: its space and its offers.
        reference: Candidates that show the range of each column.

    Attributes:
        price_column: The column that is linear in ln price per hour, and the ln price of its unit; None where the
            price does not vary.
        size_column: The same of ln vCPUs of all nodes together.
        speed_column: The column that is linear in ln speed of a vCPU by the scores, and the ln speed of its unit; None
            where there are no scores.
        speed_tested: See `MachineSpeed.tested`; False without scores.
        log_widths: Half the range of each column's logarithm, where it is on a log scale; 0 for others.
    """

    def __init__(self, problem: Problem, reference: Candidates) -> None:
        self._problem = problem
        self._reference = reference
        self._speed = MachineSpeed.of_offers(_offers(reference)) if any(map(is_score, reference.fact_names)) else None
        totals = self._totals_of(reference)
        self._low, spans = totals.min(axis=0), np.ptp(totals, axis=0)
        self._span = np.where(spans > 1e-9, spans, 1.0)
        table = np.hstack([reference.features, (totals - self._low) / self._span])
        self._kept = _different(table, but=_scores(problem))
        self._table: Array = table[:, self._kept]
        self.log_widths: Array = 0.5 * np.concatenate([_log_ranges(problem.space.parameters), spans])[self._kept]
        self.price_column = _line(self._table, totals[:, 0])
        self.size_column = _line(self._table, totals[:, 1])
        self.speed_column = None if self._speed is None else _line(self._table, totals[:, 3])
        self.speed_tested = self._speed is not None and self._speed.tested
        self._rows: dict[tuple[str, str], Array | None] = {}
        self._sold: dict[tuple[str, str], Offer | None] = {}

    def _totals(self, offers: list[Offer]) -> Array:
        columns = [(o.hourly, o.vcpu * o.nodes, o.memory_gib * o.nodes) for o in offers]
        table: Array = np.log(np.maximum(np.array(columns, dtype=float).reshape(-1, 3), 1e-9))
        # Left out where there is none, so that everything stays as it is without scores.
        return table if self._speed is None else np.column_stack([table, self._speed.of(offers)])

    def _totals_of(self, candidates: Candidates) -> Array:
        table: Array = np.log(np.maximum(candidates.sizes, 1e-9))
        return table if self._speed is None else np.column_stack([table, self._speed.of(_offers(candidates))])

    def of_candidates(self, candidates: Candidates) -> Array:
        """Rows for candidates, shape (n, features)."""
        if candidates is self._reference:
            return self._table
        totals = self._totals_of(candidates)
        table: Array = np.hstack([candidates.features, (totals - self._low) / self._span])[:, self._kept]
        return table

    def of(self, configuration: Configuration, offer: Offer) -> Array | None:
        """The row of a configuration, shape (features,); None where it is not in the space."""
        place = (configuration.key, offer.key)
        if place not in self._rows:
            listed = self._reference.index(configuration) if self._problem.space.enumerable else None
            if listed is not None and self._reference.offer(listed).key == offer.key:
                self._rows[place] = self._table[listed]
                return self._rows[place]
            try:
                own = self._problem.space.encode([self._problem.space.check(configuration)])
            except ConfigurationError:
                self._rows[place] = None
            else:
                total = (self._totals([self.today(configuration, offer)]) - self._low) / self._span
                self._rows[place] = np.hstack([own, total])[0, self._kept]
        return self._rows[place]

    def today(self, configuration: Configuration, offer: Offer) -> Offer:
        """The machines of a trial at the price of today: what they cost when it ran says nothing about them.

        Args:
            configuration: Values by parameter of the trial.
            offer: Machines that it ran on, at the price of that day; returned where they are sold no more.
        """
        place = (configuration.key, offer.key)
        if place not in self._sold:
            try:
                self._sold[place] = self._problem.resolver.resolve(self._problem.space.check(configuration))
            except (ConfigurationError, NoOfferError):
                self._sold[place] = None
        found = self._sold[place]
        return found if found is not None and found.key == offer.key else offer


def _offers(candidates: Candidates) -> list[Offer]:
    return [candidates.offer(i) for i in range(len(candidates))]


def _log_ranges(parameters: Iterable[Parameter]) -> Array:
    """The range of the logarithm of each feature of a space that is on a log scale, 0 for others."""
    found: list[float] = []
    for parameter in parameters:
        if isinstance(parameter, Instance):
            found += parameter.log_ranges()
        else:
            found += [_log_range(_logarithmic(parameter))] * len(parameter.feature_names())
        if parameter.when is not None:
            found.append(0.0)  # the column that says whether it is there
    return np.array(found)


def _logarithmic(parameter: Parameter) -> Sequence[object]:
    """The numbers that a parameter's feature has the logarithms of, or what is no such numbers."""
    match parameter:
        case Ordinal() | Nodes():
            return parameter.values
        case Float() | Integer() if parameter.log:
            return (parameter.low, parameter.greatest)
    return ()


def _log_range(values: Sequence[object]) -> float:
    numbers = [float(value) for value in values if isinstance(value, int | float) and value > 0]
    return math.log(max(numbers)) - math.log(min(numbers)) if numbers and len(numbers) == len(values) else 0.0


def _line(table: Array, values: Array) -> tuple[int, float] | None:
    """The column that some values are linear in, and their slope along it."""
    away = values - values.mean()
    size = float(np.sqrt(away @ away))
    if size < 1e-9:
        return None
    for i, column in enumerate(table.T):
        other = column - column.mean()
        square = float(other @ other)
        if abs(float(away @ other)) >= _SAME * size * np.sqrt(square):
            return i, float(away @ other) / square
    return None


def _scores(problem: Problem) -> frozenset[int]:
    """Columns of the space that are scores of machines: what they say is in the speed."""
    chosen = {p.name for p in problem.space.parameters if isinstance(p, Instance)}
    parts = [name.rpartition(".") for name in problem.space.feature_names]
    return frozenset(i for i, (parameter, _, fact) in enumerate(parts) if parameter in chosen and is_score(fact))


def _different(table: Array, *, but: frozenset[int]) -> list[int]:
    """The columns that vary and do not repeat an earlier one, but for some."""
    away = table - table.mean(axis=0)
    sizes = np.sqrt(np.einsum("ij,ij->j", away, away))
    varying = np.array([i for i in np.flatnonzero(sizes >= 1e-9) if i not in but], dtype=np.intp)
    units = away[:, varying]
    units /= sizes[varying]
    # One product of all with all: a column for each family of machines makes thousands of pairs.
    alike = np.abs(units.T @ units) >= _SAME
    kept: list[int] = []
    for place in range(len(varying)):
        if not alike[place, kept].any():
            kept.append(place)
    return [int(varying[place]) for place in kept]
