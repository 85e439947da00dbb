"""What a further trial is worth, by the trials so far."""

from __future__ import annotations

import itertools
import math
import statistics

import pytest

from tradewind.searcher.stopping import empirical_worth, why_unpaid

LOSSES = [1.0, 5.0, 4.0, 3.0, 2.0, 1.5, math.inf]


def test_a_random_order_of_the_same_trials_says_what_one_brings() -> None:
    worth = empirical_worth(LOSSES, [1.0, 1.0, 1.0, 3.0, 3.0, 3.0, 3.0])
    halves = [min(5.0, *half) for half in itertools.combinations(LOSSES, 3)]
    assert worth is not None
    assert worth.saving == pytest.approx((statistics.mean(halves) - 1.0) / 4)
    assert worth.spend == 3.0, "of the later half"


def test_what_happened_counts_where_it_was_more() -> None:
    worth = empirical_worth(LOSSES[::-1], [1.0] * 7)
    assert worth is not None
    assert worth.saving == pytest.approx((1.5 - 1.0) / 4, rel=0.5)
    falling = empirical_worth([10.0, 9.0, 8.0, 7.0, 2.0, 1.0], [1.0] * 6)
    assert falling is not None
    assert falling.saving == pytest.approx(7.0 / 3)


def test_nothing_is_said_of_few_trials_or_of_failures_alone() -> None:
    assert empirical_worth([1.0] * 5, [1.0] * 5) is None
    assert empirical_worth([math.inf] * 9, [1.0] * 9) is None
    level = empirical_worth([2.0] * 9, [1.0] * 9)
    assert level is not None
    assert level.saving == 0.0


def test_the_reason_says_what_another_dollar_brings_back() -> None:
    assert why_unpaid(0.2, 0.5, 100.0) == (
        "no trial is worth its money: the best would save $0.200 over 100 runs and cost $0.500; "
        "another dollar of search would bring back $0.400"
    )
