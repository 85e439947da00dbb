from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tradewind.problem import Constraints, Objective, Threshold
from tradewind.problem.ranking import ConfigurationRanking, MeasuredRun, spread_of_repeats
from tradewind.testing.stores import trial


def run(number: int, key: str, loss: float, runtime: float | None = None, feasible: bool = True) -> MeasuredRun:
    return MeasuredRun(number, key, loss, 100.0 * loss if runtime is None else runtime, feasible)


def ranked(
    runs: Iterable[MeasuredRun], deadline: float | None, *bounds: Threshold, goal: Objective | None = None
) -> ConfigurationRanking:
    return ConfigurationRanking(runs, goal or Objective(), Constraints(deadline, bounds))


def test_the_spread_is_that_of_many_repetitions() -> None:
    rng = np.random.default_rng(0)
    for sd in (0.02, 0.1, 0.3):
        deviations = sd * rng.standard_normal(200)
        assert spread_of_repeats(float((deviations**2).sum()), 200) == pytest.approx(sd, rel=0.15)


def test_an_exact_repetition_shows_that_runs_do_not_vary() -> None:
    standing = ranked([run(0, "a", 1.0), run(1, "a", 1.0)], None)
    assert standing.spread is not None
    assert standing.spread < 0.01
    assert not standing.varies
    assert ranked([run(0, "a", 1.0), run(1, "a", 1.2)], None).varies
    assert ranked([run(0, "a", 1.0), run(1, "b", 1.2)], None).spread is None


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0.1, 9.0), st.booleans()), min_size=1, max_size=12), st.floats(5.0, 900.0))
def test_without_repetitions_the_least_feasible_run_is_the_best(
    runs: list[tuple[float, bool]], deadline: float
) -> None:
    measured = [run(i, str(i), loss, feasible=ok) for i, (loss, ok) in enumerate(runs)]
    best = ranked(measured, deadline).best_run
    feasible = [one for one in measured if one.feasible]
    if not feasible:
        assert best is None
    else:
        assert best is not None
        assert (best.loss, best.number) == min((one.loss, one.number) for one in feasible)


@pytest.mark.slow
@settings(deadline=None)
@given(st.randoms(use_true_random=False))
def test_the_order_of_the_runs_does_not_matter(random: object) -> None:
    measured = [run(i, "abc"[i % 3], 1.0 + 0.1 * (i * 7 % 5)) for i in range(9)]
    shuffled = list(measured)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert ranked(shuffled, 130.0).best_run == ranked(measured, 130.0).best_run


def test_a_lucky_run_does_not_stand_for_its_configuration() -> None:
    lucky = [run(0, "a", 1.0), run(1, "a", 1.4), run(2, "a", 1.5), run(3, "b", 1.15), run(4, "b", 1.05)]
    standing = ranked(lucky, None)
    assert standing.best_run is not None
    assert standing.best_run.key == "b"
    assert standing.best_loss == pytest.approx(1.1)


def test_the_usual_time_is_held_against_the_deadline() -> None:
    runs = [
        run(0, "a", 1.0, 95.0),
        run(1, "a", 1.1, 112.0, False),
        run(2, "a", 1.1, 111.0, False),
        run(3, "b", 1.2, 60.0),
    ]
    standing = ranked(runs, 100.0)
    assert standing.best_run == runs[3]
    in_time = [run(one.number, one.key, one.loss, one.runtime) for one in runs]
    assert ranked(in_time, 1000.0).best_loss == pytest.approx(3.2 / 3)


def test_failures_count_against_a_configuration() -> None:
    good = [run(0, "a", 1.0), run(1, "a", 1.1), run(2, "b", 1.25), run(3, "b", 1.2)]
    assert ranked(good, None).best_loss == pytest.approx(1.05)
    failed = [MeasuredRun(number, "a", math.nan, 3.0, False) for number in (4, 5, 6)]
    assert ranked([*good, *failed], None).best_loss == pytest.approx(1.225)


def test_a_run_that_was_cut_short_is_a_bound_beside_others_and_nothing_alone() -> None:
    cut = [MeasuredRun(i, "a", 1.5, 150.0, False, censored=True) for i in (1, 2)]
    standing = ranked([run(0, "a", 1.0), *cut, run(3, "b", 1.2)], None)
    assert standing.times.tolist() == [3.0, 1.0]
    assert standing.best_loss == pytest.approx(1.2)
    assert not ranked(cut, None).runs


@pytest.mark.parametrize("share", [1.0, 0.5, 0.1])
def test_a_repeat_cut_short_makes_no_configuration_better(share: float) -> None:
    cut = MeasuredRun(2, "a", share, 1000.0 * share, False, censored=True)
    standing = ranked([run(0, "a", 1.0, 1000.0), run(1, "b", 0.9, 900.0), cut], None)
    assert standing.best_run is not None
    assert standing.best_run.key == "b"
    assert standing.best_loss == 0.9
    assert standing.spread is None, "the cut run could have been as long as the other one"
    assert standing.loss.tolist() == pytest.approx([1.0, 0.9])
    assert np.exp(standing.log_time).tolist() == pytest.approx([1000.0, 900.0])
    assert standing.times.tolist() == [2.0, 1.0]


def test_runs_that_vary_are_told_by_those_that_ended() -> None:
    ended = [run(0, "a", 1.0), run(1, "b", 0.9), run(3, "a", 1.2)]
    with_cut = ranked([*ended, MeasuredRun(2, "a", 0.2, 20.0, False, censored=True)], None)
    assert with_cut.varies
    assert with_cut.spread == ranked(ended, None).spread
    assert with_cut.best_loss == 0.9


def test_a_cut_run_without_a_loss_says_only_how_long_it_took() -> None:
    cut = MeasuredRun(2, "a", math.nan, 150.0, False, censored=True)
    standing = ranked([run(0, "a", 1.0), cut], None)
    assert standing.loss.tolist() == [1.0]
    assert np.exp(standing.log_time).tolist() == pytest.approx([math.sqrt(100.0 * 150.0)])
    assert standing.spread is not None


def test_what_trials_say_of_it() -> None:
    seen = MeasuredRun.of(trial(3, 0.5), Objective(goal="maximise"))
    assert seen == MeasuredRun(3, f"{3:016x}", -0.5, 61.5, True)
    assert MeasuredRun.of(trial(3), Objective()) is None


@pytest.mark.parametrize("apart", [0.001, 0.004, 0.009])
def test_one_pair_of_runs_that_agree_does_not_make_all_runs_alike(apart: float) -> None:
    pair = ranked([run(0, "a", 1.0), run(1, "a", 1.0 + apart)], None)
    assert pair.worth_repeating == (apart > 0.005)
    steady = ranked([run(i, "a", 1.0 + apart * (i % 2)) for i in range(12)], None)
    assert not steady.worth_repeating
    assert steady.best_loss == pytest.approx(1.0 + apart / 2), "they count together all the same"


def test_the_spread_grows_with_the_deviations_and_settles_with_their_number() -> None:
    found = [spread_of_repeats(2.0 * sd**2, 2) for sd in (0.0, 0.005, 0.02, 0.1, 0.4)]
    assert found == sorted(found)
    assert abs(spread_of_repeats(50 * 0.1**2, 50) - 0.1) < abs(spread_of_repeats(0.1**2, 1) - 0.1) + 0.01


SCORE = Objective("score", "maximise")


def scored(key: str, first: int, scores: Sequence[float], feasible: Sequence[bool] | None = None) -> list[MeasuredRun]:
    return [
        MeasuredRun(first + i, key, -score, 100.0, feasible is None or feasible[i]) for i, score in enumerate(scores)
    ]


def test_a_lucky_score_does_not_stand_for_its_configuration_though_the_times_are_steady() -> None:
    steady = [98.0, 99.0, 100.0, 101.0, 102.0, 100.0, 99.5, 100.5, 98.5, 101.5, 100.0, 100.0]
    lucky = [75.0, 76.0, 78.0, 80.0, 82.0, 130.0, 77.0, 79.0, 81.0, 75.5, 76.5, 78.5]
    standing = ranked(scored("a1", 0, steady) + scored("a2", 12, lucky), None, goal=SCORE)
    assert standing.best_run is not None
    assert standing.best_run.key == "a1"
    assert standing.best_loss == pytest.approx(-100.0)
    (varied,) = standing.variations
    assert (varied.metric, varied.relative) == ("score", True)
    assert 0.05 < varied.spread < 0.2


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e6])
@pytest.mark.parametrize("shift", [-1000.0, 0.0, 3.0])
def test_neither_unit_nor_origin_of_a_score_decides(scale: float, shift: float) -> None:
    scores = {"a": [0.1, -0.2, 0.05], "b": [0.3, -0.9, -0.3], "c": [-0.1, -0.15, 0.1]}
    moved = [
        one
        for n, (key, own) in enumerate(scores.items())
        for one in scored(key, 3 * n, [scale * (v + shift) for v in own])
    ]
    standing = ranked(moved, None, goal=SCORE)
    assert [standing.runs[place][0].key for place in standing.order] == ["a", "c", "b"]


def test_a_bounded_metric_is_judged_by_its_usual_value() -> None:
    """One lucky run of the first keeps the bound; the second always does."""
    bound = Threshold("errors", at_most=10.0)
    errors = {"a": [9.0, 14.0, 15.0, 16.0], "b": [6.0, 7.0, 7.0, 8.0]}
    runs = [
        MeasuredRun(4 * n + i, key, cost, 100.0, value <= 10.0, figures=(value,))
        for n, (key, cost) in enumerate((("a", 1.0), ("b", 1.5)))
        for i, value in enumerate(errors[key])
    ]
    standing = ranked(runs, None, bound)
    assert standing.best_run is not None
    assert standing.best_run.key == "b"
    assert [one.metric for one in standing.variations] == ["errors"]
    assert standing.within_bounds[0] < 0.1 < 0.9 < standing.within_bounds[1]
    usual = [MeasuredRun(i, "a", 1.0, 100.0, v <= 10.0, figures=(v,)) for i, v in enumerate((7.0, 8.0, 10.5, 7.5))]
    assert ranked([*usual, *runs[4:]], None, bound).best_loss == pytest.approx(1.0), "one bad run of four is bad luck"


def test_a_count_that_always_lies_on_its_bound_keeps_it() -> None:
    bound = Threshold("errors", at_most=0.0)
    errors = {"a": [0.0, 0.0, 0.0], "b": [0.0, 4.0, 5.0]}
    runs = [
        MeasuredRun(3 * n + i, key, 1.0, 100.0, value <= 0.0, figures=(value,))
        for n, (key, own) in enumerate(errors.items())
        for i, value in enumerate(own)
    ]
    standing = ranked(runs, None, bound)
    assert standing.within_bounds[0] > 0.6
    assert standing.within_bounds[1] < 0.3


def test_a_metric_that_is_missing_counts_as_broken() -> None:
    runs = [MeasuredRun(i, "a", 1.0 + 0.1 * i, 100.0, i == 0, figures=(5.0 if i == 0 else math.nan,)) for i in range(3)]
    runs += [MeasuredRun(3 + i, "b", 1.4, 100.0, True, figures=(5.0,)) for i in range(2)]
    standing = ranked(runs, None, Threshold("errors", at_most=10.0))
    assert standing.kept.tolist() == pytest.approx([1 / 3, 1.0])
    assert standing.best_run is not None
    assert standing.best_run.key == "b"


def test_a_deadline_is_judged_by_the_time_though_the_score_is_what_counts() -> None:
    late = [MeasuredRun(i, "a", -9.0 - i % 2, t, t <= 100.0) for i, t in enumerate((99.0, 118.0, 121.0, 125.0))]
    good = [MeasuredRun(4 + i, "b", -8.0 - i % 2, t, True) for i, t in enumerate((60.0, 70.0, 66.0, 64.0))]
    standing = ranked([*late, *good], 100.0, goal=SCORE)
    assert standing.best_run is not None
    assert standing.best_run.key == "b"
    assert [one.metric for one in standing.variations] == ["score", "runtime"]
    assert [one.metric for one in ranked([*late, *good], None, goal=SCORE).variations] == ["score"]


def test_values_without_a_limit_or_a_middle_break_nothing() -> None:
    huge = [1e300, 1.2e300, -1e300, 5.0]
    standing = ranked(scored("a", 0, huge) + scored("b", 4, [1.0, 2.0]), None, goal=SCORE)
    assert standing.best_run is not None
    equal = ranked(scored("a", 0, [0.0, 0.0]) + scored("b", 2, [0.0, 0.0]), None, goal=SCORE)
    assert not equal.varies
