"""Hears from an engine when containers start and end, so that nobody has to ask all the time."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Any

from tradewind.deployer.runner.docker.engine import ContainerEngine
from tradewind.deployer.runner.docker.names import RUN
from tradewind.errors import TradewindError

_RECONNECT_SECONDS = 1.0


class EventListener:
    """Listens to one engine in a thread.

    Args:
        engine: The engine.
        heard: Is set when something happened to a container of a run, and when listening begins.
    """

    def __init__(self, engine: ContainerEngine, heard: threading.Event) -> None:
        self._engine = engine
        self._heard = heard
        self._closed = threading.Event()
        self._stream: Any = None
        self.listening = False
        self._thread = threading.Thread(target=self._listen, name="tradewind-docker-events", daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        while not self._closed.is_set():
            with suppress(Exception):  # whatever ends a stream: it is opened again
                self._hear()
            self.listening = False
            self._closed.wait(_RECONNECT_SECONDS)

    def _hear(self) -> None:
        try:
            client = self._engine.client(10.0)
        except TradewindError:
            return
        try:
            filters = {"label": [RUN], "type": ["container"], "event": ["start", "die"]}
            self._stream = client.events(filters=filters, since=int(time.time()) - 1)
            self.listening = True
            # What happened before is found by the next poll.
            self._heard.set()
            for _ in self._stream:
                if self._closed.is_set():
                    return
                self._heard.set()
        finally:
            client.close()

    def close(self) -> None:
        """Stop listening."""
        self._closed.set()
        stream = self._stream
        if stream is not None:
            with suppress(Exception):
                stream.close()
        self._thread.join(timeout=5)
