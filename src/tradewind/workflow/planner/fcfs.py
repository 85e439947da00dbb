"""First come, first served."""

from __future__ import annotations

import numpy as np

from tradewind.workflow.graph import Workflow
from tradewind.workflow.planner.base import Online, Planner
from tradewind.workflow.planner.list_scheduling import MachineArrays, SlotArrays, is_plain
from tradewind.workflow.platform import Platform
from tradewind.workflow.schedule import Schedule
from tradewind.workflow.simulator.reference import Director, PriorityDirector, simulate


class FcfsPlanner(Planner, Online):
    """FCFS: tasks in the order in which they become ready, each on the first free machine that it fits on.

    Of the tasks that are ready those of a higher priority go first.
    """

    def plan(self, flow: Workflow, platform: Platform) -> Schedule:
        """See `Planner.plan`."""
        if not (is_plain(flow, platform) and platform.suits(flow)):
            return MachineArrays(flow, platform).follow(simulate(flow, platform, self.director(flow, platform)))
        keys = -np.array(flow.priorities or np.zeros(len(flow)), dtype=float)
        return SlotArrays(flow, platform).simulate(keys, np.arange(len(platform.vms), dtype=np.int32))

    def director(self, flow: Workflow, platform: Platform) -> Director:
        """See `Online.director`."""
        platform.check(flow)
        return PriorityDirector([0.0] * len(flow), list(range(len(platform.vms))))
