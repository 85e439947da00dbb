"""A thread that is restarted: whatever ends its work, the work is begun anew, and its last turn can be seen."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from tradewind.errors import StoreError

_AFTER_FAULT = 5.0
"""Seconds until work that has ended by a fault is begun anew."""

_log = logging.getLogger("tradewind.service.threads")


class RestartingThread:
    """A thread that works until an event is set.

    Args:
        name: Name in logs and metrics, such as ``email``.
        work: Works until the event is set, and calls its argument at each of its turns.
        stop: Event that ends it.
    """

    def __init__(self, name: str, work: Callable[[Callable[[], None]], None], stop: threading.Event) -> None:
        self.name = name
        self.restarts = 0
        self._work, self._stop = work, stop
        self._turned = time.monotonic()
        self._thread = threading.Thread(target=self._last, name=f"tradewind-{name}", daemon=True)

    @property
    def silent(self) -> float:
        """Seconds since its last turn: many where it hangs, or is gone."""
        return time.monotonic() - self._turned

    def start(self) -> None:
        """Start the thread."""
        self._turn()
        self._thread.start()

    def join(self, seconds: float) -> None:
        """Wait until it has ended, for so many seconds at most."""
        self._thread.join(seconds)

    def _turn(self) -> None:
        self._turned = time.monotonic()

    def _last(self) -> None:
        while not self._stop.is_set():
            try:
                self._work(self._turn)
            except BaseException as error:  # nobody else would do its work: not even what means to end a thread ends it
                self.restarts += 1
                facts = {"thread": self.name, "restarts": self.restarts}
                if isinstance(error, StoreError):  # a database that is away, full or read-only is no fault of ours
                    _log.warning("%s: %s; trying again", self.name, error, extra={"facts": facts})
                else:
                    _log.exception("%s has ended, and is begun anew", self.name, extra={"facts": facts})
                self._stop.wait(_AFTER_FAULT)


def thread_status(thread: RestartingThread) -> dict[str, Any]:
    """Describe a thread: ``name``, ``silent`` (seconds) and ``restarts``."""
    return {"name": thread.name, "silent": round(thread.silent, 1), "restarts": thread.restarts}
