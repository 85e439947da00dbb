"""Writing without SQLAlchemy in between, where it would take longer than the database itself."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sqlalchemy import exc
from sqlalchemy.engine import Connection, Engine

from tradewind.store.log import WriteAheadLog

_FIRST_PAUSE, _LONGEST_PAUSE = 0.0001, 0.002
_SEAT_PAUSE, _SEAT_SECONDS = 0.0005, 0.1

_TIDY_COMMITS = 200
"""Steps of a search, each of about ten pages, after which the log is copied into the file."""

_TIDY_MILLISECONDS = 20
"""How long that may wait for other writers and readers; it is tried again later."""


class SqliteWriter:
    """The connection by which the threads of this process write to an SQLite file, one after the other.

    Args:
        engine: Makes the connection; its driver begins no transaction by itself.
        busy_timeout: Seconds to wait for a lock that another process holds.

    Attributes:
        log: What was committed is on the disk when this was synced; None where SQLite syncs by itself.
    """

    def __init__(self, engine: Engine, busy_timeout: float) -> None:
        self._engine = engine
        self._folder = Path(engine.url.database or "").absolute().parent
        self._patience = busy_timeout
        self._lock = threading.Lock()
        self._driver: sqlite3.Connection | None = None
        self._logged = False
        self._synchronous = ""
        self._commits = 0
        self.log: WriteAheadLog | None = None

    @contextlib.contextmanager
    def transaction(self, *, lasting: bool) -> Iterator[sqlite3.Connection]:
        """A transaction that is committed when the block ends, and undone when it raises.

        Args:
            lasting: False where a power cut may take it back; a crash of this process never does. Where there is a
                log, that is for the caller to sync.
        """
        with self._lock:
            try:
                driver = self._begin(lasting=lasting)
                if self._logged and self.log is None:
                    self.log = WriteAheadLog(driver)
                yield driver
                driver.execute("COMMIT")
                self._commits += 1
            except BaseException:
                self._close()  # which undoes what was begun, whatever state the connection is in
                raise

    def tidy(self) -> None:
        """Bring the log into the file if much has been written, so that the log is begun anew."""
        # SQLite does so at each commit once the log is long. Where others write all the time, none of these commits
        # finds the log at its end, and each has waited for the disk twice.
        if self._commits < _TIDY_COMMITS:
            return
        with self._lock:
            if self._driver is None or self._commits < _TIDY_COMMITS:
                return
            self._commits = 0
            # What fails here fails again where it matters: the log has all of it still.
            with contextlib.suppress(sqlite3.OperationalError):
                self._driver.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                self._driver.execute(f"PRAGMA busy_timeout = {_TIDY_MILLISECONDS}")
                self._driver.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
            self._driver.execute("PRAGMA busy_timeout = 0")

    def close(self) -> None:
        """Give the connection back; the next transaction opens another."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        driver, self._driver, self._synchronous = self._driver, None, ""
        log, self.log = self.log, None
        if log is not None:
            log.close()
        if driver is not None:
            driver.close()

    def _begin(self, *, lasting: bool) -> sqlite3.Connection:
        driver = self._driver or self._open()
        if self.log is not None and not self.log.sound:
            self._begin_log(driver)
        if self._begun(driver, lasting=lasting):
            return driver
        until, pause = time.monotonic() + self._patience, _FIRST_PAUSE
        with self._poller_lock() as first:
            while not self._begun(driver, lasting=lasting, last=time.monotonic() > until):
                time.sleep(pause)
                pause = pause if first else min(2 * pause, _LONGEST_PAUSE)
        return driver

    def _begun(self, driver: sqlite3.Connection, *, lasting: bool, last: bool = False) -> bool:
        """Begin, unless another process is writing; with ``last``, that is an error."""
        # In WAL mode NORMAL leaves the log to the system, which writes it before anything that comes after it.
        mode = "FULL" if lasting and not self._logged else "NORMAL"
        try:
            if mode != self._synchronous:
                driver.execute(f"PRAGMA synchronous = {mode}")
                self._synchronous = mode
            # IMMEDIATE takes the write lock first: a later upgrade of a reader's lock could fail without waiting.
            driver.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if last or error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            return False
        return True

    @contextlib.contextmanager
    def _poller_lock(self) -> Iterator[bool]:
        """Of the processes that wait, one looks all the time whether it can begin, the others whether it has begun.

        It is a lock of the folder that nothing depends on: where there is none to be had, all wait as if without it.
        """
        try:
            folder = os.open(self._folder, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            yield False
            return
        try:
            yield _locked(folder, time.monotonic() + _SEAT_SECONDS)
        finally:
            os.close(folder)

    def _open(self) -> sqlite3.Connection:
        connection = self._engine.raw_connection()
        driver = connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        connection.detach()
        # `_begin` waits instead, in shorter steps, and `tidy` copies the log.
        driver.execute("PRAGMA busy_timeout = 0")
        (mode,) = driver.execute("PRAGMA journal_mode").fetchone()
        # Options of SQLite's in the address may be about how it syncs.
        self._logged = mode == "wal" and not self._engine.url.query
        if self._logged:
            driver.execute("PRAGMA wal_autocheckpoint = 0")
        self._driver = driver
        return driver

    def _begin_log(self, driver: sqlite3.Connection) -> None:
        """After the disk has failed: have all that the log has in the file, or write no more to it."""
        busy, _, _ = driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise sqlite3.OperationalError("the log of writes has to be begun anew, and is in use")
        assert self.log is not None
        self.log.close()
        self.log = None


def _locked(folder: int, until: float) -> bool:
    while time.monotonic() < until:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_SEAT_PAUSE)
        except OSError:
            return False
        else:
            return True
    return False


def begin_immediate(connection: Connection) -> None:
    """Begin a transaction that writes, as soon as no other process does."""
    # SQLite looks after 1, 2, 5, 10 ms and so on, up to 100, whether a writer has ended: among many, a quick write
    # waits for several tenths of a second. Looked at all the time, the next one begins when the last has ended.
    driver: Any = connection.connection.driver_connection
    (patience,) = driver.execute("PRAGMA busy_timeout").fetchone()
    until = time.monotonic() + patience / 1000 - _LONGEST_PAUSE
    driver.execute("PRAGMA busy_timeout = 0")
    try:
        while time.monotonic() < until:
            try:
                driver.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                    raise
                time.sleep(_LONGEST_PAUSE)
                continue
            return
    finally:
        driver.execute(f"PRAGMA busy_timeout = {patience}")
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def execute_autocommit(engine: Engine, text: str, values: Mapping[str, Any]) -> Any:
    """Run a statement of a server as a transaction of its own, with one message there and one back.

    It is run once more where the connection turns out to be gone, as after a restart of the server, and the first time
    may have been committed: twice must be the same as once.

    Args:
        engine: Its connections commit each statement by themselves.
        text: As the driver takes it.
        values: Its parameters.

    Returns:
        The first row.

    Raises:
        SQLAlchemyError: It failed.
    """
    base = engine.dialect.loaded_dbapi.Error
    for last in (False, True):
        connection = None
        try:
            connection = engine.raw_connection()
            cursor: Any = connection.cursor()
            cursor.execute(text, values)
            return cursor.fetchone()
        except base as error:
            driver: Any = connection.driver_connection if connection is not None else None
            gone = driver is not None and driver.closed
            if gone and connection is not None:
                connection.invalidate(error)
                engine.dispose()  # the others of the pool have gone with it
            if last or not gone:
                raise exc.DBAPIError.instance(text, None, error, base, dialect=engine.dialect) from error
        finally:
            if connection is not None:
                connection.close()
    return None
