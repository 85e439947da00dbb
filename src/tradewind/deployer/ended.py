"""Notes how a run ended before its machines are given back: who goes on after a crash cannot ask them any more."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict
from pathlib import Path

from tradewind.deployer.ground import Ending
from tradewind.problem import Fault, RunState, RunStatus, Usage
from tradewind.whole import write_whole

_log = logging.getLogger("tradewind.deployer")

_NAME = "ended.json"


def note_end(folder: Path, ending: Ending, status: RunStatus | None) -> None:
    """Note how a run ended, in its folder; the first note stays.

    Args:
        folder: The run's folder.
        ending: How it ends.
        status: What its runner said of it last, if it ever did.
    """
    path = folder / _NAME
    if path.exists():
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps({"ending": asdict(ending), "status": asdict(status) if status else None}))
    except OSError as error:  # machines are given back all the same
        _log.warning("how the run of %s ended cannot be noted: %s", folder, error)


def noted_end(folder: Path) -> tuple[Ending, RunStatus | None] | None:
    """How a run ended whose machines an earlier process was giving back; None where none was."""
    try:
        noted = json.loads((folder / _NAME).read_bytes())
        end, last = noted["ending"], noted["status"]
        ending = Ending(RunState(end["state"]), end["reason"], _fault(end["fault"]))
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
        _log.warning("how the run of %s ended cannot be read: %s", folder, error)
        return None


def _fault(value: str | None) -> Fault | None:
    return None if value is None else Fault(value)
