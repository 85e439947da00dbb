from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.stopper.base import LearningCurve

VALUES = st.floats(allow_nan=True, allow_infinity=True, width=32)
POINTS = st.lists(st.tuples(st.integers(-3, 12).map(float), VALUES), max_size=30)


def test_a_curve_knows_best_mean_and_arrival() -> None:
    curve = LearningCurve()
    assert curve.extend([(1, 4.0), (2, 2.0), (4, 3.0)])
    assert (curve.best(0.5), curve.best(1), curve.best(3), curve.best(9)) == (math.inf, 4.0, 2.0, 2.0)
    assert (curve.average(0), curve.average(2), curve.average(9)) == (None, 3.0, 3.0)
    assert (curve.arrival(2), curve.arrival(3), curve.arrival(5)) == (2.0, 3.0, None)


def test_values_to_be_large_are_turned_round() -> None:
    curve = LearningCurve(maximise=True)
    curve.extend([(1, 0.5), (2, 0.9), (3, 0.7)])
    assert curve.best(3) == -0.9
    assert curve.value(curve.best(3)) == 0.9


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_finite_number_is_the_worst(value: float) -> None:
    curve = LearningCurve()
    curve.extend([(1, value), (2, 1.0)])
    assert list(curve.losses) == [math.inf, 1.0]
    assert curve.average(2) == math.inf


@pytest.mark.slow
@given(POINTS, st.integers(0, 30))
def test_a_curve_is_the_same_in_one_piece_or_two(points: list[tuple[float, float]], cut: int) -> None:
    one, two = LearningCurve(), LearningCurve()
    one.extend(points)
    two.extend(points[:cut])
    known = len(two.steps)
    two.extend(points[cut:])
    assert (one.steps, one.losses) == (two.steps, two.losses)
    assert two.fresh == known
    assert list(one.steps) == sorted(set(one.steps))
    for step in one.steps:
        upto = [loss for place, loss in zip(one.steps, one.losses, strict=True) if place <= step]
        assert one.best(step) == min(upto)
