"""What was written lasts when SQLite's log was synced, which keeps nobody else from writing."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa
from tests.store.conftest import OpenStore

from tradewind.errors import StoreError
from tradewind.store.base import Change, Store
from tradewind.store.sql import raw_driver
from tradewind.store.sql.raw_driver import SharedSync, SqliteWriter, WriteAheadLog
from tradewind.testing.stores import run, study_row, trial

Sync = Callable[[int], None]


class Search:
    """One that writes steps to a store."""

    def __init__(self, store: Store, name: str = "s") -> None:
        self.store = store
        self.study = store.create_study(study_row(name)).id
        self.token = store.hold(self.study, f"here:{self.study}:1.0", 60)

    def ask(self, number: int) -> None:
        """Write what need not last."""
        self.store.write(self.study, Change([trial(number)], study={"elapsed": 1.0}, lasting=False), self.token)

    def tell(self, number: int) -> None:
        """Write what must."""
        change = Change([trial(number, 0.5)], [run(number)], {"elapsed": 2.0})
        self.store.write(self.study, change, self.token)


@pytest.fixture
def search(open_store: OpenStore, sqlite_url: str) -> Search:
    return Search(open_store(sqlite_url))


@pytest.fixture
def file(sqlite_url: str) -> Path:
    return Path(sqlite_url.removeprefix("sqlite:///"))


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Sync]:
    """What is done instead of a sync of a log; it is counted by those who put something in."""
    instead: list[Sync] = []
    fdatasync = os.fdatasync

    def sync(descriptor: int) -> None:
        for each in instead:
            each(descriptor)
        fdatasync(descriptor)

    monkeypatch.setattr(os, "fdatasync", sync)
    return instead


def fails(_: int) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def trials_of(file: Path) -> list[int]:
    driver = sqlite3.connect(file)
    found = [number for (number,) in driver.execute("SELECT number FROM trials WHERE state = 'succeeded' ORDER BY 1")]
    driver.close()
    return found


def test_after_a_power_cut_all_is_there_that_was_told(
    search: Search, file: Path, synced: list[Sync], tmp_path: Path
) -> None:
    """What was in the log when its last sync began is the least that the disk has then."""

    def cut(_: int) -> None:
        for end in ("", "-wal"):
            shutil.copy(f"{file}{end}", f"{tmp_path / 'cut.db'}{end}")

    synced.append(cut)
    for number in range(3):
        search.ask(number)
        search.tell(number)
        assert trials_of(tmp_path / "cut.db") == list(range(number + 1))


def test_only_what_must_last_waits_for_the_disk(search: Search, synced: list[Sync]) -> None:
    seen: list[int] = []
    synced.append(seen.append)
    search.ask(0)
    assert seen == []
    search.tell(0)
    assert len(seen) == 1


def test_a_wait_for_the_disk_keeps_no_other_from_writing(
    search: Search, open_store: OpenStore, sqlite_url: str, synced: list[Sync]
) -> None:
    other = Search(open_store(sqlite_url), "t")
    waits, may = threading.Event(), threading.Event()

    def slowly(_: int) -> None:
        waits.set()
        assert may.wait(20)

    synced.append(slowly)
    thread = threading.Thread(target=search.tell, args=(0,))
    thread.start()
    assert waits.wait(20)
    synced.clear()
    other.ask(0)
    with sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), timeout=0) as foreign:
        foreign.execute("UPDATE studies SET reason = 'written by another process'")
    foreign.close()
    assert thread.is_alive()
    may.set()
    thread.join(20)


@pytest.mark.slow
def test_what_comes_while_the_disk_is_waited_for_shares_the_next_wait(
    open_store: OpenStore, sqlite_url: str, synced: list[Sync]
) -> None:
    searches = [Search(open_store(sqlite_url), f"s{i}") for i in range(5)]
    waits, may, count = threading.Event(), threading.Event(), [0]

    def slowly(_: int) -> None:
        count[0] += 1
        waits.set()
        assert may.wait(20)

    synced.append(slowly)
    threads = [threading.Thread(target=each.tell, args=(0,)) for each in searches]
    threads[0].start()
    assert waits.wait(20)
    for each in threads[1:]:
        each.start()
    for one in searches[1:]:
        while not one.store.trials(one.study):  # committed, and not told to who waits
            time.sleep(0.001)
    may.set()
    for each in threads:
        each.join(20)
    assert count[0] in (2, 3)  # a thread may be between its commit and its place in the line


def test_a_disk_that_fails_is_told_to_all_who_wait_for_it(
    search: Search, file: Path, synced: list[Sync], open_store: OpenStore, sqlite_url: str
) -> None:
    search.tell(0)
    synced.append(fails)
    with pytest.raises(StoreError, match="disk"):
        search.tell(1)
    synced.clear()
    # The next sync would succeed without what the first one has lost: the log is begun anew instead.
    reader = sqlite3.connect(file, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM trials").fetchone()
    with pytest.raises(StoreError, match="begun anew"):
        search.tell(1)
    reader.execute("COMMIT")
    reader.close()
    search.tell(1)
    search.tell(2)
    assert trials_of(file) == [0, 1, 2]


def test_a_log_that_failed_stays_so(search: Search, file: Path, synced: list[Sync]) -> None:
    search.ask(0)
    driver = sqlite3.connect(file)
    log, syncs = WriteAheadLog(driver), SharedSync()
    syncs.committed(log)
    synced.append(fails)
    with pytest.raises(sqlite3.OperationalError):
        syncs.wait()
    synced.clear()
    with pytest.raises(sqlite3.OperationalError):
        syncs.wait()
    log.close()
    with pytest.raises(sqlite3.OperationalError):
        log.sync()
    driver.close()


def test_a_log_that_is_let_go_of_was_synced(search: Search, file: Path, synced: list[Sync]) -> None:
    search.ask(0)
    driver = sqlite3.connect(file)
    log, syncs = WriteAheadLog(driver), SharedSync()
    syncs.committed(log)
    seen: list[int] = []
    synced.append(seen.append)
    log.close()
    assert len(seen) == 1
    syncs.wait()
    log.close()
    assert len(seen) == 1
    driver.close()


@pytest.mark.slow
def test_the_log_is_begun_anew_while_others_write(
    search: Search, file: Path, open_store: OpenStore, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raw_driver, "_TIDY_COMMITS", 10)
    other = Search(open_store(sqlite_url), "t")
    for number in range(60):
        search.ask(number)
        other.ask(number)
    log = Path(f"{file}-wal")
    page = 4096
    assert log.stat().st_size < 60 * 8 * page  # 120 steps of more than 4 pages each
    assert [len(each.store.trials(each.study)) for each in (search, other)] == [60, 60]


@pytest.mark.parametrize("options", ["", "?psow=1&uri=true"])
def test_where_there_is_no_such_log_sqlite_syncs_by_itself(tmp_path: Path, options: str) -> None:
    file = tmp_path / "s.db"
    with sqlite3.connect(file) as driver:
        driver.execute(f"PRAGMA journal_mode = {'WAL' if options else 'DELETE'}")
        driver.execute("CREATE TABLE fruit (name TEXT)")
    driver.close()
    address = f"sqlite:///{'file:' if options else ''}{file}{options}"
    engine = sa.create_engine(address, connect_args={"isolation_level": None})
    writer = SqliteWriter(engine, 5.0)
    found = []
    for lasting in (True, False, True):
        with writer.transaction(lasting=lasting) as connection:
            found += connection.execute("PRAGMA synchronous").fetchone()
    assert found == [2, 1, 2]
    assert writer.log is None
    writer.close()
    engine.dispose()
