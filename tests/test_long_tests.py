"""The list of tests that take long."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
NAMES = (ROOT / "tests" / "long_tests.txt").read_text().splitlines()


@pytest.fixture
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("long_tests", ROOT / "tools" / "long_tests.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_all_phases_of_a_test_count(tool: ModuleType) -> None:
    lines = ["== slowest durations ==", "0.50s call     tests/a.py::b[c d]", "0.25s setup    tests/a.py::b[c d]"]
    text = "\n".join([*lines, "1 passed"])
    assert tool.read(text) == {"tests/a.py::b[c d]": 0.75}


def test_what_it_names_is_there() -> None:
    files: dict[str, str] = {}
    for name in NAMES:
        file, _, rest = name.partition("::")
        text = files.setdefault(file, (ROOT / file).read_text())
        function = rest.partition("[")[0].rpartition("::")[2]
        # Tests of the shipped suite are inherited.
        assert f"def {function}(" in text or "::Test" in name, name
    assert sorted(set(NAMES)) == NAMES


def test_what_it_names_is_left_out() -> None:
    words = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", "-m", "not slow", NAMES[0]]
    found = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=False)
    assert "1 deselected" in found.stdout, found.stdout + found.stderr
