"""Everything that goes wrong with a database is one line with the place and what to do."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import exc
from tests.store.conftest import run_python

from tradewind.errors import (
    InputError,
    MissingProgramError,
    StoreCorruptError,
    StoreError,
    StoreFullError,
    StoreLockedError,
    StoreReadOnlyError,
    TradewindError,
)
from tradewind.store.base import Change, Store
from tradewind.store.sql import error_translation
from tradewind.testing.stores import study_row, trial

OpenStore = Callable[..., Store]


def one_line(error: StoreError, place: object) -> None:
    assert str(place) in error.message
    assert "\n" not in str(error)
    assert error.hint


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tradewind.db"


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users may enter; pytest's own is closed to them."""
    folder = Path(tempfile.mkdtemp(prefix="tradewind-test-"))
    folder.chmod(0o755)
    yield folder
    for child in folder.rglob("*"):
        child.chmod(0o755)
    shutil.rmtree(folder)


# Locked


def test_a_writer_that_does_not_let_go(path: Path, open_store: OpenStore) -> None:
    store = open_store(f"sqlite:///{path}", busy_timeout=0.05)
    study = store.create_study(study_row())
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreLockedError) as caught:
        store.write(study.id, Change([trial(0)]))
    one_line(caught.value, path)
    assert store.trials(study.id) == []
    other.close()
    store.write(study.id, Change([trial(0)]))


def test_a_lock_while_the_store_is_made(path: Path, open_store: OpenStore) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreLockedError) as caught:
        open_store(f"sqlite:///{path}", busy_timeout=0.05)
    one_line(caught.value, path)
    other.close()


def test_a_reader_while_the_journal_is_changed(path: Path, open_store: OpenStore) -> None:
    open_store(f"sqlite:///{path}").close()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("PRAGMA journal_mode = DELETE")
    other.execute("BEGIN")
    other.execute("SELECT * FROM studies").fetchall()
    with pytest.raises(StoreLockedError):
        open_store(f"sqlite:///{path}", busy_timeout=0.1)
    other.close()


# Full

FILL = """
import resource, sys
from tradewind import plugins
from tradewind.errors import StoreFullError
from tradewind.store.base import Change
from tradewind.testing.stores import run, study_row, trial

store = plugins.create("store", "sql", {}, url="sqlite:///" + sys.argv[1])
study = store.create_study(study_row())
if len(sys.argv) > 2:
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
done = 0
try:
    while done < 5000:
        store.write(study.id, Change([trial(done, 0.5)], [run(done)]))
        done += 1
except StoreFullError as error:
    print(done, error, sep="|")
"""


@pytest.mark.slow
def test_a_disk_or_a_quota_that_is_full_loses_nothing(path: Path, open_store: OpenStore) -> None:
    result = run_python(FILL, path, 800_000)
    assert result.returncode == 0, result.stderr
    done, _, message = result.stdout.strip().partition("|")
    assert message.startswith(f"no room to write to the store {path} (")
    assert int(done) > 10
    store = open_store(f"sqlite:///{path}")
    assert store.trials(1) == [trial(number, 0.5) for number in range(int(done))]
    store.write(1, Change([trial(int(done))]))


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_small_disk(tmp_path: Path) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this machine does not allow mounts")
    try:
        result = run_python(FILL, tmp_path / "tradewind.db")
        done, _, message = result.stdout.strip().partition("|")
        assert result.returncode == 0, result.stderr
        assert int(done) > 10
        assert message.startswith("no room to write to the store")
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


# Read-only

AS_NOBODY = """
import os, sys
import alembic.command, alembic.config
from tradewind import plugins
from tradewind.errors import StoreError
from tradewind.testing.stores import study_row

plugins.load("store", "sql")
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
try:
    store = plugins.create("store", "sql", {}, url="sqlite:///" + sys.argv[1])
    store.create_study(study_row())
    print("written")
except StoreError as error:
    print(type(error).__name__, error, sep="|")
"""


@pytest.mark.slow
@pytest.mark.parametrize("case", ["folder", "file", "unreadable file", "parent"])
def test_a_place_that_may_not_be_written(open_folder: Path, open_store: OpenStore, case: str) -> None:
    path = open_folder / "tradewind.db"
    if case == "parent":
        path = open_folder / "deeper" / "tradewind.db"
    elif case != "folder":
        open_store(f"sqlite:///{path}").close()
        path.chmod(0o444 if case == "file" else 0o000)
    open_folder.chmod(0o555)
    result = run_python(AS_NOBODY, path)
    assert result.stdout.startswith(f"StoreReadOnlyError|the store {path} cannot be written: "), result.stderr
    assert result.stdout.count("\n") == 1


def test_a_connection_that_only_reads(path: Path, open_store: OpenStore) -> None:
    first = open_store(f"sqlite:///{path}")
    study = first.create_study(study_row())
    store = open_store(f"sqlite:///file:{path}?mode=ro&uri=true")
    assert store.study(study.id) == study
    with pytest.raises(StoreReadOnlyError) as caught:
        store.write(study.id, Change([trial(0)]))
    one_line(caught.value, path)


# Corrupt


def test_a_text_file(path: Path, open_store: OpenStore) -> None:
    path.write_text("name: job\ncommand: [true]\n" * 100)
    with pytest.raises(StoreCorruptError, match="file is not a database") as caught:
        open_store(f"sqlite:///{path}")
    one_line(caught.value, path)
    assert path.read_text().startswith("name: job")


def test_a_file_that_was_cut_off(path: Path, open_store: OpenStore) -> None:
    store = open_store(f"sqlite:///{path}")
    study = store.create_study(study_row())
    store.write(study.id, Change([trial(number, 0.5) for number in range(200)]))
    store.close()
    os.truncate(path, 3 * 4096)

    def use() -> None:
        open_store(f"sqlite:///{path}").trials(study.id)

    with pytest.raises(StoreCorruptError) as caught:
        use()
    one_line(caught.value, path)


def test_a_page_that_was_overwritten(path: Path, open_store: OpenStore) -> None:
    store = open_store(f"sqlite:///{path}")
    study = store.create_study(study_row())
    store.write(study.id, Change([trial(number, 0.5) for number in range(200)]))
    store.close()
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))

    def use() -> None:
        open_store(f"sqlite:///{path}").trials(study.id)

    with pytest.raises(StoreCorruptError):
        use()


def test_another_programs_database(path: Path, open_store: OpenStore) -> None:
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE cookies (name TEXT)")
    other.close()
    with pytest.raises(StoreCorruptError, match="another program's database") as caught:
        open_store(f"sqlite:///{path}")
    one_line(caught.value, path)


def test_a_store_of_a_newer_version(path: Path, open_store: OpenStore) -> None:
    open_store(f"sqlite:///{path}").close()
    other = sqlite3.connect(path)
    with other:
        other.execute("UPDATE tradewind_version SET version_num = '0999'")
    other.close()
    with pytest.raises(StoreCorruptError, match=r"newer Tradewind \(schema 0999.*upgrade Tradewind") as caught:
        open_store(f"sqlite:///{path}")
    one_line(caught.value, path)


def test_a_table_that_is_gone(path: Path, open_store: OpenStore) -> None:
    open_store(f"sqlite:///{path}").close()
    other = sqlite3.connect(path)
    other.execute("DROP TABLE runs")
    other.close()
    with pytest.raises(StoreCorruptError, match="no such table: runs"):
        open_store(f"sqlite:///{path}").runs(1)


def test_a_file_that_is_removed_while_it_is_used(path: Path, open_store: OpenStore) -> None:
    store = open_store(f"sqlite:///{path}")
    study = store.create_study(study_row())
    path.unlink()
    with pytest.raises(StoreError, match="was removed while it was in use") as caught:
        store.write(study.id, Change([trial(0)]))
    one_line(caught.value, path)
    open_store(f"sqlite:///{path}")
    with pytest.raises(StoreError, match="was removed while it was in use"):
        store.write(study.id, Change([trial(0)]))


# Places


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nonsense", "'nonsense' is no store address"),
        ("mysql://host/db", "cannot be kept in mysql"),
        ("sqlite://", "in memory"),
        ("sqlite:///:memory:", "in memory"),
        ("postgresql+nodriver://host/db", "no store address"),
    ],
)
def test_an_address_that_is_none(url: str, message: str, open_store: OpenStore) -> None:
    with pytest.raises(StoreError, match=message) as caught:
        open_store(url)
    assert caught.value.hint


def test_a_folder(tmp_path: Path, open_store: OpenStore) -> None:
    with pytest.raises(StoreError, match="is a folder") as caught:
        open_store(f"sqlite:///{tmp_path}")
    one_line(caught.value, tmp_path)


def test_a_file_in_the_way(tmp_path: Path, open_store: OpenStore) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match=r"is no folder|Not a directory"):
        open_store(f"sqlite:///{tmp_path / 'file' / 'tradewind.db'}")


def test_a_pipe_in_the_way(path: Path, open_store: OpenStore) -> None:
    os.mkfifo(path)
    with pytest.raises(StoreError, match="something else is there"):
        open_store(f"sqlite:///{path}")


# PostgreSQL


def test_no_server(open_store: OpenStore) -> None:
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    with pytest.raises(StoreError, match="does not answer") as caught:
        open_store("postgresql://me:secret@127.0.0.1:1/db")
    one_line(caught.value, "127.0.0.1:1/db")
    assert "secret" not in str(caught.value)


def test_no_driver(open_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingProgramError, match=r"needs the package psycopg \(pip install 'tradewind\[postgresql\]'"):
        open_store("postgresql://me@127.0.0.1:1/db")


def test_a_server_that_only_reads(postgresql_url: str, open_store: OpenStore) -> None:
    open_store(postgresql_url).close()
    store = open_store(f"{postgresql_url}&options=-c%20default_transaction_read_only%3Don")
    with pytest.raises(StoreReadOnlyError) as caught:
        store.create_study(study_row())
    one_line(caught.value, "postgresql+psycopg://tw@/")


def test_a_row_that_is_locked(postgresql_url: str, open_store: OpenStore) -> None:
    import psycopg

    store = open_store(postgresql_url, busy_timeout=0.05)
    study = store.create_study(study_row())
    with psycopg.connect(postgresql_url.replace("+psycopg", "")) as other:
        other.execute("SELECT * FROM studies FOR UPDATE")
        with pytest.raises(StoreLockedError):
            store.write(study.id, Change([trial(0)]))


def test_a_table_that_is_gone_from_the_server(postgresql_url: str, open_store: OpenStore) -> None:
    import psycopg

    store = open_store(postgresql_url)
    study = store.create_study(study_row())
    with psycopg.connect(postgresql_url.replace("+psycopg", ""), autocommit=True) as other:
        other.execute("DROP TABLE runs")
    with pytest.raises(StoreCorruptError, match='relation "runs" does not exist'):
        store.runs(study.id)


# What cannot be brought about in a test


class _ServerError(Exception):
    def __init__(self, sqlstate: str) -> None:
        super().__init__("the server's words\nDETAIL: more")
        self.sqlstate = sqlstate


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("53100", StoreFullError),
        ("53300", StoreError),
        ("42501", StoreReadOnlyError),
        ("XX001", StoreCorruptError),
        ("40P01", StoreLockedError),
        ("08006", StoreError),
        ("22003", InputError),
    ],
)
def test_what_a_server_says(state: str, kind: type[TradewindError]) -> None:
    error = error_translation.from_database_error(
        exc.OperationalError("SELECT", {}, _ServerError(state)), "postgresql://host/db", None
    )
    assert type(error) is kind
    assert kind is InputError or "postgresql://host/db" in error.message
    assert "DETAIL" not in str(error)


def test_a_number_of_too_many_digits(path: Path, open_store: OpenStore) -> None:
    """SQLite's driver raises it itself, before the database sees the number."""
    store = open_store(f"sqlite:///{path}")
    with pytest.raises(InputError, match="a number is larger than the store can keep"):
        store.study(10**20)
    other = OverflowError("math range error")
    assert error_translation.from_overflow(other) is other


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (sqlite3.SQLITE_FULL, StoreFullError),
        (sqlite3.SQLITE_IOERR_WRITE, StoreFullError),
        (sqlite3.SQLITE_IOERR_SHORT_READ, StoreCorruptError),
        (sqlite3.SQLITE_IOERR_FSYNC, StoreError),
        (sqlite3.SQLITE_CANTOPEN, StoreReadOnlyError),
        (sqlite3.SQLITE_PERM, StoreReadOnlyError),
        (sqlite3.SQLITE_ERROR, StoreError),
    ],
)
def test_what_sqlite_says(code: int, kind: type[StoreError], path: Path) -> None:
    original: Any = sqlite3.OperationalError("words")
    original.sqlite_errorcode = code
    assert type(error_translation.from_database_error(original, str(path), path)) is kind


@pytest.mark.parametrize("code", [sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_CANTOPEN])
def test_a_full_disk_by_other_names(code: int, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original: Any = sqlite3.OperationalError("words")
    original.sqlite_errorcode = code
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=0))
    assert type(error_translation.from_database_error(original, str(path), path)) is StoreFullError

    def gone(folder: Path) -> None:
        raise FileNotFoundError(folder)

    monkeypatch.setattr(shutil, "disk_usage", gone)
    assert type(error_translation.from_database_error(original, str(path), path)) is not StoreFullError


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errno.ENOSPC, StoreFullError),
        (errno.EDQUOT, StoreFullError),
        (errno.EROFS, StoreReadOnlyError),
        (errno.EACCES, StoreReadOnlyError),
        (errno.ENAMETOOLONG, StoreError),
    ],
)
def test_what_the_system_says(code: int, kind: type[StoreError]) -> None:
    error = error_translation.from_os_error(OSError(code, os.strerror(code)), "/x/y.db")
    assert type(error) is kind
    one_line(error, "/x/y.db")


def test_an_error_that_is_not_the_databases() -> None:
    error = error_translation.from_database_error(exc.CompileError("strange"), "/x/y.db", None)
    assert str(error) == "the store /x/y.db failed: strange"
