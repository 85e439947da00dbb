"""Writing without SQLAlchemy in between."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from tradewind.store.sql.database import Database
from tradewind.store.sql.raw_driver import SqliteWriter


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "s.db"
    with sqlite3.connect(file) as driver:
        driver.execute("PRAGMA journal_mode = WAL")
        driver.execute("CREATE TABLE fruit (name TEXT)")
    driver.close()
    return file


@pytest.fixture
def writer(path: Path) -> Iterator[SqliteWriter]:
    engine = sa.create_engine(f"sqlite:///{path}", connect_args={"isolation_level": None})
    made = SqliteWriter(engine, 5.0)
    yield made
    made.close()
    engine.dispose()


def put(writer: SqliteWriter, name: str) -> None:
    with writer.transaction(lasting=True) as driver:
        driver.execute("INSERT INTO fruit VALUES (?)", [name])


def names(path: Path) -> list[str]:
    driver = sqlite3.connect(path)
    found = [name for (name,) in driver.execute("SELECT name FROM fruit ORDER BY rowid")]
    driver.close()
    return found


def test_what_raises_is_undone_and_the_next_one_is_not(writer: SqliteWriter, path: Path) -> None:
    put(writer, "apple")
    with pytest.raises(ZeroDivisionError), writer.transaction(lasting=True) as driver:
        driver.execute("INSERT INTO fruit VALUES ('pear')")
        assert 1 / 0
    put(writer, "plum")
    assert names(path) == ["apple", "plum"]


@pytest.mark.slow
def test_it_waits_for_another_one_and_not_for_ever(writer: SqliteWriter, path: Path) -> None:
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    timer = threading.Timer(0.3, other.execute, ["COMMIT"])
    began = time.monotonic()
    timer.start()
    put(writer, "apple")
    timer.join()
    assert 0.25 < time.monotonic() - began < 4.0
    other.execute("BEGIN IMMEDIATE")
    writer._patience = 0.05
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        put(writer, "pear")
    other.execute("COMMIT")
    other.close()
    put(writer, "plum")
    assert names(path) == ["apple", "plum"]


def test_who_locks_the_folder_keeps_nobody_from_writing(writer: SqliteWriter, path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    timer = threading.Timer(0.2, other.execute, ["COMMIT"])
    timer.start()
    put(writer, "apple")
    timer.join()
    other.close()
    os.close(folder)
    assert names(path) == ["apple"]


def test_a_connection_that_is_gone_is_made_anew(postgresql_url: str) -> None:
    database = Database(postgresql_url, busy_timeout=5.0)
    (first,) = database.at_once("SELECT pg_backend_pid()", {})
    with database.write() as connection:
        connection.exec_driver_sql(f"SELECT pg_terminate_backend({first})")
    (second,) = database.at_once("SELECT pg_backend_pid()", {})
    assert second != first
    database.close()
