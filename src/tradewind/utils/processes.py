"""Tells one process from another, even when its number is used again or the clock is set."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple


class NoSuchProcess(Exception):  # noqa: N818  (it is an answer)
    """There is no such process, or only its entry that nobody has collected yet."""


class Moment(NamedTuple):
    """A moment by two clocks that go on while the machine is suspended.

    Attributes:
        awake: Seconds since the machine was started, those in which it was suspended included.
        day: Seconds since the epoch: it jumps where the clock is set, as after a virtual machine was paused.
    """

    awake: float
    day: float

    @classmethod
    def now(cls) -> Moment:
        """The present."""
        return cls(time.clock_gettime(time.CLOCK_BOOTTIME), time.time())

    def ago(self) -> float:
        """Seconds that have passed since, at most: who relies on a lease asks whether it may be over."""
        now = Moment.now()
        return max(now.awake - self.awake, now.day - self.day)


def process_namespace() -> str:
    """In which world of processes this one lives: only within it does the number of a process mean the same one.

    It is made of the machine's present boot and of the namespace of processes. Machines that were copied from one
    image, and containers that use their machine's name, have a name in common, but not this.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}.{os.stat('/proc/self/ns/pid').st_ino:x}"  # noqa: PTH116
    except OSError:
        return ""


def process_start_time(pid: int) -> float | None:
    """Start time of a process of this host, in seconds after the host did.

    Unlike a time of the day this does not change when the clock is set.

    Args:
        pid: The process id.

    Returns:
        The time; None where the process lives but may not be looked at.

    Raises:
        Gone: There is no such process.
    """
    try:
        # The name of the program stands in parentheses and may contain anything, parentheses too.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except (OSError, ProcessLookupError):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            raise NoSuchProcess(str(pid)) from None
        except (PermissionError, OverflowError):
            pass
        return None
    if fields[0] in ("Z", "X"):
        raise NoSuchProcess(str(pid))
    return int(fields[19]) / os.sysconf("SC_CLK_TCK")
