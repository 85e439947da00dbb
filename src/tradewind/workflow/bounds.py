"""What no schedule can beat: lower bounds of the makespan."""

from __future__ import annotations

import math

import numpy as np

from tradewind.workflow.graph import Numbers, Workflow
from tradewind.workflow.platform import Platform

_PAIRS = 30
"""Thresholds of heads and of tails that are looked at, each."""

_CLOSE = 1e-4
"""The bound is found to this share."""


def lower_bound(flow: Workflow, platform: Platform) -> float:
    """Seconds that no schedule of the workflow on the machines can beat.

    A makespan is refuted (so that the bound is above it) by what has to follow from it: a machine on which a task
    would leave too little time for what comes before and after is closed to it, which makes other paths longer; and the
    tasks that lie between a head and a tail must find room on the machines still open to them, in the time between. The
    largest refuted makespan is looked for by halving. (Destructive bounds: Klein and Scholl, "Computing lower bounds by
    destructive improvement", EJOR 112(2), 1999; the room is the dual of a linear relaxation over machine classes.)
    Files that local storage moves are not counted.
    """
    if not len(flow):
        return 0.0
    test = _Refutation(flow, platform)
    low, high = test.path, test.serial
    if test.refutes(low):
        step = max(low, 1e-9) * 0.01
        while low + step < high and test.refutes(low + step):
            low, step = low + step, step * 2.0
        high = min(high, low + step)
        while high - low > _CLOSE * high:
            middle = 0.5 * (low + high)
            if test.refutes(middle):
                low = middle
            else:
                high = middle
    return low + min(vm.boot_seconds for vm in platform.vms)


class _Refutation:
    """Shows of some makespans that no schedule has them."""

    def __init__(self, flow: Workflow, platform: Platform) -> None:
        self._flow = flow
        self._classes = platform.classes
        firsts = [each[0] for each in self._classes]
        seconds = platform.seconds(flow)[:, firsts]
        cores = np.array([task.cores for task in flow.tasks])
        fits = cores[:, None] <= np.array([platform.vms[vm].slots for vm in firsts])
        self._seconds = np.where(fits, seconds, math.inf)
        self._cores = cores.astype(float)
        self._slots = np.array([sum(platform.vms[vm].slots for vm in each) for each in self._classes], dtype=float)
        speeds = np.array([platform.vms[vm].speed for vm in firsts])
        self._prices = _prices(speeds, self._slots)
        least = self._seconds.min(axis=1)
        heads, tails = self._paths(least)
        self.path = float((heads + least + tails).max())
        self.serial = float(least.sum())

    def _paths(self, least: Numbers) -> tuple[Numbers, Numbers]:
        """The longest path before and after each task."""
        heads, tails = np.zeros(len(least)), np.zeros(len(least))
        flow = self._flow
        for task in flow.order:
            for parent in flow.parents[task]:
                heads[task] = max(heads[task], heads[parent] + least[parent])
        for task in flow.order[::-1]:
            for child in flow.children[task]:
                tails[task] = max(tails[task], tails[child] + least[child])
        return heads, tails

    def refutes(self, makespan: float) -> bool:
        """True when no schedule is as short as this."""
        seconds = self._seconds
        while True:
            least = seconds.min(axis=1)
            heads, tails = self._paths(least)
            closed = heads[:, None] + seconds + tails[:, None] > makespan * (1.0 + 1e-12)
            if closed.all(axis=1).any():
                return True
            closed &= np.isfinite(seconds)
            if not closed.any():
                break
            seconds = np.where(closed, math.inf, seconds)
        open_ = np.isfinite(seconds)
        work = np.where(open_, seconds, 0.0) * self._cores[:, None]
        # For each set of prices, the least that the work of a task can cost; a set of tasks costs at least the sum.
        values = np.stack([np.where(open_, work * prices, math.inf).min(axis=1) for prices in self._prices])
        for head in _thresholds(heads):
            late = heads >= head
            for tail in _thresholds(tails[late]):
                chosen = late & (tails >= tail)
                if float(values[:, chosen].sum(axis=1).max()) > (makespan - head - tail) * (1.0 + 1e-9):
                    return True
        return False


def _prices(speeds: Numbers, slots: Numbers) -> list[Numbers]:
    """Prices of the classes' time, each set weighted to one over all slots: any of them gives a bound.

    One class alone, all alike, and mixtures of neighbours in speed.
    """
    found = [np.ones(len(slots)), speeds]
    for place in range(len(slots)):
        single = np.zeros(len(slots))
        single[place] = 1.0
        found.append(single)
        cumulated = np.zeros(len(slots))
        cumulated[: place + 1] = speeds[: place + 1]
        found.append(cumulated)
    found += [speeds**power for power in (0.5, 2.0, 4.0)]
    found += [speeds * (1.0 - share) + share * speeds.mean() for share in np.linspace(0.02, 0.98, 25)]
    return [each / (each @ slots) for each in found]


def _thresholds(values: Numbers) -> list[float]:
    """All values, or some of them spread over their ranks."""
    unique = np.unique(values)
    if len(unique) > _PAIRS:
        unique = unique[np.linspace(0, len(unique) - 1, _PAIRS).round().astype(int)]
    return [float(value) for value in unique]
