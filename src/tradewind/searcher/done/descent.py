"""The search for the minimum of an expansion on a space that is too large to evaluate all of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tradewind.errors import ConfigurationError, NoOfferError
from tradewind.problem import Configuration, Float, Problem
from tradewind.searcher.done.expansion import Array
from tradewind.searcher.done.model import DoneModel
from tradewind.searcher.done.places import CandidateInputs, log_vcpus
from tradewind.searcher.pool import neighbours
from tradewind.searcher.surrogate.features import FeatureMap

_STARTS = 6
"""Good points that the descents begin at."""

_STEPS = 10
"""Steps of one descent, as in the published implementation."""

_RAN = 500
"""Newest runs whose configurations are looked at again."""

_NEIGHBOURS = 48
"""Changed copies of each good point."""


def explore_candidates(
    problem: Problem, model: DoneModel, features: FeatureMap, rng: np.random.Generator, count: int
) -> list[Configuration]:
    """Random configurations, those that were run, and better ones that were found from the best of all.

    Around each of the best, copies with one or two parameters changed are added; real-valued parameters then follow
    the derivative of the expansion for a few steps of L-BFGS (Byrd, Lu, Nocedal & Zhu, SIAM J. Scientific Computing
    1995), as in DONE.

    Args:
        problem: The problem.
        model: What the expansion is of; without a model of time only random configurations come back.
        features: Of the configurations.
        rng: For the random ones.
        count: How many of these.
    """
    drawn = problem.space.sample(rng, count)
    if model.time is None or not drawn:
        return drawn
    # What is known best is what was run: in a space of this size, chance would hardly come upon it again.
    drawn += [one for run in model.runs[-_RAN:] if (one := _checked(problem, run.trial.configuration)) is not None]
    near: list[Configuration] = []
    for leader in _best(problem, model, features, drawn):
        donors = [drawn[int(i)] for i in rng.integers(len(drawn), size=_NEIGHBOURS)]
        near += neighbours(problem, leader, donors, rng)
    drawn += near
    if any(isinstance(p, Float) and p.levels is None for p in problem.space.parameters):
        drawn += [_descended(problem, model, features, leader) for leader in _best(problem, model, features, drawn)]
    return drawn


def _checked(problem: Problem, configuration: Configuration) -> Configuration | None:
    """A configuration of an earlier study as this space writes it; None where it does not allow it."""
    try:
        return problem.space.check(configuration)
    except ConfigurationError:
        return None


def _best(
    problem: Problem, model: DoneModel, features: FeatureMap, drawn: Sequence[Configuration]
) -> list[Configuration]:
    pool = problem.pool(drawn)
    loss = model.judge(CandidateInputs.of(pool, features)).loss
    order = np.argsort(np.round(loss / max(float(np.abs(loss).max()), 1e-300), 9), kind="stable")
    return [pool.configuration(int(i)) for i in order[:_STARTS]]


def _descended(problem: Problem, model: DoneModel, features: FeatureMap, start: Configuration) -> Configuration:
    """The configuration at which a descent along the real-valued parameters ends; the start where it leads nowhere."""
    from scipy.optimize import minimize

    names = [p.name for p in problem.space.parameters if isinstance(p, Float) and p.levels is None and p.name in start]
    row = _row(problem, features, start)
    if row is None or not names:
        return start
    at = np.array([_unit(problem, name, start) for name in names])
    # A real-valued parameter's feature is linear in its place on its scale, so two places give its column.
    steps = []
    for name, place in zip(names, at, strict=True):
        other = 0.0 if place > 0.5 else 1.0
        far = _row(problem, features, _moved(problem, start, {name: other}))
        steps.append(np.zeros_like(row) if far is None else (far - row) / (other - place))
    directions = np.array(steps)

    power = float(log_vcpus([problem.resolver.resolve(start)])[0])

    def surface(unit: Array) -> tuple[float, Array]:
        value, slope = model.surface(row + (unit - at) @ directions, power)
        return value, directions @ slope

    found = minimize(
        surface, at, jac=True, method="L-BFGS-B", bounds=[(0.0, 1.0)] * len(at), options={"maxiter": _STEPS}
    )
    # Rounded, so that neither the last bit of a sum nor the way there makes another configuration.
    unit = np.round(found.x, 4)
    return _moved(problem, start, dict(zip(names, map(float, unit), strict=True)))


def _unit(problem: Problem, name: str, configuration: Configuration) -> float:
    return float(problem.space[name].features(np.array([configuration[name]], dtype=float))[0, 0])


def _moved(problem: Problem, start: Configuration, places: dict[str, float]) -> Configuration:
    """A configuration with some real-valued parameters at other places of their scales, or itself if not allowed."""
    values = {name: float(problem.space[name].draw(np.array([place]))[0]) for name, place in places.items()}
    try:
        return problem.space.complete({**start, **values}, start)
    except (ConfigurationError, KeyError):
        return start


def _row(problem: Problem, features: FeatureMap, configuration: Configuration) -> Array | None:
    try:
        row = features.of(configuration, problem.resolver.resolve(configuration))
    except NoOfferError:
        return None
    return None if row is None else 2.0 * row - 1.0
