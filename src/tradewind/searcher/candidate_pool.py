"""Candidates for searchers with a model: all of a small space, a pool of a large one, and the order of first runs.

A pool of a space that cannot be listed holds random configurations and changed copies of the best trials. First
configurations are few, cheap and far apart (`cheap_maximin`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tradewind.errors import ConfigurationError, NoOfferError
from tradewind.problem import Candidates, Configuration, Problem
from tradewind.searcher.base import NothingLeft, Searcher, SearchState
from tradewind.searcher.surrogate.gp import Array

REFERENCE_SIZES = (512, 4096)
"""Configurations that are drawn to show what a space holds: more, where fewer find next to nothing that is allowed."""

Indices = NDArray[np.intp]

MOST_LISTED = 20_000
"""Combinations up to which every candidate is looked at; larger spaces are looked at by a pool."""

_NEIGHBOURS = 24
"""Changed copies of each of the best trials in a pool."""

_LEADERS = 8


class CandidatePoolSearcher(Searcher):
    """Looks at many candidates at once, on finite and continuous spaces."""

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
        """Explain that no candidate is open, or that not one was ever found."""
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
        if not taken:  # keys are hashes of words: at first, none is needed
            return payable
        return np.array([i for i in payable if pool.key(int(i)) not in taken], dtype=np.intp)

    def _open_field(
        self, state: SearchState, draw: Callable[[], Sequence[Configuration]]
    ) -> tuple[Candidates, Indices] | None:
        """Candidates, and the places of those that may be proposed; None where there are none.

        Args:
            state: Pending trials, and the money that is left.
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


def neighbours(
    problem: Problem, leader: Configuration, donors: Sequence[Configuration], rng: np.random.Generator
) -> list[Configuration]:
    """Copy a configuration with one or more parameters, or a step towards them, taken from others.

    Args:
        problem: The tuning problem: its space checks the copies.
        leader: The configuration to stay near.
        donors: Configurations that other values come from; one copy is made for each.
        rng: Draws which parameters change, and how far.
    """
    space, found = problem.space, []
    for donor in donors:
        values = dict(leader)
        shared = [p for p in space.parameters if p.name in leader and p.name in donor]
        for parameter in [shared[int(i)] for i in rng.integers(len(shared), size=1 + int(rng.integers(2)))]:
            values[parameter.name] = donor[parameter.name]
            if parameter.levels is None:
                both = np.array([leader[parameter.name], donor[parameter.name]], dtype=object)
                near, far = parameter.features(both)[:, 0]
                step = float(rng.choice([0.02, 0.1, 0.5]))
                values[parameter.name] = float(parameter.draw(np.array([near + step * (far - near)]))[0])
        try:
            found.append(space.complete(values, {**donor, **leader}))
        except (ConfigurationError, NoOfferError, KeyError):
            continue
    return found


def cheap_maximin(
    features: Array,
    hourly: Array,
    count: int,
    rng: np.random.Generator,
    share: float = 0.5,
    *,
    first: int | None = None,
) -> list[int]:
    """Choose rows among the cheaper ones, each as far as possible from those before it.

    Greedy maximin design (Johnson, Moore & Ylvisaker, J. Statistical Planning and Inference 1990) over the rows whose
    price per hour is in the lower ``share``; the first is drawn at random unless it is given.

    Args:
        features: Shape (n, d).
        hourly: USD per hour, shape (n,).
        count: Number of rows to choose; all if there are fewer.
        rng: Draws the first.
        share: Share of the rows, by price, that are chosen among; where these are fewer than ``count``, the next
            cheapest are added.
        first: The row to begin with.

    Returns:
        Row numbers, in order.
    """
    by_price = np.argsort(hourly, kind="stable")
    limit = hourly[by_price[max(1, int(np.ceil(share * len(hourly)))) - 1]]
    pool = np.flatnonzero(hourly <= limit)
    if len(pool) < count:
        pool = np.sort(by_price[:count])
    chosen = [int(pool[rng.integers(len(pool))]) if first is None else first]
    distance = ((features[pool] - features[chosen[0]]) ** 2).sum(axis=1)
    while len(chosen) < min(count, len(pool)):
        distance[np.isin(pool, chosen)] = -1.0
        # Rounded, so that ties are broken by order and not by the last bit of a sum.
        following = int(pool[int(np.argmax(np.round(distance, 9)))])
        chosen.append(following)
        distance = np.minimum(distance, ((features[pool] - features[following]) ** 2).sum(axis=1))
    return chosen


def no_candidate_found(state: SearchState) -> NothingLeft:
    """Answer that no draw of a space was ever allowed and sold; it is not final while trials are pending."""
    reason = (
        "no configuration was found that is allowed and sold; "
        "where the constraints leave almost nothing of the space, give the values to try as lists"
    )
    return NothingLeft(reason, final=not state.pending)
