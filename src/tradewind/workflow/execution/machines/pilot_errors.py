"""Words and errors of machines that are gone, from the rows of their runs."""

from __future__ import annotations

from tradewind.errors import (
    CapacityError,
    CredentialsError,
    DeployError,
    MissingProgramError,
    PrerequisiteError,
    TradewindError,
)
from tradewind.problem import Fault, Run, RunState

_NO_PROGRAM = 127
_KINDS: dict[Fault, type[DeployError]] = {
    Fault.CAPACITY: CapacityError,
    Fault.CREDENTIALS: CredentialsError,
    Fault.PREREQUISITE: PrerequisiteError,
}


def why_lost(name: str, run: Run) -> str:
    """Reason that a machine is gone, in words."""
    if run.handle is None and run.reason:
        return run.reason
    return f"{name} is gone: {run.reason or run.state.value}"


def error_of(run: Run, python: str) -> TradewindError:
    """Make the error of a machine that has never answered.

    Args:
        run: Its row.
        python: The Python that it was to have.
    """
    if run.exit_code == _NO_PROGRAM:
        return MissingProgramError(f"there is no program {python}", hint="--python names one")
    if run.state is RunState.DONE:
        return DeployError("a machine ended before it answered", hint="see stderr below machines in the run's folder")
    kind = DeployError if run.fault is None else _KINDS.get(run.fault, DeployError)
    return kind(run.reason or run.state.value)
