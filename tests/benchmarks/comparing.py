"""The scripts of benchmarks/compare, for tests."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks/compare"


@contextmanager
def loaded(*names: str) -> Iterator[Any]:
    """Modules of the folder, which are scripts and not part of the package."""
    sys.path.insert(0, str(FOLDER))
    try:
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in names})
    finally:
        sys.path.remove(str(FOLDER))
        for name in names:
            sys.modules.pop(name, None)


def start(script: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a script, whatever comes of it."""
    return subprocess.run(
        [sys.executable, FOLDER / script, *words], capture_output=True, text=True, timeout=110, check=False
    )


def call(script: str, *words: str) -> str:
    """Run a script that ends well, and return its output."""
    done = start(script, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
