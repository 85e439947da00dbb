"""The selector that takes the offer with exactly the wanted attributes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tradewind.errors import SpecError
from tradewind.plugins import Settings
from tradewind.problem import Float, Offer, Space
from tradewind.selector.attributes import AttributeSelector, Mask, WantedAttributes


class ExactSelector(AttributeSelector):
    """Takes the offer that has exactly what is asked for, the cheapest where several have.

    A configuration names the machines by an instance parameter, by attributes (``vcpu``, ``memory``, ``category``,
    ``provider``, ``region``, ...) or by both. What nobody sells is refused, with the nearest offer in the hint.
    """

    def __init__(self, *, settings: Settings, offers: Sequence[Offer], space: Space) -> None:
        super().__init__(settings=settings, offers=offers, space=space)
        for parameter in space.parameters:
            if isinstance(parameter, Float) and parameter.attribute is not None and parameter.low < parameter.high:
                raise SpecError(
                    f"{parameter.name}: hardly any real number is exactly the {parameter.attribute} of an offer",
                    hint="write select: nearest, or list the values",
                )

    def choose(self, asked: WantedAttributes, among: Mask) -> Offer | None:
        """Choose the cheapest offer whose attributes all equal the asked ones."""
        for attribute, value in asked.items():
            among = among & self.table.equal(attribute, value)
        places = np.flatnonzero(among)
        return self.table.offers[int(places[0])] if len(places) else None
