"""Critical path on a processor."""

from __future__ import annotations

import numpy as np

from tradewind.workflow.graph import Workflow
from tradewind.workflow.planner.base import Planner
from tradewind.workflow.planner.list_scheduling import MachineArrays, by_priority
from tradewind.workflow.platform import Platform
from tradewind.workflow.schedule import Schedule

_CLOSE = 1e-9


class CpopPlanner(Planner):
    """CPOP: the critical path goes to the one machine that runs it fastest, the rest where it ends first.

    Topcuoglu, Hariri and Wu, "Performance-effective and low-complexity task scheduling for heterogeneous computing",
    IEEE TPDS 13(3), 2002, section 4.2. A task of the path that does not fit on that machine goes where it ends first.
    """

    def plan(self, flow: Workflow, platform: Platform) -> Schedule:
        """See `Planner.plan`."""
        machines = MachineArrays(flow, platform)
        priorities = machines.upward(machines.means) + machines.downward(machines.means)
        path = _path(flow, np.asarray(priorities))
        # The machine that runs most of the path, and that part fastest.
        times = machines.seconds[path]
        fits = np.isfinite(times)
        chosen = int(np.lexsort((np.where(fits, times, 0.0).sum(axis=0), -fits.sum(axis=0)))[0])
        bonus = np.zeros_like(machines.seconds)
        for task in path:
            if np.isfinite(machines.seconds[task, chosen]):
                bonus[task] = np.inf
                bonus[task, chosen] = 0.0
        return machines.insert(by_priority(flow, priorities), bonus)


def _path(flow: Workflow, priorities: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> list[int]:
    """The critical path: from the first task of the highest priority through children of the same priority."""
    roots = [task for task, parents in enumerate(flow.parents) if not parents]
    path = [max(roots, key=lambda task: (priorities[task], -task))]
    length = priorities[path[0]]
    while True:
        following = [c for c in flow.children[path[-1]] if priorities[c] >= length * (1.0 - _CLOSE)]
        if not following:
            return path
        path.append(following[0])
