"""Plans what is left of a workflow on the machines that are left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tradewind.workflow.graph import Numbers, Workflow
from tradewind.workflow.planner.base import Planner
from tradewind.workflow.platform import Platform

Orders = dict[int, tuple[int, ...]]


def rest_of(flow: Workflow, tasks: Sequence[int]) -> Workflow:
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


def plan_rest(
    flow: Workflow,
    platform: Platform,
    tasks: Sequence[int],
    vms: Sequence[int],
    busy: Mapping[int, float],
    planner: Planner,
) -> tuple[Orders, Numbers, Numbers, Numbers]:
    """Plan some tasks on some machines, each of which is busy for a while yet.

    Args:
        flow: The workflow.
        platform: All machines.
        tasks: The tasks that are left.
        vms: The machines that are left.
        busy: Seconds until each of them has a free slot.
        planner: Who plans.

    Returns:
        The order of each machine; and for ``tasks`` their machines, starts and ends in seconds from now.

    Raises:
        WorkflowError: A task fits on no machine that is left.
    """
    machines = tuple(replace(platform.vms[vm], boot_seconds=busy.get(vm, 0.0)) for vm in vms)
    left = replace(platform, vms=machines)
    rest = rest_of(flow, tasks)
    left.check(rest)
    schedule = planner.plan(rest, left)
    orders = {vms[vm]: tuple(tasks[task] for task in places) for vm, places in schedule.order_in(rest).items()}
    return orders, np.array(vms)[schedule.vm], schedule.start, schedule.finish
