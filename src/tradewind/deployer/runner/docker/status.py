"""What a run's containers say about the run; no engine is asked here."""

from __future__ import annotations

import signal
from collections.abc import Callable

from tradewind.deployer.runner.docker.names import MEMORY, Facts
from tradewind.problem import Fault, RunState, RunStatus, Usage
from tradewind.units import format_duration, format_memory

_SIGNALLED = 128
_LOST = 255  # what an engine writes that did not see the end, after a restart of its machine
_NO_PROGRAM, _NO_START = 127, 126


def gone(why: str, runtime: float = 0.0) -> RunStatus:
    """A run that has ended without a result."""
    return RunStatus(
        RunState.PREEMPTED,
        runtime=runtime,
        reason=f"the run is gone without a result: {why}",
        fault=Fault.INFRASTRUCTURE,
    )


def failed(reason: str, runtime: float, code: int | None, usage: Usage) -> RunStatus:
    """A run that failed by its own fault."""
    return RunStatus(RunState.FAILED, runtime=runtime, reason=reason, fault=Fault.JOB, exit_code=code, usage=usage)


def signal_name(number: int) -> str:
    """A signal in words."""
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


def code_of(exit_code: int) -> int:
    """An exit code as runs have it: negative for a signal, which containers write as 128 and more."""
    number = exit_code - _SIGNALLED
    return -number if 0 < number < signal.NSIG and exit_code != _LOST else exit_code


def out_of_memory(facts: Facts, *, podman: bool) -> bool:
    """True when a container was ended for its memory; Podman tells it by the exit code only."""
    killed = facts.exit_code == _SIGNALLED + signal.SIGKILL
    return facts.exit_code != 0 and (facts.oom or (podman and killed and bool(facts.labels.get(MEMORY))))


def out_of_memory_words(facts: Facts, what: str = "it") -> str:
    """The reason of a run that was ended for its memory."""
    limit = facts.labels.get(MEMORY)
    return f"out of memory: {what} used more than {format_memory(int(limit))}" if limit else f"out of memory: {what}"


def ended_status(
    facts: Facts, *, cancelled: bool, podman: bool, usage: Usage, from_outside: Callable[[], bool]
) -> RunStatus:
    """The status of a run whose container has ended, or could not be started.

    Args:
        facts: The container.
        cancelled: True when the run was cancelled.
        podman: True for Podman's containers.
        usage: What it used.
        from_outside: Asks the engine whether somebody else ended the container.
    """
    runtime = max(0.0, facts.finished - facts.begun) if facts.started else 0.0
    code = code_of(facts.exit_code)
    if cancelled:
        return RunStatus(RunState.CANCELLED, runtime=runtime, exit_code=code, usage=usage)
    if not facts.started:
        if facts.exit_code in (_NO_PROGRAM, _NO_START):
            return failed(f"there is no program {facts.program!r} that can be run", 0.0, _NO_PROGRAM, usage)
        return gone(f"the container could not be started: {facts.error or 'the engine does not say why'}")
    if facts.wall is not None and facts.ran >= facts.wall:
        reason = f"it reached its time limit of {format_duration(facts.wall)}"
        return RunStatus(
            RunState.TIMED_OUT, runtime=runtime, reason=reason, fault=Fault.JOB, exit_code=code, usage=usage
        )
    if facts.exit_code == 0:
        return RunStatus(RunState.DONE, runtime=runtime, exit_code=0, usage=usage)
    if out_of_memory(facts, podman=podman):
        return failed(out_of_memory_words(facts), runtime, code, usage)
    killed = code in (-signal.SIGKILL, -signal.SIGTERM) or facts.exit_code == _LOST
    if killed and from_outside():
        return gone("its container was stopped from outside, or its engine was restarted", runtime)
    if facts.exit_code == _NO_PROGRAM:
        return failed(
            f"exit code 127: there is no program {facts.program!r}, or none that it calls", runtime, 127, usage
        )
    if code < 0:
        return failed(f"the program was killed by {signal_name(-code)}", runtime, code, usage)
    return failed(f"the program exited with code {code}", runtime, code, usage)
