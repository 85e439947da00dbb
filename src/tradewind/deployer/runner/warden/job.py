"""A run that a warden has started (see `tradewind.deployer.runner.warden.warden`)."""

from __future__ import annotations

import os
import resource
import signal
import time

from tradewind.deployer.runner import procfs
from tradewind.deployer.runner.warden.files import PID, Document, quietly, write_document


class WardenJob:
    """A run that the warden has started.

    Args:
        order: The controller's request.
        pid: Its first process.
        cpus: The CPUs that it is held to.
        asked: Right before it was started, by ``time.time`` and by ``time.monotonic``: on a loaded machine the warden
            may get to note anything long after the job has begun.
    """

    def __init__(self, order: Document, pid: int, cpus: set[int], asked: tuple[float, float]) -> None:
        self.order = order
        self.run_id: str = order["run_id"]
        self.folder: str = order["folder"]
        self.pid = pid
        self.cpus = cpus
        self.traffic = (0, 0)
        self.started, self.begun = asked
        wall = order.get("wall_seconds")
        self.deadline: float = time.monotonic() + wall if wall is not None else float("inf")
        self.ending: tuple[str, str] | None = None
        self.kill_at = float("inf")
        self.members: set[int] = {pid}
        self.peak = 0
        self.cpu_seconds = 0.0
        self.truncated = False
        self.exit: tuple[int, resource.struct_rusage, float] | None = None

    def note_start(self) -> None:
        """Note its first process, and what the network has done by now."""
        self.traffic = procfs.traffic()
        seen = procfs.stat(self.pid)
        if seen is not None:
            quietly(write_document, f"{self.folder}/{PID}", {"pid": self.pid, "ticks": seen.ticks})

    def signal(self, number: int) -> None:
        """Send a signal to everything that belongs to the job."""
        groups = set()
        for pid in self.members:
            seen = procfs.stat(pid)
            if seen is None or seen.state in "ZX":
                continue
            if seen.group not in groups and seen.group != os.getpgrp():
                # The kernel signals a whole group at once: no fork can slip through.
                groups.add(seen.group)
                quietly(os.killpg, seen.group, number)
            quietly(os.kill, pid, number)

    def end(self, state: str, reason: str, grace: float) -> None:
        """Ask the job to end, and set the moment at which it is killed."""
        if self.ending is None:
            self.ending = (state, reason)
            self.kill_at = time.monotonic() + grace
            self.signal(signal.SIGTERM if grace > 0 else signal.SIGKILL)

    def cut_logs(self) -> None:
        """Cut stdout and stderr at the limit; the job appends, so it may go on writing."""
        limit = self.order.get("log_bytes")
        if limit is None:
            return
        for name in ("stdout", "stderr"):
            path = f"{self.folder}/{name}"
            try:
                if os.stat(path).st_size > limit:  # noqa: PTH116
                    os.truncate(path, limit)
                    self.truncated = True
            except OSError:  # the job removed its own log
                continue


def profile_of(used: resource.struct_rusage, before: tuple[int, int]) -> dict[str, float]:
    """What the kernel counted for the first process and all that it waited for, as low-level metrics.

    Disk traffic is what reached the disks: files that were cached already are not read again. The network's is that of
    the whole machine while the run took place, because the kernel does not count it for a process.

    Args:
        used: What the kernel says of the processes.
        before: `procfs.traffic` when the run began.
    """
    cables, within = procfs.traffic()
    return {
        "network_bytes": float(max(0, cables - before[0])),
        "loopback_bytes": float(max(0, within - before[1])),
        "user_seconds": used.ru_utime,
        "system_seconds": used.ru_stime,
        "read_bytes": 512.0 * used.ru_inblock,
        "written_bytes": 512.0 * used.ru_oublock,
        "major_faults": float(used.ru_majflt),
        "minor_faults": float(used.ru_minflt),
        "waits": float(used.ru_nvcsw),
        "preemptions": float(used.ru_nivcsw),
    }


def result_of(job: WardenJob) -> Document:
    """The content of ``result.json`` of a job that has ended."""
    assert job.exit is not None
    status, used, ended = job.exit
    runtime = ended - job.begun
    code = os.waitstatus_to_exitcode(status)
    state, reason = job.ending or ("done" if code == 0 else "failed", "")
    return {
        "run_id": job.run_id,
        "state": state,
        "reason": reason,
        "exit_code": code,
        "started": job.started,
        "ended": job.started + runtime,
        "runtime": runtime,
        "peak_memory_bytes": max(job.peak, used.ru_maxrss * 1024),
        "cpu_seconds": job.cpu_seconds,
        "profile": profile_of(used, job.traffic),
        "truncated": job.truncated,
        "memory_bytes": job.order.get("memory_bytes"),
        "wall_seconds": job.order.get("wall_seconds"),
    }
