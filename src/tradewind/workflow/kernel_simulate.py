"""The inner loops of simulating over arrays; compiled where numba is installed.

They do what `tradewind.workflow.simulator.reference` does in a world without noise and failures. They stay in one file
because numba renews a cached function when its own file changes, and not when a file that it calls changes. Import this
module inside functions: it loads numba.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tradewind.utils.jit import njit, njit_inline
from tradewind.workflow.graph import Numbers

Ints = NDArray[np.integer[Any]]

Graph = tuple[Ints, Ints, Ints]
"""Index at which the children of each task begin, the children of all tasks, and the parents of each task (number)."""

Files = tuple[Ints, Ints, Ints, Ints, Numbers, int]
"""Under local storage: index at which the files that each task reads begin, those files, the same two for those that it
writes, the seconds to fetch each file, and the number of machines; else zero machines."""

Sizes = tuple[Ints, Ints]
"""Slots that each task takes, or that each machine has, and amounts of what can run out besides, one a column."""

Delays = tuple[Numbers, Numbers, Numbers]
"""Seconds for each task before it is ready, between its placement and its start, and until its children know."""


@njit
def follow_plan(
    graph: Graph, seconds: Numbers, vm: Ints, before: Ints, after: Ints, needs: Sizes, sizes: Sizes, ready_at: Numbers,
    files: Files, delays: Delays,
) -> tuple[Numbers, Numbers, int]:  # fmt: skip
    """Let each machine run its tasks in their order, each as soon as it is ready and finds free slots.

    What one machine does depends on the others only through the graph: tasks are taken in any order that keeps the
    graph and the machines' orders, without a clock.

    Args:
        graph: Tasks and their children.
        seconds: Seconds of each task on each machine; shape (tasks, machines).
        vm: The machine of each task.
        before: The task before each one on its machine, or -1.
        after: The task after each one on its machine, or -1.
        needs: Slots and amounts that each task takes.
        sizes: Slots and amounts that each machine has.
        ready_at: Time at which each machine can run its first task.
        files: Files that tasks read and write.
        delays: Delays of the workflow system.

    Returns:
        Start and finish of each task, and the number of tasks that were run: fewer than there are where the plan
        contradicts the graph.
    """
    parents, engine, queue, (cores, amounts), (slots, rooms) = graph[2], delays[0], delays[1], needs, sizes
    machines, tasks = files[5], len(vm)
    start, finish, placed, ready = np.zeros(tasks), np.zeros(tasks), np.zeros(tasks), np.zeros(tasks)
    known, spare = np.zeros(tasks), np.zeros(rooms.shape[1], np.int64)
    here = np.full((len(files[4]) if machines else 0, machines), np.inf)
    lane_starts, lanes = _lanes(slots, ready_at)
    tight, running, under = rooms.shape[1] > 0, np.full(len(slots), -1), np.full(tasks, -1)
    left, waiting, count = np.zeros(tasks, np.int64), np.zeros(tasks, np.int64), 0
    for task in range(tasks):
        left[task] = parents[task] + (1 if before[task] >= 0 else 0)
        ready[task] = engine[task]
        if left[task] == 0:
            waiting[count] = task
            count += 1
    done = 0
    while count > 0:
        count -= 1
        task = waiting[count]
        done += 1
        where, need = vm[task], cores[task]
        first, beyond = lane_starts[where], lane_starts[where + 1]
        at = ready[task]
        if before[task] >= 0:
            at = max(at, placed[before[task]])
        # Lanes are sorted by when they are free: the last of those that are needed decides.
        at = max(at, lanes[first + need - 1])
        if tight:
            at = _with_room(task, where, at, amounts, rooms, finish, running, under, spare)
        took = seconds[task, where]
        if machines:
            took = _fetched(task, where, at, files, here) + took
        placed[task], start[task] = at, at + queue[task]
        end = start[task] + took
        finish[task] = end
        _keep(lanes, first, beyond, need, end)
        if machines:
            _leave(task, where, end, files, here)
        count = _tell(task, end, graph, delays, before, known, left, ready, waiting, count)
        following = after[task]
        if following >= 0:
            left[following] -= 1
            if left[following] == 0:
                waiting[count] = following
                count += 1
    return start, finish, done


@njit
def _lanes(slots: Ints, ready_at: Numbers) -> tuple[Ints, Numbers]:
    """Index at which the slots of each machine begin, and the time from which each of them is free."""
    starts = np.zeros(len(slots) + 1, np.int64)
    for each in range(len(slots)):
        starts[each + 1] = starts[each] + slots[each]
    lanes = np.zeros(starts[-1])
    for each in range(len(slots)):
        lanes[starts[each] : starts[each + 1]] = ready_at[each]
    return starts, lanes


@njit_inline
def _with_room(
    task: int, where: int, at: float, amounts: Ints, rooms: Ints, finish: Numbers, running: Ints, under: Ints,
    spare: Ints,
) -> float:  # fmt: skip
    """Time, not before a moment, from which a machine has amounts for a task, which then is the first that runs."""
    while True:
        soonest, last, each = np.inf, -1, running[where]
        for of in range(len(spare)):
            spare[of] = rooms[where, of] - amounts[task, of]
        while each >= 0:
            if finish[each] > at:
                for of in range(len(spare)):
                    spare[of] -= amounts[each, of]
                soonest = min(soonest, finish[each])
                last = each
            elif last >= 0:
                under[last] = under[each]
            else:
                running[where] = under[each]
            each = under[each]
        if spare.min() >= 0:
            under[task] = running[where]
            running[where] = task
            return at
        at = soonest


@njit_inline
def _tell(
    task: int, end: float, graph: Graph, delays: Delays, before: Ints, known: Numbers, left: Ints, ready: Numbers,
    waiting: Ints, count: int,
) -> int:  # fmt: skip
    """Let the children of a task know of its end; returns the number of tasks that wait for nothing then."""
    child_starts, children, _ = graph
    engine, _, post = delays
    for each in range(child_starts[task], child_starts[task + 1]):
        child = children[each]
        known[child] = max(known[child], end + post[task])
        left[child] -= 1
        if left[child] == 0 or (left[child] == 1 and before[child] >= 0):
            ready[child] = known[child] + engine[child]
        if left[child] == 0:
            waiting[count] = child
            count += 1
    return count


@njit_inline
def _fetched(task: int, where: int, now: float, files: Files, here: Numbers) -> float:
    """Seconds to bring the files that a task reads and that are not on its machine; after this moment they are."""
    in_starts, ins, _, _, fetch, _ = files
    total, after = 0.0, np.nextafter(now, np.inf)
    for each in range(in_starts[task], in_starts[task + 1]):
        if here[ins[each], where] > now:
            total += fetch[ins[each]]
            here[ins[each], where] = min(here[ins[each], where], after)
    return total


@njit_inline
def _leave(task: int, where: int, end: float, files: Files, here: Numbers) -> None:
    """Note the time from which the files that a task writes are on its machine."""
    _, _, out_starts, outs, _, _ = files
    for each in range(out_starts[task], out_starts[task + 1]):
        here[outs[each], where] = min(here[outs[each], where], end)


@njit_inline
def _keep(lanes: Numbers, first: int, beyond: int, need: int, end: float) -> None:
    """Occupy the lanes of a machine that are free first until a task's end, and keep them sorted."""
    at = first
    while at + need < beyond and lanes[at + need] <= end:
        lanes[at] = lanes[at + need]
        at += 1
    for each in range(at, at + need):
        lanes[each] = end


@njit
def run_queue(
    graph: Graph, seconds: Numbers, ranks: Ints, preference: Ints, needs: Sizes, sizes: Sizes, plain: bool,
    ready_at: Numbers, files: Files, delays: Delays,
) -> tuple[Ints, Numbers, Numbers, int]:  # fmt: skip
    """Give the first ready task that fits somewhere to the most preferred machine with room for it.

    Args:
        graph: Tasks and their children.
        seconds: Seconds of each task on each machine, infinite where it does not fit; shape (tasks, machines).
        ranks: Priorities: ready tasks go in their order, ties in the order of becoming ready; from 0, below 2³¹.
        preference: The machines, the most preferred first.
        needs: Slots and amounts that each task takes.
        sizes: Slots and amounts that each machine has.
        plain: True where every task uses one core and fits on every machine: no task can be passed over for another.
        ready_at: Time at which each machine can run its first task.
        files: Files that tasks read and write.
        delays: Delays of the workflow system.

    Returns:
        Machine, start and finish of each task, and the number of tasks that were run.
    """
    engine, queue, machines, (cores, amounts), slots = delays[0], delays[1], files[5], needs, sizes[0]
    tasks, vms = len(ranks), len(slots)
    vm, start, finish = np.full(tasks, -1, np.int32), np.zeros(tasks), np.zeros(tasks)
    left, known, free, spare = graph[2].astype(np.int64), np.zeros(tasks), np.zeros(vms, np.int64), sizes[1].copy()
    here = np.full((len(files[4]) if machines else 0, machines), np.inf)
    # What happens: a heap by (time, number): tasks that become ready, tasks that end, machines that come up. As many
    # tasks run as there are slots; what waits for a delay comes on top.
    delayed = bool(engine.max() + delays[2].max() > 0.0)
    most = min(tasks, int(slots.sum())) + vms + (tasks if delayed else 0)
    when, what, events = np.empty(most), np.empty(most, np.int64), 0
    for each in range(vms):
        events = _push_time(when, what, events, ready_at[each], 2 * tasks + each)
    # One rank and no task that could be passed over: a line, of which `head` is the first.
    line, head = plain and int(ranks.max()) == int(ranks.min()), 0
    # Ready tasks: a heap of rank and arrival in one number; those that became ready just now; those passed over.
    heap, waiting, of_arrival, arrived = np.empty(0 if line else tasks, np.int64), 0, np.empty(tasks, np.int64), 0
    fresh, news, aside = np.empty(tasks, np.int64), 0, np.empty(0 if plain else tasks, np.int64)
    for task in range(tasks):
        if left[task] == 0 and engine[task] > 0.0:
            events = _push_time(when, what, events, engine[task], task)
        elif left[task] == 0:
            fresh[news] = task
            news += 1
    # No machine before `place` in the list has a free slot.
    turn, place, room, done, now = np.argsort(preference), 0, 0, 0, 0.0
    while events > 0 or news > 0:
        if news == 0:
            now = when[0]
        events, news, place, room, done = _take(
            now, when, what, events, graph, delays, delayed, files, here, vm, needs, slots, free, spare, left, known,
            fresh, news, turn, place, room, done,
        )  # fmt: skip
        # What became ready at one instant is in the order of the tasks.
        _sort(fresh, news)
        for at in range(news):
            of_arrival[arrived] = fresh[at]
            waiting = waiting + 1 if line else _push(heap, waiting, (ranks[fresh[at]] << 32) + arrived)
            arrived += 1
        news, passed = 0, 0
        while waiting > 0 and room > 0:
            code = head if line else heap[0]
            task = of_arrival[code & 0xFFFFFFFF]
            place = _room(free, preference, place) if plain else _room_of(task, free, spare, preference, needs, seconds)
            head += 1
            waiting = waiting - 1 if line else _drop(heap, waiting)
            if place == vms:
                aside[passed] = code
                passed += 1
                continue
            where, took = preference[place], seconds[task, preference[place]]
            if machines:
                took = _fetched(task, where, now, files, here) + took
            vm[task], start[task], finish[task] = where, now + queue[task], now + queue[task] + took
            free[where], room = free[where] - cores[task], room - cores[task]
            spare[where] -= amounts[task]
            events = _push_time(when, what, events, finish[task], tasks + task)
        for at in range(passed):
            waiting = _push(heap, waiting, aside[at])
    return vm, start, finish, done


@njit_inline
def _room(free: Ints, preference: Ints, place: int) -> int:
    """The first machine with a free slot, from a place in the list on."""
    while place < len(preference) and free[preference[place]] < 1:
        place += 1
    return place


@njit_inline
def _room_of(task: int, free: Ints, spare: Ints, preference: Ints, needs: Sizes, seconds: Numbers) -> int:
    """The first machine of the list that a task fits on and that has room for it."""
    for place, vm in enumerate(preference):
        if free[vm] >= needs[0][task] and seconds[task, vm] < np.inf and _enough(spare, vm, needs[1], task):
            return place
    return len(preference)


@njit_inline
def _enough(spare: Ints, vm: int, amounts: Ints, task: int) -> bool:
    """True where a machine has the amounts that a task takes."""
    for of in range(amounts.shape[1]):  # noqa: SIM110 compiled
        if spare[vm, of] < amounts[task, of]:
            return False
    return True


@njit_inline
def _take(
    now: float, when: Numbers, what: Ints, events: int, graph: Graph, delays: Delays, delayed: bool, files: Files,
    here: Numbers, vm: Ints, needs: Sizes, slots: Ints, free: Ints, spare: Ints, left: Ints, known: Numbers,
    fresh: Ints, news: int, turn: Ints, place: int, room: int, done: int,
) -> tuple[int, int, int, int, int]:  # fmt: skip
    """Let all happen that happens now; events left, tasks ready, the first turn that may be free, slots, tasks done."""
    child_starts, children, _ = graph
    engine, _, post = delays
    tasks = len(left)
    while events > 0 and when[0] == now:
        each = what[0]
        events = _drop_time(when, what, events)
        if each >= 2 * tasks:
            free[each - 2 * tasks] = slots[each - 2 * tasks]
            room += slots[each - 2 * tasks]
            place = min(place, turn[each - 2 * tasks])
            continue
        if each < tasks:
            fresh[news] = each
            news += 1
            continue
        task = each - tasks
        done += 1
        place = min(place, turn[vm[task]])
        free[vm[task]] += needs[0][task]
        for of in range(needs[1].shape[1]):
            spare[vm[task], of] += needs[1][task, of]
        room += needs[0][task]
        if files[5]:
            _leave(task, vm[task], now, files, here)
        for at in range(child_starts[task], child_starts[task + 1]):
            child = children[at]
            left[child] -= 1
            if delayed:
                known[child] = max(known[child], now + post[task])
                ready = known[child] + engine[child]
                if left[child] == 0 and ready > now:
                    events = _push_time(when, what, events, ready, child)
                    continue
            if left[child] == 0:
                fresh[news] = child
                news += 1
    return events, news, place, room, done


@njit_inline
def _sort(values: Ints, count: int) -> None:
    """Sort the first values; they are nearly in order."""
    for at in range(1, count):
        value = values[at]
        place = at
        while place > 0 and values[place - 1] > value:
            values[place] = values[place - 1]
            place -= 1
        values[place] = value


@njit_inline
def _push(heap: Ints, count: int, code: int) -> int:
    at = count
    while at > 0:
        above = (at - 1) >> 1
        if heap[above] <= code:
            break
        heap[at] = heap[above]
        at = above
    heap[at] = code
    return count + 1


@njit_inline
def _drop(heap: Ints, count: int) -> int:
    """Take the first entry away."""
    count -= 1
    code = heap[count]
    at = 0
    while True:
        below = 2 * at + 1
        if below >= count:
            break
        if below + 1 < count and heap[below + 1] < heap[below]:
            below += 1
        if heap[below] >= code:
            break
        heap[at] = heap[below]
        at = below
    heap[at] = code
    return count


@njit_inline
def _push_time(when: Numbers, what: Ints, count: int, time: float, item: int) -> int:
    at = count
    while at > 0:
        above = (at - 1) >> 1
        if when[above] < time or (when[above] == time and what[above] <= item):
            break
        when[at], what[at] = when[above], what[above]
        at = above
    when[at], what[at] = time, item
    return count + 1


@njit_inline
def _drop_time(when: Numbers, what: Ints, count: int) -> int:
    """Take the first entry away."""
    count -= 1
    time, item = when[count], what[count]
    at = 0
    while True:
        below = 2 * at + 1
        if below >= count:
            break
        other = below + 1
        if other < count and (when[other] < when[below] or (when[other] == when[below] and what[other] < what[below])):
            below = other
        if when[below] > time or (when[below] == time and what[below] >= item):
            break
        when[at], what[at] = when[below], what[below]
        at = below
    when[at], what[at] = time, item
    return count
