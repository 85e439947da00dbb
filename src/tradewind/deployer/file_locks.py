"""Locks on files that a program which is started may inherit and hold on to."""

from __future__ import annotations

import fcntl
import time
from typing import IO

_TURN_SECONDS = 0.02


def wait_for_lock(file: int | IO[str], seconds: float) -> bool:
    """Lock an open file, and wait for whoever has it.

    Args:
        file: The file or its descriptor; the lock is held until the last process that has the descriptor has closed it.
        seconds: How long to wait.

    Returns:
        True when it is locked, False where somebody else kept it for too long.
    """
    until = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > until:
                return False
            time.sleep(_TURN_SECONDS)
