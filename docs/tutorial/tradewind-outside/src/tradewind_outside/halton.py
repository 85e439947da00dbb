"""A searcher that spreads its configurations evenly."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tradewind.plugins import Settings
from tradewind.problem import Proposal
from tradewind.searcher.base import ContinuousSpaces, NothingLeft, ProposesMany, Searcher, SearchState


class HaltonSettings(Settings):
    """Settings of `HaltonSearcher`."""

    skip: int = Field(0, ge=0, description="Points to leave out at the start of the sequence")


class HaltonSearcher(Searcher, ProposesMany, ContinuousSpaces):
    """Spreads configurations evenly over the space by a Halton sequence, whatever earlier trials taught.

    Halton, "On the efficiency of certain quasi-random sequences of points in evaluating multi-dimensional
    integrals", Numerische Mathematik 2, 1960; shifted at random (Cranley and Patterson, SIAM J. Numer. Anal., 1976).
    """

    Settings = HaltonSettings
    settings: HaltonSettings

    def ask(self, state: SearchState, count: int = 1) -> list[Proposal] | NothingLeft:
        """The untried configurations nearest to the next points of the sequence."""
        if self.problem.space.enumerable:
            return self._from_list(state, count)
        return self._from_ranges(state, count)

    def _from_list(self, state: SearchState, count: int) -> list[Proposal] | NothingLeft:
        candidates, free = self.open_candidates(state)
        if not len(free):
            return self.nothing_left(state)
        features = candidates.features[free]
        proposals = []
        for turn in range(min(count, len(free))):
            point = self._points(state.proposed + turn, 1, features.shape[1])
            nearest = int(((features - point) ** 2).sum(axis=1).argmin())
            proposals.append(Proposal(candidates.configuration(int(free[nearest])), why={"stage": "spread evenly"}))
            features = np.delete(features, nearest, axis=0)
            free = np.delete(free, nearest)
        return proposals

    def _from_ranges(self, state: SearchState, count: int) -> list[Proposal] | NothingLeft:
        points = self._points(state.proposed, 16 * count + 16, len(self.problem.space.parameters))
        pool = self.problem.pool(self.problem.space.draw(points))
        payable, taken = self.affordable(state, pool.hourly), self.taken(state)
        fresh = [i for i in range(len(pool)) if payable[i] and pool.key(i) not in taken]
        if not fresh:
            return self.nothing_left(state)
        return [Proposal(pool.configuration(i), why={"stage": "spread evenly"}) for i in fresh[:count]]

    def _points(self, start: int, count: int, dimensions: int) -> NDArray[np.float64]:
        """Points of the shifted sequence in the unit cube, shape (count, dimensions)."""
        first = start + self.settings.skip + 1
        points = np.array([[radical_inverse(i, p) for p in primes(dimensions)] for i in range(first, first + count)])
        shift = np.random.default_rng(self.seed & 0xFFFFFFFF).random(dimensions)
        return (points + shift) % 1.0


def radical_inverse(number: int, base: int) -> float:
    """The digits of ``number`` in ``base``, mirrored at the point: 6 = 110 in base 2 gives 0.011 = 0.375."""
    result, weight = 0.0, 1.0 / base
    while number:
        number, digit = divmod(number, base)
        result += digit * weight
        weight /= base
    return result


def primes(count: int) -> list[int]:
    """The first prime numbers."""
    found: list[int] = []
    number = 2
    while len(found) < count:
        if all(number % prime for prime in found):
            found.append(number)
        number += 1
    return found
