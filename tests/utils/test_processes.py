from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from tradewind.utils.processes import NoSuchProcess, process_start_time


def test_a_process_started_before_now_and_after_the_host_did() -> None:
    start = process_start_time(os.getpid())
    assert start is not None
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    assert 0 < start <= uptime + 0.02


def test_two_processes_with_a_pause_between_them_have_different_starts() -> None:
    first = subprocess.Popen(["sleep", "30"])
    time.sleep(0.05)
    second = subprocess.Popen(["sleep", "30"])
    try:
        a, b = process_start_time(first.pid), process_start_time(second.pid)
        assert a is not None
        assert b is not None
        assert a < b
    finally:
        for process in (first, second):
            process.kill()
    os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(NoSuchProcess):  # dead, though nobody has collected it
        process_start_time(first.pid)
    for process in (first, second):
        process.wait()
        with pytest.raises(NoSuchProcess):
            process_start_time(process.pid)


def test_a_process_that_may_not_be_looked_at_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    def hidden(*_: object, **__: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", hidden)
    assert process_start_time(os.getpid()) is None
