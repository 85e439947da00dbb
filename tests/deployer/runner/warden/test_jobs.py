"""Whom a watched job's signals reach."""

from __future__ import annotations

import signal
import subprocess
import time

from tradewind.deployer.runner import procfs
from tradewind.deployer.runner.warden.jobs import WatchedJob
from tradewind.deployer.runner.warden.launcher import StartedProcess


def test_a_process_that_got_the_pid_of_one_that_ended_is_left_alone() -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        order = {"run_id": "run-1", "folder": "/nowhere"}
        job = WatchedJob(order, set(), StartedProcess(process.pid, None, (time.time(), time.monotonic())))
        [(pid, ticks)] = job.members.items()
        assert (pid, ticks) == (process.pid, getattr(procfs.stat(pid), "ticks", None))
        job.members = {pid: ticks - 1}
        job.signal(signal.SIGKILL)
        job.members = {pid: ticks}
        job.signal(signal.SIGTERM)
    assert process.returncode == -signal.SIGTERM
