"""The contract of catalogues, which know the offers of a provider."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path

from tradewind.plugins import Capability, Plugin, Settings
from tradewind.problem import Offer


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


class Catalogue(Plugin, ABC):
    """Knows what one provider sells.

    Args:
        settings: An instance of the class's ``Settings``.
        data_folder: Folder of refreshed prices.
    """

    def __init__(self, *, settings: Settings, data_folder: Path) -> None:
        self.settings = settings
        self.data_folder = data_folder

    @abstractmethod
    def offers(self) -> Sequence[Offer]:
        """List all offers of the catalogue, one node each, without network access."""

    def made_to_measure(self, types: Sequence[str]) -> Sequence[Offer]:
        """List offers of types that are not among `offers`, since the provider makes them in any size.

        Args:
            types: Names that somebody asks for; those of other types are passed over.
        """
        return ()
