"""The closed forms against numerical integration, and their limits."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm
from tests.effort import share

from tradewind.searcher import acquisition

MEAN = st.floats(-3.0, 3.0)
SD = st.floats(0.05, 2.0)
MONEY = st.floats(0.01, 20.0)
SMALL = st.floats(0.0, 2.0)


def integrate(value: object, mean: float, sd: float, edges: list[float]) -> float:
    """The expectation of ``value(X)``, ln X ~ N(mean, sd²), cut at the edges where it is not smooth."""
    low, high = mean - 9 * sd, mean + 9 * sd
    cuts = sorted({low, high, *(math.log(e) for e in edges if e > 0 and low < math.log(e) < high)})
    total = 0.0
    for a, b in itertools.pairwise(cuts):
        part, _ = quad(lambda g: value(math.exp(g)) * norm.pdf(g, mean, sd), a, b, limit=200)  # type: ignore[operator]
        total += part
    return total


@pytest.mark.slow
@settings(max_examples=share(60), deadline=None)
@given(MEAN, SD, MONEY, MONEY, SMALL, SMALL)
def test_expected_saving_is_the_integral(
    mean: float, sd: float, best: float, cap: float, setup: float, floor: float
) -> None:
    def saved(x: float) -> float:
        return max(0.0, best - max(setup + x, floor)) if x <= cap else 0.0

    wanted = integrate(saved, mean, sd, [cap, best - setup, floor - setup])
    assert float(acquisition.expected_saving(mean, sd, best, cap, setup, floor)) == pytest.approx(wanted, abs=1e-6)


@pytest.mark.thorough
@pytest.mark.slow
@settings(max_examples=share(60), deadline=None)
@given(MEAN, SD, MONEY, SMALL, SMALL)
def test_expected_spend_is_the_integral(mean: float, sd: float, cap: float, setup: float, floor: float) -> None:
    wanted = integrate(lambda x: max(setup + min(x, cap), floor), mean, sd, [cap, floor - setup])
    assert float(acquisition.expected_spend(mean, sd, cap, setup, floor)) == pytest.approx(wanted, rel=1e-5, abs=1e-6)


@pytest.mark.slow
@settings(max_examples=share(40), deadline=None)
@given(MEAN, SD, st.floats(-5.0, 5.0))
def test_expected_improvement_is_the_integral(mean: float, sd: float, best: float) -> None:
    wanted, _ = quad(lambda y: max(0.0, best - y) * norm.pdf(y, mean, sd), mean - 9 * sd, max(best, mean - 8.9 * sd))
    assert float(acquisition.expected_improvement(mean, sd, best)) == pytest.approx(wanted, abs=1e-6)


def test_the_formula_of_the_design_page() -> None:
    """y*·Φ(z) − e^{m+s²/2}·Φ(z−s) with z = (ln k − m)/s and k = min(Tmax·p, y*)."""
    m, s, best, cap = 0.2, 0.6, 1.5, 1.1
    z = (math.log(min(cap, best)) - m) / s
    wanted = best * norm.cdf(z) - math.exp(m + s * s / 2) * norm.cdf(z - s)
    assert float(acquisition.expected_saving(m, s, best, cap)) == pytest.approx(wanted)


def test_a_certain_run_saves_the_difference() -> None:
    assert float(acquisition.expected_saving(math.log(2.0), 0.0, 5.0, np.inf)) == pytest.approx(3.0)
    assert float(acquisition.expected_saving(math.log(2.0), 0.0, 5.0, 1.9)) == 0.0
    assert float(acquisition.expected_spend(math.log(2.0), 0.0, 0.5, setup=0.1)) == pytest.approx(0.6)


def test_nothing_is_saved_below_the_least_bill() -> None:
    assert float(acquisition.expected_saving(-5.0, 1.0, 0.5, np.inf, floor=0.5)) == 0.0
    assert float(acquisition.expected_saving(-5.0, 1.0, 0.5, np.inf, setup=0.7)) == 0.0


def test_a_free_machine_saves_everything() -> None:
    assert float(acquisition.expected_saving(-np.inf, 1.0, 0.5, np.inf)) == pytest.approx(0.5)
    assert float(acquisition.expected_spend(-np.inf, 1.0, np.inf)) == 0.0


def test_giants_do_not_overflow() -> None:
    spend = acquisition.expected_spend(np.array([900.0, 3.0]), np.array([50.0, 100.0]), np.array([2.0, 2.0]))
    assert np.isfinite(spend).all()
    assert (spend <= 2.0 + 1e-9).all()


def test_probabilities() -> None:
    assert float(acquisition.probability_below(0.0, 1.0, np.inf)) == 1.0
    assert float(acquisition.probability_below(0.0, 1.0, 1.0)) == pytest.approx(0.5)
    assert float(acquisition.probability_below(0.0, 1.0, 0.0)) == 0.0
    assert float(acquisition.probability_between(0.0, 1.0, -np.inf, np.inf)) == 1.0
    assert float(acquisition.probability_between(0.0, 1.0, -1.0, 1.0)) == pytest.approx(0.6826895)
