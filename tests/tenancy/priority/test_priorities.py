"""The priorities within a tenant."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tradewind.tenancy.priority.dynamic import DynamicPriority
from tradewind.tenancy.priority.expected_gain import GainPriority
from tradewind.tenancy.priority.least_attained import LeastAttainedPriority
from tradewind.tenancy.views import JobView


def dynamic(**settings: Any) -> DynamicPriority:
    return DynamicPriority(settings=DynamicPriority.Settings(**settings))


def tell(priority: DynamicPriority, job: JobView, *values: float) -> list[int]:
    """Tell results; how far the search has fallen after each."""
    found = []
    for value in values:
        job.values.append(value)
        priority.told(job)
        found.append(int(priority.key(job)[0]))
    return found


def test_algorithm_1_by_hand() -> None:
    # m = 3, k = 1: the rule looks from the fourth result on. Thresholds 0.1, 0.05, 0.025, ...
    priority, job = dynamic(sample=3, multiple=1, threshold=0.1, shrink=0.5, tolerance=0.01), JobView("j", 1)
    # Best three after each: (1, 2, 5) no rule yet; (1, 2, 3): gap 1; (0.95, 1, 2): gap 0.05 < 0.1;
    # (0.95, 1, 1.5): 0.05 is not below the new 0.05, and the mean of 1 and 0.05 is 0.525;
    # (0.95, 0.97, 1): 0.02 < 0.05.
    assert tell(priority, job, 1, 2, 5, 3, 0.95, 1.5, 0.97) == [0, 0, 0, 0, 1, 1, 2]
    assert priority.declines(job) == 2


def test_a_gap_like_the_mean_of_earlier_ones_counts() -> None:
    priority, job = dynamic(sample=2, multiple=0, threshold=0.0, tolerance=0.1), JobView("j", 1)
    assert tell(priority, job, 10.0, 9.0) == [0, 0]
    assert tell(priority, job, 7.95) == [1]  # a gap of 1.05 beside a mean of 1
    assert tell(priority, job, 4.0) == [1]


def test_one_search_does_not_lower_another() -> None:
    priority = dynamic(sample=2, multiple=0, threshold=1.0)
    still, gains = JobView("still", 1), JobView("gains", 2)
    tell(priority, still, 1.0, 1.0, 1.0)
    assert priority.key(gains) == (0.0, 2.0)
    assert priority.key(still)[0] >= 1
    priority.forget(still)
    assert priority.key(still)[0] == 0


def test_failed_trials_count_as_results_and_not_as_values() -> None:
    priority, job = dynamic(sample=2, multiple=1, threshold=1.0), JobView("j", 1)
    assert tell(priority, job, float("inf"), float("inf"), float("inf")) == [0, 0, 0]
    assert tell(priority, job, 1.0, 1.5) == [0, 1]


def test_idle_offers_raise_it_again_in_a_row_only() -> None:
    priority, job = dynamic(sample=2, multiple=0, threshold=1.0, idle_rounds=2), JobView("j", 1)
    tell(priority, job, 1.0, 1.0)
    fallen = priority.key(job)[0]
    for taken in (False, True, False):
        priority.declined(job, taken=taken)
    assert priority.key(job)[0] == fallen
    priority.declined(job, taken=False)
    assert priority.key(job)[0] == fallen - 1


def test_it_falls_so_far_and_rises_at_once_when_nobody_else_waits() -> None:
    priority, job = dynamic(sample=2, multiple=0, threshold=1.0, lowest=3), JobView("j", 1)
    assert tell(priority, job, *[1.0] * 6) == [0, 1, 2, 3, 3, 3]
    assert priority.declines(job) == 3
    priority.unopposed(job)
    assert (priority.key(job)[0], priority.declines(job)) == (0, 0)
    assert tell(priority, job, 1.0) == [1]


def test_how_far_it_had_fallen_is_recalled_once_all_earlier_results_are_told() -> None:
    before, job = dynamic(sample=2, multiple=0, threshold=1.0), JobView("j", 1)
    tell(before, job, *[1.0] * 4)
    before.unopposed(job)
    tell(before, job, 1.0)
    kept = before.remembered(job)
    assert kept == {"results": 5, "fallen": 1, "idle": 0}
    after, again = dynamic(sample=2, multiple=0, threshold=1.0), JobView("j", 1)
    after.recall(again, kept)
    assert tell(after, again, *[1.0] * 3) == [0, 1, 2]
    assert after.remembered(again) == kept, "until all are told again, another restart finds the same"
    assert tell(after, again, 1.0, 1.0, 1.0) == [3, 1, 2]
    for junk in ({}, {"results": -1, "fallen": 1, "idle": 0}, {"results": "5", "fallen": 1, "idle": 0}):
        after.recall(again, junk)
        assert int(after.key(again)[0]) == 2


def test_least_attained_counts_what_runs() -> None:
    priority = LeastAttainedPriority(settings=LeastAttainedPriority.Settings())
    idle = JobView("a", 1, seconds=[10.0], attained=5.0, share=0.5)
    busy = JobView("b", 2, seconds=[10.0], attained=3.0, running=1, share=0.5)
    assert priority.key(idle) == (5.0,)
    assert priority.key(busy) == (8.0,)


def test_gain_for_each_second_and_share() -> None:
    priority = GainPriority(settings=GainPriority.Settings())
    small = JobView("small", 1, values=[1.0], seconds=[10.0], share=0.1)
    large = JobView("large", 2, values=[1.0], seconds=[10.0], share=0.2)
    assert priority.key(small) < priority.key(large)
    # By hand: 30 + 3 + 2 runs, of 2 s, of half the cluster.
    some = JobView("some", 3, values=[1.0, 2.0, 3.0], seconds=[1.0, 2.0, 3.0], running=2, share=0.5)
    assert priority.key(some) == pytest.approx((0.0, 35 * 2 * 0.5))
    new, begun = JobView("new", 4), JobView("begun", 5, running=1)
    assert priority.key(new) < priority.key(small) < priority.key(begun)


def test_gain_counts_what_a_model_has_promised_up_to_what_is_believed() -> None:
    priority = GainPriority(settings=GainPriority.Settings())
    # By hand: (30 + 3 + 2) runs for 1 + 0.5 successes, of 2 s, of half the cluster.
    some = JobView("some", 1, seconds=[1.0, 2.0, 3.0], running=2, share=0.5, promised=0.5, promises=4)
    assert priority.key(some) == pytest.approx((0.0, 35 / 1.5 * 2 * 0.5))
    some.promised = 50.0
    assert priority.key(some) == pytest.approx((0.0, 35 / 4 * 2 * 0.5)), "a model that promises in vain gives way"
    without = GainPriority(settings=GainPriority.Settings(believed=0.0))
    silent = JobView("silent", 2, seconds=[1.0, 2.0, 3.0], running=2, share=0.5)
    assert without.key(some) == priority.key(silent) == (0.0, 35.0), "a searcher without a model, as ever"


def test_gain_counts_earlier_searches_as_successes_of_the_same_chance() -> None:
    priority = GainPriority(settings=GainPriority.Settings())
    # By hand: 30 + 12 + 3 + 2 runs for 1 + 2 successes, of (1 + 2 + 3 + 3 * 4) / 6 s, of half the cluster.
    some = JobView("some", 1, seconds=[1.0, 2.0, 3.0], running=2, share=0.5, earlier=(4, 8), usual_seconds=4.0)
    assert priority.key(some) == pytest.approx((0.0, 47 / 3 * 3 * 0.5))
    # Twenty of five results each count as ten: 30 + 50 runs for 1 + 10 successes.
    often = JobView("often", 2, share=1.0, earlier=(5,) * 20, usual_seconds=4.0)
    assert priority.key(often) == pytest.approx((0.0, 80 / 11 * 4)), "its runs are known before the first"
    unknown = JobView("unknown", 3, share=1.0, earlier=(5,) * 20)
    assert priority.key(unknown) == (-1.0, 0.0), "without their seconds its own first run has to show them"
    without = GainPriority(settings=GainPriority.Settings(recalled=0.0))
    some.seconds, some.running = [2.0], 0
    assert without.key(some) == pytest.approx((0.0, 31 * 2 * 0.5))
    some.seconds = []
    assert without.key(some) == (-1.0, 0.0)


def test_gain_takes_the_seconds_that_a_model_expects_where_it_is_told_to() -> None:
    job = JobView("j", 1, seconds=[10.0], share=1.0, expected=20.0)
    found = [GainPriority(settings=GainPriority.Settings(foreseen=each)).key(job)[1] for each in (0.0, 0.5, 1.0)]
    assert found == pytest.approx([31 * 10.0, 31 * 15.0, 31 * 20.0])
    job.expected = None
    assert GainPriority(settings=GainPriority.Settings(foreseen=1.0)).key(job)[1] == pytest.approx(31 * 10.0)


def test_gain_is_the_chance_of_the_next_run_after_so_many_that_failed() -> None:
    """With p from Beta(1, usual - 1), the share of cases in which the run after n misses is the first hit."""
    usual, misses = 5.0, 7
    p = np.random.default_rng(1).beta(1.0, usual - 1.0, size=400_000)
    missed = (1.0 - p) ** misses
    chance = float((missed * p).sum() / missed.sum())
    priority = GainPriority(settings=GainPriority.Settings(usual=usual))
    job = JobView("j", 1, values=[1.0] * 4, seconds=[1.0] * 4, running=3, share=1.0)
    assert 1.0 / priority.key(job)[1] == pytest.approx(chance, rel=0.02)
