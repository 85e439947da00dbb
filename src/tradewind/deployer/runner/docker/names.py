"""Names and labels of what the docker runner creates, and the facts that are read back from them."""

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
"""Where a job finds its working folder, its run's folder and its inputs."""

MOST_GRACE = 60
"""The longest grace in seconds."""

_CANCELLED = ".cancelled"
_LEFT_NOTHING = datetime(1971, 1, 1, tzinfo=UTC).timestamp()


def container_name(run_id: str, role: str = JOB) -> str:
    """The name of a run's container; it is the lock against a second one."""
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
        labels: The container's.
        otherwise: The grace of one whose labels do not tell it.
    """
    try:
        return min(MOST_GRACE, max(0.0, float(labels.get(GRACE, ""))))
    except ValueError:
        return otherwise


@dataclass(frozen=True, slots=True)
class ListedContainer:
    """One container as the engine's list has it.

    Attributes:
        id: Its id.
        state: ``created``, ``running``, ``exited``, ``paused``, ``dead``, ``removing``, ...
        cancelled: True when it was renamed because its run was cancelled.
        labels: Its labels.
    """

    id: str
    state: str
    cancelled: bool
    labels: Mapping[str, str]

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> ListedContainer:
        """From a row of the list."""
        cancelled = any(name.endswith(_CANCELLED) for name in row.get("Names") or ())
        return cls(row["Id"], str(row["State"]).lower(), cancelled, row.get("Labels") or {})

    @property
    def run_id(self) -> str:
        """The run that it belongs to."""
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
    """One container as the engine tells it when asked for all of it.

    Attributes:
        id: Its id.
        state: As in `ListedContainer`.
        exit_code: Of its first process.
        oom: True when the engine saw a process of it killed for memory.
        error: What the engine says went wrong, or empty.
        begun: When it began at the latest, in seconds since the epoch, or 0 if it never did: when it was asked to, as
            far as that is known. Time that is paid counts from here.
        started: When the engine says that it began, or 0. It notes that after the first process has begun, on a loaded
            machine by a tenth of a second and more.
        finished: Likewise; the kernel tells the engine when.
        program: The first word of its command.
        pid: Its first process on the engine's machine, or 0.
        labels: Its labels.
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
    def of(cls, told: Mapping[str, Any], asked: float = 0.0) -> InspectedContainer:
        """From what inspecting a container gives.

        Args:
            told: The answer.
            asked: When it was asked to start, in seconds since the epoch, or 0 where that is not known.
        """
        state = told["State"]
        started = engine_time(str(state.get("StartedAt") or ""))
        # Nothing is asked to start before it was made, nor after it did: a clock that jumped makes no hours to pay.
        begun = min(started, max(asked, engine_time(str(told.get("Created") or "")))) if asked else started
        return cls(
            told["Id"],
            str(state.get("Status", "")).lower(),
            int(state.get("ExitCode") or 0),
            bool(state.get("OOMKilled")),
            str(state.get("Error") or ""),
            begun,
            started,
            engine_time(str(state.get("FinishedAt") or "")),
            str(told.get("Path") or ""),
            int(state.get("Pid") or 0),
            (told.get("Config") or {}).get("Labels") or {},
            _ports(told),
        )

    @property
    def ran(self) -> float:
        """Seconds from its start, as the engine says it, to its end: what its wall time limits."""
        return max(0.0, self.finished - self.started) if self.started else 0.0

    @property
    def wall(self) -> float | None:
        """The wall time of its run in seconds, or None."""
        text = self.labels.get(WALL)
        return float(text) if text else None


def _ports(told: Mapping[str, Any]) -> dict[str, int]:
    found: dict[str, int] = {}
    settings = told.get("NetworkSettings") or {}
    for inside, outside in (settings.get("Ports") or {}).items():
        places: Sequence[Mapping[str, str]] = outside or ()
        for place in places:
            found[inside.partition("/")[0]] = int(place["HostPort"])
    return found
