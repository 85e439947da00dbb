"""Computes lower bounds of the makespan, which no schedule can beat."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tradewind.workflow.graph import Numbers, Workflow
from tradewind.workflow.platform import Platform

_STEPS = 16
"""Most beginnings, and most ends, of the intervals that are looked at."""

_PRICES = 12
"""Number of sets of prices for two classes of machines."""

_ROOM_WORK, _FEWEST_ROOMS = 200_000, 16
"""Most tasks times rooms that are looked at, and the rooms that are looked at in any case."""

_CLOSE = 1e-6
"""Relative precision of the bound."""


def lower_bound(flow: Workflow, platform: Platform) -> float:
    """Compute the seconds that no schedule of the workflow on the machines can beat.

    A makespan is refuted (so that the bound is above it) by what has to follow from it: a task cannot begin before all
    that it waits for found room on the machines, and likewise what comes after it needs room; a machine on which a task
    would leave too little time for both is closed to it; and in no interval may there be more work that cannot be moved
    out of it than the machines can do. The largest refuted makespan is looked for by halving. (Destructive bounds:
    Klein and Scholl, "Computing lower bounds by destructive improvement", EJOR 112(2), 1999; room is the dual of a
    linear relaxation over machine classes.) Where memory, GPUs or disk can run out, the same holds of them. Of the
    files that local storage moves, those from outside count where one task reads them before all others do.
    """
    if not len(flow):
        return 0.0
    cores = np.array([task.cores for task in flow.tasks], dtype=float)
    amounts, rooms = platform.scarce(flow)
    counted = [(cores, np.array([vm.slots for vm in platform.vms], dtype=float))]
    # In shares of the largest machine: bytes are large numbers.
    counted += [(takes / has.max(), has / has.max()) for takes, has in zip(amounts.T, rooms.T, strict=True)]
    return max(_bound(_Refutation(flow, platform, *each)) for each in counted) + min(
        vm.boot_seconds for vm in platform.vms
    )


def _bound(test: _Refutation) -> float:
    """The largest makespan that is refuted."""
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
    return low


class _Refutation:
    """Shows of some makespans that no schedule has them.

    Args:
        flow: The workflow.
        platform: The machines that its tasks run on.
        needs: Amount of the counted resource, such as cores or memory, that each task takes.
        sizes: Amount of that resource that each machine has.
    """

    def __init__(self, flow: Workflow, platform: Platform, needs: Numbers, sizes: Numbers) -> None:
        from tradewind.workflow import kernel_bounds

        self._kernel = kernel_bounds
        classes = platform.classes_for(flow)
        firsts = [each[0] for each in classes]
        # Where a task does not fit its time is infinite: all that follows is over the classes that are open to it.
        seconds = platform.seconds(flow)[:, firsts] + _first_reads(flow, platform)[:, None]
        self._seconds = np.ascontiguousarray(seconds)
        self._cores = needs
        slots = np.array([sizes[list(each)].sum() for each in classes])
        speeds = np.array([platform.vms[vm].speed for vm in firsts])
        self._prices = _prices(speeds, slots, platform.times(flow)[:, firsts])
        self._order = flow.order, np.ascontiguousarray(flow.order[::-1])
        parents, children = flow.csr(flow.parents), flow.csr(flow.children)
        before = kernel_bounds.ancestors(self._order[0], *parents)
        after = kernel_bounds.ancestors(self._order[1], *children)
        self._before = *parents, *children, before, _some(kernel_bounds.gatherings(self._order[0], *parents, before))
        self._after = *children, *parents, after, _some(kernel_bounds.gatherings(self._order[1], *children, after))
        self._heads = self._tails = np.zeros(len(flow))
        least = self._seconds.min(axis=1)
        self._heads, self._tails = self._ways(self._seconds)
        self.path = float((self._heads + least + self._tails).max())
        self.serial = float(least.sum())

    def _ways(self, seconds: Numbers) -> tuple[Numbers, Numbers]:
        """Least times before and after each task, if it takes so long on the classes that are open to it."""
        least, values = seconds.min(axis=1), self._values(seconds)
        heads = self._kernel.heads(self._order[0], *self._before, least, values, self._heads)
        tails = self._kernel.heads(self._order[1], *self._after, least, values, self._tails)
        return heads, tails

    def _values(self, seconds: Numbers) -> Numbers:
        """For each set of prices, the least that the work of each task can cost; a set of tasks costs the sum."""
        open_ = np.isfinite(seconds)
        work = np.where(open_, seconds, 0.0) * self._cores[:, None]
        return np.stack([np.where(open_, work * prices, math.inf).min(axis=1) for prices in self._prices])

    def refutes(self, makespan: float) -> bool:
        """True when no schedule is as short as this."""
        seconds, heads, tails = self._seconds, self._heads, self._tails
        while True:
            closed = heads[:, None] + seconds + tails[:, None] > makespan * (1.0 + 1e-12)
            if closed.all(axis=1).any():
                return True
            closed &= np.isfinite(seconds)
            if not closed.any():
                break
            seconds = np.where(closed, math.inf, seconds)
            heads, tails = self._ways(seconds)
        return self._kernel.crowded(
            makespan,
            heads,
            tails,
            seconds,
            self._cores,
            self._prices,
            _thresholds(heads),
            makespan - _thresholds(tails),
        )


def _first_reads(flow: Workflow, platform: Platform) -> Numbers:
    """Seconds that each task fetches files in any schedule: those that can be on no machine before."""
    if platform.storage != "local":
        return np.zeros(len(flow))
    return np.array([sum(platform.fetching(flow.sizes.get(n, 0)) for n in names) for names in flow.first_reads])


def _some(gathered: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
    """The tasks whose rooms are looked at: all that gather branches, or so many of them as time allows, spread."""
    most = max(_FEWEST_ROOMS, _ROOM_WORK // max(1, len(gathered)))
    if np.count_nonzero(gathered) <= most:
        return gathered > 0
    # Of those with as many tasks before them, one: others will be much alike.
    counts, firsts = np.unique(gathered, return_index=True)
    firsts = firsts[counts > 0]
    spread = np.unique(np.linspace(0, len(firsts) - 1, min(most, len(firsts))).round().astype(int))
    found = np.zeros(len(gathered), dtype=np.bool_)
    found[firsts[spread]] = True
    return found


def _prices(speeds: Numbers, slots: Numbers, seconds: Numbers) -> Numbers:
    """Prices of the classes' time, each set weighted to one over all slots: any of them gives a bound.

    All alike, by speed, one class alone, and mixtures: of two classes in the ratios of the tasks' own times on them, of
    more in powers of speed and in shares of the fastest.
    """
    found = [np.ones(len(slots)), speeds]
    for place in range(len(slots)):
        single = np.zeros(len(slots))
        single[place] = 1.0
        found.append(single)
    if len(slots) == 2:
        ratios = np.unique(seconds[:, 1] / np.maximum(seconds[:, 0], 1e-300))
        ratios = ratios[np.linspace(0, len(ratios) - 1, min(len(ratios), _PRICES)).round().astype(int)]
        found += [np.array([ratio, 1.0]) for ratio in ratios if np.isfinite(ratio) and ratio < 1e6]
    elif len(slots) > 2:
        found += [np.where(np.arange(len(slots)) <= place, speeds, 0.0) for place in range(len(slots) - 1)]
        found += [speeds**power for power in (0.5, 2.0, 4.0)]
        found += [speeds * (1.0 - share) + share * speeds.mean() for share in np.linspace(0.1, 0.9, _PRICES)]
    # A class may have none of what is counted; what takes some of it does not run there.
    return np.unique(np.stack([each / (each @ slots) for each in found if each @ slots > 0]), axis=0)


def _thresholds(values: Numbers) -> Numbers:
    """All values, or some of them spread over their ranks."""
    unique = np.unique(values)
    if len(unique) > _STEPS:
        unique = unique[np.linspace(0, len(unique) - 1, _STEPS).round().astype(int)]
    return np.asarray(unique)
