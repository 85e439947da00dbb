"""Who decides where tasks go while they run: a planner's director, told of what really happens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from tradewind.errors import PluginError
from tradewind.workflow.execution.replan import remaining_workflow
from tradewind.workflow.graph import Workflow
from tradewind.workflow.planner.base import Online, Planner
from tradewind.workflow.platform import Platform
from tradewind.workflow.simulator.reference import Director, SimulationState


class OnlineGuide(Protocol):
    """Decides, and is told; tasks and machines are numbered as in the whole workflow.

    Attributes:
        vms: The machines that it gives tasks to.
    """

    vms: tuple[int, ...]

    def pick(self, ready: Sequence[int], free: Sequence[int], spare: Sequence[int] = ()) -> tuple[int, int] | None:
        """A ready task and the machine that it is started on now, or None to wait.

        Args:
            ready: Tasks whose parents have ended, in the order in which they became ready.
            free: Free slots of each machine; none where it is not there.
            spare: Bytes of memory that are free there, where they are counted.
        """
        ...

    def ended(self, task: int, vm: int, *, failed: bool) -> None:
        """An attempt has ended; one that failed has to be run again."""
        ...


def check_online(planner: Planner) -> None:
    """See that a planner can decide during a run.

    Raises:
        PluginError: It cannot.
    """
    if not isinstance(planner, Online):
        hint = "adaptive, fcfs, mct, minmin, maxmin, sufferage and q_learning do, with --planner"
        raise PluginError(f"the planner {planner.name} does not decide during a run", hint=hint)


class DirectorGuide:
    """A director over what is left of a workflow.

    Args:
        director: Who decides, of the workflow of ``tasks`` on the machines of ``left``.
        rest: That workflow.
        left: Those machines.
        tasks: The tasks that are left, sorted.
        vms: The machines that are left, sorted.
        clock: Seconds since the run began, as the plan has them.
    """

    def __init__(
        self,
        director: Director,
        rest: Workflow,
        left: Platform,
        tasks: Sequence[int],
        vms: Sequence[int],
        clock: Callable[[], float],
    ) -> None:
        self.vms = tuple(vms)
        self._director, self._clock, self._tasks = director, clock, tuple(tasks)
        self._task = {task: place for place, task in enumerate(tasks)}
        self._vm = {vm: place for place, vm in enumerate(vms)}
        self._state = SimulationState(rest, left, 0.0, [0] * len(vms), [set() for _ in vms], [-1] * len(tasks))
        self._begun: dict[int, float] = {}
        self._deciding = False

    def pick(self, ready: Sequence[int], free: Sequence[int], spare: Sequence[int] = ()) -> tuple[int, int] | None:
        """See `OnlineGuide.pick`. All that is decided until it waits is decided at one moment."""
        state = self._state
        if not self._deciding:
            self._tick()
        state.free = [free[vm] for vm in self.vms]
        if spare and state.platform.tight(state.flow):
            state.spare = [float(spare[vm]) for vm in self.vms]
        picked = self._director.pick([self._task[task] for task in ready if task in self._task], state)
        self._deciding = picked is not None
        if picked is None:
            return None
        task, vm = picked
        state.vm[task] = vm
        state.holding[vm].update(state.flow.real_inputs[task])
        self._begun[task] = state.now
        return self._tasks[task], self.vms[vm]

    def ended(self, task: int, vm: int, *, failed: bool) -> None:
        """See `OnlineGuide.ended`. It is not told of what it has not begun: that ran before it, or on another's word."""
        self._deciding = False
        self._tick()
        place, where = self._task.get(task), self._vm.get(vm)
        if place is None or where is None or place not in self._begun:
            return
        state = self._state
        self._director.ended(place, where, self._begun.pop(place), state.now, failed)
        if failed:
            state.vm[place] = -1
            return
        state.finished.add(place)
        state.holding[where].update(state.flow.tasks[place].outputs)

    def _tick(self) -> None:
        self._state.now = max(self._state.now, self._clock())


def guide_for(
    flow: Workflow,
    platform: Platform,
    tasks: Sequence[int],
    vms: Sequence[int],
    planner: Planner,
    clock: Callable[[], float],
    *,
    booted: bool,
) -> DirectorGuide:
    """A planner's director over some tasks and machines.

    Args:
        flow: The workflow.
        platform: All machines.
        tasks: The tasks that are left, sorted; those that run may have to be run again.
        vms: The machines that are left, sorted.
        planner: Whose director it is.
        clock: Seconds since the run began, as the plan has them.
        booted: The machines are up, or as good as.

    Raises:
        PluginError: The planner does not decide during a run.
        WorkflowError: A task fits on no machine that is left.
    """
    check_online(planner)
    assert isinstance(planner, Online)
    machines = tuple(platform.vms[vm] for vm in vms)
    left = replace(platform, vms=tuple(replace(vm, boot_seconds=0.0) for vm in machines) if booted else machines)
    rest = remaining_workflow(flow, tasks)
    left.check(rest)
    return DirectorGuide(planner.director(rest, left), rest, left, tasks, vms, clock)
