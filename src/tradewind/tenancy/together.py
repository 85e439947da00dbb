"""What a Core says in one go, as one message."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from tradewind.tenancy.messages import CoreMessage, CoreOutbox, MessageBatch

_LONGEST_DELAY = 1.0
"""Seconds that a message is kept back at most: who computes for longer keeps no place empty for itself."""


class MessageBatcher:
    """Keeps messages back until they are flushed, so that the cluster decides on all of them at once.

    That a run is gone and what its search wants next belong together: between the two, its place would go to whoever
    waits, whatever is due to whom.

    Args:
        outbox: Where they go.
        longest: Seconds after which they go by themselves.
    """

    def __init__(self, outbox: CoreOutbox, longest: float = _LONGEST_DELAY) -> None:
        self._outbox, self._longest = outbox, longest
        self._kept: list[CoreMessage] = []
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.flush()

    def put(self, item: CoreMessage) -> None:
        """See `CoreOutbox.put`."""
        with self._lock:
            self._kept.append(item)
            if self._timer is None:
                self._timer = threading.Timer(self._longest, self.flush)
                self._timer.daemon = True
                self._timer.start()

    def flush(self) -> None:
        """Send what was kept back."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            kept, self._kept = tuple(self._kept), []
            if len(kept) == 1:
                self._outbox.put(kept[0])
            elif kept:
                self._outbox.put(MessageBatch(kept[0].job, kept))
