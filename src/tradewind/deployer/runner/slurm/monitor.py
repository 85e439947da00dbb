"""Follows runs on a Slurm cluster, by the queue, the files that jobs leave, and Slurm's records of ended jobs."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tradewind.deployer.runner.exit_reasons import lost_status
from tradewind.deployer.runner.run_files import read_document, replace_document, write_marker
from tradewind.deployer.runner.slurm.backlog import SlurmBacklog
from tradewind.deployer.runner.slurm.handle import SlurmRun
from tradewind.deployer.runner.slurm.load_generator import driven_status
from tradewind.deployer.runner.slurm.queue import SlurmJobRecord, SlurmQueue, SlurmQueueRow, SlurmQueueSnapshot
from tradewind.deployer.runner.slurm.quota import SlurmQuota
from tradewind.deployer.runner.slurm.spool import CANCEL, RESULT, Spool
from tradewind.deployer.runner.slurm.status import (
    abandoned_result,
    accounting_result,
    blocking_reason,
    is_end,
    needs_accounting,
    status_of_result,
    waiting,
)
from tradewind.errors import TradewindError
from tradewind.problem import RunState, RunStatus

_log = logging.getLogger("tradewind.deployer")

_GONE = SlurmJobRecord("UNKNOWN", words="Slurm does not know it any more")


@dataclass
class _KnownRun:
    """The knowledge of this process about a run, beside its files.

    Attributes:
        used: Seconds that it was last seen to have run.
        raw: Slurm's own number of its job, or empty.
        known_since: The time of the monotonic clock when it was first polled here, or handed over late.
        stuck_since: The time since which its job waits for a reason that will not go away, or None.
        missing_since: The time since which its job is not in the queue, or None.
        final: Its status, once it has ended.
        cancelled: True when it was cancelled here.
        late: True when it waited in the backlog at the last look.
    """

    used: float = 0.0
    raw: str = ""
    known_since: float = field(default_factory=time.monotonic)
    stuck_since: float | None = None
    missing_since: float | None = None
    final: RunStatus | None = None
    cancelled: bool = False
    late: bool = False


@dataclass
class SlurmMonitor:
    """Tells the statuses of runs, and cancels them.

    Args:
        spool: The files that controllers and jobs share.
        queue: The queue of Slurm.
        backlog: The runs that Slurm has no room for.
        settle: Seconds that the end of a run may take to be seen here after its job has left the queue.
    """

    spool: Spool
    queue: SlurmQueue
    backlog: SlurmBacklog
    settle: float
    quota: SlurmQuota = field(init=False)
    _seen: dict[str, _KnownRun] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.quota = SlurmQuota(self.queue)

    def poll(self, runs: Sequence[SlurmRun]) -> dict[str, RunStatus]:
        """The statuses of some runs, by run id."""
        statuses: dict[str, RunStatus] = {}
        open_runs = []
        ended = self.spool.ended()
        for run in runs:
            seen = self._seen.setdefault(run.run_id, _KnownRun())
            if seen.final is None and f"{run.name}.{run.data.index}" in ended:
                self._read(run, seen)
            if seen.final is not None:
                statuses[run.run_id] = seen.final
            else:
                open_runs.append(run)
        if open_runs:
            statuses |= self._ask(open_runs)
        return statuses

    def _ask(self, runs: Sequence[SlurmRun]) -> dict[str, RunStatus]:
        statuses = {}
        self.quota.begin()
        snapshot = self.queue.look()
        missing = []
        if snapshot is not None:
            away = [run for run in runs if run.key not in snapshot.rows]
            # One that was submitted after the last look is not missing.
            newest = max((self._seen[run.run_id].known_since for run in away), default=0.0)
            snapshot = self.queue.look(since=newest)
        for run in runs:
            status = self._in_queue(run, snapshot)
            if status is None:
                missing.append(run)
            else:
                statuses[run.run_id] = status
        assert snapshot is not None or not missing
        statuses |= self._missing(missing)
        if snapshot is not None:
            self.backlog.push(alone=not snapshot.rows)
        return statuses

    def _in_queue(self, run: SlurmRun, snapshot: SlurmQueueSnapshot | None) -> RunStatus | None:
        """The status of a run while its job is in the queue, or while Slurm does not answer; None when it is not."""
        seen = self._seen[run.run_id]
        if snapshot is None:
            # The file of its end may be there although Slurm is not.
            status = self._read(run, seen) or self._ended_by_us(run)
            return status or RunStatus(RunState.EXECUTING, runtime=seen.used)
        row = snapshot.rows.get(run.key)
        if row is None:
            return None
        seen.missing_since = None
        seen.raw = row.raw
        why = blocking_reason(row, self.quota.beyond(row))
        if why:
            self.queue.hasten()  # Slurm's first word is often not its last
        seen.stuck_since = (seen.stuck_since or time.monotonic()) if why else None
        if seen.stuck_since is not None and time.monotonic() - seen.stuck_since > self.settle:
            return self._give_up(run, row, why)
        if (status := waiting(row)) is not None:
            return status
        seen.used = row.used + (time.monotonic() - snapshot.begun if row.state == "RUNNING" else 0.0)
        return RunStatus(RunState.EXECUTING, runtime=seen.used, reason="" if row.state == "RUNNING" else row.state)

    def _give_up(self, run: SlurmRun, row: SlurmQueueRow, why: str) -> RunStatus:
        """End a run whose job would wait for ever."""
        self.spool.take(run.name, run.data.index)
        with suppress(TradewindError):
            self.queue.cancel(row.job)
        return self._write(run, abandoned_result(row, why))

    def _read(self, run: SlurmRun, seen: _KnownRun) -> RunStatus | None:
        """The status of a run by the result that it left; None without one, or where Slurm must say why it ended."""
        result = self._result(run)
        if result is None or not is_end(result) or needs_accounting(result):
            return None
        seen.final = self._status(run, result)
        return seen.final

    def _status(self, run: SlurmRun, result: Mapping[str, Any]) -> RunStatus:
        """The status of an ended run by its result, with what is known of its load generator."""
        status = status_of_result(result, run.data, self._cancel_reason(run))
        if not run.data.load_cpus or run.folder is None:
            return status
        return driven_status(status, run.folder, run.data.load_cpus)

    def _ended_by_us(self, run: SlurmRun) -> RunStatus | None:
        """The status of a run that ended because it was cancelled from here; None for any other run."""
        result, reason = self._result(run), self._cancel_reason(run)
        if result is None or result.get("state") != "terminated" or reason is None:
            return None
        return self._final(run, status_of_result(result, run.data, reason))

    def _missing(self, runs: Sequence[SlurmRun]) -> dict[str, RunStatus]:
        """The statuses of runs whose jobs are not in the queue."""
        statuses: dict[str, RunStatus] = {}
        unclear: dict[str, SlurmRun] = {}
        for run in runs:
            seen = self._seen[run.run_id]
            status = self._read(run, seen) or self._ended_by_us(run) or self._never_started(run)
            if status is None and (job := self._job(run)):
                unclear[job] = run
            else:
                statuses[run.run_id] = status or self._without(run, _GONE)
        if not unclear:
            return statuses
        since = min((run.data.submitted or time.time() - 86400) for run in unclear.values())
        wanted = {job: (run.name, self._seen[run.run_id].raw) for job, run in unclear.items()}
        records = self.queue.ends(wanted, since)
        for job, run in unclear.items():
            statuses[run.run_id] = self._without(run, records.get(job, _GONE))
        return statuses

    def _never_started(self, run: SlurmRun) -> RunStatus | None:
        """The status of a run that no job has started, and none will as it is now; None for any other run."""
        name, index = run.name, run.data.index
        if not run.data.batch:
            return self._final(run, lost_status("there is no trace of it"))
        claim = self.spool.claim(name, index)
        if claim == "controller":
            cancelled = self._cancel_reason(run) is not None
            state = "cancelled" if cancelled else "lost"
            return self._write(run, {"state": state, "reason": "it was taken back before it started", "runtime": 0.0})
        seen = self._seen[run.run_id]
        if claim or run.data.handed or self.spool.job(name) or (about := self.spool.about(name)) is None:
            if not seen.late:
                return None
            # It was handed over after the queue was looked at.
            seen.late, seen.known_since = False, time.monotonic()
            return RunStatus(RunState.SUBMITTING)
        # Only `cancel` takes it back. A run of an array is handed over with the others, when they are submitted again.
        may = not run.data.look and "options" in about and len(about["runs"]) == 1
        found = self.backlog.look(run, may=may)
        if isinstance(found, RunStatus):
            seen.late = True
            return found
        return self._write(run, found) if self.spool.take(name, index) else None

    def _without(self, run: SlurmRun, record: SlurmJobRecord) -> RunStatus:
        """The status of a run whose job has left the queue without a result that is clear by itself."""
        seen = self._seen[run.run_id]
        alive = RunStatus(RunState.EXECUTING, runtime=seen.used)
        if record.state in ("COMPLETING", "RUNNING", "PENDING", "SUSPENDED", "CONFIGURING"):
            return alive
        result = self._result(run)
        cancelled = self._cancel_reason(run) is not None
        sure = record.state not in ("UNKNOWN", "COMPLETED", "FAILED") or (is_end(result) and record is not _GONE)
        sure = sure or (cancelled and is_end(result))
        if not sure:
            # The file of its end may be on its way through a shared file system.
            now = time.monotonic()
            seen.missing_since = now if seen.missing_since is None else seen.missing_since
            if now - seen.missing_since < self.settle:
                return alive
        made = accounting_result(record, result, run.data, cancelled=cancelled, used=seen.used)
        status = self._write(run, made)
        if record is _GONE and not cancelled:
            # A slurmctld that lost its state forgets jobs that run: they see this and end.
            self._write_cancel_mark(run, status.reason)
        return status

    def _write(self, run: SlurmRun, result: Mapping[str, Any]) -> RunStatus:
        """Write the result of a run that has left none, so that all processes give the same status."""
        folder = run.folder
        if folder is not None and folder.is_dir():
            known = self._result(run)
            if known is not None and is_end(known) and not needs_accounting(known):
                result = known
            else:
                with suppress(OSError):
                    replace_document(folder / RESULT, {"truncated": False, "exit_code": None, **result, "judged": True})
            if run.data.batch:
                with suppress(OSError):
                    self.spool.mark(run.name, run.data.index).touch()
        return self._final(run, self._status(run, result))

    def _final(self, run: SlurmRun, status: RunStatus) -> RunStatus:
        self._seen.setdefault(run.run_id, _KnownRun()).final = status
        return status

    def cancel(self, run: SlurmRun, reason: str) -> None:
        """End a run in every way: take it back before it starts, cancel its job, and leave a file for the job."""
        seen = self._seen.setdefault(run.run_id, _KnownRun())
        if seen.final is not None or self._read(run, seen) is not None:
            return
        self._write_cancel_mark(run, reason)
        seen.cancelled = True
        name, index = run.name, run.data.index
        taken = bool(run.data.batch) and self.spool.take(name, index)
        try:
            row = self.queue.row(run.key, seen.known_since)
            if row is not None:
                self.queue.cancel(row.job)
        except TradewindError as error:
            # The job script sees the file; and the engine asks again while the run goes on.
            _log.warning("run %s: %s", run.run_id, error)
        if taken:
            self.backlog.drop(name)
            self._write(run, {"state": "cancelled", "reason": reason, "runtime": 0.0})

    def _write_cancel_mark(self, run: SlurmRun, reason: str) -> None:
        """Write the file by whose presence a job ends; on a full disk it stays empty."""
        folder = run.folder
        if folder is not None and folder.is_dir():
            write_marker(folder / CANCEL, reason)

    def forget(self, run_id: str) -> None:
        """Forget a settled run."""
        self._seen.pop(run_id, None)

    def _job(self, run: SlurmRun) -> str:
        """Slurm's id of a run's job, or empty while it is not known."""
        name, index = run.name, run.data.index
        claim = self.spool.claim(name, index)
        if claim[:1].isdigit():
            return claim
        job = run.data.job or self.spool.job(name)
        about = self.spool.about(name)
        several = len(about["runs"]) > 1 if about else "+" in name
        return f"{job}_{index}" if job and several else job

    def _result(self, run: SlurmRun) -> dict[str, Any] | None:
        folder = run.folder
        return read_document(folder / RESULT) if folder is not None else None

    def _cancel_reason(self, run: SlurmRun) -> str | None:
        """The reason of a run's cancellation from here, or None if it was not cancelled."""
        folder = run.folder
        if folder is not None:
            with suppress(OSError):
                return (folder / CANCEL).read_text(encoding="utf-8", errors="replace").strip()
        seen = self._seen.get(run.run_id)
        return "" if seen is not None and seen.cancelled else None
