"""The state machine of a plan that is carried out: whatever happens, nothing is lost and nothing is done twice."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from tests.effort import share
from tests.workflow.execution.world import World, worlds

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
    GiveBack,
    MachineLost,
    MachineUp,
    OrderPlanned,
    PlanFailed,
    Recall,
    Replan,
    TaskLaunch,
    VmDue,
)
from tradewind.workflow.execution.state_machine import ExecutionMachine
from tradewind.workflow.execution.task_states import ExecutionGraph, RetryLimits, TaskState, VmState

DONE, FAILED, LOST = AttemptOutcome.DONE, AttemptOutcome.FAILED, AttemptOutcome.LOST


def machine(
    parents: list[tuple[int, ...]], order: dict[int, list[int]], slots: tuple[int, ...] = (1, 1), **retry_limits: int
) -> ExecutionMachine:
    return ExecutionMachine(ExecutionGraph(parents, [1] * len(parents), slots), order, RetryLimits(**retry_limits))


def up(target: ExecutionMachine, *vms: int) -> list[ExecutionInstruction]:
    target.handle(ExecutionOpened())
    return [each for vm in vms for each in target.handle(MachineUp(vm))]


def test_a_task_begins_when_its_parents_have_ended_and_it_is_its_turn() -> None:
    runs = machine([(), (0,), (), (1,)], {0: [0, 3], 1: [2, 1]})
    assert up(runs, 0) == [TaskLaunch(0, 0, 1)]
    assert runs.handle(MachineUp(1)) == [TaskLaunch(2, 1, 1)]
    assert runs.handle(AttemptEnded(0, 1, DONE)) == [Arm(1, 1, 1, (2,))]  # 3 is next here, and waits for 1
    assert runs.handle(AttemptEnded(2, 1, DONE)) == [ArmedTaskBegun(1, 1, 1)]
    assert runs.handle(AttemptEnded(1, 1, DONE)) == [TaskLaunch(3, 0, 1)]
    assert runs.handle(AttemptEnded(3, 1, DONE)) == [Finish(ExecutionEnding.DONE)]


def test_the_order_is_kept_although_another_task_could_begin() -> None:
    runs = machine([(), (0,), ()], {0: [1, 2], 1: [0]})
    assert up(runs, 0) == []
    assert runs.handle(MachineUp(1)) == [TaskLaunch(0, 1, 1)]
    assert runs.handle(AttemptEnded(0, 1, DONE)) == [TaskLaunch(1, 0, 1), Arm(2, 0, 1, (1,))]
    assert runs.handle(AttemptEnded(1, 1, DONE)) == [ArmedTaskBegun(2, 0, 1)]


def test_the_last_try_is_on_a_machine_that_the_task_fits_on() -> None:
    fits = [[True, False, True], [True, True, True]]
    runs = ExecutionMachine(
        ExecutionGraph([(), ()], [1, 1], [1, 1, 1], fits), {0: [0], 2: [1, 1]}, RetryLimits(retries=1)
    )
    up(runs, 0, 1, 2)  # the second machine is idle, and the shortest queue that it fits on is that of the third
    assert runs.handle(AttemptEnded(0, 1, FAILED)) == []
    assert runs.handle(AttemptEnded(1, 1, DONE)) == [TaskLaunch(0, 2, 2)]


def test_slots_and_cores() -> None:
    runs = ExecutionMachine(ExecutionGraph([(), (), (), ()], [1, 2, 1, 1], [3]), {0: [0, 1, 2, 3]}, RetryLimits())
    assert up(runs, 0) == [TaskLaunch(0, 0, 1), TaskLaunch(1, 0, 1)]
    assert runs.handle(AttemptEnded(1, 1, DONE)) == [TaskLaunch(2, 0, 1), TaskLaunch(3, 0, 1)]


def test_a_failure_is_tried_again_and_the_last_time_elsewhere() -> None:
    runs = machine([(), (), ()], {0: [0, 2], 1: [1]}, retries=2)
    assert up(runs, 0) == [TaskLaunch(0, 0, 1), Arm(2, 0, 1, (0,))]
    runs.handle(MachineUp(1))
    assert runs.handle(AttemptEnded(0, 1, FAILED)) == [
        TaskLaunch(0, 0, 2),
        Arm(2, 0, 1, (0,)),
    ]  # before what comes after it
    assert runs.handle(AttemptEnded(0, 2, FAILED)) == [TaskLaunch(2, 0, 1)]
    assert runs.handle(AttemptEnded(1, 1, DONE)) == [TaskLaunch(0, 1, 3)]
    assert runs.handle(AttemptEnded(0, 3, DONE)) == []
    assert runs.handle(AttemptEnded(2, 1, DONE)) == [Finish(ExecutionEnding.DONE)]


def test_what_needs_a_failed_task_is_left_out_and_the_rest_is_planned_again() -> None:
    runs = machine([(), (0,), (1,), (), (), ()], {0: [0, 1, 2], 1: [3, 5, 4]}, retries=0)
    up(runs, 0, 1)  # so that 5 is armed
    assert runs.handle(AttemptEnded(0, 1, FAILED)) == [Replan((4,), (0, 1))]
    assert [runs.task_states[task] for task in (0, 1, 2)] == [TaskState.FAILED, TaskState.BLOCKED, TaskState.BLOCKED]
    assert runs.handle(OrderPlanned({0: (4,)})) == [TaskLaunch(4, 0, 1)]
    assert runs.handle(AttemptEnded(3, 1, DONE)) == [ArmedTaskBegun(5, 1, 1)]
    runs.handle(AttemptEnded(5, 1, DONE))
    assert runs.handle(AttemptEnded(4, 1, DONE)) == [Finish(ExecutionEnding.FAILED)]


def test_a_lost_machine_gives_its_tasks_to_the_others() -> None:
    runs = machine([(), (), (), (0,)], {0: [0, 2], 1: [1, 3]})
    up(runs, 0, 1)
    assert runs.handle(MachineLost(0)) == [Replan((0, 2, 3), (1,))]
    assert runs.handle(AttemptEnded(0, 1, DONE)) == []  # too late: it has been given up
    assert runs.handle(AttemptEnded(1, 1, DONE)) == []  # nothing of the old order is left but 3, which waits
    assert runs.handle(OrderPlanned({1: (0, 2, 3)})) == [TaskLaunch(0, 1, 2), Arm(2, 1, 2, (0,))]
    assert runs.attempts == [2, 1, 2, 0]  # 2 was armed, and may have begun before it could report


def test_what_is_lost_while_the_rest_is_planned_is_planned_at_once_too() -> None:
    runs = machine([(), (), ()], {0: [0], 1: [1], 2: [2]}, slots=(1, 1, 1))
    up(runs, 0, 1, 2)
    assert runs.handle(MachineLost(0)) == [Replan((0,), (1, 2))]
    assert runs.handle(MachineLost(1)) == []
    assert runs.handle(OrderPlanned({2: (0,)})) == [Replan((0, 1), (2,))]


def test_a_task_that_takes_its_machines_along_is_given_up() -> None:
    runs = machine([(), ()], {0: [0], 1: [1]}, slots=(1, 1, 1, 1), losses=1)
    up(runs, 0, 1, 2, 3)
    assert runs.handle(MachineLost(0)) == [Replan((0,), (1, 2, 3))]
    assert runs.handle(OrderPlanned({2: (0,)})) == [TaskLaunch(0, 2, 2)]
    assert runs.handle(MachineLost(2)) == []
    assert runs.task_states[0] is TaskState.FAILED
    assert runs.handle(AttemptEnded(1, 1, DONE)) == [Finish(ExecutionEnding.FAILED)]


def test_without_machines_it_ends_and_says_so() -> None:
    runs = machine([(), ()], {0: [0, 1]}, slots=(1,))
    up(runs, 0)
    assert runs.handle(MachineLost(0)) == [Finish(ExecutionEnding.MACHINES)]
    assert runs.handle(MachineUp(0)) == []


def test_what_fits_nowhere_ends_it() -> None:
    runs = ExecutionMachine(ExecutionGraph([(), ()], [2, 1], [2, 1]), {0: [0, 1]}, RetryLimits())
    up(runs, 0, 1)
    assert runs.handle(MachineLost(0)) == [Replan((0, 1), (1,))]
    assert runs.handle(PlanFailed()) == [Finish(ExecutionEnding.IMPOSSIBLE)]


def test_an_order_that_waits_for_itself_is_planned_again_once() -> None:
    runs = machine([(), (0,)], {0: [1, 0]}, slots=(1,))
    assert up(runs, 0) == [Replan((0, 1), (0,))]
    assert runs.handle(OrderPlanned({0: (1, 0)})) == [Finish(ExecutionEnding.IMPOSSIBLE)]


def test_an_interruption_starts_nothing_more() -> None:
    runs = machine([(), ()], {0: [0, 1]})
    up(runs, 0)
    assert runs.handle(ExecutionInterrupted()) == [Finish(ExecutionEnding.INTERRUPTED)]
    assert runs.handle(AttemptEnded(0, 1, DONE)) == []


def test_going_on_knows_what_is_finished_and_what_runs() -> None:
    runs = machine([(), (0,), (), (1, 2)], {0: [0, 1, 3], 1: [2]})
    assert runs.handle(ExecutionOpened(frozenset({0}), {2: (1, 1)}, {0: 1, 1: 3, 2: 1})) == []
    assert runs.handle(MachineUp(0)) == [TaskLaunch(1, 0, 4)]
    assert runs.handle(MachineUp(1)) == []
    assert runs.handle(AttemptEnded(2, 1, DONE)) == [Arm(3, 0, 1, (1,))]
    assert runs.handle(AttemptEnded(1, 4, DONE)) == [ArmedTaskBegun(3, 0, 1)]


def test_a_run_whose_tasks_are_all_finished_ends_at_once() -> None:
    assert machine([(), (0,)], {0: [0, 1]}).handle(ExecutionOpened(frozenset({0, 1}))) == [Finish(ExecutionEnding.DONE)]


# ---------------------------------------------------------------- whatever happens


def test_a_machine_with_nothing_left_to_do_is_given_back() -> None:
    order = {0: [0, 2], 1: [1], 2: []}
    runs = ExecutionMachine(ExecutionGraph([(), (), (1,)], [1] * 3, [1, 1, 1]), order, RetryLimits(), give_back=True)
    assert runs.handle(ExecutionOpened()) == [GiveBack(2)]  # before it is even asked for
    assert runs.handle(MachineUp(0)) == [TaskLaunch(0, 0, 1)]
    assert runs.handle(MachineUp(1)) == [TaskLaunch(1, 1, 1)]
    assert runs.handle(MachineUp(2)) == []
    assert runs.handle(AttemptEnded(1, 1, DONE)) == [Arm(2, 0, 1, (0,)), GiveBack(1)]
    assert runs.vm_states == [VmState.UP, VmState.BACK, VmState.BACK]
    assert runs.handle(MachineLost(1)) == []  # its end is no loss
    assert runs.handle(AttemptEnded(0, 1, DONE)) == [ArmedTaskBegun(2, 0, 1)]
    assert runs.handle(AttemptEnded(2, 1, DONE)) == [Finish(ExecutionEnding.DONE)]  # which gives all others back


def test_a_machine_is_asked_for_when_it_is_due() -> None:
    runs = machine([(), (), (0,)], {0: [0, 1], 1: [2]})
    assert runs.handle(ExecutionOpened(later=frozenset({1}))) == []
    assert runs.handle(MachineUp(0)) == [TaskLaunch(0, 0, 1), Arm(1, 0, 1, (0,))]
    assert runs.handle(MachineLost(1)) == []  # it cannot be lost
    assert runs.handle(VmDue(1)) == [Recall(1)]
    assert runs.handle(VmDue(1)) == []
    assert runs.handle(MachineUp(1)) == []
    assert runs.handle(AttemptEnded(0, 1, DONE)) == [ArmedTaskBegun(1, 0, 1), TaskLaunch(2, 1, 1)]


def test_a_machine_is_asked_for_before_it_is_due_when_its_first_task_could_begin() -> None:
    runs = machine([(), (), (0,)], {0: [0, 1], 1: [2]})
    runs.handle(ExecutionOpened(later=frozenset({1})))
    runs.handle(MachineUp(0))
    assert runs.handle(AttemptEnded(0, 1, DONE)) == [ArmedTaskBegun(1, 0, 1), Recall(1)]
    assert runs.handle(VmDue(1)) == []


def test_a_task_without_parents_that_was_planned_late_waits_for_its_machine_until_nothing_else_is_left() -> None:
    runs = machine([(), ()], {0: [0], 1: [1]})
    assert runs.handle(ExecutionOpened(later=frozenset({1}))) == []
    assert runs.handle(MachineUp(0)) == [TaskLaunch(0, 0, 1)]
    assert runs.handle(AttemptEnded(0, 1, DONE)) == [Recall(1)]
    assert runs.handle(MachineUp(1)) == [TaskLaunch(1, 1, 1)]
    assert runs.handle(AttemptEnded(1, 1, DONE)) == [Finish(ExecutionEnding.DONE)]


def test_a_machine_that_comes_later_is_asked_for_when_all_others_are_given_back() -> None:
    graph = ExecutionGraph([()], [1], [1, 1])
    runs = ExecutionMachine(graph, {0: [0]}, RetryLimits(), give_back=True)
    assert runs.handle(ExecutionOpened(later=frozenset({0}))) == [Recall(0), GiveBack(1)]
    assert runs.handle(MachineUp(0)) == [TaskLaunch(0, 0, 1)]


def test_a_machine_that_is_not_there_yet_takes_over_what_another_has_lost() -> None:
    runs = machine([(), (0,)], {0: [0], 1: [1]})
    runs.handle(ExecutionOpened(later=frozenset({1})))
    runs.handle(MachineUp(0))
    assert runs.handle(MachineLost(0)) == [Replan((0, 1), (1,))]
    assert runs.handle(OrderPlanned({1: (0, 1)})) == [Recall(1)]
    assert runs.handle(MachineUp(1)) == [TaskLaunch(0, 1, 2), Arm(1, 1, 1, (0,))]


def test_a_machine_that_was_given_back_is_asked_for_again_when_another_is_lost() -> None:
    runs = ExecutionMachine(ExecutionGraph([(), ()], [1] * 2, [1, 1]), {0: [0], 1: [1]}, RetryLimits(), give_back=True)
    up(runs, 0, 1)
    assert runs.handle(AttemptEnded(1, 1, DONE)) == [GiveBack(1)]
    assert runs.handle(MachineLost(0)) == [Replan((0,), (1,))]
    assert runs.handle(OrderPlanned({1: (0,)})) == [Recall(1)]
    assert runs.handle(MachineUp(1)) == [TaskLaunch(0, 1, 2)]
    assert runs.handle(AttemptEnded(0, 2, DONE)) == [Finish(ExecutionEnding.DONE)]


def test_the_last_try_of_a_task_asks_for_a_machine_that_was_given_back() -> None:
    order = {0: [0], 1: [1]}
    runs = ExecutionMachine(ExecutionGraph([(), ()], [1] * 2, [1, 1]), order, RetryLimits(retries=1), give_back=True)
    up(runs, 0, 1)
    runs.handle(AttemptEnded(1, 1, DONE))
    assert runs.handle(AttemptEnded(0, 1, FAILED)) == [Recall(1), GiveBack(0)]
    assert runs.handle(MachineUp(1)) == [TaskLaunch(0, 1, 2)]


def test_nothing_is_given_back_while_the_rest_is_planned_again() -> None:
    order = {0: [0], 1: [1], 2: [2]}
    runs = ExecutionMachine(ExecutionGraph([()] * 3, [1] * 3, [1] * 3), order, RetryLimits(), give_back=True)
    up(runs, 0, 1, 2)
    assert runs.handle(MachineLost(0)) == [Replan((0,), (1, 2))]
    assert runs.handle(AttemptEnded(1, 1, DONE)) == []
    assert runs.handle(OrderPlanned({2: (0,)})) == [Arm(0, 2, 2, (2,)), GiveBack(1)]


@pytest.mark.slow
@settings(max_examples=share(150), deadline=None)
@given(worlds(troubles=0))
def test_without_trouble_each_task_runs_once_and_in_order(world: World) -> None:
    world.run()
    assert world.ending is ExecutionEnding.DONE
    assert sorted(task for _, task in world.started) == list(range(len(world.graph.parents)))
    for vm, tasks in world.order.items():
        assert [task for where, task in world.started if where == vm] == tasks
    assert not world.recalled
    assert world.given_back < len(world.graph.slots) or not world.gives_back


@pytest.mark.slow
@settings(max_examples=share(250), deadline=None)
@given(worlds(troubles=12))
def test_with_failures_losses_and_crashes_nothing_is_lost_or_done_twice(world: World) -> None:
    world.run()
    assert all(count == 1 for count in world.finished.values())
    steps = world.machine.task_states
    assert [step is TaskState.DONE for step in steps] == [task in world.finished for task in range(len(steps))]
    if world.ending is ExecutionEnding.DONE:
        assert len(world.finished) == len(steps)
    elif world.ending is ExecutionEnding.FAILED:
        for task, step in enumerate(steps):  # only what failed, and what needs it, is not done
            blocked = any(
                steps[parent] in (TaskState.FAILED, TaskState.BLOCKED) for parent in world.graph.parents[task]
            )
            assert step in (TaskState.DONE, TaskState.FAILED) or blocked
    else:
        assert world.lost, world.ending


@pytest.mark.slow
@settings(max_examples=share(100), deadline=None)
@given(worlds(troubles=8))
def test_after_any_trouble_another_session_finishes(world: World) -> None:
    world.run()
    for vm in list(world.nodes):
        world.die(vm)
    world.troubles = 0
    world.run()
    assert world.ending is ExecutionEnding.DONE
    assert sorted(world.finished) == list(range(len(world.graph.parents)))
    assert set(world.finished.values()) <= {1}


@pytest.mark.slow
@pytest.mark.parametrize("vms", [1, 3])
def test_ten_thousand_tasks_cost_little(vms: int) -> None:
    count = 10_000
    order = {vm: list(range(vm, count, vms)) for vm in range(vms)}
    runs = ExecutionMachine(ExecutionGraph([()] * count, [1] * count, [1] * vms), order, RetryLimits())
    pending = [each for vm in range(vms) for each in up(runs, vm)]
    handled = 0
    while runs.ending is None:
        begun = pending.pop(0)
        if isinstance(begun, TaskLaunch | ArmedTaskBegun):
            pending += runs.handle(AttemptEnded(begun.task, 1, DONE))
            handled += 1
    assert handled == count
