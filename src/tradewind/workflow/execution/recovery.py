"""What a run is, put together again from its journal and from what its machines have left."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from tradewind.workflow.execution.arming import ArmedTask
from tradewind.workflow.execution.events import ExecutionOpened
from tradewind.workflow.execution.journal import ArmedRecord, AttemptRecord, RunHistory, end_record, start_record
from tradewind.workflow.execution.run_folder import WorkflowRunFolder
from tradewind.workflow.graph import Workflow


class _Recovery:
    """See `recover`."""

    def __init__(
        self,
        flow: Workflow,
        folder: WorkflowRunFolder,
        history: RunHistory,
        machines: dict[str, tuple[int, int]],
        record: Callable[..., None],
    ) -> None:
        self._flow, self._folder, self._history = flow, folder, history
        self._machines, self._record = machines, record
        self.running: dict[int, tuple[int, int]] = {}
        self.armed: dict[int, ArmedTask] = {}
        self.attempts: dict[int, int] = {}

    def settle(self, each: AttemptRecord) -> None:
        """Find out what has become of an attempt of which nobody has written how it ended."""
        place, there = self._place(each)
        if there:
            self.running[self._flow.index[each.task]] = (place, each.attempt)
            return
        result = self._folder.end(each.task, each.attempt)
        found: dict[str, Any] = result or {"outcome": "lost", "reason": "nobody knows what became of it"}
        self._record(end_record(each.task, each.attempt, found, 0.0))

    def settle_armed(self, each: ArmedRecord) -> None:
        """Find out whether a task that was given to its machine beforehand has begun, will begin, or never will."""
        task, (place, there) = self._flow.index[each.task], self._place(each)
        awaited = [self._history.attempts[_split(key)] for key in each.after]
        outcomes = [None if other.end is None else other.end["outcome"] for other in awaited]
        if any(outcome not in ("done", None) for outcome in outcomes):
            # A machine that is there has forgotten it; one that is gone may have begun it before anybody was told.
            self._burn(task, each.attempt - there)
        elif None in outcomes:  # so the machine is there
            after = [other.task for other in awaited if other.end is None]
            self.armed[place] = ArmedTask(task, each.attempt, frozenset(self._flow.index[name] for name in after))
            self._burn(task, each.attempt)
        elif there or (self._folder.path / self._folder.attempt(each.task, each.attempt)).exists():
            self._record(start_record(each.task, each.attempt, each.vm, each.pilot))
            self.settle(self._history.attempts[each.task, each.attempt])
        else:  # its machine was told to stop before it could begin it
            self._burn(task, each.attempt)

    def _place(self, each: AttemptRecord | ArmedRecord) -> tuple[int, bool]:
        place, pilot = self._machines.get(each.vm, (-1, -1))
        return place, pilot == each.pilot

    def _burn(self, task: int, attempt: int) -> None:
        """No later attempt may have this number, or one before it."""
        self.attempts[task] = max(self.attempts.get(task, 0), attempt)


def departures(
    folder: WorkflowRunFolder, history: RunHistory, vms: Collection[str], *, last: float, linger: float
) -> list[dict[str, Any]]:
    """That machines which nobody has seen go have gone, for the journal: when they say themselves, or at the latest.

    Args:
        folder: The run's folder.
        history: Its journal.
        vms: The names of the machines; the newest pilot of each is meant.
        last: When the last controller gave its last sign, in seconds since the epoch.
        linger: Seconds that a machine waits without controller and tasks.
    """
    now, alive = time.time(), {(vm, history.pilots[vm]): last for vm in vms}
    for each in history.open():
        pilot = (each.vm, each.pilot)
        if pilot in alive and (result := folder.end(each.task, each.attempt)) is not None:
            alive[pilot] = max(alive[pilot], result["began"] + result["seconds"])
    return [
        {"e": "left", "vm": vm, "at": min(now, _said(folder.pilot(vm, number)) or seen + linger)}
        for (vm, number), seen in alive.items()
    ]


def _said(pilot: Path) -> float | None:
    """When a machine went, as it says itself."""
    try:
        return float(json.loads((pilot / "left.json").read_text(encoding="utf-8"))["at"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _split(key: str) -> tuple[str, int]:
    task, _, attempt = key.rpartition("#")
    return task, int(attempt)


def recover(
    flow: Workflow,
    folder: WorkflowRunFolder,
    history: RunHistory,
    machines: dict[str, tuple[int, int]],
    record: Callable[..., None],
) -> ExecutionOpened:
    """The beginning of a session, from all that earlier sessions have left.

    An attempt of which nobody has written how it ended is still running if its machine is there; it has ended if the
    machine left a note of that in its folder; otherwise it is lost, and the task is run again. A task that was given
    to its machine beforehand has begun if all that it waited for has ended well.

    Args:
        flow: The workflow.
        folder: The run's folder.
        history: Its journal.
        machines: The machines of earlier sessions that are still there: name -> (place, number of its pilot).
        record: Writes into the journal, and so into ``history``, what is found out here.
    """
    found = _Recovery(flow, folder, history, machines, record)
    for each in history.open():
        found.settle(each)
    for arming in list(history.armings.values()):
        found.settle_armed(arming)
    done = {flow.index[task]: each.attempt for task, each in history.done().items()}
    for task in sorted(_lacking(flow, folder, done)):
        reason = "an output that is still needed is not there any more"
        record(
            {"e": "end", "task": flow.tasks[task].id, "attempt": done.pop(task), "outcome": "gone", "reason": reason}
        )
    attempts = found.attempts
    for task_id, attempt in history.attempts:
        attempts[flow.index[task_id]] = max(attempts.get(flow.index[task_id], 0), attempt)
    return ExecutionOpened(frozenset(done), found.running, attempts, replan=history.replans > 0, armed=found.armed)


def _lacking(flow: Workflow, folder: WorkflowRunFolder, done: Collection[int]) -> set[int]:
    """Only real programs leave outputs that can be missing."""
    if not any(task.command for task in flow.tasks):
        return set()
    return folder.lacking(flow, done)
