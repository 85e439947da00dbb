"""Durations that are remembered, and the tests that are left out because of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.durations import extended, shortest

ROOT = Path(__file__).parents[1]

_TESTS = """
import time
import pytest

def test_long():
    time.sleep(0.6)

def test_short():
    pass

@pytest.fixture
def quick():
    return None

def test_with_a_program(quick):
    pass
"""

_CONFTEST = """
from tests.durations import Durations
import tests.durations, pytest

tests.durations.busy = lambda: False

def pytest_configure(config):
    config.pluginmanager.register(Durations(config), "durations")

@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    for item in items:
        if config.pluginmanager.get_plugin("durations").is_long(item):
            item.add_marker(pytest.mark.slow)
"""


def test_the_shortest_of_the_last_three_counts() -> None:
    known: dict[str, list[float]] = {"other": [9.0]}
    for took in (0.1, 1.0, 2.0, 3.0):
        known = extended(known, {"a": took})
    assert known == {"other": [9.0], "a": [1.0, 2.0, 3.0]}
    assert shortest(known) == {"other": 9.0, "a": 1.0}


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["0", pytest.param("2", marks=pytest.mark.thorough)])
def test_a_long_test_is_left_out_as_soon_as_it_was_measured(workers: str, tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text(f"[pytest]\nmarkers =\n    slow: long\npythonpath = {ROOT}\n")
    (tmp_path / "conftest.py").write_text(_CONFTEST)
    (tmp_path / "test_some.py").write_text(_TESTS)

    def ran(*words: str) -> set[str]:
        command = [sys.executable, "-m", "pytest", "-p", "xdist", "-n", workers, "-v", *words]
        alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # other plugins take longer than all of this
        done = subprocess.run(command, cwd=tmp_path, env=alone, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        return {name for name in ("long", "short", "with_a_program") if f"::test_{name}" in done.stdout}

    assert ran("-m", "not slow") == {"long", "short"}  # a machine that never saw them goes by the fixture
    assert ran("-m", "not slow") == {"short"}
    assert ran() == {"long", "short", "with_a_program"}
    assert ran("-m", "not slow") == {"short", "with_a_program"}  # as it was measured, whatever its fixture is
    stored = json.loads(next(tmp_path.rglob("durations")).read_text())
    assert len(stored["test_some.py::test_long"]) == 2
