"""DONE where a job parameter is wanted that lies outside of what was run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.searcher.done.test_constant_parameters import width
from tests.searcher.done.test_searcher import Values, history, make, sized

from tradewind.problem import Configuration, JobParameters, Proposal, TrialState
from tradewind.searcher.done.run_history import LOG_SPREAD, JobParameterMap, PastRun, extrapolation_spreads
from tradewind.testing.problems import KnownOutcome, KnownProblem, evaluate, machine_parameters, make_problem

NARROW = (1.0, 1.1, 1.2)


def proportional(given: Values, **more: Any) -> KnownProblem:
    """A job that takes as long as its size is large."""

    def truth(_c: Configuration, offer: Any) -> KnownOutcome:
        return KnownOutcome(100.0 * float(given["size"]) / (offer.vcpu * offer.nodes) ** 0.8)

    problem = make_problem(machine_parameters(3, (1, 2, 4, 8)), truth, **more)
    return replace(problem, job=replace(problem.job, name="sized", parameters=JobParameters(dict(given))))


def beyond(size: float, ran: Sequence[float]) -> KnownProblem:
    """That job with a size, after 36 runs of other sizes whose times vary by 8 %."""
    past = history([{"size": ran[i % len(ran)]} for i in range(36)], proportional, noise=0.08)
    return replace(proportional({"size": size}, deadline=300.0), past=past)


@pytest.mark.slow
@pytest.mark.parametrize("ran", [NARROW, (1.0, 2.0), (1.0, 2.0, 4.0, 8.0)])
def test_ranges_widen_and_hold(ran: Sequence[float]) -> None:
    widths = []
    for times in (1.0, 2.0, 10.0, 100.0, 1_000.0):
        size = max(ran) * times
        problem = beyond(size, ran)
        searcher = make(problem)
        widths.append(width(problem))
        found = searcher.recommend(100)
        truths = [problem.truth(one.configuration, problem.resolver.resolve(one.configuration)) for one in found]
        held = [one.runtime_low <= truth.runtime <= one.runtime_high for one, truth in zip(found, truths, strict=True)]
        assert np.mean(held) >= 0.75, times
        assert any("is outside of what was run" in line for line in searcher.basis()) == (times > 1.0)
    assert widths == sorted(widths)
    assert widths[0] < math.log(2.0)
    assert widths[1] < math.log(8.0)
    assert widths[2] < math.log(3_000.0)


@pytest.mark.slow
def test_what_is_asked_far_away_does_not_hide_what_was_run() -> None:
    """A scale that goes from the runs to it would press them together until nothing of them is seen."""
    times = [make(beyond(size, NARROW)).recommend(1)[0].runtime for size in (10.0, 100.0, 1_000.0, 1e6)]
    assert times == sorted(times)
    assert "found to matter: size" in make(beyond(1e6, NARROW)).basis()


def run(**given: float | str) -> PastRun:
    problem = sized({"size": 1.0})
    trial = evaluate(problem, Proposal(problem.candidates.configuration(0)), 0)
    assert trial.observation is not None
    return PastRun(given, np.zeros(1), trial, trial.observation, own=False)


def test_the_scale_follows_the_present_value_up_to_a_width() -> None:
    def scale(wanted: float, *ran: float) -> tuple[float, ...]:
        rows = JobParameterMap({"size": wanted}, [run(size=size) for size in ran]).rows([{"size": v} for v in ran])
        return tuple(rows[:, 0].round(9).tolist())

    e = math.e
    assert scale(2.0, 1.0, 4.0) == (-1.0, 1.0)
    assert scale(e**2, 1.0, e) == (-1.0, 0.0)
    assert scale(e**9, 1.0, e) == (-1.0, 0.0)
    assert scale(e**-9, 1.0, e) == (0.0, 1.0)
    assert scale(e**9, 1.0, e**4) == (-1.0, 1.0)
    assert scale(0.0, -1.0, 1.0) == (-1.0, 1.0)
    assert scale(50.0, -1.0, 1.0) == (-1.0, 0.0)


def test_how_far_a_time_may_be_off() -> None:
    runs = [run(size=1.0, shift=-1.0, data="a"), run(size=math.e, shift=1.0, data="b")]
    inside: Values = {"size": 2.0, "shift": 0.5, "data": "a"}
    assert extrapolation_spreads(inside, runs) == {}
    assert extrapolation_spreads({**inside, "size": math.e**3}, runs) == {"size": pytest.approx(2.0 * 0.5 / 1.5)}
    assert extrapolation_spreads({**inside, "size": math.e**-3}, runs) == {"size": pytest.approx(3.0 * 0.5 / 1.5)}
    assert extrapolation_spreads({**inside, "shift": 2.0}, runs) == {
        "shift": pytest.approx(math.log1p(0.5) * LOG_SPREAD)
    }
    assert extrapolation_spreads({**inside, "data": "c"}, runs) == {"data": LOG_SPREAD}
    assert extrapolation_spreads({**inside, "size": 9.0}, runs[:1]) == {}  # it never varied: `unknown_spread`


def test_runs_that_failed_say_nothing_of_how_long_it_takes() -> None:
    failed = []
    for study in history([{"size": 10.0}] * 2, proportional):
        [trial] = study.trials
        failed.append(replace(study, trials=(replace(trial, state=TrialState.FAILED),)))
    problem = beyond(10.0, NARROW)
    basis = make(replace(problem, past=(*problem.past, *failed))).basis()
    assert "size=10 is outside of what was run, 1 to 1.2: how the time goes on there is a guess" in basis


def test_a_word_that_no_run_had_widens_the_range_and_is_told_of() -> None:
    inputs: list[Values] = [{"size": 10.0, "data": "ab"[i % 2]} for i in range(24)]
    known, other = (replace(sized({"size": 10.0, "data": word}), past=history(inputs)) for word in ("b", "c"))
    assert width(other) > width(known) + 2.0 * LOG_SPREAD
    assert "no run with data=c came to its end: how the time depends on it is not known" in make(other).basis()


def test_the_range_of_a_number_is_known_where_it_is_on_a_log_scale() -> None:
    wanted: Values = {"size": 4.0, "shift": 0.0, "word": "a"}
    runs = [run(size=size, shift=shift, word=word) for size, shift, word in ((1.0, -1.0, "b"), (64.0, 1.0, "a"))]
    assert JobParameterMap(wanted, runs).log_widths == pytest.approx([0.5 * math.log(64.0), 0.0, 0.0])
