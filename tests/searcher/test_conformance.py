"""Every registered searcher keeps the contract."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.effort import EVERYTHING, share

from tradewind import plugins
from tradewind.problem import Problem
from tradewind.searcher.base import Searcher
from tradewind.testing.searchers import MakeSearcher, SearcherConformance

WITHOUT_STOP_RULE: dict[str, dict[str, Any]] = {"cherrypick": {"stop": False, "burn_in": 25}}
"""What switches off the stop rule of searchers that have one by default: a space is exhausted only without it."""

NEEDED = {"paris": {"table": str(Path(__file__).parent / "data" / "paris_table.csv"), "pairs_tried": 2, "trees": 20}}
"""Settings that a searcher cannot do without, or that take less time than its own."""

FEWER: dict[str, dict[str, Any]] = {"trimtuner": {"fractions": [0.1, 1.0]}}
"""Fewer shares of the input: with all five, the small spaces take five times as long to exhaust."""

COARSER: dict[str, dict[str, Any]] = {
    "cherrypick": {"samples": 3, "burn_in": 10},
    "done": {"terms": 60},
    "obol": {"depth": 1},
    "paris": {"trees": 10},
}
"""By default models of fewer terms, samples, trees and steps ahead: the contract does not depend on them.

The golden sequences are those of the defaults."""


def _usual(name: str) -> dict[str, Any]:
    parts = [WITHOUT_STOP_RULE, NEEDED, FEWER, {} if EVERYTHING else COARSER]
    return {key: value for part in parts for key, value in part.get(name, {}).items()}


VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((name, _usual(name)) for name in plugins.names("searcher")),
    ("exhaustive", {"order": "shuffled"}),
    ("exhaustive", {"order": "cheapest"}),
    ("cherrypick", {"stop": False, "abort": True, "samples": 2, "burn_in": 20}),
    ("coordinate_descent", {"start": "centre", "max_levels": 3}),
    ("gp", {"acquisition": "ei", "abort": False, "starts": 2}),
    ("optuna", {"sampler": "nsgaii"}),
    ("optuna", {"sampler": "qmc", "aborted": "bound"}),
    ("optuna", {"sampler": "random", "tries": 3}),
    ("tradewind", {"abort": False, "acquisition": "ei"}),
    ("trimtuner", {"surrogate": "trees", "fractions": [0.25, 1.0], "starts": 2}),
]

MODELLED = ("cherrypick", "gp", "optuna", "paris", "tradewind", "trimtuner")
"""Searchers that fit a model whenever they are asked."""

REFUSES = dict.fromkeys(("ernest", "paris"), frozenset({"flat", "million", "metrics"}))
"""What a searcher of a narrower method refuses; it must refuse it, too."""


def _label(variant: tuple[str, dict[str, Any]]) -> str:
    return "-".join([variant[0], *(Path(str(value)).name for value in variant[1].values())])


def _marks(place: int, variant: tuple[str, dict[str, Any]]) -> list[pytest.MarkDecorator]:
    """A quick run tries each searcher once, but for those that fit models: they take seconds for a check.

    Further settings of such a searcher are thorough: they share its model, and have tests of their own.
    """
    first, modelled = place < len(plugins.names("searcher")), variant[0] in MODELLED
    if first and not modelled:
        return []
    return [pytest.mark.slow] if first or not modelled else [pytest.mark.slow, pytest.mark.thorough]


for _long in (
    "figures_that_are_no_numbers",
    "another_process_proposes_the_same",
    "a_million_combinations",
    "continuous_spaces",
):
    pytest.mark.slow(getattr(SearcherConformance, f"test_{_long}"))


@pytest.mark.parametrize(
    "variant", [pytest.param(v, id=_label(v), marks=_marks(place, v)) for place, v in enumerate(VARIANTS)]
)
class TestRegistry(SearcherConformance):
    examples = share(4, 1)
    trials = share(12, 7)

    @pytest.fixture
    def make(self, variant: tuple[str, dict[str, Any]]) -> MakeSearcher:
        name, settings = variant

        def searcher(problem: Problem, seed: int) -> Searcher:
            made = plugins.create("searcher", name, settings, problem=problem, seed=seed)
            assert isinstance(made, Searcher)
            return made

        return searcher

    @pytest.mark.slow
    @pytest.mark.timeout(600)
    def test_edges_of_every_range(self, make: MakeSearcher, refuses: frozenset[str]) -> None:
        """Searchers without a model are tried in a quick run, too: see `test_generated_problems`."""
        assert self.examples > 0
        super().test_edges_of_every_range(make, refuses)

    @pytest.fixture
    def refuses(self, variant: tuple[str, dict[str, Any]]) -> frozenset[str]:
        return REFUSES.get(variant[0], frozenset())
