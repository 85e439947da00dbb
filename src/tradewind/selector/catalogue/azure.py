"""The catalogue of Microsoft Azure."""

from __future__ import annotations

import urllib.parse
from collections.abc import Generator, Iterator, Mapping
from typing import Any, ClassVar

from pydantic import Field

from tradewind.errors import FetchError
from tradewind.problem import Offer
from tradewind.selector.catalogue.price_fetcher import without_query
from tradewind.selector.catalogue.price_list import (
    PriceListCatalogue,
    PriceListSettings,
    price_or_none,
    repriced,
)

_MOST_PAGES = 2000


class AzureSettings(PriceListSettings):
    """Settings of the Azure catalogue."""

    spot: bool = Field(default=False, description="Read spot prices too when refreshing.")


class AzureCatalogue(PriceListCatalogue):
    """Sells Azure virtual machines: pay-as-you-go Linux sizes.

    Refreshing pages through the public Retail Prices API, which needs no account. That API states no vCPU and no
    memory, so only sizes that the shipped table knows are read.
    """

    provider: ClassVar[str] = "azure"
    home: ClassVar[str] = "https://prices.azure.com"
    Settings = AzureSettings
    settings: AzureSettings

    def fetch(self) -> Generator[str, None, list[Offer]]:
        """Read all pages of each region."""
        known = {offer.instance_type: offer for offer in reversed(self.shipped())}
        found: list[Offer] = []
        for region in self.regions():
            newest: dict[tuple[str, bool], tuple[str, Offer]] = {}
            unknown: set[str] = set()
            yield f"azure: reading {region}"
            for number, item in enumerate(self._items(region), start=1):
                if number % 1000 == 0:
                    yield f"azure: {region}, {number} prices read"
                priced = _read(item, region)
                if priced is None or (priced[1] and not self.settings.spot):
                    continue
                name, spot, price, since = priced
                if name not in known:
                    unknown.add(name)
                elif since >= newest.get((name, spot), ("",))[0]:
                    offer = repriced(known[name], price, region=region, source=self.home + _PATH, spot=spot)
                    newest[name, spot] = (since, offer)
            left_out = f", {len(unknown)} left out whose vCPU is not known" if unknown else ""
            yield f"azure: {region} has {len(newest)} sizes{left_out}"
            found += [offer for _, offer in newest.values()]
        return found

    def _items(self, region: str) -> Iterator[Mapping[str, Any]]:
        if not region.replace("-", "").isalnum():
            raise FetchError(f"azure: {region!r} is no region", hint="write eastus, westeurope, ...")
        query = f"serviceName eq 'Virtual Machines' and armRegionName eq '{region}' and priceType eq 'Consumption'"
        url: str | None = f"{self.base_url}{_PATH}?{urllib.parse.urlencode({'$filter': query})}"
        seen: set[str] = set()
        while url:
            if url in seen or len(seen) >= _MOST_PAGES:
                raise FetchError(
                    f"azure: {without_query(url)} sends page after page without end", hint="the old prices stay"
                )
            seen.add(url)
            page = self.fetcher.json(url)
            items = page.get("Items")
            if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
                raise FetchError(f"azure: {without_query(url)} has a page without 'Items'", hint="the old prices stay")
            yield from items
            url = self._next(page.get("NextPageLink"))

    def _next(self, link: Any) -> str | None:
        """The address of the next page, which must be of the same host."""
        if not link:
            return None
        if not isinstance(link, str) or _host(link) != _host(self.base_url):
            raise FetchError(f"azure: the next page is said to be at {link!r}, which is another host")
        # The API writes blanks and quotes into its links.
        return urllib.parse.quote(link, safe=":/?&=%$'+,()-._~")


_PATH = "/api/retail/prices"


def _host(url: str) -> str | None:
    try:
        return urllib.parse.urlsplit(url).hostname
    except ValueError:
        return None


def _read(item: Mapping[str, Any], region: str) -> tuple[str, bool, float, str] | None:
    """Size, spot, USD per hour and date of an item; None for what is no Linux machine by the hour.

    Raises:
        FetchError: A field that every item has is missing.
    """
    try:
        name, product, sku = item["armSkuName"], str(item["productName"]), str(item["skuName"])
        unit, currency, price = item["unitOfMeasure"], item["currencyCode"], item["retailPrice"]
    except KeyError as error:
        raise FetchError(f"azure: a price of {region} has no {error.args[0]!r}", hint="the old prices stay") from None
    if "Windows" in product or "CloudServices" in product.replace(" ", "") or "Low Priority" in sku:
        return None
    if unit != "1 Hour" or currency != "USD" or item.get("armRegionName") != region:
        return None
    if item.get("type", "Consumption") != "Consumption" or item.get("isPrimaryMeterRegion") is False:
        return None
    amount = price_or_none(price)
    if not isinstance(name, str) or not name or amount is None:
        return None
    return name, "Spot" in sku, amount, str(item.get("effectiveStartDate", ""))
