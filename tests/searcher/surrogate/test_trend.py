"""The process around a linear trend, the evidence of observations, and the small parts of the default searcher."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm
from tests.searcher.gradients import check_gradient

from tradewind.problem import Configuration, Offer, Ordinal
from tradewind.searcher.candidate_pool import cheap_maximin
from tradewind.searcher.posterior import CandidatePrediction, _mixed
from tradewind.searcher.surrogate.censored import fit_censored
from tradewind.searcher.surrogate.features import FeatureMap
from tradewind.searcher.surrogate.gp import Array, GaussianProcess, log_evidence
from tradewind.searcher.surrogate.trend import LOG_PRIORS, LinearTrend, TrendProcess
from tradewind.testing import problems
from tradewind.testing.problems import KnownOutcome

FLAT = LinearTrend(np.zeros(2), np.full(2, 0.4))
STEEP = LinearTrend(np.array([2.0, 0.0]), np.array([0.5, 0.4]))


def line(x: Array) -> Array:
    values: Array = 3.0 + 1.5 * x[:, 0] - 0.8 * x[:, 1]
    return values


def bounds_of(count: int, *places: int) -> np.ndarray:
    return np.isin(np.arange(count), places)


# ---------------------------------------------------------------------- the trend


def test_gradient_of_the_loss_around_a_trend() -> None:
    rng = np.random.default_rng(0)
    x, y, extra = rng.random((12, 2)), rng.normal(size=12), rng.random(12) * 0.1
    check_gradient(TrendProcess(STEEP), x, y, extra, spread=0.3, tolerance=1e-4)


def test_before_much_is_known_the_expected_slope_counts() -> None:
    """After one run the process expects e² between the ends of a feature, and is as sure as the prior is."""
    process = TrendProcess(STEEP)
    process.fit(np.array([[0.0, 0.5]]), np.array([1.0]))
    mean, _ = process.predict(np.array([[0.0, 0.5], [1.0, 0.5]]))
    assert mean[1] - mean[0] == pytest.approx(2.0, abs=0.15)
    assert process.expected(np.array([[1.0, 0.5]]))[0] - process.expected(np.array([[0.0, 0.5]]))[0] == pytest.approx(2)


@pytest.mark.slow
def test_slopes_are_recovered_and_go_on_outside() -> None:
    rng = np.random.default_rng(1)
    x = rng.random((25, 2)) * 0.5
    far = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    trend = TrendProcess(LinearTrend(np.zeros(2), np.full(2, 2.0))).fit(x, line(x))
    plain = GaussianProcess().fit(x, line(x))
    assert np.abs(trend.predict(far)[0] - line(far)).max() < 0.3
    assert np.abs(trend.predict(far)[0] - line(far)).max() < np.abs(plain.predict(far)[0] - line(far)).max()


@pytest.mark.slow
def test_a_wrong_slope_is_given_up_for_what_is_seen() -> None:
    x = np.random.default_rng(2).random((30, 2))
    process = TrendProcess(STEEP).fit(x, -line(x))
    assert np.abs(process.predict(x)[0] + line(x)).max() < 0.15


def test_the_linear_part_is_exact() -> None:
    """With one observation, mean and variance are those of the joint normal of trend, process and noise."""
    process = TrendProcess(STEEP, level=0.7).fit(np.array([[0.1, 0.9]]), np.array([2.0]))
    a, b = np.array([[0.1, 0.9]]), np.array([[0.8, 0.3]])
    amplitude, noise, first, second = np.exp(process.theta)

    def covariance(u: Array, v: Array) -> float:
        r = math.sqrt(5.0) * math.hypot((u[0, 0] - v[0, 0]) / first, (u[0, 1] - v[0, 1]) / second)
        linear = float(((u[0] - 0.5) * STEEP.sd**2 * (v[0] - 0.5)).sum())
        return float(amplitude**2 * (1 + r + r * r / 3) * math.exp(-r) + LOG_PRIORS.mean**2 + linear)

    def prior(u: Array) -> float:
        return 0.7 + 2.0 * (float(u[0, 0]) - 0.5)

    gain = covariance(a, b) / (covariance(a, a) + noise**2)
    mean, variance = process.predict(b)
    assert mean[0] == pytest.approx(prior(b) + gain * (2.0 - prior(a)), abs=1e-6)
    assert variance[0] == pytest.approx(covariance(b, b) - gain * covariance(a, b), rel=1e-5)


def test_the_level_is_where_it_is_expected_or_the_mean_of_what_is_seen() -> None:
    x, y = np.full((1, 2), 0.5), np.array([10.0])
    at = np.array([[0.5, 0.5]])
    sure = replace(LOG_PRIORS, mean=0.1)
    assert TrendProcess(FLAT).fit(x, y).predict(at)[0][0] == pytest.approx(10.0)
    assert TrendProcess(FLAT, sure, level=0.0).fit(x, y).prior(at)[0][0] == pytest.approx(0.0)
    far = np.array([[30.0, 0.5]])
    pulled = TrendProcess(LinearTrend(np.zeros(2), np.zeros(2)), sure, level=0.0).fit(x, y).predict(far)[0][0]
    assert abs(pulled) < 1.0


def test_units_stay_as_they_are() -> None:
    """Three equal runs do not make the process sure that everything costs the same."""
    x = np.array([[0.0, 0.0], [0.1, 0.0], [0.0, 0.1]])
    process = TrendProcess(FLAT).fit(x, np.full(3, 1.0))
    assert math.sqrt(process.predict(np.array([[1.0, 1.0]]))[1][0]) > 0.4


@pytest.mark.parametrize("level", [None, 2.0])
def test_fantasies_and_given_keep_the_kind(level: float | None) -> None:
    rng = np.random.default_rng(4)
    x, at = rng.random((8, 2)), rng.random((3, 2))
    process = TrendProcess(STEEP, level=level)
    process.fit(x, line(x))
    other = process.fantasize(at)
    assert isinstance(other, TrendProcess)
    assert other.trend is process.trend
    assert other.level == level
    assert np.allclose(process.predict(at)[0], other.predict(at)[0], atol=1e-3)
    assert (other.predict(at)[1] < process.predict(at)[1]).all()
    same = process.given(x, line(x))
    assert isinstance(same, TrendProcess)
    assert np.allclose(same.predict(at), process.predict(at), atol=1e-9)


def test_bounds_pull_a_trend_up() -> None:
    x = np.array([[0.0, 0.0], [0.2, 0.5], [0.4, 0.1], [1.0, 0.5]])
    y = np.array([0.0, 0.1, 0.0, 3.0])
    censored = bounds_of(4, 3)
    free = TrendProcess(FLAT).fit(x[:3], y[:3])
    held = fit_censored(x, y, censored, make=lambda starts, steps: TrendProcess(FLAT, starts=starts, steps=steps))
    assert isinstance(held, TrendProcess)
    assert held.predict(x[[3]])[0][0] > max(2.5, free.predict(x[[3]])[0][0] + 1.0)


def test_a_trend_of_prices() -> None:
    trend = LinearTrend.of_price(3, 1, 2.0, slope=0.4, slope_sd=0.3, other_sd=0.4)
    assert trend.mean.tolist() == [0.0, 0.8, 0.0]
    assert trend.sd.tolist() == pytest.approx([0.4, math.hypot(0.4, 0.6), 0.4])
    without = LinearTrend.of_price(2, None, 1.0, slope=0.4, slope_sd=0.3, other_sd=0.4)
    assert without.mean.tolist() == [0.0, 0.0]
    assert without.sd.tolist() == [0.4, 0.4]


# ---------------------------------------------------------------------- the evidence


def fitted(seed: int = 5, n: int = 7) -> tuple[TrendProcess, Array, Array]:
    rng = np.random.default_rng(seed)
    x = rng.random((n, 2))
    y = line(x) + rng.normal(size=n) * 0.1
    process = TrendProcess(STEEP)
    process.fit(x, y)
    return process, x, y


def test_evidence_of_exact_observations_is_the_normal_density() -> None:
    process, x, y = fitted()
    mean, covariance = process.prior(x)
    whole = covariance + (process.noise_variance + 1e-8) * np.eye(len(y))
    wanted = multivariate_normal(mean, whole).logpdf(y) + 0.5 * len(y) * math.log(2 * math.pi)
    assert log_evidence(process, x, y, bounds_of(7)) == pytest.approx(wanted, rel=1e-9)


def test_evidence_of_one_bound_is_its_probability_given_the_rest() -> None:
    """P(y > b and the exact ones) by the joint density, integrated over what was cut off; counted by half."""
    process, x, y = fitted()
    mean, covariance = process.prior(x)
    whole = covariance + (process.noise_variance + 1e-8) * np.eye(len(y))
    rest = log_evidence(process, x[:6], y[:6], bounds_of(6))
    grid = np.linspace(y[6], y[6] + 30.0, 60_001)
    table = np.tile(y, (len(grid), 1))
    table[:, 6] = grid
    joint = np.trapezoid(multivariate_normal(mean, whole).pdf(table), grid)
    chance = math.log(joint) - multivariate_normal(mean[:6], whole[:6, :6]).logpdf(y[:6])
    assert log_evidence(process, x, y, bounds_of(7, 6)) == pytest.approx(rest + 0.5 * chance, rel=1e-4)


def test_evidence_of_bounds_alone_is_that_of_the_prior() -> None:
    process, x, y = fitted()
    mean, covariance = process.prior(x)
    sd = np.sqrt(np.diag(covariance) + process.noise_variance + 1e-8)
    wanted = 0.5 * float(np.sum(norm.logsf(y, mean, sd)))
    assert log_evidence(process, x, y, np.ones(7, dtype=bool)) == pytest.approx(wanted, rel=1e-9)


def test_the_right_process_has_more_evidence() -> None:
    x = np.random.default_rng(6).random((10, 2))
    y = 2.0 * x[:, 0]
    right = TrendProcess(STEEP).fit(x, y)
    wrong = TrendProcess(LinearTrend(np.array([-2.0, 0.0]), np.array([0.1, 0.1]))).fit(x, y)
    assert log_evidence(right, x, y, bounds_of(10)) > log_evidence(wrong, x, y, bounds_of(10)) + 1.0
    cut = bounds_of(10, 0, 3)
    assert log_evidence(right, x, y, cut) > log_evidence(wrong, x, y, cut)


# ---------------------------------------------------------------------- starts, price column, mixtures


def test_a_first_row_that_is_given() -> None:
    problem = problems.table_problem()
    table = FeatureMap(problem, problem.candidates).of_candidates(problem.candidates)
    hourly = problem.candidates.hourly
    cheapest = int(np.argmin(hourly))
    a, b = (cheap_maximin(table, hourly, 4, np.random.default_rng(s), first=cheapest) for s in (0, 1))
    assert a[0] == cheapest
    assert a == b
    assert len(set(a)) == 4
    dear = int(np.argmax(hourly))
    chosen = cheap_maximin(table, hourly, 3, np.random.default_rng(0), 0.5, first=dear)
    assert chosen[0] == dear
    assert (hourly[chosen[1:]] <= np.median(hourly)).all()


def test_the_price_column_is_linear_in_the_price() -> None:
    problem = problems.table_problem()
    features = FeatureMap(problem, problem.candidates)
    assert features.price_column is not None
    column, span = features.price_column
    values = features.of_candidates(problem.candidates)[:, column] * span - np.log(problem.candidates.hourly)
    assert np.ptp(values) < 1e-9


def test_no_price_column_where_prices_are_equal() -> None:
    problem = problems.flat_problem()
    assert FeatureMap(problem, problem.candidates).price_column is None


def test_a_column_that_falls_with_the_price_has_a_negative_span() -> None:
    """The space's own column says the same as the price, the other way round, and is kept instead of it."""
    problem = problems.make_problem(
        [Ordinal(name="rank", values=(1, 2, 4))], lambda _configuration, _offer: KnownOutcome(1.0)
    )

    class Falling:
        machine_parameters = ("rank",)

        def resolve(self, configuration: Configuration) -> Offer:
            rank = float(configuration["rank"])
            return Offer("test", f"x{rank}", vcpu=2, memory_gib=4, price_per_hour=1.0 / rank)

    other = replace(problem, resolver=Falling())
    features = FeatureMap(other, other.candidates)
    assert features.price_column is not None
    column, span = features.price_column
    assert span < 0
    values = features.of_candidates(other.candidates)[:, column] * span - np.log(other.candidates.hourly)
    assert np.ptp(values) < 1e-6


def prediction(cost: float, feasible: float, improvement: float) -> CandidatePrediction:
    def of(value: float) -> Array:
        return np.array([value])

    return CandidatePrediction(
        of(cost), of(cost / 2), of(cost * 2), of(10 * cost), of(feasible), of(improvement), of(cost), of(0.0)
    )


def test_a_mixture_averages_expectations_and_multiplies_medians() -> None:
    mixed = _mixed([1.0, 3.0], [prediction(1.0, 0.2, 8.0), prediction(16.0, 1.0, 0.0)])
    assert mixed.cost[0] == pytest.approx(8.0)
    assert mixed.cost_low[0] == pytest.approx(4.0)
    assert mixed.cost_high[0] == pytest.approx(16.0)
    assert mixed.runtime[0] == pytest.approx(80.0)
    assert mixed.feasible[0] == pytest.approx(0.8)
    assert mixed.improvement[0] == pytest.approx(2.0)
    assert mixed.spend[0] == pytest.approx(12.25)


def test_a_mixture_of_free_runs_is_free() -> None:
    mixed = _mixed([0.5, 0.5], [prediction(0.0, 1.0, 0.0), prediction(0.0, 1.0, 0.0)])
    assert mixed.cost[0] == pytest.approx(0.0, abs=1e-200)
    assert mixed.spend[0] == 0.0
