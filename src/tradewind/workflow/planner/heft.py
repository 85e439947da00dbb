"""Heterogeneous earliest finish time, with a correct search for gaps."""

from __future__ import annotations

from tradewind.workflow.graph import Workflow
from tradewind.workflow.planner.base import Planner
from tradewind.workflow.planner.list_scheduling import MachineArrays, SlotArrays, by_rank, is_plain
from tradewind.workflow.platform import Platform
from tradewind.workflow.schedule import Schedule


class HeftPlanner(Planner):
    """HEFT: tasks in the order of their upward ranks, each where it ends first, gaps included.

    Topcuoglu, Hariri and Wu, "Performance-effective and low-complexity task scheduling for heterogeneous computing",
    IEEE TPDS 13(3), 2002. Reading from shared storage counts as part of a task; under local storage the files between
    two tasks count in the ranks, and a task is longer where its files are not.
    """

    def plan(self, flow: Workflow, platform: Platform) -> Schedule:
        """See `Planner.plan`."""
        if is_plain(flow, platform):
            lanes = SlotArrays(flow, platform)
            return lanes.place(by_rank(flow, lanes.mean_ranks()))
        machines = MachineArrays(flow, platform)
        return machines.insert(by_rank(flow, machines.upward(machines.means)))
