"""The catalogue of the Spare Cores database."""

from __future__ import annotations

import functools
import logging
import os
import re
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from pydantic import Field, PositiveFloat

from tradewind import plugins
from tradewind.errors import CatalogueError
from tradewind.problem import Offer, OfferQuery
from tradewind.selector.canonical_words import canonical_arch, canonical_provider
from tradewind.selector.catalogue.price_table import (
    PriceRow,
    PriceTable,
    PriceTableCatalogue,
    accelerators,
    of_types,
    usual_category,
)
from tradewind.selector.disk_sizes import GIGABYTE, disk_facts
from tradewind.utils.paths import expand
from tradewind.utils.suggestions import did_you_mean

_log = logging.getLogger("tradewind.selector")

_FETCH = "pip install sparecores-data; python -c 'import sc_data' fetches it. Or set 'path' of the catalogue sparecores"

# The database writes the names of its enumerations (SPOT, HOUR, X86_64). Google's types and regions have numbers for
# identifiers there: `api_reference` is what the provider calls them.
_SERVERS = """
SELECT vendor_id, server_id, api_reference, family, vcpus, memory_amount, UPPER(cpu_allocation) = 'BURSTABLE',
       cpu_architecture, {gpus}_count, {gpus}_model, {disk}
FROM server
WHERE UPPER(status) NOT IN ('INACTIVE', 'RETIRED') AND vcpus > 0 AND memory_amount > 0
"""
_PRICES = """
SELECT w.place, p.vendor_id, p.region_id, p.allocation = 'SPOT' COLLATE NOCASE, MIN(p.price), p.currency,
       p.observed_at, p.zone_id, COUNT(*)
FROM server_price p JOIN wanted w USING (vendor_id, server_id)
WHERE p.allocation COLLATE NOCASE IN ({markets}) AND p.unit = 'HOUR' COLLATE NOCASE
      AND p.status = 'ACTIVE' COLLATE NOCASE AND p.operating_system NOT LIKE '%windows%' AND p.price > 0 {bounds}
GROUP BY w.place, p.region_id, 4, p.currency
"""
# The other columns are those of the zone with the lowest price: SQLite takes them from the row of MIN.
_SCORES = """
SELECT s.vendor_id, s.{server}, s.benchmark_id, CASE b.higher_is_better WHEN 0 THEN MIN(s.score) ELSE MAX(s.score) END
FROM benchmark_score s JOIN benchmark b USING (benchmark_id)
WHERE s.benchmark_id IN ({marks}) AND UPPER(s.status) = 'ACTIVE' {servers_only}
GROUP BY s.vendor_id, s.{server}, s.benchmark_id
"""

_MARKETS = (("ONDEMAND", False), ("SPOT", True))
"""The kinds of prices that are read, and whether they are of capacity that may be taken back."""

_ServerKey = tuple[str, str]


class SparecoresSettings(plugins.Settings):
    """Settings of the Spare Cores catalogue."""

    path: Path | None = Field(
        default=None, description="The SQLite database; the one that the package sparecores-data keeps when not set."
    )
    scores: tuple[str, ...] = Field(
        default=(), description="Benchmarks (stress_ng:bestn) whose scores become facts of the offers."
    )
    currencies: Mapping[str, PositiveFloat] = Field(
        default_factory=dict,
        description="USD that one unit of another currency is worth ({EUR: 1.1}); prices in others are left out.",
    )


class SparecoresCatalogue(PriceTableCatalogue):
    """Sells the servers of the Spare Cores database: many vendors, on demand and spot, each price with its date.

    The package ``sparecores-data`` fetches the database and keeps it fresh; here it is only read.
    """

    Settings = SparecoresSettings
    settings: SparecoresSettings

    def table(self, query: OfferQuery) -> PriceTable:
        """The rows of the database within a query, but for its lower bound on prices.

        Raises:
            CatalogueError: The database is not there or is another one, or has no such benchmark.
        """
        path = expand(self.settings.path) if self.settings.path else _kept_database()
        try:
            status = path.stat()
        except OSError as error:
            raise CatalogueError(f"cannot be read: {error.strerror}", file=str(path), hint=_FETCH) from None
        worth = tuple(sorted((name.upper(), value) for name, value in self.settings.currencies.items()))
        within = replace(query, price=(None, query.price[1]), limit=None)
        return _read(path, status.st_mtime_ns, status.st_size, self.settings.scores, worth, within)


def _kept_database() -> Path:
    """The file that ``sparecores-data`` keeps; importing it would start a download."""
    if named := os.environ.get("SC_DATA_DB_PATH"):
        return expand(named)
    if cache := os.environ.get("XDG_CACHE_HOME"):
        folder = expand(cache)
    else:
        folder = expand("~/Library/Caches" if sys.platform == "darwin" else "~/.cache")
    return folder / "sparecores-data" / "sc-data-all.db"


@functools.lru_cache(maxsize=4)
def _read(
    path: Path,
    _changed: int,
    _size: int,
    scores: tuple[str, ...],
    worth: tuple[tuple[str, float], ...],
    within: OfferQuery,
) -> PriceTable:
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True)) as database:
            facts = _scores(database, scores, path) if scores else {}
            alike = of_types(within)
            wanted = [(key, machine) for key, machine in _machines(database, facts, path) if alike.matches(machine)]
            database.execute("PRAGMA temp_store = MEMORY")
            database.execute(
                "CREATE TEMP TABLE wanted (vendor_id, server_id, place, PRIMARY KEY (vendor_id, server_id))"
            )
            keys = ((*key, place) for place, (key, _) in enumerate(wanted))
            database.executemany("INSERT INTO wanted VALUES (?, ?, ?)", keys)
            rows = _prices(database, within, {"USD": 1.0, **dict(worth)})
            return PriceTable([machine for _, machine in wanted], rows)
    except sqlite3.Error as error:
        raise CatalogueError(
            f"is no database of Spare Cores that this program reads: {error}", file=str(path), hint=_FETCH
        ) from None


def _columns(database: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in database.execute(f"PRAGMA table_info({table})")}


def _machines(
    database: sqlite3.Connection, scores: Mapping[_ServerKey, Mapping[str, float]], path: Path
) -> Iterator[tuple[_ServerKey, Offer]]:
    # Called gpu_count and gpu_model before version 0.10 of the database.
    columns = _columns(database, "server")
    gpus = "accelerator" if "accelerator_count" in columns else "gpu"
    disk = "storage_size" if "storage_size" in columns else "NULL"
    for vendor, server, name, family, vcpu, mib, burstable, arch, count, model, gigabytes in database.execute(
        _SERVERS.format(gpus=gpus, disk=disk)
    ):
        number, facts = accelerators(count or 0, model or "")
        yield (
            (vendor, server),
            Offer(
                provider=canonical_provider(vendor),
                instance_type=name,
                vcpu=float(vcpu),
                memory_gib=mib / 1024,
                price_per_hour=0.0,
                category=usual_category(vcpu, mib / 1024, gpus=number, burstable=bool(burstable)),
                family=family or "",
                arch=canonical_arch(arch or ""),
                gpus=number,
                source=f"Spare Cores: {path}",
                facts={**facts, **disk_facts((gigabytes or 0) * GIGABYTE), **scores.get((vendor, server), {})},
            ),
        )


def _prices(database: sqlite3.Connection, within: OfferQuery, worth: Mapping[str, float]) -> list[PriceRow]:
    """The prices of the servers in the table ``wanted``: the lowest of the zones."""
    regions = {
        (vendor, region): name
        for vendor, region, name in database.execute("SELECT vendor_id, region_id, api_reference FROM region")
        if not within.region or name in within.region
    }
    zones = {
        (vendor, region, zone): name
        for vendor, region, zone, name in database.execute(
            "SELECT vendor_id, region_id, zone_id, api_reference FROM zone"
        )
    }
    given: list[str | float] = [name for name, spot in _MARKETS if within.spot in (None, spot)]
    text = _PRICES.format(markets=", ".join("?" * len(given)), bounds=_bounds(regions, within, worth, given))
    found = [row for row in database.execute(text, given) if (row[1], row[2]) in regions]
    rates = {currency: worth.get(currency) or worth.get(currency.upper()) for currency in {row[5] for row in found}}
    left_out: Counter[str] = Counter()
    for row in found if None in rates.values() else ():
        if rates[row[5]] is None:
            left_out[row[5].upper()] += row[8]
    if left_out:
        counts = ", ".join(f"{count} in {name}" for name, count in sorted(left_out.items()))
        example = min(left_out)
        _log.warning(
            "sparecores: prices in other currencies are left out (%s); set what one is worth in USD: "
            "catalogues: {sparecores: {currencies: {%s: 1.1}}}",
            counts,
            example,
        )
    return [
        PriceRow(
            place,
            regions[vendor, region],
            spot == 1,
            price * rate,
            seen[:10],
            zones.get((vendor, region, zone), "") if spot else "",
        )
        for place, vendor, region, spot, price, currency, seen, zone, _ in found
        if (rate := rates[currency]) is not None
    ]


def _bounds(
    regions: Iterable[tuple[str, str]], within: OfferQuery, worth: Mapping[str, float], given: list[str | float]
) -> str:
    """Conditions on the rows of prices; what their marks stand for is added to ``given``.

    A least price is none of them: the lowest price of the zones stands, also where it is below that.
    """
    text = ""
    if within.region:
        # With the vendors, too, the key of the table finds the rows.
        for column, place in (("vendor_id", 0), ("region_id", 1)):
            names = sorted({row[place] for row in regions})
            given += names
            text += f"AND p.{column} IN ({', '.join('?' * len(names))}) "
    if within.price[1] is not None:
        given.append(within.price[1] / min(worth.values()) * (1 + 1e-9))
        text += f"AND (p.price <= ? OR UPPER(p.currency) NOT IN ({', '.join('?' * len(worth))}))"
        given += worth
    return text


def _scores(
    database: sqlite3.Connection, wanted: tuple[str, ...], path: Path
) -> Mapping[_ServerKey, Mapping[str, float]]:
    """Scores by server and fact; of a benchmark with several settings, the best."""
    known = [row[0] for row in database.execute("SELECT benchmark_id FROM benchmark ORDER BY benchmark_id")]
    for name in wanted:
        if name not in known:
            raise CatalogueError(
                f"has no benchmark {name!r}", file=str(path), hint=did_you_mean(name, known, "there is")
            )
    # Scores had a server_id before version 0.9 of the database; now they may be of a managed database too.
    newer = "resource_id" in _columns(database, "benchmark_score")
    text = _SCORES.format(
        server="resource_id" if newer else "server_id",
        servers_only="AND UPPER(s.resource_type) = 'SERVER'" if newer else "",
        marks=", ".join("?" * len(wanted)),
    )
    found: dict[_ServerKey, dict[str, float]] = {}
    for vendor, server, name, score in database.execute(text, wanted):
        fact = re.sub(r"[^0-9a-z]+", "_", name.lower()).strip("_")
        found.setdefault((vendor, server), {})[fact] = float(score)
    return found
