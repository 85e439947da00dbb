"""Copies of a store: made while others write, put back, and refused where they would do harm."""

from __future__ import annotations

import shutil
import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tradewind.errors import InputError, MissingProgramError, StoreCorruptError, StoreError, StudyBusyError
from tradewind.store.service.shared_values import SharedValueStore
from tradewind.store.sql.backups import back_up, restore, schema_version_at
from tradewind.store.sql.database import Database
from tradewind.store.sql.schema import REVISIONS


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


def put(url: str, **values: str) -> None:
    with closing(Database(url, busy_timeout=10.0)) as database:
        for name, value in values.items():
            SharedValueStore(database).set(name, value)


def get(url: str, name: str) -> str | None:
    with closing(Database(url, busy_timeout=10.0)) as database:
        return SharedValueStore(database).get(name)


@pytest.mark.slow
def test_a_copy_is_put_back(url: str, tmp_path: Path) -> None:
    put(url, fruit="apple")
    copy = tmp_path / "copy"
    back_up(url, copy)
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    put(url, fruit="pear", more="yes")
    with pytest.raises(StoreError, match="there is a store at"):
        restore(url, copy)
    kept = restore(url, copy, force=True)
    assert (get(url, "fruit"), get(url, "more")) == ("apple", None)
    if kept is not None:
        assert get(f"sqlite:///{kept}", "fruit") == "pear"
    put(url, fruit="plum")  # it works on: numbers and constraints are there
    assert get(url, "fruit") == "plum"
    assert schema_version_at(url) == REVISIONS[-1]


@pytest.mark.slow
def test_a_store_in_use_is_not_replaced(url: str, tmp_path: Path) -> None:
    put(url, fruit="apple")
    copy = tmp_path / "copy"
    back_up(url, copy)
    with closing(Database(url, busy_timeout=1.0)) as database:
        SharedValueStore(database).set("fruit", "pear")
        with pytest.raises(StudyBusyError, match="in use"):
            restore(url, copy, force=True)
        assert SharedValueStore(database).get("fruit") == "pear"
    restore(url, copy, force=True)
    assert get(url, "fruit") == "apple"


@pytest.fixture
def busy(url: str) -> Iterator[list[int]]:
    """Somebody who writes pairs all the time, each pair in one transaction; how many there are."""
    written = [0]
    stop = threading.Event()
    database = Database(url, busy_timeout=10.0)

    def work() -> None:
        from sqlalchemy import insert

        from tradewind.store.sql.schema import service_values

        while not stop.is_set():
            with database.write() as connection:
                for half in ("a", "b"):
                    row = {"name": f"{half}{written[0]:06d}", "value": "x" * 1000}
                    connection.execute(insert(service_values).values(row))
            written[0] += 1

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    yield written
    stop.set()
    thread.join(20.0)
    database.close()


@pytest.mark.slow
def test_a_copy_is_of_one_moment_while_others_write(url: str, tmp_path: Path, busy: list[int]) -> None:
    while busy[0] < 20:
        threading.Event().wait(0.01)
    for number in range(3):
        before = busy[0]
        copy = tmp_path / f"copy{number}"
        back_up(url, copy)
        if url.startswith("sqlite"):
            with closing(sqlite3.connect(copy)) as opened:
                rows = opened.execute("SELECT name FROM service_values WHERE name GLOB '[ab][0-9]*'").fetchall()
            names = {name for (name,) in rows}
            assert {f"b{name[1:]}" for name in names} | {f"a{name[1:]}" for name in names} == names
            assert len(names) >= 2 * before
        else:
            assert copy.stat().st_size > 1000


def test_no_file_is_overwritten(sqlite_url: str, tmp_path: Path) -> None:
    put(sqlite_url, fruit="apple")
    copy = tmp_path / "copy"
    copy.write_text("precious")
    with pytest.raises(InputError, match="is there already"):
        back_up(sqlite_url, copy)
    assert copy.read_text() == "precious"
    back_up(sqlite_url, copy, force=True)
    assert schema_version_at(f"sqlite:///{copy}") == REVISIONS[-1]


def test_there_is_nothing_to_copy(sqlite_url: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store"):
        back_up(sqlite_url, tmp_path / "copy")
    assert schema_version_at(sqlite_url) is None
    assert not Path(sqlite_url.removeprefix("sqlite:///")).exists()


@pytest.mark.parametrize("content", [b"", b"no database at all, but long enough to be read as one" * 20])
def test_what_is_no_copy(sqlite_url: str, tmp_path: Path, content: bytes) -> None:
    put(sqlite_url, fruit="apple")
    wrong = tmp_path / "wrong"
    wrong.write_bytes(content)
    with pytest.raises((InputError, StoreCorruptError)):
        restore(sqlite_url, wrong, force=True)
    assert get(sqlite_url, "fruit") == "apple"


def test_other_programs_databases(sqlite_url: str, tmp_path: Path) -> None:
    put(sqlite_url, fruit="apple")
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as opened:
        opened.execute("CREATE TABLE mine (x)")
        opened.commit()
    with pytest.raises(StoreCorruptError, match="another program"):
        restore(sqlite_url, other, force=True)
    with pytest.raises(InputError, match="cannot be read"):
        restore(sqlite_url, tmp_path / "none", force=True)


def test_copies_of_another_kind(sqlite_url: str, tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    dump.write_bytes(b"PGDMP and so on")
    with pytest.raises(InputError, match="copy of a PostgreSQL store"):
        restore(sqlite_url, dump)
    put(sqlite_url, fruit="apple")
    copy = tmp_path / "copy"
    back_up(sqlite_url, copy)
    with pytest.raises(InputError, match="copy of a SQLite store"):
        restore("postgresql://tw@127.0.0.1:1/x", copy)


def test_programs_of_postgresql(postgresql_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(postgresql_url, fruit="apple")
    real = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name, **more: None if name.startswith("pg_") else real(name, **more))
    with pytest.raises(MissingProgramError, match=r"there is no pg_dump program .*postgresql-client"):
        back_up(postgresql_url, tmp_path / "copy")
    assert list(tmp_path.iterdir()) == []


def test_other_tables_of_a_postgresql_database_are_left_alone(postgresql_url: str, tmp_path: Path) -> None:
    import sqlalchemy as sa

    put(postgresql_url, fruit="apple")
    engine = sa.create_engine(postgresql_url)
    try:
        with engine.begin() as connection:
            connection.execute(sa.text("CREATE TABLE theirs (x integer)"))
            connection.execute(sa.text("INSERT INTO theirs VALUES (1)"))
        back_up(postgresql_url, tmp_path / "copy")
        with engine.begin() as connection:
            connection.execute(sa.text("INSERT INTO theirs VALUES (2)"))
        restore(postgresql_url, tmp_path / "copy", force=True)
        with engine.connect() as connection:
            assert connection.scalar(sa.text("SELECT count(*) FROM theirs")) == 2
    finally:
        engine.dispose()


@pytest.mark.parametrize("damage", ["head", "rest", "gone"])
def test_a_damaged_store_is_replaced_and_its_log_does_not_come_back(
    sqlite_url: str, tmp_path: Path, damage: str
) -> None:
    put(sqlite_url, fruit="apple")
    copy, path = tmp_path / "copy", Path(sqlite_url.removeprefix("sqlite:///"))
    back_up(sqlite_url, copy)
    log = path.with_name(f"{path.name}-wal")
    with closing(sqlite3.connect(path)) as killed:  # a process that was killed leaves its log
        killed.execute("UPDATE service_values SET value = 'pear'")
        killed.commit()
        left = log.read_bytes()
    log.write_bytes(left)
    if damage == "gone":
        path.unlink()
    else:
        with path.open("r+b") as file:
            file.seek(0 if damage == "head" else 4096)
            file.write(b"\xff" * (100 if damage == "head" else path.stat().st_size - 4096))
        with pytest.raises(StoreCorruptError):
            restore(sqlite_url, copy)
    kept = restore(sqlite_url, copy, force=True)
    assert (kept is None) is (damage == "gone")
    assert not log.exists()
    assert get(sqlite_url, "fruit") == "apple"
    with closing(sqlite3.connect(path)) as opened:
        assert opened.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_another_programs_database_is_not_taken_for_a_damaged_store(sqlite_url: str, tmp_path: Path) -> None:
    put(sqlite_url, fruit="apple")
    copy, other = tmp_path / "copy", tmp_path / "other.db"
    back_up(sqlite_url, copy)
    with closing(sqlite3.connect(other)) as opened:
        opened.execute("CREATE TABLE mine (x)")
        opened.commit()
    with pytest.raises(StoreCorruptError, match="another program"):
        restore(f"sqlite:///{other}", copy, force=True)
