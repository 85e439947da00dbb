"""What a search may expect of its next run."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tradewind.tenancy.expect import chance, gain, improvement


@pytest.mark.parametrize("quantile", [0.3, 0.05, 0.01])
def test_the_chance_is_about_right_for_random_draws(quantile: float) -> None:
    rng = np.random.default_rng(7)
    found = [chance((rng.normal(size=60) ** 2).tolist(), 0.0) for _ in range(50)]
    assert all(0 < each < 0.2 for each in found)
    target = float(np.quantile(rng.normal(size=100_000), quantile))
    found = [chance(rng.normal(size=100).tolist(), target) for _ in range(200)]
    assert quantile / 2.2 < float(np.mean(found)) < quantile * 2.2


def test_few_results_say_what_holds_for_all_draws() -> None:
    assert chance([], 1.0) == 1.0
    assert chance([5.0, 6.0], 1.0) == pytest.approx(1 / 3)
    assert chance([math.inf] * 9, 1.0) == pytest.approx(1 / 10)


def test_a_harder_target_is_less_likely() -> None:
    values = np.random.default_rng(0).random(40).tolist()
    found = [chance(values, target) for target in (0.5, 0.1, 0.05, 0.0, -0.5)]
    assert found == sorted(found, reverse=True)
    assert found[-1] > 0


def test_improvement_falls_with_results() -> None:
    rng = np.random.default_rng(3)
    short = float(np.mean([improvement(rng.random(10).tolist()) for _ in range(100)]))
    long = float(np.mean([improvement(rng.random(200).tolist()) for _ in range(100)]))
    assert long < short / 3
    assert improvement([1.0]) == math.inf
    assert improvement([1.0] * 20) == pytest.approx(1 / 21)


def test_gain_is_for_each_second() -> None:
    values = [3.0, 2.0, 4.0, 1.0, 5.0]
    assert gain(values, [2.0] * 5, 0.5) == pytest.approx(chance(values, 0.5) / 2.0)
    assert gain(values, [4.0] * 5) == pytest.approx(improvement(values) / 4.0)
    assert gain([], []) is None
