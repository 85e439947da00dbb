"""Clocks: real time, and a simulated time that only moves when it is told to."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What the engine needs of a clock."""

    def now(self) -> float:
        """The time, in seconds since the epoch."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let ``seconds`` pass."""
        ...


class SystemClock:
    """Real time."""

    def now(self) -> float:
        """The time, in seconds since the epoch."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait for real."""
        if seconds > 0:
            time.sleep(seconds)


class SimulatedClock:
    """A clock that jumps: ``sleep`` returns at once and moves it forward.

    Args:
        start: The first time, in seconds since the epoch.
    """

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        """The simulated time, in seconds."""
        return self._now

    def sleep(self, seconds: float) -> None:
        """Move the clock forward by ``seconds``."""
        self._now += max(0.0, seconds)

    def advance_to(self, moment: float) -> None:
        """Move the clock forward to ``moment``; an earlier moment leaves it where it is."""
        self._now = max(self._now, moment)
