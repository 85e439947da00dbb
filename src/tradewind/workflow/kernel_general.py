"""The inner loops of planning where a task may use several cores, and files may lie on machines.

Slower than those of `tradewind.workflow.kernel_plain`, and more general. They stay in one file because numba renews a
cached function when its own file changes, and not when a file that it calls changes. Import this module inside
functions.

A task that starts on a machine before a file that it reads is there has to fetch it, which is part of the task's time.
Without local storage tasks read and write no files here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tradewind.utils.jit import njit
from tradewind.workflow.graph import Numbers

Ints = NDArray[np.integer[Any]]

Files = tuple[Ints, Ints, Ints, Ints, Numbers, Numbers]
"""The files that each task reads and writes, and their places.

The index at which the files that each task reads begin in the second; those files; the same two for the files that it
writes; the seconds to bring each file to a machine; and the time from which each file is on each machine, which the
loops change.
"""

Sizes = tuple[Ints, Ints]
"""Cores that each task takes, or that each machine has, and amounts of what can run out besides, one a column."""

Kept = tuple[Numbers, Numbers, Ints, Ints]
"""Times from which the cores of each machine are free, ascending; pieces of its amounts: times, sizes and number.

The pieces are by machine and column; each column is kept like the cores.
"""

MINMIN, MAXMIN, SUFFERAGE, MCT = 0, 1, 2, 3
"""Rules of `batch_all` and `batch_now`; the last takes tasks in the order of arrival."""


@njit
def _took(task: int, vm: int, begin: float, seconds: Numbers, files: Files) -> float:
    """Seconds of a task that begins at a moment on a machine, with what it has to fetch."""
    in_starts, ins, _, _, fetch, here = files
    took = seconds[task, vm]
    for at in range(in_starts[task], in_starts[task + 1]):
        if here[ins[at], vm] > begin:
            took += fetch[ins[at]]
    return float(took)


@njit
def _leave(
    task: int,
    vm: int,
    begin: float,
    end: float,
    files: Files,
) -> None:
    """Note the files that a task has left on its machine."""
    in_starts, ins, out_starts, outs, _, here = files
    # Of tasks that start together each waits for a file that is not there yet, whoever fetches it.
    after = np.nextafter(begin, np.inf)
    for at in range(in_starts[task], in_starts[task + 1]):
        here[ins[at], vm] = min(here[ins[at], vm], after)
    for at in range(out_starts[task], out_starts[task + 1]):
        here[outs[at], vm] = min(here[outs[at], vm], end)


@njit
def insert_general(
    sequence: Ints, parent_starts: Ints, parents: Ints, seconds: Numbers, bonus: Numbers, needs: Sizes, sizes: Sizes,
    ready_at: Numbers, files: Files,
) -> tuple[Ints, Numbers, Numbers]:  # fmt: skip
    """Place tasks one after the other where each ends first, in the first time in which there is room for it.

    Args:
        sequence: The tasks; parents before children.
        parent_starts: Index in ``parents`` at which those of each task begin.
        parents: The parents of all tasks.
        seconds: Seconds of each task on each machine, infinite where it does not fit; shape (tasks, machines).
        bonus: Added to a task's end where machines are compared; shape (tasks, machines).
        needs: Cores and amounts that each task takes.
        sizes: Cores and amounts that each machine has.
        ready_at: Time at which each machine can run its first task.
        files: Files that tasks read and write, and their places.

    Returns:
        Machine, start and finish of each task.
    """
    (cores, amounts), (slots, rooms) = needs, sizes
    tasks, vms = len(sequence), len(slots)
    vm, start, finish = np.full(tasks, -1, np.int32), np.zeros(tasks), np.zeros(tasks)
    # What is free on machines over time: linked lists of steps over one pool, the first of machine v is step v.
    size = 2 * tasks + vms + 2
    since, following = np.zeros(size), np.full(size, -1, np.int64)
    free, spare = np.zeros(size, np.int64), np.zeros((size, rooms.shape[1]), np.int64)
    for each in range(vms):
        since[each], free[each], spare[each] = ready_at[each], slots[each], rooms[each]
    used = vms
    for task in sequence:
        earliest = 0.0
        for at in range(parent_starts[task], parent_starts[task + 1]):
            earliest = max(earliest, finish[parents[at]])
        best, best_score, best_start, best_took = -1, np.inf, 0.0, 0.0
        for each in range(vms):
            least = max(earliest, ready_at[each]) + seconds[task, each] + bonus[task, each]
            if not np.isfinite(seconds[task, each]) or (best >= 0 and least >= best_score):
                continue
            step, begin, took = each, -1.0, 0.0
            while step >= 0:
                until = since[following[step]] if following[step] >= 0 else np.inf
                if until > earliest:
                    if free[step] < cores[task] or not _enough(spare, step, amounts, task):
                        begin = -1.0
                    else:
                        if begin < 0:
                            begin = max(earliest, since[step])
                            took = _took(task, each, begin, seconds, files)
                        if begin + took <= until:
                            break
                step = following[step]
            if best < 0 or begin + took + bonus[task, each] < best_score:
                best, best_score, best_start, best_took = each, begin + took + bonus[task, each], begin, took
        vm[task], start[task], finish[task] = best, best_start, best_start + best_took
        _leave(task, best, best_start, finish[task], files)
        if finish[task] > best_start:
            used = _occupy(best, best_start, finish[task], task, needs, since, free, spare, following, used)
    return vm, start, finish


@njit
def _enough(spare: Ints, step: int, amounts: Ints, task: int) -> bool:
    """True where there are the amounts that a task takes."""
    for of in range(amounts.shape[1]):  # noqa: SIM110 compiled
        if spare[step, of] < amounts[task, of]:
            return False
    return True


@njit
def _alike(free: Ints, spare: Ints, one: int, other: int) -> bool:
    """True where as much is free in two steps."""
    for of in range(spare.shape[1]):
        if spare[one, of] != spare[other, of]:
            return False
    return bool(free[one] == free[other])


@njit
def _occupy(
    vm: int, begin: float, end: float, task: int, needs: Sizes, since: Numbers, free: Ints, spare: Ints,
    following: Ints, used: int,
) -> int:  # fmt: skip
    """Take of a machine what a task needs for a time; returns the number of steps since."""
    before, step, (cores, amounts) = -1, vm, needs
    while following[step] >= 0 and since[following[step]] <= begin:
        before, step = step, following[step]
    if since[step] < begin:
        since[used], free[used], spare[used], following[used] = begin, free[step], spare[step], following[step]
        following[step] = used
        before, step, used = step, used, used + 1
    while step >= 0 and since[step] < end:
        after = following[step]
        if after < 0 or since[after] > end:
            since[used], free[used], spare[used], following[used] = end, free[step], spare[step], after
            following[step] = used
            after, used = used, used + 1
        free[step] -= cores[task]
        for of in range(amounts.shape[1]):
            spare[step, of] -= amounts[task, of]
        if before >= 0 and _alike(free, spare, before, step):
            following[before] = after
        else:
            before = step
        step = after
    if step >= 0 and before >= 0 and _alike(free, spare, before, step):
        following[before] = following[step]
    return used


@njit
def _nothing_kept(sizes: Sizes, ready_at: Numbers, most: int) -> Kept:
    """Machines that run nothing; ``most`` tasks are going to be placed there."""
    slots, rooms = sizes
    vms, counted = rooms.shape
    lanes = np.full((vms, max(slots)), np.inf)
    until, size = np.empty((vms, counted, most + 1)), np.empty((vms, counted, most + 1), np.int64)
    for each in range(vms):
        lanes[each, : slots[each]] = ready_at[each]
        for of in range(counted):
            until[each, of, 0], size[each, of, 0] = ready_at[each], rooms[each, of]
    return lanes, until, size, np.ones((vms, counted), np.int64)


@njit
def _free_from(kept: Kept, vm: int, task: int, needs: Sizes) -> float:
    """Time from which a machine has room for a task, behind all that is placed there."""
    lanes, until, size, count = kept
    begin = lanes[vm, needs[0][task] - 1]
    for of in range(needs[1].shape[1]):
        left = needs[1][task, of]
        for at in range(count[vm, of]):
            if left <= 0:
                break
            left -= size[vm, of, at]
            begin = max(begin, until[vm, of, at])
    return float(begin)


@njit
def _keep(kept: Kept, slots: int, vm: int, task: int, needs: Sizes, end: float) -> None:
    """The cores and all else that becomes free first are kept until a moment; the order is held."""
    lanes, cores = kept[0][vm], needs[0][task]
    for at in range(slots - cores):
        lanes[at] = lanes[at + cores]
    for taken in range(cores):
        at = slots - cores + taken
        while at > 0 and lanes[at - 1] > end:
            lanes[at] = lanes[at - 1]
            at -= 1
        lanes[at] = end
    for of in range(needs[1].shape[1]):
        until, size, count, left, gone = kept[1][vm, of], kept[2][vm, of], kept[3], needs[1][task, of], 0
        if left == 0:
            continue
        while size[gone] < left:
            left -= size[gone]
            gone += 1
        size[gone] -= left
        gone += 1 if size[gone] == 0 else 0
        last = count[vm, of] - gone
        for at in range(last):
            until[at], size[at] = until[at + gone], size[at + gone]
        while last > 0 and until[last - 1] > end:
            until[last], size[last] = until[last - 1], size[last - 1]
            last -= 1
        until[last], size[last] = end, needs[1][task, of]
        count[vm, of] += 1 - gone


@njit
def append_all(
    sequence: Ints, parent_starts: Ints, parents: Ints, seconds: Numbers, given: Ints, in_turn: bool, needs: Sizes,
    sizes: Sizes, ready_at: Numbers, files: Files,
) -> tuple[Ints, Numbers, Numbers]:  # fmt: skip
    """Place tasks one after the other behind what is on each machine; where each ends first, or where it is given.

    Args: as `insert_general`, but for

        given: The machine of each task, or -1 where it is chosen.
        in_turn: No task of a machine begins before the one that was placed on it before.
    """
    tasks, vms = len(sequence), len(sizes[0])
    vm, start, finish = np.full(tasks, -1, np.int32), np.zeros(tasks), np.zeros(tasks)
    kept, last = _nothing_kept(sizes, ready_at, tasks), np.zeros(vms)
    for task in sequence:
        earliest = 0.0
        for at in range(parent_starts[task], parent_starts[task + 1]):
            earliest = max(earliest, finish[parents[at]])
        best, best_start, best_end = -1, 0.0, np.inf
        for each in range(vms):
            if (given[task] >= 0 and given[task] != each) or not np.isfinite(seconds[task, each]):
                continue
            begin = max(earliest, _free_from(kept, each, task, needs))
            if in_turn:
                begin = max(begin, last[each])
            end = begin + _took(task, each, begin, seconds, files)
            if end < best_end:
                best, best_start, best_end = each, begin, end
        vm[task], start[task], finish[task] = best, best_start, best_end
        last[best] = best_start
        _keep(kept, sizes[0][best], best, task, needs, best_end)
        _leave(task, best, best_start, best_end, files)
    return vm, start, finish


@njit
def batch_all(
    rule: int, place: Ints, child_starts: Ints, children: Ints, waiting: Ints, seconds: Numbers, needs: Sizes,
    sizes: Sizes, ready_at: Numbers, files: Files,
) -> tuple[Ints, Numbers, Numbers]:  # fmt: skip
    """Place the tasks of a growing batch: at each step the one that the rule prefers, where it ends first.

    A task joins the batch when its parents have been placed. Args: as `insert_general`, but for

        rule: `MINMIN`, `MAXMIN`, `SUFFERAGE` or `MCT`.
        place: The place of each task in the order of arrival, which breaks ties.
        waiting: Number of parents of each task.
    """
    tasks = len(place)
    vm, start, finish = np.full(tasks, -1, np.int32), np.zeros(tasks), np.zeros(tasks)
    kept = _nothing_kept(sizes, ready_at, tasks)
    earliest, left = np.zeros(tasks), waiting.copy()
    batch, count = np.zeros(tasks, np.int64), 0
    # Of each task of the batch: where it ends first, when, and when on the second-best machine.
    best, first, second = np.full(tasks, -1, np.int64), np.zeros(tasks), np.zeros(tasks)
    for task in range(tasks):
        if left[task] == 0:
            batch[count] = task
            count += 1
            _rate(task, earliest[task], kept, needs, seconds, files, best, first, second)
    for _ in range(tasks):
        chosen = 0
        for at in range(1, count):
            if _prefers(rule, batch[at], batch[chosen], first, second, place):
                chosen = at
        task = batch[chosen]
        count -= 1
        batch[chosen] = batch[count]
        on = best[task]
        begin = max(earliest[task], _free_from(kept, on, task, needs))
        vm[task], start[task], finish[task] = on, begin, first[task]
        _keep(kept, sizes[0][on], on, task, needs, first[task])
        _leave(task, on, begin, first[task], files)
        for at in range(count):
            # Only what is on this machine has changed: it is later there, or has its files there now.
            other = batch[at]
            begin = max(earliest[other], _free_from(kept, on, other, needs))
            end = begin + _took(other, on, begin, seconds, files)
            if best[other] == on or end < second[other] or rule == SUFFERAGE:
                _rate(other, earliest[other], kept, needs, seconds, files, best, first, second)
        for at in range(child_starts[task], child_starts[task + 1]):
            child = children[at]
            earliest[child] = max(earliest[child], finish[task])
            left[child] -= 1
            if left[child] == 0:
                batch[count] = child
                count += 1
                _rate(child, earliest[child], kept, needs, seconds, files, best, first, second)
    return vm, start, finish


@njit
def batch_now(rule: int, seconds: Numbers, needs: Sizes, slots: Ints, now: float, kept: Kept) -> tuple[Ints, Numbers]:
    """Place a batch of tasks that are all ready behind what runs.

    Args:
        rule: `MINMIN`, `MAXMIN`, `SUFFERAGE` or `MCT`.
        seconds: Seconds of each task of the batch on each machine, infinite where it does not fit; in the order of
            arrival.
        needs: Cores and amounts that each task of the batch takes.
        slots: Cores of each machine.
        now: The time, in seconds.
        kept: Times at which cores and amounts of each machine become free; with space for the batch; it is changed.

    Returns:
        The machine of each task, and its begin; of those that begin now, the others may be left out.
    """
    tasks = len(seconds)
    vm, start = np.full(tasks, -1, np.int64), np.full(tasks, np.inf)
    place, none, nothing = np.arange(tasks), np.zeros(tasks + 1, np.int32), np.zeros(0)
    files = (none, none[:0], none, none[:0], nothing, np.zeros((0, len(slots))))
    best, first, second = np.full(tasks, -1, np.int64), np.zeros(tasks), np.zeros(tasks)
    for task in range(tasks):
        _rate(task, now, kept, needs, seconds, files, best, first, second)
    idle = 0
    for each in range(len(slots)):
        idle += np.sum(kept[0][each] <= now)
    for _ in range(tasks):
        if idle == 0:
            break  # whatever is placed next does not begin now
        chosen = -1
        for task in range(tasks):
            if vm[task] < 0 and (chosen < 0 or _prefers(rule, task, chosen, first, second, place)):
                chosen = task
        on = best[chosen]
        vm[chosen], start[chosen] = on, max(now, _free_from(kept, on, chosen, needs))
        if start[chosen] <= now:
            idle -= needs[0][chosen]
        _keep(kept, slots[on], on, chosen, needs, first[chosen])
        for task in range(tasks):
            if vm[task] < 0 and (best[task] == on or rule == SUFFERAGE):
                _rate(task, now, kept, needs, seconds, files, best, first, second)
    return vm, start


@njit
def _rate(
    task: int, earliest: float, kept: Kept, needs: Sizes, seconds: Numbers, files: Files, best: Ints, first: Numbers,
    second: Numbers,
) -> None:  # fmt: skip
    """Find the machine on which a task ends first, that end, and the end on the second-best machine."""
    first[task], second[task], best[task] = np.inf, np.inf, -1
    for each in range(seconds.shape[1]):
        if not np.isfinite(seconds[task, each]):
            continue
        begin = max(earliest, _free_from(kept, each, task, needs))
        end = begin + _took(task, each, begin, seconds, files)
        if end < first[task]:
            second[task] = first[task]
            first[task], best[task] = end, each
        elif end < second[task]:
            second[task] = end


@njit
def _prefers(rule: int, one: int, other: int, first: Numbers, second: Numbers, place: Ints) -> bool:
    """True when a rule places one task before the other."""
    if rule == MINMIN:
        better, worse = first[one] < first[other], first[one] > first[other]
    elif rule == MAXMIN:
        better, worse = first[one] > first[other], first[one] < first[other]
    elif rule == MCT:
        better, worse = False, False
    else:
        # With one machine only, second is infinite for all: then all are alike.
        mine, others = min(second[one], 1e300) - first[one], min(second[other], 1e300) - first[other]
        better, worse = mine > others, mine < others
    return bool(better or (not worse and place[one] < place[other]))
