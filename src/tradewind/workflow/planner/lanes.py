"""A workflow and its machines as the arrays that the compiled loops take."""

from __future__ import annotations

import numpy as np

from tradewind.workflow.graph import Indices, Numbers, Workflow
from tradewind.workflow.platform import Platform
from tradewind.workflow.schedule import Schedule


def mean_of_fitting(seconds: Numbers) -> Numbers:
    """The mean of each row over what is not infinite."""
    mean = np.asarray(seconds.mean(axis=1))
    if np.isfinite(mean).all():
        return mean
    fits = np.isfinite(seconds)
    return np.asarray(np.where(fits, seconds, 0.0).sum(axis=1) / fits.sum(axis=1))


class LocalSearchState:
    """Where a climb is.

    Args:
        ranks: The priorities to begin with.
        makespan: Their makespan.
        seed: Of the changes.

    Attributes:
        now: Priorities and leanings to fast machines that the next change begins with; shape (2, tasks).
        best: The best ones so far.
        past: The makespan of ``now``, that of ``best``, and the turn of the last gain.
        turn: The changes that were tried.
        state: Of the random numbers.
    """

    def __init__(self, ranks: Numbers, makespan: float, seed: int) -> None:
        self.now = np.stack([ranks, np.zeros_like(ranks)])
        self.best = self.now.copy()
        self.past = np.array([makespan, makespan, 0.0])
        self.turn = 0
        self.state = np.array([1 + seed * 7919 % 2147483646])


class SlotArrays:
    """A workflow and its machines as arrays: a lane is a slot of a machine.

    Args:
        flow: The workflow; each of its tasks uses one core.
        platform: Its machines.

    Attributes:
        seconds: Of each task on each machine, infinite where it does not fit; shape (tasks, machines).
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
        """The upward rank of each task: the longest path to the end, at the mean over the lanes that each fits on."""
        return self.ranks(mean_of_fitting(self.seconds[:, self._vm]))

    def ranks(self, weights: Numbers) -> Numbers:
        """The longest path from each task to the end, its own weight included."""
        from tradewind.workflow import kernel_plain

        return kernel_plain.upward_ranks(self.flow.order, self._child_starts, self._children, weights)

    def place(self, sequence: Indices, lean: Numbers | None = None) -> Schedule:
        """Place the tasks of a sequence one after the other where each ends first, gaps included.

        Args:
            sequence: Parents before children.
            lean: Of each task to fast machines, see `tradewind.workflow.kernel_plain.insert_all`; none without it.
        """
        from tradewind.workflow import kernel_plain

        leaning = np.zeros(len(self.flow)) if lean is None else lean
        lane, start, finish = kernel_plain.insert_all(
            sequence, self._parent_starts, self._parents, self.seconds, self._vm, self._ready_at, leaning
        )
        return Schedule(self._vm[lane].astype(np.int32), start, finish)

    def simulate(self, keys: Numbers, preference: Indices) -> Schedule:
        """Run it: the ready task of the smallest key goes to the first idle machine of ``preference``.

        Every task must fit on every machine.
        """
        from tradewind.workflow import kernel_plain

        rank = np.empty(len(self.platform.vms), dtype=np.int64)
        rank[preference] = np.arange(len(preference))
        lanes = np.lexsort((np.arange(len(self._vm)), rank[self._vm]))
        lane, start, finish = kernel_plain.simulate_online(
            self._child_starts, self._children, self._waiting, self.seconds, keys, self._vm, lanes, self._ready_at
        )
        return Schedule(self._vm[lane].astype(np.int32), start, finish)

    def climb(self, search: LocalSearchState, goal: float, turns: int) -> None:
        """Change priorities and leanings at random; see `tradewind.workflow.kernel_plain.climb`."""
        from tradewind.workflow import kernel_plain

        search.turn = kernel_plain.climb(
            self.flow.order, self._child_starts, self._children, self._parent_starts, self._parents, self.seconds,
            self._vm, self._ready_at, search.now, search.best, search.past, goal, turns, search.turn, search.state,
        )  # fmt: skip
