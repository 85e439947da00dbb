"""Turns workflows and schedules into the plain documents that pictures are drawn from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tradewind.workflow.graph import Workflow
from tradewind.workflow.platform import Platform
from tradewind.workflow.schedule import Schedule


def critical_chain(flow: Workflow, schedule: Schedule) -> tuple[int, ...]:
    """Find the tasks that the makespan consists of: each begins when a parent, or a task on its machine, ends.

    Where nothing ends at a task's start (it waited for something else), the chain goes on with what ended last.
    """
    if not len(flow):
        return ()
    turns = schedule.order_in(flow)
    before = {task: tasks[:place] for tasks in turns.values() for place, task in enumerate(tasks)}
    task = int(schedule.finish.argmax())
    chain = [task]
    while True:
        start = float(schedule.start[task])
        near = 1e-9 * max(1.0, start)
        # A parent that ends at the same moment says more than a neighbour on the machine.
        found = [(float(schedule.finish[p]), 1, p) for p in flow.parents[task]]
        found += [(float(schedule.finish[t]), 0, t) for t in before[task] if schedule.finish[t] <= start + near]
        if not found:
            return tuple(reversed(chain))
        latest = max(each[0] for each in found)
        task = max((each[1], -each[2]) for each in found if each[0] >= latest - near)[1] * -1
        if task in chain:
            return tuple(reversed(chain))
        chain.append(task)


def gantt_document(
    flow: Workflow,
    platform: Platform,
    schedule: Schedule,
    *,
    title: str,
    actual: Schedule | None = None,
    figures: Sequence[tuple[str, str]] = (),
) -> dict[str, Any]:
    """Turn a schedule into the document that `tradewind.reporting.workflow.layout` describes.

    Args:
        flow: The workflow.
        platform: The machines that its tasks run on.
        schedule: The plan; of a simulation without one, what was simulated: tasks that did not run are left out.
        title: The picture's heading.
        actual: The real or simulated run, drawn beneath the plan; None for the plan alone.
        figures: Names and values to show above.
    """
    critical = set(critical_chain(flow, schedule))
    rows = []
    for place, task in enumerate(flow.tasks):
        if schedule.vm[place] < 0:
            continue
        row = {
            "task": task.id,
            "activity": task.activity,
            "vm": platform.vms[schedule.vm[place]].name,
            "start": float(schedule.start[place]),
            "finish": float(schedule.finish[place]),
            "cores": task.cores,
            "critical": place in critical,
        }
        if actual is not None and actual.vm[place] >= 0:
            row |= {
                "actual_vm": platform.vms[actual.vm[place]].name,
                "actual_start": float(actual.start[place]),
                "actual_finish": float(actual.finish[place]),
            }
        rows.append(row)
    vms = [{"name": vm.name, "kind": vm.kind, "slots": vm.slots} for vm in platform.vms]
    return {"title": title, "vms": vms, "tasks": rows, "figures": [list(each) for each in figures]}


def dag_document(flow: Workflow) -> dict[str, Any]:
    """Turn a workflow into the document that `tradewind.reporting.workflow.dag` draws."""
    critical = set(flow.critical_path()[1])
    return {
        "title": flow.name,
        "tasks": [
            {
                "task": task.id,
                "activity": task.activity,
                "runtime": task.runtime,
                "depth": int(flow.depth[place]),
                "critical": place in critical,
            }
            for place, task in enumerate(flow.tasks)
        ],
        "edges": [[parent, child] for child, parents in enumerate(flow.parents) for parent in parents],
    }
