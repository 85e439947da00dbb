"""Levels of weighted use: sums with a half-life, in any order."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.deployer.runner.warden.weighted_use import NEVER, WeightedUse

AMOUNTS = st.lists(st.tuples(st.floats(0.001, 1000), st.floats(0, 10_000)), min_size=1, max_size=8)


@given(AMOUNTS, st.sampled_from([10.0, 1000.0, 1e6]))
def test_a_level_is_what_was_used_with_its_half_life(amounts: list[tuple[float, float]], half_life: float) -> None:
    use, later = WeightedUse(half_life), 10_000.0
    for amount, since in amounts:
        use.used("t", amount, since)
    left = sum(amount * 2 ** ((since - later) / half_life) for amount, since in amounts)
    assert 2 ** (use.level("t") - later / half_life) == pytest.approx(left)
    assert use.difference("t", "nobody", later) == pytest.approx(left)


def test_what_was_counted_too_much_is_taken_back() -> None:
    use = WeightedUse(100.0)
    use.used("t", 5.0, 0.0)
    use.used("t", -3.0, 0.0)
    assert 2 ** use.level("t") == pytest.approx(2.0)
    use.used("t", -2.5, 0.0)
    assert use.level("t") == NEVER


def test_who_comes_begins_where_the_one_stood_that_was_next_last() -> None:
    use = WeightedUse(100.0)
    use.used("a", 8.0, 0.0)
    use.came("b")
    assert use.level("b") == NEVER
    use.began(use.level("a"))
    use.came("b")
    use.came("c", credit=4.0)
    assert use.level("b") == use.level("a") == 3.0
    assert use.level("c") == pytest.approx(math.log2(8 - 4))
    use.used("a", 8.0, 0.0)
    use.came("a")
    assert use.level("a") == 4.0
