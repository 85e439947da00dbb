"""Clocks: real time, and a simulated time that only moves when it is advanced."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

_SAME = 1.0
"""Seconds by which two looks at the clock may differ for reasons of their own."""

_MOMENT = 600.0
"""Seconds for which a clock may have been set wrong until what it says is taken for the time."""


class Clock(Protocol):
    """A clock, as the engine uses it."""

    def now(self) -> float:
        """The time, in seconds since the epoch."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let ``seconds`` pass."""
        ...


class SteadyClock:
    """The time of day, which a clock that is set wrong for a moment does not change.

    Money is paid for intervals: a day by which the clock was ahead at one look, and not at the next, would be a day of
    machines. So the time goes on with a clock that nobody sets; what the clock on the wall says is taken over when it
    has said so for ten minutes. Time in which the machine was suspended counts.

    Args:
        wall: The clock that is set, in seconds since the epoch.
        awake: The one that is not.
    """

    def __init__(self, wall: Callable[[], float], awake: Callable[[], float]) -> None:
        self._wall, self._awake = wall, awake
        self._offset = wall() - awake()
        self._other: tuple[float, float] | None = None  # another offset, and since when

    def now(self) -> float:
        """The time, in seconds since the epoch."""
        awake, other = self._awake(), self._other  # threads may look at the same time: each with what it has seen
        offset = self._wall() - awake
        if abs(offset - self._offset) <= _SAME:
            self._other = None
        elif other is None or abs(offset - other[0]) > _SAME:
            self._other = (offset, awake)
        elif awake - other[1] >= _MOMENT:
            self._offset, self._other = offset, None
        return awake + self._offset


def _awake() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


_STEADY_CLOCK = SteadyClock(time.time, _awake)


class SystemClock:
    """Real time; see `SteadyClock`."""

    def now(self) -> float:
        """The time, in seconds since the epoch."""
        return _STEADY_CLOCK.now()

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
