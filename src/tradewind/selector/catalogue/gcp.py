"""The catalogue of Google Compute Engine."""

from __future__ import annotations

import os
import re
import urllib.parse
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from tradewind import plugins
from tradewind.errors import FetchError, MissingProgramError
from tradewind.problem import Offer
from tradewind.selector.catalogue import gcp_custom
from tradewind.selector.catalogue.price_fetcher import without_query
from tradewind.selector.catalogue.price_list import (
    PriceListCatalogue,
    PriceListSettings,
    repriced,
    tidy_price,
)
from tradewind.utils.paths import expand
from tradewind.utils.units import count

_COMPUTE_ENGINE = "6F81-5844-456A"
_MOST_PAGES = 500

_DESCRIPTION = re.compile(
    r"^(?:Spot Preemptible )?(?P<family>[A-Z]\d\w*|Compute optimized|Memory-optimized)"
    r"(?: Predefined)?(?: AMD| Arm)?(?: Instance)? (?P<part>Core|Ram) running in ",
)
_SPOKEN = {"compute optimized": "c2", "memory-optimized": "m1"}

Parts = dict[tuple[str, str, bool], dict[str, float]]
"""USD per hour of ``Core`` (a vCPU) and ``Ram`` (a GiB), by region, family and spot."""


class GcpSettings(PriceListSettings):
    """Settings of the Google Cloud catalogue."""

    key: str = Field(
        default="env:GOOGLE_API_KEY",
        description="API key for refreshing, by reference: env:NAME or file:PATH.",
        pattern=r"^(env|file):.+$",
    )
    spot: bool = Field(default=False, description="Read spot prices too when refreshing.")
    custom: tuple[Literal["e2", "n1", "n2", "n2d"], ...] = Field(
        default=(),
        description="Families of which custom machine types are offered too: each number of vCPUs, with whole GiB per "
        "vCPU.",
    )

    @field_validator("custom", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value


class GcpCatalogue(PriceListCatalogue):
    """Sells Google Compute Engine: on-demand machine types.

    Refreshing pages through the Cloud Billing Catalog API, which needs an API key. It prices vCPU and memory of a
    family, and a machine type costs the sum; types with a price of their own (shared-core, accelerators) keep
    the shipped one. Custom machine types (``n2-custom-6-20480``) are sold where they are asked for by name, and in
    all usual sizes with the setting ``custom``.
    """

    provider: ClassVar[str] = "gcp"
    home: ClassVar[str] = "https://cloudbilling.googleapis.com"
    Settings = GcpSettings
    settings: GcpSettings

    def __init__(self, *, settings: plugins.Settings, data_folder: Path) -> None:
        super().__init__(settings=settings, data_folder=data_folder)
        self._sized: tuple[Sequence[Offer], Sequence[Offer]] | None = None

    def offers(self) -> Sequence[Offer]:
        """The listed offers, and custom machine types of the families that the settings name."""
        listed = super().offers()
        if not self.settings.custom:
            return listed
        if self._sized is None or self._sized[0] is not listed:
            types = [name for family in self.settings.custom for name in gcp_custom.usual_types(family)]
            self._sized = (listed, (*listed, *gcp_custom.custom_offers(listed, types)))
        return self._sized[1]

    def made_to_measure(self, types: Sequence[str]) -> Sequence[Offer]:
        """Custom machine types by name, in each region whose prices are known."""
        return gcp_custom.custom_offers(super().offers(), types)

    def fetch(self) -> Generator[str, None, list[Offer]]:
        """Read all pages of Compute Engine's price list and add up the machine types."""
        key = _key(self.settings.key)
        wanted = frozenset(self.regions())
        parts: Parts = {}
        yield f"gcp: reading {self.base_url}"
        for number, sku in enumerate(self._skus(key), start=1):
            if number % 5000 == 0:
                yield f"gcp: {number} prices read"
            _add(sku, wanted, parts)
        known = {offer.instance_type: offer for offer in reversed(self.shipped()) if _by_parts(offer)}
        found = []
        for (region, family, spot), prices in sorted(parts.items()):
            if (spot and not self.settings.spot) or len(prices) < 2:
                continue
            for offer in known.values():
                if offer.family == family:
                    price = tidy_price(offer.vcpu * prices["Core"] + offer.memory_gib * prices["Ram"])
                    found.append(repriced(offer, price, region=region, source=self.home, spot=spot))
        yield f"gcp: {count(len(found), 'machine type')} in {count(len({o.region for o in found}), 'region')}"
        return found

    def _skus(self, key: str) -> Iterator[Mapping[str, Any]]:
        url = f"{self.base_url}/v1/services/{_COMPUTE_ENGINE}/skus"
        token = ""
        seen: set[str] = set()
        while True:
            query = {"key": key, "pageSize": "5000", "currencyCode": "USD", "pageToken": token}
            page = self.fetcher.json(f"{url}?{urllib.parse.urlencode(query)}")
            skus = page.get("skus")
            if not isinstance(skus, list) or not all(isinstance(sku, dict) for sku in skus):
                raise FetchError(f"gcp: {without_query(url)} has a page without 'skus'", hint="the old prices stay")
            yield from skus
            token = str(page.get("nextPageToken") or "")
            if not token:
                return
            if token in seen or len(seen) >= _MOST_PAGES:
                raise FetchError(
                    f"gcp: {without_query(url)} sends page after page without end", hint="the old prices stay"
                )
            seen.add(token)


def _by_parts(offer: Offer) -> bool:
    """True for machine types whose price is the sum of their vCPU and memory."""
    return not offer.gpus and offer.category != "burstable"


def _key(reference: str) -> str:
    """The API key that a reference names.

    Raises:
        MissingProgramError: There is none.
    """
    kind, _, name = reference.partition(":")
    hint = "make an API key in the Google Cloud console and set it, or name another with key: env:NAME"
    if kind == "env":
        key = os.environ.get(name, "").strip()
        where = f"the environment variable {name} is not set"
    else:
        try:
            key = expand(name).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            key = ""
        where = f"the file {name} has no key"
    if not key:
        raise MissingProgramError(f"gcp: refreshing needs an API key, and {where}", hint=hint)
    return key


def _add(sku: Mapping[str, Any], wanted: frozenset[str], parts: Parts) -> None:
    """Add one entry of the price list to ``parts``, unless it is no vCPU or memory of a family that is wanted.

    Raises:
        FetchError: A field that every entry has is missing.
    """
    try:
        match = _DESCRIPTION.match(sku["description"])
        usage = sku["category"]["usageType"]
        regions = [region for region in sku["serviceRegions"] if region in wanted]
        if match is None or usage not in ("OnDemand", "Preemptible") or not regions:
            return
        rates = sku["pricingInfo"][-1]["pricingExpression"]["tieredRates"]
        unit = rates[-1]["unitPrice"]
        price = int(unit.get("units") or 0) + int(unit.get("nanos") or 0) / 1e9
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        name = sku.get("skuId", "without a name")
        raise FetchError(f"gcp: the price {name} is not in the known form", hint="the old prices stay") from None
    if price <= 0 or unit.get("currencyCode", "USD") != "USD":
        return
    spoken = match["family"].lower()
    family = _SPOKEN.get(spoken, spoken)
    for region in regions:
        parts.setdefault((region, family, usage == "Preemptible"), {})[match["part"]] = price
