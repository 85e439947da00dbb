"""Every example is searched for real, shortened."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def tune(name: str, *words: str) -> tuple[int, dict[str, object]]:
    command = [sys.executable, "-m", "tradewind", "tune", str(EXAMPLES / name / "job.yaml"), "--json", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert "Traceback" not in done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["compress", "train"])
def test_the_first_trial_of_an_example_ends_as_it_should(name: str) -> None:
    code, result = tune(name, "--trials", "1")
    assert code in (0, 6)  # one trial need not be feasible
    counts = result["trials"]
    assert isinstance(counts, dict)
    assert sum(counts.values()) == 1
    assert set(counts) <= {"succeeded", "aborted"}
    spent = result["spent"]
    assert isinstance(spent, float)
    assert 0 < spent <= 0.01


@pytest.mark.slow
def test_the_recorded_search_ends_in_seconds_with_the_best_recorded_run() -> None:
    code, result = tune("replay")
    assert code == 0
    best = result["best"]
    assert isinstance(best, dict)
    assert best["observation"]["feasible"] is True
    assert isinstance(result["spent"], float)
    assert result["spent"] <= 0.0006
