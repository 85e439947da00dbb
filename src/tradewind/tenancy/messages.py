"""Messages between a Core and its cluster; all of them can be sent between processes."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Protocol, Self

from tradewind.problem import RunPreemption

# ---------------------------------------------------------------------- from a Core


@dataclass(frozen=True, slots=True)
class StudyMessage:
    """The Core has its study.

    Attributes:
        job: The search.
        study_id: The study that it searches in, as the store numbers it.
        simulated: Nobody pays its runs.
    """

    job: int
    study_id: int
    simulated: bool = False


@dataclass(frozen=True, slots=True)
class RunRequestMessage:
    """A run would start.

    Attributes:
        job: The search.
        request: The run's id in the cluster.
        demand: What it takes, by name of the resource.
        chance: How likely the searcher's model finds it that the run brings what the search is after (its target, or
            without one something better than its best); None where no model says so.
        seconds: How long the model expects it to take; None where no model says so.
        longest: The seconds after which it is ended; None where the job does not limit them.
        repeatable: It may be taken for another tenant: its trial can be run again.
        taken: How often runs of its trial were taken.
        price: USD per hour that it costs.
    """

    job: int
    request: str
    demand: Mapping[str, float]
    chance: float | None = None
    seconds: float | None = None
    longest: float | None = None
    repeatable: bool = False
    taken: int = 0
    price: float = 0.0


@dataclass(frozen=True, slots=True)
class RunWithdrawalMessage:
    """A run is not wanted any more that waits or has leave to start."""

    job: int
    request: str


@dataclass(frozen=True, slots=True)
class RunFoundMessage:
    """A run of an earlier Core was found again.

    Attributes:
        job: The search.
        request: The run's id in the cluster.
        demand: What it takes, by name of the resource.
        repeatable: It may be taken for another tenant: its trial can be run again.
        taken: How often runs of its trial were taken.
        price: USD per hour that it costs.
    """

    job: int
    request: str
    demand: Mapping[str, float]
    repeatable: bool = False
    taken: int = 0
    price: float = 0.0


@dataclass(frozen=True, slots=True)
class PreemptionDeclinedMessage:
    """A run that was to be taken goes on: it has not begun yet, or cannot be paid.

    Attributes:
        job: The search.
        request: The run's id in the cluster.
        reason: Why it cannot be paid, in words.
    """

    job: int
    request: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RunEndedMessage:
    """A run is gone, and its end is stored."""

    job: int
    request: str


@dataclass(frozen=True, slots=True)
class ResultMessage:
    """The searcher has learned of a trial's result.

    Attributes:
        job: The search.
        value: Of the objective; smaller is better, infinite where the trial failed or broke a constraint.
        seconds: How long it took.
        demand: What the run took, by name of the resource, where it had ended before this Core; empty otherwise.
        chance: As it was said when the run was wanted; None where it was not, or by an earlier Core.
    """

    job: int
    value: float
    seconds: float
    demand: Mapping[str, float] = field(default_factory=dict)
    chance: float | None = None


@dataclass(frozen=True, slots=True)
class ProgressMessage:
    """The progress of a search, for those who watch."""

    job: int
    document: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CoreEndedMessage:
    """The Core has ended.

    Attributes:
        job: The search.
        state: ``done``, ``failed``, ``cancelled``, ``left`` (it goes on later) or ``crashed``.
        reason: In words.
    """

    job: int
    state: Literal["done", "failed", "cancelled", "left", "crashed"]
    reason: str


@dataclass(frozen=True, slots=True)
class MessageBatch:
    """Several messages of a Core that the cluster decides on at once.

    Attributes:
        job: The search.
        messages: In their order.
    """

    job: int
    messages: tuple[CoreMessage, ...]


CoreMessage = (
    StudyMessage
    | RunRequestMessage
    | RunWithdrawalMessage
    | RunFoundMessage
    | PreemptionDeclinedMessage
    | RunEndedMessage
    | ResultMessage
    | ProgressMessage
    | CoreEndedMessage
    | MessageBatch
)


class CoreOutbox(Protocol):
    """The way of a Core's messages to its cluster."""

    def put(self, item: CoreMessage) -> None:
        """Send a message."""
        ...


# ---------------------------------------------------------------------- to a Core


@dataclass(frozen=True, slots=True)
class GrantOrder:
    """A run may start.

    Attributes:
        request: The run's id in the cluster.
        weight: The weight that its tenant has now.
    """

    request: str
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class PreemptOrder:
    """End a run: another tenant gets its place.

    Attributes:
        request: The run's id in the cluster.
        preemption: For whom, and who pays.
    """

    request: str
    preemption: RunPreemption


@dataclass(frozen=True, slots=True)
class EndOrder:
    """End the search: runs are cancelled and paid.

    Attributes:
        state: What it is then.
        reason: Of one that failed: what its cluster can never give it.
    """

    state: Literal["cancelled", "failed", "left"]
    reason: str = ""


CoreOrder = GrantOrder | PreemptOrder | EndOrder


_LONGEST_DELAY = 1.0
"""Seconds that a message is kept back at most: who computes for longer keeps no place empty for itself."""


class MessageBatcher:
    """Keeps messages back until they are flushed, so that the cluster decides on all of them at once.

    That a run is gone and what its search wants next belong together: between the two, its place would go to whoever
    waits, whatever is due to whom.

    Args:
        outbox: Where they go.
        longest: Seconds after which they go by themselves.
    """

    def __init__(self, outbox: CoreOutbox, longest: float = _LONGEST_DELAY) -> None:
        self._outbox, self._longest = outbox, longest
        self._kept: list[CoreMessage] = []
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.flush()

    def put(self, item: CoreMessage) -> None:
        """See `CoreOutbox.put`."""
        with self._lock:
            self._kept.append(item)
            if self._timer is None:
                self._timer = threading.Timer(self._longest, self.flush)
                self._timer.daemon = True
                self._timer.start()

    def flush(self) -> None:
        """Send what was kept back."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            kept, self._kept = tuple(self._kept), []
            if len(kept) == 1:
                self._outbox.put(kept[0])
            elif kept:
                self._outbox.put(MessageBatch(kept[0].job, kept))
