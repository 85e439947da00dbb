"""Exit codes and the reasons of ended runs, in the words that all runners have in common."""

from __future__ import annotations

import re
import signal

from tradewind.errors import (
    ArchitectureError,
    CapacityError,
    CredentialsError,
    DeployError,
    ImageError,
    JobProgramError,
    MissingProgramError,
    PrerequisiteError,
    TradewindError,
)
from tradewind.problem import Fault, RunState, RunStatus
from tradewind.utils.units import format_duration, format_memory

SIGNAL_OFFSET = 128
"""The offset that shells and container engines add to the number of the signal that ended a program."""


_FOR_ALL_RUNS = (ImageError, MissingProgramError, PrerequisiteError)
"""Errors that every run of the job would end with, whatever its configuration, until the user has done something."""


def fault_of(error: Exception) -> Fault:
    """The cause of a run that an error has kept from starting."""
    if not isinstance(error, TradewindError):
        return Fault.INFRASTRUCTURE
    if isinstance(error, CredentialsError):
        return Fault.CREDENTIALS
    if isinstance(error, ArchitectureError):
        return Fault.ARCHITECTURE
    # What program a job runs may depend on the configuration.
    if isinstance(error, _FOR_ALL_RUNS) and not isinstance(error, JobProgramError):
        return Fault.PREREQUISITE
    if isinstance(error, CapacityError):
        return Fault.CAPACITY
    return Fault.INFRASTRUCTURE if isinstance(error, DeployError) and error.retryable else Fault.JOB


def unstarted_status(error: TradewindError) -> RunStatus:
    """The status of a run that had waited and could not be started then.

    Args:
        error: What kept it from starting.
    """
    code = 127 if isinstance(error, MissingProgramError) else None
    code = 126 if isinstance(error, ArchitectureError) else code
    return RunStatus(RunState.FAILED, 0.0, str(error), fault_of(error), code)


def lost_status(why: str, runtime: float = 0.0) -> RunStatus:
    """The status of a run that is certainly gone without a result.

    Args:
        why: The cause of the loss, as far as it is known.
        runtime: Seconds that it ran.
    """
    reason = f"the run is gone without a result: {why}"
    return RunStatus(RunState.PREEMPTED, runtime, reason, Fault.INFRASTRUCTURE)


def exit_code_of(exit_code: int) -> int:
    """Convert a shell's exit code to that of a run: negative for a signal, which shells write as 128 and more."""
    number = exit_code - SIGNAL_OFFSET
    return -number if 0 < number < signal.NSIG else exit_code


def failure_reason(code: int) -> str:
    """The reason of a run whose program failed.

    Args:
        code: The exit code of the run; negative for the signal that ended it.
    """
    return f"the program exited with code {code}" if code >= 0 else f"the program was killed by {signal_name(-code)}"


def signal_name(number: int) -> str:
    """A signal in words: ``signal 9 (SIGKILL)``."""
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


def timeout_reason(wall_seconds: float | None) -> str:
    """The reason of a run that was ended at its time limit, in seconds; None where the limit is not known."""
    return "it reached its time limit" + (f" of {format_duration(wall_seconds)}" if wall_seconds else "")


def engine_timeout_reason(whose: str, seconds: float | None, advice: str = "") -> str:
    """The reason of a run that was ended at a time limit which Tradewind has not set.

    Args:
        whose: The limit's owner: ``the partition's``.
        seconds: The limit, or None where it is not known.
        advice: The user's way to more time, or empty.
    """
    limit = f"it reached {whose} time limit" + (f" of {format_duration(seconds)}" if seconds else "")
    return f"{limit}: {advice}" if advice else limit


def out_of_memory_reason(memory_bytes: int | None, what: str = "it") -> str:
    """The reason of a run that was ended for its memory.

    Args:
        memory_bytes: The limit in bytes, or None where it is not known.
        what: The part of the run that used too much, as a subject of the sentence.
    """
    return f"out of memory: {what} used more than {format_memory(memory_bytes) if memory_bytes else 'it may'}"


_TIME = re.compile(r"(\d+)m([\d.]+)s")


def shell_seconds(text: str) -> float | None:
    """The sum of the times that a shell's ``times`` prints, as ``0m0.15s 0m0.09s``, in seconds; None without any.

    Args:
        text: The times, with blanks or slashes between them.
    """
    found = [_TIME.fullmatch(word) for word in text.replace("/", " ").split()]
    if not found or not all(found):
        return None
    return round(sum(int(time[1]) * 60 + float(time[2]) for time in found if time), 6)
