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

import json
import os
import resource
import select
import signal
import sys
import time

from tradewind.deployer.runner import procfs
from tradewind.deployer.runner.warden.files import (
    CANCEL,
    RESULT,
    STARTED,
    Document,
    StartRefused,
    claim_run,
    quietly,
    text_of,
    write_document,
)
from tradewind.deployer.runner.warden.jobs import FAR_SOURCES, JobWatcher, WatchedJob
from tradewind.deployer.runner.warden.slots import SlotRegistry, choose_cpus

WARDEN_SOURCES = (
    *FAR_SOURCES,
    "warden/slot_turns.py",
    "warden/slots.py",
    "warden/warden.py",
    "warden/weighted_use.py",
)
"""The files below ``deployer/runner`` that a warden needs on another machine."""

_SAMPLE_SECONDS = 0.05
_HEARTBEAT_SECONDS = 1.0
_RESULT_BYTES = 4096
_PIECE = 1 << 16


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


def result_of(job: WatchedJob) -> Document:
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


class Warden(JobWatcher):
    """Starts jobs on this machine, watches them and ends them at their limits."""

    def __init__(self) -> None:
        super().__init__(procfs.RUN_TAG, _SAMPLE_SECONDS)
        self.controlled = True
        self._next_beat = 0.0
        self._input = b""
        self._identity = {"host": os.uname().nodename, "boot": procfs.boot_id(), "warden": [*self.born]}
        self._slots = SlotRegistry(self._identity)

    def run(self) -> None:
        """Serve orders and watch jobs until the controller and all jobs are gone."""
        while self.controlled or self.jobs:
            watched = [self.wake, *([0] if self.controlled else [])]
            pause = max(0.0, self._next_moment() - time.monotonic()) if self.jobs else None
            ready, _, _ = select.select(watched, [], [], pause)
            if self.wake in ready:
                self._signals()
            if 0 in ready:
                self._orders()
            self._look_after()
        self._launcher.dismiss()

    def _look_after(self) -> None:
        now = time.monotonic()
        if now >= self._next_beat:
            for job in self.jobs.values():
                quietly(os.utime, f"{job.folder}/{STARTED}")
            self._next_beat = now + _HEARTBEAT_SECONDS
        super()._look_after()

    def _say(self, document: Document) -> None:
        if not self.controlled:
            return
        text = json.dumps(document).encode() + b"\n"
        try:
            while text:
                text = text[os.write(1, text) :]
        except OSError:
            self._go_on_alone()

    def _go_on_alone(self) -> None:
        """Watch the jobs to their ends without a controller.

        It may have sent orders before it went that are never read: what it cancelled it has noted in the runs' folders.
        """
        self.controlled = False
        self._slots.give_up(self.jobs)
        self._cancel_marked()

    def _signals(self) -> None:
        numbers = self._take_signals()
        if signal.SIGTERM in numbers:
            for job in list(self.jobs.values()):
                job.end("preempted", "the machine told its processes to end", job.order["grace"])
        if signal.SIGUSR1 in numbers:
            self._cancel_marked()

    def _cancel_marked(self) -> None:
        for job in list(self.jobs.values()):
            reason = text_of(f"{job.folder}/{CANCEL}")
            if reason is not None:
                job.end("cancelled", reason, job.order["grace"])

    def _orders(self) -> None:
        piece = os.read(0, _PIECE)
        if not piece:
            self._go_on_alone()
            return
        *lines, self._input = (self._input + piece).split(b"\n")
        for line in lines:
            order = json.loads(line)
            if order["op"] == "start":
                self._start(order)
            elif order["run_id"] in self.jobs:
                self.jobs[order["run_id"]].end("cancelled", order["reason"], order["grace"])
            else:
                self._slots.give_back(order["run_id"])

    def _start(self, order: Document) -> None:
        run_id = order["run_id"]
        try:
            job = self._launch(order)
        except StartRefused as answer:
            words = {"errno": answer.number, "words": answer.words, "again": answer.again}
            self._say({"event": "refused", "run_id": run_id, "kind": answer.kind, **words})
        except OSError as error:
            self._say({"event": "refused", "run_id": run_id, "kind": "system", "errno": error.errno, "words": ""})
        else:
            self._say({"event": "started", "run_id": run_id, "begun": job.begun})
            job.note_start()  # while the controller goes on
            if job.group is not None:
                self._launcher.prepare()

    def _launch(self, order: Document) -> WatchedJob:
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
            cpus = self._take_slot(order)
            if not self.jobs:
                self._next_beat = time.monotonic() + _HEARTBEAT_SECONDS
            return self._start_job(order, cpus)
        except BaseException as error:
            # Nothing runs: the same run may be asked for again and gets the same answer.
            if not (isinstance(error, StartRefused) and error.kind == "busy"):
                self._slots.give_back(order["run_id"])
            for name in (f"{folder}/{STARTED}", part):
                quietly(os.unlink, name)
            raise

    def _take_slot(self, order: Document) -> set[int]:
        """Take the slot of a run, if it needs one, and name its devices in its environment; its CPUs.

        Raises:
            StartRefused: Others have them (``busy``).
        """
        every, wanted = os.sched_getaffinity(0), order.get("slot")
        if not wanted:
            return self._choose_cpus(order.get("cpus"), every)
        own = self._slots.take(order["run_id"], wanted, every)
        if own.devices:
            order["env"].update(wanted["constants"])
            for variable, counted in wanted["variables"].items():
                number = counted == "number"
                order["env"][variable] = ",".join(own.devices if number else map(str, range(len(own.devices))))
        return set(own.cpus) or self._choose_cpus(order.get("cpus"), every)

    def _choose_cpus(self, wanted: float | None, every: set[int]) -> set[int]:
        if wanted is None:
            return every
        free = {cpu: -float(sum(cpu in job.cpus for job in self.jobs.values())) for cpu in every}
        return set(choose_cpus(free, wanted))

    def _settle(self, job: WatchedJob) -> None:
        self._slots.give_back(job.run_id)  # before anybody hears of it, and starts the next one
        result = result_of(job)
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
