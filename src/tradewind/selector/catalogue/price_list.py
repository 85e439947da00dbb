"""The common frame of catalogues with a public price list: shipped offers, and refreshed ones kept on disk."""

from __future__ import annotations

import datetime
import errno
import json
import math
from abc import abstractmethod
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from tradewind import plugins
from tradewind.errors import CatalogueError, FetchError, StoreError, StoreFullError, StoreReadOnlyError
from tradewind.problem import Offer
from tradewind.selector.catalogue.base import Catalogue, Refreshable
from tradewind.selector.catalogue.price_fetcher import PriceFetcher
from tradewind.selector.catalogue.shipped_prices import shipped_offers
from tradewind.utils.atomic_files import write_atomically


def tidy_price(price: float) -> float:
    """A price per hour without the noise of the multiplication that made it."""
    return round(price, 8)


_VERSION = 1

PriceKey = tuple[str, str, bool]
"""Key of a price: instance type, region, spot."""


class PriceListSettings(plugins.Settings):
    """Settings of a catalogue whose provider publishes its prices."""

    base_url: str = Field(default="", description="Address of the price endpoint; the provider's own when empty.")
    regions: tuple[str, ...] = Field(default=(), description="Regions to refresh; those that are shipped when empty.")
    timeout: float = Field(default=30.0, gt=0, description="Seconds without an answer before an attempt is given up.")
    retries: int = Field(default=4, ge=0, description="Attempts after the first, at rate limits and server faults.")
    wait: float = Field(default=1.0, ge=0, description="Seconds before the first retry; doubles each time.")
    extra_per_hour: float = Field(
        default=0.0,
        ge=0,
        allow_inf_nan=False,
        description="USD per hour that each machine costs besides its price, such as its disk and public address.",
    )


class PriceListCatalogue(Catalogue, Refreshable):
    """Sells shipped offers that fresh prices replace, by type and region."""

    home: ClassVar[str]
    """Address of the provider's endpoint when no ``base_url`` is set."""
    provider: ClassVar[str]
    """The provider's name in offers."""
    Settings = PriceListSettings
    settings: PriceListSettings

    def __init__(self, *, settings: plugins.Settings, data_folder: Path) -> None:
        super().__init__(settings=settings, data_folder=data_folder)
        self._merged: tuple[int, Sequence[Offer]] | None = None
        self._dearer: tuple[Sequence[Offer], Sequence[Offer]] | None = None

    def shipped(self) -> Sequence[Offer]:
        """The offers that come with the package."""
        return shipped_offers(self.provider)

    @abstractmethod
    def fetch(self) -> Generator[str, None, list[Offer]]:
        """Read today's offers, yielding the present step in words."""

    @property
    def path(self) -> Path:
        """The file that refreshed prices are kept in."""
        return self.data_folder / "prices" / f"{self.provider}.json"

    @property
    def base_url(self) -> str:
        """Address of the price endpoint."""
        return (self.settings.base_url or self.home).rstrip("/")

    @property
    def fetcher(self) -> PriceFetcher:
        """Fetcher for the provider's endpoint under the settings' limits."""
        return PriceFetcher(
            self.provider, timeout=self.settings.timeout, retries=self.settings.retries, wait=self.settings.wait
        )

    def regions(self) -> tuple[str, ...]:
        """The regions to refresh."""
        return self.settings.regions or tuple(sorted({offer.region for offer in self.shipped()}))

    def offers(self) -> Sequence[Offer]:
        """The shipped offers, with refreshed prices in place of theirs, and what comes on top.

        Raises:
            CatalogueError: The file of refreshed prices is damaged.
        """
        listed, extra = self._listed(), self.settings.extra_per_hour
        if not extra:
            return listed
        if self._dearer is None or self._dearer[0] is not listed:
            dearer = tuple(replace(offer, price_per_hour=tidy_price(offer.price_per_hour + extra)) for offer in listed)
            self._dearer = (listed, dearer)
        return self._dearer[1]

    def _listed(self) -> Sequence[Offer]:
        try:
            stamp = self.path.stat().st_mtime_ns
        except OSError:
            return self.shipped()
        if self._merged is None or self._merged[0] != stamp:
            merged = {_place(offer): offer for offer in self.shipped()}
            merged.update({_place(offer): offer for offer in read_prices(self.path)})
            self._merged = (stamp, tuple(merged.values()))
        return self._merged[1]

    def refresh(self) -> Iterator[str]:
        """Fetch prices and keep them; what was there stays when anything goes wrong."""
        found = yield from self.fetch()
        if not found:
            raise FetchError(
                f"{self.provider}: {self.base_url} has no usable price for {', '.join(self.regions())}",
                hint="check the regions; the prices from before stay",
            )
        fresh = {_place(offer): offer for offer in found}
        answered = {offer.region for offer in found}
        if missing := sorted(set(self.regions()) - answered):
            yield f"{self.provider}: no price for {', '.join(missing)}; what was known of it stays"
        kept: list[Offer] = []
        if self.path.exists():
            try:
                kept = [offer for offer in read_prices(self.path) if offer.region not in answered]
            except CatalogueError as error:
                yield f"{self.provider}: replacing {error.file}, which could not be read"
        write_prices(self.path, [*kept, *fresh.values()])
        yield f"{self.provider}: {len(fresh)} prices kept in {self.path}"


def _place(offer: Offer) -> PriceKey:
    return offer.instance_type, offer.region, offer.spot


def todays_date() -> str:
    """Today's date, for prices that are read now."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def repriced(offer: Offer, price: float, *, region: str, source: str, spot: bool = False) -> Offer:
    """A known machine type at a price that was read now."""
    return replace(offer, price_per_hour=price, region=region, spot=spot, price_date=todays_date(), source=source)


def price_or_none(value: Any) -> float | None:
    """A price as a number, or None where the list has none: text, zero, not finite."""
    try:
        price = float(value)
    except (TypeError, ValueError):
        return None
    return price if math.isfinite(price) and price > 0 else None


def read_prices(path: Path) -> list[Offer]:
    """The offers that `write_prices` kept.

    Raises:
        CatalogueError: The file is damaged.
    """
    try:
        document = json.loads(path.read_bytes())
        if document["version"] != _VERSION:
            raise CatalogueError(
                f"refreshed prices are of version {document['version']}, this program reads {_VERSION}",
                file=str(path),
                hint="delete the file, or run: tradewind offers refresh",
            )
        offers = [Offer.from_json(row) for row in document["offers"]]
        if any(price_or_none(offer.price_per_hour) is None for offer in offers):
            raise ValueError("a price is no number above zero")
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise CatalogueError(
            f"refreshed prices cannot be read: {type(error).__name__}",
            file=str(path),
            hint="delete the file, or run: tradewind offers refresh",
        ) from None
    return offers


def write_prices(path: Path, offers: Sequence[Offer]) -> None:
    """Keep offers in one step: a reader sees the old file or the new one, never half of it.

    Raises:
        StoreFullError: The disk is full.
        StoreReadOnlyError: The folder cannot be written.
    """
    document: Mapping[str, Any] = {"version": _VERSION, "offers": [offer.to_json() for offer in offers]}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(document), mode=0o600, durable=True)
    except OSError as error:
        kind = {
            errno.ENOSPC: StoreFullError,
            errno.EDQUOT: StoreFullError,
            errno.EACCES: StoreReadOnlyError,
            errno.EPERM: StoreReadOnlyError,
            errno.EROFS: StoreReadOnlyError,
        }.get(error.errno or 0, StoreError)
        raise kind(
            f"refreshed prices cannot be written to {path}: {error.strerror}", hint="the old prices stay"
        ) from None
