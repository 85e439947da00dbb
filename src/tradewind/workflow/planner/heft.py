"""Heterogeneous earliest finish time, with a correct search for gaps."""

from __future__ import annotations

import numpy as np

from tradewind.workflow.graph import Indices, Numbers, Workflow
from tradewind.workflow.plan import Schedule
from tradewind.workflow.planner.base import Planner
from tradewind.workflow.planner.lanes import Lanes
from tradewind.workflow.platform import Platform


class HeftPlanner(Planner):
    """HEFT: tasks in the order of their upward ranks, each where it ends first, gaps included.

    Topcuoglu, Hariri and Wu, "Performance-effective and low-complexity task scheduling for heterogeneous computing",
    IEEE TPDS 13(3), 2002. Reading from shared storage counts as part of a task; files on local storage are not
    foreseen.
    """

    def plan(self, flow: Workflow, platform: Platform) -> Schedule:
        """See `Planner.plan`."""
        lanes = Lanes(flow, platform)
        return lanes.place(by_rank(flow, lanes.mean_ranks()))


def by_rank(flow: Workflow, ranks: Numbers) -> Indices:
    """The tasks in descending order of their ranks; of equal ones, parents come first."""
    place = np.empty(len(flow), dtype=np.int64)
    place[flow.order] = np.arange(len(flow))
    return np.lexsort((place, -ranks)).astype(np.int32)
