"""Who holds a study, and whether that process is still alive."""

from __future__ import annotations

import socket

_TOLERANCE = 2.0  # seconds: the clock that start times are computed from is set now and then


def is_dead(holder: str) -> bool:
    """True when the holder is known to have ended: a process of this host that is gone, or whose number is reused.

    A holder on another host, or one that is not written as ``host:pid:start time``, is never known to be dead; its
    hold has to run out.
    """
    import psutil

    host, pid, start = _parts(holder)
    if host != socket.gethostname() or pid is None:
        return False
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return True
        begun = process.create_time()
    except psutil.NoSuchProcess:
        return True
    except psutil.AccessDenied:
        return False
    return start is not None and abs(start - begun) > _TOLERANCE


def shown(holder: str) -> str:
    """The holder for people: host and pid."""
    host, pid, _ = _parts(holder)
    return f"{host}:{pid}" if pid is not None else holder


def _parts(holder: str) -> tuple[str, int | None, float | None]:
    pieces = holder.rsplit(":", 2)
    if len(pieces) != 3 or not pieces[1].isdigit():
        return holder, None, None
    try:
        return pieces[0], int(pieces[1]), float(pieces[2])
    except ValueError:
        return pieces[0], int(pieces[1]), None
