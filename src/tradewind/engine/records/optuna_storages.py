"""Opens the storages of Optuna by the names that users give them: databases and journals."""

from __future__ import annotations

import contextlib
import logging
import re
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tradewind.errors import RecordError, TradewindError
from tradewind.passwords import hide_password
from tradewind.utils.dependencies import install_command, optuna_log, require_package

if TYPE_CHECKING:
    from optuna.storages import BaseStorage, RDBStorage

_JOURNALS = (".log", ".journal")
FILE_ENDINGS = (".db", ".sqlite", ".sqlite3", *_JOURNALS)
"""Endings of files that are taken for a storage of Optuna."""

_FILE_AND_STUDY = re.compile(rf"(.*?(?:{'|'.join(map(re.escape, FILE_ENDINGS))}))#(.*)", re.DOTALL)

_ADDRESSES = "sqlite:///FILE, postgresql+psycopg://user@host/name"

_TABLES = frozenset({"studies", "trials", "version_info"})
"""Tables that every database of Optuna has."""

_TAKEN = _TABLES | {"alembic_version"}
"""Tables of other programs' databases that Optuna would take for its own."""


@dataclass(frozen=True, slots=True)
class StorageName:
    """The name of a storage as a user writes it, and of a study in it.

    Attributes:
        address: A database's address, or the path of a file, as it was written.
        study: The study's name behind a ``#``, or an empty word.
    """

    address: str
    study: str = ""

    @classmethod
    def of(cls, source: str) -> StorageName:
        """Take a name apart; in that of a file only what is behind its ending is a study's.

        Args:
            source: ``optuna.db``, ``study.log``, ``postgresql://host/name``, each with or without ``#STUDY``.
        """
        if "://" in source:
            address, _, study = source.partition("#")
            return cls(address, study)
        found = None if Path(source).is_file() else _FILE_AND_STUDY.fullmatch(source)
        return cls(source) if found is None else cls(found[1], found[2])

    @property
    def file(self) -> Path | None:
        """The file that it is; None for a database across a connection.

        Raises:
            RecordError: It is no address.
        """
        if "://" not in self.address:
            return Path(self.address)
        if not self.address.startswith("sqlite"):
            return None
        path = str(_url(self.address).database or "")
        return Path(path.removeprefix("file:"))

    @property
    def journal(self) -> bool:
        """True for a journal."""
        return "://" not in self.address and Path(self.address).suffix in _JOURNALS

    @property
    def shown(self) -> str:
        """The address as it may be shown."""
        return hide_password(self.address) if "://" in self.address else self.address


def is_optuna_storage(source: str) -> bool:
    """Test that a name is that of an Optuna storage: a database's address, a file of SQLite or a journal.

    Args:
        source: What a user wrote.
    """
    address = StorageName.of(source).address
    return "://" in address or Path(address).suffix in FILE_ENDINGS


@contextlib.contextmanager
def opened_storage(name: StorageName) -> Iterator[BaseStorage]:
    """Open a storage that is there; nothing is written to it.

    Args:
        name: Its name.

    Yields:
        The storage.

    Raises:
        MissingProgramError: Optuna is not installed.
        RecordError: It cannot be read, or is none of Optuna.
    """
    require_package("optuna", "Optuna studies", "optuna")
    if (path := name.file) is not None and not path.is_file():
        raise RecordError("it is a folder" if path.is_dir() else "there is no such file", file=str(path))
    with optuna_log(logging.WARNING), _translated("read"):
        if name.journal:
            from optuna.storages import JournalStorage
            from optuna.storages.journal import JournalFileBackend

            yield JournalStorage(JournalFileBackend(name.address))
            return
        if not _tables(name, write=False) >= _TABLES:
            raise RecordError("it is no database of Optuna", hint="an address of one, or the file of its journal")
        with _database(name, write=False) as storage:
            yield storage


@contextlib.contextmanager
def opened_database(name: StorageName) -> Iterator[RDBStorage]:
    """Open a database to write into; Optuna makes its tables where they are missing.

    Args:
        name: Its name.

    Yields:
        The storage.

    Raises:
        RecordError: It cannot be opened, or has another program's tables.
    """
    with optuna_log(logging.WARNING), _translated("write"):
        tables = _tables(name, write=True)
        if not tables >= _TABLES and (others := sorted(tables & _TAKEN)):
            raise RecordError(
                f"another program's database, with tables that Optuna would take for its own: {', '.join(others)}",
                hint="name another database",
            )
        with _database(name, write=True) as storage:
            yield storage


@contextlib.contextmanager
def _database(name: StorageName, *, write: bool) -> Iterator[RDBStorage]:
    from optuna.storages import RDBStorage

    address, options = _connection(name, write=write)
    storage = RDBStorage(address, options)
    try:
        yield storage
    finally:
        storage.remove_session()
        storage.engine.dispose()


def _tables(name: StorageName, *, write: bool) -> set[str]:
    """The tables of a database, which are looked at before Optuna makes those that it misses."""
    import sqlalchemy as sa

    address, options = _connection(name, write=write)
    engine = sa.create_engine(address, **options)
    try:
        return set(sa.inspect(engine).get_table_names())
    finally:
        engine.dispose()


def _connection(name: StorageName, *, write: bool) -> tuple[str, dict[str, Any]]:
    """Address and options of an engine. A file is opened by its path: an address has no room for some of them."""
    if (path := name.file) is None:
        return name.address, {}
    file = f"file:{quote(str(path.absolute()))}?mode={'rwc' if write else 'ro'}"
    return "sqlite://", {"creator": lambda: sqlite3.connect(file, uri=True)}


def _url(address: str) -> Any:
    import sqlalchemy as sa

    try:
        return sa.make_url(address)
    except (sa.exc.ArgumentError, ValueError):
        raise RecordError("it is no address of a database", hint=_ADDRESSES) from None


@contextlib.contextmanager
def _translated(doing: str) -> Iterator[None]:
    """Say in a line what a database, its driver or a damaged journal makes Optuna raise; a fault of ours stays one."""
    import sqlalchemy as sa
    from optuna.exceptions import StorageInternalError

    try:
        yield
    except TradewindError:
        raise
    except (ImportError, sa.exc.NoSuchModuleError) as error:
        hint = f"{install_command('postgresql')}, and write postgresql+psycopg://user@host/name"
        raise RecordError(f"no driver for this database: {_first_line(error)}", hint=hint) from None
    except sa.exc.ArgumentError:
        raise RecordError("it is no address of a database", hint=_ADDRESSES) from None
    except sa.exc.DBAPIError as error:
        raise RecordError(f"the database cannot be {_PAST[doing]}: {_first_line(error.orig)}") from None
    except StorageInternalError as error:
        raise RecordError(f"Optuna cannot {doing} it: {_first_line(error.__cause__ or error)}") from None
    except Exception as error:
        if not _is_of_others(error, doing):
            raise
        raise RecordError(f"Optuna cannot {doing} it: {type(error).__name__}: {_first_line(error)}") from None


def _is_of_others(error: Exception, doing: str) -> bool:
    """Test that an error is one of Optuna, of what it calls, or of the system, and no fault of this program."""
    if isinstance(error, OSError) or type(error).__module__.partition(".")[0] not in ("builtins", "json", "tradewind"):
        return True
    rooms = [frame.f_globals.get("__name__", "").partition(".")[0] for frame, _ in walk_tb(error.__traceback__)]
    last = next((room for room in reversed(rooms) if room in ("optuna", "tradewind")), "")
    # Damaged data make Optuna raise anything. What it is given to write is ours; of tables it says RuntimeError.
    return last == "optuna" and (doing == "read" or isinstance(error, RuntimeError))


_PAST = {"read": "read", "write": "written"}


def _first_line(error: BaseException | None) -> str:
    return str(error).strip().partition("\n")[0]
