"""The selector that takes the offer with exactly the wanted attributes."""

from __future__ import annotations

import numpy as np

from tradewind.problem import Offer
from tradewind.selector.attributes import AttributeSelector, Mask, WantedAttributes


class ExactSelector(AttributeSelector):
    """Takes the offer that has exactly what is asked for, the cheapest where several have.

    A configuration names the machines by an instance parameter, by attributes (``vcpu``, ``memory``, ``category``,
    ``provider``, ``region``, ...) or by both. What nobody sells is refused, with the nearest offer in the hint.
    """

    def choose(self, asked: WantedAttributes, among: Mask) -> Offer | None:
        """Choose the cheapest offer whose attributes all equal the asked ones."""
        for attribute, value in asked.items():
            among = among & self.table.equal(attribute, value)
        places = np.flatnonzero(among)
        return self.table.offers[int(places[0])] if len(places) else None
