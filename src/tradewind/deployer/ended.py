"""How a run ends; noted before its machines are given back: who goes on after a crash cannot ask them any more."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tradewind.errors import CapacityError, CredentialsError, DeployError, PrerequisiteError, TradewindError
from tradewind.problem import Fault, Run, RunState, RunStatus, Usage
from tradewind.utils.atomic_files import write_atomically

_ending_log = logging.getLogger("tradewind.deployer")

_ENDING_FILE = "ended.json"


@dataclass(frozen=True, slots=True)
class RunEnding:
    """How a run ends as soon as its machines are back."""

    state: RunState
    reason: str = ""
    fault: Fault | None = None

    def of(self, run: Run, now: float) -> Run:
        """The ended row of a run whose machines are back."""
        return replace(run, state=self.state, reason=self.reason, fault=self.fault, ended=now, machines=())


def ending_from_status(status: RunStatus) -> RunEnding:
    """How a run ends whose job has ended so."""
    return RunEnding(status.state, status.reason, status.fault)


def ending_from_error(error: Exception) -> RunEnding:
    """How a run ends that an error has stopped."""
    if not isinstance(error, TradewindError):
        return RunEnding(RunState.FAILED, f"{type(error).__name__}: {error}", Fault.INFRASTRUCTURE)
    if isinstance(error, CredentialsError):
        return RunEnding(RunState.FAILED, str(error), Fault.CREDENTIALS)
    if isinstance(error, PrerequisiteError):
        return RunEnding(RunState.FAILED, str(error), Fault.PREREQUISITE)
    fault = Fault.INFRASTRUCTURE if isinstance(error, DeployError) and error.retryable else Fault.JOB
    return RunEnding(RunState.FAILED, str(error), Fault.CAPACITY if isinstance(error, CapacityError) else fault)


def wasted_seconds(error: Exception) -> float:
    """Seconds of machines that were made in vain and taken back before anybody could see them: they are paid for."""
    return error.paid_seconds if isinstance(error, DeployError) else 0.0


def save_ending(folder: Path, ending: RunEnding, status: RunStatus | None) -> None:
    """Note how a run ended, in its folder; the first note stays.

    Args:
        folder: The run's folder.
        ending: How it ends.
        status: What its runner said of it last, if it ever did.
    """
    path = folder / _ENDING_FILE
    if path.exists():
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps({"ending": asdict(ending), "status": asdict(status) if status else None}))
    except OSError as error:  # machines are given back all the same
        _ending_log.warning("how the run of %s ended cannot be noted: %s", folder, error)


def load_ending(folder: Path) -> tuple[RunEnding, RunStatus | None] | None:
    """How a run ended whose machines an earlier process was giving back; None where none was."""
    try:
        noted = json.loads((folder / _ENDING_FILE).read_bytes())
        end, last = noted["ending"], noted["status"]
        ending = RunEnding(RunState(end["state"]), end["reason"], _fault(end["fault"]))
        if last is None:
            return ending, None
        facts = {
            **last,
            "state": RunState(last["state"]),
            "fault": _fault(last["fault"]),
            "usage": Usage(**last["usage"]),
        }
        return ending, RunStatus(**facts)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, LookupError) as error:
        _ending_log.warning("how the run of %s ended cannot be read: %s", folder, error)
        return None


def _fault(value: str | None) -> Fault | None:
    return None if value is None else Fault(value)
