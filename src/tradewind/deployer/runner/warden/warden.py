"""The warden: a small process that starts jobs on this machine, watches them and cleans up after them.

It is started by `tradewind.deployer.runner.warden.client` in a session of its own, reads JSON lines from its standard
input and answers with JSON lines on its standard output. When its controller dies it goes on until its jobs have
ended under their limits. It imports little, because a search waits for its start.

Files that it writes into a run's folder:

``started.json``
    Linked into place before the fork: of two wardens that are asked to start the same run, one wins. Its
    modification time is refreshed every second; it tells how long a run lived whose warden was killed.
``pid.json``
    The first process of the run.
``result.json``
    How it ended. Room for it is set aside before the job starts, so that a full disk cannot lose it.

``cancel`` is written by a controller; the warden looks for it before a start and on SIGUSR1.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import sys
import time

from tradewind.deployer.runner import procfs
from tradewind.deployer.runner.log_limit import GrowingLog
from tradewind.deployer.runner.warden.control_group import group_pids
from tradewind.deployer.runner.warden.devices import DeviceNotes
from tradewind.deployer.runner.warden.files import (
    CANCEL,
    PID,
    RESULT,
    STARTED,
    Document,
    StartRefused,
    claim_run,
    quietly,
    text_of,
    write_document,
)
from tradewind.deployer.runner.warden.launcher import Launcher, StartedProcess

_SAMPLE_SECONDS = 0.05
_HEARTBEAT_SECONDS = 1.0
_CLEANUP_SECONDS = 5.0
_RESULT_BYTES = 4096
_HANDLED_SIGNALS = (signal.SIGCHLD, signal.SIGUSR1, signal.SIGTERM)
_IGNORED_SIGNALS = (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ)
_PIECE = 1 << 16
_PR_SET_CHILD_SUBREAPER = 36


class WardenJob:
    """A run that the warden has started.

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
        self.members: set[int] = {self.pid}
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


def profile_of(used: resource.struct_rusage, before: tuple[int, int]) -> dict[str, float]:
    """The kernel's counters of the first process and all that it waited for, as low-level metrics.

    Disk traffic is what reached the disks: files that were cached already are not read again. The network's is that of
    the whole machine while the run took place, because the kernel does not count it for a process.

    Args:
        used: The kernel's usage record of the processes.
        before: The value of `procfs.traffic` when the run began.
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
        "group_peak_bytes": job.group.peak() if job.group is not None else None,
        "cpu_seconds": job.cpu_seconds,
        "profile": profile_of(used, job.traffic),
        "truncated": job.truncated,
        "memory_bytes": job.order.get("memory_bytes"),
        "wall_seconds": job.order.get("wall_seconds"),
    }


class Warden:
    """Starts jobs on this machine, watches them and ends them at their limits."""

    def __init__(self) -> None:
        self.jobs: dict[str, WardenJob] = {}
        self.controlled = True
        self._pid = os.getpid()
        self._mains: dict[int, WardenJob] = {}
        self._orphans: dict[int, str] = {}
        self._input = b""
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        me = procfs.stat(self._pid)
        assert me is not None
        self._identity = {
            "host": os.uname().nodename,
            "boot": procfs.boot_id(),
            "warden": [self._pid, me.ticks],
        }
        self._launcher = Launcher(self._libc, f"{self._pid}-{me.ticks}")
        self._devices = DeviceNotes(self._identity)
        self._wake, wake = os.pipe()
        for fd in (self._wake, wake):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        # What is handled, unlike what is ignored, is as it was again for a program that is executed: a job need not see
        # to it, in a copy of this process where each step costs.
        for number in (*_HANDLED_SIGNALS, *_IGNORED_SIGNALS):
            signal.signal(number, lambda *_: None)

    def run(self) -> None:
        """Serve orders and watch jobs until the controller and all jobs are gone."""
        next_sample = next_beat = 0.0
        while self.controlled or self.jobs:
            watched = [self._wake, *([0] if self.controlled else [])]
            ready, _, _ = select.select(watched, [], [], self._pause(next_sample))
            idle = not self.jobs
            if self._wake in ready:
                self._signals()
            if 0 in ready:
                self._orders()
            now = time.monotonic()
            if idle:  # a job that has just begun has nothing to be looked at, and may be over at once
                next_sample, next_beat = now + _SAMPLE_SECONDS, now + _HEARTBEAT_SECONDS
            if self.jobs and now >= next_sample:
                self._sample()
                next_sample = now + _SAMPLE_SECONDS
            if self.jobs and now >= next_beat:
                for job in self.jobs.values():
                    quietly(os.utime, f"{job.folder}/{STARTED}")
                next_beat = now + _HEARTBEAT_SECONDS
            self._deadlines()
        self._launcher.dismiss()

    def _pause(self, next_sample: float) -> float | None:
        if not self.jobs:
            return None
        moments = [next_sample, *(min(job.deadline, job.kill_at) for job in self.jobs.values())]
        return max(0.0, min(moments) - time.monotonic())

    def _say(self, document: Document) -> None:
        if not self.controlled:
            return
        text = json.dumps(document).encode() + b"\n"
        try:
            while text:
                text = text[os.write(1, text) :]
        except OSError:
            self.controlled = False

    def _signals(self) -> None:
        try:
            numbers = set(os.read(self._wake, 4096))
        except BlockingIOError:
            return
        self._reap()
        if signal.SIGTERM in numbers:
            for job in list(self.jobs.values()):
                job.end("preempted", "the machine told its processes to end", job.order["grace"])
        if signal.SIGUSR1 in numbers:
            for job in list(self.jobs.values()):
                reason = text_of(f"{job.folder}/{CANCEL}")
                if reason is not None:
                    job.end("cancelled", reason, job.order["grace"])

    def _orders(self) -> None:
        piece = os.read(0, _PIECE)
        if not piece:
            self.controlled = False
            return
        *lines, self._input = (self._input + piece).split(b"\n")
        for line in lines:
            order = json.loads(line)
            if order["op"] == "start":
                self._start(order)
            elif order["run_id"] in self.jobs:
                self.jobs[order["run_id"]].end("cancelled", order["reason"], order["grace"])

    def _start(self, order: Document) -> None:
        run_id = order["run_id"]
        try:
            job = self._launch(order)
        except StartRefused as answer:
            self._say({"event": "refused", "run_id": run_id, "kind": answer.kind, "errno": answer.number})
        except OSError as error:
            self._say({"event": "refused", "run_id": run_id, "kind": "system", "errno": error.errno})
        else:
            self.jobs[run_id] = self._mains[job.pid] = job
            self._say({"event": "started", "run_id": run_id, "begun": job.begun})
            job.note_start()  # while the controller goes on
            if job.group is not None:
                self._launcher.prepare()

    def _launch(self, order: Document) -> WardenJob:
        folder = order["folder"]
        part = f"{folder}/{RESULT}.part"
        claim = {
            **self._identity,
            "run_id": order["run_id"],
            "owner": order["owner"],
            "started": time.time(),
            "begun": time.monotonic(),
            "wall_seconds": order.get("wall_seconds"),
            "log_bytes": order.get("log_bytes"),
        }
        claim_run(folder, claim)
        try:
            if os.path.exists(f"{folder}/{CANCEL}"):  # noqa: PTH110
                raise StartRefused("cancelled")
            room = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                os.posix_fallocate(room, 0, _RESULT_BYTES)
            finally:
                os.close(room)
            cpus = self._choose_cpus(order.get("cpus"))
            self._give_devices(order)
            return WardenJob(order, cpus, self._launcher.start(order, cpus))
        except BaseException:
            # Nothing runs: the same run may be asked for again and gets the same answer.
            self._devices.give_back(order["run_id"])
            for name in (f"{folder}/{STARTED}", part):
                quietly(os.unlink, name)
            raise

    def _give_devices(self, order: Document) -> None:
        """Choose the devices of a run that wants some, and name them in its environment.

        Raises:
            StartRefused: Others have them (``busy``).
        """
        wanted = order.get("devices")
        if wanted is None:
            return
        own = self._devices.take(order["run_id"], wanted["folder"], wanted["names"], wanted["amount"])
        order["env"].update(wanted["constants"])
        for variable, counted in wanted["variables"].items():
            order["env"][variable] = ",".join(own if counted == "number" else map(str, range(len(own))))

    def _choose_cpus(self, wanted: float | None) -> set[int]:
        every = os.sched_getaffinity(0)
        if wanted is None:
            return every
        count = max(1, int(-(-wanted // 1)))
        load = {cpu: sum(cpu in job.cpus for job in self.jobs.values()) for cpu in every}
        return set(sorted(every, key=lambda cpu: (load[cpu], cpu))[:count])

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
        """The processes that lost their parent and became the warden's children, by the run they belong to."""
        found: dict[str, list[int]] = {}
        for pid in procfs.children(self._pid):
            if pid in self._mains or pid == self._launcher.ready_pid:
                continue
            if pid not in self._orphans:
                self._orphans[pid] = self._owner_of(pid)
            found.setdefault(self._orphans[pid], []).append(pid)
        return found

    def _owner_of(self, pid: int) -> str:
        tag = procfs.variable(pid, procfs.RUN_TAG)
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
            job.members = set(members)
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
                self._refresh(job)
                job.end("timed_out", "", job.order["grace"])
            if now >= job.kill_at:
                self._refresh(job)
                job.signal(signal.SIGKILL)
                job.kill_at = now + _SAMPLE_SECONDS

    def _refresh(self, job: WardenJob) -> None:
        job.members = set(procfs.tree([job.pid, *self._adopted().get(job.run_id, ()), *job.left()]))

    def _finish(self, job: WardenJob) -> None:
        """Kill the processes that a job left behind, and write its result."""
        job.look_for_overrun()
        until = time.monotonic() + _CLEANUP_SECONDS
        while time.monotonic() < until:
            adopted = self._adopted()
            left = [*adopted.get(job.run_id, []), *job.left()]
            if len(self.jobs) == 1:
                left = left + adopted.get("", [])
            if not left:
                break
            job.members = set(procfs.tree(left))
            if job.group is not None:
                job.group.kill()
            job.signal(signal.SIGKILL)
            time.sleep(0.002)
            self._reap()
        job.finish_logs()
        self._devices.give_back(job.run_id)
        result = result_of(job)
        if job.group is not None:
            self._launcher.give_back(job.group)
        del self.jobs[job.run_id]
        try:
            # A controller that lives puts the result into its store at once; without one this file is all there is.
            alone = not self.controlled
            write_document(f"{job.folder}/{RESULT}", result, part=f"{job.folder}/{RESULT}.part", durable=alone)
        except OSError as error:
            sys.stderr.write(f"{job.run_id}: its result cannot be written: {error}\n")
        self._say({"event": "ended", "run_id": job.run_id, "result": result})


def main() -> None:
    """Run a warden on this process's standard input and output."""
    Warden().run()
