from __future__ import annotations

import itertools
import logging
import math
import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.selector.catalogue.others_lists import Price, Server, write_sparecores

from tradewind import plugins
from tradewind.errors import CatalogueError, SpecError
from tradewind.problem import Offer, OfferQuery
from tradewind.selector.catalogue.price_table import usual_category


def sold(path: Path | None, **settings: Any) -> dict[str, Offer]:
    given = {**settings, **({"path": str(path)} if path else {})}
    offers = plugins.create("catalogue", "sparecores", given, data_folder=Path("none")).offers()
    return {offer.key: offer for offer in offers}


def changed(path: Path, statement: str) -> Path:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(statement)
    return path


def test_servers_with_their_prices_and_dates(tmp_path: Path) -> None:
    path = write_sparecores(tmp_path / "sc.db")
    found = sold(path)
    assert sorted(found) == [
        "aws/us-east-1/c7i.large/spotx1", "aws/us-east-1/c7i.largex1", "aws/us-east-1/g6f.largex1",
        "aws/us-east-1/m7g.xlargex1", "aws/us-east-1/t3.smallx1", "gcp/europe-west1/n2-highmem-4x1",
    ]  # fmt: skip
    assert found["aws/us-east-1/c7i.largex1"] == Offer(
        "aws", "c7i.large", 2.0, 4.0, 0.0893, "us-east-1", "compute", "c7i", "x86_64",
        price_date="2026-11-20", source=f"Spare Cores: {path}",
    )  # fmt: skip
    assert found["aws/us-east-1/m7g.xlargex1"].arch == "arm64"
    assert {one.instance_type: one.category for one in found.values()} == {
        "c7i.large": "compute", "m7g.xlarge": "general", "t3.small": "burstable", "g6f.large": "accelerated",
        "n2-highmem-4": "memory",
    }  # fmt: skip


def test_the_cheapest_zone_of_spot_is_named(tmp_path: Path) -> None:
    offer = sold(write_sparecores(tmp_path / "sc.db"))["aws/us-east-1/c7i.large/spotx1"]
    assert (offer.spot, offer.price_per_hour, dict(offer.facts)) == (True, 0.035, {"zone": "use1-az2"})


def test_a_part_of_an_accelerator_counts_as_one_and_its_share_is_a_fact(tmp_path: Path) -> None:
    offer = sold(write_sparecores(tmp_path / "sc.db"))["aws/us-east-1/g6f.largex1"]
    assert (offer.gpus, dict(offer.facts)) == (1, {"accelerator": "L4", "accelerator_share": 0.125})


def test_other_currencies_are_left_out_in_one_line_or_changed_as_the_user_says(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_sparecores(tmp_path / "sc.db")
    with caplog.at_level(logging.WARNING, "tradewind.selector"):
        assert not any(offer.provider == "hcloud" for offer in sold(path).values())
    [record] = caplog.records
    assert "left out (1 in EUR)" in record.getMessage()
    assert "currencies: {EUR: 1.1}" in record.getMessage()
    caplog.clear()
    offer = sold(path, currencies={"eur": 1.25})["hcloud/fsn1/cx22x1"]
    assert offer.price_per_hour == pytest.approx(0.0075)
    assert not caplog.records
    with pytest.raises(SpecError, match="currencies"):
        sold(path, currencies={"EUR": 0})


def test_scores_are_facts_where_they_are_asked_for(tmp_path: Path) -> None:
    found = sold(write_sparecores(tmp_path / "sc.db"), scores=("stress_ng:bestn", "bw_mem", "latency"))
    # Of several settings of a benchmark the best; less latency is better. The score of a database is none of a server.
    assert dict(found["aws/us-east-1/c7i.largex1"].facts) == {
        "stress_ng_bestn": 4000.0, "bw_mem": 30000.0, "latency": 3.0,
    }  # fmt: skip
    assert dict(found["gcp/europe-west1/n2-highmem-4x1"].facts) == {"stress_ng_bestn": 5000.0}
    assert not found["aws/us-east-1/m7g.xlargex1"].facts
    with pytest.raises(CatalogueError, match=r"has no benchmark 'stress_ng:best' .*stress_ng:bestn"):
        sold(tmp_path / "sc.db", scores=("stress_ng:best",))


def test_what_is_no_longer_sold_is_left_out(tmp_path: Path) -> None:
    path = write_sparecores(tmp_path / "sc.db")
    changed(path, "UPDATE server SET status = 'RETIRED' WHERE server_id = 't3.small'")
    changed(path, "UPDATE server SET status = 'PLANNED_FOR_RETIREMENT' WHERE server_id = 'm7g.xlarge'")
    changed(path, "UPDATE server_price SET status = 'INACTIVE' WHERE server_id = 'c7i.large'")
    changed(path, "UPDATE server_price SET operating_system = 'Windows Server' WHERE server_id = 'g6f.large'")
    assert {offer.instance_type for offer in sold(path).values()} == {"m7g.xlarge", "n2-highmem-4"}


def test_databases_of_earlier_versions_are_read(tmp_path: Path) -> None:
    path = write_sparecores(tmp_path / "sc.db")
    for name in ("count", "model"):
        changed(path, f"ALTER TABLE server RENAME COLUMN accelerator_{name} TO gpu_{name}")
    changed(path, "DELETE FROM benchmark_score WHERE resource_type = 'DATABASE'")
    changed(path, "ALTER TABLE benchmark_score RENAME COLUMN resource_id TO server_id")
    found = sold(path, scores=("stress_ng:bestn",))
    assert found["aws/us-east-1/g6f.largex1"].gpus == 1
    assert found["aws/us-east-1/c7i.largex1"].facts == {"stress_ng_bestn": 4000.0}


def test_a_database_that_changed_is_read_again(tmp_path: Path) -> None:
    path = write_sparecores(tmp_path / "sc.db")
    assert len(sold(path)) == 6
    path.unlink()
    write_sparecores(path, servers=(("aws", "x9.metal", "x9.metal", "x9", 2, "DEDICATED", "X86_64", 4096, 0.0, None),))
    assert not sold(path)


@pytest.mark.parametrize("variable", ["SC_DATA_DB_PATH", "XDG_CACHE_HOME", "HOME"])
def test_the_database_of_the_package_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.delenv("SC_DATA_DB_PATH", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    folder = {"HOME": tmp_path / ".cache/sparecores-data", "XDG_CACHE_HOME": tmp_path / "sparecores-data"}.get(
        variable, tmp_path
    )
    folder.mkdir(parents=True, exist_ok=True)
    path = write_sparecores(folder / "sc-data-all.db")
    monkeypatch.setenv(variable, str(path if variable == "SC_DATA_DB_PATH" else tmp_path))
    assert len(sold(None)) == 6


def test_files_that_are_no_such_database(tmp_path: Path) -> None:
    with pytest.raises(CatalogueError, match=r"cannot be read: No such file.*pip install sparecores-data"):
        sold(tmp_path / "none.db")
    (tmp_path / "text.db").write_text("API Name,Provider\n" * 50)
    with pytest.raises(CatalogueError, match=r"is no database of Spare Cores"):
        sold(tmp_path / "text.db")
    sqlite3.connect(tmp_path / "empty.db").close()
    with pytest.raises(CatalogueError, match=r"no such table: server"):
        sold(tmp_path / "empty.db")


@pytest.mark.parametrize("currencies", [{}, {"EUR": 0.5}, {"EUR": 40.0}])
def test_filters_as_a_query_over_all_offers_does(tmp_path: Path, currencies: dict[str, float]) -> None:
    given = {"path": str(write_sparecores(tmp_path / "sc.db")), "currencies": currencies}
    catalogue = plugins.create("catalogue", "sparecores", given, data_folder=tmp_path)
    for query in (
        OfferQuery(), OfferQuery(spot=True), OfferQuery(region=("us-east-1",)), OfferQuery(region=("mars",)),
        OfferQuery(types=("c7i.*", "g6f.large"), spot=None), OfferQuery(gpus=(1, None)), OfferQuery(arch=("arm64",)),
        OfferQuery(price=(0.05, 0.2), category=("compute", "general")), OfferQuery(provider=("gcp",), vcpu=(4, 4)),
        OfferQuery(price=(0.036, None), spot=None), OfferQuery(price=(None, 0.035), spot=None),
        OfferQuery(price=(None, 0.003), spot=None), OfferQuery(price=(None, 0.24), region=("fsn1", "us-east-1")),
        OfferQuery(category=("accelerated",)), OfferQuery(memory=(None, 4.0), family=("c7i",)),
    ):  # fmt: skip
        assert list(catalogue.matching(query)) == [offer for offer in catalogue.offers() if query.matches(offer)]


def test_prices_left_out_are_counted_within_a_bound_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    given = {"path": str(write_sparecores(tmp_path / "sc.db"))}
    catalogue = plugins.create("catalogue", "sparecores", given, data_folder=tmp_path)
    with caplog.at_level(logging.WARNING, "tradewind.selector"):
        assert list(catalogue.matching(OfferQuery(price=(None, 0.00001)))) == []
    [record] = caplog.records
    assert "left out (1 in EUR)" in record.getMessage()


def test_names_of_enumerations_may_be_in_any_case(tmp_path: Path) -> None:
    path = write_sparecores(tmp_path / "sc.db")
    before = sold(path)
    for column in ("allocation", "unit", "currency", "status"):
        changed(path, f"UPDATE server_price SET {column} = LOWER({column})")
    assert sold(path) == before


@pytest.mark.parametrize("seed", range(3))
def test_filters_of_the_database_are_those_of_queries_over_its_rows(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    rates = {"USD": 1.0, "EUR": 1.1}
    servers: list[Server] = []
    rows: dict[tuple[str, ...], Price] = {}
    zones = {"aws": ("use1", "use2"), "hcloud": ("12", "13")}
    for vendor, kind, vcpu in itertools.product(zones, "cmg", (1, 2, 8)):
        name = f"{kind}.{vcpu}"
        arch, mib = rng.choice(("X86_64", "ARM64")), 1024 * vcpu * rng.choice((2, 4, 8))
        servers.append((vendor, f"{name}-id", name, kind, vcpu, "DEDICATED", arch, mib, float(kind == "g"), None))
        for zone, region, market in itertools.product("ab", zones[vendor], ("ONDEMAND", "SPOT", "RESERVED")):
            if rng.random() < 0.7:
                price = round(rng.uniform(0.02, 0.5) * vcpu, 4)
                place = vendor, region, region + zone, f"{name}-id", market
                rows[place] = (
                    *place,
                    rng.choice(("HOUR", "HOUR", "hour", "MONTH")),
                    price,
                    rng.choice((*rates, "eur", "CHF")),
                )
    places = [
        (vendor, region, f"{vendor}-{region}", (f"{region}a", f"{region}b"))
        for vendor in zones
        for region in zones[vendor]
    ]
    path = write_sparecores(tmp_path / "sc.db", servers=servers, prices=rows.values(), regions=places)
    catalogue = plugins.create(
        "catalogue", "sparecores", {"path": str(path), "currencies": {"EUR": 1.1}}, data_folder=tmp_path
    )
    # What the tables say, read by somebody who knows no SQL.
    lowest: dict[tuple[str, str, str, bool], tuple[float, str]] = {}
    for vendor, region, zone, server, market, unit, price, currency in rows.values():
        if market != "RESERVED" and unit.upper() == "HOUR" and currency != "CHF":
            key = vendor, f"{vendor}-{region}", server.removesuffix("-id"), market == "SPOT"
            usd = price * rates[currency.upper()]
            lowest[key] = min(lowest.get(key, (math.inf, "")), (usd, zone))
    known = {(one[0], one[2]): one for one in servers}
    sold = {}
    for (vendor, region, name, spot), (price, zone) in lowest.items():
        _, _, _, family, vcpu, _, arch, mib, gpus, _ = known[vendor, name]
        sold[vendor, region, name, spot] = Offer(
            vendor, name, vcpu, mib / 1024, price, region, usual_category(vcpu, mib / 1024, gpus=int(gpus)), family,
            {"X86_64": "x86_64", "ARM64": "arm64"}[arch], int(gpus), spot, 1, "2026-11-20", f"Spare Cores: {path}",
            {"zone": zone} if spot else {},
        )  # fmt: skip
    for _ in range(60):
        query = _random_query(rng)
        found = {(one.provider, one.region, one.instance_type, one.spot): one for one in catalogue.matching(query)}
        assert found == {key: offer for key, offer in sold.items() if query.matches(offer)}


def _random_query(rng: random.Random) -> OfferQuery:
    def some(*values: str) -> tuple[str, ...]:
        return tuple(rng.sample(values, rng.choice((0, 0, 1, 2))))

    def between(*values: float) -> tuple[float | None, float | None]:
        low, high = sorted((rng.choice(values), rng.choice(values)))
        return rng.choice(((None, None), (low, high), (low, None), (None, high)))

    return OfferQuery(
        provider=some("aws", "hcloud"),
        region=some("aws-use1", "aws-use2", "hcloud-12", "nowhere"),
        types=some("c.*", "g.8", "?.2"),
        category=some("general", "compute", "accelerated"),
        family=some("c", "m"),
        arch=some("x86_64", "arm64"),
        vcpu=between(1, 2, 8),
        memory=between(2.0, 8.0, 32.0),
        price=between(0.05, 0.2, 1.0),
        gpus=between(0, 1),
        spot=rng.choice((True, False, None)),
    )
