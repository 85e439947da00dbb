from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "python_api" / "tune_function.py"


@pytest.mark.slow
def test_the_function_is_tuned_and_the_second_run_goes_on_from_the_first() -> None:
    first = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, timeout=100, check=True)
    second = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, timeout=100, check=True)
    assert first.stdout.startswith("use block_kib=")
    assert float(first.stdout.rsplit(" ", 1)[1]) >= 8
    assert first.stdout == second.stdout
