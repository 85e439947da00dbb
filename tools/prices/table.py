"""Writes price tables as the package ships them, from a provider's API or from packages with its data."""

from __future__ import annotations

import argparse
import csv
import io
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from tradewind import plugins
from tradewind.errors import TradewindError
from tradewind.problem import Offer
from tradewind.selector.catalogue.price_list import PriceListCatalogue, read_prices
from tradewind.selector.catalogue.shipped_prices import COLUMNS, FOLDER, read_table

WHOLE_LISTS = ("aws", "azure")
"""Providers whose API names each machine type: what it does not name is no longer sold."""


def table_text(offers: Iterable[Offer]) -> str:
    """Write offers as a table: a row for each type, price, date and source, with all regions that have it.

    What a machine has is written in the first row of its type only.
    """
    regions: dict[tuple[str, ...], list[str]] = {}
    for offer in offers:
        row = (
            offer.instance_type,
            f"{offer.price_per_hour:.8f}".rstrip("0"),
            f"{offer.vcpu:g}",
            f"{offer.memory_gib:.10g}",
            offer.category,
            offer.arch,
            str(offer.gpus or ""),
            str(offer.facts.get("accelerator", "")),
            offer.price_date,
            offer.source,
        )
        regions.setdefault(row, []).append(offer.region)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    before: tuple[str, ...] = ()
    for line, names in sorted(regions.items(), key=lambda item: (item[0][0], item[0][2:8], sorted(item[1]))):
        machine: tuple[str, ...] = (line[0], *line[2:8])
        facts: tuple[str, ...] = line[2:8] if machine != before else ("",) * 6
        writer.writerow((line[0], " ".join(sorted(names)), line[1], *facts, *line[8:]))
        before = machine
    return out.getvalue()


def from_api(provider: str, *, base_url: str = "", regions: Sequence[str] = (), folder: Path = FOLDER) -> list[Offer]:
    """Read a provider's public price API.

    Regions that it is not asked for keep their rows. So do Google's types with a price of their own, which is not that
    of their vCPUs and memory.

    Raises:
        FetchError: The endpoint did not answer as it should.
    """
    with tempfile.TemporaryDirectory() as empty:
        settings = {"base_url": base_url, "regions": tuple(regions)}
        catalogue = plugins.create("catalogue", provider, settings, data_folder=Path(empty))
        assert isinstance(catalogue, PriceListCatalogue)
        for step in catalogue.refresh():
            print(step)
        fresh = [_with_host(offer) for offer in read_prices(catalogue.path)]
    whole = {offer.region for offer in fresh} if provider in WHOLE_LISTS else set()
    kept = [offer for offer in read_table(folder / f"{provider}.csv") if offer.region not in whole]
    return list({(offer.instance_type, offer.region): offer for offer in (*kept, *fresh)}.values())


def _with_host(offer: Offer) -> Offer:
    """An offer whose source is the host of the address that it was read from."""
    return replace(offer, source=urlsplit(offer.source).hostname or offer.source)


def main(provider: str, from_packages: Callable[[Path], list[Offer]], arguments: Sequence[str] | None = None) -> int:
    """Write the table of one provider.

    Args:
        provider: The provider's name in offers.
        from_packages: Reads the offers out of a folder of wheels.
        arguments: Those of the command line.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(
        description=f"Writes {provider}.csv from {provider}'s public price API, or from packages with its data."
    )
    parser.add_argument("--packages", type=Path, help="folder of wheels to read instead of the API; see README.md")
    parser.add_argument("--base-url", default="", help="address of the API instead of the provider's own")
    parser.add_argument("--region", action="append", default=[], help="region to read; repeatable")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="folder of the table")
    given = parser.parse_args(arguments)
    try:
        if given.packages:
            offers = from_packages(given.packages)
        else:
            offers = from_api(provider, base_url=given.base_url, regions=given.region, folder=given.folder)
    except TradewindError as error:
        print(f"{provider}: {error}")
        return 1
    path = given.folder / f"{provider}.csv"
    path.write_text(table_text(offers), encoding="utf-8")
    print(f"{path}: {len(offers)} prices")
    return 0
