"""The data of ray handles, and the status of a run from its records in the cluster's store."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from tradewind.deployer.runner.exit_reasons import failure_reason, lost_status, out_of_memory_reason, timeout_reason
from tradewind.deployer.runner.handle import HandleData
from tradewind.problem import Fault, Handle, RunState, RunStatus, Usage

_SLACK_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RayData(HandleData):
    """The data of a ray handle; the cluster's store has the same.

    Attributes:
        folder: The run's folder.
        lasts: Seconds from its beginning after which anyone may end it; None in handles of an earlier version.
        secrets: The references of its secrets, by variable; None in the handles that `find` gives for all owners.
        memory_bytes: The bytes of memory that it may take on each node, or None.
        wall_seconds: Its time limit in seconds, or None.
        wanted: The amounts that it asks for on each of its nodes, by Ray's names.
        nodes: How many nodes it needs.
    """

    folder: str = ""
    lasts: float | None = None
    secrets: Mapping[str, str] | None = None
    memory_bytes: int | None = None
    wall_seconds: float | None = None
    wanted: Mapping[str, float] | None = None
    nodes: int = 1

    def key(self, run_id: str) -> str:
        """The key of a run in the cluster's store; the owner comes first, so that one call finds an owner's runs."""
        return f"{quote(self.owner, safe='')}/{quote(run_id, safe='')}"


def with_expiry(data: RayData, facts: Mapping[str, Any]) -> RayData:
    """The data of a run with its expiry: time without a node does not count, and a run that waits has none.

    Args:
        data: The data of the run's handle.
        facts: Its records in the cluster's store, as `Driver.poll` gives them.
    """
    state = facts["state"] or {}
    began = state.get("started", state.get("placed"))
    if began is not None:
        return data.begun(began, data.lasts)
    return data.waiting() if facts["live"] and facts["end"] is None else data


def unreachable_status(handle: Handle, heard: float | None) -> RunStatus:
    """The status of a run whose cluster does not answer: it counts as alive while it may be.

    Args:
        handle: The run.
        heard: When it was last known to be alive, in seconds since the epoch: it may have waited until then.
    """
    data = RayData.of(handle)
    expires, wall = (data if heard is None else data.begun(heard, data.lasts)).expires, data.wall_seconds
    if expires is not None and wall is not None and time.time() > expires + wall + _SLACK_SECONDS:
        return lost_status("its cluster does not answer, and its lease and its time limit are over")
    return RunStatus(RunState.EXECUTING)


def status_of(handle: Handle, facts: Mapping[str, Any]) -> RunStatus:
    """The status of a run.

    Args:
        handle: The run.
        facts: Its records in the cluster's store, as `Driver.poll` gives them.
    """
    state = facts["state"] or {}
    runtime = max(0.0, time.time() - state["started"]) if "started" in state else 0.0
    if facts["end"] is not None:
        return _ended(handle, facts["end"])
    if facts["live"]:
        executing = state.get("state") == "executing"
        why = state.get("why", "") if state.get("state") == "queued" else ""
        return RunStatus(RunState.EXECUTING if executing else RunState.SUBMITTING, runtime=runtime, reason=why)
    if facts["cancel"] is not None:
        return RunStatus(RunState.CANCELLED, runtime=runtime, reason=facts["cancel"]["reason"])
    return lost_status("its node or its actor died" if state else "there is no trace of it", runtime)


def _ended(handle: Handle, result: Mapping[str, Any]) -> RunStatus:
    state, reason, code = result["state"], result["reason"], result["exit_code"]
    fault: Fault | None = Fault.JOB
    if state == "out_of_memory":
        state = "failed"
        reason = out_of_memory_reason(result.get("memory_bytes") or RayData.of(handle).memory_bytes)
    elif state == "timed_out":
        reason = timeout_reason(result["wall_seconds"])
    elif state == "failed":
        reason, fault = reason or failure_reason(code), Fault(result.get("fault", Fault.JOB))
    elif state == "preempted":
        fault = Fault.INFRASTRUCTURE
    else:
        fault = None
    usage = Usage(result.get("peak_memory_bytes"), result.get("cpu_seconds"), result.get("profile", {}))
    return RunStatus(RunState(state), result["runtime"], reason, fault, code, usage)
