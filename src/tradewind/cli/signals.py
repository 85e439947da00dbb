"""Ctrl-C and its relatives, turned into a wish that the search can grant cleanly."""

from __future__ import annotations

import contextlib
import os
import signal
from types import FrameType, TracebackType
from typing import Any, Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class GracefulInterrupt:
    """Context in which the first SIGINT, SIGTERM or SIGHUP only sets `wanted`; the second raises.

    Args:
        saying: What the first one prints.

    Attributes:
        wanted: True once the user wants to stop.
    """

    def __init__(self, saying: str = "stopping: running trials are cancelled and paid") -> None:
        self.wanted = False
        self._saying = saying
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _take(self, number: int, frame: FrameType | None) -> None:
        if self.wanted:
            raise KeyboardInterrupt
        self.wanted = True
        # Not print: the signal may come while something is printed, and the terminal may be gone.
        with contextlib.suppress(OSError):
            os.write(2, f"\n{self._saying} (once more to stop at once)\n".encode())
