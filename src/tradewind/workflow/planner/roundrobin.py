"""Machines in turn."""

from __future__ import annotations

import numpy as np

from tradewind.workflow.graph import Workflow
from tradewind.workflow.planner.base import Planner
from tradewind.workflow.planner.list_scheduling import MachineArrays
from tradewind.workflow.platform import Platform
from tradewind.workflow.schedule import Schedule


class RoundrobinPlanner(Planner):
    """Round robin: the first task goes to the first machine, the next to the next, and so on in a circle.

    Tasks are taken in an order in which parents come first. A machine that a task does not fit on is passed over.
    """

    def plan(self, flow: Workflow, platform: Platform) -> Schedule:
        """See `Planner.plan`."""
        machines = MachineArrays(flow, platform)
        count = len(platform.vms)
        given, turn = np.zeros(len(flow), dtype=np.int64), 0
        for task in flow.order:
            turn += next(step for step in range(count) if np.isfinite(machines.seconds[task, (turn + step) % count]))
            given[task] = turn % count
            turn += 1
        return machines.append(flow.order, given)
