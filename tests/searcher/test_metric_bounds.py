"""Bounds on metrics that runs lie on exactly, or that are zero."""

from __future__ import annotations

from typing import Any

import pytest

from tradewind import plugins
from tradewind.problem import Integer, Proposal, Threshold
from tradewind.searcher.base import Explains, Searcher
from tradewind.searcher.outcomes import allows_logarithm
from tradewind.testing.problems import KnownOutcome, KnownProblem, evaluate, machine_parameters, make_problem

MODELLED = {"cherrypick": {}, "done": {}, "gp": {}, "obol": {"depth": 0}, "tradewind": {}, "trimtuner": {}}


def make(name: str, problem: KnownProblem) -> Searcher:
    settings: dict[str, Any] = MODELLED[name]
    made = plugins.create("searcher", name, settings, problem=problem, seed=1)
    assert isinstance(made, Searcher)
    return made


@pytest.mark.parametrize(
    ("bound", "values", "expected"),
    [
        (Threshold("m", at_most=0.0), [0.0, 0.0], Threshold("m", at_most=1.0)),
        (Threshold("m", at_least=0.8), [0.8], Threshold("m", at_least=0.0)),
        (Threshold("m", at_most=0.0), [0.0, 3.0, 7.0], Threshold("m", at_most=1.5)),
        (Threshold("m", at_least=1.0), [1.0, 0.9, 0.5], Threshold("m", at_least=0.95)),
        (Threshold("m", at_least=2.0), [2.0, 3.0, 3.5], Threshold("m", at_least=1.75)),
        (Threshold("m", at_most=2.0), [1.0, 3.0], Threshold("m", at_most=2.0)),
        (Threshold("m", at_least=0.0, at_most=4.0), [0.0, 4.0, 6.0], Threshold("m", at_least=-1.0, at_most=5.0)),
        (Threshold("m", at_most=2.0), [], Threshold("m", at_most=2.0)),
    ],
)
def test_a_bound_moves_where_values_lie_on_it(bound: Threshold, values: list[float], expected: Threshold) -> None:
    moved = bound.relaxed(values)
    for one, other in ((moved.at_least, expected.at_least), (moved.at_most, expected.at_most)):
        assert (one is None and other is None) or one == pytest.approx(other)
    # No value that was measured is judged otherwise than before.
    assert [moved.holds(value) for value in values] == [bound.holds(value) for value in values]


def test_a_figure_that_only_zero_keeps_has_no_logarithm() -> None:
    assert not allows_logarithm(Threshold("errors", at_most=0.0))
    assert allows_logarithm(Threshold("errors", at_most=0.5))
    assert allows_logarithm(Threshold("speed", at_least=0.0))


@pytest.mark.parametrize("name", sorted(MODELLED))
@pytest.mark.parametrize("value", [0.0, 0.1])
def test_what_every_run_kept_is_likely_to_be_kept(name: str, value: float) -> None:
    problem = make_problem(
        machine_parameters(3, (1, 2, 4)),
        lambda _c, o: KnownOutcome(3000.0 / (o.vcpu * o.nodes), metrics={"errors": value}),
        thresholds=[Threshold("errors", at_most=value)],
    )
    searcher = make(name, problem)
    assert isinstance(searcher, Explains)
    trials = [evaluate(problem, Proposal(problem.candidates.configuration(i)), i) for i in range(0, 9, 2)]
    for trial in trials:
        searcher.tell(trial)
    said = searcher.explain(trials[0].configuration)
    assert float(said["probability_feasible"]) > 0.9  # 0.5 where a density is asked for what lies on its bound


@pytest.mark.parametrize("name", ["cherrypick", "done", "gp", "tradewind"])
def test_a_run_without_errors_is_likely_before_any_is_known(name: str) -> None:
    problem = make_problem(
        [*machine_parameters(2, (1, 2)), Integer(name="retries", low=0, high=9)],
        lambda c, o: KnownOutcome(3000.0 / o.nodes, metrics={"errors": max(0.0, 18.0 - 2.0 * float(c["retries"]))}),
        thresholds=[Threshold("errors", at_most=0.0)],
    )
    searcher = make(name, problem)
    one = problem.candidates.configuration(0)
    for number, retries in enumerate((0, 2, 4, 6, 8)):  # the last one has two errors
        searcher.tell(evaluate(problem, Proposal(one.but(retries=retries)), number))
    assert isinstance(searcher, Explains)
    few, many = (float(searcher.explain(one.but(retries=count))["probability_feasible"]) for count in (9, 0))
    assert few > max(0.02, 2.0 * many)  # 0 for both where the logarithm of the errors is modelled
