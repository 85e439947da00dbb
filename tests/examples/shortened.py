"""The examples that need an engine, shortened for the tests: less work, few trials, and time for a busy machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

EXAMPLES = Path(__file__).parents[2] / "examples"


def shortened(
    name: str, folder: Path, change: Callable[[dict[str, Any]], object], *, trials: int, file: str = "job.yaml"
) -> Path:
    """A copy of an example in a folder, with few trials and long limits; ``change`` alters the rest of its document."""
    there = folder / name
    shutil.copytree(EXAMPLES / name, there)
    job = yaml.safe_load((there / file).read_text())
    job["budget"] = {"dollars": 100, "hours": "2h", "trials": trials}
    job["parallel"] = min(trials, job.get("parallel", 1))
    job["abort"] = False
    if "deadline" in job.get("constraints", {}):
        job["constraints"]["deadline"] = "10m"
    change(job)
    (there / file).write_text(yaml.safe_dump(job))
    return there / file


def assert_searched(
    job: Path, home: Path, *, trials: int, environment: Mapping[str, str] | None = None, seconds: float = 280.0
) -> Any:
    """Search, and make sure that each trial has succeeded.

    Returns:
        What ``tradewind tune --json`` prints.
    """
    done = subprocess.run(
        [sys.executable, "-m", "tradewind", "tune", str(job), "--json"],
        env={**(os.environ if environment is None else environment), "TRADEWIND_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert result["trials"] == {"succeeded": trials}, done.stdout + done.stderr
    assert result["spent"] > 0
    return result
