"""Follows runs on a Slurm cluster: from the queue, the files that jobs leave, and what Slurm remembers."""

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
    """What this process knows of a run beside its files."""

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
    """Tells where runs are.

    Args:
        spool: The files that controllers and jobs share.
        queue: What Slurm says.
        backlog: The runs that Slurm has no room for.
        settle: Seconds that the end of a run may take to be seen here after its job has left the queue.
    """

    spool: Spool
    queue: SlurmQueue
    backlog: SlurmBacklog
    settle: float
    allowance: SlurmQuota = field(init=False)
    _seen: dict[str, _KnownRun] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.allowance = SlurmQuota(self.queue)

    def poll(self, runs: Sequence[SlurmRun]) -> dict[str, RunStatus]:
        """Where some runs are, by run id."""
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
        self.allowance.begin()
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
        why = blocking_reason(row, self.allowance.beyond(row))
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
        """End a job that would wait for ever."""
        self.spool.take(run.name, run.data.index)
        with suppress(TradewindError):
            self.queue.cancel(row.job)
        return self._write(run, abandoned_result(row, why))

    def _read(self, run: SlurmRun, seen: _KnownRun) -> RunStatus | None:
        """The status of a run that has left its end, unless Slurm must say why it ended."""
        result = self._result(run)
        if result is None or not is_end(result) or needs_accounting(result):
            return None
        seen.final = status_of_result(result, run.data, self._cancel_reason(run))
        return seen.final

    def _ended_by_us(self, run: SlurmRun) -> RunStatus | None:
        """The status of a run that ended because somebody here cancelled it; None of another."""
        result, wish = self._result(run), self._cancel_reason(run)
        if result is None or result.get("state") != "terminated" or wish is None:
            return None
        return self._final(run, status_of_result(result, run.data, wish))

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
        evidence = self.queue.ends(wanted, since)
        for job, run in unclear.items():
            statuses[run.run_id] = self._without(run, evidence.get(job, _GONE))
        return statuses

    def _never_started(self, run: SlurmRun) -> RunStatus | None:
        """The status of a run that no job has started, and none will as it is now; None of another."""
        name, index = run.name, run.data.index
        if not run.data.batch:
            return self._final(run, lost_status("there is no trace of it"))
        claim = self.spool.claim(name, index)
        if claim == "controller":
            wish = self._cancel_reason(run)
            state = "lost" if wish is None else "cancelled"
            return self._write(run, {"state": state, "reason": "it was taken back before it started", "runtime": 0.0})
        seen = self._seen[run.run_id]
        if claim or run.data.handed or self.spool.job(name) or (about := self.spool.about(name)) is None:
            if not seen.late:
                return None
            # It was handed over after the queue was looked at.
            seen.late, seen.known_since = False, time.monotonic()
            return RunStatus(RunState.SUBMITTING)
        # Only `cancel` takes it back. One of an array is handed over with the others, by who submits them again.
        may = not run.data.look and "options" in about and len(about["runs"]) == 1
        found = self.backlog.look(run, may=may)
        if isinstance(found, RunStatus):
            seen.late = True
            return found
        return self._write(run, found) if self.spool.take(name, index) else None

    def _without(self, run: SlurmRun, evidence: SlurmJobRecord) -> RunStatus:
        """The status of a run whose job has left the queue without an end that speaks for itself."""
        seen = self._seen[run.run_id]
        alive = RunStatus(RunState.EXECUTING, runtime=seen.used)
        if evidence.state in ("COMPLETING", "RUNNING", "PENDING", "SUSPENDED", "CONFIGURING"):
            return alive
        result = self._result(run)
        wish = self._cancel_reason(run)
        sure = evidence.state not in ("UNKNOWN", "COMPLETED", "FAILED") or (is_end(result) and evidence is not _GONE)
        sure = sure or (wish is not None and is_end(result))
        if not sure:
            # The file of its end may be on its way through a shared file system.
            now = time.monotonic()
            seen.missing_since = now if seen.missing_since is None else seen.missing_since
            if now - seen.missing_since < self.settle:
                return alive
        made = accounting_result(evidence, result, run.data, cancelled=wish is not None, used=seen.used)
        status = self._write(run, made)
        if evidence is _GONE and wish is None:
            # A slurmctld that lost its state forgets jobs that run: they see this and end.
            self._write_cancel_mark(run, status.reason)
        return status

    def _write(self, run: SlurmRun, result: Mapping[str, Any]) -> RunStatus:
        """Write down how a run ended that did not do so itself, so that all processes say the same."""
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
        return self._final(run, status_of_result(result, run.data, self._cancel_reason(run)))

    def _final(self, run: SlurmRun, status: RunStatus) -> RunStatus:
        self._seen.setdefault(run.run_id, _KnownRun()).final = status
        return status

    def cancel(self, run: SlurmRun, reason: str) -> None:
        """End a run, by what works: taking it back before it starts, Slurm, and a file that its job looks at."""
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
        """Write the file whose presence tells a job to end; on a full disk it stays empty."""
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
        """The reason for which somebody here cancelled a run, or None if nobody did."""
        folder = run.folder
        if folder is not None:
            with suppress(OSError):
                return (folder / CANCEL).read_text(encoding="utf-8", errors="replace").strip()
        seen = self._seen.get(run.run_id)
        return "" if seen is not None and seen.cancelled else None
