"""DONE where a job parameter is wanted that was the same in all runs."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from tests.searcher.done.test_searcher import Values, history, make, sized, told

from tradewind.problem import JobParameters, PastStudy, Proposal
from tradewind.searcher.done.run_history import LOG_SPREAD, constant_parameter_spread
from tradewind.testing.problems import KnownProblem, evaluate


def asked(given: Values, before: Values, *, deadline: float | None = 3_600.0, runs: int = 12) -> KnownProblem:
    """The job with some parameters, after runs that all had the same others."""
    past = history([before] * runs, deadline=deadline)
    return replace(sized(given, deadline=deadline), past=past)


def width(problem: KnownProblem) -> float:
    """Width of the range of the first recommendation, as a logarithm."""
    first = make(problem).recommend(1)[0]
    return math.log(first.runtime_high / first.runtime_low)


def test_a_number_that_never_varied_is_neither_found_to_matter_nor_not_to() -> None:
    lines = make(asked({"size": 1_000.0}, {"size": 10.0})).basis()
    assert "all runs had size=10: how the time depends on it is not known" in lines
    assert "12 runs of sized, 0 of them with these job parameters" in lines
    assert not any("matter" in line or "nearest" in line for line in lines)


def test_the_farther_the_number_the_wider_the_range_and_the_less_it_is_sure_to_fit() -> None:
    same, near, far = (asked({"size": size}, {"size": 10.0}) for size in (10.0, 20.0, 1_000.0))
    assert width(same) < 0.5 < width(near) < 0.5 * width(far)
    chances = [make(one).recommend(1)[0].probability_feasible for one in (same, near, far)]
    assert chances[0] > 0.99
    assert chances == sorted(chances, reverse=True)
    assert chances[2] < 0.85
    first = make(far).recommend(1)[0]
    truth = far.truth(first.configuration, far.resolver.resolve(first.configuration)).runtime
    assert first.runtime_low < truth < first.runtime_high


def test_the_best_configuration_of_another_size_is_still_the_first_guess() -> None:
    """What is not known of the size says nothing against what is known of the machines."""
    known, other = (asked({"size": size}, {"size": 10.0}, deadline=None) for size in (10.0, 1_000.0))
    assert make(known).recommend(1)[0].configuration == make(other).recommend(1)[0].configuration


def test_a_word_that_never_varied_widens_the_range() -> None:
    known: Values = {"size": 10.0, "data": "a"}
    problem = asked({"size": 10.0, "data": "b"}, known)
    assert "all runs had data=a: how the time depends on it is not known" in make(problem).basis()
    assert width(problem) > width(asked(known, known)) + 2.0 * 1.5 * LOG_SPREAD


def test_a_share_of_the_input_that_never_varied_widens_the_range() -> None:
    whole = asked({"size": 10.0}, {"size": 10.0})
    part = tuple(replace(study, parameters=JobParameters({"size": 10.0}, 0.1)) for study in whole.past)
    problem = replace(whole, past=part)
    assert "all runs had (fraction of the input)=0.1: how the time depends on it is not known" in make(problem).basis()
    assert width(problem) > width(whole) + 3.0


def test_a_model_that_was_chosen_before_does_not_drop_it_either() -> None:
    problem = asked({"size": 1_000.0}, {"size": 10.0})
    searcher = make(problem)
    searcher.refit({"sigma": 0.2, "penalty": 0.01, "dropped": ["size"], "helping": []})
    assert "all runs had size=10: how the time depends on it is not known" in searcher.basis()
    assert searcher.recommend(1)[0].probability_feasible < 0.85


def test_the_first_own_runs_tell_how_the_time_depends_on_it() -> None:
    problem = asked({"size": 1_000.0}, {"size": 10.0})
    trials = [evaluate(problem, Proposal(problem.candidates.configuration(i)), i) for i in (1, 6, 11)]
    searcher = told(make(problem), trials)
    assert "found to matter: size" in searcher.basis()
    assert not any("not known" in line for line in searcher.basis())
    first = searcher.recommend(1)[0]
    truth = problem.truth(first.configuration, problem.resolver.resolve(first.configuration)).runtime
    assert first.runtime == pytest.approx(truth, rel=0.5)


def test_only_what_varied_can_be_found_not_to_matter() -> None:
    inputs = [{"size": 10.0, "seed": float(i % 7 + 1)} for i in range(20)]
    past: tuple[PastStudy, ...] = history(inputs)
    lines = make(replace(sized({"size": 80.0, "seed": 3.0}), past=past)).basis()
    assert "found not to matter: seed" in lines
    assert "all runs had size=10: how the time depends on it is not known" in lines


def test_how_far_a_time_may_be_off() -> None:
    wanted: Values = {"size": 20.0, "data": "b", "shift": -1.0, "same": 4.0}
    assert constant_parameter_spread(wanted, {}) == 0.0
    assert constant_parameter_spread(wanted, {"same": 4.0}) == 0.0
    assert constant_parameter_spread(wanted, {"size": 10.0}) == pytest.approx(math.log(2.0))
    assert constant_parameter_spread(wanted, {"size": 40.0}) == pytest.approx(math.log(2.0))
    assert constant_parameter_spread(wanted, {"data": "a", "same": 4.0}) == pytest.approx(LOG_SPREAD)
    both = constant_parameter_spread(wanted, {"data": "a", "shift": 2.0})
    assert both == pytest.approx(math.sqrt(2.0) * LOG_SPREAD)
