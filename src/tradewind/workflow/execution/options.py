"""Settings and progress of a plan that is carried out."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from tradewind.workflow.execution.journal import RunHistory
from tradewind.workflow.execution.state_machine import ExecutionMachine
from tradewind.workflow.execution.task_states import RetryLimits, TaskState, VmState
from tradewind.workflow.graph import Numbers
from tradewind.workflow.platform import Platform
from tradewind.workflow.schedule import AHEAD_SECONDS


@dataclass(frozen=True)
class ExecutionOptions:
    """Settings of carrying out a plan.

    Attributes:
        inputs: The folder of the files that come from outside.
        retry_limits: Limits of repeated attempts.
        isolated: True gives each task a working folder of its own, instead of all working in the same.
        synthetic: True lets tasks without a command take as long as the plan says, and do nothing.
        scale: Time that such a task takes, as a share of the plan's.
        gather: Seconds that the first machine waits for the others.
        give_up: Seconds after the first task could begin at which machines that have not come are given up.
        online: True when the planner decides during the run where each task goes, instead of the plan.
        ahead: Seconds before its first task at which a machine that costs money is asked for at the latest; see
            `tradewind.workflow.schedule.vm_request_times`. None asks for all at the beginning, as `online` does.
        give_back: True to give machines back as soon as the plan has nothing more for them; `online` keeps all to the
            end.
        budget: USD that its machines may cost, or None.
        deadline: Seconds after its beginning at which it is ended, or None.
    """

    inputs: Path
    retry_limits: RetryLimits = field(default_factory=RetryLimits)
    isolated: bool = False
    synthetic: bool = False
    scale: float = 1.0
    gather: float = 30.0
    give_up: float = 600.0
    online: bool = False
    give_back: bool = True
    ahead: float | None = AHEAD_SECONDS
    budget: float | None = None
    deadline: float | None = None


@dataclass(frozen=True, slots=True)
class ExecutionProgress:
    """Progress of a run.

    Attributes:
        done: Tasks that have ended well.
        running: Tasks that run.
        failed: Tasks that failed for good, and those that need them.
        tasks: All tasks.
        up: Machines that are there.
        back: Machines that were given back, for nothing is left to do there.
        later: Machines that are not asked for yet.
        machines: All machines.
        seconds: Since tasks could begin; None before.
        left: Seconds that the rest takes by the plan; None before tasks could begin.
        cost: USD so far, every machine from its first moment on.
        notes: Messages about what has happened since the last time.
    """

    done: int
    running: int
    failed: int
    tasks: int
    up: int
    back: int
    later: int
    machines: int
    seconds: float | None
    left: float | None
    cost: float
    notes: tuple[str, ...]


def execution_progress(
    machine: ExecutionMachine,
    history: RunHistory,
    platform: Platform,
    finish: Numbers,
    notes: tuple[str, ...],
) -> ExecutionProgress:
    """Compute the progress of a run.

    Args:
        machine: State of its tasks and machines.
        history: Journal of the run, put together.
        platform: The machines that its tasks run on.
        finish: Expected end of each task, in seconds from the beginning.
        notes: Messages about what has happened.
    """
    steps = machine.task_states
    waiting = [
        task for task, step in enumerate(steps) if step in (TaskState.WAITING, TaskState.ARMED, TaskState.RUNNING)
    ]
    now = time.time()
    seconds = None if history.began is None else history.clock(now)
    left = None
    if seconds is not None:
        left = max(0.0, float(finish[waiting].max()) - seconds) if waiting else 0.0
    return ExecutionProgress(
        done=steps.count(TaskState.DONE),
        running=steps.count(TaskState.RUNNING),
        failed=steps.count(TaskState.FAILED) + steps.count(TaskState.BLOCKED),
        tasks=len(steps),
        up=machine.vm_states.count(VmState.UP),
        back=machine.vm_states.count(VmState.BACK),
        later=machine.vm_states.count(VmState.LATER),
        machines=len(platform.vms),
        seconds=seconds,
        left=left,
        cost=platform.bill(vm_stays(history, platform, now)),
        notes=notes,
    )


def vm_stays(history: RunHistory, platform: Platform, now: float) -> list[tuple[int, float]]:
    """List the stays of machines: one for each time that a machine was requested and came.

    Args:
        history: The journal of a run, of all its sessions.
        platform: The machines.
        now: The time, in seconds since the epoch.

    Returns:
        Pairs of the machine and its seconds in the plan's time, without the start that one has only played.
    """
    found: dict[tuple[int, int], float] = {}
    names = {vm.name: place for place, vm in enumerate(platform.vms)}
    header = history.header or {}
    scale = header.get("scale", 1.0)
    for name, up, down in history.ups:
        place, end = names[name], now if down is None else down
        seconds = end - up
        if header.get("synthetic") and history.began is not None:
            played = history.boots_from(name, up)
            booted = played + platform.vms[place].boot_seconds * scale
            seconds -= max(0.0, min(end, booted) - max(up, played))
        # A machine that outlived its controller comes up again for the next one without having been asked for.
        stay = place, sum(asked <= up for asked in history.requested.get(name, ()))
        found[stay] = found.get(stay, 0.0) + seconds / scale
    return [(place, seconds) for (place, _), seconds in found.items()]
