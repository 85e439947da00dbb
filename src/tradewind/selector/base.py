"""The contract of selectors, which turn configurations into offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property

from tradewind.plugins import Plugin, Settings
from tradewind.problem import Configuration, Instance, Nodes, Offer, Space
from tradewind.problem.offer import OfferColumns


class Selector(Plugin, ABC):
    """Turns a configuration into an offer, or says that nobody sells it.

    It is a pure function of the configuration: the same one always gives the same offer.

    Args:
        settings: An instance of the class's ``Settings``.
        offers: Offers that may be used, one node each.
        space: The space, whose machine parameters it reads.
    """

    def __init__(self, *, settings: Settings, offers: Sequence[Offer], space: Space) -> None:
        self.settings = settings
        self.offers: Sequence[Offer] = offers if isinstance(offers, OfferColumns) else tuple(offers)
        self.space = space

    @cached_property
    def machine_parameters(self) -> tuple[str, ...]:
        """Names of the parameters that choose machines: the instance, the nodes, and those with an attribute."""
        return tuple(
            p.name for p in self.space.parameters if isinstance(p, Instance | Nodes) or p.attribute is not None
        )

    @abstractmethod
    def resolve(self, configuration: Configuration) -> Offer:
        """Find the offer for a configuration, with its number of nodes.

        Raises:
            NoOfferError: No provider sells it.
        """
