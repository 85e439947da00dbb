"""What time a run of the process runner is charged for."""

from __future__ import annotations

import resource
import subprocess
import time
from pathlib import Path
from typing import Any

from tradewind.deployer.runner.warden.warden import Warden, result_of

_SLOW_SECONDS = 0.2


class _Slow(Warden):
    """A warden on a loaded machine: its job has begun long before it gets to note so."""

    def __init__(self) -> None:
        self.jobs = {}
        self._identity = {}
        self.asked = 0.0

    def _fork(self, order: dict[str, Any], cpus: set[int]) -> int:
        self.asked = time.monotonic()
        with subprocess.Popen(order["argv"]) as child:
            time.sleep(_SLOW_SECONDS)
        return child.pid


def test_a_run_counts_from_before_it_was_started(tmp_path: Path) -> None:
    folder = tmp_path / "run-1"
    folder.mkdir()
    warden = _Slow()
    order = {"run_id": "run-1", "owner": "me", "folder": str(folder), "argv": ["true"], "wall_seconds": 60.0}
    job = warden._launch(order)
    over = time.monotonic()
    # The limit is the job's: what the warden was late by is not taken from it.
    assert job.begun <= warden.asked < warden.asked + 60 + _SLOW_SECONDS <= job.deadline <= over + 60
    job.exit = (0, resource.getrusage(resource.RUSAGE_CHILDREN), over)
    result = result_of(job)
    assert _SLOW_SECONDS <= result["runtime"] < 30
    assert result["ended"] - result["started"] - result["runtime"] < 1e-6
