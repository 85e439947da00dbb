"""Looks for new events of requests, cheaply enough to do it several times a second."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from tradewind.store import codec
from tradewind.store.service.request_queries import last_event_number
from tradewind.store.sql.database import Database
from tradewind.store.sql.schema import request_events, requests

_MOST_EVENTS = 1000


@dataclass(frozen=True, slots=True)
class TenantRequestEvent:
    """An event of a request, with what says who may see it.

    Attributes:
        id: The store's own number of it; events are committed in the order of their numbers.
        request_id: The request.
        tenant: Whose the request is.
        at: Seconds since the epoch.
        stage: The request's state from then on.
        text: What happened, in words.
        details: Facts by name.
    """

    id: int
    request_id: int
    tenant: str
    at: float
    stage: str
    text: str
    details: Mapping[str, Any]


class RequestEventFeed:
    """Reads what has happened since it was last asked; for one thread.

    On SQLite most looks cost one PRAGMA: it tells whether any process has written anything since the look before.

    Args:
        database: The open database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._file = None if database.path is None else sqlite3.connect(database.path, check_same_thread=False)
        self._version: int | None = None
        self.last = last_event_number(database)

    def look(self) -> list[TenantRequestEvent]:
        """The events since the last look, the oldest first; at most 1,000, the rest at the next look."""
        version = self._changed()
        if version is not None and version == self._version:
            return []
        columns = [request_events.c[name] for name in TenantRequestEvent.__dataclass_fields__ if name != "tenant"]
        query = (
            sa.select(*columns, requests.c.tenant)
            .join(requests, requests.c.id == request_events.c.request_id)
            .where(request_events.c.id > self.last)
            .order_by(request_events.c.id)
            .limit(_MOST_EVENTS)
        )
        with self._database.read() as connection:
            rows = connection.execute(query).mappings().all()
        found = [TenantRequestEvent(**{**row, "details": codec.loads(row["details"])}) for row in rows]
        if found:
            self.last = found[-1].id
        # Only now: a look that failed, or that did not read all, is done again.
        self._version = version if len(found) < _MOST_EVENTS else None
        return found

    def close(self) -> None:
        """Give back its own connection."""
        if self._file is not None:
            self._file.close()

    def _changed(self) -> int | None:
        """SQLite's counter of what other connections have written; None where there is no such thing."""
        if self._file is None:
            return None
        with contextlib.closing(self._file.execute("PRAGMA data_version")) as cursor:
            return int(cursor.fetchone()[0])
