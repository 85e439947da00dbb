"""Plans what is left of a workflow on the machines that are left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tradewind.workflow.graph import Numbers, Workflow
from tradewind.workflow.planner.base import Planner
from tradewind.workflow.planner.list_scheduling import MachineArrays
from tradewind.workflow.platform import Platform
from tradewind.workflow.schedule import Schedule

Orders = dict[int, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class ActiveTask:
    """A task that runs, or that its machine will begin by itself.

    Attributes:
        task: The task.
        vm: Its machine.
        seconds: Until it ends, from now; or from the end of those that it waits for.
        after: The tasks on that machine that it waits for; all of them run.
    """

    task: int
    vm: int
    seconds: float
    after: frozenset[int] = frozenset()


def remaining_workflow(flow: Workflow, tasks: Sequence[int]) -> Workflow:
    """The workflow of some of its tasks; what they wait for outside of it does not count.

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

    The planner is told when each machine has a free slot. Of what tasks wait for outside of ``tasks`` it knows nothing:
    where that is still under way, they keep the machines that it gives them, and others fill the time until then.

    Args:
        flow: The workflow.
        platform: All machines.
        tasks: The tasks that are left.
        vms: The machines that are left.
        under_way: What runs on them, or will by itself.
        planner: Who plans.

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
    memory, rooms = platform.memory(flow)
    left: dict[int, dict[int, float]] = {}
    for each in sorted(active_tasks, key=lambda each: len(each.after)):
        ends = left.setdefault(each.vm, {})
        ends[each.task] = max((ends.pop(task) for task in each.after), default=0.0) + each.seconds
    return {
        vm: min(ends.values())
        for vm, ends in left.items()
        if sum(flow.tasks[task].cores for task in ends) >= platform.vms[vm].slots
        or sum(int(memory[task]) for task in ends) >= rooms[vm] > 0
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
