"""Pauses between attempts."""

from __future__ import annotations

from itertools import islice

import pytest

from tradewind.utils.retries import Backoff


def test_the_last_pause_goes_on() -> None:
    backoff = Backoff((1.0, 5.0, 60.0))
    assert [backoff.pause(failures) for failures in range(5)] == [1.0, 5.0, 60.0, 60.0, 60.0]
    assert list(islice(backoff, 5)) == [1.0, 5.0, 60.0, 60.0, 60.0]
    assert list(islice(backoff, 2)) == [1.0, 5.0], "each loop begins anew"


@pytest.mark.parametrize(
    ("first", "longest", "pauses"),
    [(1.0, 8.0, (1.0, 2.0, 4.0, 8.0)), (0.5, 5.0, (0.5, 1.0, 2.0, 4.0, 5.0)), (3.0, 3.0, (3.0,))],
)
def test_doubling(first: float, longest: float, pauses: tuple[float, ...]) -> None:
    assert Backoff.doubling(first, longest).pauses == pauses
