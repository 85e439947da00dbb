"""Every registered searcher keeps the contract."""

from __future__ import annotations

from typing import Any

import pytest

from tradewind import plugins
from tradewind.problem import Problem
from tradewind.searcher.base import Searcher
from tradewind.testing.searchers import MakeSearcher, SearcherConformance

VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in plugins.names("searcher")),
    ("exhaustive", {"order": "shuffled"}),
    ("exhaustive", {"order": "cheapest"}),
    ("coordinate_descent", {"start": "centre", "max_levels": 3}),
    ("gp", {"acquisition": "ei", "abort": False, "starts": 2}),
]


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: "-".join([v[0], *map(str, v[1].values())]))
class TestRegistry(SearcherConformance):
    @pytest.fixture
    def make(self, variant: tuple[str, dict[str, Any]]) -> MakeSearcher:
        name, settings = variant

        def searcher(problem: Problem, seed: int) -> Searcher:
            made = plugins.create("searcher", name, settings, problem=problem, seed=seed)
            assert isinstance(made, Searcher)
            return made

        return searcher
