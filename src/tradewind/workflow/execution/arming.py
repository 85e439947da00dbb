"""Which task a machine can be given beforehand, so that it begins it by itself the moment it can."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tradewind.workflow.execution.task_states import ExecutionGraph


@dataclass(frozen=True, slots=True)
class ArmedTask:
    """A task that its machine begins by itself, once some of those that run there have ended well.

    Attributes:
        task: The task.
        attempt: Which attempt, from 1.
        after: The tasks that run on that machine, of which it waits for all.
    """

    task: int
    attempt: int
    after: frozenset[int]


def awaited_tasks(
    graph: ExecutionGraph, task: int, missing: Sequence[int], running: Collection[int], free: int, spare: int = 0
) -> tuple[int, ...] | None:
    """The tasks after whose end another can begin, and not before; None if that depends on the order of their ends.

    These are the parents that have not ended, and each of the others without whose slots or memory there would not be
    enough even if all the rest had ended. Where that does not suffice, several sets of tasks would do.

    Args:
        graph: The workflow and its machines.
        task: The task, first in the queue of its machine.
        missing: Its parents that have not ended.
        running: The tasks that run on its machine.
        free: Free slots there.
        spare: Bytes of memory that are free there, where they are counted.
    """
    if not set(missing) <= set(running):
        return None
    needed = set(missing)
    counted = ((graph.cores.__getitem__, free), (graph.needs, spare))
    for needs, there in counted:
        everything, lacking = sum(map(needs, running)), needs(task) - there
        needed.update(other for other in running if everything - needs(other) < lacking)
    enough = all(sum(map(needs, needed)) >= needs(task) - there for needs, there in counted)
    return tuple(sorted(needed)) if enough else None
