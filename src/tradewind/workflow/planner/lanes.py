"""A workflow and its machines as the arrays that the compiled loops take."""

from __future__ import annotations

import numpy as np

from tradewind.workflow.graph import Indices, Numbers, Workflow
from tradewind.workflow.plan import Schedule
from tradewind.workflow.platform import Platform


class Lanes:
    """A workflow and its machines as arrays: a lane is a slot of a machine.

    Args:
        flow: The workflow; each of its tasks uses one core.
        platform: Its machines.

    Attributes:
        seconds: Of each task on each machine; shape (tasks, machines).
    """

    def __init__(self, flow: Workflow, platform: Platform) -> None:
        self.flow, self.platform = flow, platform
        self.seconds = platform.seconds(flow)
        self._parent_starts, self._parents = flow.csr(flow.parents)
        self._child_starts, self._children = flow.csr(flow.children)
        self._waiting = np.diff(self._parent_starts)
        self._vm = np.repeat(np.arange(len(platform.vms)), [vm.slots for vm in platform.vms])
        self._ready_at = np.array([platform.vms[vm].boot_seconds for vm in self._vm])

    def mean_ranks(self) -> Numbers:
        """The upward rank of each task: the longest path to the end, tasks taken at their mean over the lanes."""
        return self.ranks(self.seconds[:, self._vm].mean(axis=1))

    def ranks(self, weights: Numbers) -> Numbers:
        """The longest path from each task to the end, its own weight included."""
        from tradewind.workflow import kernel

        return kernel.upward_ranks(self.flow.order, self._child_starts, self._children, weights)

    def place(self, sequence: Indices) -> Schedule:
        """Place the tasks of a sequence one after the other where each ends first, gaps included."""
        from tradewind.workflow import kernel

        lane, start, finish = kernel.insert_all(
            sequence, self._parent_starts, self._parents, self.seconds, self._vm, self._ready_at
        )
        return Schedule(self._vm[lane].astype(np.int32), start, finish)

    def simulate(self, keys: Numbers, preference: Indices) -> Schedule:
        """Run it: the ready task of the smallest key goes to the first idle machine of ``preference``."""
        from tradewind.workflow import kernel

        rank = np.empty(len(self.platform.vms), dtype=np.int64)
        rank[preference] = np.arange(len(preference))
        lanes = np.lexsort((np.arange(len(self._vm)), rank[self._vm]))
        lane, start, finish = kernel.simulate_online(
            self._child_starts, self._children, self._waiting, self.seconds, keys, self._vm, lanes, self._ready_at
        )
        return Schedule(self._vm[lane].astype(np.int32), start, finish)

    def climb(self, ranks: Numbers, best: float, goal: float, turns: int, seed: int) -> tuple[Numbers, float, int]:
        """Change priorities at random and keep what is no worse; see `tradewind.workflow.kernel.climb`."""
        from tradewind.workflow import kernel

        return kernel.climb(
            self.flow.order, self._child_starts, self._children, self._parent_starts, self._parents, self.seconds,
            self._vm, self._ready_at, ranks, best, goal, turns, seed,
        )  # fmt: skip
