"""Plans what is left of a run, and lets a planner's director decide during the run from what really happens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from tradewind.errors import PluginError
from tradewind.workflow.graph import Numbers, Workflow
from tradewind.workflow.planner.base import Online, Planner
from tradewind.workflow.planner.list_scheduling import MachineArrays
from tradewind.workflow.platform import Platform
from tradewind.workflow.schedule import Schedule
from tradewind.workflow.simulator.reference import Director, SimulationState

Orders = dict[int, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class ActiveTask:
    """A task that runs, or that its machine will begin by itself.

    Attributes:
        task: The task.
        vm: The machine that it runs on.
        seconds: Until it ends, from now; or from the end of those that it waits for.
        after: The tasks on that machine that it waits for; all of them run.
    """

    task: int
    vm: int
    seconds: float
    after: frozenset[int] = frozenset()


def remaining_workflow(flow: Workflow, tasks: Sequence[int]) -> Workflow:
    """Make the workflow of some of its tasks; what they wait for outside of it does not count.

    Args:
        flow: The workflow.
        tasks: The tasks, sorted.
    """
    place = {task: number for number, task in enumerate(tasks)}
    return Workflow(
        name=flow.name,
        tasks=tuple(flow.tasks[task] for task in tasks),
        parents=tuple(tuple(place[p] for p in flow.parents[task] if p in place) for task in tasks),
        sizes=flow.sizes,
    )


def plan_remaining(
    flow: Workflow,
    platform: Platform,
    tasks: Sequence[int],
    vms: Sequence[int],
    active_tasks: Sequence[ActiveTask],
    planner: Planner,
) -> tuple[Orders, Numbers, Numbers, Numbers]:
    """Plan some tasks on some machines, around what is under way there.

    The planner knows when each machine has a free slot. Of what tasks wait for outside of ``tasks`` it knows nothing:
    where that is still under way, they keep the machines that it gives them, and others fill the time until then.

    Args:
        flow: The workflow.
        platform: All machines.
        tasks: The tasks that are left.
        vms: The machines that are left.
        active_tasks: Tasks that run on the machines, or that these will begin by themselves.
        planner: Planner of the rest.

    Returns:
        The order of each machine; and for ``tasks`` their machines, starts and ends in seconds from now.

    Raises:
        WorkflowError: A task fits on no machine that is left.
    """
    there = [each for each in active_tasks if each.vm in set(vms)]
    busy = _busy(flow, platform, there)
    machines = tuple(replace(platform.vms[vm], boot_seconds=busy.get(vm, 0.0)) for vm in vms)
    left = replace(platform, vms=machines)
    rest = remaining_workflow(flow, tasks)
    left.check(rest)
    schedule = planner.plan(rest, left)
    if there:
        schedule = _around(flow, rest, left, tasks, vms, there, schedule)
    orders = {vms[vm]: tuple(tasks[task] for task in places) for vm, places in schedule.order_in(rest).items()}
    return orders, np.array(vms)[schedule.vm], schedule.start, schedule.finish


def _busy(flow: Workflow, platform: Platform, active_tasks: Sequence[ActiveTask]) -> dict[int, float]:
    """Seconds until each machine has a free slot, of those that have none; what begins by itself counts as run."""
    amounts, rooms = platform.scarce(flow)
    left: dict[int, dict[int, float]] = {}
    for each in sorted(active_tasks, key=lambda each: len(each.after)):
        ends = left.setdefault(each.vm, {})
        ends[each.task] = max((ends.pop(task) for task in each.after), default=0.0) + each.seconds
    return {
        vm: min(ends.values())
        for vm, ends in left.items()
        if sum(flow.tasks[task].cores for task in ends) >= platform.vms[vm].slots
        or bool((amounts[list(ends)].sum(axis=0) >= np.maximum(rooms[vm], 1)).any())
    }


def _around(
    flow: Workflow,
    rest: Workflow,
    left: Platform,
    tasks: Sequence[int],
    vms: Sequence[int],
    active_tasks: Sequence[ActiveTask],
    schedule: Schedule,
) -> Schedule:
    """The same tasks on the same machines, none of them before what it waits for can have ended.

    They are placed in the order of the schedule, behind what is under way, and each where it can begin first: so one
    that waits leaves its machine to those after it, and none begins later than in that order.
    """
    place = {each.task: len(rest) + number for number, each in enumerate(active_tasks)}
    speeds = [left.vms[vms.index(each.vm)].speed for each in active_tasks]
    extended = Workflow(
        name=rest.name,
        tasks=(
            *rest.tasks,
            *(
                replace(flow.tasks[each.task], runtime=each.seconds * speed, inputs=(), outputs=())
                for each, speed in zip(active_tasks, speeds, strict=True)
            ),
        ),
        parents=(
            *(
                (*parents, *(place[parent] for parent in flow.parents[task] if parent in place))
                for task, parents in zip(tasks, rest.parents, strict=True)
            ),
            *(tuple(place[task] for task in sorted(each.after)) for each in active_tasks),
        ),
        sizes=rest.sizes,
    )
    booted = replace(left, vms=tuple(replace(vm, boot_seconds=0.0) for vm in left.vms))
    given = np.array([*schedule.vm, *(vms.index(each.vm) for each in active_tasks)])
    elsewhere = np.where(given[:, None] == np.arange(len(vms))[None, :], 0.0, np.inf)
    first = sorted(active_tasks, key=lambda each: len(each.after))
    sequence = np.array([*(place[each.task] for each in first), *schedule.sequence(rest)])
    around = MachineArrays(extended, booted).insert(sequence, elsewhere)
    count = len(rest)
    return Schedule(around.vm[:count], around.start[:count], around.finish[:count])


class OnlineGuide(Protocol):
    """Decides where tasks go while a plan is carried out, and learns of the ends of attempts.

    Tasks and machines are numbered as in the whole workflow.

    Attributes:
        vms: The machines that it gives tasks to.
    """

    vms: tuple[int, ...]

    def pick(
        self, ready: Sequence[int], free: Sequence[int], spare: Sequence[Sequence[int]] = ()
    ) -> tuple[int, int] | None:
        """A ready task and the machine that it is started on now, or None to wait.

        Args:
            ready: Tasks whose parents have ended, those of the highest priority first, then in the order in which they
                became ready.
            free: Free slots of each machine; none where it is not there.
            spare: Amounts that are free there of what can run out besides, in the whole workflow.
        """
        ...

    def ended(self, task: int, vm: int, *, failed: bool) -> None:
        """An attempt has ended; one that failed has to be run again."""
        ...


def check_online(planner: Planner) -> None:
    """Check that a planner can decide during a run.

    Raises:
        PluginError: The planner cannot.
    """
    if not isinstance(planner, Online):
        hint = "adaptive, fcfs, mct, minmin, maxmin, sufferage and q_learning do, with --planner"
        raise PluginError(f"the planner {planner.name} does not decide during a run", hint=hint)


class DirectorGuide:
    """Lets a director decide over what is left of a workflow.

    Args:
        director: Director of the workflow of ``tasks`` on the machines of ``left``.
        rest: That workflow.
        left: Those machines.
        tasks: The tasks that are left, sorted.
        vms: The machines that are left, sorted.
        clock: Seconds since the run began, as the plan has them.
        counted: Resources that can run out in the whole workflow, as `Platform.scarce_names` has them.
    """

    def __init__(
        self,
        director: Director,
        rest: Workflow,
        left: Platform,
        tasks: Sequence[int],
        vms: Sequence[int],
        clock: Callable[[], float],
        counted: Sequence[str] = (),
    ) -> None:
        self.vms = tuple(vms)
        self._director, self._clock, self._tasks = director, clock, tuple(tasks)
        self._task = {task: place for place, task in enumerate(tasks)}
        self._vm = {vm: place for place, vm in enumerate(vms)}
        self._state = SimulationState(rest, left, 0.0, [0] * len(vms), [set() for _ in vms], [-1] * len(tasks))
        # What can run out in what is left can run out in the whole.
        self._columns = [counted.index(name) for name in left.scarce_names(rest)]
        self._begun: dict[int, float] = {}
        self._deciding = False

    def pick(
        self, ready: Sequence[int], free: Sequence[int], spare: Sequence[Sequence[int]] = ()
    ) -> tuple[int, int] | None:
        """See `OnlineGuide.pick`. All that is decided until it waits is decided at one moment."""
        state = self._state
        if not self._deciding:
            self._tick()
        state.free = [free[vm] for vm in self.vms]
        state.spare = [[spare[vm][place] for place in self._columns] for vm in self.vms]
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
        """See `OnlineGuide.ended`; the director learns only of attempts that it began itself."""
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
    """Make the guide of a planner's director over some tasks and machines.

    Args:
        flow: The workflow.
        platform: All machines.
        tasks: The tasks that are left, sorted; those that run may have to be run again.
        vms: The machines that are left, sorted.
        planner: Planner that makes the director.
        clock: Seconds since the run began, as the plan has them.
        booted: True when the machines are up, or as good as.

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
    director, counted = planner.director(rest, left), platform.scarce_names(flow)
    return DirectorGuide(director, rest, left, tasks, vms, clock, counted)
