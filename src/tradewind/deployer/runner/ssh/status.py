"""The data of ssh handles, and the status of a run from the far side's answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tradewind.deployer.runner.exit_reasons import lost_status, out_of_memory_reason, shell_seconds, timeout_reason
from tradewind.deployer.runner.handle import HandleData
from tradewind.deployer.ssh_target import SshTarget
from tradewind.problem import Fault, RunState, RunStatus, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class SshData(HandleData):
    """The data of an ssh handle; the note of the run has the same.

    Attributes:
        name: The name of the run on its machines.
        machines: The targets of its machines, as `SshTarget.to_json` writes them; that of the first machine comes
            first.
        load: True when it has a load generator beside the application; its machine is the second one, if there is one.
        load_cpus: CPUs that the load generator is held to, or None.
        program: The first word of its command.
        wall_seconds: Its time limit in seconds, or None.
        memory_bytes: The bytes of memory that it may take on each machine, or None.
    """

    name: str = ""
    machines: Sequence[Mapping[str, Any]] = ()
    load: bool = False
    load_cpus: float | None = None
    program: str = ""
    wall_seconds: float | None = None
    memory_bytes: int | None = None

    @property
    def targets(self) -> list[SshTarget]:
        """The targets of its machines, that of the first machine first."""
        return [SshTarget(**facts) for facts in self.machines]


def status_of(words: str, data: SshData, host: str) -> RunStatus:
    """The status of a run.

    Args:
        words: The far side's answer behind the run's name: ``running 120``, ``result state=ended code=0 ...``, ...
        data: The data of its handle: the limits, and the command's first word.
        host: The name of the machine, for messages.
    """
    kind, _, rest = words.partition(" ")
    if kind == "result":
        return _ended(fields(rest), data, host)
    runtime = int(rest or 0) / 100 if rest.strip().isdigit() or not rest else 0.0
    if kind == "running":
        return RunStatus(RunState.EXECUTING, runtime=runtime)
    if kind == "dying":  # its supervisor is gone, and its processes are on their way out
        return RunStatus(RunState.EXECUTING, runtime=runtime)
    if kind == "waiting":
        return RunStatus(RunState.SUBMITTING)
    why = f"{host} was restarted, or what watched over it there was killed" if kind == "gone" else f"not on {host}"
    return lost_status(why, runtime)


def fields(text: str) -> dict[str, str]:
    """Split a result of the far side into its fields, by name."""
    return dict(word.partition("=")[::2] for word in text.split())


def _ended(result: Mapping[str, str], data: SshData, host: str) -> RunStatus:
    state, code = result.get("state", ""), _number(result.get("code"))
    runtime = (_number(result.get("runtime")) or 0) / 100
    kept: dict[str, Any] = {"runtime": runtime, "exit_code": code, "usage": _usage(result)}
    job, infrastructure = Fault.JOB, Fault.INFRASTRUCTURE
    if state == "cancelled":
        return RunStatus(RunState.CANCELLED, **kept)
    if result.get("full") == "1":
        return RunStatus(RunState.FAILED, reason=f"the disk of {host} is full: make room", fault=infrastructure, **kept)
    if state == "ended":
        if code == 0:
            return RunStatus(RunState.DONE, **kept)
        words = f"the program exited with code {code}"
        if code is not None and code > 128:
            words += f", as one does that signal {code - 128} killed"
        return RunStatus(RunState.FAILED, reason=words, fault=job, **kept)
    if state == "missing":
        words = f"there is no program {data.program!r} on {host}: install it, or give its path"
        return RunStatus(RunState.FAILED, reason=words, fault=job, **kept)
    if state == "memory":
        words = out_of_memory_reason(data.memory_bytes)
        return RunStatus(RunState.FAILED, reason=words, fault=job, **kept)
    if state == "timed_out":
        wall = data.wall_seconds
        kept["runtime"] = max(runtime, wall or 0.0)
        return RunStatus(RunState.TIMED_OUT, reason=timeout_reason(wall), fault=job, **kept)
    reasons = {
        "unfolded": f"its files cannot be unpacked on {host}: is the disk full?",
        "unpinned": f"there is no taskset on {host} to hold it to its CPUs: install util-linux",
        "expired": "it expired",
    }
    if state == "unready":
        return RunStatus(RunState.FAILED, reason="the application was not ready in time", fault=job, **kept)
    return RunStatus(RunState.FAILED, reason=reasons.get(state, f"it ended as {state!r}"), fault=infrastructure, **kept)


def _number(text: str | None) -> int | None:
    return int(text) if text and text.lstrip("-").isdigit() else None


def _usage(result: Mapping[str, str]) -> Usage:
    memory = _number(result.get("memory"))
    return Usage(None if memory is None else memory * 1024, shell_seconds(result.get("cpu", "")))
