"""The catalogue of the Spare Cores database."""

from __future__ import annotations

import functools
import itertools
import logging
import os
import re
import sqlite3
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from pydantic import Field, PositiveFloat

from tradewind import plugins
from tradewind.errors import CatalogueError
from tradewind.problem import Offer, OfferQuery
from tradewind.problem.columns.table_offers import TableNames, TableRow
from tradewind.selector.canonical_words import canonical_arch, canonical_provider
from tradewind.selector.catalogue.price_table import (
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
_PLACES = """
SELECT p.vendor_id, p.region_id, p.zone_id, r.api_reference, z.api_reference
FROM (SELECT DISTINCT vendor_id, region_id, zone_id FROM server_price {bounds}) p
JOIN region r USING (vendor_id, region_id) LEFT JOIN zone z USING (vendor_id, region_id, zone_id)
"""
_REGIONS = "WHERE (vendor_id, region_id) IN (SELECT vendor_id, region_id FROM region WHERE api_reference IN ({marks}))"
# The program finds the lowest price of the zones itself: SQLite would sort all rows for it.
_PRICES = """
SELECT w.number + r.number + (p.allocation = 'SPOT' COLLATE NOCASE), p.price * ?, r.zone, p.observed_at {more}
FROM {tables}
WHERE p.currency {equal} 'USD' AND p.allocation COLLATE NOCASE IN ({markets}) AND p.unit = 'HOUR' COLLATE NOCASE
      AND p.status = 'ACTIVE' COLLATE NOCASE AND p.operating_system NOT LIKE '%windows%' AND p.price > 0 {bounds}
"""
_SCAN = "server_price p CROSS JOIN wanted w USING (vendor_id, server_id) CROSS JOIN places r {zone}"
_BY_PLACE = "places r CROSS JOIN server_price p {zone} CROSS JOIN wanted w USING (vendor_id, server_id)"
"""All rows of prices in their order, or those of some zones by the key of the table, which begins with them."""
_ZONE = "USING (vendor_id, region_id, zone_id)"
_SCORES = """
SELECT s.vendor_id, s.{server}, s.benchmark_id, CASE b.higher_is_better WHEN 0 THEN MIN(s.score) ELSE MAX(s.score) END
FROM benchmark_score s JOIN benchmark b USING (benchmark_id)
WHERE s.benchmark_id IN ({marks}) AND UPPER(s.status) = 'ACTIVE' {servers_only}
GROUP BY s.vendor_id, s.{server}, s.benchmark_id
"""

_MARKETS = (("ONDEMAND", False), ("SPOT", True))
"""The kinds of prices that are read, and whether they are of capacity that may be taken back."""

_SLACK = 1 + 1e-9
"""A bound on prices is looser in the database by what rounding may take; the table's is exact."""

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
            regions, zones = _places(database, within.region)
            names = TableNames([machine for _, machine in wanted], regions, zones)
            database.execute(
                "CREATE TEMP TABLE wanted (vendor_id, server_id, number, "
                "PRIMARY KEY (vendor_id, server_id)) WITHOUT ROWID"
            )
            keys = ((*key, place * names.width) for place, (key, _) in enumerate(wanted))
            database.executemany("INSERT INTO wanted VALUES (?, ?, ?)", keys)
            return PriceTable(names, _prices(database, within, {"USD": 1.0, **dict(worth)}))
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


def _places(database: sqlite3.Connection, wanted: Sequence[str]) -> tuple[list[str], list[str]]:
    """The names of the regions and zones that have prices; their numbers are in the new table ``places``."""
    bounds = _REGIONS.format(marks=_marks(wanted)) if wanted else ""
    found = database.execute(_PLACES.format(bounds=bounds), tuple(wanted)).fetchall()
    regions = {name: place for place, name in enumerate(dict.fromkeys(row[3] for row in found))}
    zones = {name: place for place, name in enumerate(dict.fromkeys(row[4] or "" for row in found))}
    database.execute(
        "CREATE TEMP TABLE places (vendor_id, region_id, zone_id, number, zone, "
        "PRIMARY KEY (vendor_id, region_id, zone_id)) WITHOUT ROWID"
    )
    rows = ((*keys, 2 * regions[region], zones[zone or ""]) for *keys, region, zone in found)
    database.executemany("INSERT INTO places VALUES (?, ?, ?, ?, ?)", rows)
    return list(regions), list(zones)


def _prices(database: sqlite3.Connection, within: OfferQuery, worth: Mapping[str, float]) -> Iterable[TableRow]:
    """The prices of the servers in the table ``wanted`` in the zones of the table ``places``."""
    markets = [name for name, spot in _MARKETS if within.spot in (None, spot)]
    tables = (_BY_PLACE if within.region else _SCAN).format(zone=_ZONE)
    high = within.price[1]
    text = _PRICES.format(tables=tables, markets=_marks(markets), equal="{equal}", bounds="{bounds}", more="{more}")
    given = (worth["USD"], *markets, *(() if high is None else (high / worth["USD"] * _SLACK,)))
    bounds = "" if high is None else "AND p.price <= ?"
    dollars = database.execute(text.format(equal="=", bounds=bounds, more=""), given)
    bounds = "" if high is None else f"AND (p.price <= ? OR UPPER(p.currency) NOT IN ({_marks(worth)}))"
    given = (1.0, *markets, *(() if high is None else (high / min(worth.values()) * _SLACK, *worth)))
    others = database.execute(text.format(equal="!=", bounds=bounds, more=", p.currency"), given)
    # Nearly all are in dollars: of a hundred thousand rows, none is made anew here.
    return itertools.chain(dollars, _in_dollars(others, worth))


def _in_dollars(rows: Iterable[tuple[int, float, int, str, str]], worth: Mapping[str, float]) -> Iterator[TableRow]:
    """Rows with a currency behind them in USD; those of unknown currencies are left out, which is logged."""
    left_out: Counter[str] = Counter()
    for number, price, zone, seen, currency in rows:
        rate = worth.get(currency.upper())
        if rate is None:
            left_out[currency.upper()] += 1
        else:
            yield number, price * rate, zone, seen
    if left_out:
        counts = ", ".join(f"{count} in {name}" for name, count in sorted(left_out.items()))
        example = min(left_out)
        _log.warning(
            "sparecores: prices in other currencies are left out (%s); set what one is worth in USD: "
            "catalogues: {sparecores: {currencies: {%s: 1.1}}}",
            counts,
            example,
        )


def _marks(values: Collection[object]) -> str:
    """A mark for each value of a statement."""
    return ", ".join("?" * len(values))


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
