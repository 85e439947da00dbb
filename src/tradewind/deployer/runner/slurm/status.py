"""The status of a run, from the result that its job left and from Slurm's queue and records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tradewind.deployer.runner import exit_reasons
from tradewind.deployer.runner.slurm.commands import TOO_MUCH
from tradewind.deployer.runner.slurm.handle import SlurmData
from tradewind.deployer.runner.slurm.queue import WAITING_STATES, SlurmJobRecord, SlurmQueueRow
from tradewind.deployer.runner.slurm.quota import SHARED
from tradewind.problem import Fault, RunState, RunStatus, Usage

_LOST = {
    "NODE_FAIL": "a node failed",
    "PREEMPTED": "Slurm gave its nodes to another job",
    "BOOT_FAIL": "a node did not boot",
    "REVOKED": "another cluster took it",
    "DEADLINE": "it could not start before its deadline",
    "REQUEUED": "Slurm put it back into the queue",
}
_TOO_LARGE = {
    "PartitionConfig": "the partition has not that many nodes or CPUs",
    "PartitionTimeLimit": "the partition's time limit is shorter: set deploy.longest",
    "PartitionNodeLimit": "the partition allows fewer nodes",
    "BadConstraints": "no node is as asked for",
    "MaxMemPerLimit": "it asks for more memory for each CPU or node than one job may",
}
_NOT_ALLOWED = {
    "InvalidAccount": "the account is not known",
    "InvalidQOS": "the quality of service is not known",
    "AccountNotAllowed": "the account may not use the partition",
    "QOSNotAllowed": "the quality of service may not use the partition",
}
_NEVER_STARTS = {
    **_TOO_LARGE,
    **_NOT_ALLOWED,
    "PartitionInactive": "the partition is inactive",
    "DependencyNeverSatisfied": "a job that it depends on has failed",
    "launch_failed_requeued_held": "a node could not start it",
    "launch failed requeued held": "a node could not start it",
    "job_requeued_in_held_state": "it was put back into the queue, held",
}
_EXITS = {
    78: "{nodes} does not see {folder}: set `folder` of the slurm runner to one on a file system of all nodes",
    79: "{nodes} cannot write into {folder}: the disk is full, or the folder is not the user's there",
}
_KILLED = (137, 143)
"""The exit codes of a program that SIGKILL or SIGTERM ended: at a time limit Slurm sends these to all steps at once,
and the program may end before the job script has seen it."""
_MOVED = ("read_bytes", "written_bytes", "network_bytes")


def waiting(row: SlurmQueueRow) -> RunStatus | None:
    """The status of a job that waits in the queue; None for one that has started."""
    reason = "" if row.reason == "None" else row.reason
    return RunStatus(RunState.SUBMITTING, reason=reason) if row.state in WAITING_STATES else None


def blocking_reason(row: SlurmQueueRow, beyond: str) -> str:
    """The reason why Slurm will never start a job that waits, or an empty text.

    Args:
        row: The job's row in the queue.
        beyond: The answer of `SlurmQuota.beyond` about it.
    """
    if row.state not in WAITING_STATES:
        return ""
    why = _NEVER_STARTS.get(row.reason, "") or beyond
    if TOO_MUCH.fullmatch(row.reason):
        why = "it asks for more, or less, than one job may: offer other sizes, set deploy.longest, or name another qos"
    return f"Slurm will never start it: {why} ({row.reason})" if why else ""


def abandoned_result(row: SlurmQueueRow, why: str) -> dict[str, Any]:
    """The result of a run whose job Slurm would never start.

    Where sbatch could have refused it, as it does where `EnforcePartLimits` is set, it ends as if it had: another
    attempt would wait for nothing again.

    Args:
        row: The job's row in the queue.
        why: The answer of `blocking_reason` about it.
    """
    if row.reason in _TOO_LARGE or TOO_MUCH.fullmatch(row.reason) or SHARED.fullmatch(row.reason):
        return {"state": "refused", "fault": Fault.JOB, "reason": why, "runtime": 0.0}
    if row.reason in _NOT_ALLOWED:
        return {"state": "refused", "fault": Fault.CREDENTIALS, "reason": why, "runtime": 0.0}
    return {"state": "lost", "reason": why, "runtime": 0.0}


def is_end(result: Mapping[str, Any] | None) -> bool:
    """True when a result says how the run ended."""
    return result is not None and result.get("state", "executing") != "executing"


def needs_accounting(result: Mapping[str, Any]) -> bool:
    """True when only Slurm knows why a run ended: it was ended from outside."""
    if result.get("judged"):
        return False
    return result["state"] == "terminated" or (result["state"] == "failed" and result.get("exit_code") in _KILLED)


def status_of_result(result: Mapping[str, Any], data: SlurmData, cancelled: str | None) -> RunStatus:
    """The status of a run by its result.

    Args:
        result: The result that the job script, or a controller, has written.
        data: The data of its handle.
        cancelled: The reason of its cancellation from here, or None.
    """
    state, code = str(result["state"]), int(result.get("exit_code") or 0)
    runtime = float(result.get("runtime") or 0.0)
    program, work = data.program, data.workdir
    usage = _usage(result, spread=data.spread)

    def failed(reason: str, code: int | None = code) -> RunStatus:
        return RunStatus(RunState.FAILED, runtime, reason, Fault.JOB, code, usage)

    signalled = exit_reasons.exit_code_of(code)
    match state:
        case "done":
            return RunStatus(RunState.DONE, runtime, exit_code=0, usage=usage)
        case "missing":
            return failed(f"there is no program {program!r}: install it on the nodes, or give its path", 127)
        case "inert":
            return failed(f"{program} is not executable: chmod +x {program}", 127)
        case "workdir":
            where = result.get("node") or "the node"
            return lost_run_status(
                f"{where} cannot enter the working folder {work}: it must be on a shared file system", 0.0
            )
        case "out_of_memory":
            return failed(exit_reasons.out_of_memory_reason(data.memory_bytes), signalled)
        case "timed_out":
            reason = _timeout_reason(data, runtime, float(result.get("limit") or 0.0))
            return RunStatus(RunState.TIMED_OUT, runtime, reason, Fault.JOB, signalled, usage)
        case "failed":
            return failed(exit_reasons.failure_reason(signalled), signalled)
        case "refused":
            return RunStatus(RunState.FAILED, 0.0, str(result["reason"]), Fault(result["fault"]))
        case "cancelled":
            return RunStatus(RunState.CANCELLED, runtime, cancelled or str(result.get("reason", "")), usage=usage)
        case "terminated" if cancelled is not None:
            return RunStatus(RunState.CANCELLED, runtime, cancelled, exit_code=signalled, usage=usage)
    return lost_run_status(str(result.get("reason") or "something outside of Tradewind ended it"), runtime)


def _timeout_reason(data: SlurmData, runtime: float, limit: float) -> str:
    """The reason of a run that reached a time limit, with which one.

    Args:
        data: The data of its handle.
        runtime: Seconds that it ran.
        limit: Slurm's own limit in seconds where Slurm ended it; 0 where the job script did, or where it is not known.
    """
    wall = data.wall_seconds
    if wall and (runtime >= wall or (data.asked and (not limit or limit >= wall))):
        return exit_reasons.timeout_reason(wall)
    if data.asked:
        advice = "see --time under `sbatch` of the runner, and the limits of its partition and qos"
        return exit_reasons.engine_timeout_reason("Slurm's", limit, advice)
    advice = "set deploy.longest or a deadline to ask for more"
    return exit_reasons.engine_timeout_reason("the partition's usual", limit, advice)


def accounting_result(
    record: SlurmJobRecord, result: Mapping[str, Any] | None, data: SlurmData, *, cancelled: bool, used: float
) -> dict[str, Any]:
    """The result of a run that left none, or whose end only Slurm can explain.

    Args:
        record: Slurm's record of its job.
        result: The result that the job script has written, or None.
        data: The data of its handle.
        cancelled: True when a controller has cancelled it.
        used: Seconds that it was last seen to have run.
    """
    known = dict(result or {})
    known["runtime"] = known.get("runtime") or max(record.elapsed, used)
    known.setdefault("exit_code", record.code or (exit_reasons.SIGNAL_OFFSET + record.signal if record.signal else 0))
    ended = is_end(result)
    state, reason = "lost", ""
    if cancelled:
        state = "cancelled"
    elif record.state == "OUT_OF_MEMORY":
        state = "out_of_memory"
    elif record.state == "TIMEOUT":
        state = "timed_out"
    elif record.state in _LOST:
        reason = _LOST[record.state]
    elif record.state == "CANCELLED":
        reason = "somebody else cancelled its job"
    elif ended and known["state"] == "failed":
        state = "failed"
    elif record.code in _EXITS and not result:
        reason = _EXITS[record.code].format(nodes=record.nodes or "the node", folder=data.folder)
    elif record.state == "COMPLETED" and not ended:
        state = "done"
    elif record.state == "FAILED" and record.code and result and not record.signal:
        state = "failed"
    else:
        reason = f"its job ended without a result ({record.words})"
    return {**known, "state": state, "reason": reason, "limit": record.limit}


def lost_run_status(reason: str, runtime: float) -> RunStatus:
    """The status of a run that was lost by the infrastructure's fault."""
    return RunStatus(RunState.PREEMPTED, runtime, reason, Fault.INFRASTRUCTURE)


def _usage(result: Mapping[str, Any], *, spread: bool) -> Usage:
    """The usage of a run; the job script does not see the processor time of tasks that srun starts."""
    peak = int(result.get("peak_kib") or 0) * 1024
    times = {f"{name}_seconds": exit_reasons.shell_seconds(str(result.get(name, ""))) for name in ("user", "system")}
    seconds = {name: time for name, time in times.items() if time is not None and not spread}
    moved = {name: float(result[name]) for name in _MOVED if isinstance(result.get(name), int) and not spread}
    return Usage(peak or None, sum(seconds.values()) if seconds else None, seconds | moved)
