"""The candidates that a searcher with a model looks at: all of a small space, a pool of a large one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tradewind.problem import Candidates, Configuration
from tradewind.searcher.base import NothingLeft, Searcher, SearchState
from tradewind.searcher.pool import REFERENCE_SIZES, neighbours, no_candidate_found

Indices = NDArray[np.intp]

MOST_LISTED = 20_000
"""Combinations up to which every candidate is looked at; larger spaces are looked at by a pool."""

_NEIGHBOURS = 24
"""Changed copies of each of the best trials in a pool."""

_LEADERS = 8


class CandidatePoolSearcher(Searcher):
    """A searcher that looks at many candidates at once, on finite and continuous spaces."""

    @cached_property
    def _listed(self) -> bool:
        return self.problem.space.combinations <= MOST_LISTED

    @cached_property
    def _reference(self) -> Candidates:
        """All candidates, or some of each kind; empty where no draw of a continuous space is allowed and sold."""
        if self._listed:
            return self.problem.candidates
        found = self.problem.pool(())
        for count in REFERENCE_SIZES:
            rng = np.random.default_rng([self.seed & 0xFFFFFFFF, 2])
            found = self.problem.pool(self.problem.space.sample(rng, count))
            if len(found) > 1:  # one alone shows no range
                return found
        return self.problem.candidates if self.problem.space.enumerable else found

    def nothing_left(self, state: SearchState) -> NothingLeft:
        """Why no candidate is open: also where not one was ever found."""
        return super().nothing_left(state) if len(self._reference) else no_candidate_found(state)

    def _start_order(self, choose: Callable[[np.random.Generator], list[int]]) -> list[int]:
        """Places of the reference in the order of starting: those chosen, then all others at random."""
        rng = np.random.default_rng([self.seed & 0xFFFFFFFF, 1])
        first = choose(rng)
        chosen = set(first)
        return first + [int(i) for i in rng.permutation(len(self._reference)) if int(i) not in chosen]

    def _next_starts(self, order: Sequence[int], state: SearchState, count: int) -> list[int]:
        """The next places of an order, up to ``count``, that are neither taken nor too dear."""
        reference = self._reference
        taken = self.taken(state)
        payable = self.affordable(state, reference.hourly)
        found: list[int] = []
        for i in order:
            if len(found) == count:
                break
            if payable[i] and reference.key(i) not in taken:
                found.append(i)
        return found

    def _open_of(self, pool: Candidates, state: SearchState) -> Indices:
        """The places of a pool that are neither taken nor too dear."""
        taken = self.taken(state)
        payable = np.flatnonzero(self.affordable(state, pool.hourly))
        return np.array([i for i in payable if pool.key(int(i)) not in taken], dtype=np.intp)

    def _open_field(
        self, state: SearchState, draw: Callable[[], Sequence[Configuration]]
    ) -> tuple[Candidates, Indices] | None:
        """Candidates, and the places of those that may be proposed; None where there are none.

        Args:
            state: What is pending and what may still be spent.
            draw: Configurations of a large space; where none of them is open, the whole space is looked through, or
                the reference where it cannot be listed.
        """
        if not len(self._reference):  # without one, models have no features: they are not asked
            return None
        if not self._listed:
            pool = self.problem.pool(draw())
            free = self._open_of(pool, state)
            if len(free):
                return pool, free
            if not self.problem.space.enumerable:
                free = self._open_of(self._reference, state)
                return (self._reference, free) if len(free) else None
        candidates, free = self.open_candidates(state)
        return (candidates, free) if len(free) else None

    def _with_neighbours(
        self, drawn: list[Configuration], leaders: Sequence[Configuration], rng: np.random.Generator
    ) -> list[Configuration]:
        """Random configurations, and changed copies of the best ones."""
        found = list(drawn)
        for leader in leaders:
            donors = [found[int(i)] for i in rng.integers(len(found), size=_NEIGHBOURS)] if found else []
            found += neighbours(self.problem, leader, donors, rng)
        return found

    def _leaders(self) -> list[Configuration]:
        """The best configurations that were run to their end."""
        objective = self.problem.objective
        ranked = sorted(
            (not t.observation.feasible, objective.loss(t.observation.objective), t.number, t.configuration)
            for t in self.history
            if t.observation is not None and not t.observation.censored
            if t.observation.objective is not None and math.isfinite(t.observation.objective)
        )
        return [configuration for *_, configuration in ranked[:_LEADERS]]
