"""The data of htcondor handles, and the status of a run from its event log or its job ad."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tradewind.deployer.runner import exit_reasons
from tradewind.deployer.runner.handle import HandleData
from tradewind.deployer.runner.htcondor.event_log import JobLogSummary
from tradewind.deployer.runner.htcondor.submit_description import MISSING, NOT_EXECUTABLE
from tradewind.deployer.runner.image_errors import image_fault
from tradewind.problem import Fault, RunState, RunStatus, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class HtCondorData(HandleData):
    """The data of an htcondor handle; two files in the run's exchange folder have the same.

    Attributes:
        folder: The run's folder; empty where only its tags are known.
        program: The first word of its command.
        wall: Its time limit in seconds, or None.
        cluster: HTCondor's number of the submission, or None while it is not known.
        process: The number of its job in the submission, or None while it is not known.
        submitted: The time when it was submitted, in seconds since the epoch, or None while it is not known.
        look: True for a run that is only looked at: this process does not submit it where it waits.
    """

    folder: str = ""
    program: str = ""
    wall: float | None = None
    cluster: int | None = None
    process: int | None = None
    submitted: float | None = None
    look: bool = False

    @property
    def place(self) -> Path | None:
        """The run's folder, or None where only its tags are known."""
        return Path(self.folder) if self.folder else None


_IDLE, _RUNNING, _REMOVED, _COMPLETED, _HELD, _SENDING, _STOPPED = 1, 2, 3, 4, 5, 6, 7
_BY_HAND, _POLICY, _NO_START, _OUTPUT, _INPUT, _NO_FOLDER = 1, 3, 6, 12, 13, 14
_SPOOLING, _SYSTEM, _IN_TOO_LARGE, _OUT_TOO_LARGE, _RESOURCES, _IMAGE = 16, 26, 32, 33, 34, 35
_DURATION, _EXECUTION = 46, 47
_ABOUT_TIME = re.compile(
    r"\b(wall[ -]?(clock|time)|run[ -]?time|(time|duration) limit|max\w* (run|time))", re.IGNORECASE
)
"""A pool's own policies say in their own words that a job has run for too long."""


def expiry_of(ad: Mapping[str, Any]) -> float | None:
    """The time from which anyone may end a job, in seconds since the epoch; its time in the queue does not count.

    None for one that waits: it costs nothing, and once it has begun it is held to its wall time.

    Args:
        ad: The job ad from condor_q.
    """
    if int(ad.get("JobStatus", 0)) == _IDLE or "TradewindExpires" not in ad:
        return None
    expires = float(ad["TradewindExpires"])
    if "TradewindLasts" in ad and "EnteredCurrentStatus" in ad:
        expires = max(expires, float(ad["EnteredCurrentStatus"]) + float(ad["TradewindLasts"]))
    return expires


def why_idle(ad: Mapping[str, Any] | None) -> str:
    """The reason why a job waits, as the negotiator gave it when it last looked for a machine; empty without one.

    Args:
        ad: The job ad from condor_q, or None.
    """
    if ad is None or int(ad.get("JobStatus", 0)) != _IDLE or not ad.get("LastRejMatchReason"):
        return ""
    if float(ad.get("LastMatchTime") or 0) > float(ad.get("LastRejMatchTime") or 0):
        return ""  # it has a machine by now, and is about to begin
    return (
        f"{str(ad['LastRejMatchReason']).strip()} (condor_q -better-analyze {ad['ClusterId']}.{ad['ProcId']} says more)"
    )


def summary_of_ad(ad: Mapping[str, Any]) -> JobLogSummary:
    """The state of a run by its job ad, in the form of that of its event log."""
    status = int(ad.get("JobStatus", 0))
    names = {_IDLE: "idle", _REMOVED: "removed", _COMPLETED: "terminated", _HELD: "held"}
    state = names.get(status, "running")
    code = ad.get("ExitCode")
    if ad.get("ExitBySignal"):
        code = -int(ad.get("ExitSignal", 0))
    if state == "held" and int(ad.get("HoldReasonCode", 0)) == _SPOOLING:
        state = "idle"
    if state == "idle" and int(ad.get("NumJobStarts", 0)) > 0:
        state = "lost"
    wall = float(ad.get("RemoteWallClockTime") or 0.0)
    ended = float(ad.get("CompletionDate") or 0) or float(ad.get("EnteredCurrentStatus") or 0) or None
    begun = float(ad.get("JobCurrentStartExecutingDate") or 0) or None
    if begun is None and wall and ended:
        begun = ended - wall
    return JobLogSummary(
        cluster=ad.get("ClusterId"),
        process=int(ad.get("ProcId", 0)),
        state=state,
        begun=begun,
        ended=None if state in ("idle", "running") else ended,
        code=None if code is None else int(code),
        reason=str(ad.get("HoldReason" if state == "held" else "RemoveReason") or ""),
        hold=(int(ad.get("HoldReasonCode", 0)), int(ad.get("HoldReasonSubCode", 0))),
    )


def result_of(path: Path) -> dict[str, str]:
    """The fields that the job's script has written about its end; empty while it has not."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    return dict(line.partition("=")[::2] for line in lines if "=" in line)


def status_of(
    summary: JobLogSummary, result: Mapping[str, str], program: str, wall_seconds: float | None, cancelled: str | None
) -> RunStatus:
    """The status of a run.

    Args:
        summary: Its state by its event log, or by its job ad where there is no log.
        result: The fields that its script has written; see `result_of`.
        program: The first word of its command.
        wall_seconds: Its time limit in seconds, or None.
        cancelled: The reason of its cancellation, or None if it was not cancelled from here.
    """
    runtime = _runtime(summary, result)
    own = exit_reasons.shell_seconds(result.get("cpu", ""))  # the log of events has whole seconds only
    usage = Usage(summary.memory_bytes, summary.cpu_seconds if own is None else own)

    def ended(state: RunState, reason: str, fault: Fault | None, code: int | None = None) -> RunStatus:
        return RunStatus(state, runtime=runtime, reason=reason, fault=fault, exit_code=code, usage=usage)

    if summary.state == "terminated":
        state, reason, fault, code = _exit(summary, result, program, wall_seconds)
        return ended(state, reason, fault, code)
    if summary.final and cancelled is not None:
        return ended(RunState.CANCELLED, cancelled, None)
    if summary.state == "held":
        return ended(*_hold(summary, wall_seconds, runtime))
    if summary.state == "removed" and _ABOUT_TIME.search(summary.reason):
        return ended(RunState.TIMED_OUT, _site_timeout(summary.reason), Fault.JOB)
    if summary.state in ("removed", "lost"):
        why = summary.reason or "HTCondor does not say why"
        what = "it was removed from HTCondor's queue" if summary.state == "removed" else "it lost its machine"
        return ended(RunState.PREEMPTED, f"{what}: {why}", Fault.INFRASTRUCTURE)
    return RunStatus(
        RunState.EXECUTING if summary.state == "running" else RunState.SUBMITTING, runtime=runtime, usage=usage
    )


def _runtime(summary: JobLogSummary, result: Mapping[str, str]) -> float:
    try:
        # A date program that knows no fractions leaves the %N, or nothing, behind the point.
        begun, ended = (float(re.match(r"\d+(\.\d+)?", result[name])[0]) for name in ("begun", "ended"))  # type: ignore[index]
        return max(0.0, ended - begun)
    except (KeyError, TypeError):
        pass
    if summary.begun is None:
        return 0.0
    return max(0.0, (summary.ended or time.time()) - summary.begun)


def _exit(
    summary: JobLogSummary, result: Mapping[str, str], program: str, wall_seconds: float | None
) -> tuple[RunState, str, Fault | None, int | None]:
    # The script's shell writes 128 and more for a program that a signal ended.
    code = None if summary.code is None else exit_reasons.exit_code_of(summary.code)
    noted = result.get("fault", "")
    if noted == "late":
        return RunState.TIMED_OUT, exit_reasons.timeout_reason(wall_seconds), Fault.JOB, code
    if noted == "missing":
        words = "there is no program" if code == MISSING else "not executable on its machine:"
        return RunState.FAILED, f"{words} {program!r}", Fault.JOB, MISSING
    if noted == "workdir":
        words = "its machine does not see the working folder; set files to transfer"
        return RunState.PREEMPTED, words, Fault.INFRASTRUCTURE, code
    if noted == "chirp":
        words = "its machine has no condor_chirp, by which it would send its checkpoints; leave deploy.checkpoint out"
        return RunState.PREEMPTED, words, Fault.INFRASTRUCTURE, code
    if code == 0:
        return RunState.DONE, "", None, 0
    if code is None:
        return RunState.PREEMPTED, "HTCondor does not say how it ended", Fault.INFRASTRUCTURE, None
    if not noted and "code" not in result and code == NOT_EXECUTABLE:
        words = "its files could not be unpacked on its machine (is there a tar?)"
        return RunState.PREEMPTED, words, Fault.INFRASTRUCTURE, code
    return RunState.FAILED, exit_reasons.failure_reason(code), Fault.JOB, code


def _site_timeout(why: str) -> str:
    """The reason of a run that a time limit of the pool ended."""
    return exit_reasons.engine_timeout_reason("the pool's", None, why)


def _hold(summary: JobLogSummary, wall_seconds: float | None, runtime: float) -> tuple[RunState, str, Fault]:
    """The state, reason and fault of a run that HTCondor holds, by the hold code."""
    (code, subcode), why = summary.hold, summary.reason or "HTCondor does not say why"
    low = why.lower()
    if "exec format error" in low:
        return (
            RunState.FAILED,
            f"it is for another processor architecture than its machine's: {why}",
            Fault.ARCHITECTURE,
        )
    about_memory = "memory" in low and code in (_POLICY, _SYSTEM, _RESOURCES, 0)
    if code in (_DURATION, _EXECUTION) or (code in (_POLICY, _SYSTEM) and _ABOUT_TIME.search(why)):
        # The runner sets a limit of the execution only, a little above the run's own.
        own = code == _EXECUTION and not 0 < runtime < (wall_seconds or 0.0)
        words = f"{exit_reasons.timeout_reason(wall_seconds)}: {why}" if own else _site_timeout(why)
        return RunState.TIMED_OUT, words, Fault.JOB
    if about_memory or (code == _RESOURCES and "disk" not in low):
        return RunState.FAILED, f"out of memory: {why}", Fault.JOB
    if code == _IMAGE or (code == _NO_START and "image" in low):
        return RunState.FAILED, f"its container image cannot be used: {why}", image_fault(why, "")
    if code in (_RESOURCES, _OUT_TOO_LARGE, _IN_TOO_LARGE):
        return RunState.FAILED, f"it took more disk than it may: {why}", Fault.JOB
    if code in (_OUTPUT, _INPUT):
        which = "input" if code == _INPUT else "output"
        full = "; the disk is full" if subcode == 28 else ""
        return RunState.PREEMPTED, f"its {which} files were not transferred{full}: {why}", Fault.INFRASTRUCTURE
    if code == _NO_FOLDER:
        words = f"its machine does not see the run's folder; set files to transfer: {why}"
        return RunState.PREEMPTED, words, Fault.INFRASTRUCTURE
    if code == _BY_HAND:
        return RunState.PREEMPTED, f"somebody has put it on hold: {why}", Fault.INFRASTRUCTURE
    return RunState.PREEMPTED, f"HTCondor has put it on hold ({code}.{subcode}): {why}", Fault.INFRASTRUCTURE
