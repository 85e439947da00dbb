"""Wakes who carries out requests when there is something to do: PostgreSQL tells it to all that listen."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from tradewind.store.sql.address import connection_options, parse_address

if TYPE_CHECKING:
    from sqlalchemy.engine import Engine

_CHANNEL = "tradewind_requests"
_NOTIFY = sa.select(sa.func.pg_notify(_CHANNEL, ""))
_POLL_SECONDS = 1.0
"""Seconds between two looks whether to end."""

_FIRST_WAIT, _LONGEST_WAIT = 1.0, 30.0

_log = logging.getLogger("tradewind.store")


def notify_workers(connection: Connection) -> None:
    """Wake those who wait for requests once this transaction is committed; SQLite wakes nobody."""
    if connection.dialect.name == "postgresql":
        connection.execute(_NOTIFY)


class NotifyListener:
    """Hears when something is asked of those who carry out requests.

    A worker that hears nothing has to look by itself: a message is lost if the connection was gone at that moment, and
    none comes through a pooler that gives a connection to somebody else after each transaction.

    Args:
        url: Address of the store; on SQLite it is never heard.
        heard: Called in a thread of its own.
    """

    def __init__(self, url: str, heard: Callable[[], None]) -> None:
        self._url, self._path = parse_address(url)
        self._heard = heard
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self.listens = False

    def start(self) -> None:
        """Listen from now on."""
        if self._path is None:
            self._thread = threading.Thread(target=self._listen, name="tradewind-bell", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Listen no more."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(2 * _POLL_SECONDS)

    def _listen(self) -> None:
        mine = connection_options(self._url)
        engine = sa.create_engine(self._url, connect_args=mine, poolclass=sa.NullPool, isolation_level="AUTOCOMMIT")
        wait = _FIRST_WAIT
        while not self._over.is_set():
            try:
                self._hear(engine)
            except (sa.exc.SQLAlchemyError, engine.dialect.loaded_dbapi.Error) as error:
                wait = _FIRST_WAIT if self.listens else min(2 * wait, _LONGEST_WAIT)
                _log.debug("nothing is heard of new requests: %s", error)
            self.listens = False
            self._over.wait(wait)

    def _hear(self, engine: Engine) -> None:
        with engine.connect() as connection:
            driver: Any = connection.connection.driver_connection
            driver.execute(f"LISTEN {_CHANNEL}")
            self.listens = True
            self._heard()  # what was asked before it could be heard
            while not self._over.is_set():
                for _ in driver.notifies(timeout=_POLL_SECONDS, stop_after=1):
                    self._heard()
