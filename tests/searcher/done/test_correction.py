"""Measurements at the present job parameters count beside the model, in recommendations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind import plugins
from tradewind.problem import Categorical, Instance, Objective, Offer, PastStudy, Proposal
from tradewind.searcher.done.model import MeasuredCorrection
from tradewind.searcher.done.searcher import DoneSearcher
from tradewind.testing.problems import KnownOutcome, KnownProblem, evaluate, make_problem

ROWS = np.array([[0.0], [1.0], [-1.0]])


def drawn(rows: np.ndarray, errors: list[float], at: float) -> tuple[float, float]:
    mean, scale = MeasuredCorrection.of(rows, np.array(errors)).applied(
        np.array([[at]]), np.array([1.0]), np.array([0.5])
    )
    return float(mean[0]), float(scale[0])


def test_one_run_each_counts_as_much_as_the_model() -> None:
    assert drawn(ROWS, [0.2, -0.2, 0.1], 0.0)[0] == pytest.approx(1.1)
    assert drawn(ROWS, [0.2, -0.2, 0.1], 1.0)[0] == pytest.approx(0.9)


def test_what_was_not_run_stays_with_the_model() -> None:
    assert drawn(ROWS, [0.2, -0.2, 0.1], 0.5) == (1.0, 0.5)


def test_repetitions_that_agree_count_for_more_and_those_that_do_not_for_less() -> None:
    rows = np.array([[0.0], [0.0], [0.0], [1.0]])
    alike, _ = drawn(rows, [0.2, 0.2, 0.2, -0.2], 0.0)
    apart, _ = drawn(rows, [0.6, -0.2, 0.2, -0.2], 0.0)
    assert alike == pytest.approx(1.2, abs=0.03)
    assert apart < 1.15 < alike


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.integers(0, 3), st.floats(-2, 2)), min_size=1, max_size=30),
    st.integers(0, 4),
)
def test_it_lies_between_the_model_and_the_mean_of_the_runs(runs: list[tuple[int, float]], at: int) -> None:
    rows = np.array([[float(place)] for place, _ in runs])
    mean, scale = drawn(rows, [error for _, error in runs], float(at))
    own = [error for place, error in runs if place == at]
    low, high = sorted((0.0, float(np.mean(own)) if own else 0.0))
    assert low - 1e-9 <= mean - 1.0 <= high + 1e-9
    assert 0.0 <= scale <= 0.5


def test_minus_zero_is_zero_and_figures_that_are_missing_are_left_out() -> None:
    rows = np.array([[-0.0], [1.0], [0.0]])
    found = MeasuredCorrection.of(rows, np.array([0.4, np.nan, 0.4]))
    assert [count for _, count in found.errors.values()] == [2]
    assert found.applied(np.array([[0.0]]), np.zeros(1), np.ones(1))[0] == pytest.approx([0.4], abs=0.15)


def jagged(name: str = "cost") -> KnownProblem:
    """Machines whose times no smooth law says, with an accuracy as jagged."""
    sold = {f"m{i}": Offer("t", f"m{i}", 2**i, 4.0 * 2**i, 0.1 * 2**i) for i in range(5)}
    seconds = dict(zip(sold, (1000.0, 300.0, 290.0, 70.0, 69.0), strict=True))
    accuracy = dict(zip(sold, (0.9, 0.7, 0.93, 0.71, 0.9), strict=True))
    problem = make_problem(
        [Instance(name="type", values=tuple(sold), offers=sold), Categorical(name="mode", values=("a", "b"))],
        lambda c, _o: KnownOutcome(
            seconds[str(c["type"])] * (1.0 if c["mode"] == "a" else 1.3), metrics={"accuracy": accuracy[str(c["type"])]}
        ),
        deadline=2000.0,
    )
    return problem if name == "cost" else replace(problem, objective=Objective(name, "maximise"))


@pytest.mark.parametrize("metric", ["cost", "accuracy"])
def test_where_everything_was_run_the_best_that_was_measured_comes_first(metric: str) -> None:
    problem = jagged(metric)
    trials = [evaluate(problem, Proposal(problem.candidates.configuration(i)), i) for i in range(10)]
    past = (PastStudy(problem.job.name, problem.job.parameters, tuple(trials), objective=problem.objective),)
    searcher = plugins.create("searcher", "done", {}, problem=replace(problem, past=past), seed=0)
    assert isinstance(searcher, DoneSearcher)
    best = problem.optimum()
    assert best is not None
    (first,) = searcher.recommend(1)
    assert problem.value(first.configuration) == pytest.approx(best[1])
    assert searcher.explain(first.configuration)["expected_cost"] == first.cost
