"""The parts of DONE: the expansion, the three ways to solve it, the data selection, the choice of inputs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tradewind.searcher.done.expansion import Array, FourierExpansion
from tradewind.searcher.done.regression import SIGMAS, ExpansionFamily, ResponseModel
from tradewind.searcher.done.ridge import DualRidge, RecursiveRidge, misfits
from tradewind.searcher.done.run_history import select_runs


def data(points: int, inputs: int = 3, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    z = rng.uniform(-1.0, 1.0, (points, inputs))
    return z, np.sin(2.0 * z[:, 0]) + z[:, 1] ** 2 + 0.01 * rng.standard_normal(points)


def expansion(inputs: int = 3, terms: int = 40, trend: float = 0.0, sigma: float = 1.0) -> FourierExpansion:
    drawn = FourierExpansion.draw(np.random.default_rng(1), terms, inputs)
    return FourierExpansion(drawn.directions, drawn.phases, np.full(inputs, sigma), trend)


# ---------------------------------------------------------------------- ridge


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(points=st.integers(1, 60), seed=st.integers(0, 99), penalty=st.sampled_from([1e-3, 0.1, 10.0]))
def test_dual_primal_and_recursive_agree(points: int, seed: int, penalty: float) -> None:
    z, t = data(points, seed=seed)
    a = expansion(trend=1.0).columns(z)
    new = expansion(trend=1.0).columns(data(7, seed=seed + 1)[0])
    dual, primal = DualRidge(a, t, penalty), RecursiveRidge(a, t, penalty)
    recursive = RecursiveRidge(a[:0], t[:0], penalty)
    for row, target in zip(a, t, strict=True):
        recursive.update(row, float(target))
    for other in (primal, recursive):
        assert other.weights == pytest.approx(dual.weights, rel=1e-6, abs=1e-7)
        assert other.variance(new) == pytest.approx(dual.variance(new), rel=1e-6, abs=1e-8)
        assert other.misfit == pytest.approx(dual.misfit, rel=1e-6)


@pytest.mark.parametrize("solver", [DualRidge, RecursiveRidge])
def test_fantasies_change_the_variance_alone(solver: type[DualRidge] | type[RecursiveRidge]) -> None:
    z, y = data(25)
    columns = expansion().columns(z)
    known, more = columns[:20], columns[20:23]
    ridge = solver(known, y[:20], 0.3)
    before = ridge.weights.copy(), ridge.misfit, ridge.variance(columns)
    fantasize = ridge.fantasize(more)
    assert fantasize.weights == pytest.approx(before[0], abs=1e-8)
    assert fantasize.misfit == pytest.approx(before[1])
    anew = DualRidge(columns[:23], np.concatenate([y[:20], more @ before[0]]), 0.3)
    assert fantasize.variance(columns) == pytest.approx(anew.variance(columns), abs=1e-8)
    assert (fantasize.variance(more) < before[2][20:23]).all()
    assert ridge.variance(columns) == pytest.approx(before[2], abs=1e-12)  # the ridge itself stays as it was


def test_the_weights_are_those_of_the_normal_equations() -> None:
    z, t = data(30)
    a = expansion().columns(z)
    expected = np.linalg.solve(a.T @ a + 0.1 * np.eye(a.shape[1]), a.T @ t)
    assert DualRidge(a, t, 0.1).weights == pytest.approx(expected, rel=1e-8)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(points=st.integers(1, 60), seed=st.integers(0, 99))
def test_the_misfits_of_many_penalties_are_those_of_each(points: int, seed: int) -> None:
    z, t = data(points, seed=seed)
    a, penalties = expansion(trend=1.0).columns(z), (3e-4, 3e-2, 10.0)
    for penalty, (misfit, log_determinant) in zip(penalties, misfits(a @ a.T, t, penalties), strict=True):
        assert misfit == pytest.approx(DualRidge(a, t, penalty).misfit, rel=1e-9)
        expected = np.linalg.slogdet(a @ a.T + penalty * np.eye(points))[1]
        assert log_determinant == pytest.approx(expected, rel=1e-7, abs=1e-7)


def test_a_choice_multiplies_the_columns_once_for_each_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    z, y = data(20)
    made: list[int] = []
    columns = FourierExpansion.columns

    def counted(self: FourierExpansion, at: Array) -> Array:
        made.append(len(at))
        return columns(self, at)

    monkeypatch.setattr(FourierExpansion, "columns", counted)
    found = ExpansionFamily(expansion(trend=1.0), {}).choose(z, y - y.mean())
    assert made == [20] * len(SIGMAS)
    assert found.sigma in SIGMAS


def test_the_published_penalty_is_ours_by_half_the_terms() -> None:
    """Bliek et al. have columns without the factor √(2/m)."""
    z, t = data(30)
    one = expansion()
    terms = len(one.phases)
    plain = np.cos(z @ one.frequencies.T + one.phases)
    published = plain @ np.linalg.solve(plain.T @ plain + 0.1 * np.eye(terms), plain.T @ t)
    a = one.columns(z)
    assert a @ DualRidge(a, t, 0.1 / (terms / 2)).weights == pytest.approx(published, rel=1e-8)


@pytest.mark.slow
def test_the_root_stays_a_root_over_many_updates() -> None:
    z, t = data(2000)
    a = expansion(terms=20).columns(z)
    recursive = RecursiveRidge(a[:0], t[:0], 1e-4)
    for row, target in zip(a, t, strict=True):
        recursive.update(row, float(target))
    assert recursive.weights == pytest.approx(RecursiveRidge(a, t, 1e-4).weights, rel=1e-4, abs=1e-6)


# ---------------------------------------------------------------------- expansion


def test_the_expansion_stands_for_a_gaussian_kernel() -> None:
    z, _ = data(20)
    drawn = expansion(terms=20_000, sigma=1.5)
    a = drawn.columns(z)
    distance = ((z[:, None] - z[None]) ** 2).sum(axis=2)
    assert a @ a.T == pytest.approx(np.exp(-0.5 * 1.5**2 * distance), abs=0.05)


@pytest.mark.parametrize("trend", [0.0, 2.0])
def test_the_gradient_is_that_of_the_columns(trend: float) -> None:
    drawn = expansion(trend=trend)
    weights = np.random.default_rng(2).standard_normal((drawn.columns(np.zeros((1, 3))).shape[1],))
    at, step = np.array([0.1, -0.4, 0.7]), 1e-6
    steps = np.eye(3) * step
    slope = (drawn.columns(at + steps) - drawn.columns(at - steps)) @ weights / (2.0 * step)
    assert drawn.gradient(at, weights) == pytest.approx(slope, rel=1e-5)


def test_lines_go_on_where_the_points_end() -> None:
    z = np.linspace(-1.0, 0.0, 12)[:, None]
    for trend, close in ((0.0, False), (1.0, True)):
        drawn = FourierExpansion.draw(np.random.default_rng(1), 200, 1)
        family = ExpansionFamily(FourierExpansion(drawn.directions, drawn.phases, drawn.scales, trend), {})
        response = ResponseModel(family, family.choose(z, 2.0 * z[:, 0] + 1.0), z, 2.0 * z[:, 0])
        assert (abs(float(response.mean(np.array([[2.0]]))[0]) - 4.0) < 0.2) == close


# ---------------------------------------------------------------------- inputs


def test_inputs_without_influence_are_eliminated() -> None:
    z, y = data(40, inputs=5)
    drawn = FourierExpansion.draw(np.random.default_rng(1), 200, 5)
    groups = {name: [i] for i, name in enumerate("abcde")}
    family = ExpansionFamily(FourierExpansion(drawn.directions, drawn.phases, drawn.scales, 1.0), groups)
    y = y - y.mean()
    seen = family.eliminate(z, y, tuple("abcde"), family.choose(z, y))
    found = max(seen, key=lambda shape: shape.evidence)
    assert found.dropped == {"c", "d", "e"}
    assert found.evidence > family.choose(z, y).evidence


def test_what_is_left_out_has_no_influence() -> None:
    z, y = data(20)
    drawn = expansion(trend=1.0)
    family = ExpansionFamily(drawn, {"last": [2]})
    response = ResponseModel(family, family.choose(z, y - y.mean(), frozenset({"last"})), z, y)
    moved = z + np.array([0.0, 0.0, 5.0])
    assert response.mean(moved) == pytest.approx(response.mean(z), abs=1e-12)
    assert response.slope(z[0])[2] == 0.0


# ---------------------------------------------------------------------- Algorithm 1, data selection

AWAY = np.array([0.3, 0.0, 0.1, 0.9, 0.0, 0.2])
KEYS = ["a", "b", "b", "c", "d", "e"]


def test_same_parameters_first_then_by_distance() -> None:
    assert select_runs(AWAY, KEYS, 99, 1.0, merge=False) == [1, 4, 2, 5, 0, 3]


def test_configurations_that_are_known_are_not_taken_from_farther_away() -> None:
    assert select_runs(AWAY, KEYS, 99, 1.0, merge=True) == [1, 4, 5, 0, 3]


def test_the_number_and_the_distance_are_limited() -> None:
    assert select_runs(AWAY, KEYS, 3, 1.0, merge=False) == [1, 4, 2]
    assert select_runs(AWAY, KEYS, 1, 1.0, merge=False) == [1, 4], "runs with the present parameters are never cut"
    assert select_runs(AWAY, KEYS, 99, 0.25, merge=False) == [1, 4, 2, 5]
