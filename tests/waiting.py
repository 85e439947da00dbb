"""Waiting for what happens in another thread, another process or an engine."""

from __future__ import annotations

import inspect
import linecache
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Found = TypeVar("Found")

SECONDS = 60.0
"""How long a test waits unless it says so: on a loaded machine much is slow, and only what fails takes that long."""


def eventually(
    look: Callable[[], Found], seconds: float = SECONDS, what: str = "", log: Path | None = None, *, pause: float = 0.01
) -> Found:
    """Wait until something is so, and return what was found.

    Args:
        look: Gives something true once it is so.
        seconds: How long to wait at most.
        what: What is waited for; the line that called, if it is not said.
        log: A file whose end says what may have gone wrong.
        pause: Seconds between two looks.

    Raises:
        AssertionError: It was not so in time; with where it was waited, what the last look found, and the log's end.
    """
    end = time.monotonic() + seconds
    while not (found := look()):
        if time.monotonic() > end:
            tail = log.read_text(errors="replace")[-2000:] if log and log.is_file() else ""
            raise AssertionError(
                f"waited {seconds:g} s in vain for {what or _caller()}; found {found!r}\n{tail}".rstrip()
            )
        time.sleep(pause)
    return found


def _caller() -> str:
    """The line that waits, with its place."""
    frame = inspect.stack()[2]
    return f"{linecache.getline(frame.filename, frame.lineno).strip()} ({Path(frame.filename).name}:{frame.lineno})"
