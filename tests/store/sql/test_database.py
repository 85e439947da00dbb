"""Opening: the schema, its versions, and many processes at once."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from tests.store.conftest import run_python

from tradewind.errors import StoreError
from tradewind.store import migrations
from tradewind.store.base import Change, Store
from tradewind.store.sql import database, schema
from tradewind.store.sql.database import Database
from tradewind.store.sql.schema import service_values
from tradewind.testing.stores import run, study_row, trial

OpenStore = Callable[..., Store]


def assert_schema(url: str) -> None:
    opened = Database(url, busy_timeout=5)
    with opened.read() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": schema.VERSION_TABLE})
        assert compare_metadata(context, schema.metadata) == []
        assert context.get_current_revision() == schema.REVISIONS[-1]
    opened.close()


def test_the_migrations_make_the_schema_on_sqlite(sqlite_url: str) -> None:
    assert_schema(sqlite_url)


def test_the_migrations_make_the_schema_on_postgresql(postgresql_url: str) -> None:
    assert_schema(postgresql_url)


def test_the_program_knows_all_migrations() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__path__[0])))
    found = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]
    assert tuple(reversed(found)) == schema.REVISIONS


def tables(path: Path) -> dict[str, object]:
    """What the tables and indexes are; a column that a migration added stands elsewhere in the text of its table."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        about: dict[str, object] = {}
        for kind, name, text in connection.execute(
            "SELECT type, name, coalesce(sql, '') FROM sqlite_master"
        ).fetchall():
            about[f"{kind} {name}"] = (
                (
                    connection.execute(f"PRAGMA table_xinfo({name})").fetchall(),
                    sorted(row[2:] for row in connection.execute(f"PRAGMA foreign_key_list({name})")),
                    "AUTOINCREMENT" in text,
                )
                if kind == "table"
                else (text, connection.execute(f"PRAGMA index_xinfo({name})").fetchall())
            )
        return about


@pytest.mark.slow
def test_a_new_store_is_the_one_that_the_migrations_make(tmp_path: Path) -> None:
    Database(f"sqlite:///{tmp_path / 'new.db'}", busy_timeout=5).close()
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'migrated.db'}")
    with engine.begin() as connection:
        database._upgrade(connection)
    engine.dispose()
    assert tables(tmp_path / "new.db") == tables(tmp_path / "migrated.db")


@pytest.mark.slow
@pytest.mark.parametrize("there", [False, True])
def test_a_store_is_made_and_opened_without_alembic(sqlite_url: str, open_store: OpenStore, there: bool) -> None:
    if there:
        open_store(sqlite_url).close()
    code = (
        "import sys; from tradewind import plugins; plugins.create('store', 'sql', {}, url=sys.argv[1]).summaries();"
        "print('alembic' in sys.modules)"
    )
    assert run_python(code, sqlite_url).stdout == "False\n"


OPEN = """
import sys
from tradewind import plugins
import alembic.command, alembic.config
plugins.load("store", "sql")
print("ready", flush=True)
sys.stdin.readline()
from tradewind.testing.stores import study_row
store = plugins.create("store", "sql", {}, url=sys.argv[1])
store.create_study(study_row())
store.close()
"""


def open_at_once(url: str, processes: int) -> None:
    command = [sys.executable, "-c", OPEN, url]
    started = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(processes)
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in started:
        _, words = process.communicate(timeout=60)
        assert process.returncode == 0, words


@pytest.mark.thorough
@pytest.mark.slow
def test_processes_that_open_a_new_store_at_once(sqlite_url: str, open_store: OpenStore) -> None:
    open_at_once(sqlite_url, 4)
    assert len(open_store(sqlite_url).find_studies()) == 4


@pytest.mark.slow
def test_processes_that_open_a_new_database_at_once(postgresql_url: str, open_store: OpenStore) -> None:
    open_at_once(postgresql_url, 3)
    assert len(open_store(postgresql_url).find_studies()) == 3


def test_threads_that_open_new_stores_at_once(tmp_path: Path, open_store: OpenStore) -> None:
    failures: list[BaseException] = []

    def work(place: int) -> None:
        try:
            open_store(f"sqlite:///{tmp_path / str(place % 2)}.db").create_study(study_row())
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_other_programs_tables_on_the_server_are_left_alone(postgresql_url: str, open_store: OpenStore) -> None:
    import psycopg

    with psycopg.connect(postgresql_url.replace("+psycopg", ""), autocommit=True) as other:
        other.execute("CREATE TABLE alembic_version (version_num TEXT)")
        other.execute("INSERT INTO alembic_version VALUES ('theirs')")
        open_store(postgresql_url).create_study(study_row())
        assert other.execute("SELECT version_num FROM alembic_version").fetchall() == [("theirs",)]


def test_a_server_that_was_restarted_is_connected_again(postgresql_url: str, open_store: OpenStore) -> None:
    import psycopg

    store = open_store(postgresql_url)
    study = store.create_study(study_row())
    with psycopg.connect(postgresql_url.replace("+psycopg", ""), autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tradewind'")
    store.write(study.id, Change([trial(0, 0.5)], [run(0)]))
    assert store.trials(study.id) == [trial(0, 0.5)]


def test_an_address_may_be_short(postgresql_url: str, open_store: OpenStore) -> None:
    store = open_store(postgresql_url.replace("+psycopg", ""))
    assert store.find_studies() == []


@pytest.mark.parametrize("url", ["sqlite_url", "postgresql_url"])
def test_rows_of_a_query_that_is_kept(url: str, request: pytest.FixtureRequest) -> None:
    query = sa.select(service_values.c.name, service_values.c.value).order_by(service_values.c.name)
    one = query.where(service_values.c.name == sa.bindparam("name"), service_values.c.value != "fixed")
    some = query.limit(sa.bindparam("limit"))
    with closing(Database(request.getfixturevalue(url), busy_timeout=5.0)) as database:
        with database.write() as connection:
            for name in ("a", "b", "c"):
                connection.execute(sa.insert(service_values).values(name=name, value=f"of {name}"))
        for _ in range(2):
            assert [tuple(row) for row in database.rows(one, name="b")] == [("b", "of b")]
            assert [tuple(row) for row in database.rows(one, name="x'; DROP TABLE studies; --")] == []
            assert [row[0] for row in database.rows(some, limit=2)] == ["a", "b"]


@pytest.mark.slow
def test_what_is_asked_all_the_time_waits_for_no_writer(sqlite_url: str) -> None:
    """Not even where so many wait for the lock of a stuck one that they have all connections."""
    query = sa.select(service_values.c.value)
    with closing(Database(sqlite_url, busy_timeout=4.0)) as database:

        def write() -> None:
            with contextlib.suppress(StoreError), database.write():
                pass

        with database.write():
            waiting = [threading.Thread(target=write) for _ in range(20)]
            for each in waiting:
                each.start()
            time.sleep(0.3)
            begun = time.monotonic()
            assert list(database.rows(query)) == []
            took = time.monotonic() - begun
        for each in waiting:
            each.join()
    assert took < 3.0
