"""Writes of several threads as one transaction, with one wait for the disk."""

from __future__ import annotations

import sqlite3
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy.engine import Connection

from tradewind.store.log import SharedSync
from tradewind.store.sql import error_translation

if TYPE_CHECKING:
    from tradewind.store.sql.database import Database

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
