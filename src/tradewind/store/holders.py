"""Processes that hold leases: whether one is still alive, and how it is shown."""

from __future__ import annotations

import socket
import time

from tradewind.utils.processes import NoSuchProcess, process_namespace, process_start_time

_TOLERANCE = 0.02  # seconds: two ticks of the clock that start times are counted in, and rounding


def is_dead(holder: str) -> bool:
    """True when the holder is known to have ended: a process of this host that is gone, or whose number is reused.

    A holder on another host, in another container, from before the host was started anew, or one that is not written
    as ``host:pid:start@where``, is never known to be dead; its hold has to run out.
    """
    host, pid, start, there = _parts(holder)
    if host != socket.gethostname() or pid is None or there != process_namespace():
        return False
    try:
        begun = process_start_time(pid)
    except NoSuchProcess:
        return True
    return start is not None and begun is not None and abs(start - begun) > _TOLERANCE


def live_holder(holder: str | None, expires: float | None) -> str | None:
    """The process that holds a lease; None where nobody does, where it has run out, or where the process is dead.

    Args:
        holder: The process that took it last; None where it was let go of.
        expires: The lease's end, in seconds since the epoch.
    """
    if holder is None or expires is None or expires <= time.time() or is_dead(holder):
        return None
    return holder


class LivingHolders:
    """The holders of many leases, of which each is looked for once: threads of a process have one for all of them."""

    def __init__(self) -> None:
        self._dead: dict[str, bool] = {}

    def has(self, holder: str | None, expires: float | None) -> bool:
        """As `live_holder`; True where there is one."""
        if holder is None or expires is None or expires <= time.time():
            return False
        if holder not in self._dead:
            self._dead[holder] = is_dead(holder)
        return not self._dead[holder]


def live_holder_name(holder: str | None, expires: float | None) -> str:
    """The `live_holder` for people; empty where there is none."""
    return display_name(live_holder(holder, expires) or "")


def display_name(holder: str) -> str:
    """The holder for people: host and pid."""
    host, pid, _, _ = _parts(holder)
    return f"{host}:{pid}" if pid is not None else holder


def _parts(holder: str) -> tuple[str, int | None, float | None, str]:
    name, _, there = holder.partition("@")
    pieces = name.rsplit(":", 2)
    if len(pieces) != 3 or not pieces[1].isdigit():
        return holder, None, None, there
    try:
        return pieces[0], int(pieces[1]), float(pieces[2]), there
    except ValueError:
        return pieces[0], int(pieces[1]), None, there
