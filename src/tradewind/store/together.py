"""Writes of several threads as one transaction: they share one wait for the disk."""

from __future__ import annotations

import sqlite3
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy.engine import Connection

if TYPE_CHECKING:
    from tradewind.store.database import Database

Work = Callable[[Connection], None]
Direct = Callable[[sqlite3.Connection], None]


@dataclass(slots=True, eq=False)
class _Write:
    work: Callable[[Any], None]
    lasting: bool
    done: bool = False
    error: Exception | None = None


class Together:
    """The writes of this process to one SQLite file.

    A file has one writer at a time. What comes while one is at it waits, and the next one takes all of that into its
    own transaction. If any of it fails, each is tried again by itself, so that nobody meets another one's error.

    Args:
        direct: The work is done with SQLite's own connection.
    """

    def __init__(self, *, direct: bool = False) -> None:
        self._direct = direct
        self._turn = threading.Lock()
        self._lock = threading.Lock()
        self._waiting: list[_Write] = []

    def write(self, database: Database, work: Callable[[Any], None], *, lasting: bool) -> None:
        """Do some work in a transaction; it is committed when this returns.

        Args:
            database: The file, as the caller has it open.
            work: It may be called twice; the first time is undone then.
            lasting: It survives a power cut, and not only a crash of the process.

        Raises:
            StoreError: The work or its commit failed; nothing of it is written.
        """
        mine = _Write(work, lasting)
        with self._lock:
            self._waiting.append(mine)
        with self._turn:
            if not mine.done:
                with self._lock:
                    batch, self._waiting = self._waiting, []
                self._commit(database, batch)
        if mine.error is not None:
            raise mine.error

    def _commit(self, database: Database, batch: Sequence[_Write]) -> None:
        try:
            lasting = any(each.lasting for each in batch)
            begun: Any = database.direct(lasting=lasting) if self._direct else database.write(lasting=lasting)
            with begun as connection:
                for each in batch:
                    each.work(connection)
        except Exception as error:
            if len(batch) > 1:
                for each in batch:
                    self._commit(database, [each])
                return
            batch[0].error = error
        for each in batch:
            each.done = True


_ALL: weakref.WeakValueDictionary[tuple[str, bool], Together] = weakref.WeakValueDictionary()
_MAKING = threading.Lock()


def writes_to(place: str, *, direct: bool = False) -> Together:
    """The writes of this process to a file: one object of each kind for all stores that have it open."""
    with _MAKING:
        found = _ALL.get((place, direct))
        if found is None:
            found = _ALL[place, direct] = Together(direct=direct)
        return found
