"""Who holds a study, and whether that process is still alive."""

from __future__ import annotations

import socket

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
