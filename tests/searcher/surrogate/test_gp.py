"""The Gaussian process, its bounds, its features, and the first design."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm
from tests.searcher.gradients import check_gradient

from tradewind import plugins
from tradewind.problem import Offer
from tradewind.searcher.candidate_pool import cheap_maximin
from tradewind.searcher.surrogate.censored import bound_sites, fit_censored
from tradewind.searcher.surrogate.features import FeatureMap, _different
from tradewind.searcher.surrogate.gp import GaussianProcess, factorise
from tradewind.testing import problems
from tradewind.testing.problems import drive


def wave(x: np.ndarray) -> np.ndarray:
    values: np.ndarray = np.sin(5.0 * x[:, 0]) + 0.5 * x[:, 1] ** 2
    return values


@pytest.mark.parametrize("n", [1, 2, 6, 7, 8, 15, 50, 57, 113])
def test_factorise_inverts_the_factor(n: int) -> None:
    a = np.random.default_rng(n).random((n, n))
    root, inverse = factorise(a @ a.T + np.eye(n))
    assert np.allclose(root @ root.T, a @ a.T + np.eye(n))
    assert np.allclose(inverse @ root, np.eye(n), atol=1e-10)


def test_gradient_of_the_loss() -> None:
    rng = np.random.default_rng(0)
    x = rng.random((12, 3))
    check_gradient(GaussianProcess(), x, wave(x), rng.random(12) * 0.1, spread=0.5, tolerance=1e-4)


def test_it_learns_a_function_and_knows_what_it_does_not_know() -> None:
    rng = np.random.default_rng(1)
    x, new = rng.random((40, 4)), rng.random((60, 4))
    process = GaussianProcess().fit(x, wave(x))
    mean, variance = process.predict(new)
    assert np.corrcoef(mean, wave(new))[0, 1] > 0.95
    inside = np.abs(mean - wave(new)) < 2.5 * np.sqrt(variance)
    assert inside.mean() > 0.85
    at_data = process.predict(x)
    assert np.abs(at_data[0] - wave(x)).max() < 0.15
    assert process.predict(np.full((1, 4), 5.0))[1][0] > 5 * at_data[1].max()


def test_features_that_do_not_matter_get_long_lengths() -> None:
    x = np.random.default_rng(2).random((40, 3))
    theta = GaussianProcess().fit(x, np.sin(6.0 * x[:, 0])).theta
    assert theta[2] < theta[3] - 0.5
    assert theta[2] < theta[4] - 0.5


def test_units_do_not_matter() -> None:
    x = np.random.default_rng(3).random((15, 2))
    plain, scaled = GaussianProcess().fit(x, wave(x)), GaussianProcess().fit(x, 1000.0 * wave(x) + 5e4)
    a, b = plain.predict(x[:4] + 0.05), scaled.predict(x[:4] + 0.05)
    assert np.allclose(1000.0 * a[0] + 5e4, b[0], rtol=1e-4)
    assert np.allclose(1e6 * a[1], b[1], rtol=1e-2)


def test_one_observation_and_equal_observations() -> None:
    one = GaussianProcess().fit(np.zeros((1, 2)), np.array([3.0]))
    mean, variance = one.predict(np.ones((2, 2)))
    assert np.allclose(mean, 3.0, atol=0.1)
    assert (variance > 0).all()
    same = GaussianProcess().fit(np.random.default_rng(0).random((6, 2)), np.full(6, 7.0))
    assert np.allclose(same.predict(np.ones((1, 2)))[0], 7.0, atol=0.1)


def test_without_features_it_is_a_mean_with_noise() -> None:
    x, y = np.zeros((5, 0)), np.array([1.0, 3.0, 2.0, 2.5, 1.5])
    check_gradient(GaussianProcess(), x, y - 2.0, np.zeros(5), spread=0.3, tolerance=1e-3)
    process = GaussianProcess().fit(x, y)
    assert np.allclose(process.predict(np.zeros((2, 0)))[0], 2.0, atol=1e-6)
    assert (process.fantasize(np.zeros((3, 0))).predict(x)[1] < process.predict(x)[1]).all()


def test_fantasies_leave_the_mean_and_shrink_the_variance() -> None:
    rng = np.random.default_rng(4)
    x, at = rng.random((10, 2)), rng.random((3, 2))
    process = GaussianProcess().fit(x, wave(x))
    other = process.fantasize(at)
    assert np.allclose(process.predict(at)[0], other.predict(at)[0], atol=1e-3)
    assert (other.predict(at)[1] < process.predict(at)[1]).all()
    assert process.fantasize(np.zeros((0, 2))) is process


def test_many_observations_are_fitted_on_a_part_and_conditioned_on_all() -> None:
    x = np.random.default_rng(5).random((160, 2))
    process = GaussianProcess().fit(x, wave(x))
    assert np.abs(process.predict(x)[0] - wave(x)).max() < 0.2


# ---------------------------------------------------------------------- bounds


def test_one_bound_has_the_moments_of_the_truncated_normal() -> None:
    """With a single bound, expectation propagation is exact: the posterior's moments are those of the product."""
    process = GaussianProcess().fit(np.array([[0.0], [1.0]]), np.array([0.0, 1.0]))
    x, bound = np.array([[0.5]]), np.array([1.4])
    means, variances, useful = bound_sites(process, x, bound, np.array([True]))
    shift, prior = process.prior(x)
    grid = np.linspace(-15, 15, 60_001)
    weight = norm.pdf(grid, shift, np.sqrt(prior[0, 0])) * norm.cdf(
        (grid - bound[0]) / np.sqrt(max(process.noise_variance, 1e-6 * prior[0, 0]))
    )
    weight /= weight.sum()
    wanted = float((grid * weight).sum())
    precision = 1.0 / prior[0, 0] + 1.0 / variances[0]
    got = (shift / prior[0, 0] + means[0] / variances[0]) / precision
    assert useful.all()
    assert got == pytest.approx(wanted, abs=2e-3)
    assert 1.0 / precision == pytest.approx(float((grid**2 * weight).sum()) - wanted**2, rel=2e-2)


def test_a_bound_above_expectation_pulls_up_and_one_far_below_does_nothing() -> None:
    rng = np.random.default_rng(6)
    x = rng.random((20, 2))
    y = wave(x)
    censored = np.zeros(20, dtype=bool)
    free = GaussianProcess().fit(np.delete(x, 3, axis=0), np.delete(y, 3))
    censored[3] = True
    high, low = y.copy(), y.copy()
    high[3], low[3] = y.max() + 1.0, y.min() - 20.0
    at = x[[3]]
    assert fit_censored(x, high, censored).predict(at)[0][0] > free.predict(at)[0][0] + 0.4
    assert fit_censored(x, low, censored).predict(at)[0][0] == pytest.approx(free.predict(at)[0][0], abs=0.05)


def test_a_bound_is_not_taken_for_the_value() -> None:
    """Half of the values are cut at the median: the process expects more than the cut where the truth is above it."""
    rng = np.random.default_rng(7)
    x = rng.random((40, 2))
    truth = 3.0 * x[:, 0] + x[:, 1]
    cut = float(np.median(truth))
    censored = truth > cut
    process = fit_censored(x, np.minimum(truth, cut), censored)
    crude = GaussianProcess().fit(x, np.minimum(truth, cut))
    mine = process.predict(x[censored])[0]
    assert (mine > cut - 0.05).mean() > 0.95
    assert np.abs(mine - truth[censored]).mean() < np.abs(crude.predict(x[censored])[0] - truth[censored]).mean()


@pytest.mark.parametrize("exact", [0, 1])
def test_almost_only_bounds(exact: int) -> None:
    rng = np.random.default_rng(8)
    x, y = rng.random((9, 2)), rng.random(9)
    censored = np.arange(9) >= exact
    mean, variance = fit_censored(x, y, censored).predict(rng.random((5, 2)))
    assert np.isfinite(mean).all()
    assert (variance > 0).all()


def test_hundreds_of_bounds_stay_finite() -> None:
    """Nearly equal configurations, all cut short at nearly the same place."""
    rng = np.random.default_rng(9)
    x = np.round(rng.random((220, 3)), 1)
    y = np.full(220, -1.0) + 1e-6 * rng.random(220)
    y[:5] = [-2.0, -1.5, -1.2, -0.5, 0.5]
    process = fit_censored(x, y, np.arange(220) >= 5)
    mean, variance = process.predict(x)
    assert np.isfinite(mean).all()
    assert np.isfinite(variance).all()


# ---------------------------------------------------------------------- features and starts


def test_features_vary_and_do_not_repeat() -> None:
    problem = problems.table_problem()
    table = FeatureMap(problem, problem.candidates).of_candidates(problem.candidates)
    assert (np.ptp(table, axis=0) > 0).all()
    correlation = np.corrcoef(table.T) - np.eye(table.shape[1])
    assert np.abs(correlation).max() < 0.9999
    assert table.min() >= -1e-9
    assert table.max() <= 1 + 1e-9


def test_a_trial_has_the_row_of_its_candidate() -> None:
    problem = problems.conditional_problem()
    features = FeatureMap(problem, problem.candidates)
    table = features.of_candidates(problem.candidates)
    for i in range(len(problem.candidates)):
        row = features.of(problem.candidates.configuration(i), problem.candidates.offer(i))
        assert row is not None
        assert np.allclose(row, table[i])


def test_a_configuration_of_another_space_has_no_row() -> None:
    problem, other = problems.table_problem(), problems.flat_problem()
    features = FeatureMap(problem, problem.candidates)
    assert features.of(other.candidates.configuration(0), Offer("x", "y", 1, 1, 1.0)) is None


def test_columns_that_repeat_an_earlier_one_are_left_out() -> None:
    rng = np.random.default_rng(3)
    table = rng.normal(size=(40, 3))
    constant, again, turned = np.full(40, 7.0), 2 * table[:, 0] + 5, -table[:, 1]
    full = np.column_stack([constant, table[:, 0], again, table[:, 1], turned, table[:, 2], table[:, 0]])
    assert _different(full, but=frozenset()) == [1, 3, 5]
    assert _different(full, but=frozenset({1, 5})) == [2, 3], "the next one that says the same stays"
    assert _different(np.ones((4, 2)), but=frozenset()) == []


def test_starts_are_cheap_far_apart_and_different() -> None:
    problem = problems.table_problem()
    table = FeatureMap(problem, problem.candidates).of_candidates(problem.candidates)
    hourly = problem.candidates.hourly
    chosen = cheap_maximin(table, hourly, 6, np.random.default_rng(0))
    assert len(set(chosen)) == 6
    assert (hourly[chosen] <= np.median(hourly)).all()
    near = min(float(((table[a] - table[b]) ** 2).sum()) for a in chosen for b in chosen if a != b)
    random = np.random.default_rng(1).choice(len(table), size=(50, 6))
    typical = np.median(
        [min(float(((table[a] - table[b]) ** 2).sum()) for a in r for b in r if a != b) for r in random]
    )
    assert near > typical


def test_fewer_candidates_than_starts() -> None:
    chosen = cheap_maximin(np.zeros((3, 1)), np.array([1.0, 2.0, 3.0]), 5, np.random.default_rng(0))
    assert sorted(chosen) == [0, 1, 2]


def test_a_matrix_that_is_nearly_singular_still_has_a_factor() -> None:
    row = np.linspace(0.0, 1.0, 12)
    matrix = 1.0 - 1e-17 * (row[:, None] - row[None, :]) ** 2
    with pytest.raises(np.linalg.LinAlgError):
        np.linalg.cholesky(matrix - 1e-15 * np.eye(12))
    root, inverse = factorise(matrix - 1e-15 * np.eye(12))
    assert np.allclose(root @ root.T, matrix, atol=1e-5)
    assert np.isfinite(inverse).all()
    with pytest.raises(np.linalg.LinAlgError, match="no covariance"):
        factorise(-np.eye(3))


@pytest.mark.thorough
@pytest.mark.slow
def test_a_noise_free_search_with_aborts_does_not_end_in_a_singular_matrix() -> None:
    """Twenty bounds and observations of a smooth function without noise: the process must still be fitted."""
    problem = problems.table_problem(cliff="slow", deadline=None)
    searcher = plugins.create("searcher", "gp", {}, problem=problem, seed=1)
    assert len(drive(searcher, problem, 40)) == 40
