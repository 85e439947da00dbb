"""Every searcher on many generated spaces, and faulty searchers that the check of them has to find."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from tradewind import plugins
from tradewind.errors import ConfigurationError, SpecError
from tradewind.plugins import Settings
from tradewind.problem import Configuration, Float, Integer, Parameter, Problem, Proposal, Value
from tradewind.searcher.base import NothingLeft, Searcher, SearchState
from tradewind.testing import generated_problems
from tradewind.testing.generated_problems import (
    check_on_generated_problems,
    check_search,
    float_ranges,
    integer_ranges,
    listed_parameters,
)
from tradewind.testing.problems import KnownOutcome, KnownProblem, make_problem

SETTINGS: dict[str, dict[str, Any]] = {
    "cherrypick": {"stop": False, "burn_in": 20, "samples": 2},
    "paris": {"table": str(Path(__file__).parent / "data" / "paris_table.csv")},
    "trimtuner": {"fractions": [0.1, 1.0]},
}

EXAMPLES = {
    "random": 200,
    "exhaustive": 200,
    "coordinate_descent": 60,
    "ernest": 40,
    "optuna": 40,
    "done": 3,
    "paris": 3,
}
"""Searchers without a model try more problems in the same time, and those with a large one fewer."""

NARROW = ("ernest", "paris")
"""Searchers that take only spaces of machines and few settings, and no metrics."""


def check(name: str, examples: int) -> None:
    def make(problem: Problem, seed: int) -> Searcher:
        made = plugins.create("searcher", name, SETTINGS.get(name, {}), problem=problem, seed=seed)
        assert isinstance(made, Searcher)
        return made

    narrow = name in NARROW
    check_on_generated_problems(make, examples, machines=narrow, metrics=not narrow)


@pytest.mark.parametrize("name", ["exhaustive", "random", "coordinate_descent"])
def test_searchers_without_a_model_neither_hang_nor_raise_nor_repeat(name: str) -> None:
    check(name, 5)


@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", plugins.names("searcher"))
def test_no_searcher_hangs_raises_or_repeats(name: str) -> None:
    check(name, EXAMPLES.get(name, 8))


@pytest.mark.parametrize("strategy", [integer_ranges, float_ranges, listed_parameters])
def test_generated_parameters_can_be_written_in_a_job(strategy: Callable[[], Any]) -> None:
    @settings(max_examples=25)
    @given(strategy())
    def check(parameter: Parameter) -> None:
        values = [parameter.level(0)] if parameter.count < float("inf") else []
        for value in values:
            assert parameter.coerce(value) == value
            assert json.loads(json.dumps(value)) == value

    check()


class _Faulty(Searcher):
    """Answers what it was made with, whatever it is asked."""

    Settings = Settings
    answers: tuple[Value, ...] = ()

    def ask(self, state: SearchState, count: int = 1) -> list[Proposal] | NothingLeft:
        if state.proposed < len(self.answers):
            return [Proposal(Configuration({"x": self.answers[state.proposed]}))]
        return NothingLeft("every configuration has been tried")


def _problem(parameter: Parameter) -> KnownProblem:
    return make_problem([parameter], lambda _c, _o: KnownOutcome(60.0))


@pytest.mark.parametrize(
    ("parameter", "answers", "error"),
    [
        (Integer(name="x", low=1, high=9), (1, 1), AssertionError),
        (Integer(name="x", low=1, high=9), (1.0,), AssertionError),
        (Integer(name="x", low=1, high=9, step=2), (2,), ConfigurationError),
        (Float(name="x", low=0, high=1, step=0.05), (0.15000000000000002,), AssertionError),
        (Float(name="x", low=0, high=1), (1.5,), ConfigurationError),
        (Integer(name="x", low=1, high=3), (1, 2), AssertionError),
        (Float(name="x", low=0, high=1), (), AssertionError),
    ],
    ids=["repeats", "another type", "off the steps", "off by the last digit", "outside", "ends early", "never begins"],
)
def test_faulty_searchers_are_found(
    parameter: Parameter, answers: tuple[Value, ...], error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Faulty, "answers", answers)
    problem = _problem(parameter)
    with pytest.raises(error):
        check_search(_Faulty(settings=Settings(), problem=problem, seed=0), problem, 5)


def test_a_searcher_that_hangs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hangs(_Faulty):
        def ask(self, state: SearchState, count: int = 1) -> list[Proposal] | NothingLeft:
            while True:
                pass

    monkeypatch.setattr(generated_problems, "SECONDS", 0.05)
    problem = _problem(Integer(name="x", low=1, high=3))
    with pytest.raises(AssertionError, match="no answer within"):
        check_search(Hangs(settings=Settings(), problem=problem, seed=0), problem, 5)


def test_a_searcher_that_refuses_everything_is_found() -> None:
    def make(problem: Problem, seed: int) -> Searcher:
        raise SpecError("not this one", hint="another one")

    with pytest.raises(AssertionError, match="it refused every problem"):
        check_on_generated_problems(make, 2)
