"""Leases on rows, in SQLite and in PostgreSQL."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import sqlalchemy as sa

from tradewind.store.sql.database import Database
from tradewind.store.sql.leases import CLUSTER_LEASES, LeaseColumns
from tradewind.store.sql.schema import clusters, runs

LEASE = ("hold_token", "hold_holder", "hold_expires")


@pytest.fixture(params=["sqlite_url", "postgresql_url"])
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    with closing(Database(request.getfixturevalue(request.param), busy_timeout=30.0)) as opened:
        with opened.write() as connection:
            for name in ("one", "two"):
                row = {"name": name, "settings": "{}", "snapshot": "{}", "updated": 1.0}
                connection.execute(sa.insert(clusters).values(row))
        yield opened


def columns(database: Database, name: str = "one") -> dict[str, Any]:
    with database.read() as connection:
        found = connection.execute(sa.select(clusters).where(clusters.c.name == name)).mappings().one()
    return dict(found)


def take(database: Database, seconds: float = 60.0, **fields: Any) -> str:
    with database.write() as connection:
        return CLUSTER_LEASES.take(connection, "one", "here:1:1.0", seconds, **fields)


def test_a_row_is_taken_with_other_fields_of_it(database: Database) -> None:
    token, now = take(database, settings="[]"), time.time()
    row = columns(database)
    assert (row["hold_token"], row["hold_holder"], row["settings"]) == (token, "here:1:1.0", "[]")
    assert row["hold_expires"] == pytest.approx(now + 60.0, abs=20.0)
    assert [columns(database, "two")[name] for name in LEASE] == [None] * 3


def test_who_takes_it_later_has_a_token_of_its_own(database: Database) -> None:
    first, second = take(database), take(database)
    with database.write() as connection:
        assert not CLUSTER_LEASES.change(connection, "one", first, snapshot="[1]")
        assert not CLUSTER_LEASES.renew(connection, "one", first, 60.0, snapshot="[1]")
        assert not CLUSTER_LEASES.release(connection, "one", first)
        assert not CLUSTER_LEASES.change(connection, "two", second, snapshot="[1]")
        assert not CLUSTER_LEASES.change(connection, "none", second, snapshot="[1]")
    row = columns(database)
    assert (row["hold_token"], row["snapshot"]) == (second, "{}")


@pytest.mark.slow
def test_a_lease_that_ran_out_is_renewed_where_nobody_took_it(database: Database) -> None:
    token = take(database, -5.0)
    with database.write() as connection:
        assert CLUSTER_LEASES.renew(connection, "one", token, 60.0, snapshot="[1]")
    row = columns(database)
    assert (row["hold_token"], row["snapshot"]) == (token, "[1]")
    assert row["hold_expires"] > time.time()


def test_a_released_row_has_no_holder_and_may_keep_the_moment(database: Database) -> None:
    for moment in (None, 5.0):
        token = take(database)
        with database.write() as connection:
            assert CLUSTER_LEASES.release(connection, "one", token, hold_expires=moment)
        assert [columns(database)[name] for name in LEASE] == [None, None, moment]


@pytest.mark.slow
def test_without_a_token_nothing_is_changed(database: Database) -> None:
    with database.write() as connection:
        assert not CLUSTER_LEASES.change(connection, "one", None, snapshot="[1]")
    assert columns(database)["snapshot"] == "{}"


def test_a_table_needs_a_key_of_one_column() -> None:
    with pytest.raises(ValueError, match="too many values"):
        LeaseColumns(runs)
