"""The contract of catalogues, which know the offers of a provider."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from tradewind.plugins import Capability, Plugin, Settings
from tradewind.problem import Offer, OfferQuery


class Refreshable(Capability):
    """Can read today's prices from the provider's public endpoint."""

    def refresh(self) -> Iterator[str]:
        """Fetch prices and keep them below the data folder; they are used from then on.

        Yields:
            The present step, in words, for a progress line.

        Raises:
            FetchError: The endpoint did not answer as it should; the old prices stay.
        """
        raise NotImplementedError  # pragma: no cover  (the inheriting catalogue defines it)


class DescribesOffers(Capability):
    """Says more of what other catalogues sell; it sells nothing itself."""

    def describe(self, offers: Sequence[Offer]) -> Sequence[Offer]:
        """The offers in their order, with what is known of each added to its facts.

        Args:
            offers: Offers of one node, of any catalogue.
        """
        raise NotImplementedError  # pragma: no cover  (the inheriting catalogue defines it)


class Catalogue(Plugin, ABC):
    """Knows what one provider sells.

    Args:
        settings: An instance of the class's ``Settings``.
        data_folder: Folder of refreshed prices.

    Attributes:
        on_request: True for one that is asked only where it is named, as a provider or with settings.
    """

    on_request: ClassVar[bool] = False

    def __init__(self, *, settings: Settings, data_folder: Path) -> None:
        self.settings = settings
        self.data_folder = data_folder

    @abstractmethod
    def offers(self) -> Sequence[Offer]:
        """List all offers of the catalogue, one node each, without network access."""

    def matching(self, query: OfferQuery) -> Sequence[Offer]:
        """List the offers within the bounds of a query.

        One with very many offers overrides this, so that it need not make those that are not wanted.

        Args:
            query: The bounds; its limit is passed over.
        """
        return [offer for offer in self.offers() if query.matches(offer)]

    def also_sells(self, offers: Sequence[Offer]) -> set[str]:
        """Keys of those of some offers that this catalogue has too, whatever it says of them.

        Args:
            offers: Offers of another catalogue.
        """
        return {offer.key for offer in self.offers()} & {offer.key for offer in offers}

    def made_to_measure(self, types: Sequence[str]) -> Sequence[Offer]:
        """List offers of types that are not among `offers`, since the provider makes them in any size.

        Args:
            types: Names that somebody asks for; those of other types are passed over.
        """
        return ()
