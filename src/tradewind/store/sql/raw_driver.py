"""Writing without SQLAlchemy in between, where it would take longer than the database itself."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from sqlalchemy import exc
from sqlalchemy.engine import Connection, Dialect, Engine

from tradewind.store.sql.leases import STUDY_LEASES


class WriteAheadLog:
    """The log that a connection in WAL mode writes to.

    With ``synchronous = FULL`` SQLite syncs it while it keeps all others from writing. With ``NORMAL`` a commit is in
    the system's hands, and on the disk when the log was synced after it, or when a checkpoint has copied it into the
    file: SQLite syncs both then. So the wait for the disk need keep nobody from writing.

    Args:
        driver: The connection, within a transaction: the log is there then, and stays as long as a connection does.

    Raises:
        sqlite3.OperationalError: The log cannot be opened.

    Attributes:
        sound: False once a sync has failed: what was committed then may be missing on the disk, and what comes after it
            in the log is lost with it in a power cut.
    """

    def __init__(self, driver: sqlite3.Connection) -> None:
        (_, _, file) = driver.execute("PRAGMA database_list").fetchone()
        self._lock = threading.Lock()
        self._open = True
        self.sound = True
        try:
            # A second descriptor of the log, unlike one of the file, has no part in SQLite's locks.
            self._descriptor = os.open(f"{file}-wal", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise _sqlite_error(error, sqlite3.SQLITE_CANTOPEN) from error

    def sync(self) -> None:
        """Return when all that was committed before is on the disk.

        Raises:
            sqlite3.OperationalError: The disk fails, and nobody knows what it has.
        """
        with self._lock:
            if self._open and self.sound:
                self._sync()
            if not self.sound:
                raise _sqlite_error(OSError(errno.EIO, os.strerror(errno.EIO)), sqlite3.SQLITE_IOERR_FSYNC)

    def close(self) -> None:
        """Sync it for those who are about to, and let go of it; they get the error where that fails."""
        with self._lock:
            if not self._open:
                return
            if self.sound:
                with contextlib.suppress(sqlite3.OperationalError):
                    self._sync()
            self._open = False
            os.close(self._descriptor)

    def _sync(self) -> None:
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            # The system tells of a failure once: the next sync would succeed, whatever is missing on the disk.
            self.sound = False
            raise _sqlite_error(error, sqlite3.SQLITE_IOERR_FSYNC) from error


class SharedSync:
    """Waits for the disk that the threads of a process share: one is for all that was committed before it began."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._committed = self._synced = 0
        self._log: WriteAheadLog | None = None

    def committed(self, log: WriteAheadLog) -> None:
        """Something was committed to the log; who calls it is the only one that does so at that moment."""
        self._log = log
        self._committed += 1

    def wait(self) -> None:
        """Return when all that was committed before is on the disk.

        Raises:
            sqlite3.OperationalError: The disk fails, and nobody knows what it has.
        """
        mine = self._committed
        with self._turn:
            if self._synced >= mine or self._log is None:
                return
            # In this order: what is committed from here on may miss this sync.
            reached = self._committed
            self._log.sync()
            self._synced = reached


def _sqlite_error(error: OSError, code: int) -> sqlite3.OperationalError:
    """SQLite's error for one of the system, as SQLite itself would have raised it."""
    made = sqlite3.OperationalError(f"disk I/O error: {error.strerror}")
    made.sqlite_errorcode = code
    return made


AnyConnection = Connection | sqlite3.Connection
"""Within a transaction; SQLite's own where nothing is to stand between."""


class PreparedStatement:
    """A statement without its way through SQLAlchemy's compiler and caches, which costs more than SQLite's own work.

    It takes values as the driver does: numbers, texts, bytes, booleans and None.

    Args:
        statement: The statement; its parameters are named.
        dialect: Of the connections that it is run on.
        columns: The columns that an INSERT or UPDATE without values is about; all of the table without it.
    """

    def __init__(self, statement: Any, dialect: Dialect, columns: Sequence[str] | None = None) -> None:
        compiled = statement.compile(dialect=dialect, column_keys=columns)
        self._text = str(compiled)
        self._order: Sequence[str] | None = compiled.positiontup

    def run(self, connection: AnyConnection, rows: Sequence[Mapping[str, Any]]) -> int:
        """Run it for each row; the parameters are the row's values by name.

        Returns:
            How many rows of the table it was about.
        """
        if self._order is None:
            assert isinstance(connection, Connection)
            return connection.exec_driver_sql(self._text, [dict(row) for row in rows]).rowcount
        values = [tuple([row[name] for name in self._order]) for row in rows]
        if isinstance(connection, Connection):
            return connection.exec_driver_sql(self._text, values).rowcount
        if len(values) == 1:
            return connection.execute(self._text, values[0]).rowcount
        return connection.executemany(self._text, values).rowcount


class PreparedQuery:
    """A query without its way through SQLAlchemy; see `PreparedStatement`.

    Args:
        query: The query; its parameters are named.
        dialect: Of the connections that it is run on.
    """

    def __init__(self, query: Any, dialect: Dialect) -> None:
        compiled = query.compile(dialect=dialect)
        self._text = str(compiled)
        self._order: Sequence[str] | None = compiled.positiontup
        self._fixed: Mapping[str, Any] = compiled.params  # of constants in it

    def fetch(self, connection: AnyConnection, values: Mapping[str, Any]) -> Sequence[Any]:
        """All rows."""
        every = {**self._fixed, **values}
        if self._order is None:
            assert isinstance(connection, Connection)
            return connection.exec_driver_sql(self._text, every).all()
        given = tuple([every[name] for name in self._order])
        if isinstance(connection, Connection):
            return connection.exec_driver_sql(self._text, given).all()
        return connection.execute(self._text, given).fetchall()


class HeldStudyUpdate:
    """Changes of a study by who holds it: whether it is still held and the change are one statement.

    Args:
        dialect: Of the connections.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._known: dict[tuple[str, ...], PreparedStatement] = {}

    def run(self, connection: AnyConnection, study_id: int, token: str, fields: Mapping[str, Any]) -> bool:
        """Change the fields of a study; False, and nothing is changed, where the token does not hold it."""
        names = tuple(fields)
        prepared = self._known.get(names)
        if prepared is None:
            prepared = self._known[names] = PreparedStatement(STUDY_LEASES.change_mine, self._dialect, names)
        return prepared.run(connection, [{**fields, "id_": study_id, "token_": token}]) > 0


_LONGEST_PAUSE = 0.002

_FIRST_PAUSE, _FIRST_LONGEST = 0.0001, 0.001
"""Pauses of the one process that looks all the time whether it can begin."""

_SEAT_PAUSE, _LONGEST_SEAT_PAUSE = 0.001, 0.01
"""Pauses of those that look whether they are that one. Where many wait, looking takes the time of the one that writes:
who has waited for long looks less often."""

_SEAT_SECONDS = 0.1
"""Seconds after which these, too, look whether they can begin: that one may have been stopped."""

_TIDY_COMMITS = 200
"""Steps of a search, each of about ten pages, after which the log is copied into the file."""

_TIDY_MILLISECONDS = 20
"""How long that may wait for other writers and readers; it is tried again later."""


class PollerSeat:
    """Of the processes that wait for a file, one looks all the time whether it can begin, the others whether it has.

    It is a lock of the folder that nothing depends on: where there is none to be had, all wait as if without it.

    Args:
        folder: The file's folder.

    Attributes:
        patience: Seconds after which those that are not that one look at the file, too.
        longest_pause: Seconds that these pause at most.
    """

    def __init__(self, folder: Path) -> None:
        self.patience, self.longest_pause = _SEAT_SECONDS, _LONGEST_SEAT_PAUSE
        self._lock: int | None = None
        try:
            self._lock = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._do_without()

    def taken(self) -> bool:
        """Be the one that looks all the time; False where another process is."""
        if self._lock is None:
            return False
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            self._do_without()
            return False
        return True

    def _do_without(self) -> None:
        self.patience, self.longest_pause = 0.0, _LONGEST_PAUSE

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        if self._lock is not None:
            os.close(self._lock)


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
        with PollerSeat(self._folder) as seat:
            self._wait(driver, seat, lasting=lasting)
        return driver

    def _wait(self, driver: sqlite3.Connection, seat: PollerSeat, *, lasting: bool) -> None:
        until = time.monotonic() + self._patience
        first, pause, look = False, _SEAT_PAUSE, time.monotonic() + seat.patience
        while True:
            if not first and seat.taken():
                first, pause = True, _FIRST_PAUSE
            now = time.monotonic()
            if first or now > min(look, until):
                if self._begun(driver, lasting=lasting, last=now > until):
                    return
                look = now + seat.patience
            time.sleep(pause)
            pause = min(1.5 * pause, _FIRST_LONGEST if first else seat.longest_pause)

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
        """Bring all that the log has into the file after the disk has failed, or write no more to it."""
        busy, _, _ = driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise sqlite3.OperationalError("the log of writes has to be begun anew, and is in use")
        assert self.log is not None
        self.log.close()
        self.log = None


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
        values: The statement's parameters, by name.

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


def execute_together(engine: Engine, statements: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Any] | None:
    """Run statements of PostgreSQL as one transaction, with one message there and one back.

    Args:
        engine: Its connections commit each statement by themselves, but for those that are sent together.
        statements: Their texts, as the driver takes them, each with its parameters by name.

    Returns:
        The rows of each; None where the connection has gone, and nobody knows whether it was committed.

    Raises:
        SQLAlchemyError: It failed, and nothing of it is written.
    """
    base, text = engine.dialect.loaded_dbapi.Error, statements[-1][0]
    connection = None
    try:
        connection = engine.raw_connection()
        driver: Any = connection.driver_connection
        with driver.pipeline():
            cursors = [driver.execute(statement, values, prepare=True) for statement, values in statements]
        return [cursor.fetchall() for cursor in cursors]
    except base as error:
        if connection is not None and connection.driver_connection.closed:  # type: ignore[union-attr]
            connection.invalidate(error)
            engine.dispose()  # the others of the pool have gone with it
            return None
        raise exc.DBAPIError.instance(text, None, error, base, dialect=engine.dialect) from error
    finally:
        if connection is not None:
            connection.close()
