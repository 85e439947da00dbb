"""The inner loops of planning and simulating over arrays; compiled where numba is installed.

They stay in one file because numba renews a cached function when its own file changes, and not when a file that it
calls changes. Import this module inside functions: it loads numba.

A lane is one slot of a machine; a task of one core occupies one lane.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tradewind.utils.jit import njit
from tradewind.workflow.graph import Numbers

Ints = NDArray[np.integer[Any]]

_PATIENCE = 3000
"""Changes without a gain after which a climb begins elsewhere."""


@njit
def upward_ranks(order: Ints, child_starts: Ints, children: Ints, weights: Numbers) -> Numbers:
    """The longest path from each task to the end, its own weight included (HEFT's upward rank without transfers)."""
    ranks = np.zeros(len(weights))
    for place in range(len(order) - 1, -1, -1):
        task = order[place]
        longest = 0.0
        for at in range(child_starts[task], child_starts[task + 1]):
            longest = max(longest, ranks[children[at]])
        ranks[task] = longest + weights[task]
    return ranks


@njit
def insert_all(
    sequence: Ints, parent_starts: Ints, parents: Ints, seconds: Numbers, lane_vm: Ints, ready_at: Numbers,
    lean: Numbers,
) -> tuple[Ints, Numbers, Numbers]:  # fmt: skip
    """Place tasks one after the other where each ends first, gaps between tasks placed before included.

    HEFT's second phase with a correct slot search: Topcuoglu, Hariri and Wu, "Performance-effective and low-complexity
    task scheduling for heterogeneous computing", IEEE TPDS 13(3), 2002, section 4.1.

    Args:
        sequence: The tasks; parents before children.
        parent_starts: Index in ``parents`` at which those of each task begin.
        parents: The parents of all tasks.
        seconds: Seconds of each task on each lane's machine class; shape (tasks, machines).
        lane_vm: The machine of each lane.
        ready_at: Time at which each lane can run its first task.
        lean: Factor by which a task's own time counts on top of its end where lanes are compared: above zero it leans
            to fast machines, below to slow ones.

    Returns:
        Lane, start and finish of each task.
    """
    tasks, lanes = len(sequence), len(lane_vm)
    lane, start, finish = np.zeros(tasks, np.int32), np.zeros(tasks), np.zeros(tasks)
    # The gaps before the last task of each lane: as linked lists over one pool, in the order of time.
    # Each task adds one gap at most.
    gap_from, gap_to, following = np.zeros(tasks), np.zeros(tasks), np.full(tasks, -1, np.int64)
    first, free = np.full(lanes, -1, np.int64), np.zeros(lanes)
    for each in range(lanes):
        free[each] = ready_at[each]
    used = 0
    for task in sequence:
        earliest = 0.0
        for at in range(parent_starts[task], parent_starts[task + 1]):
            earliest = max(earliest, finish[parents[at]])
        best, best_score, best_start, best_gap, best_before = -1, np.inf, 0.0, -1, -1
        for each in range(lanes):
            took = seconds[task, lane_vm[each]]
            leaning = took * (1.0 + lean[task])
            begin = max(earliest, free[each])
            if max(earliest, ready_at[each]) + leaning >= best_score:
                continue
            begin, found, last = _find_gap(first[each], earliest, took, begin, gap_from, gap_to, following)
            if begin + leaning < best_score:
                best, best_score, best_start, best_gap, best_before = each, begin + leaning, begin, found, last
        best_end = best_start + seconds[task, lane_vm[best]]
        lane[task], start[task], finish[task] = best, best_start, best_end
        if best_gap < 0:
            if best_start > free[best]:
                gap_from[used], gap_to[used] = free[best], best_start
                used = _append(first, following, best, used)
            free[best] = best_end
        else:
            used = _fill_gap(
                first, following, gap_from, gap_to, best, best_gap, best_before, best_start, best_end, used
            )
    return lane, start, finish


@njit
def _find_gap(
    gap: int, earliest: float, took: float, begin: float, gap_from: Numbers, gap_to: Numbers, following: Ints
) -> tuple[float, int, int]:
    """The first gap of a lane that a task fits into: its start there, the gap, and the one before; else as it was."""
    before = -1
    while gap >= 0:
        at_start = max(earliest, gap_from[gap])
        if at_start + took <= gap_to[gap]:
            return at_start, gap, before
        before, gap = gap, following[gap]
    return begin, -1, -1


@njit
def _fill_gap(
    first: Ints, following: Ints, gap_from: Numbers, gap_to: Numbers,
    lane: int, gap: int, before: int, start: float, end: float, used: int,
) -> int:  # fmt: skip
    """Take a task's time out of a gap, which may become two, smaller or none; returns the gaps used since."""
    left, right = gap_from[gap], gap_to[gap]
    if start > left:
        gap_to[gap] = start
        if right > end:
            gap_from[used], gap_to[used] = end, right
            following[used] = following[gap]
            following[gap] = used
            return used + 1
    elif right > end:
        gap_from[gap] = end
    elif before < 0:
        first[lane] = following[gap]
    else:
        following[before] = following[gap]
    return used


@njit
def _append(first: Ints, following: Ints, lane: int, used: int) -> int:
    """Add the newest gap at the end of a lane's list."""
    at = first[lane]
    if at < 0:
        first[lane] = used
    else:
        while following[at] >= 0:
            at = following[at]
        following[at] = used
    return used + 1


@njit
def simulate_online(
    child_starts: Ints, children: Ints, waiting: Ints, seconds: Numbers, keys: Numbers, lane_vm: Ints,
    preference: Ints, ready_at: Numbers,
) -> tuple[Ints, Numbers, Numbers]:  # fmt: skip
    """Run a workflow with a policy that gives the first ready task to the preferred idle lane.

    Args:
        child_starts: Index in ``children`` at which those of each task begin.
        children: The children of all tasks.
        waiting: Number of parents that each task waits for.
        seconds: Seconds of each task on each machine; shape (tasks, machines).
        keys: Priorities: ready tasks go in their order, the smallest first, ties in the order of becoming ready.
        lane_vm: The machine of each lane.
        preference: The lanes, the most preferred first.
        ready_at: Time at which each lane can run its first task.

    Returns:
        Lane, start and finish of each task.
    """
    tasks, lanes = len(keys), len(lane_vm)
    lane, start, finish = np.full(tasks, -1, np.int32), np.zeros(tasks), np.zeros(tasks)
    left = waiting.copy()
    place = np.argsort(preference)
    idle, idles = np.zeros(lanes, np.bool_), 0  # by rank of preference
    # Busy lanes: a heap by (time, task); of a lane that is not up yet, the task is -1 - lane.
    when, what, busy = np.zeros(tasks + lanes), np.zeros(tasks + lanes, np.int64), 0
    for each in range(lanes):
        busy = _push_time(when, what, busy, ready_at[each], -1 - each)
    # Ready tasks: a heap by (key, arrival), and behind it those that became ready just now.
    heap, arrival, arrived, settled, count = np.zeros(tasks, np.int64), np.zeros(tasks, np.int64), 0, 0, 0
    for task in range(tasks):
        if left[task] == 0:
            heap[count] = task
            count += 1
    while busy > 0:
        now = when[0]
        while busy > 0 and when[0] == now:
            done, busy = _pop_time(when, what, busy)
            idle[place[lane[done] if done >= 0 else -1 - done]] = True
            idles += 1
            if done >= 0:
                count = _release(done, child_starts, children, left, heap, count)
        if count > settled:
            # What became ready at one instant is in the order of the tasks.
            for task in np.sort(heap[settled:count]):
                arrival[task] = arrived
                arrived += 1
                settled = _push(heap, settled, task, keys, arrival)
        rank = 0
        while settled > 0 and idles > 0:
            while not idle[rank]:
                rank += 1
            task, settled = _pop(heap, settled, keys, arrival)
            idle[rank] = False
            idles -= 1
            lane[task], start[task] = preference[rank], now
            finish[task] = now + seconds[task, lane_vm[preference[rank]]]
            busy = _push_time(when, what, busy, finish[task], task)
        count = settled
    return lane, start, finish


@njit
def _release(done: int, child_starts: Ints, children: Ints, left: Ints, heap: Ints, count: int) -> int:
    """Put the children that waited for one task only behind the heap; returns the number of tasks with them."""
    for at in range(child_starts[done], child_starts[done + 1]):
        child = children[at]
        left[child] -= 1
        if left[child] == 0:
            heap[count] = child
            count += 1
    return count


@njit
def _before(one: int, other: int, keys: Numbers, arrival: Ints) -> bool:
    return bool(keys[one] < keys[other] or (keys[one] == keys[other] and arrival[one] < arrival[other]))


@njit
def _push(heap: Ints, count: int, task: int, keys: Numbers, arrival: Ints) -> int:
    at = count
    while at > 0:
        above = (at - 1) // 2
        if not _before(task, heap[above], keys, arrival):
            break
        heap[at] = heap[above]
        at = above
    heap[at] = task
    return count + 1


@njit
def _pop(heap: Ints, count: int, keys: Numbers, arrival: Ints) -> tuple[int, int]:
    top = heap[0]
    count -= 1
    last = heap[count]
    at = 0
    while True:
        below = 2 * at + 1
        if below >= count:
            break
        if below + 1 < count and _before(heap[below + 1], heap[below], keys, arrival):
            below += 1
        if not _before(heap[below], last, keys, arrival):
            break
        heap[at] = heap[below]
        at = below
    heap[at] = last
    return top, count


@njit
def _push_time(when: Numbers, what: Ints, count: int, time: float, item: int) -> int:
    at = count
    while at > 0:
        above = (at - 1) // 2
        if when[above] <= time:
            break
        when[at], what[at] = when[above], what[above]
        at = above
    when[at], what[at] = time, item
    return count + 1


@njit
def _pop_time(when: Numbers, what: Ints, count: int) -> tuple[int, int]:
    top = what[0]
    count -= 1
    time, item = when[count], what[count]
    at = 0
    while True:
        below = 2 * at + 1
        if below >= count:
            break
        if below + 1 < count and when[below + 1] < when[below]:
            below += 1
        if when[below] >= time:
            break
        when[at], what[at] = when[below], what[below]
        at = below
    when[at], what[at] = time, item
    return top, count


@njit
def climb(
    order: Ints, child_starts: Ints, children: Ints, parent_starts: Ints, parents: Ints, seconds: Numbers,
    lane_vm: Ints, ready_at: Numbers, now: Numbers, best: Numbers, past: Numbers, goal: float, turns: int, turn: int,
    state: Ints,
) -> int:  # fmt: skip
    """Change priorities and leanings of tasks at random, and keep what is no longer; when stuck, begin elsewhere.

    Iterated local search: Lourenço, Martin and Stützle, in "Handbook of Metaheuristics", 2003. A priority never falls
    below a child's, so that sorting by it keeps parents before children.

    Args:
        order: The tasks, parents before children.
        child_starts: Index in ``children`` at which those of each task begin.
        children: The children of all tasks.
        parent_starts: Index in ``parents`` at which those of each task begin.
        parents: The parents of all tasks.
        seconds: Seconds of each task on each machine; shape (tasks, machines).
        lane_vm: The machine of each lane.
        ready_at: Time at which each lane can run its first task.
        now: Priorities and leanings (see `insert_all`) that changes begin with; it is changed; shape (2, tasks).
        best: The best ones so far; likewise.
        past: Makespan of ``now``, that of ``best``, and the turn of the last gain; it is changed.
        goal: A makespan that need not be beaten.
        turns: Changes to try.
        turn: Number of changes tried before.
        state: State of the random numbers; it is changed.

    Returns:
        The number of changes that have been tried, those before included.
    """
    trial = now.copy()
    place = np.argsort(order)
    span = max(best[0].max(), 1e-12)
    for _ in range(turns):
        if past[1] <= goal:
            return turn
        kick = turn - past[2] > _PATIENCE
        trial[:] = best if kick else now
        _change(trial, span, 1.0 if kick else _chance(state), state)
        for task in order[::-1]:
            for each in range(child_starts[task], child_starts[task + 1]):
                trial[0, task] = max(trial[0, task], trial[0, children[each]])
        sequence = _sorted_by(trial[0], place)
        _, _, finish = insert_all(sequence, parent_starts, parents, seconds, lane_vm, ready_at, trial[1])
        length = finish.max()
        if kick or length <= past[0]:
            if kick or length < past[0]:
                past[2] = turn
            past[0] = length
            now[:] = trial
            if length < past[1]:
                past[1] = length
                best[:] = trial
        turn += 1
    return turn


@njit
def _change(trial: Numbers, span: float, strength: float, state: Ints) -> None:
    """Change the priorities of some tasks, or their leanings; few of them and by little where the strength is small."""
    tasks = trial.shape[1]
    kind = _chance(state)
    for _ in range(1 + int(strength * strength * strength * 0.3 * tasks)):
        task = int(_chance(state) * tasks)
        # The sum of twelve has nearly a normal distribution of deviation one around six.
        normal = -6.0
        for _ in range(12):
            normal += _chance(state)
        if kind < 0.3:
            trial[0, task] = max(0.0, trial[0, task] + span * 0.3 * normal * strength)
        elif kind < 0.6:
            # Just before or after another one.
            trial[0, task] = trial[0, int(_chance(state) * tasks)] * (1.0 + 1e-9 * normal)
        elif kind < 0.8:
            trial[1, task] = max(-0.95, trial[1, task] + 2.0 * normal * strength)
        else:
            # Straight to the slowest that is free, to the first end, or to wait for the fastest.
            trial[1, task] = (-0.95, 0.0, 20.0)[int(_chance(state) * 3.0)]


@njit
def _chance(state: Ints) -> float:
    """The next number from 0 to below 1 of a small generator; the state of nobody else's is touched.

    Park and Miller, "Random number generators: good ones are hard to find", CACM 31(10), 1988, with 48271.
    """
    state[0] = state[0] * 48271 % 2147483647
    return float(state[0]) / 2147483647.0


@njit
def _sorted_by(ranks: Numbers, place: Ints) -> Ints:
    """The tasks in descending order of rank; of equal ones, in the order of their places."""
    first = np.argsort(place)
    return first[np.argsort(-ranks[first], kind="mergesort")]
