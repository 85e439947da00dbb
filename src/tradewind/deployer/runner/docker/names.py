"""Names and labels of the containers and networks of the docker runner, and the facts that are read back from them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

RUN, OWNER, EXPIRES = "tradewind.run", "tradewind.owner", "tradewind.expires"
PRICE = "tradewind.price"
ROLE, WALL, GRACE, MEMORY, FOLDER, COPIED, LOAD = (
    "tradewind.role",
    "tradewind.wall",
    "tradewind.grace",
    "tradewind.memory",
    "tradewind.folder",
    "tradewind.copied",
    "tradewind.load",
)

JOB, APPLICATION = "job", "application"
"""Roles: the container whose end is the run's, and the one that a load generator drives."""

WORK_PLACE, RUN_PLACE, INPUTS_PLACE = "/tradewind/work", "/tradewind/run", "/tradewind/inputs"
"""The paths of the working folder, the run's folder and the inputs in a container."""

MOST_GRACE = 60
"""The longest grace in seconds."""

_CANCELLED = ".cancelled"
_LEFT_NOTHING = datetime(1971, 1, 1, tzinfo=UTC).timestamp()


def container_name(run_id: str, role: str = JOB) -> str:
    """The name of a run's container; an engine has a name once, so it is the lock against a second container."""
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", run_id)
    if plain != run_id or len(plain) > 150:
        plain = f"{plain[:100]}-{hashlib.sha256(run_id.encode()).hexdigest()[:12]}"
    return f"tradewind-{plain}" + ("" if role == JOB else f".{role}")


def cancelled_name(name: str) -> str:
    """The name that a cancelled container gets: labels cannot be changed, names can."""
    return name + _CANCELLED


def engine_time(text: str) -> float:
    """Seconds since the epoch of a time as the engine writes it, or 0 for its zero time."""
    try:
        seconds = datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text)).timestamp()
    except (ValueError, OverflowError):
        return 0.0
    return seconds if seconds > _LEFT_NOTHING else 0.0


def grace_of(labels: Mapping[str, str], otherwise: float) -> float:
    """Seconds between SIGTERM and SIGKILL for a container: those of who started it.

    Args:
        labels: The labels of the container.
        otherwise: The grace of a container without that label.
    """
    try:
        return min(MOST_GRACE, max(0.0, float(labels.get(GRACE, ""))))
    except ValueError:
        return otherwise


@dataclass(frozen=True, slots=True)
class ListedContainer:
    """One container in the engine's list.

    Attributes:
        id: The engine's id of it.
        state: ``created``, ``running``, ``exited``, ``paused``, ``dead``, ``removing``, ...
        cancelled: True when it was renamed because its run was cancelled.
        labels: The labels of the container; see the constants of this module.
    """

    id: str
    state: str
    cancelled: bool
    labels: Mapping[str, str]

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> ListedContainer:
        """Read a row of the engine's list."""
        cancelled = any(name.endswith(_CANCELLED) for name in row.get("Names") or ())
        return cls(row["Id"], str(row["State"]).lower(), cancelled, row.get("Labels") or {})

    @property
    def run_id(self) -> str:
        """The run that the container belongs to."""
        return self.labels[RUN]

    @property
    def role(self) -> str:
        """`JOB` or `APPLICATION`."""
        return self.labels.get(ROLE, JOB)

    @property
    def alive(self) -> bool:
        """True while it has processes."""
        return self.state in ("running", "paused", "restarting", "stopping")


@dataclass(frozen=True, slots=True)
class InspectedContainer:
    """One container, from the engine's answer to ``inspect``.

    Attributes:
        id: The engine's id of it.
        state: The state, as in `ListedContainer`.
        exit_code: The exit code of its first process.
        oom: True when the engine saw a process of it killed for memory.
        error: The engine's error message of a failed start, or empty.
        begun: The time from which it is paid, in seconds since the epoch, or 0 if it never began: when the engine was
            asked to start it, as far as that is known, and otherwise `started`.
        started: The time when it began by the engine's word, in seconds since the epoch, or 0. The engine notes it
            after the first process has begun, on a loaded machine by a tenth of a second and more.
        finished: The time when it ended, in seconds since the epoch, or 0; the engine has it from the kernel.
        program: The first word of its command.
        pid: The number of its first process on the engine's machine, or 0.
        labels: The labels of the container.
        ports: Port of the job -> port of the engine's machine.
    """

    id: str
    state: str
    exit_code: int
    oom: bool
    error: str
    begun: float
    started: float
    finished: float
    program: str
    pid: int
    labels: Mapping[str, str]
    ports: Mapping[str, int]

    @classmethod
    def of(cls, document: Mapping[str, Any], asked: float = 0.0) -> InspectedContainer:
        """Read the answer to ``inspect``.

        Args:
            document: The answer.
            asked: The time when the engine was asked to start it, in seconds since the epoch, or 0 where that is not
                known.
        """
        state = document["State"]
        started = engine_time(str(state.get("StartedAt") or ""))
        # Nothing is asked to start before it was made, nor after it did: a clock that jumped makes no hours to pay.
        begun = min(started, max(asked, engine_time(str(document.get("Created") or "")))) if asked else started
        return cls(
            document["Id"],
            str(state.get("Status", "")).lower(),
            int(state.get("ExitCode") or 0),
            bool(state.get("OOMKilled")),
            str(state.get("Error") or ""),
            begun,
            started,
            engine_time(str(state.get("FinishedAt") or "")),
            str(document.get("Path") or ""),
            int(state.get("Pid") or 0),
            (document.get("Config") or {}).get("Labels") or {},
            _ports(document),
        )

    @property
    def ran(self) -> float:
        """Seconds from `started` to `finished`, which the wall time limits."""
        return max(0.0, self.finished - self.started) if self.started else 0.0

    @property
    def wall(self) -> float | None:
        """The wall time of its run in seconds, or None."""
        text = self.labels.get(WALL)
        return float(text) if text else None


def _ports(document: Mapping[str, Any]) -> dict[str, int]:
    found: dict[str, int] = {}
    settings = document.get("NetworkSettings") or {}
    for inside, outside in (settings.get("Ports") or {}).items():
        bindings: Sequence[Mapping[str, str]] = outside or ()
        for binding in bindings:
            found[inside.partition("/")[0]] = int(binding["HostPort"])
    return found
