"""Ends a `select.select` of another thread."""

from __future__ import annotations

import contextlib
import os
import weakref

_DRAIN_BYTES = 4096


class WakeupPipe:
    """Something to select on, which can be read from when another thread has rung it."""

    def __init__(self) -> None:
        self._read, self._write = pipe = os.pipe()
        for end in pipe:
            os.set_blocking(end, False)
        weakref.finalize(self, _close_pipe, *pipe)

    def fileno(self) -> int:
        """For `select.select`."""
        return self._read

    def ring(self) -> None:
        """Let it be ready to be read from."""
        with contextlib.suppress(BlockingIOError):  # it is full, and so it is
            os.write(self._write, b"!")

    def clear(self) -> None:
        """Let it be ready no more."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._read, _DRAIN_BYTES)


def _close_pipe(*ends: int) -> None:
    for end in ends:
        os.close(end)
