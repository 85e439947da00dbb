"""Spaces that cannot be listed: candidates near the best ones, and how hard others are looked for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tradewind.errors import ConfigurationError, NoOfferError
from tradewind.problem import Configuration, Problem
from tradewind.searcher.base import NothingLeft, SearchState

REFERENCE_SIZES = (512, 4096)
"""Configurations that are drawn to show what a space holds: more, where fewer find next to nothing that is allowed."""


def no_candidate_found(state: SearchState) -> NothingLeft:
    """The answer where no draw of a space was ever allowed and sold; it is not final while trials are pending."""
    reason = (
        "no configuration was found that is allowed and sold; "
        "where the constraints leave almost nothing of the space, give the values to try as lists"
    )
    return NothingLeft(reason, final=not state.pending)


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
