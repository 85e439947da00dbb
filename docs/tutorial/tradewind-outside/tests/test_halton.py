from __future__ import annotations

import numpy as np
import pytest

from tradewind import plugins
from tradewind.problem import Problem
from tradewind.searcher.base import Searcher
from tradewind.testing import problems
from tradewind.testing.searchers import MakeSearcher, SearcherConformance
from tradewind_outside.halton import HaltonSearcher, primes, radical_inverse


class TestHalton(SearcherConformance):
    @pytest.fixture
    def make(self) -> MakeSearcher:
        def searcher(problem: Problem, seed: int) -> Searcher:
            return HaltonSearcher(settings=HaltonSearcher.Settings(), problem=problem, seed=seed)

        return searcher


def test_it_is_installed() -> None:
    assert plugins.load("searcher", "halton") is HaltonSearcher


def test_the_sequence_is_that_of_the_paper() -> None:
    assert [radical_inverse(i, 2) for i in range(1, 6)] == [0.5, 0.25, 0.75, 0.125, 0.625]
    assert [radical_inverse(i, 3) for i in (1, 2, 3)] == pytest.approx([1 / 3, 2 / 3, 1 / 9])
    assert primes(6) == [2, 3, 5, 7, 11, 13]


def test_it_leaves_smaller_gaps_than_chance() -> None:
    problem = problems.continuous_problem()
    searcher = HaltonSearcher(settings=HaltonSearcher.Settings(), problem=problem, seed=1)
    first = searcher._points(0, 64, 1).ravel()
    gaps = np.diff(np.sort(first))
    assert gaps.max() < 2.1 / 64
