"""The configurations that a searcher of parts considers: all of a small space, a pool of a large one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tradewind.problem import Candidates, Configuration, Trial
from tradewind.searcher.base import SearchState
from tradewind.searcher.candidate_pool import CandidatePoolSearcher
from tradewind.searcher.starts import cheap_maximin
from tradewind.searcher.surrogate.features import FeatureMap
from tradewind.searcher.surrogate.gp import Array

_POOL = 1024
_LEADERS = 6
_CHEAPER = 0.5
"""Share of the configurations, by price, that the first ones are drawn from: they are to teach what a part tells."""


@dataclass(frozen=True, slots=True)
class CandidateRows:
    """The configurations in question.

    Attributes:
        candidates: Configurations.
        features: Their numbers, shape (n, d).
        open: Where neither a whole run was told or is pending, nor the money is too short for it, shape (n,).
    """

    candidates: Candidates
    features: Array
    open: NDArray[np.bool_]


class MultiFidelitySearcher(CandidatePoolSearcher):
    """A searcher that looks at configurations as rows of numbers, on finite and continuous spaces."""

    @cached_property
    def _map(self) -> FeatureMap:
        return FeatureMap(self.problem, self._reference)

    @cached_property
    def _features(self) -> Array:
        return self._map.of_candidates(self._reference)

    def _design(self, starts: int) -> tuple[Candidates, list[int]]:
        """Candidates, and the order in which they are started: cheap ones far apart, then the rest at random."""
        reference = self._reference
        return reference, self._start_order(
            lambda rng: cheap_maximin(self._features, reference.hourly, starts, rng, _CHEAPER)
        )

    def _field(self, state: SearchState) -> CandidateRows | None:
        """What may be proposed; None where a pool is empty."""
        if self._listed:
            candidates, free = self.open_candidates(state)
            open_ones = np.zeros(len(candidates), dtype=bool)
            open_ones[free] = True
            return CandidateRows(candidates, self._features, open_ones)
        if not len(self._reference):
            return None
        drawn = self._drawn(state) or [self._reference.configuration(i) for i in range(len(self._reference))]
        pool = self.problem.pool([*self._tried(), *drawn])
        free = self._open_of(pool, state)
        if not len(free):
            pool = self.problem.pool([*self._tried(), *self._open_elsewhere(state)])
            free = self._open_of(pool, state)
        if not len(pool):
            return None
        open_ones = np.zeros(len(pool), dtype=bool)
        open_ones[free] = True
        return CandidateRows(pool, self._map.of_candidates(pool), open_ones)

    def _open_elsewhere(self, state: SearchState) -> list[Configuration]:
        """Configurations for when no drawn one is open: of the whole space, or the reference if it cannot be listed."""
        if not self.problem.space.enumerable:
            return [self._reference.configuration(i) for i in range(len(self._reference))]
        candidates, free = self.open_candidates(state)
        rng = np.random.default_rng([self.seed & 0xFFFFFFFF, state.proposed, 4])
        return [candidates.configuration(int(i)) for i in rng.permutation(free)[:_POOL]]

    def _tried(self) -> list[Configuration]:
        """Configurations of the space that were run, on any share."""
        return [t.configuration for t in self.history if self._map.of(t.configuration, t.offer) is not None]

    def _drawn(self, state: SearchState) -> list[Configuration]:
        rng = np.random.default_rng([self.seed & 0xFFFFFFFF, state.proposed, 3])
        return self._with_neighbours(self.problem.space.sample(rng, _POOL), self._leaders(), rng)

    def _leaders(self) -> list[Configuration]:
        """The best configurations that were run, those on larger shares first."""
        objective = self.problem.objective
        ranked: list[tuple[bool, float, float, int, Trial]] = sorted(
            (not t.observation.feasible, -t.proposal.fidelity, objective.loss(t.observation.objective), t.number, t)
            for t in self.history
            if t.observation is not None and t.observation.objective is not None
            if not t.observation.censored and math.isfinite(t.observation.objective)
            if self._map.of(t.configuration, t.offer) is not None
        )
        return [t.configuration for *_, t in ranked[:_LEADERS]]
