"""Holds back Ctrl-C, and Python's search for garbage, for the moments in which a program must not be held up."""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def delayed_interrupt() -> Generator[None]:
    """Context in which SIGINT waits; it is handled on leaving, as it would have been without.

    Only the main thread is ever interrupted: in others this does nothing. Whoever has set SIGINT aside (asyncio, or a
    program that ignores it) keeps its own handler.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is not signal.default_int_handler:
        yield
        return
    came: list[FrameType | None] = []
    signal.signal(signal.SIGINT, lambda number, frame: came.append(frame))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            signal.default_int_handler(signal.SIGINT, came[0])


@contextmanager
def without_collection() -> Generator[None]:
    """Context in which nobody looks for circles of garbage.

    That takes as long as making many objects, and finds none while they are made.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
