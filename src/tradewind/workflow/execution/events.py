"""Events of a plan that is carried out, and the instructions that answer them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from tradewind.workflow.execution.task_states import ArmedTask

if TYPE_CHECKING:
    from tradewind.workflow.execution.replanning import OnlineGuide


class AttemptOutcome(StrEnum):
    """The way that one attempt at a task ended.

    ``done``: its program ended well, and its outputs are there. ``failed``: that is not so, and it is the task's own
    fault. ``lost``: its machine went away while it ran, or nobody knows what became of it.
    """

    DONE = "done"
    FAILED = "failed"
    LOST = "lost"


class ExecutionEnding(StrEnum):
    """The way that carrying out a plan ended.

    ``done``: every task. ``failed``: tasks failed, and all that did not need them was run. ``machines``: no machine is
    left. ``impossible``: what is left fits on no machine that is left. ``interrupted``: the user wanted it.
    """

    DONE = "done"
    FAILED = "failed"
    MACHINES = "machines"
    IMPOSSIBLE = "impossible"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class ExecutionOpened:
    """The run begins, or goes on after its controller was ended.

    Attributes:
        finished: Tasks that have ended well, and whose outputs are there.
        running: Tasks that may still be running, each with its machine and the number of the attempt.
        attempts: Starts of each task so far, those of earlier sessions included.
        replan: The plan's order does not hold any more.
        armed: By machine, the task that it begins by itself after some of those that run.
        later: Machines that are not asked for before they are `VmDue`.
    """

    finished: frozenset[int] = frozenset()
    running: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    attempts: Mapping[int, int] = field(default_factory=dict)
    replan: bool = False
    armed: Mapping[int, ArmedTask] = field(default_factory=dict)
    later: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class VmDue:
    """The time of the plan has come to ask for a machine that has not been asked for yet."""

    vm: int


@dataclass(frozen=True, slots=True)
class MachineUp:
    """A machine can run tasks."""

    vm: int


@dataclass(frozen=True, slots=True)
class MachineSilent:
    """A machine is as good as gone: nothing is started there, and ends on it are read before it counts as lost."""

    vm: int


@dataclass(frozen=True, slots=True)
class MachineLost:
    """A machine is gone, with all that ran on it."""

    vm: int


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """An attempt at a task has ended.

    Attributes:
        task: The task.
        attempt: Number of the attempt at the task, from 1.
        outcome: The way that it ended.
    """

    task: int
    attempt: int
    outcome: AttemptOutcome


@dataclass(frozen=True, slots=True)
class OrderPlanned:
    """There is a new order for what is left, by machine."""

    order: Mapping[int, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class GuideReady:
    """A new guide decides where the tasks that are left go."""

    guide: OnlineGuide


@dataclass(frozen=True, slots=True)
class PlanFailed:
    """The rest cannot be planned on the machines that are left."""


@dataclass(frozen=True, slots=True)
class ExecutionInterrupted:
    """The run is to stop."""


ExecutionEvent = (
    ExecutionOpened
    | VmDue
    | MachineUp
    | MachineSilent
    | MachineLost
    | AttemptEnded
    | OrderPlanned
    | GuideReady
    | PlanFailed
    | ExecutionInterrupted
)


@dataclass(frozen=True, slots=True)
class TaskLaunch:
    """Write down that a task is started, then start it.

    Attributes:
        task: The task.
        vm: The machine that it runs on.
        attempt: Number of the attempt at the task, from 1.
    """

    task: int
    vm: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Arm:
    """Write down that a machine begins a task by itself after others, then give it the task.

    The machine does so when all of the others have ended well, and forgets it when one of them has ended otherwise.

    Attributes:
        task: The task.
        vm: The machine.
        attempt: Number of the attempt at the task, from 1.
        after: The tasks that it waits for: they run on that machine.
    """

    task: int
    vm: int
    attempt: int
    after: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ArmedTaskBegun:
    """Write down that a machine has begun the task that it was given beforehand; nothing is sent to it.

    Attributes:
        task: The task.
        vm: The machine.
        attempt: Number of the attempt at the task, from 1.
    """

    task: int
    vm: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Replan:
    """Plan what is left; `OrderPlanned`, `GuideReady` or `PlanFailed` is the answer.

    Running tasks go on meanwhile.

    Attributes:
        tasks: The tasks that have neither begun nor ended, nor wait for one that failed; where somebody decides during
            the run, those that run as well.
        vms: The machines that are left.
    """

    tasks: tuple[int, ...]
    vms: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Write down that a machine is given back, then give it back: nothing is left to do there.

    It may not have come yet, or not even have been asked for.

    Attributes:
        vm: The machine.
    """

    vm: int


@dataclass(frozen=True, slots=True)
class Recall:
    """Ask for a machine that was not asked for yet, or was given back; `MachineUp` is the answer.

    Attributes:
        vm: The machine.
    """

    vm: int


@dataclass(frozen=True, slots=True)
class Finish:
    """Event after which nothing more will be started.

    Attributes:
        ending: Reason of the end.
    """

    ending: ExecutionEnding


ExecutionInstruction = TaskLaunch | Arm | ArmedTaskBegun | Replan | GiveBack | Recall | Finish
