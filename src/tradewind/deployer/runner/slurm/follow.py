"""Follows runs on a Slurm cluster: from the queue, the files that jobs leave, and what Slurm remembers."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tradewind.deployer.runner.endings import gone
from tradewind.deployer.runner.files import document, replace_document
from tradewind.deployer.runner.slurm.queue import Evidence, Queue, Row, Snapshot
from tradewind.deployer.runner.slurm.spool import CANCEL, HANDED, RESULT, Spool, plain
from tradewind.deployer.runner.slurm.status import hopeless, is_end, needs_word, settled, verdict, waiting
from tradewind.errors import TradewindError
from tradewind.problem import Handle, RunState, RunStatus

_log = logging.getLogger("tradewind.deployer")

_GONE = Evidence("UNKNOWN", words="Slurm does not know it any more")


@dataclass
class _Seen:
    """What this process knows of a run beside its files."""

    used: float = 0.0
    raw: str = ""
    known_since: float = field(default_factory=time.monotonic)
    stuck_since: float | None = None
    missing_since: float | None = None
    final: RunStatus | None = None
    cancelled: bool = False


@dataclass
class Follower:
    """Tells where runs are.

    Args:
        spool: The files that controllers and jobs share.
        queue: What Slurm says.
        settle: Seconds that the end of a run may take to be seen here after its job has left the queue.
    """

    spool: Spool
    queue: Queue
    settle: float
    _seen: dict[str, _Seen] = field(default_factory=dict)

    def poll(self, handles: Sequence[Handle]) -> dict[str, RunStatus]:
        """Where some runs are, by run id."""
        statuses: dict[str, RunStatus] = {}
        open_handles = []
        ended = self.spool.ended()
        for handle in handles:
            seen = self._seen.setdefault(handle.run_id, _Seen())
            if seen.final is None and f"{_name(handle)}.{_index(handle)}" in ended:
                self._read(handle, seen)
            if seen.final is not None:
                statuses[handle.run_id] = seen.final
            else:
                open_handles.append(handle)
        if open_handles:
            statuses |= self._ask(open_handles)
        return statuses

    def _ask(self, handles: Sequence[Handle]) -> dict[str, RunStatus]:
        statuses = {}
        snapshot = self.queue.look()
        missing = []
        if snapshot is not None:
            away = [handle for handle in handles if _key(handle) not in snapshot.rows]
            # One that was submitted after the last look is not missing.
            newest = max((self._seen[handle.run_id].known_since for handle in away), default=0.0)
            snapshot = self.queue.look(since=newest)
        for handle in handles:
            status = self._in_queue(handle, snapshot)
            if status is None:
                missing.append(handle)
            else:
                statuses[handle.run_id] = status
        assert snapshot is not None or not missing
        return statuses | self._missing(missing)

    def _in_queue(self, handle: Handle, snapshot: Snapshot | None) -> RunStatus | None:
        """The status of a run while its job is in the queue, or while Slurm does not answer; None when it is not."""
        seen = self._seen[handle.run_id]
        if snapshot is None:
            # The file of its end may be there although Slurm is not.
            status = self._read(handle, seen) or self._ended_by_us(handle)
            return status or RunStatus(RunState.EXECUTING, runtime=seen.used)
        row = snapshot.rows.get(_key(handle))
        if row is None:
            return None
        seen.missing_since = None
        seen.raw = row.raw
        why = hopeless(row)
        seen.stuck_since = (seen.stuck_since or time.monotonic()) if why else None
        if seen.stuck_since is not None and time.monotonic() - seen.stuck_since > self.settle:
            return self._give_up(handle, row, why)
        if (status := waiting(row)) is not None:
            return status
        seen.used = row.used + (time.monotonic() - snapshot.begun if row.state == "RUNNING" else 0.0)
        return RunStatus(RunState.EXECUTING, runtime=seen.used, reason="" if row.state == "RUNNING" else row.state)

    def _give_up(self, handle: Handle, row: Row, why: str) -> RunStatus:
        """End a job that would wait for ever."""
        self.spool.take(_name(handle), _index(handle))
        with suppress(TradewindError):
            self.queue.cancel(row.job)
        return self._write(handle, {"state": "lost", "reason": why, "runtime": 0.0})

    def _read(self, handle: Handle, seen: _Seen) -> RunStatus | None:
        """The status of a run that has left its end, unless Slurm must say why it ended."""
        result = self._result(handle)
        if result is None or not is_end(result) or needs_word(result):
            return None
        seen.final = settled(result, handle.data, self._wish(handle))
        return seen.final

    def _ended_by_us(self, handle: Handle) -> RunStatus | None:
        """The status of a run that ended because somebody here cancelled it; None of another."""
        result, wish = self._result(handle), self._wish(handle)
        if result is None or result.get("state") != "terminated" or wish is None:
            return None
        return self._final(handle, settled(result, handle.data, wish))

    def _missing(self, handles: Sequence[Handle]) -> dict[str, RunStatus]:
        """The statuses of runs whose jobs are not in the queue."""
        statuses: dict[str, RunStatus] = {}
        unclear: dict[str, Handle] = {}
        for handle in handles:
            seen = self._seen[handle.run_id]
            status = self._read(handle, seen) or self._ended_by_us(handle) or self._never_started(handle)
            if status is None and (job := self._job(handle)):
                unclear[job] = handle
            else:
                statuses[handle.run_id] = status or self._without(handle, _GONE)
        if not unclear:
            return statuses
        since = min(float(handle.data.get("submitted") or time.time() - 86400) for handle in unclear.values())
        wanted = {job: (_name(handle), self._seen[handle.run_id].raw) for job, handle in unclear.items()}
        evidence = self.queue.ends(wanted, since)
        for job, handle in unclear.items():
            statuses[handle.run_id] = self._without(handle, evidence.get(job, _GONE))
        return statuses

    def _never_started(self, handle: Handle) -> RunStatus | None:
        """The status of a run that no job has started, and none will as it is now; None of another."""
        name, index = _name(handle), _index(handle)
        if not handle.data.get("batch"):
            return self._final(handle, gone("there is no trace of it"))
        claim = self.spool.claim(name, index)
        if claim == "controller":
            wish = self._wish(handle)
            state = "lost" if wish is None else "cancelled"
            return self._write(
                handle, {"state": state, "reason": "it was taken back before it started", "runtime": 0.0}
            )
        if claim or handle.data.get(HANDED) or self.spool.job(name) or self.spool.about(name) is None:
            return None
        # Whoever wrote it down may be about to hand it over, or comes back for it: only `cancel` takes it back.
        return RunStatus(RunState.SUBMITTING, reason="it is not handed to Slurm yet")

    def _without(self, handle: Handle, evidence: Evidence) -> RunStatus:
        """The status of a run whose job has left the queue without an end that speaks for itself."""
        seen = self._seen[handle.run_id]
        alive = RunStatus(RunState.EXECUTING, runtime=seen.used)
        if evidence.state in ("COMPLETING", "RUNNING", "PENDING", "SUSPENDED", "CONFIGURING"):
            return alive
        result = self._result(handle)
        wish = self._wish(handle)
        sure = evidence.state not in ("UNKNOWN", "COMPLETED", "FAILED") or (is_end(result) and evidence is not _GONE)
        sure = sure or (wish is not None and is_end(result))
        if not sure:
            # The file of its end may be on its way through a shared file system.
            now = time.monotonic()
            seen.missing_since = now if seen.missing_since is None else seen.missing_since
            if now - seen.missing_since < self.settle:
                return alive
        made = verdict(evidence, result, handle.data, cancelled=wish is not None, used=seen.used)
        status = self._write(handle, made)
        if evidence is _GONE and wish is None:
            # A slurmctld that lost its state forgets jobs that run: they see this and end.
            self._leave_wish(handle, status.reason)
        return status

    def _write(self, handle: Handle, result: Mapping[str, Any]) -> RunStatus:
        """Write down how a run ended that did not do so itself, so that all processes say the same."""
        folder = _folder(handle)
        if folder is not None and folder.is_dir():
            known = self._result(handle)
            if known is not None and is_end(known) and not needs_word(known):
                result = known
            else:
                with suppress(OSError):
                    replace_document(folder / RESULT, {"truncated": False, "exit_code": None, **result, "judged": True})
            if handle.data.get("batch"):
                with suppress(OSError):
                    self.spool.mark(_name(handle), _index(handle)).touch()
        return self._final(handle, settled(result, handle.data, self._wish(handle)))

    def _final(self, handle: Handle, status: RunStatus) -> RunStatus:
        self._seen.setdefault(handle.run_id, _Seen()).final = status
        return status

    def cancel(self, handle: Handle, reason: str) -> None:
        """End a run, by what works: taking it back before it starts, Slurm, and a file that its job looks at."""
        seen = self._seen.setdefault(handle.run_id, _Seen())
        if seen.final is not None or self._read(handle, seen) is not None:
            return
        self._leave_wish(handle, reason)
        seen.cancelled = True
        name, index = _name(handle), _index(handle)
        taken = bool(handle.data.get("batch")) and self.spool.take(name, index)
        try:
            row = self.queue.row(_key(handle), seen.known_since)
            if row is not None:
                self.queue.cancel(row.job)
        except TradewindError as error:
            # The job script sees the file; and the engine asks again while the run goes on.
            _log.warning("run %s: %s", handle.run_id, error)
        if taken:
            self._write(handle, {"state": "cancelled", "reason": reason, "runtime": 0.0})

    def _leave_wish(self, handle: Handle, reason: str) -> None:
        """Write the file whose presence tells a job to end; on a full disk it stays empty."""
        folder = _folder(handle)
        if folder is not None and folder.is_dir():
            with suppress(OSError):
                fd = os.open(folder / CANCEL, os.O_WRONLY | os.O_CREAT, 0o644)
                try:
                    os.write(fd, reason.encode())
                finally:
                    os.close(fd)

    def forget(self, run_id: str) -> None:
        """Forget a settled run."""
        self._seen.pop(run_id, None)

    def _job(self, handle: Handle) -> str:
        """Slurm's id of a run's job, or empty while it is not known."""
        name, index = _name(handle), _index(handle)
        claim = self.spool.claim(name, index)
        if claim[:1].isdigit():
            return claim
        job = str(handle.data.get("job") or self.spool.job(name))
        about = self.spool.about(name)
        several = len(about["runs"]) > 1 if about else "+" in name
        return f"{job}_{index}" if job and several else job

    def _result(self, handle: Handle) -> dict[str, Any] | None:
        folder = _folder(handle)
        return document(folder / RESULT) if folder is not None else None

    def _wish(self, handle: Handle) -> str | None:
        """The reason for which somebody here cancelled a run, or None if nobody did."""
        folder = _folder(handle)
        if folder is not None:
            with suppress(OSError):
                return (folder / CANCEL).read_text(encoding="utf-8", errors="replace").strip()
        seen = self._seen.get(handle.run_id)
        return "" if seen is not None and seen.cancelled else None


def _name(handle: Handle) -> str:
    return str(handle.data.get("batch") or plain(handle.run_id))


def _index(handle: Handle) -> int:
    return int(handle.data.get("index") or 0)


def _key(handle: Handle) -> tuple[str, int]:
    return _name(handle), _index(handle)


def _folder(handle: Handle) -> Path | None:
    folder = handle.data.get("folder")
    return Path(folder) if folder else None
