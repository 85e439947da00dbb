"""Registry of the servers and workers that are alive: each writes a heartbeat to the database every few seconds."""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tradewind import __version__
from tradewind.errors import ForbiddenError, StoreError
from tradewind.service.accounts.identity import Principal
from tradewind.store.service.shared_values import SharedValueStore
from tradewind.store.sql.database import Database

_PREFIX = "presence."
_EVERY = 15.0
_FORGOTTEN = 86_400.0

_log = logging.getLogger("tradewind.service.presence")


class ProcessRegistry:
    """The registry of the servers and workers of a database.

    Args:
        database: The open database.
    """

    def __init__(self, database: Database) -> None:
        self._values = SharedValueStore(database)

    def list(self, who: Principal) -> list[dict[str, Any]]:
        """List all that were alive within a day, those that still are first.

        Returns:
            For each ``kind`` (``server`` or ``worker``), ``host``, ``pid``, ``version``, ``about`` (where it listens,
            or how much it carries out), ``since`` and ``seen`` (seconds since the epoch), and ``alive``.

        Raises:
            ForbiddenError: The user is no administrator.
        """
        if not who.is_admin:
            raise ForbiddenError("only an administrator may see the servers")
        now = time.time()
        found = []
        for name, value in self._values.named(_PREFIX).items():
            row = json.loads(value)
            if now - row["seen"] > _FORGOTTEN:
                self._values.delete(name)
                continue
            found.append({**row, "alive": not row["ended"] and now - row["seen"] < 3 * _EVERY})
        return sorted(found, key=lambda row: (not row["alive"], row["kind"], row["host"], row["pid"]))

    def of(self, kind: str, pid: int) -> dict[str, Any]:
        """Return the last report of a process of this machine; empty before it has made one.

        Args:
            kind: ``server`` or ``worker``.
            pid: Process id.

        Raises:
            StoreError: The database does not answer.
        """
        value = self._values.get(_name(kind, pid))
        return {} if value is None else dict(json.loads(value))

    @contextmanager
    def here(self, kind: str, about: str = "", more: Callable[[], Mapping[str, Any]] = dict) -> Iterator[None]:
        """Register this process and keep up its heartbeat, until the block ends.

        Args:
            kind: ``server`` or ``worker``.
            about: Address that it listens at, or how much it carries out.
            more: Returns further facts to report, called each time.
        """
        facts = {
            "kind": kind,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "version": __version__,
            "about": about,
            "since": time.time(),
        }
        name, over = _name(kind, os.getpid()), threading.Event()

        def said() -> dict[str, Any]:
            return {**facts, **more()}

        teller = threading.Thread(target=self._tell, args=(name, said, over), name="tradewind-presence", daemon=True)
        teller.start()
        try:
            yield
        finally:
            over.set()
            teller.join(2.0)

    def _tell(self, name: str, said: Callable[[], dict[str, Any]], over: threading.Event) -> None:
        while True:
            ended = over.is_set()
            try:
                self._values.set(name, json.dumps({**said(), "seen": time.time(), "ended": ended}))
            except StoreError as error:
                # The registry is for people: work does not wait for it.
                _log.debug("cannot say that this process is there: %s", error)
            if ended:
                return
            over.wait(_EVERY)


def _name(kind: str, pid: int) -> str:
    return f"{_PREFIX}{kind}.{socket.gethostname()}.{pid}"
