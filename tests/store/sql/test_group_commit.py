"""Threads that write to one SQLite file at once."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import sqlalchemy as sa
from tests.store.conftest import OpenStore

from tradewind.errors import StudyBusyError
from tradewind.store.base import Change
from tradewind.store.sql.database import Database, group_commit_of
from tradewind.store.sql.raw_driver import SqliteWriter
from tradewind.testing.stores import study_row, trial


def all_at_once(works: list[Callable[[], None]], held: threading.Lock) -> list[Exception]:
    """Run some work in threads while nobody may write, then let them; what they raised."""
    raised: list[Exception] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            raised.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    with held:
        for each in threads:
            each.start()
        for each in threads:
            each.join(0.05)
    for each in threads:
        each.join(30)
    return raised


@pytest.mark.slow
def test_threads_share_a_transaction_and_no_error(
    open_store: OpenStore, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = [open_store(sqlite_url) for _ in range(6)]
    studies = [store.create_study(study_row(f"s{i}")).id for i, store in enumerate(stores)]
    tokens = [
        store.hold(study, f"here:{i}:1.0", 60) for i, (store, study) in enumerate(zip(stores, studies, strict=True))
    ]
    tokens[3] = "lost"
    begun: list[SqliteWriter] = []
    transaction = SqliteWriter.transaction

    def counted(writer: SqliteWriter, *, lasting: bool) -> AbstractContextManager[sqlite3.Connection]:
        begun.append(writer)
        return transaction(writer, lasting=lasting)

    monkeypatch.setattr(SqliteWriter, "transaction", counted)

    def writer(i: int) -> Callable[[], None]:
        return lambda: stores[i].write(studies[i], Change([trial(0), trial(1)], study={"elapsed": 1.0}), tokens[i])

    path = Path(sqlite_url.removeprefix("sqlite:///")).resolve()
    turn = group_commit_of(str(path), direct=True)._turn
    raised = all_at_once([writer(i) for i in range(6) if i != 3], turn)
    assert raised == []
    assert 1 <= len(begun) <= 2
    raised = all_at_once([writer(i) for i in range(6)], turn)
    assert [type(error) for error in raised] == [StudyBusyError]
    assert [len(stores[0].trials(study)) for study in studies] == [2, 2, 2, 0, 2, 2]


def test_what_is_interrupted_takes_nobody_s_write_with_it(sqlite_url: str) -> None:
    database = Database(sqlite_url, busy_timeout=5.0)
    turn = database._group_commit
    assert turn is not None
    interrupts, come = [KeyboardInterrupt], list[BaseException | None]([None, None])

    def work(connection: sa.Connection) -> None:
        if interrupts:
            raise interrupts.pop()
        connection.exec_driver_sql(
            "INSERT INTO tenants (name, weight, priority, quota, created)"
            " VALUES ('t' || (SELECT count(*) FROM tenants), 1, 0, '', 0)"
        )

    def write(place: int) -> None:
        try:
            database.write_batched(work)
        except BaseException as error:
            come[place] = error

    threads = [threading.Thread(target=write, args=(place,)) for place in range(2)]
    with turn._turn:  # both of them wait, and are taken together
        for each in threads:
            each.start()
        while len(turn._waiting) < 2:
            time.sleep(0.001)
    for each in threads:
        each.join(30)
    assert sorted(type(error).__name__ for error in come) == ["KeyboardInterrupt", "NoneType"]
    database.write_batched(work)
    with database.read() as connection:  # that of the other one, and the last one; not that of who was interrupted
        assert connection.exec_driver_sql("SELECT count(*) FROM tenants").scalar() == 2
    database.close()


@pytest.mark.parametrize("lasting", [True, False])
def test_what_is_written_is_there_for_others_at_once(open_store: OpenStore, sqlite_url: str, lasting: bool) -> None:
    store = open_store(sqlite_url)
    study = store.create_study(study_row("s")).id
    store.write(study, Change([trial(0)], lasting=lasting))
    other = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))
    assert other.execute("SELECT count(*) FROM trials").fetchone() == (1,)
    other.close()


def test_what_need_not_last_does_not_wait_on_postgresql(open_store: OpenStore, postgresql_url: str) -> None:
    store = open_store(postgresql_url)
    study = store.create_study(study_row("s")).id
    said: list[str] = []
    engine = store._database._writers  # type: ignore[attr-defined]
    sa.event.listen(engine, "before_cursor_execute", lambda _c, _u, text, *_: said.append(text))
    store.write(study, Change([trial(0)]))
    assert not any("synchronous_commit" in text for text in said)
    hasty = store._database._hasty  # type: ignore[attr-defined]
    sa.event.listen(hasty, "before_cursor_execute", lambda _c, _u, text, *_: said.append(text))
    store.write(study, Change([trial(1)], lasting=False))
    assert "SET LOCAL synchronous_commit TO OFF" in said
    store.write(study, Change([trial(2)]))
    assert len(store.trials(study)) == 3
