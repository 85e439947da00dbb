"""Starts jobs on this machine and watches them: what every program shares that does so, wherever it was sent.

It imports little, because it is waited for at its start, and nothing but the standard library and its neighbours,
because it is copied to machines that need not have Tradewind (see `FAR_SOURCES`).
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import time
from abc import ABC, abstractmethod

from tradewind.deployer.runner import procfs
from tradewind.deployer.runner.log_limit import GrowingLog
from tradewind.deployer.runner.warden.control_group import group_pids
from tradewind.deployer.runner.warden.files import PID, Document, quietly, write_document
from tradewind.deployer.runner.warden.launcher import Launcher, StartedProcess

FAR_SOURCES = (
    "log_limit.py",
    "procfs.py",
    "warden/control_group.py",
    "warden/files.py",
    "warden/jobs.py",
    "warden/launcher.py",
)
"""The files below ``deployer/runner`` that a program which watches jobs needs on another machine."""

_CLEANUP_SECONDS = 5.0
_HANDLED_SIGNALS = (signal.SIGCHLD, signal.SIGUSR1, signal.SIGTERM)
_IGNORED_SIGNALS = (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ)
_PR_SET_CHILD_SUBREAPER = 36


class WatchedJob:
    """A job that has been started, and is watched.

    Args:
        order: The controller's order.
        cpus: The numbers of the CPUs that it is held to.
        process: The first process of the job.
    """

    def __init__(self, order: Document, cpus: set[int], process: StartedProcess) -> None:
        self.order = order
        self.run_id: str = order["run_id"]
        self.folder: str = order["folder"]
        self.pid = process.pid
        self.cpus = cpus
        self.group = process.group
        self.traffic = (0, 0)
        self.started, self.begun = process.asked
        wall = order.get("wall_seconds")
        self.deadline: float = time.monotonic() + wall if wall is not None else float("inf")
        self.ending: tuple[str, str] | None = None
        self.kill_at = float("inf")
        self.members: dict[int, int] = procfs.start_times([self.pid])
        self.peak = 0
        self.cpu_seconds = 0.0
        self.truncated = False
        limit = order.get("log_bytes")
        paths = [f"{self.folder}/{name}" for name in ("stdout", "stderr")]
        self._logs = [GrowingLog(path, limit) for path in paths] if limit is not None else []
        self.exit: tuple[int, resource.struct_rusage, float] | None = None

    def note_start(self) -> None:
        """Write ``pid.json``, and remember the counters of the network."""
        self.traffic = procfs.traffic()
        seen = procfs.stat(self.pid)
        if seen is not None:
            group = self.group.folder if self.group is not None else ""
            document = {"pid": self.pid, "ticks": seen.ticks, "group": group}
            quietly(write_document, f"{self.folder}/{PID}", document)

    def signal(self, number: int) -> None:
        """Send a signal to everything that belongs to the job."""
        groups = set()
        for pid, ticks in self.members.items():
            seen = procfs.stat(pid)
            # Since they were looked at, the kernel may have given the pid of one that ended to somebody else.
            if seen is None or seen.ticks != ticks or seen.state in "ZX":
                continue
            if seen.group not in groups and seen.group != os.getpgrp():
                # The kernel signals a whole group at once: no fork can slip through.
                groups.add(seen.group)
                quietly(os.killpg, seen.group, number)
            quietly(os.kill, pid, number)

    def end(self, state: str, reason: str, grace: float) -> None:
        """Ask the job to end, and set the moment at which it is killed.

        Args:
            state: The state that its result gets.
            reason: The reason that its result gets.
            grace: Seconds between SIGTERM and SIGKILL; with 0 it is killed at once.
        """
        if self.ending is None:
            self.ending = (state, reason)
            self.kill_at = time.monotonic() + grace
            self.signal(signal.SIGTERM if grace > 0 else signal.SIGKILL)

    def left(self) -> list[int]:
        """The living processes in the job's control group, whosever children they are."""
        if self.group is None:
            return []
        seen = [(pid, procfs.stat(pid)) for pid in group_pids(self.group.folder)]
        return [pid for pid, state in seen if state is not None and state.state not in "ZX"]

    def look_for_overrun(self) -> None:
        """Note that the kernel has killed something of the job for its memory."""
        if self.group is not None and self.ending is None and self.group.overran():
            self.peak = max(self.peak, self.order.get("memory_bytes") or 0)
            self.end("out_of_memory", "", 0.0)

    def trim_logs(self) -> None:
        """Hold stdout and stderr near their limit on the disk; the job appends, so it may go on writing."""
        for log in self._logs:
            log.trim()

    def finish_logs(self) -> None:
        """Leave the beginnings and the ends of stdout and stderr, once the job has ended."""
        for log in self._logs:
            try:
                self.truncated |= log.finish()
            except OSError:  # the job removed its own log
                continue


class JobWatcher(ABC):
    """Starts jobs on this machine, watches them and ends them at their limits.

    Its own process becomes the one that orphans of its jobs belong to, and takes no signal as its end.

    Args:
        tag: The variable of a job's environment that has its name.
        look_seconds: Seconds between two looks at the memory and the logs of what runs.

    Attributes:
        jobs: The jobs that run, by their names.
        wake: The descriptor that can be read when `take_signals` has something to do.
    """

    def __init__(self, tag: str, look_seconds: float) -> None:
        self.jobs: dict[str, WatchedJob] = {}
        self._tag = tag
        self._look_seconds = look_seconds
        self._next_look = 0.0
        self._pid = os.getpid()
        self._mains: dict[int, WatchedJob] = {}
        self._orphans: dict[int, str] = {}
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        me = procfs.stat(self._pid)
        assert me is not None
        self.born = (self._pid, me.ticks)
        self._launcher = Launcher(libc, f"{self._pid}-{me.ticks}")
        self.wake, wake = os.pipe()
        for fd in (self.wake, wake):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        # What is handled, unlike what is ignored, is as it was again for a program that is executed: a job need not see
        # to it, in a copy of this process where each step costs.
        for number in (*_HANDLED_SIGNALS, *_IGNORED_SIGNALS):
            signal.signal(number, lambda *_: None)

    @abstractmethod
    def _settle(self, job: WatchedJob) -> None:
        """Take the end of a job: nothing of it is left, and its logs are complete."""

    def _start_job(self, order: Document, cpus: set[int]) -> WatchedJob:
        """Start the job of an order.

        Raises:
            StartRefused: It cannot be started.
            OSError: Its files cannot be opened, or no process can be made.
        """
        if not self.jobs:  # a job that has just begun has nothing to be looked at, and may be over at once
            self._next_look = time.monotonic() + self._look_seconds
        job = WatchedJob(order, cpus, self._launcher.start(order, cpus))
        self.jobs[job.run_id] = self._mains[job.pid] = job
        return job

    def _take_signals(self) -> set[int]:
        """The signals that have come; jobs that have ended are taken care of first."""
        try:
            numbers = set(os.read(self.wake, 4096))
        except BlockingIOError:
            return set()
        self._reap()
        return numbers

    def _next_moment(self) -> float:
        """The moment at which `_look_after` has something to do, by ``time.monotonic``."""
        moments = [min(job.deadline, job.kill_at) for job in self.jobs.values()]
        return min([self._next_look, *moments]) if moments else float("inf")

    def _look_after(self) -> None:
        """Look at what runs, and end what is over its limits."""
        now = time.monotonic()
        if self.jobs and now >= self._next_look:
            self._sample()
            self._next_look = now + self._look_seconds
        self._deadlines()

    def _end_job(self, job: WatchedJob, state: str, reason: str, grace: float) -> None:
        """End a job and all that has come of it; see `WatchedJob.end`."""
        self._refresh(job)
        job.end(state, reason, grace)

    def _reap(self) -> None:
        ended = []
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            job = self._mains.pop(pid, None)
            if job is not None:
                job.exit = (status, used, time.monotonic())
                job.cpu_seconds += used.ru_utime + used.ru_stime
                ended.append(job)
            else:
                owner = self.jobs.get(self._orphans.pop(pid, ""))
                if owner is not None:
                    owner.cpu_seconds += used.ru_utime + used.ru_stime
        for job in ended:
            self._finish(job)

    def _adopted(self) -> dict[str, list[int]]:
        """The processes that lost their parent and became this one's children, by the job they belong to."""
        found: dict[str, list[int]] = {}
        for pid in procfs.children(self._pid):
            if pid in self._mains or pid in self._launcher.ready_pids:
                continue
            if pid not in self._orphans:
                self._orphans[pid] = self._owner_of(pid)
            found.setdefault(self._orphans[pid], []).append(pid)
        return found

    def _owner_of(self, pid: int) -> str:
        tag = procfs.variable(pid, self._tag)
        if tag in self.jobs:
            return str(tag)
        seen = procfs.stat(pid)
        for job in self.jobs.values():
            if pid in job.members or (seen is not None and seen.session == job.pid):
                return job.run_id
        # It hides whose it is: it is left alone until it can only belong to the last job.
        return next(iter(self.jobs)) if len(self.jobs) == 1 else ""

    def _sample(self) -> None:
        adopted = self._adopted()
        for job in list(self.jobs.values()):
            members = procfs.tree([job.pid, *adopted.get(job.run_id, ())])
            job.members = procfs.start_times(members)
            memory = sum(map(procfs.resident, members))
            limit = job.order.get("memory_bytes")
            if memory > job.peak and len(members) > 1:
                # Forked workers share pages, which the sum of resident sizes counts once for each.
                memory = sum(map(procfs.proportional, members))
            job.peak = max(job.peak, memory)
            job.look_for_overrun()
            # A control group holds the job to its limit by itself, and counts exactly.
            if limit is not None and memory > limit and job.group is None:
                job.end("out_of_memory", "", 0.0)
                job.signal(signal.SIGKILL)
            job.trim_logs()

    def _deadlines(self) -> None:
        for job in list(self.jobs.values()):
            now = time.monotonic()
            if now >= job.deadline:
                job.deadline = float("inf")
                self._end_job(job, "timed_out", "", job.order["grace"])
            if now >= job.kill_at:
                self._refresh(job)
                job.signal(signal.SIGKILL)
                job.kill_at = now + self._look_seconds

    def _refresh(self, job: WatchedJob) -> None:
        members = procfs.tree([job.pid, *self._adopted().get(job.run_id, ()), *job.left()])
        job.members = procfs.start_times(members)

    def _finish(self, job: WatchedJob) -> None:
        """Kill the processes that a job left behind, and take its end."""
        job.look_for_overrun()
        until = time.monotonic() + _CLEANUP_SECONDS
        while time.monotonic() < until:
            adopted = self._adopted()
            left = [*adopted.get(job.run_id, []), *job.left()]
            if len(self.jobs) == 1:
                left = left + adopted.get("", [])
            if not left:
                break
            job.members = procfs.start_times(procfs.tree(left))
            if job.group is not None:
                job.group.kill()
            job.signal(signal.SIGKILL)
            time.sleep(0.002)
            self._reap()
        job.finish_logs()
        del self.jobs[job.run_id]
        self._settle(job)
        if job.group is not None:
            self._launcher.give_back(job.group)
