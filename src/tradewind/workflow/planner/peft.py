"""Predict earliest finish time: HEFT that looks ahead."""

from __future__ import annotations

import numpy as np

from tradewind.workflow.graph import Workflow
from tradewind.workflow.planner.base import Planner
from tradewind.workflow.planner.list_scheduling import MachineArrays, by_priority
from tradewind.workflow.platform import Platform
from tradewind.workflow.schedule import Schedule


class PeftPlanner(Planner):
    """PEFT: like HEFT, but the choice of a machine also counts the shortest possible way from there to the end.

    Arabnejad and Barbosa, "List scheduling algorithm for heterogeneous systems by an optimistic cost table", IEEE TPDS
    25(3), 2014: the table of equation 6, its mean over the machines as priority, gaps included.
    """

    def plan(self, flow: Workflow, platform: Platform) -> Schedule:
        """See `Planner.plan`."""
        machines = MachineArrays(flow, platform)
        table = machines.cost_table()
        return machines.insert(by_priority(flow, np.asarray(table.mean(axis=1))), table)
