"""Opens the database: its folder, its connections, its transactions, group commit and its schema version."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.engine import URL, Connection, Engine

from tradewind.errors import MissingProgramError, StoreCorruptError, StoreError
from tradewind.store.sql import error_translation
from tradewind.store.sql.address import (
    ADDRESS_HINT,
    connection_options,
    file_of,
    read_address,
    require_utf8,
    shown_address,
)
from tradewind.store.sql.raw_driver import (
    SharedSync,
    SqliteWriter,
    WriteAheadLog,
    begin_immediate,
    execute_autocommit,
    execute_together,
)
from tradewind.store.sql.schema import REVISIONS, VERSION_TABLE, metadata
from tradewind.store.sql.schema import version as version_table
from tradewind.utils.dependencies import install_command

TransactionWork = Callable[[Connection], None]
SqliteWork = Callable[[sqlite3.Connection], None]


@dataclass(slots=True, eq=False)
class _PendingWrite:
    work: Callable[[Any], None]
    lasting: bool
    done: bool = False
    error: Exception | None = None


class GroupCommit:
    """The writes of this process to one SQLite file.

    A file has one writer at a time. What comes while one is at it waits, and the next one takes all of that into its
    own transaction. If any of it fails, each is tried again by itself, so that nobody meets another one's error.

    Args:
        direct: The work is done with SQLite's own connection. The wait for the disk then keeps nobody from writing.
    """

    def __init__(self, *, direct: bool = False) -> None:
        self._direct = direct
        self._turn = threading.Lock()
        self._lock = threading.Lock()
        self._waiting: list[_PendingWrite] = []
        self._syncs = SharedSync()

    def write(self, database: Database, work: Callable[[Any], None], *, lasting: bool) -> None:
        """Do some work in a transaction; it is committed when this returns.

        Args:
            database: The file, as the caller has it open.
            work: It may be called twice; the first time is undone then.
            lasting: It survives a power cut, and not only a crash of the process.

        Raises:
            StoreError: The work or its commit failed, and nothing of it is written; or the disk failed after it, and
                nobody knows what it has.
        """
        mine = _PendingWrite(work, lasting)
        try:
            with self._lock:
                self._waiting.append(mine)
            with self._turn:
                if not mine.done:
                    self._commit_all(database)
        finally:  # who is interrupted must not find it written later
            with self._lock:
                self._waiting = [each for each in self._waiting if each is not mine]
        if mine.error is not None:
            raise mine.error
        if self._direct:
            self._finish(database, lasting=lasting)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other threads of this process from writing by this in the meantime; they do not look at the file."""
        with self._turn:
            yield

    def _finish(self, database: Database, *, lasting: bool) -> None:
        try:
            if lasting:
                self._syncs.wait()
        except sqlite3.Error as error:
            raise error_translation.from_database_error(error, database.place, database.path) from error
        database.tidy()

    def _commit_all(self, database: Database) -> None:
        with self._lock:
            batch, self._waiting = self._waiting, []
        try:
            self._commit(database, batch)
        finally:
            # Ctrl-C ends this one, and not what it has taken over from others.
            with self._lock:
                self._waiting = [each for each in batch if not each.done] + self._waiting

    def _commit(self, database: Database, batch: Sequence[_PendingWrite]) -> None:
        try:
            lasting = any(each.lasting for each in batch)
            begun: Any = database.direct(lasting=lasting) if self._direct else database.write(lasting=lasting)
            with begun as connection:
                for each in batch:
                    each.work(connection)
            if self._direct and (log := database.log) is not None:
                self._syncs.committed(log)
        except Exception as error:
            if len(batch) > 1:
                for each in batch:
                    self._commit(database, [each])
                return
            batch[0].error = error
        for each in batch:
            each.done = True


_GROUP_COMMITS: weakref.WeakValueDictionary[tuple[str, bool], GroupCommit] = weakref.WeakValueDictionary()
_GROUP_COMMITS_LOCK = threading.Lock()


def group_commit_of(place: str, *, direct: bool = False) -> GroupCommit:
    """The writes of this process to a file: one object of each kind for all stores that have it open."""
    with _GROUP_COMMITS_LOCK:
        found = _GROUP_COMMITS.get((place, direct))
        if found is None:
            found = _GROUP_COMMITS[place, direct] = GroupCommit(direct=direct)
        return found


_MIGRATING = 0x7472616465  # "trade": the advisory lock that PostgreSQL clients migrate under
_WRITES = "tradewind_writes"
_HASTY = "tradewind_hasty"
# What happens while a connection is made is not wrapped by SQLAlchemy.
_ERRORS = (exc.SQLAlchemyError, sqlite3.Error)
_ALEMBIC = threading.Lock()  # its environment is global to the process


class Database:
    """An open database with an up-to-date schema.

    Every error of the database leaves it as a `StoreError`.

    Args:
        url: ``sqlite:///path`` or ``postgresql+psycopg://user@host/name``; ``?busy_timeout=60`` behind it overrides
            the argument.
        busy_timeout: Seconds to wait for a lock that another process holds.
    """

    def __init__(self, url: str, *, busy_timeout: float) -> None:
        parsed, busy_timeout = read_address(url, busy_timeout)
        self.place = shown_address(parsed)
        self.path = file_of(parsed)
        if self.path is not None:
            _make_file(self.path, self.place)
        self._busy_timeout = busy_timeout
        self._texts: dict[sa.Select[Any], tuple[str, list[str], dict[str, Any]]] = {}
        self._file: tuple[int, int] | None = None
        engine = self._engine(parsed)
        self._readers = engine
        # Readers of SQLite wait for no writer, and those of `rows` not even for a connection that a writer has.
        self._quick = engine if self.path is None else self._engine(parsed)
        self._writers = engine.execution_options(**{_WRITES: True})
        self._hasty = engine.execution_options(**{_WRITES: True, _HASTY: True})
        self._group_commit = None if self.path is None else group_commit_of(str(self.path.resolve()))
        self._direct = SqliteWriter(engine, busy_timeout)
        self._steps = group_commit_of("" if self.path is None else str(self.path.resolve()), direct=True)
        if parsed.get_backend_name() == "postgresql":
            # All statements of one read see the same moment; SQLite's reads do so by themselves.
            self._readers = engine.execution_options(isolation_level="REPEATABLE READ")
            # A server has a hundred connections for all processes: of these, steps of many threads share a few.
            few = {"pool_size": 2, "max_overflow": 2}
            self._quick = self._engine(parsed, isolation_level="AUTOCOMMIT", pool_pre_ping=False, **few)
            sa.event.listen(self._hasty, "begin", _on_hasty_begin)
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    @property
    def dialect(self) -> str:
        """``sqlite`` or ``postgresql``."""
        return self.sql.name

    @property
    def sql(self) -> sa.engine.Dialect:
        """SQLAlchemy's dialect, for statements that are compiled once."""
        return self._writers.dialect

    @contextlib.contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that sees one moment of the database."""
        with self._transaction(self._readers) as connection:
            yield connection

    def rows(self, query: sa.Select[Any], **values: Any) -> Sequence[Sequence[Any]]:
        """Rows of one query that is asked all the time; it is kept by the caller, and turned into text once.

        On SQLite nothing stands between it and the driver, whose values are taken as they are: a text, a number, None.

        Args:
            query: Made once, with a named parameter for each value.
            **values: The parameters.
        """
        if self.path is None:
            with self.read() as connection:
                return connection.execute(query, values).all()
        text, names, fixed = self._texts.get(query) or self._text_of(query)
        given = fixed | values
        driver = self._quick.raw_connection()
        try:
            return driver.cursor().execute(text, [given[name] for name in names]).fetchall()  # type: ignore[no-any-return]
        except sqlite3.Error as error:
            raise error_translation.from_database_error(error, self.place, self.path) from error
        except OverflowError as error:
            raise error_translation.from_overflow(error) from None
        finally:
            driver.close()

    def _text_of(self, query: sa.Select[Any]) -> tuple[str, list[str], dict[str, Any]]:
        compiled: Any = query.compile(dialect=self.sql)
        self._texts[query] = found = (str(compiled), list(compiled.positiontup), dict(compiled.params))
        return found

    @contextlib.contextmanager
    def write(self, *, lasting: bool = True) -> Iterator[Connection]:
        """A transaction that is durable when the block ends, and undone when it raises.

        Args:
            lasting: False where a power cut may take it back; a crash of this process never does.
        """
        self._check_file()
        with self._transaction(self._writers if lasting else self._hasty) as connection:
            yield connection

    def write_batched(self, work: TransactionWork, *, lasting: bool = True) -> None:
        """Do some work in a transaction, on SQLite together with what other threads write at that moment."""
        if self._group_commit is not None:
            self._group_commit.write(self, work, lasting=lasting)
            return
        with self.write(lasting=lasting) as connection:
            work(connection)

    def write_batched_directly(self, work: SqliteWork, *, lasting: bool) -> None:
        """As `write_batched`, on SQLite, with its own connection; only work of this kind shares a transaction."""
        self._steps.write(self, work, lasting=lasting)

    @contextlib.contextmanager
    def alone(self, *, lasting: bool) -> Iterator[sqlite3.Connection]:
        """As `direct`, where the threads that use `write_batched_directly` wait in line with this one."""
        with self._steps.alone(), self.direct(lasting=lasting) as driver:
            yield driver

    @contextlib.contextmanager
    def direct(self, *, lasting: bool) -> Iterator[sqlite3.Connection]:
        """As `write`, on SQLite, for one thread at a time; where there is a `log`, it lasts when that is synced."""
        self._check_file()
        try:
            with self._direct.transaction(lasting=lasting) as connection:
                yield connection
        except _ERRORS as error:
            raise error_translation.from_database_error(error, self.place, self.path) from error

    @property
    def log(self) -> WriteAheadLog | None:
        """The log that `direct` writes to, or None where SQLite has synced it by itself."""
        return self._direct.log

    def sync(self) -> None:
        """Return when all that `direct` has committed is on the disk."""
        try:
            if self.log is not None:
                self.log.sync()
        except _ERRORS as error:
            raise error_translation.from_database_error(error, self.place, self.path) from error

    def tidy(self) -> None:
        """Bring what `direct` has written from the log into the file, now and then."""
        self._direct.tidy()

    def at_once(self, text: str, values: Mapping[str, Any]) -> Any:
        """The first row of a statement of PostgreSQL that is its own transaction; see `execute_autocommit`."""
        try:
            return execute_autocommit(self._quick, text, values)
        except _ERRORS as error:
            raise error_translation.from_database_error(error, self.place, self.path) from error

    def together(self, statements: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Any] | None:
        """The rows of each of some statements of PostgreSQL that are a transaction together; see `execute_together`."""
        try:
            return execute_together(self._quick, statements)
        except _ERRORS as error:
            raise error_translation.from_database_error(error, self.place, self.path) from error

    def close(self) -> None:
        """Give back all connections."""
        self._direct.close()
        self._writers.dispose()
        self._quick.dispose()

    def _check_file(self) -> None:
        # SQLite goes on writing to a file that was deleted; all of it would be lost.
        if self.path is None or self._file is None:
            return
        try:
            now = self.path.stat()
        except OSError:
            now = None
        if now is None or (now.st_dev, now.st_ino) != self._file:
            raise StoreError(f"the store {self.place} was removed while it was in use", hint="run the command again")

    @contextlib.contextmanager
    def _transaction(self, engine: Engine) -> Iterator[Connection]:
        try:
            with engine.begin() as connection:
                yield connection
        except _ERRORS as error:
            raise error_translation.from_database_error(error, self.place, self.path) from error
        except OverflowError as error:
            raise error_translation.from_overflow(error) from None

    def _engine(self, url: URL, **options: Any) -> Engine:
        try:
            if url.get_backend_name() == "sqlite":
                engine = sa.create_engine(url, connect_args={"timeout": self._busy_timeout})
                sa.event.listen(engine, "connect", _on_sqlite_connect)
                sa.event.listen(engine, "begin", _on_sqlite_begin)
                return engine
            wait = f"-c lock_timeout={max(1, round(self._busy_timeout * 1000))}"
            mine = connection_options(url, options=wait)
            engine = sa.create_engine(url, connect_args=mine, **({"pool_pre_ping": True} | options))
            require_utf8(engine, self.place)
            return engine
        except ImportError as error:
            raise MissingProgramError(
                f"the store {self.place} needs the package {error.name or 'psycopg'}",
                hint=install_command("postgresql"),
            ) from error
        except exc.SQLAlchemyError as error:
            raise StoreError(f"{self.place} is no store address: {error}", hint=ADDRESS_HINT) from error

    def _prepare(self) -> None:
        with self.read() as connection:
            version = self._version(connection)
        if version != REVISIONS[-1]:
            self._migrate()
        if self.path is not None:
            self._use_wal()
            status = self.path.stat()
            self._file = (status.st_dev, status.st_ino)

    def _version(self, connection: Connection) -> str | None:
        """The version row; None for an empty database.

        Raises:
            StoreCorruptError: It is another program's database, or of a newer Tradewind.
        """
        if not sa.inspect(connection).has_table(VERSION_TABLE):
            # Only SQLite files are Tradewind's alone; a PostgreSQL database may hold other programs' tables.
            if self.path is not None and sa.inspect(connection).get_table_names():
                raise error_translation.corrupt_error(self.place, "it is another program's database")
            return None
        version: str | None = connection.exec_driver_sql(f"SELECT version_num FROM {VERSION_TABLE}").scalar()  # noqa: S608
        if version is not None and version not in REVISIONS:
            raise StoreCorruptError(
                f"the store {self.place} was made by a newer Tradewind (schema {version}, this one knows "
                f"{REVISIONS[-1]})",
                hint="upgrade Tradewind, or choose another place with TRADEWIND_STORE",
            )
        return version

    def _migrate(self) -> None:
        with self.write() as connection:
            if self.dialect == "postgresql":
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MIGRATING})")
            # Another process may have done it while this one waited for the lock.
            version = self._version(connection)
            if version is None:
                _create(connection)
            elif version != REVISIONS[-1]:
                with _ALEMBIC:
                    _upgrade(connection)

    def _use_wal(self) -> None:
        """Readers and a writer do not wait for each other in WAL mode; the file remembers it."""
        deadline = time.monotonic() + self._busy_timeout
        while True:
            try:
                with self._writers.connect() as connection:
                    driver: Any = connection.connection.driver_connection
                    if driver.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                        driver.execute("PRAGMA journal_mode = WAL")
                return
            except _ERRORS as error:
                fault = error_translation.from_database_error(error, self.place, self.path)
                # SQLite does not wait by itself for this change.
                if fault.code != "store.locked" or time.monotonic() > deadline:
                    raise fault from error
                time.sleep(0.02)


def _make_file(path: Path, place: str) -> None:
    """Make the file and its folder for this user alone, if they are not there."""
    try:
        if path.is_dir():
            raise StoreError(f"{place} is a folder, not a store", hint=ADDRESS_HINT)
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # O_EXCL: closing a second descriptor of an open SQLite file would drop this process's locks on it.
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError as error:
        if not path.exists():
            raise StoreError(
                f"the store {place} cannot be made: {path.parent} is no folder", hint=ADDRESS_HINT
            ) from error
    except OSError as error:
        raise error_translation.from_os_error(error, place) from error
    if not path.is_file():
        raise StoreError(f"the store {place} cannot be made: something else is there", hint=ADDRESS_HINT)


def _on_sqlite_connect(driver: Any, _record: object) -> None:
    # The driver begins no transaction by itself: `_on_sqlite_begin` does, and says which kind.
    driver.isolation_level = None
    # FULL: a commit survives a power cut; in WAL mode SQLite's default would not.
    for pragma in ("synchronous = FULL", "foreign_keys = ON", "journal_size_limit = 16777216"):
        driver.execute(f"PRAGMA {pragma}")


def _on_sqlite_begin(connection: Connection) -> None:
    # IMMEDIATE takes the write lock first: a later upgrade of a reader's lock could fail without waiting.
    options = connection.get_execution_options()
    writes = options.get(_WRITES)
    if writes:
        # In WAL mode NORMAL leaves the file to the system, which writes it before anything that comes after it.
        mode, kept = "NORMAL" if options.get(_HASTY) else "FULL", connection.connection.info
        if kept.get("synchronous", "FULL") != mode:
            driver: Any = connection.connection.driver_connection
            driver.execute(f"PRAGMA synchronous = {mode}")
            kept["synchronous"] = mode
        begin_immediate(connection)
        return
    connection.exec_driver_sql("BEGIN")


def _on_hasty_begin(connection: Connection) -> None:
    connection.exec_driver_sql("SET LOCAL synchronous_commit TO OFF")


def _create(connection: Connection) -> None:
    """Make all tables of the newest version in an empty database: importing Alembic would take longer than this."""
    if connection.dialect.name == "sqlite":  # the file is Tradewind's alone: nothing can be there already
        for statement in _sqlite_schema():
            connection.exec_driver_sql(statement)
    else:
        metadata.create_all(connection)
        version_table.create(connection, checkfirst=True)
    connection.execute(version_table.insert().values(version_num=REVISIONS[-1]))


@cache
def _sqlite_schema() -> tuple[str, ...]:
    """Statements that make the tables and their indexes: to find them takes most of the time of making a store."""
    from sqlalchemy.dialects import sqlite

    found: list[sa.schema.ExecutableDDLElement] = []
    for table in dict.fromkeys((*metadata.sorted_tables, version_table)):
        found.append(sa.schema.CreateTable(table))
        found += [sa.schema.CreateIndex(index) for index in sorted(table.indexes, key=lambda index: str(index.name))]
    return tuple(str(each.compile(dialect=sqlite.dialect())) for each in found)


def _upgrade(connection: Connection) -> None:
    """Bring the schema to the newest version, within the transaction that is open."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    # Alembic reads the option with %-interpolation.
    config.set_main_option("script_location", str(Path(__file__).parents[1] / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
