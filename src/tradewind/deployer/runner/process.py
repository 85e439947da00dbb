"""Runs jobs as processes of this machine, with real limits."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from tradewind import plugins
from tradewind.deployer.checkpoints import put_checkpoint
from tradewind.deployer.environment import METRICS, check_workdir, job_environment, resolve_secrets
from tradewind.deployer.runner import procfs, resource_limits
from tradewind.deployer.runner.architectures import (
    architecture_error,
    architecture_here,
    foreign_program,
    wrong_architecture,
)
from tradewind.deployer.runner.base import (
    FolderCheckpoints,
    LimitsCpu,
    LimitsMemory,
    LimitsTime,
    ListsNodes,
    Runner,
    StreamsLogs,
    StreamsReports,
    SurvivesController,
    ThisMachine,
)
from tradewind.deployer.runner.exit_reasons import (
    failure_reason,
    lost_status,
    out_of_memory_reason,
    timeout_reason,
    unstarted_status,
)
from tradewind.deployer.runner.handle import HandleData
from tradewind.deployer.runner.log_limit import shorten_log
from tradewind.deployer.runner.run_files import (
    RunNotes,
    folder_error,
    modified_at,
    read_chunk,
    read_document,
    write_marker,
)
from tradewind.deployer.runner.warden.client import WardenClient, take_warden
from tradewind.deployer.runner.warden.control_group import group_pids, remove_group
from tradewind.deployer.runner.warden.files import CANCEL, PID, RESULT, STARTED
from tradewind.deployer.runner.warden.slot_orders import FreedSlots, inner_registry, slot_order
from tradewind.errors import DeployError, JobProgramError, PrerequisiteError, TradewindError
from tradewind.problem import Fault, Handle, Machine, Offer, RunRequest, RunState, RunStatus, Usage
from tradewind.utils.machine.gpus import gpus_here
from tradewind.utils.paths import make_private, slots_folder

_DRAIN_BYTES = 4096
_LOOK_SECONDS = 0.05


class WakeupPipe:
    """A pipe that ends a `select.select` of another thread when `ring` is called."""

    def __init__(self) -> None:
        self._read, self._write = pipe = os.pipe()
        for end in pipe:
            os.set_blocking(end, False)
        weakref.finalize(self, _close_pipe, *pipe)

    def fileno(self) -> int:
        """The descriptor to read from, for `select.select`."""
        return self._read

    def ring(self) -> None:
        """Make the descriptor ready to be read from."""
        with contextlib.suppress(BlockingIOError):  # it is full, and so it is
            os.write(self._write, b"!")

    def clear(self) -> None:
        """Empty the pipe, so that the descriptor is not ready any more."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._read, _DRAIN_BYTES)


def _close_pipe(*ends: int) -> None:
    for end in ends:
        os.close(end)


class ProcessSettings(plugins.Settings):
    """Settings of the process runner."""

    grace: float = Field(
        0.5, ge=0, le=60, description="Seconds between SIGTERM and SIGKILL at the wall time and when a run is cancelled"
    )
    address_space: bool = Field(
        False, description="Also refuse each process more virtual memory than the offer has (RLIMIT_AS)"
    )
    groups: bool = Field(
        True, description="Hold runs to their memory and to parts of CPUs by control groups, where they may be made"
    )
    share: bool = Field(
        True,
        description="Wait for CPUs and memory that runs of your other searches on this machine have; GPUs are always "
        "shared so",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessData(HandleData):
    """The data of a handle of `ProcessRunner`.

    Attributes:
        folder: The run's folder; empty for a run of which only the tag is known.
    """

    folder: str = ""

    @property
    def place(self) -> Path | None:
        """The run's folder, or None."""
        return Path(self.folder) if self.folder else None


class QueuedRun(NamedTuple):
    """A run that waits for a slot of this machine.

    Attributes:
        request: The run.
        folder: Its folder.
        why: What others have.
    """

    request: RunRequest
    folder: Path
    why: str


class ProcessRunner(
    Runner,
    FolderCheckpoints,
    LimitsCpu,
    LimitsMemory,
    LimitsTime,
    ListsNodes,
    StreamsLogs,
    StreamsReports,
    SurvivesController,
    ThisMachine,
):
    """Runs jobs as processes of this machine, held to the CPUs and the memory of their offer.

    A helper process, the warden, starts and watches the jobs; it outlives this object until they have ended.
    Whole CPUs only: an offer of half a CPU gets one. Memory is what the whole process tree has resident, looked
    at 20 times a second. Without `Limits.cpus` or `Limits.memory_bytes` those of the offer hold. GPUs are the run's
    own, named in the variables of CUDA or ROCm, and runs that take a part of one share it. All searches of a user take
    their slots from one registry: a run whose CPUs, memory or GPUs others have waits for them.
    """

    name = "process"
    Settings = ProcessSettings
    settings: ProcessSettings

    def __init__(self, *, settings: plugins.Settings, data_folder: Path) -> None:
        super().__init__(settings=settings, data_folder=data_folder)
        self._folder = data_folder / "process"
        self._notes = RunNotes(self._folder, ".run")
        self._warden: WardenClient | None = None
        self._begun: dict[str, float] = {}
        self._results: dict[str, Mapping[str, Any]] = {}
        self._queued: dict[str, QueuedRun] = {}
        self._unstarted: dict[str, RunStatus] = {}  # had waited, and could not be started then
        self._registry: Path | None = None
        self._freed = FreedSlots()
        self._wakeup = WakeupPipe()

    @property
    def kill_seconds(self) -> float:
        """The grace between SIGTERM and SIGKILL and the time in which the warden notices, in seconds."""
        return self.settings.grace + _LOOK_SECONDS

    def room(self, offer: Offer, running: Sequence[Offer]) -> bool:
        """True when the machine has the CPUs and the memory; a run alone always fits."""
        return resource_limits.fits_here(offer, running)

    def nodes(self) -> Mapping[str, Mapping[str, float]]:
        """Resources of this machine: the CPUs and the GPUs that this process may use, and its memory."""
        has = {"cpu": float(resource_limits.cpus_here()), "memory": resource_limits.memory_here() / 2**30}
        if gpus := len(gpus_here()):
            has["gpu"] = float(gpus)
        return {socket.gethostname(): has}

    def refuses(self, offer: Offer, *, given: bool) -> str:
        """Refuse offers with GPUs that this machine has not; see `Runner.refuses`."""
        return resource_limits.missing_gpus(float(offer.gpus * offer.nodes))

    def submit(self, request: RunRequest, machines: Sequence[Machine]) -> Handle:
        """Start a run; see `Runner.submit`."""
        folder = request.folder.absolute()
        handle = ProcessData(owner=request.owner, folder=str(folder)).handle(request.run_id, self.name)
        if not (folder / STARTED).exists():
            check_workdir(request.workdir)
            if why := resource_limits.missing_gpus(resource_limits.gpus_of(request) * request.offer.nodes):
                raise DeployError(f"a run cannot have its GPUs: {why}", retryable=False)
            try:
                (folder / "outputs").mkdir(parents=True, exist_ok=True)
                note = self._notes.path(request.owner, request.run_id)
                make_private(note.parent)
                note.write_text(str(folder), encoding="utf-8")
                if request.checkpoint is not None:
                    put_checkpoint(request.checkpoint, folder)
            except OSError as error:
                raise folder_error(error, folder) from error
            self._start(request, folder)
        return handle

    def _start(self, request: RunRequest, folder: Path) -> None:
        order = self._order(request, folder)
        answer = None
        for _ in range(2):  # a warden that was killed is replaced once; started.json keeps it from a second copy
            if self._warden is None or not self._warden.alive:
                self._hang_up()
                self._warden = take_warden(self._folder / "warden.log")
            answer = self._warden.start(order)
            if answer is not None:
                break
        if answer is None:
            raise DeployError("the helper process of the process runner was killed twice while it started a run")
        self._queued.pop(request.run_id, None)
        if answer["event"] == "started":
            self._begun[request.run_id] = answer["begun"]
        elif answer["kind"] == "busy":
            self._queued[request.run_id] = QueuedRun(request, folder, answer["words"])
            self._freed.ask_again(answer["again"])
        elif answer["kind"] != "exists":
            self._notes.remove(request.owner, request.run_id)
            raise _refusal(answer["kind"], answer["errno"], request, folder)

    def _order(self, request: RunRequest, folder: Path) -> dict[str, Any]:
        nodes = request.offer.nodes
        cpus, memory = resource_limits.cpus_of(request), resource_limits.memory_of(request)
        slot = self._slot(request)
        return {
            "op": "start",
            "run_id": request.run_id,
            "owner": request.owner,
            "argv": list(request.argv),
            "env": {
                **os.environ,
                **request.env,
                **job_environment(request, folder),
                **resolve_secrets(request.secrets),
                **inner_registry(slot, request.run_id),
            },
            "cwd": str(request.workdir),
            "folder": str(folder),
            "cpus": None if cpus is None else cpus * nodes,
            "slot": slot,
            "groups": self.settings.groups,
            "memory_bytes": None if memory is None else memory * nodes,
            "address_space": memory if self.settings.address_space else 0,
            "wall_seconds": request.limits.wall_seconds,
            "log_bytes": request.limits.log_bytes,
            "grace": self.settings.grace,
        }

    def _slot(self, request: RunRequest) -> dict[str, Any] | None:
        """The part of an order by which the warden takes a slot; None for a run of which nothing is said."""
        if self._registry is None:
            self._registry = slots_folder()
        return slot_order(request, self._registry, share=self.settings.share)

    def _start_queued(self) -> None:
        """Ask again for the runs that wait, when somebody has given a slot back, and now and then."""
        if not self._queued or self._registry is None:
            return
        if not self._freed.due(self._registry):
            return
        for queued in tuple(self._queued.values()):
            try:
                self._start(queued.request, queued.folder)
            except TradewindError as error:  # nobody is there who would get it
                self._unstarted[queued.request.run_id] = unstarted_status(error)
                self._leave_queue(queued.request.run_id, "")

    def poll(self, handles: Sequence[Handle]) -> Mapping[str, RunStatus]:
        """The statuses of some runs; see `Runner.poll`."""
        self._listen()
        self._start_queued()
        return {handle.run_id: self._status(handle) for handle in handles}

    def _listen(self) -> None:
        if self._warden is not None:
            for result in self._warden.ended():
                self._begun.pop(result["run_id"], None)
                self._results[result["run_id"]] = result

    def _status(self, handle: Handle) -> RunStatus:
        if handle.run_id in self._results:
            return _status_of(self._results[handle.run_id])
        if handle.run_id in self._unstarted:
            return self._unstarted[handle.run_id]
        if handle.run_id in self._queued:
            return RunStatus(RunState.SUBMITTING, reason=self._queued[handle.run_id].why)
        begun = self._begun.get(handle.run_id)
        if begun is not None and self._warden is not None and self._warden.alive:
            return RunStatus(RunState.EXECUTING, runtime=max(0.0, time.monotonic() - begun))
        status = self._look(handle)
        if status.state.ended:
            self._begun.pop(handle.run_id, None)
        return status

    def _look(self, handle: Handle) -> RunStatus:
        """The status of a run that another warden started, from the files that it left."""
        data = ProcessData.of(handle)
        folder = data.place
        result = folder and read_document(folder / RESULT)
        if result:
            return _status_of(result)
        claim = read_document(folder / STARTED) if folder else None
        if folder is None or claim is None:
            # Another store's, found by its tag alone, or one that is just being started: only `cancel` may end it.
            if procfs.members(handle.run_id, data.owner, str(folder or "")):
                return RunStatus(RunState.EXECUTING)
            return lost_status("there is no trace of it")
        if claim["host"] != os.uname().nodename:
            return RunStatus(RunState.EXECUTING, runtime=max(0.0, time.time() - claim["started"]))
        if claim["boot"] == procfs.boot_id():
            if procfs.alive(*claim["warden"]):
                return RunStatus(RunState.EXECUTING, runtime=max(0.0, time.monotonic() - claim["begun"]))
            result = read_document(folder / RESULT)  # it may have been written just before the warden ended
            if result:
                return _status_of(result)
            if _kill(handle, folder):
                return RunStatus(RunState.EXECUTING, runtime=_lived(folder, claim))
        for name in ("stdout", "stderr"):  # what the warden would have done at the end
            with contextlib.suppress(OSError):
                shorten_log(folder / name, claim.get("log_bytes"))
        runtime = _lived(folder, claim)
        if (folder / CANCEL).exists():
            return RunStatus(RunState.CANCELLED, runtime=runtime, reason=_text(folder / CANCEL))
        return lost_status("the machine or the process that watched it was stopped", runtime)

    def wait(self, handles: Sequence[Handle], seconds: float) -> None:
        """Return when a run has ended, or after ``seconds``."""
        until = time.monotonic() + seconds
        if any(handle.run_id in self._results for handle in handles):
            return
        foreign = [handle for handle in handles if handle.run_id not in self._begun]
        while True:
            left = max(0.0, until - time.monotonic())
            pause = min(left, _LOOK_SECONDS) if foreign else left
            if self._watch(pause):
                return
            self._start_queued()
            if left <= pause or any(self._has_changed(handle) for handle in foreign):
                return

    def _has_changed(self, handle: Handle) -> bool:
        """True for a run that was started by somebody else, or that waited, where it has ended or waits no more."""
        if handle.run_id in self._begun or handle.run_id in self._unstarted:
            return True
        return handle.run_id not in self._queued and self._look(handle).state.ended

    def wake(self) -> None:
        """Let the `wait` that is under way return now; see `Runner.wake`."""
        self._wakeup.ring()

    def _watch(self, seconds: float) -> bool:
        """Wait for the warden; True when it has reported an end, or has ended, or `wake` was called."""
        warden = self._warden if self._warden is not None and self._warden.alive else None
        sources: list[WakeupPipe | WardenClient] = [self._wakeup] if warden is None else [self._wakeup, warden]
        before = len(self._results)
        ready, _, _ = select.select(sources, [], [], 0.0 if warden is not None and warden.waiting else seconds)
        self._listen()
        if self._wakeup in ready:
            self._wakeup.clear()
            return True
        return warden is not None and (len(self._results) > before or not warden.alive)

    def cancel(self, handle: Handle, reason: str = "") -> None:
        """End a run with all its processes; see `Runner.cancel`."""
        self._listen()
        data = ProcessData.of(handle)
        folder = data.place
        if handle.run_id in self._results or (folder and (folder / RESULT).exists()):
            return
        if folder and folder.is_dir():
            # A warden that has yet to read its order to start the run finds this and does not start it.
            write_marker(folder / CANCEL, reason)
        if self._leave_queue(handle.run_id, reason):
            self._results[handle.run_id] = _never_started(reason)
            return
        order = self._cancellation(handle.run_id, reason)
        if handle.run_id in self._begun and self._warden is not None and self._warden.send(order):
            return
        claim = read_document(folder / STARTED) if folder else None
        if claim and (claim["host"], claim["boot"]) == (os.uname().nodename, procfs.boot_id()):
            pid, ticks = claim["warden"]
            if procfs.send(pid, ticks, signal.SIGUSR1):
                return
        _kill(handle, folder)

    def _cancellation(self, run_id: str, reason: str) -> dict[str, Any]:
        return {"op": "cancel", "run_id": run_id, "reason": reason, "grace": self.settings.grace}

    def _leave_queue(self, run_id: str, reason: str) -> bool:
        """Let a run wait no more; False for one that does not."""
        if self._queued.pop(run_id, None) is None:
            return False
        if self._warden is not None:
            self._warden.send(self._cancellation(run_id, reason))  # its turn goes to others
        return True

    def checkpoint_parent(self, handle: Handle) -> Path | None:
        """The run's folder; see `FolderCheckpoints.checkpoint_parent`."""
        return ProcessData.of(handle).place

    def find(self, owner: str | None) -> list[Handle]:
        """All runs of an owner, or of all, that live or are not settled; see `Runner.find`."""
        found = {}
        for whose, name, note in self._notes.paths(owner):
            data = ProcessData(owner=whose, folder=_text(note), created=modified_at(note))
            found[name] = data.handle(name, self.name)
        for whose, name in sorted(procfs.runs_of(owner)):
            found.setdefault(name, ProcessData(owner=whose).handle(name, self.name))
        return list(found.values())

    def read_log(self, handle: Handle, stream: str, offset: int) -> bytes:
        """Read a run's log from a byte on; see `StreamsLogs.read_log`."""
        folder = ProcessData.of(handle).place
        known = stream in ("stdout", "stderr", METRICS)
        return read_chunk(folder / stream, offset) if folder is not None and known else b""

    def read_report(self, handle: Handle, offset: int) -> bytes:
        """Read a run's metrics file from a byte on; see `StreamsReports.read_report`."""
        return self.read_log(handle, METRICS, offset)

    def forget(self, handle: Handle) -> None:
        """Remove the note of a run that is settled; its folder stays."""
        self._results.pop(handle.run_id, None)
        self._unstarted.pop(handle.run_id, None)
        self._begun.pop(handle.run_id, None)
        self._notes.remove(ProcessData.of(handle).owner, handle.run_id)

    def _hang_up(self) -> None:
        if self._warden is not None:
            self._listen()
            self._warden.close()
            self._warden = None

    def close(self) -> None:
        """Let go of the warden; it ends by itself when its jobs have. What waited for a slot waits no more."""
        for run_id in list(self._queued):
            self._leave_queue(run_id, "")
        self._hang_up()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _kill(handle: Handle, folder: Path | None) -> int:
    """Send SIGKILL to all that is left of a run whose warden is gone; the number of those processes."""
    first = read_document(folder / PID) if folder else None
    group = str(first.get("group", "")) if first else ""
    leader = (first["pid"], first["ticks"]) if first else None
    found = procfs.kill_members(
        handle.run_id, ProcessData.of(handle).owner, str(folder or ""), leader, group_pids(group)
    )
    if not found:
        remove_group(group)
    return found


def _lived(folder: Path, claim: Mapping[str, Any]) -> float:
    """Seconds that a run lived whose warden was killed: up to its last sign of life, or to its wall time."""
    try:
        lived: float = (folder / STARTED).stat().st_mtime - claim["started"]
    except OSError:
        return 0.0
    wall = claim.get("wall_seconds")
    return max(0.0, lived if wall is None else min(lived, wall))


def _status_of(result: Mapping[str, Any]) -> RunStatus:
    state, reason, code = result["state"], result["reason"], result["exit_code"]
    fault: Fault | None = Fault.JOB
    if state == "out_of_memory":
        state, reason = "failed", out_of_memory_reason(result["memory_bytes"])
    elif state == "timed_out":
        reason = timeout_reason(result["wall_seconds"])
    elif state == "failed":
        reason = failure_reason(code)
    elif state == "preempted":
        fault = Fault.INFRASTRUCTURE
    else:
        fault = None
    return RunStatus(
        RunState(state),
        runtime=result["runtime"],
        reason=reason,
        fault=fault,
        exit_code=code,
        usage=Usage(result["peak_memory_bytes"], result["cpu_seconds"], result.get("profile", {})),
    )


def _never_started(reason: str) -> dict[str, Any]:
    """The result of a run that was cancelled while it waited."""
    nothing = {"exit_code": None, "peak_memory_bytes": 0, "cpu_seconds": 0.0}
    return {"state": "cancelled", "reason": reason, "runtime": 0.0, **nothing}


def _refusal(kind: str, number: int, request: RunRequest, folder: Path) -> DeployError | JobProgramError:
    program, why = request.argv[0], os.strerror(number) if number else ""
    if kind == "cancelled":
        return DeployError(f"run {request.run_id} was cancelled before it started", retryable=False)
    if kind == "workdir":
        return PrerequisiteError(f"the working folder {request.workdir} cannot be entered: {why}")
    if kind == "missing" and number == errno.ENOENT:
        if (request.workdir / program).is_file():
            return JobProgramError(
                f"{program} cannot be run: the interpreter that its first line names is not installed"
            )
        return JobProgramError(
            f"there is no program {program!r}", hint="install it, or give its path, relative to job.workdir"
        )
    if kind == "missing" and number in (errno.EACCES, errno.EPERM):
        return JobProgramError(f"{program} is not executable", hint=f"chmod +x {program}")
    if kind == "missing" and number == errno.ENOEXEC:
        search_path = request.env.get("PATH", os.environ.get("PATH", os.defpath))
        if foreign := foreign_program(program, request.workdir, search_path, architecture_here()):
            return architecture_error(wrong_architecture(program, architecture_here(), foreign))
        return JobProgramError(f"{program} is no program that this machine can run", hint="a script needs a #! line")
    if kind == "missing":
        return JobProgramError(f"{program} cannot be run: {why}")
    return folder_error(OSError(number, why), folder)
