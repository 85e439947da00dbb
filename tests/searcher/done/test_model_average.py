"""Averages of several shapes: what they disagree on is not known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import t as student

from tradewind.searcher.done.expansion import Array, FourierExpansion
from tradewind.searcher.done.regression import (
    EVIDENCE_WINDOW,
    MOST_SHAPES,
    ExpansionFamily,
    ExpansionShape,
    ModelAverage,
    ResponseModel,
    SavedFit,
    likely_shapes,
    mean_above_bound,
)


def family(inputs: int = 3) -> ExpansionFamily:
    drawn = FourierExpansion.draw(np.random.default_rng(1), 200, inputs)
    names = {name: [i] for i, name in enumerate("abcdef"[:inputs])}
    return ExpansionFamily(FourierExpansion(drawn.directions, drawn.phases, drawn.scales, 1.0), names)


def data(rng: np.random.Generator, points: int) -> tuple[Array, Array]:
    """Of three inputs one matters much and one a little; with few points nobody can say how smooth it is."""
    z = rng.uniform(-1.0, 1.0, (points, 3))
    return z, np.abs(z[:, 0]) + 0.3 * np.sin(4.0 * z[:, 1]) + 0.05 * rng.standard_normal(points)


def test_one_shape_is_the_response_itself() -> None:
    z, y = data(np.random.default_rng(2), 12)
    at = data(np.random.default_rng(3), 5)[0]
    one = family().choose(z, y - y.mean())
    mixed, alone = ModelAverage(family(), [one], z, y), ResponseModel(family(), one, z, y)
    assert mixed.mean(at) == pytest.approx(alone.mean(at))
    assert mixed.prediction(at)[1] == pytest.approx(alone.prediction(at)[1])
    assert mixed.slope(at[0]) == pytest.approx(alone.slope(at[0]))


def test_mean_and_variance_are_those_of_the_mixture() -> None:
    z, y = data(np.random.default_rng(2), 12)
    at = data(np.random.default_rng(3), 4)[0]
    first, second = ExpansionShape(0.1, 0.003, evidence=0.0), ExpansionShape(0.8, 0.03, frozenset("b"), -math.log(3.0))
    mixed = ModelAverage(family(), [first, second], z, y)
    parts = [ResponseModel(family(), shape, z, y) for shape in (first, second)]
    rng = np.random.default_rng(4)
    drawn = [
        part.mean(at) + part.prediction(at)[1] * student.rvs(part.freedom, size=(count, 4), random_state=rng)
        for part, count in zip(parts, (300_000, 100_000), strict=True)
    ]
    every = np.concatenate(drawn)
    assert mixed.mean(at) == pytest.approx(every.mean(axis=0), abs=0.01)
    variance = mixed.prediction(at)[1] ** 2 * mixed.freedom / (mixed.freedom - 2.0)
    assert variance == pytest.approx(every.var(axis=0), rel=0.02)
    fantasize = mixed.fantasize(at[:1])
    assert fantasize.prediction(at)[1][0] < mixed.prediction(at)[1][0]
    step = 1e-5
    moved = np.array([at[0] + step * row for row in np.eye(3)])
    assert mixed.slope(at[0]) == pytest.approx((mixed.mean(moved) - mixed.mean(at[:1])) / step, abs=1e-3)


@pytest.mark.slow
def test_ranges_hold_more_of_what_comes_than_those_of_the_likeliest_alone() -> None:
    """Of 40 histories of eight runs: a 90 % range that holds far less is worth nothing to who has a deadline."""
    held = {"alone": 0.0, "mixed": 0.0}
    score = dict(held)
    for seed in range(40):
        rng = np.random.default_rng([5, seed])
        z, y = data(rng, 8)
        at, truth = data(rng, 50)
        sets = family().eliminate(z, y - y.mean(), tuple("abc"), family().choose(z, y - y.mean()))
        shapes = likely_shapes(
            shape for one in likely_shapes(sets) for shape in family().judged(z, y - y.mean(), one.dropped)
        )
        for name, model in (
            ("alone", ModelAverage(family(), shapes[:1], z, y)),
            ("mixed", ModelAverage(family(), shapes, z, y)),
        ):
            off = (truth - model.mean(at)) / model.prediction(at)[1]
            held[name] += float((np.abs(off) <= student.ppf(0.95, model.freedom)).mean()) / 40
            score[name] += float((student.logpdf(off, model.freedom) - np.log(model.prediction(at)[1])).mean()) / 40
    assert held["mixed"] >= 0.82, (held, score)
    assert held["mixed"] > held["alone"] + 0.02
    assert score["mixed"] > score["alone"] + 0.05


def test_the_unlikely_is_left_out() -> None:
    far = ExpansionShape(0.1, 0.1, evidence=-math.log(EVIDENCE_WINDOW) - 0.01)
    near = [ExpansionShape(0.1, 0.01 * i, evidence=-0.01 * i) for i in range(1, 30)]
    best = ExpansionShape(0.2, 0.1, evidence=0.0)
    assert likely_shapes([far, near[0], best, near[0]]) == [best, near[0]]
    assert len(likely_shapes([best, *near])) == MOST_SHAPES


def test_more_runs_than_columns_say_which_shape_it_is() -> None:
    z, y = data(np.random.default_rng(2), 260)
    mixed = ModelAverage(family(), likely_shapes(family().judged(z, y - y.mean())), z, y)
    assert mixed.grows
    assert len(mixed.shapes) == 1
    before = mixed.mean(z[:1])[0]
    mixed.learn(z[0], before + 5.0)
    assert mixed.mean(z[:1])[0] > before


def test_all_shapes_are_remembered() -> None:
    shapes = [ExpansionShape(0.2, 0.01, frozenset({"a", "memory"}), -3.0), ExpansionShape(0.4, 0.03, frozenset(), -3.5)]
    known = SavedFit.of(shapes, ["memory", "cpu"])
    again = SavedFit.from_json(known.to_json())
    assert again == known
    found = again.shapes(["a", "b"], ["memory", "cpu"])
    assert [(one.sigma, one.penalty, set(one.dropped), one.evidence) for one in found] == [
        (0.2, 0.01, {"a", "memory"}, 0.0), (0.4, 0.03, set(), -0.5)
    ]  # fmt: skip
    assert SavedFit.from_json({**known.to_json(), "others": 3}) is None
    # What an earlier version kept is one shape.
    assert SavedFit.from_json({"sigma": 0.2, "penalty": 0.01, "dropped": [], "helping": []}) == SavedFit(
        0.2, 0.01, frozenset(), frozenset()
    )


def test_what_lies_above_a_bound_is_expected_above_it() -> None:
    rng = np.random.default_rng(6)
    drawn = 2.0 + 0.5 * rng.standard_normal(400_000)
    expected = mean_above_bound(np.array([2.0]), np.array([0.5]), np.array([2.3]))
    assert expected[0] == pytest.approx(drawn[drawn > 2.3].mean(), abs=0.01)
