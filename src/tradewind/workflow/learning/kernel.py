"""The inner loops of learning: a simulation step by step, and whole episodes; compiled where numba is installed.

They stay in one file because numba renews a cached function when its own file changes, and not when a file that it
calls changes. Import this module inside functions: it loads numba. The directors of
`tradewind.workflow.learning.adaptive` and `tradewind.workflow.learning.q_learning` call the parts of a decision
(`choose_machine`, `credit`, `assign`, `observe`) too, so that the episodes here and the readable simulator decide
alike.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tradewind.utils.jit import njit
from tradewind.workflow.graph import Numbers

Ints = NDArray[np.integer[Any]]

END, FAIL, UP, READY = 0, 1, 2, 3
"""Kinds of events, in the order in which they happen at one moment."""

EVENTS, WAITING, FINISHED, BEYOND, ARRIVED = 0, 1, 2, 3, 4
"""Places in `EpisodeState.counts`: events to come, ready tasks, ended tasks, 1 if speeds ran out, arrivals."""

DEVIATION, DRIFT, NOISE, OVERDUE, CAUTION, PATIENCE, OWN, FASTEST = 0, 1, 2, 3, 4, 5, 6, 7
"""Places in the weights of the adaptive policy; see `tradewind.workflow.learning.adaptive`."""


class EpisodeInput(NamedTuple):
    """A workflow, its machines and one world, as arrays; see `tradewind.workflow.learning.arrays`.

    Amounts of tasks and rooms of machines have a column for each resource that can run out besides slots.
    """

    child_starts: Ints
    children: Ints
    parents: Ints
    running: Numbers
    reading: Numbers
    cores: Ints
    amounts: Ints
    slots: Ints
    rooms: Ints
    boot: Numbers
    engine: Numbers
    queue: Numbers
    post: Numbers
    luck_starts: Ints
    factor: Numbers
    share: Numbers
    speed: Numbers
    still: Numbers
    period: float
    varying: bool


class EpisodeState(NamedTuple):
    """Changing state of one episode."""

    left: Ints
    known: Numbers
    ready: Ints
    key: Numbers
    ready_at: Numbers
    when: Numbers
    what: Ints
    free: Ints
    spare: Ints
    vm: Ints
    start: Numbers
    finish: Numbers
    attempts: Ints
    ended: Ints
    counts: Ints
    now: Numbers


class MachineForecast(NamedTuple):
    """Expected speeds and free times of machines at a moment.

    Attributes:
        slow: Seconds per stated second of each machine.
        lanes: Time at which each slot is free.
        since: Free amounts over time, in steps: time, amounts, and the step after it on its machine or -1. The first
            step of a machine has its number; there are none where nothing is counted.
        spare: See ``since``.
        following: See ``since``.
        steps: Number of steps.
    """

    slow: Numbers
    lanes: Numbers
    since: Numbers
    spare: Ints
    following: Ints
    steps: Ints


@njit
def begin(given: EpisodeInput) -> EpisodeState:
    """A run in which nothing has happened; its first events are machines that come up and tasks that wait for none."""
    tasks, vms = given.running.shape
    most = 2 * tasks + vms + 1
    run = EpisodeState(
        given.parents.copy(), np.zeros(tasks), np.zeros(tasks, np.int64), np.zeros(tasks), np.zeros(tasks),
        np.zeros(most), np.zeros(most, np.int64), np.zeros(vms, np.int64), given.rooms.copy(),
        np.full(tasks, -1, np.int64), np.zeros(tasks), np.zeros(tasks), np.zeros(tasks, np.int64),
        np.zeros(tasks, np.int64), np.zeros(5, np.int64), np.zeros(1),
    )  # fmt: skip
    size = max(tasks, vms)
    for vm in range(vms):
        _push(run, given.boot[vm], UP * size + vm)
    for task in range(tasks):
        if given.parents[task] == 0:
            _push(run, given.engine[task], READY * size + task)
    return run


@njit
def advance(given: EpisodeInput, run: EpisodeState, turn: Numbers) -> int:
    """Let all that comes next happen; returns the number of attempts that ended, or -1 when all is over.

    They are in ``run.ended``: the task, or -1 - task if it failed.

    Args:
        given: The workflow, its machines and the world.
        run: The run.
        turn: Ready tasks are kept in the order of these, the smallest first; empty for the order of their arrival.
    """
    if run.counts[EVENTS] == 0:
        return -1
    tasks, vms = given.running.shape
    size = max(tasks, vms)
    now, ended = run.when[0], 0
    run.now[0] = now
    while run.counts[EVENTS] > 0 and run.when[0] == now:
        event = _pop(run)
        what, number = event // size, event % size
        if what == UP:
            run.free[number] = given.slots[number]
        elif what == READY:
            _arrive(run, number, turn)
        else:
            run.free[run.vm[number]] += given.cores[number]
            for of in range(given.amounts.shape[1]):
                run.spare[run.vm[number], of] += given.amounts[number, of]
            run.ended[ended] = number if what == END else -1 - number
            ended += 1
            if what == FAIL:
                _arrive(run, number, turn)
                continue
            run.counts[FINISHED] += 1
            for at in range(given.child_starts[number], given.child_starts[number + 1]):
                child = given.children[at]
                run.known[child] = max(run.known[child], now + given.post[number])
                run.left[child] -= 1
                if run.left[child] == 0:
                    _push(run, run.known[child] + given.engine[child], READY * size + child)
    return ended


@njit
def place(given: EpisodeInput, run: EpisodeState, at: int, vm: int) -> int:
    """Start the ready task at a place of ``run.ready`` on a machine that has room for it; the task."""
    task = int(run.ready[at])
    run.counts[WAITING] -= 1
    for each in range(at, run.counts[WAITING]):
        run.ready[each], run.key[each] = run.ready[each + 1], run.key[each + 1]
    start = run.now[0] + given.queue[task]
    luck = given.luck_starts[task] + run.attempts[task]
    work = given.running[task, vm] * given.factor[luck]
    fails = given.share[luck] >= 0.0
    if fails:
        work *= given.share[luck]
    seconds = given.reading[task] + (
        _at_real_speed(given, run, vm, start + given.reading[task], work) if given.varying else work
    )
    run.free[vm] -= given.cores[task]
    for of in range(given.amounts.shape[1]):
        run.spare[vm, of] -= given.amounts[task, of]
    run.vm[task] = vm
    run.attempts[task] += 1
    run.start[task], run.finish[task] = start, start + seconds
    size = max(given.running.shape[0], given.running.shape[1])
    _push(run, start + seconds, (FAIL if fails else END) * size + task)
    return task


@njit
def has_room(given: EpisodeInput, run: EpisodeState, task: int, vm: int) -> bool:
    """True when a machine has the free slots and all else for a task."""
    return bool(run.free[vm] >= given.cores[task] and _enough(run.spare, vm, given.amounts, task))


@njit
def _enough(spare: Ints, at: int, amounts: Ints, task: int) -> bool:
    """True where there are the amounts that a task takes."""
    for of in range(amounts.shape[1]):  # noqa: SIM110 compiled
        if spare[at, of] < amounts[task, of]:
            return False
    return True


@njit
def _at_real_speed(given: EpisodeInput, run: EpisodeState, vm: int, begin: float, work: float) -> float:
    if begin / given.period >= given.speed.shape[1]:  # it may be more than a whole number can be
        run.counts[BEYOND] = 1
        return work
    now, left, period = begin, work, int(begin / given.period)
    while True:
        if period >= given.speed.shape[1]:
            run.counts[BEYOND] = 1
            return float(now - begin + left)
        speed, still = given.speed[vm, period], given.still[vm, period]
        # The end of a period may be rounded to before the beginning of the next: it is counted, not calculated.
        period += 1
        end = period * given.period
        now = max(now, min(still, end))
        possible = max(0.0, end - now) * speed
        if left <= possible:
            return float(now + left / speed - begin)
        left -= possible
        now = max(now, end)


@njit
def _arrive(run: EpisodeState, task: int, turn: Numbers) -> None:
    run.ready_at[task] = run.now[0]
    key = turn[task] if len(turn) else float(run.counts[ARRIVED])
    run.counts[ARRIVED] += 1
    at = run.counts[WAITING]
    while at > 0 and run.key[at - 1] > key:
        run.ready[at], run.key[at] = run.ready[at - 1], run.key[at - 1]
        at -= 1
    run.ready[at], run.key[at] = task, key
    run.counts[WAITING] += 1


@njit
def _push(run: EpisodeState, time: float, event: int) -> None:
    when, what, at = run.when, run.what, run.counts[EVENTS]
    run.counts[EVENTS] += 1
    while at > 0:
        above = (at - 1) // 2
        if when[above] < time or (when[above] == time and what[above] <= event):
            break
        when[at], what[at] = when[above], what[above]
        at = above
    when[at], what[at] = time, event


@njit
def _pop(run: EpisodeState) -> int:
    when, what = run.when, run.what
    top = int(what[0])
    run.counts[EVENTS] -= 1
    count, at = run.counts[EVENTS], 0
    time, event = when[count], what[count]
    while True:
        below = 2 * at + 1
        if below >= count:
            break
        right = below + 1
        if right < count and (when[right] < when[below] or (when[right] == when[below] and what[right] < what[below])):
            below = right
        if when[below] > time or (when[below] == time and what[below] >= event):
            break
        when[at], what[at] = when[below], what[below]
        at = below
    when[at], what[at] = time, event
    return top


@njit
def follow(given: EpisodeInput, starts: Ints, order: Ints) -> EpisodeState:
    """Run an episode in which each machine runs its tasks in the order of a plan.

    Args:
        given: The workflow, its machines and the world.
        starts: Index in ``order`` at which the tasks of each machine begin.
        order: The tasks of all machines.
    """
    run, at = begin(given), starts[:-1].copy()
    none = np.zeros(0)
    while True:
        count = advance(given, run, none)
        if count < 0:
            return run
        for each in range(count):
            if run.ended[each] < 0:  # what failed is next on its machine; it had one slot or its turn came last
                vm = run.vm[-1 - run.ended[each]]
                at[vm] -= 1
                order[at[vm]] = -1 - run.ended[each]
        vm = 0
        while vm < len(starts) - 1:
            placed = False
            if at[vm] < starts[vm + 1] and has_room(given, run, order[at[vm]], vm):
                for each in range(run.counts[WAITING]):
                    if run.ready[each] == order[at[vm]]:
                        place(given, run, each, vm)
                        at[vm] += 1
                        placed = True
                        break
            if not placed:
                vm += 1


@njit
def by_key(given: EpisodeInput, turn: Numbers, preference: Ints) -> EpisodeState:
    """Run an episode in which the ready task of the smallest key goes to the first machine listed with room."""
    run = begin(given)
    while advance(given, run, turn) >= 0:
        at = 0
        while at < run.counts[WAITING] and run.free.max() > 0:
            found = -1
            for vm in preference:
                task = run.ready[at]
                if has_room(given, run, task, vm) and given.running[task, vm] < np.inf:
                    found = vm
                    break
            if found >= 0:
                place(given, run, at, found)
            else:
                at += 1
    return run


@njit
def chance(state: Ints) -> float:
    """The next number from 0 to below 1 of a small generator (Park and Miller, CACM 31(10), 1988, with 48271)."""
    state[0] = state[0] * 48271 % 2147483647
    return float(state[0]) / 2147483647.0


@njit
def row_of(rows: Ints, task: int, waiting: int, buckets: int) -> int:
    """The row of the table for a task while so many are ready: its own, by the power of two of their number."""
    bucket = 0
    while waiting > 1 and bucket < buckets - 1:
        waiting //= 2
        bucket += 1
    return int(rows[task]) * buckets + bucket


@njit
def choose_machine(
    table: Numbers, row: int, columns: Ints, free: Ints, spare: Ints, task: int, cores: Ints, amounts: Ints,
    running: Numbers, explore: float, state: Ints,
) -> int:  # fmt: skip
    """A machine with room that a task fits on; -1 for none.

    With the chance ``explore`` any of them, else the one of the highest value; ``running`` has the seconds of the task
    on each machine, infinite where it does not fit.
    """
    best, there = -1, 0
    for vm in range(len(free)):
        if free[vm] >= cores[task] and running[vm] < np.inf and _enough(spare, vm, amounts, task):
            there += 1
            if best < 0 or table[row, columns[vm]] > table[row, columns[best]]:
                best = vm
    if there == 0 or chance(state) >= explore:
        return best
    wanted = int(chance(state) * there)
    for vm in range(len(free)):
        if free[vm] >= cores[task] and running[vm] < np.inf and _enough(spare, vm, amounts, task):
            if wanted == 0:
                return vm
            wanted -= 1
    return best


@njit
def credit(
    table: Numbers, row: int, column: int, following: float, took: float, waited: float, seen: Numbers,
    efficiency: Numbers, vm: int, weight: float, rate: float, discount: float,
) -> float:  # fmt: skip
    """Judge one placement and write it into the table; the reward (1, 0 or -1).

    Args:
        table: The table Q; one row a state, one column a choice.
        row: The row of the task that was placed.
        column: The column of its machine.
        following: The highest value in the state after it.
        took: Seconds that the task takes on the machine (paper: te).
        waited: Seconds that it was ready before (paper: tf).
        seen: Number of placements of this execution before, the mean of their indices, the sum of squares.
        efficiency: Efficiency of each machine (paper: rle).
        vm: The machine.
        weight: Weight of ``took`` in the index (paper: α of P_i).
        rate: Learning rate (paper: l).
        discount: Discount of what follows (paper: γ).
    """
    index = took * weight + (1.0 - weight) * waited
    reward = 0.0
    if seen[0] >= 2.0:
        deviation = math.sqrt(seen[2] / seen[0])
        if index > seen[1] + deviation:
            reward = -1.0
        elif index < seen[1] - deviation:
            reward = 1.0
    seen[0] += 1.0
    step = index - seen[1]
    seen[1] += step / seen[0]
    seen[2] += step * (index - seen[1])
    efficiency[vm] += rate * (reward - efficiency[vm])
    table[row, column] += rate * (efficiency[vm] + discount * following - table[row, column])
    return reward


@njit
def q_episode(
    given: EpisodeInput, table: Numbers, rows: Ints, buckets: int, columns: Ints, efficiency: Numbers, times: Numbers,
    numbers: Numbers, state: Ints, turn: Numbers,
) -> EpisodeState:  # fmt: skip
    """Run an episode of Q-learning as paper 3 has it; table, efficiency and the state of chance change.

    Args:
        given: The workflow, its machines and the world.
        table: The table Q.
        rows: The row of each task, before the buckets.
        buckets: Rows for each, by how many tasks are ready.
        columns: The column of each machine.
        efficiency: Efficiency of each machine.
        times: Seconds of each task on each machine, as last seen.
        numbers: Weight, learning rate, discount, chance to explore, the value that the table begins with.
        state: State of the random numbers.
        turn: As `advance` has it.
    """
    run, seen = begin(given), np.zeros(3)
    while advance(given, run, turn) >= 0:
        at = 0
        while at < run.counts[WAITING] and run.free.max() > 0:
            task, waiting = run.ready[at], run.counts[WAITING]
            row = row_of(rows, task, waiting, buckets)
            vm = choose_machine(
                table, row, columns, run.free, run.spare, task, given.cores, given.amounts, given.running[task],
                numbers[3], state,
            )  # fmt: skip
            if vm < 0:
                at += 1
                continue
            waited = run.now[0] - run.ready_at[task]
            place(given, run, at, vm)
            following = numbers[4]
            if run.counts[WAITING] > 0 and run.free.max() > 0:
                after = row_of(rows, run.ready[min(at, waiting - 2)], waiting - 1, buckets)
                following = table[after].max()
            credit(table, row, columns[vm], following, times[task, vm], waited, seen, efficiency, vm,
                   numbers[0], numbers[1], numbers[2])  # fmt: skip
    return run


@njit
def observe(posterior: Numbers, vm: int, ratio: float, now: float, weights: Numbers, unit: float) -> None:
    """Learn from one ended task how fast a machine is: a Kalman filter of ln(real speed / stated speed).

    Args:
        posterior: Mean and variance of each machine, and the time of its last update; shape (3, machines).
        vm: The machine.
        ratio: Expected seconds over real ones, without reading.
        now: Time at which it ended.
        weights: Weights of the policy.
        unit: Seconds in which the variance grows by the square of the drift.
    """
    variance = posterior[1, vm] + weights[DRIFT] ** 2 * (now - posterior[2, vm]) / unit
    noise = max(weights[NOISE] ** 2, 1e-12)
    gain = variance / (variance + noise)
    posterior[0, vm] += gain * (math.log(ratio) - posterior[0, vm])
    posterior[1, vm] = variance * (1.0 - gain)
    posterior[2, vm] = now


@njit
def expect(
    now: float, posterior: Numbers, weights: Numbers, unit: float, running: Numbers, reading: Numbers, boot: Numbers,
    lane_vm: Ints, lane_task: Ints, lane_begin: Numbers, amounts: Ints, rooms: Ints,
) -> MachineForecast:  # fmt: skip
    """Forecast the machines, from what was learned of their speeds and from the tasks on their slots."""
    slow, lanes, vms = np.empty(len(boot)), np.empty(len(lane_vm)), len(boot)
    most = vms + 2 * len(amounts) if rooms.shape[1] > 0 else 0
    expected = MachineForecast(slow, lanes, np.zeros(most), np.zeros((most, rooms.shape[1]), np.int64),
                        np.full(most, -1, np.int64), np.full(1, vms, np.int64))  # fmt: skip
    for vm in range(len(boot)):
        variance = posterior[1, vm] + weights[DRIFT] ** 2 * (now - posterior[2, vm]) / unit
        # Where tasks take next to no time the variance grows without limit until a machine is up; e^500 is finite.
        slow[vm] = math.exp(min(-posterior[0, vm] + weights[CAUTION] * math.sqrt(variance), 500.0))
        if most:
            expected.spare[vm] = rooms[vm]
    for lane in range(len(lane_vm)):
        vm, task = lane_vm[lane], lane_task[lane]
        if task < 0:
            lanes[lane] = max(now, boot[vm])
            continue
        end = lane_begin[lane] + reading[task] + running[task, vm] * slow[vm]
        late = now + weights[OVERDUE] * (now - lane_begin[lane])
        lanes[lane] = max(end, late) if end <= now else end
        if most and (lane_task[:lane] == task).sum() == 0:
            _hold(expected, vm, 0.0, lanes[lane], amounts, task)
    return expected


@njit
def _hold(expected: MachineForecast, vm: int, begin: float, end: float, amounts: Ints, task: int) -> None:
    """Note that a task holds amounts of a machine for a time."""
    step, since, following = vm, expected.since, expected.following
    if not amounts[task].any() or begin >= end:
        return
    while following[step] >= 0 and since[following[step]] <= begin:
        step = following[step]
    if since[step] < begin:
        step = _split(expected, step, begin)
    while step >= 0 and since[step] < end:
        if following[step] < 0 or since[following[step]] > end:
            _split(expected, step, end)
        for of in range(amounts.shape[1]):
            expected.spare[step, of] -= amounts[task, of]
        step = following[step]


@njit
def _split(expected: MachineForecast, step: int, moment: float) -> int:
    """Make two steps of one; the second."""
    new = int(expected.steps[0])
    expected.steps[0] += 1
    expected.since[new], expected.spare[new] = moment, expected.spare[step]
    expected.following[new], expected.following[step] = expected.following[step], new
    return new


@njit
def _with_room(expected: MachineForecast, vm: int, at: float, took: float, amounts: Ints, task: int) -> float:
    """Time, not before a moment, from which a machine is expected to have the amounts of a task for a while."""
    if not amounts[task].any():
        return at
    step, begin = vm, -1.0
    while step >= 0:
        after = expected.following[step]
        until = expected.since[after] if after >= 0 else np.inf
        if until > at:
            if not _enough(expected.spare, step, amounts, task):
                begin = -1.0
            else:
                begin = max(at, expected.since[step]) if begin < 0.0 else begin
                if begin + took <= until:
                    break
        step = after
    return begin


@njit
def assign(
    now: float, ready: Ints, waiting: int, expected: MachineForecast, lane_starts: Ints, free: Ints, spare: Ints,
    running: Numbers, reading: Numbers, cores: Ints, amounts: Ints, patience: float, chosen: Ints,
) -> int:  # fmt: skip
    """Go through the ready tasks, each to the machine where it is expected to end first, busy ones included.

    A task whose machine has no room yet is counted there, and waits; so no task is given to a slow idle machine that
    a fast busy one would end sooner. ``expected``, ``free`` and ``spare`` change.

    Args:
        now: The time.
        ready: The tasks, the most urgent first.
        waiting: Number of ready tasks.
        expected: Forecast of the machines.
        lane_starts: Index at which the slots of each machine begin.
        free: Free slots of each machine.
        spare: Free amounts of each machine.
        running: Stated seconds of each task on each machine, infinite where it does not fit.
        reading: Seconds before it.
        cores: Slots that each task uses.
        amounts: Amounts that each task takes of what is counted besides slots.
        patience: Seconds that a second of waiting for a busy machine counts in addition.
        chosen: Becomes the tasks to place now and their machines; shape (2, tasks).

    Returns:
        The number of tasks that are to be placed.
    """
    slow, lanes, count, open_slots = expected.slow, expected.lanes, 0, free.sum()
    for at in range(waiting):
        if open_slots <= 0:
            break
        task, best, best_score, best_start, by_cores = ready[at], -1, np.inf, 0.0, 0.0
        for vm in range(len(free)):
            if running[task, vm] == np.inf:
                continue
            took = reading[task] + running[task, vm] * slow[vm]
            first = _earliest(lanes, lane_starts[vm], lane_starts[vm + 1], cores[task])
            start = _with_room(expected, vm, first, took, amounts, task)
            score = start + reading[task] + running[task, vm] * slow[vm] + patience * (start - now)
            if score < best_score:
                best, best_score, best_start, by_cores = vm, score, start, first
        end = best_start + reading[task] + running[task, best] * slow[best]
        # Who waits for memory, say, leaves the slots that are free before to others.
        latest = best_start if best_start > by_cores else -1.0
        _fill(lanes, lane_starts[best], lane_starts[best + 1], cores[task], latest, end)
        _hold(expected, best, best_start, end, amounts, task)
        if best_start <= now and free[best] >= cores[task] and _enough(spare, best, amounts, task):
            chosen[0, count], chosen[1, count] = task, best
            count += 1
            free[best] -= cores[task]
            for of in range(amounts.shape[1]):
                spare[best, of] -= amounts[task, of]
            open_slots -= cores[task]
    return count


@njit
def _fill(lanes: Numbers, begin: int, end: int, cores: int, latest: float, until: float) -> None:
    """Keep slots of a machine until a moment: those that are free first, or the last ones that are free by ``latest``.

    The latter where ``latest`` is not below 0.
    """
    for _ in range(cores):
        chosen = begin
        for lane in range(begin, end):
            if latest < 0.0:
                better = lanes[lane] < lanes[chosen]
            else:
                better = lanes[lane] <= latest and (lanes[chosen] > latest or lanes[lane] > lanes[chosen])
            if better:
                chosen = lane
        lanes[chosen] = until


@njit
def _earliest(lanes: Numbers, begin: int, end: int, cores: int) -> float:
    if cores == 1:
        least = lanes[begin]
        for lane in range(begin + 1, end):
            least = min(least, lanes[lane])
        return float(least)
    return float(np.sort(lanes[begin:end])[cores - 1])


@njit
def occupy(lane_task: Ints, lane_begin: Numbers, lane_starts: Ints, vm: int, task: int, cores: int, now: float) -> None:
    """Note that a task runs on free slots of a machine since now; ``task`` -1 frees those of ``cores``, a task."""
    left = cores
    for lane in range(lane_starts[vm], lane_starts[vm + 1]):
        if task < 0 and lane_task[lane] == cores:
            lane_task[lane] = -1
        elif task >= 0 and lane_task[lane] < 0 and left > 0:
            lane_task[lane], lane_begin[lane] = task, now
            left -= 1


@njit
def adaptive_episode(
    given: EpisodeInput, turn: Numbers, weights: Numbers, unit: float, lane_vm: Ints, lane_starts: Ints,
    stated: Numbers,
) -> EpisodeState:  # fmt: skip
    """Run an episode of the adaptive policy.

    Args:
        given: The workflow, its machines and the world.
        turn: The order of tasks, the most urgent first.
        weights: Weights of the policy.
        unit: Seconds in which drift is counted.
        lane_vm: The machine of each slot.
        lane_starts: Index at which the slots of each machine begin.
        stated: Stated seconds of each task on each machine, without reading.
    """
    tasks, vms = stated.shape
    run, posterior = begin(given), np.zeros((3, vms))
    posterior[1, :] = weights[DEVIATION] ** 2
    lane_task, lane_begin = np.full(len(lane_vm), -1, np.int64), np.zeros(len(lane_vm))
    chosen = np.empty((2, tasks), np.int64)
    while True:
        count = advance(given, run, turn)
        if count < 0:
            return run
        now = run.now[0]
        for each in range(count):
            code = run.ended[each]
            task = code if code >= 0 else -1 - code
            vm = run.vm[task]
            occupy(lane_task, lane_begin, lane_starts, vm, -1, task, now)
            took = now - run.start[task] - given.reading[task]
            if code >= 0 and stated[task, vm] > 0.0 and took > 0.0:
                observe(posterior, vm, stated[task, vm] / took, now, weights, unit)
        if run.counts[WAITING] == 0 or run.free.max() == 0:
            continue
        expected = expect(now, posterior, weights, unit, stated, given.reading, given.boot, lane_vm, lane_task,
                          lane_begin, given.amounts, given.rooms)  # fmt: skip
        count = assign(now, run.ready, run.counts[WAITING], expected, lane_starts, run.free.copy(), run.spare.copy(),
                       stated, given.reading, given.cores, given.amounts, weights[PATIENCE], chosen)  # fmt: skip
        at = 0
        for each in range(count):
            task, vm = chosen[0, each], chosen[1, each]
            while run.ready[at] != task:
                at += 1
            occupy(lane_task, lane_begin, lane_starts, vm, task, given.cores[task], now)
            place(given, run, at, vm)
