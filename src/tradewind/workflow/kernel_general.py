"""The inner loops of planning where a task may use several cores, and files may lie on machines.

Slower than those of `tradewind.workflow.kernel`, and more general. They stay in one file because numba renews a cached
function when its own file changes, and not when a file that it calls changes. Import this module inside functions.

A task that starts on a machine before a file that it reads is there has to fetch it, which is part of the task's time.
Without local storage tasks read and write no files here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tradewind.compiling import fast
from tradewind.workflow.graph import Numbers

Ints = NDArray[np.integer[Any]]

Files = tuple[Ints, Ints, Ints, Ints, Numbers, Numbers]
"""Which files each task reads and writes, and where they are.

Where the files that each task reads begin in the second; those files; the same two for the files that it writes; the
seconds to bring each file to a machine; and from when each file is on each machine, which the loops change.
"""

MINMIN, MAXMIN, SUFFERAGE, MCT = 0, 1, 2, 3
"""Rules of `batch_all` and `batch_now`; the last takes tasks in the order of arrival."""


@fast
def _took(task: int, vm: int, begin: float, seconds: Numbers, files: Files) -> float:
    """Seconds of a task that begins at a moment on a machine, with what it has to fetch."""
    in_starts, ins, _, _, fetch, here = files
    took = seconds[task, vm]
    for at in range(in_starts[task], in_starts[task + 1]):
        if here[ins[at], vm] > begin:
            took += fetch[ins[at]]
    return float(took)


@fast
def _leave(
    task: int,
    vm: int,
    begin: float,
    end: float,
    files: Files,
) -> None:
    """Note the files that a task has left on its machine."""
    in_starts, ins, out_starts, outs, _, here = files
    # Of tasks that start together it is open which one fetches a file: each is given the time for it.
    after = np.nextafter(begin, np.inf)
    for at in range(in_starts[task], in_starts[task + 1]):
        here[ins[at], vm] = min(here[ins[at], vm], after)
    for at in range(out_starts[task], out_starts[task + 1]):
        here[outs[at], vm] = min(here[outs[at], vm], end)


@fast
def insert_general(
    sequence: Ints, parent_starts: Ints, parents: Ints, seconds: Numbers, bonus: Numbers, cores: Ints, slots: Ints,
    ready_at: Numbers, files: Files,
) -> tuple[Ints, Numbers, Numbers]:  # fmt: skip
    """Place tasks one after the other where each ends first, in the first time in which enough cores are free.

    Args:
        sequence: The tasks; parents before children.
        parent_starts: Where the parents of each task begin in ``parents``.
        parents: The parents of all tasks.
        seconds: Of each task on each machine, infinite where it does not fit; shape (tasks, machines).
        bonus: Added to a task's end where machines are compared; shape (tasks, machines).
        cores: That each task uses.
        slots: Cores of each machine.
        ready_at: When each machine can run its first task.
        files: What tasks read and write, and where it is.

    Returns:
        Machine, start and finish of each task.
    """
    tasks, vms = len(sequence), len(slots)
    vm, start, finish = np.full(tasks, -1, np.int32), np.zeros(tasks), np.zeros(tasks)
    # Free cores of each machine over time: linked lists of steps over one pool, the first of machine v is step v.
    size = 2 * tasks + vms + 2
    since, free, following = np.zeros(size), np.zeros(size, np.int64), np.full(size, -1, np.int64)
    for each in range(vms):
        since[each], free[each] = ready_at[each], slots[each]
    used = vms
    for task in sequence:
        earliest = 0.0
        for at in range(parent_starts[task], parent_starts[task + 1]):
            earliest = max(earliest, finish[parents[at]])
        best, best_score, best_start, best_took = -1, np.inf, 0.0, 0.0
        for each in range(vms):
            if not np.isfinite(seconds[task, each]):
                continue
            least = max(earliest, ready_at[each]) + seconds[task, each] + bonus[task, each]
            if best >= 0 and least >= best_score:
                continue
            step, begin, took = each, -1.0, 0.0
            while step >= 0:
                until = since[following[step]] if following[step] >= 0 else np.inf
                if until > earliest:
                    if free[step] < cores[task]:
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
            used = _occupy(best, best_start, finish[task], cores[task], since, free, following, used)
    return vm, start, finish


@fast
def _occupy(
    vm: int, begin: float, end: float, cores: int, since: Numbers, free: Ints, following: Ints, used: int
) -> int:
    """Take cores of a machine for a time; how many steps there are since."""
    before, step = -1, vm
    while following[step] >= 0 and since[following[step]] <= begin:
        before, step = step, following[step]
    if since[step] < begin:
        since[used], free[used], following[used] = begin, free[step], following[step]
        following[step] = used
        before, step, used = step, used, used + 1
    while step >= 0 and since[step] < end:
        after = following[step]
        if after < 0 or since[after] > end:
            since[used], free[used], following[used] = end, free[step], after
            following[step] = used
            after, used = used, used + 1
        free[step] -= cores
        if before >= 0 and free[before] == free[step]:
            following[before] = after
        else:
            before = step
        step = after
    if step >= 0 and before >= 0 and free[before] == free[step]:
        following[before] = following[step]
    return used


@fast
def _free_from(lanes: Numbers, cores: int) -> float:
    """When so many cores of a machine are free; its cores in the order in which they become free."""
    return float(lanes[cores - 1])


@fast
def _keep(lanes: Numbers, slots: int, cores: int, end: float) -> None:
    """The cores that become free first are kept until a moment; the order is held."""
    for at in range(slots - cores):
        lanes[at] = lanes[at + cores]
    for taken in range(cores):
        at = slots - cores + taken
        while at > 0 and lanes[at - 1] > end:
            lanes[at] = lanes[at - 1]
            at -= 1
        lanes[at] = end


@fast
def append_all(
    sequence: Ints, parent_starts: Ints, parents: Ints, seconds: Numbers, given: Ints, in_turn: bool, cores: Ints,
    slots: Ints, ready_at: Numbers, files: Files,
) -> tuple[Ints, Numbers, Numbers]:  # fmt: skip
    """Place tasks one after the other behind what is on each machine; where each ends first, or where it is given.

    Args: as `insert_general`, but for

        given: The machine of each task, or -1 where it is chosen.
        in_turn: No task of a machine begins before the one that was placed on it before.
    """
    tasks, vms = len(sequence), len(slots)
    vm, start, finish = np.full(tasks, -1, np.int32), np.zeros(tasks), np.zeros(tasks)
    lanes, last = np.full((vms, max(slots)), np.inf), np.zeros(vms)
    for each in range(vms):
        lanes[each, : slots[each]] = ready_at[each]
    for task in sequence:
        earliest = 0.0
        for at in range(parent_starts[task], parent_starts[task + 1]):
            earliest = max(earliest, finish[parents[at]])
        best, best_start, best_end = -1, 0.0, np.inf
        for each in range(vms):
            if (given[task] >= 0 and given[task] != each) or not np.isfinite(seconds[task, each]):
                continue
            begin = max(earliest, _free_from(lanes[each], cores[task]))
            if in_turn:
                begin = max(begin, last[each])
            end = begin + _took(task, each, begin, seconds, files)
            if end < best_end:
                best, best_start, best_end = each, begin, end
        vm[task], start[task], finish[task] = best, best_start, best_end
        last[best] = best_start
        _keep(lanes[best], slots[best], cores[task], best_end)
        _leave(task, best, best_start, best_end, files)
    return vm, start, finish


@fast
def batch_all(
    rule: int, place: Ints, child_starts: Ints, children: Ints, waiting: Ints, seconds: Numbers, cores: Ints,
    slots: Ints, ready_at: Numbers, files: Files,
) -> tuple[Ints, Numbers, Numbers]:  # fmt: skip
    """Place the tasks of a growing batch: at each step the one that the rule prefers, where it ends first.

    A task joins the batch when its parents have been placed. Args: as `insert_general`, but for

        rule: `MINMIN`, `MAXMIN`, `SUFFERAGE` or `MCT`.
        place: The place of each task in the order of arrival, which breaks ties.
        waiting: How many parents each task has.
    """
    tasks, vms = len(place), len(slots)
    vm, start, finish = np.full(tasks, -1, np.int32), np.zeros(tasks), np.zeros(tasks)
    lanes = np.full((vms, max(slots)), np.inf)
    for each in range(vms):
        lanes[each, : slots[each]] = ready_at[each]
    earliest, left = np.zeros(tasks), waiting.copy()
    batch, count = np.zeros(tasks, np.int64), 0
    # Of each task of the batch: where it ends first, when, and when on the second-best machine.
    best, first, second = np.full(tasks, -1, np.int64), np.zeros(tasks), np.zeros(tasks)
    for task in range(tasks):
        if left[task] == 0:
            batch[count] = task
            count += 1
            _rate(task, earliest[task], lanes, cores[task], seconds, files, best, first, second)
    for _ in range(tasks):
        chosen = 0
        for at in range(1, count):
            if _prefers(rule, batch[at], batch[chosen], first, second, place):
                chosen = at
        task = batch[chosen]
        count -= 1
        batch[chosen] = batch[count]
        on = best[task]
        begin = max(earliest[task], _free_from(lanes[on], cores[task]))
        vm[task], start[task], finish[task] = on, begin, first[task]
        _keep(lanes[on], slots[on], cores[task], first[task])
        _leave(task, on, begin, first[task], files)
        for at in range(count):
            # Only what is on this machine has changed: it is later there, or has its files there now.
            other = batch[at]
            begin = max(earliest[other], _free_from(lanes[on], cores[other]))
            end = begin + _took(other, on, begin, seconds, files)
            if best[other] == on or end < second[other] or rule == SUFFERAGE:
                _rate(other, earliest[other], lanes, cores[other], seconds, files, best, first, second)
        for at in range(child_starts[task], child_starts[task + 1]):
            child = children[at]
            earliest[child] = max(earliest[child], finish[task])
            left[child] -= 1
            if left[child] == 0:
                batch[count] = child
                count += 1
                _rate(child, earliest[child], lanes, cores[child], seconds, files, best, first, second)
    return vm, start, finish


@fast
def batch_now(
    rule: int, seconds: Numbers, cores: Ints, slots: Ints, now: float, lanes: Numbers
) -> tuple[Ints, Numbers]:
    """Place a batch of tasks that are all ready behind what runs.

    Args:
        rule: `MINMIN`, `MAXMIN`, `SUFFERAGE` or `MCT`.
        seconds: Of each task of the batch on each machine, infinite where it does not fit; in the order of arrival.
        cores: That each task uses.
        slots: Cores of each machine.
        now: The moment.
        lanes: When each core of each machine becomes free, in ascending order; it is changed.

    Returns:
        The machine of each task, and when it would begin; of those that begin now, the others may be left out.
    """
    tasks = len(cores)
    vm, start = np.full(tasks, -1, np.int64), np.full(tasks, np.inf)
    place, none, nothing = np.arange(tasks), np.zeros(tasks + 1, np.int32), np.zeros(0)
    files = (none, none[:0], none, none[:0], nothing, np.zeros((0, len(slots))))
    best, first, second = np.full(tasks, -1, np.int64), np.zeros(tasks), np.zeros(tasks)
    for task in range(tasks):
        _rate(task, now, lanes, cores[task], seconds, files, best, first, second)
    idle = 0
    for each in range(len(slots)):
        idle += np.sum(lanes[each] <= now)
    for _ in range(tasks):
        if idle == 0:
            break  # whatever is placed next does not begin now
        chosen = -1
        for task in range(tasks):
            if vm[task] < 0 and (chosen < 0 or _prefers(rule, task, chosen, first, second, place)):
                chosen = task
        on = best[chosen]
        vm[chosen], start[chosen] = on, max(now, _free_from(lanes[on], cores[chosen]))
        if start[chosen] <= now:
            idle -= cores[chosen]
        _keep(lanes[on], slots[on], cores[chosen], first[chosen])
        for task in range(tasks):
            if vm[task] < 0 and (best[task] == on or rule == SUFFERAGE):
                _rate(task, now, lanes, cores[task], seconds, files, best, first, second)
    return vm, start


@fast
def _rate(
    task: int, earliest: float, lanes: Numbers, cores: int, seconds: Numbers, files: Files, best: Ints, first: Numbers,
    second: Numbers,
) -> None:  # fmt: skip
    """Find where a task ends first, when, and when on the second-best machine."""
    first[task], second[task], best[task] = np.inf, np.inf, -1
    for each in range(seconds.shape[1]):
        if not np.isfinite(seconds[task, each]):
            continue
        begin = max(earliest, _free_from(lanes[each], cores))
        end = begin + _took(task, each, begin, seconds, files)
        if end < first[task]:
            second[task] = first[task]
            first[task], best[task] = end, each
        elif end < second[task]:
            second[task] = end


@fast
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


@fast
def cost_table(order: Ints, child_starts: Ints, children: Ints, sending: Numbers, seconds: Numbers) -> Numbers:
    """PEFT's optimistic cost table: the shortest possible way from a task on a machine to the end, itself left out.

    Arabnejad and Barbosa, "List scheduling algorithm for heterogeneous systems by an optimistic cost table", IEEE TPDS
    25(3), 2014, equation 6.

    Args:
        order: The tasks, parents before children.
        child_starts: Where the children of each task begin in ``children``.
        children: The children of all tasks.
        sending: Mean seconds that files need on each of those edges.
        seconds: Of each task on each machine, infinite where it does not fit; shape (tasks, machines).

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
