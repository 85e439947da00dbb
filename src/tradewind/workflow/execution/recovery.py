"""What a run is, put together again from its journal and from what its machines have left."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from tradewind.workflow.execution.events import Opened
from tradewind.workflow.execution.folder import RunFolder
from tradewind.workflow.execution.journal import History, end_record
from tradewind.workflow.graph import Workflow


def recover(
    flow: Workflow,
    folder: RunFolder,
    history: History,
    machines: dict[str, tuple[int, int]],
    record: Callable[..., None],
) -> Opened:
    """The beginning of a session, from all that earlier sessions have left.

    An attempt of which nobody has written how it ended is still running if its machine is there; it has ended if the
    machine left a note of that in its folder; otherwise it is lost, and the task is run again.

    Args:
        flow: The workflow.
        folder: The run's folder.
        history: Its journal.
        machines: The machines of earlier sessions that are still there: name -> (place, number of its pilot).
        record: Writes into the journal what is found out here.
    """
    running: dict[int, tuple[int, int]] = {}
    for each in history.open():
        task = flow.index[each.task]
        place, pilot = machines.get(each.vm, (-1, -1))
        if pilot == each.pilot:
            running[task] = (place, each.attempt)
            continue
        result = folder.end(each.task, each.attempt)
        found: dict[str, Any] = result or {"outcome": "lost", "reason": "nobody knows what became of it"}
        record(end_record(each.task, each.attempt, found, 0.0))
    done = {flow.index[task]: each.attempt for task, each in history.done().items()}
    for task in sorted(_lacking(flow, folder, done)):
        reason = "an output that is still needed is not there any more"
        record(
            {"e": "end", "task": flow.tasks[task].id, "attempt": done.pop(task), "outcome": "gone", "reason": reason}
        )
    attempts: dict[int, int] = {}
    for each in history.attempts.values():
        attempts[flow.index[each.task]] = max(attempts.get(flow.index[each.task], 0), each.attempt)
    return Opened(finished=frozenset(done), running=running, attempts=attempts, replan=history.replans > 0)


def _lacking(flow: Workflow, folder: RunFolder, done: Collection[int]) -> set[int]:
    """Only real programs leave outputs that can be missing."""
    if not any(task.command for task in flow.tasks):
        return set()
    return folder.lacking(flow, done)
