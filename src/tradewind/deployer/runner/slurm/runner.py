"""Runs jobs on a Slurm cluster."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

from tradewind import plugins
from tradewind.deployer.environment import METRICS, OUTPUTS
from tradewind.deployer.runner.base import (
    DrivesLoad,
    FolderCheckpoints,
    HasOwnMachines,
    LimitsCpu,
    LimitsMemory,
    LimitsTime,
    ListsNodes,
    Runner,
    SeveralNodes,
    StreamsLogs,
    StreamsReports,
    SubmitsTogether,
    SurvivesController,
    UsesImages,
)
from tradewind.deployer.runner.log_limit import shorten_log
from tradewind.deployer.runner.run_files import merge_folder, read_chunk, read_document, replace_document
from tradewind.deployer.runner.slurm.commands import SlurmCommands, find_programs
from tradewind.deployer.runner.slurm.handle import SlurmData, SlurmRun
from tradewind.deployer.runner.slurm.monitor import SlurmMonitor
from tradewind.deployer.runner.slurm.options import SlurmSettings
from tradewind.deployer.runner.slurm.queue import SlurmQueue, with_expiry
from tradewind.deployer.runner.slurm.spool import RESULT, Spool, SpoolNote
from tradewind.deployer.runner.slurm.submit import SlurmSubmitter
from tradewind.deployer.ssh_connection import SshConnection, SshTarget
from tradewind.errors import DeployError, InputError, MissingProgramError, TradewindError
from tradewind.plugins import CallsNetwork
from tradewind.problem import Handle, Machine, RunRequest, RunStatus
from tradewind.utils.paths import expand

_LOOK_SECONDS = 0.05
_WORKING_STATES = frozenset({"idle", "mixed", "allocated", "completing", "reserved", "planned"})
_GPUS = re.compile(r"(?:^|,)gpu(?::[^,:()]+)*:(\d+)")


class SlurmRunner(
    Runner,
    FolderCheckpoints,
    HasOwnMachines,
    LimitsCpu,
    LimitsMemory,
    LimitsTime,
    ListsNodes,
    SurvivesController,
    DrivesLoad,
    SeveralNodes,
    UsesImages,
    SubmitsTogether,
    StreamsLogs,
    StreamsReports,
    CallsNetwork,
):
    """Runs jobs on a Slurm cluster, on as many nodes as the offer has.

    Runs that are handed over together and ask for the same resources become one job array. The job script keeps the
    wall time to the hundredth of a second and measures the run on the node: waiting in the queue is neither run time
    nor paid. The folders of the runs, and the job's own, must be on a file system that all nodes see.
    """

    name = "slurm"
    shell_variables = True
    Settings = SlurmSettings
    needs = (find_programs,)
    settings: SlurmSettings

    def __init__(self, *, settings: plugins.Settings, data_folder: Path) -> None:
        super().__init__(settings=settings, data_folder=data_folder)
        given = self.settings
        runs = expand(given.folder).absolute() / "runs" if given.folder else None
        root = expand(given.folder) / "slurm" if given.folder else data_folder / "slurm"
        self.spool = Spool(root.absolute())
        link = None
        if given.host:
            link = SshConnection(SshTarget.named(given.host, given.ssh), connect_seconds=given.ssh.connect_seconds)
        self._programs = SlurmCommands(given.bin, link)
        self._queue = SlurmQueue(self._programs, given.interval, given.timeout)
        self._submitter = SlurmSubmitter(self.spool, self._programs, self._queue, given, runs)
        self._monitor = SlurmMonitor(self.spool, self._queue, self._submitter.backlog, given.settle)
        self._stamp = 0
        self._forgotten: set[tuple[str, int]] = set()

    @property
    def kill_seconds(self) -> float:
        """The grace between SIGTERM and SIGKILL and the time in which the job script notices, in seconds."""
        return self.settings.grace + 2 * _LOOK_SECONDS

    def nodes(self) -> Mapping[str, Mapping[str, float]]:
        """The amounts of the nodes that take work, of the partition or of the whole cluster."""
        return slurm_nodes(self._programs, self.settings.partition, self.settings.timeout)

    def submit(self, request: RunRequest, machines: Sequence[Machine]) -> Handle:
        """Start a run; see `Runner.submit`."""
        answer = self.submit_all([(request, machines)])[request.run_id]
        if isinstance(answer, TradewindError):
            raise answer
        return answer

    def submit_all(self, runs: Sequence[tuple[RunRequest, Sequence[Machine]]]) -> Mapping[str, Handle | TradewindError]:
        """Start some runs; those that ask for the same resources become one job array.

        Runs that Slurm has no room for wait here, and are handed over while `poll` is called.
        """
        requests = [request for request, _ in runs]
        errors = self._submitter.submit(requests)
        return {each.run_id: errors.get(each.run_id) or self._noted(each) for each in requests}

    def _noted(self, request: RunRequest) -> Handle:
        note = read_document(self.spool.note(request.owner, request.run_id)) or {}
        handed = not self._submitter.backlog.has(str(note.get("batch", "")))
        return replace(self._data(note), owner=request.owner, handed=handed).handle(request.run_id, self.name)

    def _data(self, note: SpoolNote) -> SlurmData:
        data = SlurmData.from_json(note)
        return replace(data, created=data.submitted, job=self.spool.job(data.batch) or data.job)

    def poll(self, handles: Sequence[Handle]) -> Mapping[str, RunStatus]:
        """The statuses of some runs; see `Runner.poll`."""
        self._stamp = self.spool.stamp()
        return self._monitor.poll([self._known(handle) for handle in handles])

    def _known(self, handle: Handle) -> SlurmRun:
        """The run of a handle, with the data of its note where the handle was made from an id alone."""
        run = SlurmRun.of(handle)
        if run.data.batch:
            return run
        note = next((n for n in self.spool.notes(run.data.owner or None) if n["run_id"] == run.run_id), None)
        return replace(run, data=self._data(note)) if note is not None else run

    def wait(self, handles: Sequence[Handle], seconds: float) -> None:
        """Return when a run has ended, when the queue may have changed, or after ``seconds``."""
        until = time.monotonic() + min(seconds, max(self.settings.interval, _LOOK_SECONDS))
        while (stamp := self.spool.stamp()) == self._stamp:
            left = until - time.monotonic()
            if left <= 0:
                return
            if self.doze(min(left, _LOOK_SECONDS)):
                return
        self._stamp = stamp  # returned for once: nobody polls while all runs are still handed over or settled

    def cancel(self, handle: Handle, reason: str = "") -> None:
        """End a run with all its processes; see `Runner.cancel`."""
        self._monitor.cancel(self._known(handle), reason)

    def find(self, owner: str | None) -> list[Handle]:
        """All runs of an owner, or of all, that are in the queue or not settled; see `Runner.find`."""
        if owner is not None:
            self.spool.clean()
        found: dict[tuple[str, int], SlurmRun] = {}
        for note in self.spool.notes(owner):
            data = self._data(note)
            found[data.batch, data.index] = SlurmRun(str(note["run_id"]), data)
        try:
            rows = self._queue.all().rows
        except (DeployError, MissingProgramError) as error:
            if isinstance(error, DeployError) and error.retryable:
                raise
            rows = {}  # no cluster was ever reached from here
        for key, row in rows.items():
            if row.state == "COMPLETING" or key in self._forgotten:
                continue  # its end is known, Slurm only cleans up
            if key not in found and owner in (None, row.tags.get("owner")):
                found[key] = self._orphan(row.name, row.index, row.job, row.tags)
        listed = []
        for key, run in found.items():
            waits = key not in rows and run.data.batch and not run.data.job and not self.spool.claim(*key)
            data = run.data.waiting() if waits else with_expiry(run.data, rows.get(key))
            # Who looks at everybody's runs hands none of them over.
            listed.append(replace(data, look=owner is None).handle(run.run_id, self.name))
        return listed

    def _orphan(self, name: str, index: int, job: str, tags: Mapping[str, str]) -> SlurmRun:
        """The run of a job whose note is in another data folder, or is gone."""
        other = Spool(Path(tags.get("spool") or "/nowhere"))
        about = other.about(name) or {}
        runs = about.get("runs", [])
        run_id = runs[index] if index < len(runs) else unquote(name if index == 0 else f"{name}.{index}")
        owner, expires = tags.get("owner", ""), tags.get("expires", "")
        noted = SlurmData.from_json(read_document(other.note(owner, run_id)) or {})
        data = SlurmData(
            owner=owner,
            expires=float(expires) if expires.isdigit() else None,
            created=noted.submitted,
            folder=noted.folder,
            batch=name,
            index=index,
            job=job.partition("_")[0],
        )
        return SlurmRun(run_id, data)

    def forget(self, handle: Handle) -> None:
        """Remove the files that are kept of a settled run; its folder stays."""
        run = self._known(handle)
        self._monitor.forget(run.run_id)
        if run.data.batch:
            self._forgotten.add(run.key)
        self.spool.forget(run)

    def checkpoint_parent(self, handle: Handle) -> Path | None:
        """The run's folder on the shared file system; see `FolderCheckpoints.checkpoint_parent`."""
        return self._known(handle).folder

    def read_log(self, handle: Handle, stream: str, offset: int) -> bytes:
        """Read a run's log from a byte on; see `StreamsLogs.read_log`."""
        folder = self._known(handle).folder
        if folder is None or stream not in ("stdout", "stderr", METRICS):
            return b""
        return read_chunk(folder / stream, offset)

    def read_report(self, handle: Handle, offset: int) -> bytes:
        """Read a run's metrics file from a byte on; see `StreamsReports.read_report`."""
        return self.read_log(handle, METRICS, offset)

    def collect(self, handle: Handle, request: RunRequest) -> None:
        """Bring a run's files into its folder on this machine, and shorten its logs to their limit."""
        source, target = self._known(handle).folder or request.folder, request.folder.absolute()
        try:
            self._shorten(source, request.limits.log_bytes)
            if source != target:
                target.mkdir(parents=True, exist_ok=True)
                for name in ("stdout", "stderr", METRICS, RESULT):
                    if (source / name).is_file() and not (source / name).is_symlink():
                        shutil.copyfile(source / name, target / name)
                if (source / OUTPUTS).is_dir():
                    # A link may lead anywhere: it is brought as a link.
                    merge_folder(source / OUTPUTS, target / OUTPUTS)
        except OSError as error:
            raise DeployError(f"the files of run {request.run_id} cannot be brought here: {error}") from error

    def _shorten(self, folder: Path, limit: int | None) -> None:
        """Keep the beginnings and the ends of the logs; on the node they may be long files with a hole."""
        result = read_document(folder / RESULT) or {}
        long = [shorten_log(folder / name, limit, result.get(f"{name}_written")) for name in ("stdout", "stderr")]
        if any(long) and result:
            kept = {key: value for key, value in result.items() if not key.endswith("_written")}
            replace_document(folder / RESULT, {**kept, "truncated": True})

    def close(self) -> None:
        """Close the connection to the login host; runs are not touched."""
        self._submitter.backlog.close()
        with suppress(TradewindError, OSError):
            self._programs.close()


def slurm_nodes(programs: SlurmCommands, partition: str, timeout: float) -> dict[str, Mapping[str, float]]:
    """Query the amounts of the nodes that take work, by name: ``cpu``, ``memory`` in GiB, ``gpu``.

    Args:
        programs: Slurm's programs.
        partition: The partition; empty for all.
        timeout: Seconds to wait for an answer.

    Raises:
        DeployError: Slurm does not answer.
        InputError: There is no such partition.
    """
    words = ["-h", "-N", "-o", "%N|%c|%m|%G|%T"]
    answer = programs.ask("sinfo", *words, *(["-p", partition] if partition else []), timeout=timeout)
    if partition and not answer.strip():
        # sinfo prints nothing for a partition that does not exist.
        raise InputError(f"Slurm has no partition {partition!r} with nodes", hint="sinfo lists the partitions")
    return read_nodes(answer)


def read_nodes(text: str) -> dict[str, Mapping[str, float]]:
    """Read the nodes in the output of ``sinfo``; those that are down, drained or do not answer are left out."""
    found: dict[str, Mapping[str, float]] = {}
    for line in text.splitlines():
        name, cpus, megabytes, devices, state = line.strip().split("|")
        # A star behind the state: the node does not answer. A minus: it is kept for a job that is about to start, which
        # may be one of ours. Other signs say that it sleeps or reboots.
        if state.rstrip("+-") not in _WORKING_STATES:
            continue
        gpus = sum(int(count) for count in _GPUS.findall(devices))
        amounts = {"cpu": float(cpus), "memory": float(megabytes) / 1024.0, "gpu": float(gpus)}
        found[name] = {kind: amount for kind, amount in amounts.items() if amount}
    return found
