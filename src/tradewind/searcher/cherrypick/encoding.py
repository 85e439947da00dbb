"""CherryPick's features: what a cluster is made of, normalised and discretised."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tradewind.errors import ConfigurationError
from tradewind.problem import Candidates, Configuration, Offer, Problem
from tradewind.searcher.surrogate.gp import Array

_WORDS = {"slowest": 0.0, "slow": 0.0, "low": 0.0, "medium": 0.5, "moderate": 0.5, "fast": 1.0, "high": 1.0}
"""Classes that have an order; other words become columns of 0 and 1."""

_CALLED = {
    "speed": ("cpu_speed", "vm_speed", "clock_ghz", "ghz", "clock", "ecus", "ecu", "speed"),
    "disks": ("disk_count", "disks"),
    "disk": ("disk_speed", "disk_kind", "disk", "ebs"),
}
"""Names under which offers state CPU speed, disk count and disk speed; the first one that an offer has counts."""


class ClusterEncoding:
    """Turns candidates and trials into rows of numbers in [0, 1].

    The columns are CherryPick's (section 4 of the paper): machines, cores of a machine, CPU speed class, memory per
    core, disk count, disk speed; then the settings of the application. CPU speed and disks are facts of the offers
    (`_CALLED`) and are left out where the offers have none. Each number is replaced by its place among the values
    that occur, so that neighbours are equally far apart; between two of them it is interpolated.

    Where different machines look alike by these columns, the space's own features of the machines are added.

    Args:
        problem: The tuning problem: its space has the settings of the application.
        reference: Candidates that show which values occur.
    """

    def __init__(self, problem: Problem, reference: Candidates) -> None:
        self._problem = problem
        offers = [reference.offer(i) for i in range(len(reference))]
        different = list({offer.key: offer for offer in offers}.values())
        self._scales = _scales(different)
        rows = np.round(self._of_offers(different), 9)
        self._own = _own_columns(problem, machines=len(np.unique(rows, axis=0)) < len(different))
        table = self._table(reference.features, offers)
        self._kept = [i for i in range(table.shape[1]) if np.ptp(table[:, i]) > 1e-9]
        self._rows: dict[tuple[str, str], Array | None] = {}

    @property
    def width(self) -> int:
        """Number of columns; at least 1."""
        return max(1, len(self._kept))

    def _of_offers(self, offers: Sequence[Offer]) -> Array:
        columns = [scale for name, ladder in self._scales for scale in _column(name, ladder, offers)]
        return np.array(columns).T.reshape(len(offers), -1)

    def _table(self, features: Array, offers: Sequence[Offer]) -> Array:
        places: dict[str, int] = {}
        different: list[Offer] = []
        for offer in offers:
            if offer.key not in places:
                places[offer.key] = len(different)
                different.append(offer)
        rows = self._of_offers(different)[[places[offer.key] for offer in offers]]
        return np.hstack([rows, features[:, self._own]])

    def of_candidates(self, candidates: Candidates) -> Array:
        """Rows for candidates, shape (n, width)."""
        table = self._table(candidates.features, [candidates.offer(i) for i in range(len(candidates))])
        return table[:, self._kept] if self._kept else np.zeros((len(table), 1))

    def of(self, configuration: Configuration, offer: Offer) -> Array | None:
        """The row of a configuration, shape (width,); None where it is not in the space."""
        place = (configuration.key, offer.key)
        if place not in self._rows:
            try:
                own = self._problem.space.encode([self._problem.space.check(configuration)])
            except ConfigurationError:
                self._rows[place] = None
            else:
                row = self._table(own, [offer])
                self._rows[place] = row[0, self._kept] if self._kept else np.zeros(1)
        return self._rows[place]


def _fact(name: str, offer: Offer) -> float | str:
    """One of CherryPick's features of an offer; NaN where it does not say."""
    if name == "machines":
        return float(offer.nodes)
    if name == "cores":
        return float(offer.vcpu)
    if name == "memory":
        return offer.memory_gib / offer.vcpu if offer.vcpu > 0 else offer.memory_gib
    for called in _CALLED[name]:
        if called in offer.facts:
            fact = offer.facts[called]
            return _WORDS.get(fact.lower(), fact) if isinstance(fact, str) else float(fact)
    return float("nan")


Ladder = tuple[list[float], list[str]]
"""The numbers of a feature that occur, in order, and the words."""


def _scales(offers: Sequence[Offer]) -> list[tuple[str, Ladder]]:
    found = []
    for name in ("machines", "cores", "speed", "memory", "disks", "disk"):
        facts = [_fact(name, offer) for offer in offers]
        numbers = sorted({round(f, 9) for f in facts if isinstance(f, float) and np.isfinite(f)})
        words = sorted({f for f in facts if isinstance(f, str)})
        found.append((name, (numbers, words)))
    return found


def _column(name: str, ladder: Ladder, offers: Sequence[Offer]) -> list[Array]:
    """The columns of one feature: the place of each number among those that occur, and 0 or 1 for each word."""
    numbers, words = ladder
    facts = [_fact(name, offer) for offer in offers]
    columns = []
    if len(numbers) > 1:
        known = np.array([f if isinstance(f, float) else np.nan for f in facts])
        place = np.interp(known, numbers, np.linspace(0.0, 1.0, len(numbers)))
        columns.append(np.where(np.isfinite(known), place, 0.5))
    columns += [np.array([float(f == word) for f in facts]) for word in (words[1:] if len(words) == 2 else words)]
    return columns


def _own_columns(problem: Problem, *, machines: bool) -> list[int]:
    """The space's feature columns of the application's settings, and on request of the machines."""
    chosen: list[int] = []
    at = 0
    for parameter in problem.space.parameters:
        width = len(parameter.feature_names()) + (parameter.when is not None)
        if machines or parameter.name not in problem.resolver.machine_parameters:
            chosen += range(at, at + width)
        at += width
    return chosen
