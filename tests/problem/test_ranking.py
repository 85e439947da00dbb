from __future__ import annotations

import math
from collections.abc import Iterable

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
    assert pair.varies == (apart > 0.005)
    steady = [run(i, "a", 1.0 + apart * (i % 2)) for i in range(12)]
    assert ranked(steady, None).varies is False


def test_the_spread_grows_with_the_deviations_and_settles_with_their_number() -> None:
    found = [spread_of_repeats(2.0 * sd**2, 2) for sd in (0.0, 0.005, 0.02, 0.1, 0.4)]
    assert found == sorted(found)
    assert abs(spread_of_repeats(50 * 0.1**2, 50) - 0.1) < abs(spread_of_repeats(0.1**2, 1) - 0.1) + 0.01
