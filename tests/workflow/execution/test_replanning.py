"""Tests of planning the rest of a run around its running tasks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import share
from tests.workflow.execution.plans import heft

from tradewind import plugins
from tradewind.errors import WorkflowError
from tradewind.workflow.execution.replanning import ActiveTask, plan_remaining, remaining_workflow
from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.platform import Platform, Vm

FLOW = Workflow("w", (Task("a", "x", 10.0), Task("b", "x", 20.0), Task("c", "y", 5.0)), ((), (), ()))
PLATFORM = Platform((Vm("slow", 1.0), Vm("fast", 2.0)))


@pytest.mark.slow
def test_what_is_left_is_planned_around_what_is_busy() -> None:
    rest = remaining_workflow(FLOW, [1, 2])
    assert [task.id for task in rest.tasks] == ["b", "c"]
    assert rest.parents == ((), ())
    orders, vm, begin, finish = plan_remaining(FLOW, PLATFORM, [1, 2], [0, 1], [ActiveTask(0, 1, 100.0)], heft())
    assert orders == {0: (1, 2)}
    assert list(vm) == [0, 0]
    assert (begin.min(), finish.max()) == (0.0, 25.0)


def long_one() -> Workflow:
    """A long task, a chain that waits for it, and ten short ones."""
    short = tuple(Task(f"i{n}", "a", 100.0) for n in range(10))
    tasks = (Task("long", "a", 1000.0), Task("c", "a", 100.0), Task("d", "a", 100.0), *short)
    return Workflow("w", tasks, ((), (0,), (1,), *(() for _ in short)))


def test_what_waits_for_a_running_task_leaves_its_machine_to_others_until_then() -> None:
    two = Platform((Vm("one"), Vm("two")))
    left = list(range(1, 13))
    orders, _, start, finish = plan_remaining(long_one(), two, left, [0, 1], [ActiveTask(0, 0, 1000.0)], heft())
    assert finish.max() == 1200.0
    assert [start[0], start[1]] == [1000.0, 1100.0]
    assert orders[1].index(1) == 9, "nine short ones fill the time until then"


@pytest.mark.slow
def test_what_waits_for_a_moment_only_is_not_put_behind_the_others() -> None:
    two = Platform((Vm("one"), Vm("two")))
    orders, _, start, _ = plan_remaining(long_one(), two, list(range(1, 13)), [0, 1], [ActiveTask(0, 0, 5.0)], heft())
    assert start[0] == 5.0
    assert min(order.index(1) for order in orders.values() if 1 in order) == 0


def test_what_waits_for_a_task_that_its_machine_will_begin_by_itself() -> None:
    """A machine that comes later has nothing else to do meanwhile; one of two cores has a free one."""
    tasks = tuple(Task(name, "a", 10.0) for name in "abcd")
    flow = Workflow("w", tasks, ((), (0,), (1,), ()))
    active_tasks = [ActiveTask(1, 0, 10.0, frozenset({0})), ActiveTask(0, 0, 4.0)]
    _, vm, start, finish = plan_remaining(flow, Platform((Vm("one", slots=2),)), [2, 3], [0], active_tasks, heft())
    assert (list(vm), list(start), list(finish)) == ([0, 0], [14.0, 0.0], [24.0, 10.0])
    _, vm, start, _ = plan_remaining(flow, Platform((Vm("gone"), Vm("one"))), [2, 3], [1], active_tasks, heft())
    assert (list(vm), start.min()) == ([1, 1], 0.0)  # what is under way on a machine that is gone is none


@pytest.mark.slow
@pytest.mark.parametrize("name", ["heft", "search", "mct", "fcfs", "adaptive", "roundrobin", "ic_pcp"])
def test_what_is_left_is_planned_where_it_fits(name: str) -> None:
    """The large task waits for the one machine that holds it and still runs something; the rest fills the others."""
    gib = 2**30
    tasks = (
        Task("now", "a", 50.0),
        Task("large", "a", 10.0, memory_bytes=16 * gib),
        *(Task(f"s{n}", "a", 10.0) for n in range(4)),
    )
    flow = Workflow("w", tasks, ((),) * 6)
    lost, small = Vm("lost", memory_bytes=64 * gib), Vm("small", 4.0, memory_bytes=2 * gib)
    platform = Platform((lost, small, Vm("large", memory_bytes=32 * gib)))
    planner = plugins.create("planner", name, {"turns": 5} if name == "search" else {})
    _, vm, start, _ = plan_remaining(flow, platform, [1, 2, 3, 4, 5], [1, 2], [ActiveTask(0, 2, 50.0)], planner)
    assert vm[0] == 2
    assert start[0] >= 50.0
    with pytest.raises(
        WorkflowError, match="'large' needs 16 GiB of memory, and no machine has as much: the largest, 'sm"
    ):
        plan_remaining(flow, platform, [1, 2, 3, 4, 5], [1], [], planner)


def test_what_fits_nowhere_cannot_be_planned() -> None:
    wide = Workflow("w", (Task("a", "x", 1.0, cores=4),), ((),))
    with pytest.raises(WorkflowError, match="uses 4 cores"):
        plan_remaining(wide, PLATFORM, [0], [0], [], heft())


@pytest.mark.slow
@settings(max_examples=share(40), deadline=None)
@given(st.data())
def test_nothing_begins_before_what_it_waits_for_has_ended_and_orders_can_be_kept(data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 10))
    parents = tuple(
        tuple(sorted(data.draw(st.sets(st.integers(0, task - 1), max_size=2)))) if task else () for task in range(count)
    )
    runtimes = st.sampled_from((0.0, 1.0, 7.0))
    tasks = tuple(Task(f"t{n}", "a", data.draw(runtimes), cores=1 + n % 2) for n in range(count))
    flow, platform = Workflow("w", tasks, parents), Platform((Vm("one", slots=2), Vm("two", 2.0, slots=3)))
    running = [task for task in range(count) if not parents[task]][:2]
    active_tasks = [
        ActiveTask(task, vm, data.draw(st.sampled_from((0.0, 3.0, 20.0)))) for vm, task in enumerate(running)
    ]
    left = [task for task in range(count) if task not in running]
    if not left:
        return
    orders, vm, start, finish = plan_remaining(flow, platform, left, [0, 1], active_tasks, heft())
    ends = {each.task: each.seconds for each in active_tasks} | dict(zip(left, finish.tolist(), strict=True))
    for task, begin in zip(left, start.tolist(), strict=True):
        assert all(begin >= ends[parent] - 1e-9 for parent in parents[task])
    assert sorted(task for order in orders.values() for task in order) == left
    place = {task: number for number, task in enumerate(left)}
    for where, order in orders.items():
        begins = [float(start[place[task]]) for task in order]
        assert begins == sorted(begins)
        assert {int(vm[place[task]]) for task in order} == {where}
    turns, done = {where: list(order) for where, order in orders.items()}, set(running)
    while any(turns.values()):
        due = [order for order in turns.values() if order and done.issuperset(parents[order[0]])]
        assert due, "the order waits for itself"
        done.add(due[0].pop(0))
    assert np.all(finish >= start)
