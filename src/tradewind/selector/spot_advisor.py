"""Interruption rates of spot machines from the data of Amazon's Spot Instance Advisor."""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import Field, model_validator

from tradewind import plugins
from tradewind.errors import CatalogueError, InputError
from tradewind.problem import Offer
from tradewind.problem.offer import BAND_SHARES, hourly_interruptions
from tradewind.selector.catalogue.base import Catalogue, DescribesOffers
from tradewind.selector.catalogue.csv_file import file_text
from tradewind.selector.catalogue.price_fetcher import PriceFetcher
from tradewind.utils.paths import expand
from tradewind.utils.suggestions import did_you_mean

_log = logging.getLogger("tradewind.selector")

ADDRESS = "https://spot-bid-advisor.s3.amazonaws.com/spot-advisor-data.json"
"""Where Amazon's page reads the data from."""

Rates = Mapping[tuple[str, str], float]
"""Interruptions per hour by region and instance type."""


class SpotAdvisorSettings(plugins.Settings):
    """Settings of the data of the Spot Instance Advisor: a file or an address of it."""

    path: Path | None = Field(default=None, description=f"A JSON file with the data, as kept from {ADDRESS}.")
    url: str = Field(default="", description="An address of the data, instead of a file; it is read once per command.")
    system: str = Field(default="Linux", description="Operating system whose rates count: Linux or Windows.")
    timeout: float = Field(default=30.0, gt=0, description="Seconds without an answer before the address is given up.")

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.path is None) == (not self.url):
            raise InputError(
                "spot_advisor needs a path or a url, and not both",
                hint=f"catalogues: {{spot_advisor: {{url: {ADDRESS}}}}}",
            )
        return self


class SpotAdvisorCatalogue(Catalogue, DescribesOffers):
    """Adds interruption rates to spot offers of AWS, from the data of Amazon's Spot Instance Advisor.

    It sells nothing. The rate is that of the middle of the band in which Amazon gives the share of machines of a type
    that were taken back in a region during the last month. A rate that an offer's own catalogue knows stays.
    """

    on_request: ClassVar[bool] = True
    Settings = SpotAdvisorSettings
    settings: SpotAdvisorSettings

    def offers(self) -> Sequence[Offer]:
        """None: it only says more of what others sell."""
        return ()

    def describe(self, offers: Sequence[Offer]) -> Sequence[Offer]:
        """The offers; spot offers of AWS whose rate is not known yet have the one of their region and type.

        Raises:
            CatalogueError: The file cannot be read, or is something else.
            FetchError: The address does not answer as it should.
        """
        wanting = [one for one in offers if one.spot and one.provider == "aws" and one.interruptions_per_hour is None]
        if not wanting:
            return offers
        rates, place = self._rates()
        if not any((one.region, one.instance_type) in rates for one in wanting):
            types = sorted({f"{one.region}/{one.instance_type}" for one in wanting})
            _log.warning("spot_advisor: %s has none of the %d spot offers (%s)", place, len(types), types[0])
        return [
            replace(one, interruptions_per_hour=rates.get((one.region, one.instance_type)))
            if one.spot and one.provider == "aws" and one.interruptions_per_hour is None
            else one
            for one in offers
        ]

    def _rates(self) -> tuple[Rates, str]:
        if self.settings.path is None:
            url = self.settings.url
            return _fetched(url, self.settings.timeout, self.settings.system), url
        path = expand(self.settings.path)
        try:
            status = path.stat()
        except OSError as error:
            raise CatalogueError(f"cannot be read: {error.strerror}", file=str(path), hint="check the path") from None
        return _read(path, status.st_mtime_ns, status.st_size, self.settings.system), str(path)


@functools.lru_cache(maxsize=4)
def _fetched(url: str, timeout: float, system: str) -> Rates:
    return parse_rates(PriceFetcher("spot_advisor", timeout=timeout, retries=1).json(url), system, url)


@functools.lru_cache(maxsize=4)
def _read(path: Path, _changed: int, _size: int, system: str) -> Rates:
    try:
        document = json.loads(file_text(path))
    except (ValueError, RecursionError) as error:
        raise CatalogueError(f"is no JSON: {error}", file=str(path), hint=f"it is at {ADDRESS}") from None
    return parse_rates(document, system, str(path))


def parse_rates(document: Any, system: str, place: str) -> Rates:
    """Read the rates of one operating system out of the advisor's data.

    Args:
        document: The JSON document.
        system: ``Linux`` or ``Windows``.
        place: The file or the address, for errors.

    Raises:
        CatalogueError: It is another document, or has nothing on that system.
    """
    try:
        bands = {int(band["index"]): _share(band) for band in document["ranges"]}
        regions = {str(region): dict(systems) for region, systems in document["spot_advisor"].items()}
        known = sorted({name for systems in regions.values() for name in systems})
        if system not in known:
            hint = did_you_mean(system, known, "there is")
            raise CatalogueError(f"has no rates of the system {system!r}", file=place, hint=hint)
        return {
            (region, str(kind)): hourly_interruptions(bands[int(entry["r"])])
            for region, systems in regions.items()
            for kind, entry in systems.get(system, {}).items()
        }
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CatalogueError(
            f"is no data of the Spot Instance Advisor ({type(error).__name__}: {error})",
            file=place,
            hint=f"it is at {ADDRESS}",
        ) from None


def _share(band: Mapping[str, Any]) -> float:
    """The share of a month in the middle of a band, by its label."""
    return BAND_SHARES[str(band["label"]).replace(" ", "").replace("–", "-")]
