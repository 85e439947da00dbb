"""A law of time beside the cosines: the sum of what machines share and of what they do not."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tradewind import plugins
from tradewind.problem import Configuration, JobParameters, Objective, PastStudy, Proposal
from tradewind.searcher.done import DoneSearcher
from tradewind.searcher.done.expansion import Array, FourierExpansion, ScalingLaw
from tradewind.searcher.done.regression import ExpansionFamily, ResponseModel, SavedFit
from tradewind.testing.problems import KnownOutcome, KnownProblem, evaluate, machine_parameters, make_problem

SPEEDUP, SPREAD = 0.5, 0.7


def runs(points: int, seed: int = 0, *, rest: float = 1.0, noise: float = 0.02) -> tuple[Array, Array]:
    """Inputs (a size, one without influence, ln vCPUs), and ln t + ½·ln vCPUs of work that is shared, and a rest."""
    rng = np.random.default_rng(seed)
    size, other, power = rng.uniform(-1.0, 1.0, points), rng.uniform(-1.0, 1.0, points), rng.uniform(0.0, 4.0, points)
    seconds = np.exp(2.0 * size - power) + rest * np.exp(-1.5)
    return np.stack([size, other, power], axis=1), np.log(seconds) + SPEEDUP * power + noise * rng.normal(size=points)


def family(inputs: int = 2, terms: int = 200) -> ExpansionFamily:
    drawn = FourierExpansion.draw(np.random.default_rng(1), terms, inputs)
    groups = {name: [i] for i, name in enumerate("abcdef"[:inputs])}
    return ExpansionFamily(
        FourierExpansion(drawn.directions, drawn.phases, drawn.scales, 1.0), groups, spread=SPREAD, speedup=SPEEDUP
    )


def fitted(z: Array, y: Array, slopes: tuple[float, ...] = (1.0, 1.0)) -> ScalingLaw:
    return ScalingLaw.fit(z, y - y.mean(), np.array(slopes), SPEEDUP, SPREAD)


def test_the_parts_of_a_law_are_found() -> None:
    z, y = runs(60, noise=0.0)
    law = fitted(z, y)
    value, shares = law._parts(z)
    assert value == pytest.approx(y - y.mean(), abs=0.05)
    work = np.exp(2.0 * z[:, 0] - z[:, 2])
    assert shares[:, 0] == pytest.approx(work / (work + math.exp(-1.5)), abs=0.06)
    assert law.numbers[0, 1] == pytest.approx(2.0, abs=0.1)  # of the work's size
    assert abs(law.numbers[:, 2]).max() < 0.05  # of what has no influence


def test_what_is_left_out_has_no_power() -> None:
    z, y = runs(30)
    assert (fitted(z, y, (1.0, 0.0)).numbers[:, 2] == 0.0).all()


def workers(points: int = 14) -> tuple[Array, Array]:
    """Inputs (workers of 1 to 32, a size), one vCPU, and ln t of work that workers divide, and a start of each."""
    rng = np.random.default_rng(7)
    many, size = rng.uniform(-1.0, 1.0, points), rng.uniform(-1.0, 1.0, points)
    half = 0.5 * math.log(32.0)
    seconds = np.exp(2.0 + size - half * many) + np.exp(half * many + 0.5)
    return np.stack([many, size, np.zeros(points)], axis=1), np.log(seconds)


def test_the_rest_may_grow_with_the_configuration() -> None:
    z, y = workers()
    half = 0.5 * math.log(32.0)
    law = ScalingLaw.fit(z, y - y.mean(), np.array([half / SPREAD, 1.0]), SPEEDUP, SPREAD, chosen=1)
    assert law.numbers[:, 1] == pytest.approx([-half, half], abs=0.4)
    at = np.stack([np.linspace(-1.0, 1.0, 11), np.full(11, 0.5), np.zeros(11)], axis=1)
    truth = np.exp(2.5 - half * at[:, 0]) + np.exp(half * at[:, 0] + 0.5)
    assert np.argmin(law._parts(at)[0]) == pytest.approx(np.argmin(truth), abs=1)


def test_both_parts_with_the_same_prior_are_told_apart() -> None:
    """Where nothing sets the two apart, from nothing mattering every step leads both the same way."""
    z, y = workers()
    law = ScalingLaw.fit(z, y - y.mean(), np.array([2.0, 2.0]), SPEEDUP, SPREAD, chosen=2)
    assert law.numbers[0, 1] < -1.0 and law.numbers[1, 1] > 1.0


def test_no_step_leads_to_a_likelier_law() -> None:
    z, y = runs(12)
    law = fitted(z, y)
    scales = (SPREAD * law.deviations).ravel()
    least = law._misfit(z, y - y.mean(), scales)
    rng = np.random.default_rng(3)
    for step in 0.02 * rng.standard_normal((50, *law.numbers.shape)) * law.deviations:
        assert replace(law, numbers=law.numbers + step)._misfit(z, y - y.mean(), scales) > least - 0.01


def test_the_linear_model_at_the_fit_is_the_law() -> None:
    z, y = runs(12)
    law = fitted(z, y)
    weights = (law.numbers / law.deviations).ravel()
    at = runs(9, 1)[0]
    assert law.start(at) + law.columns(at) @ weights == pytest.approx(law._parts(at)[0], abs=1e-9)


def test_the_gradient_is_that_of_the_whole() -> None:
    z, y = runs(12)
    expansion = replace(family(terms=40).shaped(family().choose(z, y - y.mean())), law=fitted(z, y))
    weights = np.random.default_rng(2).standard_normal((expansion.columns(z).shape[1],))
    at, step = np.array([0.1, -0.4, 1.7]), 1e-6
    around = [at + sign * step * row for sign in (1, -1) for row in np.eye(3)[:2]]
    values = expansion.start(np.array(around)) + expansion.columns(np.array(around)) @ weights
    slope = (values[:2] - values[2:]) / (2.0 * step)
    assert expansion.gradient(at, weights) == pytest.approx(slope, rel=1e-5)


@pytest.mark.parametrize(("rest", "lawful"), [(1.0, True), (0.0, False)])
def test_the_evidence_says_whether_it_is_a_law_or_lines(rest: float, lawful: bool) -> None:
    """Without a rest the time is one product of powers, which lines say with fewer numbers."""
    z, y = runs(25, rest=rest)
    z[:, 1] = 0.5 * z[:, 2] - 1.0
    assert family().choose(z, y - y.mean()).lawful is lawful


def test_a_law_goes_on_where_the_runs_end() -> None:
    """Small inputs and few machines seen: large ones on many are expected more closely than by lines."""
    z, y = runs(60, 4)
    seen = (z[:, 0] < 0.3) & (z[:, 2] < 3.0)
    far = ~seen
    away = {}
    for lawful in (True, False):
        every = family().judged(z[seen], y[seen] - y[seen].mean())
        best = max((one for one in every if one.lawful is lawful), key=lambda one: one.evidence)
        response = ResponseModel(family(), best, z[seen], y[seen])
        away[lawful] = float(np.abs(response.mean(z[far]) - y[far]).mean())
    assert away[True] < 0.6 * away[False]


def test_a_law_is_remembered() -> None:
    z, y = runs(25)
    best = family().choose(z, y - y.mean())
    kept = SavedFit.from_json(SavedFit.of([best], ()).to_json())
    assert kept is not None and kept.shapes((), ())[0].lawful
    assert not SavedFit.from_json({"sigma": 0.1, "penalty": 0.1, "dropped": [], "helping": []}).lawful  # type: ignore[union-attr]


def problem(size: float) -> KnownProblem:
    """Machines pay for large inputs only: each of them takes half a minute to begin."""

    def truth(_c: Configuration, offer: object) -> KnownOutcome:
        vcpu, nodes = offer.vcpu, offer.nodes  # type: ignore[attr-defined]
        return KnownOutcome(5.0 * nodes + 100.0 * size / (vcpu * nodes))

    made = make_problem(machine_parameters(3, (1, 2, 4, 8)), truth, objective=Objective("runtime"))
    return replace(made, job=replace(made.job, name="sized", parameters=JobParameters({"size": size})))


def searcher(size: float, points: int, **settings: object) -> DoneSearcher:
    past = []
    for i in range(points):
        one = problem(float(4 ** (i % 4)))
        pick = int(np.random.default_rng([i, 5]).integers(len(one.candidates)))
        trial = evaluate(one, Proposal(one.candidates.configuration(pick)), i)
        past.append(PastStudy("sized", one.job.parameters, (trial,)))
    made = plugins.create("searcher", "done", settings, problem=replace(problem(size), past=tuple(past)), seed=0)
    assert isinstance(made, DoneSearcher)
    return made


def test_a_search_uses_it_where_it_is_allowed_and_no_plain_or_published_one_does() -> None:
    model = searcher(16.0, 16)._model()
    assert model.time is not None and model.time.shape.lawful
    for settings in ({"law": False}, {"target": "plain"}, {"inputs": "configuration"}, {"trend": 0}):
        other = searcher(16.0, 16, **settings)._model()
        assert other.time is not None and not any(shape.lawful for shape in other.time.shapes)


def test_a_saved_law_is_not_used_where_it_is_not_allowed() -> None:
    kept = searcher(16.0, 16).fitted()
    made = searcher(16.0, 16, law=False)
    made.refit(kept)
    assert len(made.recommend(3)) == 3
