"""Candidates near the best ones, for spaces that cannot be listed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tradewind.errors import ConfigurationError, NoOfferError
from tradewind.problem import Configuration, Problem


def neighbours(
    problem: Problem, leader: Configuration, donors: Sequence[Configuration], rng: np.random.Generator
) -> list[Configuration]:
    """Copies of a configuration that take one or more parameters, or a step towards them, from others.

    Args:
        problem: The problem.
        leader: The configuration to stay near.
        donors: Where other values come from.
        rng: For which parameters, and how far.
    """
    space, found = problem.space, []
    for donor in donors:
        values = dict(leader)
        shared = [p for p in space.parameters if p.name in leader and p.name in donor]
        for parameter in [shared[int(i)] for i in rng.integers(len(shared), size=1 + int(rng.integers(2)))]:
            values[parameter.name] = donor[parameter.name]
            if parameter.levels is None:
                both = np.array([leader[parameter.name], donor[parameter.name]], dtype=object)
                near, far = parameter.features(both)[:, 0]
                step = float(rng.choice([0.02, 0.1, 0.5]))
                values[parameter.name] = float(parameter.draw(np.array([near + step * (far - near)]))[0])
        try:
            found.append(space.complete(values, {**donor, **leader}))
        except (ConfigurationError, NoOfferError, KeyError):
            continue
    return found
