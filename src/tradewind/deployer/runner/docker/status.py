"""The data of docker handles, and the status of a run from its containers; no engine is asked here."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tradewind.deployer.runner import exit_reasons
from tradewind.deployer.runner.docker.engine import EngineAddress
from tradewind.deployer.runner.docker.names import MEMORY, InspectedContainer
from tradewind.deployer.runner.handle import HandleData
from tradewind.problem import Fault, RunState, RunStatus, Usage
from tradewind.utils.units import format_memory

_LOST = 255  # what an engine writes that did not see the end, after a restart of its machine
_NO_PROGRAM, _NO_START = 127, 126


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerData(HandleData):
    """The data of a docker handle.

    Attributes:
        folder: The run's folder.
        engine: The address of its engine, as `EngineAddress.to_json` writes it; None for that of the settings.
        asked: The time when the engine was asked to start it, by the engine's clock; 0 before that.
        look: True when it may be another owner's run: polling starts nothing, and ends nothing that was not cancelled
            here.
        ports: The ports of this machine that lead to those of the job.
    """

    folder: str = ""
    engine: Mapping[str, Any] | None = None
    asked: float = 0.0
    look: bool = False
    ports: Mapping[str, int] = field(default_factory=dict)

    @property
    def address(self) -> EngineAddress | None:
        """The address of its engine, or None for that of the settings."""
        return EngineAddress.from_json(self.engine) if self.engine else None


def failed_status(reason: str, runtime: float, code: int | None, usage: Usage) -> RunStatus:
    """The status of a run that failed by its own fault."""
    return RunStatus(RunState.FAILED, runtime=runtime, reason=reason, fault=Fault.JOB, exit_code=code, usage=usage)


def was_out_of_memory(facts: InspectedContainer, *, podman: bool) -> bool:
    """True when a container was ended for its memory; Podman says so by the exit code only."""
    return facts.exit_code != 0 and (facts.oom or (podman and was_killed_within_limit(facts)))


def was_killed_within_limit(facts: InspectedContainer) -> bool:
    """True when a container that has a limit of memory was ended by SIGKILL.

    Where no one has asked the engine for that, the kernel has probably done it for its memory: containerd loses that
    notice when the container's control group is gone before it is read.
    """
    return facts.exit_code == exit_reasons.SIGNAL_OFFSET + signal.SIGKILL and bool(facts.labels.get(MEMORY))


def out_of_memory_words(facts: InspectedContainer, what: str = "it") -> str:
    """The reason of a run that was ended for its memory."""
    limit = facts.labels.get(MEMORY)
    return exit_reasons.out_of_memory_reason(int(limit) if limit else None, what)


def killed_words(facts: InspectedContainer, what: str) -> str:
    """The reason of a run whose container was killed within its memory limit and the engine does not say why."""
    killed = f"{what} was killed by {exit_reasons.signal_name(signal.SIGKILL)}, and the engine does not say why"
    return f"{killed}: it may have used more than {format_memory(int(facts.labels[MEMORY]))}"


def ended_status(
    facts: InspectedContainer, *, cancelled: bool, podman: bool, usage: Usage, from_outside: Callable[[], bool]
) -> RunStatus:
    """The status of a run whose container has ended, or could not be started.

    Args:
        facts: The container.
        cancelled: True when the run was cancelled.
        podman: True for Podman's containers.
        usage: The usage of the container.
        from_outside: Asks the engine whether somebody else ended the container.
    """
    runtime = max(0.0, facts.finished - facts.begun) if facts.started else 0.0
    code = exit_reasons.exit_code_of(facts.exit_code)
    if cancelled:
        return RunStatus(RunState.CANCELLED, runtime=runtime, exit_code=code, usage=usage)
    if not facts.started:
        if facts.exit_code in (_NO_PROGRAM, _NO_START):
            return failed_status(f"there is no program {facts.program!r} that can be run", 0.0, _NO_PROGRAM, usage)
        return exit_reasons.lost_status(
            f"the container could not be started: {facts.error or 'the engine does not say why'}"
        )
    if facts.wall is not None and facts.ran >= facts.wall:
        reason = exit_reasons.timeout_reason(facts.wall)
        return RunStatus(
            RunState.TIMED_OUT, runtime=runtime, reason=reason, fault=Fault.JOB, exit_code=code, usage=usage
        )
    if facts.exit_code == 0:
        return RunStatus(RunState.DONE, runtime=runtime, exit_code=0, usage=usage)
    if was_out_of_memory(facts, podman=podman):
        return failed_status(out_of_memory_words(facts), runtime, code, usage)
    killed = code in (-signal.SIGKILL, -signal.SIGTERM) or facts.exit_code == _LOST
    if killed and from_outside():
        return exit_reasons.lost_status("its container was stopped from outside, or its engine was restarted", runtime)
    if was_killed_within_limit(facts):
        return failed_status(killed_words(facts, "the program"), runtime, code, usage)
    if facts.exit_code == _NO_PROGRAM:
        return failed_status(
            f"exit code 127: there is no program {facts.program!r}, or none that it calls", runtime, 127, usage
        )
    return failed_status(exit_reasons.failure_reason(code), runtime, code, usage)
