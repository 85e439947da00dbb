"""SQLite's write-ahead log on the disk: what was committed is in it, and lasts when it was synced."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import threading


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
        """Sync it for those who are about to, and let go of it; they are told where that fails."""
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
