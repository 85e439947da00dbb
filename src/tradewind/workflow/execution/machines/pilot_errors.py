"""Words and errors of machines that are gone, from the rows of their runs."""

from __future__ import annotations

from pathlib import Path

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
_WORDS = 300
"""Most characters of what a machine has said that an error has."""
_KINDS: dict[Fault, type[DeployError]] = {
    Fault.CAPACITY: CapacityError,
    Fault.CREDENTIALS: CredentialsError,
    Fault.PREREQUISITE: PrerequisiteError,
}


def why_lost(name: str, run: Run) -> str:
    """Reason that a machine is gone, in words."""
    if run.handle is None and run.reason:
        return f"{name}: {run.reason}"
    return f"{name} is gone: {run.reason or run.state.value}"


def error_of(name: str, run: Run, python: str) -> TradewindError:
    """Make the error of a machine that has never answered.

    Args:
        name: Name of the machine.
        run: Its row.
        python: The Python that it was to have.
    """
    if run.exit_code == _NO_PROGRAM:
        return MissingProgramError(f"there is no program {python} on {name}", hint="--python names one")
    if run.state is RunState.DONE:
        return DeployError(f"{name} ended before it answered", hint="see stderr below machines in the run's folder")
    kind = DeployError if run.fault is None else _KINDS.get(run.fault, DeployError)
    reason = run.reason or run.state.value
    if run.state is RunState.PREEMPTED:
        return kind(f"{name} was lost before its first task: {reason}")
    if run.state is RunState.FAILED and run.fault is Fault.JOB:
        if said := _last_words(run):
            return kind(f"{name} does not work: {reason}: {said}", hint=f"all of it is in {run.folder}/stderr")
        return kind(f"{name} does not work: {reason}")
    return kind(f"{name}: {reason}")


def _last_words(run: Run) -> str:
    """The last line that a run has said on its standard error; empty without any."""
    try:
        lines = (Path(run.folder) / "stderr").read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip()[-_WORDS:] for line in reversed(lines) if line.strip()), "")
