"""WorkflowSim's own schedulers under their names."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import Field

from tradewind.plugins import Settings
from tradewind.workflow.graph import Workflow
from tradewind.workflow.planner.base import Planner
from tradewind.workflow.planner.list_scheduling import MachineArrays
from tradewind.workflow.platform import Platform
from tradewind.workflow.schedule import Schedule
from tradewind.workflow.simulator.workflowsim import WorkflowSim, WorkflowSimVm


class WorkflowsimSettings(Settings):
    """Settings of WorkflowSim's schedulers."""

    scheduler: Literal["FCFS", "ROUNDROBIN", "MINMIN", "MAXMIN", "MCT", "DATA", "HEFT", "DHEFT"] = Field(
        "MCT", description="WorkflowSim's name of it; none is the textbook's algorithm of that name"
    )


class WorkflowsimPlanner(Planner):
    """WorkflowSim's schedulers, faults included: where they put tasks and in which order, at Tradewind's times.

    Chen and Deelman, "WorkflowSim: A toolkit for simulating scientific workflows in distributed environments",
    e-Science 2012. Its own makespans come from ``tradewind workflow simulate --compat workflowsim``. Its HEFT leaves
    the order of equal ranks to chance; here it is that of the file. A task that does not fit on its machine, which they
    do not look at, goes to the first that it fits on.
    """

    Settings = WorkflowsimSettings
    settings: WorkflowsimSettings

    def plan(self, flow: Workflow, platform: Platform) -> Schedule:
        """See `Planner.plan`."""
        machines = MachineArrays(flow, platform)
        vms = [WorkflowSimVm(1000.0 * vm.speed, vm.slots) for vm in platform.vms]
        seen = flow
        if platform.storage == "none":
            seen = Workflow(flow.name, tuple(replace(task, inputs=()) for task in flow.tasks), flow.parents, flow.sizes)
        storage: Literal["SHARED", "LOCAL"] = "LOCAL" if platform.storage == "local" else "SHARED"
        outcome = WorkflowSim(seen, vms, self.settings.scheduler, storage).run()
        given = np.array(outcome.vms, dtype=np.int32)
        for task in np.flatnonzero(~np.isfinite(machines.seconds[np.arange(len(flow)), given])):
            given[task] = np.flatnonzero(np.isfinite(machines.seconds[task]))[0]
        return machines.follow(Schedule(given, np.array(outcome.starts), np.array(outcome.ends)))
