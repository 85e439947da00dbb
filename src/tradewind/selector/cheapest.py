"""The selector that takes the cheapest machine that is large enough."""

from __future__ import annotations

import numpy as np

from tradewind.problem import Offer
from tradewind.selector.attributes import AttributeSelector, Mask, WantedAttributes


class CheapestSelector(AttributeSelector):
    """Takes the cheapest offer with at least the numbers that are asked for.

    Numbers (``vcpu``, ``memory``, ``gpus``, facts) are lower bounds, a price is an upper bound, and words
    (``category``, ``provider``, ``region``) and ``spot`` must be equal.
    """

    def choose(self, asked: WantedAttributes, among: Mask) -> Offer | None:
        """Choose the cheapest offer within the bounds."""
        for attribute, value in asked.items():
            if attribute == "price":
                among = among & self.table.at_most(attribute, value)
            elif attribute == "spot":
                among = among & self.table.equal(attribute, value)
            else:
                among = among & self.table.at_least(attribute, value)
        places = np.flatnonzero(among)
        return self.table.offers[int(places[0])] if len(places) else None
