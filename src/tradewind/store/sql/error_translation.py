"""Translates a database's own errors into `StoreError` and its kinds."""

from __future__ import annotations

import errno
import shutil
import sqlite3
from pathlib import Path

from sqlalchemy import exc

from tradewind.errors import (
    InputError,
    StoreCorruptError,
    StoreError,
    StoreFullError,
    StoreLockedError,
    StoreReadOnlyError,
    TradewindError,
)

_LOCKED_HINT = "another program is writing to it; wait, or write ?busy_timeout=120 behind its address"
_FULL_HINT = "free some space, or move the store with TRADEWIND_STORE; what was written before is safe"
_READ_ONLY_HINT = "give yourself the right to write there, or put the store elsewhere with TRADEWIND_STORE"
_CORRUPT_HINT = "restore a copy, or choose another place with TRADEWIND_STORE; nothing was changed"

# Writing fails with these when a quota or a file size limit is reached; SQLITE_FULL is for a full disk only.
_FULL_IO = frozenset({sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_TRUNCATE})
_DAMAGED_IO = frozenset({sqlite3.SQLITE_IOERR_SHORT_READ, sqlite3.SQLITE_IOERR_CORRUPTFS})
_SMALL = 1 << 20


def locked_error(place: str) -> StoreLockedError:
    """Somebody else holds a lock for too long."""
    return StoreLockedError(f"the store {place} is locked", hint=_LOCKED_HINT)


def full_error(place: str) -> StoreFullError:
    """There is no room for more."""
    return StoreFullError(f"no room to write to the store {place}", hint=_FULL_HINT)


def read_only_error(place: str, why: str) -> StoreReadOnlyError:
    """The error of a database that cannot be written, or not even opened, for lack of rights."""
    return StoreReadOnlyError(f"the store {place} cannot be written: {why}", hint=_READ_ONLY_HINT)


def corrupt_error(place: str, why: str, hint: str = _CORRUPT_HINT) -> StoreCorruptError:
    """The error of a file that is no store, or a damaged one."""
    return StoreCorruptError(f"{place} is not a usable store: {why}", hint=hint)


def from_os_error(error: OSError, place: str) -> StoreError:
    """The store's error for one of the operating system."""
    why = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return full_error(place)
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return read_only_error(place, why)
    return StoreError(f"the store {place} cannot be made: {why}", hint="choose another place with TRADEWIND_STORE")


def from_overflow(error: OverflowError) -> Exception:
    """The error for a number of too many digits for SQLite, which its driver raises itself; any other as it is."""
    return _too_large() if "SQLite" in str(error) else error


def from_database_error(error: exc.SQLAlchemyError | sqlite3.Error, place: str, path: Path | None) -> TradewindError:
    """The store's error for one of SQLAlchemy, SQLite or PostgreSQL; an `InputError` for a number of too many digits.

    Args:
        error: The error.
        place: The store's address in words, without a password.
        path: The file of an SQLite store, or None.
    """
    original = error if isinstance(error, sqlite3.Error) else getattr(error, "orig", None)
    if isinstance(original, sqlite3.Error):
        return _of_sqlite(original, place, path)
    state = getattr(original, "sqlstate", None)
    why = _line(original or error)
    if isinstance(state, str):
        return _of_postgresql(state, why, place)
    if isinstance(error, exc.OperationalError | exc.InterfaceError):
        return StoreError(f"the store {place} does not answer: {why}", hint="is the database running?")
    return StoreError(f"the store {place} failed: {why}")


def _too_large() -> InputError:
    return InputError("a number is larger than the store can keep", hint="write one of at most 9 digits")


def _of_sqlite(error: sqlite3.Error, place: str, path: Path | None) -> StoreError:
    code = getattr(error, "sqlite_errorcode", 0) or 0
    primary = code & 0xFF
    why = _line(error)
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return locked_error(place)
    if primary == sqlite3.SQLITE_FULL or code in _FULL_IO:
        return full_error(place)
    if primary in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return read_only_error(place, why)
    if primary == sqlite3.SQLITE_CANTOPEN:
        # A log file that cannot be made beside the database is reported as this, on a full disk too.
        return full_error(place) if _no_room(path) else read_only_error(place, why)
    if primary in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT) or code in _DAMAGED_IO:
        return corrupt_error(place, why)
    if primary == sqlite3.SQLITE_IOERR:
        return full_error(place) if _no_room(path) else StoreError(f"the disk under the store {place} fails: {why}")
    if primary == sqlite3.SQLITE_ERROR and why.startswith(("no such table", "no such column")):
        return corrupt_error(place, why)
    return StoreError(f"the store {place} failed: {why}")


def _of_postgresql(state: str, why: str, place: str) -> TradewindError:
    if state == "22003":
        return _too_large()
    if state in ("55P03", "40P01", "40001", "57014"):
        return locked_error(place)
    if state.startswith("53") and state != "53300":
        return full_error(place)
    if state in ("25006", "42501"):
        return read_only_error(place, why)
    if state in ("42P01", "42703", "XX001", "XX002"):
        return corrupt_error(place, why)
    return StoreError(f"the store {place} failed: {why}")


def _no_room(path: Path | None) -> bool:
    try:
        return path is not None and shutil.disk_usage(path.parent).free < _SMALL
    except OSError:
        return False


def _line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__).strip()
