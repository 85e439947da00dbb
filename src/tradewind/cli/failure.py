"""Whose fault it is that a run failed: the error whose exit code says so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tradewind.errors import TradewindError
    from tradewind.problem import Run, Trial

NO_PROGRAM = 127
"""The exit code of a run whose program could not be started, as shells have it."""


def run_error(trial: Trial, runs: Sequence[Run], message: str, hint: str) -> TradewindError:
    """The error that a failed or aborted trial ends the command with.

    Args:
        trial: The trial.
        runs: Its runs, in order.
        message: What to say.
        hint: What to do.
    """
    from tradewind.errors import InputError, InterpretationError, JobFailedError, MissingProgramError
    from tradewind.problem import RunState, TrialState

    last = runs[-1] if runs else None
    if trial.state != TrialState.FAILED or last is None:
        return JobFailedError(message, hint=hint)
    if last.state == RunState.DONE:
        return InterpretationError("no-match", message, hint=hint)
    if last.exit_code == NO_PROGRAM and last.handle is None:
        return MissingProgramError(message)
    if last.exit_code is None and last.handle is None:
        return InputError(message)
    return JobFailedError(message, hint=hint)


def prerequisite_error(run: Run, reason: str) -> TradewindError | None:
    """The error for a lost run that the user must do something about before any run can succeed; None for others.

    Args:
        run: The run.
        reason: Why it was lost, in words.
    """
    from tradewind.errors import CredentialsError, PrerequisiteError
    from tradewind.problem import Fault

    if run.fault is Fault.PREREQUISITE:
        return PrerequisiteError(reason)
    return CredentialsError(reason) if run.fault is Fault.CREDENTIALS else None
