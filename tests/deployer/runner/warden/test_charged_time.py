"""What time a run of the process runner is charged for."""

from __future__ import annotations

import ctypes
import os
import resource
import time
from pathlib import Path

import pytest

from tradewind.deployer.runner.warden.launcher import Launcher
from tradewind.deployer.runner.warden.warden import Warden, result_of

_SLOW_SECONDS = 0.2


class _Idle(Warden):
    """A warden without a controller."""

    def __init__(self) -> None:
        self.jobs, self._mains, self._identity = {}, {}, {}
        self._look_seconds = 1.0
        self._launcher = Launcher(ctypes.CDLL(None), f"{os.getpid()}-test")
        self.asked = 0.0


@pytest.mark.parametrize("groups", [False, True])
def test_a_run_counts_from_before_it_was_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: bool) -> None:
    folder = tmp_path / "run-1"
    folder.mkdir()
    warden = _Idle()
    read = os.read

    def late(fd: int, size: int) -> bytes:
        """A loaded machine: the job has begun long before the warden gets to note so."""
        answer = read(fd, size)
        time.sleep(_SLOW_SECONDS)
        return answer

    order = {"run_id": "run-1", "owner": "me", "folder": str(folder), "argv": ["/bin/true"], "wall_seconds": 60.0}
    order |= {"env": {}, "cwd": str(tmp_path), "memory_bytes": 1 << 30, "groups": groups}
    monkeypatch.setattr(os, "read", late)
    warden.asked = time.monotonic()
    job = warden._launch(order)
    monkeypatch.undo()
    over = time.monotonic()
    # The limit is the job's: what the warden was late by is not taken from it.
    assert warden.asked <= job.begun <= job.deadline - 60 - _SLOW_SECONDS <= over - _SLOW_SECONDS
    os.waitpid(job.pid, 0)
    if job.group is not None:
        assert job.group.remove()
    job.exit = (0, resource.getrusage(resource.RUSAGE_CHILDREN), over)
    result = result_of(job)
    assert _SLOW_SECONDS <= result["runtime"] < 30
    assert result["ended"] - result["started"] - result["runtime"] < 1e-6
