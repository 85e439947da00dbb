"""WorkflowSim's simulation of a workflow on machines as Tradewind has them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tradewind.errors import WorkflowError
from tradewind.utils.units import format_memory
from tradewind.workflow.bounds import lower_bound
from tradewind.workflow.graph import Workflow
from tradewind.workflow.platform import Platform
from tradewind.workflow.schedule import Schedule, figures
from tradewind.workflow.simulator.replications import ReplicationResult
from tradewind.workflow.simulator.workflowsim import LOCAL_RATE, POLICIES, SHARED_RATE, WorkflowSim, WorkflowSimVm

WORKFLOWSIM_POLICIES = (*POLICIES, "DHEFT", "HEFT")
"""WorkflowSim's policies and plans. All but HEFT always come to the same result."""


def simulate_like_workflowsim(flow: Workflow, platform: Platform, policy: str) -> ReplicationResult:
    """Simulate it as WorkflowSim 1.0 does: a machine runs one task at a time at the speed of one of its cores.

    A task of several cores takes one. Figures are those of such machines, at WorkflowSim's own bandwidth.

    Args:
        flow: The workflow.
        platform: The machines; speed 1 is 1000 MIPS, and slots are cores, which only say which machine is preferred.
        policy: WorkflowSim's name of it.

    Raises:
        WorkflowError: It has no such policy, storage is neither shared nor local, or a machine is too small for a task:
            its rules look at no memory.
    """
    if policy not in WORKFLOWSIM_POLICIES:
        hint = f"there are {', '.join(WORKFLOWSIM_POLICIES)}"
        raise WorkflowError(f"--compat workflowsim has no planner {policy or 'yet'!r}", hint=hint)
    if platform.storage == "none":
        raise WorkflowError("WorkflowSim knows shared and local storage only", hint="write storage: shared")
    _check_memory(flow, platform)
    vms = [WorkflowSimVm(1000.0 * vm.speed, vm.slots) for vm in platform.vms]
    outcome = WorkflowSim(flow, vms, policy, "SHARED" if platform.storage == "shared" else "LOCAL").run()
    schedule = Schedule(np.array(outcome.vms, dtype=np.int32), np.array(outcome.starts), np.array(outcome.ends))
    rate = SHARED_RATE if platform.storage == "shared" else LOCAL_RATE
    machines = tuple(replace(vm, slots=1, boot_seconds=0.0) for vm in platform.vms)
    single = replace(platform, vms=machines, bandwidth=rate, latency=0.0)
    several = sum(task.cores > 1 for task in flow.tasks)
    narrow = replace(flow, tasks=tuple(replace(task, cores=1) for task in flow.tasks)) if several else flow
    found = figures(narrow, single, schedule, lower_bound(narrow, single))
    notes = [("rules", "those of WorkflowSim 1.0: its clock begins at 0.1 s with a stage-in job")]
    if platform.bandwidth != rate or platform.latency:
        notes.append(("bandwidth", f"{rate:g} MB/s and no latency, as it always has under {platform.storage} storage"))
    if several:
        notes.append(("cores", f"a task takes one there: so do {several:,} that ask for more"))
    if policy == "HEFT":
        notes.append(("ties", "in the order of the file; WorkflowSim's own fall by chance, and its makespan with them"))
    return ReplicationResult(single, schedule, (found,), (0,), tuple(notes))


def _check_memory(flow: Workflow, platform: Platform) -> None:
    known = [vm for vm in platform.vms if vm.memory_bytes is not None]
    small = min(known, key=lambda vm: vm.memory_bytes or 0, default=None)
    if small is None or flow.needs[1] <= (small.memory_bytes or 0):
        return
    task = next(task for task in flow.tasks if task.memory_bytes == flow.needs[1])
    raise WorkflowError(
        f"WorkflowSim puts any task on any machine: task {task.id!r} needs {format_memory(flow.needs[1])} of memory, "
        f"and machine {small.name!r} has {format_memory(small.memory_bytes)}",
        hint="leave out --compat, or machines that are too small; the planner workflowsim puts tasks where they fit",
    )
