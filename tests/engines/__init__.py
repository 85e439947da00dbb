"""Real engines for the tests: each module starts one, and stops all that it started.

An engine is a session fixture. Tests that use it carry ``pytest.mark.xdist_group("NAME")``, so that one worker runs all
of them and the engine starts once. What is missing is said loudly and skips those tests.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest


def program(name: str) -> str | None:
    """The path of a program, also where only root looks for it."""
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin:/usr/local/sbin")


def require(*programs: str, package: str, root: bool = True) -> None:
    """Skip the test, loudly, unless some programs are there (and we are root, where the engine needs it)."""
    missing = [name for name in programs if program(name) is None]
    why = f"there is no {', '.join(missing)}: apt-get install {package}" if missing else ""
    if not why and root and os.geteuid() != 0:
        why = f"{package} can be started by root only"
    if why:
        pytest.skip(f"!!! ENGINE MISSING: {why}")  # said again at the end, by -ra


def until(ready: Callable[[], object], seconds: float, what: str, log: Path | None = None) -> None:
    """Wait until something is so.

    Raises:
        RuntimeError: It is not, in time; with the end of the engine's log.
    """
    end = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > end:
            tail = log.read_text(errors="replace")[-2000:] if log and log.is_file() else ""
            raise RuntimeError(f"{what} is not there after {seconds:g} s\n{tail}")
        time.sleep(0.05)
