"""Leases, in SQLite and in PostgreSQL, and those of a store of an earlier version."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from tests.store.conftest import OpenStore

from tradewind.errors import StudyBusyError
from tradewind.store import migrations
from tradewind.store.clusters.cluster_store import ClusterStore
from tradewind.store.service.requests import RequestStore
from tradewind.store.sql.database import Database
from tradewind.store.sql.leases import ALONE, CLUSTER_LEASES, NOTICE_LEASES, REQUEST_LEASES, Lease, Leases
from tradewind.store.sql.schema import clusters, leases, runs

HERE = "here:1:1.0"


@pytest.fixture(params=["sqlite_url", "postgresql_url"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    with closing(Database(url, busy_timeout=30.0)) as opened:
        with opened.write() as connection:
            for name in ("one", "two"):
                row = {"name": name, "settings": "{}", "snapshot": "{}", "updated": 1.0}
                connection.execute(sa.insert(clusters).values(row))
        yield opened


def columns(database: Database, name: str = "one") -> dict[str, Any]:
    """The row of a cluster with that of its lease."""
    query = sa.select(clusters, leases).select_from(clusters.outerjoin(leases, CLUSTER_LEASES.of_row))
    with database.read() as connection:
        return dict(connection.execute(query.where(clusters.c.name == name)).mappings().one())


def take(database: Database, seconds: float = 60.0, **fields: Any) -> str:
    with database.write() as connection:
        return CLUSTER_LEASES.take(connection, "one", HERE, seconds, **fields)


def test_a_subject_is_taken_with_fields_of_its_row(database: Database) -> None:
    token, now = take(database, settings="[]"), time.time()
    row = columns(database)
    assert (row["kind"], row["subject"], row["seat"]) == ("cluster", "one", ALONE)
    assert (row["token"], row["holder"], row["settings"]) == (token, HERE, "[]")
    assert row["expires"] == pytest.approx(now + 60.0, abs=20.0)
    assert row["since"] == pytest.approx(now, abs=20.0)
    assert columns(database, "two")["token"] is None


def test_who_takes_it_later_has_a_token_of_its_own(database: Database) -> None:
    first, second = take(database), take(database)
    with database.write() as connection:
        for key, token in (("one", first), ("two", second), ("none", second), ("one", None)):
            change = {"id_": key, "token_": token, "snapshot": "[1]"}
            assert not connection.execute(CLUSTER_LEASES.change_mine, change).rowcount
            assert not CLUSTER_LEASES.lock_mine(connection, key, token)  # type: ignore[arg-type]
        assert not CLUSTER_LEASES.renew(connection, "one", first, 60.0, snapshot="[1]")
        assert not CLUSTER_LEASES.release(connection, "one", first)
        assert CLUSTER_LEASES.lock_mine(connection, "one", second)
    row = columns(database)
    assert (row["token"], row["snapshot"]) == (second, "{}")


@pytest.mark.slow
def test_a_lease_that_ran_out_is_renewed_where_nobody_took_it(database: Database) -> None:
    token = take(database, -5.0)
    with database.write() as connection:
        assert CLUSTER_LEASES.renew(connection, "one", token, 60.0, snapshot="[1]")
    row = columns(database)
    assert (row["token"], row["snapshot"]) == (token, "[1]")
    assert row["expires"] > time.time()


def test_a_released_subject_has_no_holder_and_may_keep_the_moment(database: Database) -> None:
    for moment in (None, 5.0):
        token = take(database)
        with database.write() as connection:
            assert CLUSTER_LEASES.release(connection, "one", token, moment=moment)
            assert CLUSTER_LEASES.lock(connection, "one") == Lease(None, None, moment)


def test_only_what_nobody_holds_is_taken_as_free(database: Database) -> None:
    with database.write() as connection:
        assert NOTICE_LEASES.take_free(connection, 1, 60.0, "first")
        assert not NOTICE_LEASES.take_free(connection, 1, 60.0, "second")
        assert NOTICE_LEASES.renew(connection, 1, "first", -1.0)
        assert NOTICE_LEASES.take_free(connection, 1, 60.0, "second")
        assert NOTICE_LEASES.release(connection, 1, "second")
        assert NOTICE_LEASES.take_free(connection, 1, 60.0, "third")


def test_subjects_of_one_name_and_several_kinds_are_apart(database: Database) -> None:
    with database.write() as connection:
        token = NOTICE_LEASES.take(connection, 7, HERE, 60.0)
        assert REQUEST_LEASES.lock(connection, 7) == Lease()
        assert not REQUEST_LEASES.lock_mine(connection, 7, token)


def test_the_leases_of_subjects_that_go_are_forgotten(database: Database) -> None:
    take(database)
    with database.write() as connection:
        CLUSTER_LEASES.forget(connection, clusters.c.name == "two")
        assert connection.scalar(sa.select(sa.func.count()).select_from(leases)) == 1
        CLUSTER_LEASES.forget(connection, clusters.c.name == "one")
        assert connection.scalar(sa.select(sa.func.count()).select_from(leases)) == 0


def test_a_table_needs_a_key_of_one_column() -> None:
    with pytest.raises(ValueError, match="too many values"):
        Leases("study", runs)


# ---------------------------------------------------------------------- a store of version 0007

OLD = (
    "INSERT INTO tenants VALUES ('A', 1, 0, '{}', 1)",
    "INSERT INTO users (id, name, role, tenant, email, settings, state, created) "
    "VALUES (1, 'ada', 'user', 'A', '', '{}', 'active', 1)",
    *(
        "INSERT INTO studies (id, name, problem_key, spec, created, state, reason, seed, elapsed, searcher_state, "
        f"owner, hold_token, hold_holder, hold_since, hold_expires) "
        f"VALUES ({number}, 's{number}', '', '{{}}', 1, 'open', '', 0, 0, '{{}}', 'tw-{number}', {held})"
        for number, held in (
            (1, "'alone', 'far:1:1.0', 5, 9e9"),
            (2, "NULL, NULL, NULL, 77.5"),
            (3, "NULL, NULL, NULL, NULL"),
            (4, "'shared', 'several workers', 6, 9e9"),
        )
    ),
    "INSERT INTO study_workers VALUES ('w1', 4, 'far:2:1.0', 9e9), ('w2', 4, 'far:3:1.0', 1.0)",
    *(
        "INSERT INTO requests (id, tenant, user_id, kind, name, state, wanted, problem, hint, cost, reserved, cluster,"
        f" created, updated, progress, plan, document, hold_token, hold_holder, hold_expires) VALUES ({number}, 'A', 1,"
        f" 'run', 'r', '{state}', 'run', '', '', 0, 0, '', 1, 1, '{{}}', '{{}}', '{{}}', {held})"
        for number, state, held in ((1, "executing", "'token', 'far:4:1.0', 9e9"), (2, "pending", "NULL, NULL, NULL"))
    ),
    "INSERT INTO clusters VALUES ('lab', '{}', '{}', 1, 'c', 'far:5:1.0', 9e9)",
    "INSERT INTO notices (id, request_id, user_id, kind, target, delivery, document, state, problem, attempts, created,"
    " due, hold_token, hold_expires) VALUES (1, 1, 1, 'email', 'a@example.org', 'd', '{}', 'sending', '', 1, 1, 1,"
    " 'n', 9e9)",
)


@pytest.mark.slow
def test_the_leases_of_an_earlier_version_are_carried_over(url: str, open_store: OpenStore) -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__path__[0])))
    if url.startswith("sqlite"):
        Path(url.removeprefix("sqlite:///")).parent.mkdir()
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0007")
        for statement in OLD:
            connection.exec_driver_sql(statement)
    engine.dispose()

    store = open_store(url)
    facts = {line.study.id: (line.holder, line.running_since) for line in store.summaries()}
    assert facts == {1: ("far:1", 5.0), 2: ("", None), 3: ("", None), 4: ("several workers", 6.0)}
    assert {each.study.id: each.quiet for each in store.earlier_studies("", limit=9)} == {
        1: None, 2: 77.5, 3: None, 4: None,
    }  # fmt: skip
    store.renew(1, "alone", 60.0)
    with pytest.raises(StudyBusyError):
        store.hold(1, HERE, 60.0)
    workers = store.workers(4)
    with workers.step(lasting=False) as step:
        assert step.live() == {"w1"}
        step.renew("w2", "far:3:1.0", 60.0)
        assert step.live() == {"w1", "w2"}
    with closing(ClusterStore(url)) as opened:
        assert [row.holder for row in opened.clusters()] == ["far:5:1.0"]
        opened.renew("lab", "c", 60.0, {})
    with closing(Database(url, busy_timeout=30.0)) as database:
        found = [RequestStore(database).get(number) for number in (1, 2)]
        assert [(row.hold_holder, row.hold_expires) for row in found] == [("far:4:1.0", 9e9), (None, None)]
        with database.write() as connection:
            assert REQUEST_LEASES.lock_mine(connection, 1, "token")
            assert NOTICE_LEASES.lock(connection, 1) == Lease("n", None, 9e9)
