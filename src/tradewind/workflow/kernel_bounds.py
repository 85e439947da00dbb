"""The inner loops of lower bounds; compiled where numba is installed.

They stay in one file because numba renews a cached function when its own file changes, and not when a file that it
calls changes. Import this module inside functions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tradewind.utils.jit import njit
from tradewind.workflow.graph import Numbers

Ints = NDArray[np.integer[Any]]
Bits = NDArray[np.uint64]
Marks = NDArray[np.bool_]

_STEPS = 10
"""Most thresholds of heads, and of tails, that are looked at in a room."""


@njit
def ancestors(order: Ints, parent_starts: Ints, parents: Ints) -> Bits:
    """For each task a row of bits: the tasks before it."""
    tasks = len(order)
    words = (tasks + 63) // 64
    rows = np.zeros((tasks, words), np.uint64)
    for task in order:
        for at in range(parent_starts[task], parent_starts[task + 1]):
            parent = parents[at]
            for word in range(words):
                rows[task, word] |= rows[parent, word]
            rows[task, parent // 64] |= np.uint64(1) << np.uint64(parent % 64)
    return rows


@njit
def _has(rows: Bits, task: int, other: int) -> bool:
    bit: bool = (rows[task, other // 64] >> np.uint64(other % 64)) & np.uint64(1) != 0
    return bit


@njit
def _gathers(task: int, parent_starts: Ints, parents: Ints, rows: Bits) -> bool:
    """True when a task waits for two parents of which none comes before the other."""
    for one in range(parent_starts[task], parent_starts[task + 1]):
        above = True
        for other in range(parent_starts[task], parent_starts[task + 1]):
            if one != other and not _has(rows, parents[one], parents[other]):
                above = False
                break
        if above:
            return False
    return bool(parent_starts[task + 1] > parent_starts[task])


@njit
def gatherings(order: Ints, parent_starts: Ints, parents: Ints, rows: Bits) -> Ints:
    """For each task that waits for several branches the number of tasks before it; 0 for the others."""
    found = np.zeros(len(order), np.int64)
    for task in order:
        if _gathers(task, parent_starts, parents, rows):
            for other in order:
                found[task] += _has(rows, task, other)
    return found


@njit
def heads(
    order: Ints, parent_starts: Ints, parents: Ints, child_starts: Ints, children: Ints, rows: Bits, chosen: Marks,
    least: Numbers, values: Numbers, known: Numbers,
) -> Numbers:  # fmt: skip
    """Earliest begin of each task, by paths and by the room that all tasks before it need.

    The tasks before a task that themselves have a head and a way to it need so much time in between as their work fills
    all machines.

    Args:
        order: The tasks, parents before children.
        parent_starts: Index in ``parents`` at which those of each task begin.
        parents: The parents of all tasks.
        child_starts: Index in ``children`` at which those of each task begin.
        children: The children of all tasks.
        rows: Bit rows of `ancestors`.
        chosen: The tasks whose rooms are looked at.
        least: The fewest seconds of each task.
        values: For each set of prices the least that each task's work can cost; shape (sets, tasks).
        known: Heads that are known already.

    Returns:
        The heads.
    """
    tasks = len(order)
    head, way = known.copy(), np.full(tasks, -1.0)
    before = np.empty(tasks, np.int64)
    for at in range(tasks):
        task = order[at]
        for each in range(parent_starts[task], parent_starts[task + 1]):
            head[task] = max(head[task], head[parents[each]] + least[parents[each]])
        if not chosen[task]:
            continue
        # The longest way from the end of each task before to the beginning of this one, going backwards.
        count = 0
        for back in range(at - 1, -1, -1):
            other = order[back]
            if not _has(rows, task, other):
                continue
            longest = 0.0
            for each in range(child_starts[other], child_starts[other + 1]):
                child = children[each]
                if child != task and _has(rows, task, child):
                    longest = max(longest, least[child] + way[child])
            way[other] = longest
            before[count] = other
            count += 1
        head[task] = max(head[task], _room(before[:count], head, way, values))
    return head


@njit
def _room(chosen: Ints, head: Numbers, way: Numbers, values: Numbers) -> float:
    """Earliest time at which some tasks, each with a head and a way after it, can have ended with their ways."""
    if len(chosen) < 2:
        return 0.0
    head_steps, way_steps = _steps(head[chosen]), _steps(way[chosen])
    found = 0.0
    costs = np.zeros((len(head_steps) + 1, len(way_steps) + 1))
    at_head = np.searchsorted(head_steps, head[chosen], side="right") - 1
    at_way = np.searchsorted(way_steps, way[chosen], side="right") - 1
    last = np.full(len(head_steps), -1)
    for at in range(len(chosen)):
        last[at_head[at]] = max(last[at_head[at]], at_way[at])
    for prices in range(values.shape[0]):
        costs[:] = 0.0
        for at in range(len(chosen)):
            costs[at_head[at], at_way[at]] += values[prices, chosen[at]]
        furthest = -1
        for one in range(len(head_steps) - 1, -1, -1):
            along = 0.0
            furthest = max(furthest, last[one])
            for other in range(len(way_steps) - 1, -1, -1):
                along += costs[one, other]
                costs[one, other] = along + costs[one + 1, other]
                if other <= furthest:  # else there is no such task
                    found = max(found, head_steps[one] + costs[one, other] + way_steps[other])
    return found * (1.0 - 1e-12)


@njit
def _steps(values: Numbers) -> Numbers:
    """Some of the values, the smallest included, spread over their ranks."""
    ordered = np.unique(values)
    if len(ordered) <= _STEPS:
        return ordered
    chosen = np.empty(_STEPS)
    for step in range(_STEPS):
        chosen[step] = ordered[step * (len(ordered) - 1) // (_STEPS - 1)]
    return chosen


@njit
def crowded(
    makespan: float, head: Numbers, tail: Numbers, seconds: Numbers, cores: Numbers, prices: Numbers, begins: Numbers,
    ends: Numbers,
) -> bool:  # fmt: skip
    """True when in some interval the work that cannot be moved out of it is more than the machines can do.

    Energetic reasoning: Baptiste, Le Pape and Nuijten, "Constraint-based scheduling", 2001, section 3.3.4, priced over
    classes of machines.

    Args:
        makespan: The makespan that is to be refuted.
        head: Earliest begin of each task.
        tail: Least seconds after each task.
        seconds: Seconds of each task on each class, infinite where it cannot run; shape (tasks, classes).
        cores: Cores that each task uses.
        prices: Prices of the classes' time, one over all slots; shape (sets, classes).
        begins: Beginnings of intervals.
        ends: Ends of intervals.
    """
    sets, classes = prices.shape
    part = np.zeros(classes)
    total = np.zeros(sets)
    for begin in begins:
        for end in ends:
            length = end - begin
            if length <= 0:
                continue
            total[:] = 0.0
            for task in range(len(head)):
                latest = makespan - tail[task]
                if head[task] >= end or latest <= begin:
                    continue
                some = True
                for each in range(classes):
                    took = seconds[task, each]
                    part[each] = min(took, length, head[task] + took - begin, end - (latest - took))
                    if not part[each] > 0:
                        some = False
                if not some:
                    continue
                for number in range(sets):
                    cheapest = np.inf
                    for each in range(classes):
                        if np.isfinite(seconds[task, each]):
                            cheapest = min(cheapest, prices[number, each] * part[each])
                    total[number] += cheapest * cores[task]
            if total.max() > length * (1.0 + 1e-9):
                return True
    return False


@njit
def cost_table(order: Ints, child_starts: Ints, children: Ints, sending: Numbers, seconds: Numbers) -> Numbers:
    """Compute PEFT's optimistic cost table: the shortest way from a task on a machine to the end, itself left out.

    Arabnejad and Barbosa, "List scheduling algorithm for heterogeneous systems by an optimistic cost table", IEEE TPDS
    25(3), 2014, equation 6.

    Args:
        order: The tasks, parents before children.
        child_starts: Index in ``children`` at which those of each task begin.
        children: The children of all tasks.
        sending: Mean seconds that files need on each of those edges.
        seconds: Seconds of each task on each machine, infinite where it does not fit; shape (tasks, machines).

    Returns:
        Shape (tasks, machines).
    """
    tasks, vms = seconds.shape
    table = np.zeros((tasks, vms))
    for place in range(tasks - 1, -1, -1):
        task = order[place]
        for at in range(child_starts[task], child_starts[task + 1]):
            child = children[at]
            anywhere = np.inf
            for each in range(vms):
                anywhere = min(anywhere, table[child, each] + seconds[child, each])
            for each in range(vms):
                stay = table[child, each] + seconds[child, each]
                table[task, each] = max(table[task, each], min(stay, anywhere + sending[at]))
    return table
