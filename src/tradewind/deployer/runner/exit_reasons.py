"""How runs end: the words and the codes that all runners have in common."""

from __future__ import annotations

import signal

from tradewind.problem import Fault, RunState, RunStatus
from tradewind.utils.units import format_duration, format_memory

SIGNAL_OFFSET = 128
"""What a shell, and an engine of containers, add to the number of the signal that ended a program."""


def lost_status(why: str, runtime: float = 0.0) -> RunStatus:
    """The status of a run that is certainly gone without a result.

    Args:
        why: What became of it, as far as one can tell.
        runtime: Seconds that it ran.
    """
    reason = f"the run is gone without a result: {why}"
    return RunStatus(RunState.PREEMPTED, runtime, reason, Fault.INFRASTRUCTURE)


def exit_code_of(exit_code: int) -> int:
    """An exit code as runs have it: negative for a signal, which shells and engines write as 128 and more."""
    number = exit_code - SIGNAL_OFFSET
    return -number if 0 < number < signal.NSIG else exit_code


def failure_reason(code: int) -> str:
    """Why a program failed, by its exit code as runs have it.

    Args:
        code: What it exited with; negative for the signal that ended it.
    """
    return f"the program exited with code {code}" if code >= 0 else f"the program was killed by {signal_name(-code)}"


def signal_name(number: int) -> str:
    """A signal in words."""
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


def timeout_reason(wall_seconds: float | None) -> str:
    """Why a run was ended at its time limit, which need not be known."""
    return "it reached its time limit" + (f" of {format_duration(wall_seconds)}" if wall_seconds else "")


def out_of_memory_reason(memory_bytes: int | None, what: str = "it") -> str:
    """Why a run was ended for its memory, of which the limit need not be known.

    Args:
        memory_bytes: The limit.
        what: Which part of it.
    """
    return f"out of memory: {what} used more than {format_memory(memory_bytes) if memory_bytes else 'it may'}"
