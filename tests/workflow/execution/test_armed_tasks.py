"""Tasks that machines are given beforehand: which, what becomes of them, and that they count as waiting until then."""

from __future__ import annotations

from itertools import chain, combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.workflow.execution.events import (
    Arm,
    ArmedTaskBegun,
    AttemptEnded,
    AttemptOutcome,
    ExecutionEnding,
    ExecutionInstruction,
    ExecutionInterrupted,
    ExecutionOpened,
    Finish,
    MachineLost,
    MachineSilent,
    MachineUp,
    OrderPlanned,
    Replan,
    TaskLaunch,
)
from tradewind.workflow.execution.state_machine import ExecutionMachine
from tradewind.workflow.execution.task_states import ArmedTask, ExecutionGraph, RetryLimits, TaskState, awaited_tasks

DONE, FAILED, LOST = AttemptOutcome.DONE, AttemptOutcome.FAILED, AttemptOutcome.LOST


def made(
    parents: list[tuple[int, ...]],
    order: dict[int, list[int]],
    slots: tuple[int, ...] = (1, 1),
    cores: list[int] | None = None,
    **retry_limits: int,
) -> ExecutionMachine:
    return ExecutionMachine(
        ExecutionGraph(parents, cores or [1] * len(parents), slots), order, RetryLimits(**retry_limits)
    )


def up(target: ExecutionMachine, *vms: int) -> list[ExecutionInstruction]:
    target.handle(ExecutionOpened())
    return [each for vm in vms for each in target.handle(MachineUp(vm))]


# ---------------------------------------------------------------- which


@pytest.mark.parametrize(
    ("cores", "missing", "running", "free", "expected"),
    [
        ([1, 1], [0], [0], 0, (0,)),  # a chain
        ([1, 1], [], [0], 0, (0,)),  # it needs the slot and nothing else
        ([1, 1, 1], [], [0, 1], 0, None),  # whichever ends first
        ([1, 1, 1], [0], [0, 1], 0, (0,)),  # its parent leaves it a slot
        ([1, 1, 2], [], [0, 1], 0, (0, 1)),  # it needs the slots of both
        ([1, 1, 2], [0], [0, 1], 0, (0, 1)),
        ([1, 1, 2], [0], [0, 1], 1, (0,)),
        ([2, 1, 2], [1], [0, 1], 0, (0, 1)),
        ([2, 1, 2], [], [0, 1], 0, (0,)),  # the small one alone does not free enough, and is not needed
        ([1, 1, 1, 2], [], [0, 1, 2], 1, None),
        ([1, 1, 1, 2], [0], [0, 1, 2], 0, None),
        ([1, 1], [0], [], 1, None),  # its parent does not run here
    ],
)
def test_what_a_task_waits_for(
    cores: list[int], missing: list[int], running: list[int], free: int, expected: tuple[int, ...] | None
) -> None:
    assert (
        awaited_tasks(ExecutionGraph([()] * len(cores), cores, [3]), len(cores) - 1, missing, running, free) == expected
    )


@pytest.mark.slow
@given(st.data())
def test_it_waits_for_the_only_set_of_tasks_that_lets_it_begin(data: st.DataObject) -> None:
    cores = data.draw(st.lists(st.integers(1, 4), min_size=2, max_size=6))
    task, running = len(cores) - 1, list(range(len(cores) - 1))
    missing = sorted(data.draw(st.sets(st.sampled_from(running))))
    free = data.draw(st.integers(0, 4))
    if free + sum(cores[:-1]) < cores[task]:
        return  # the machine is too small for it
    every = chain.from_iterable(combinations(running, n) for n in range(len(cores)))
    enough = [
        set(some)
        for some in every
        if set(missing) <= set(some) and free + sum(cores[other] for other in some) >= cores[task]
    ]
    least = [some for some in enough if not any(other < some for other in enough)]
    found = awaited_tasks(ExecutionGraph([()] * len(cores), cores, [99]), task, missing, running, free)
    assert found == (tuple(sorted(least[0])) if len(least) == 1 else None)


# ---------------------------------------------------------------- what becomes of them


def test_a_chain_is_begun_without_asking() -> None:
    runs = made([(), (0,), (1,)], {0: [0, 1, 2]}, (1,))
    assert up(runs, 0) == [TaskLaunch(0, 0, 1), Arm(1, 0, 1, (0,))]
    assert (runs.task_states[1], runs.left, list(runs.places)) == (TaskState.ARMED, (2,), [0])
    assert runs.handle(AttemptEnded(1, 1, DONE)) == []  # it has not begun
    assert runs.handle(AttemptEnded(0, 1, DONE)) == [ArmedTaskBegun(1, 0, 1), Arm(2, 0, 1, (1,))]
    assert runs.places == {1: (0, 1)}
    assert runs.handle(AttemptEnded(1, 1, DONE)) == [ArmedTaskBegun(2, 0, 1)]
    assert runs.handle(AttemptEnded(2, 1, DONE)) == [Finish(ExecutionEnding.DONE)]
    assert runs.attempts == [1, 1, 1]


def test_one_task_that_waits_for_two() -> None:
    runs = made([(), (), (0, 1), ()], {0: [0, 1, 2, 3]}, (2,))
    assert up(runs, 0) == [TaskLaunch(0, 0, 1), TaskLaunch(1, 0, 1), Arm(2, 0, 1, (0, 1))]
    assert runs.handle(AttemptEnded(1, 1, DONE)) == []  # there is a slot for 3, but it is not its turn
    assert runs.armed == {0: ArmedTask(2, 1, frozenset({0}))}
    assert runs.handle(AttemptEnded(0, 1, DONE)) == [ArmedTaskBegun(2, 0, 1), TaskLaunch(3, 0, 1)]


def test_a_parent_elsewhere_has_to_end_first() -> None:
    runs = made([(), (), (0, 1)], {0: [0, 2], 1: [1]})
    assert up(runs, 0, 1) == [TaskLaunch(0, 0, 1), TaskLaunch(1, 1, 1)]
    assert runs.handle(AttemptEnded(1, 1, DONE)) == [Arm(2, 0, 1, (0,))]
    assert runs.handle(AttemptEnded(0, 1, DONE)) == [ArmedTaskBegun(2, 0, 1)]


@pytest.mark.parametrize("outcome", [FAILED, LOST])
def test_what_waits_for_a_failure_is_begun_after_it_is_tried_again(outcome: AttemptOutcome) -> None:
    runs = made([(), (0,)], {0: [0, 1]}, (1,))
    up(runs, 0)
    assert runs.handle(AttemptEnded(0, 1, outcome)) == [
        TaskLaunch(0, 0, 2),
        Arm(1, 0, 1, (0,)),
    ]  # the machine has forgotten it
    assert runs.handle(AttemptEnded(0, 2, DONE)) == [ArmedTaskBegun(1, 0, 1)]
    assert runs.attempts == [2, 1]


def test_what_waits_for_a_failure_for_good_is_left_out() -> None:
    runs = made([(), (0,), ()], {0: [0, 1], 1: [2]}, retries=0)
    up(runs, 0, 1)
    assert runs.handle(AttemptEnded(0, 1, FAILED)) == []
    assert [runs.task_states[task] for task in (0, 1)] == [TaskState.FAILED, TaskState.BLOCKED]
    assert runs.armed == {}
    assert runs.handle(AttemptEnded(2, 1, DONE)) == [Finish(ExecutionEnding.FAILED)]


def test_what_only_waited_for_the_slot_of_a_failure_takes_it() -> None:
    runs = made([(), ()], {0: [0, 1]}, retries=0)
    up(runs, 0, 1)
    assert runs.handle(AttemptEnded(0, 1, FAILED)) == [Replan((1,), (0, 1)), TaskLaunch(1, 0, 1)]


def test_a_lost_machine_takes_no_attempt_of_what_had_not_begun() -> None:
    runs = made([(), (0,)], {0: [0, 1]}, losses=0)
    up(runs, 0, 1)
    assert runs.handle(MachineLost(0)) == [Finish(ExecutionEnding.FAILED)]
    assert [runs.task_states[task] for task in (0, 1)] == [TaskState.FAILED, TaskState.BLOCKED]
    runs = made([(), ()], {0: [0, 1]}, losses=1)
    up(runs, 0, 1)
    assert runs.handle(MachineLost(0)) == [Replan((0, 1), (1,))]
    # The machine may have begun it before it went away: that number is not given again.
    assert runs.handle(OrderPlanned({1: (0, 1)})) == [TaskLaunch(0, 1, 2), Arm(1, 1, 2, (0,))]
    assert runs.handle(MachineLost(1)) == [Finish(ExecutionEnding.MACHINES)]


def test_what_a_silent_machine_had_begun_is_lost_with_it_and_nothing_more_is_started() -> None:
    runs = made([(), (0,), ()], {0: [0, 1, 2]}, losses=0)
    up(runs, 0, 1)
    assert runs.handle(MachineSilent(0)) == []
    assert runs.handle(AttemptEnded(0, 1, DONE)) == [ArmedTaskBegun(1, 0, 1)]
    assert runs.handle(AttemptEnded(1, 1, DONE)) == []
    assert runs.handle(MachineLost(0)) == [Replan((2,), (1,))]
    assert runs.handle(OrderPlanned({1: (2,)})) == [TaskLaunch(2, 1, 1)]


def test_a_new_order_leaves_what_is_armed_and_none_is_armed_meanwhile() -> None:
    runs = made([(), (), (), (0,), ()], {0: [0, 3, 4], 1: [1], 2: [2]}, (1, 1, 1))
    assert up(runs, 0, 1, 2)[:2] == [TaskLaunch(0, 0, 1), Arm(3, 0, 1, (0,))]
    assert runs.handle(MachineLost(2)) == [Replan((2, 4), (0, 1))]
    assert runs.handle(AttemptEnded(0, 1, DONE)) == [ArmedTaskBegun(3, 0, 1)]  # and 4 is not armed
    assert runs.handle(OrderPlanned({0: (2,), 1: (4,)})) == [Arm(2, 0, 2, (3,)), Arm(4, 1, 1, (1,))]


def test_what_is_tried_for_the_last_time_elsewhere_is_not_armed_there() -> None:
    runs = made([(), ()], {0: [0], 1: [1]}, retries=1)
    up(runs, 0, 1)
    assert runs.handle(AttemptEnded(0, 1, FAILED)) == []
    assert runs.handle(AttemptEnded(1, 1, DONE)) == [TaskLaunch(0, 1, 2)]


def test_an_interruption_says_nothing_of_what_is_armed() -> None:
    runs = made([(), (0,)], {0: [0, 1]})
    up(runs, 0)
    assert runs.handle(ExecutionInterrupted()) == [Finish(ExecutionEnding.INTERRUPTED)]


def test_going_on_knows_what_is_armed() -> None:
    runs = made([(), (0,), ()], {0: [0, 1, 2]})
    armed = {0: ArmedTask(1, 2, frozenset({0}))}
    assert runs.handle(ExecutionOpened(running={0: (0, 1)}, attempts={0: 1, 1: 2}, armed=armed)) == []
    assert runs.handle(AttemptEnded(0, 1, FAILED)) == []  # reported before the machine is there for more
    assert runs.handle(MachineUp(0)) == [TaskLaunch(0, 0, 2), Arm(1, 0, 2, (0,))]
    assert runs.handle(AttemptEnded(0, 2, DONE)) == [ArmedTaskBegun(1, 0, 2), Arm(2, 0, 1, (1,))]
