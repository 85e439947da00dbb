"""States of the tasks and machines of a plan that is carried out, and its fixed facts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum, auto


class TaskState(Enum):
    """State of a task; its machine begins an ``ARMED`` one by itself; a ``BLOCKED`` one needs one that failed."""

    WAITING = auto()
    ARMED = auto()
    RUNNING = auto()
    DONE = auto()
    FAILED = auto()
    BLOCKED = auto()


class VmState(Enum):
    """State of a machine.

    One that is ``LATER`` has not been asked for yet; one that is ``BACK`` was given back, for nothing was left to do
    there.
    """

    LATER = auto()
    COMING = auto()
    UP = auto()
    BACK = auto()
    LOST = auto()


ABSENT = (VmState.LATER, VmState.BACK)
"""States of machines that are not awaited, and can be requested."""


@dataclass(frozen=True, slots=True)
class ExecutionGraph:
    """Fixed facts about a workflow and its machines that the state machine needs.

    Attributes:
        parents: For each task the tasks that it waits for.
        cores: Slots that each task takes.
        slots: Slots of each machine.
        fits: For each task the machines that it fits on, as marks; None where each fits wherever there are the
            slots for it.
        amounts: Amounts that each task takes of what can run out before the slots do, such as memory; empty where
            nothing can.
        rooms: Amounts that each machine has of it; empty likewise.
        priorities: Priority of each task; empty where all have the same.
    """

    parents: Sequence[Sequence[int]]
    cores: Sequence[int]
    slots: Sequence[int]
    fits: Sequence[Sequence[bool]] | None = None
    amounts: Sequence[Sequence[int]] = ()
    rooms: Sequence[Sequence[int]] = ()
    priorities: Sequence[int] = ()

    def fit(self, task: int, vm: int) -> bool:
        """True where a task can run on a machine, as soon as that is free."""
        return self.slots[vm] >= self.cores[task] and (self.fits is None or self.fits[task][vm])

    def needs(self, task: int) -> Sequence[int]:
        """Amounts that a task takes of what is counted besides slots."""
        return self.amounts[task] if self.amounts else ()


@dataclass(frozen=True, slots=True)
class RetryLimits:
    """Limits of repeated attempts.

    Attributes:
        retries: Most times that a task that failed is started again; the last time on another machine, if there is one.
        losses: Most times that a task may lose its machine; after that the task counts as the reason.
    """

    retries: int = 2
    losses: int = 3


@dataclass(frozen=True, slots=True)
class ArmedTask:
    """A task that its machine begins by itself, once some of those that run there have ended well.

    Attributes:
        task: The task.
        attempt: Number of the attempt at the task, from 1.
        after: The tasks that run on that machine, of which it waits for all.
    """

    task: int
    attempt: int
    after: frozenset[int]


def awaited_tasks(
    graph: ExecutionGraph,
    task: int,
    missing: Sequence[int],
    running: Collection[int],
    free: int,
    spare: Sequence[int] = (),
) -> tuple[int, ...] | None:
    """Find the tasks after whose ends another can begin, and not before; None if the order of the ends matters.

    These are the parents that have not ended, and each of the others without whose slots, memory or the like there
    would not be enough even if all the rest had ended. Where that does not suffice, several sets of tasks would do.

    Args:
        graph: The workflow and its machines.
        task: The task, first in the queue of its machine.
        missing: Its parents that have not ended.
        running: The tasks that run on its machine.
        free: Free slots there.
        spare: Amounts that are free there of what else is counted.
    """
    if not set(missing) <= set(running):
        return None
    needed = set(missing)
    takes = {each: (graph.cores[each], *graph.needs(each)) for each in (*running, task)}
    for place, there in enumerate((free, *spare)):
        everything, lacking = sum(takes[each][place] for each in running), takes[task][place] - there
        needed.update(other for other in running if everything - takes[other][place] < lacking)
    enough = all(
        sum(takes[each][place] for each in needed) >= takes[task][place] - there
        for place, there in enumerate((free, *spare))
    )
    return tuple(sorted(needed)) if enough else None
