"""Real engines for the tests: each module starts one, and stops all that it started.

An engine is a session fixture. Tests that use it carry ``pytest.mark.xdist_group("NAME")``, so that one worker runs all
of them and the engine starts once. What is missing is said loudly and skips those tests.
"""

from __future__ import annotations

import os
import shutil

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
