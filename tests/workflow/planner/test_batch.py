"""Min-Min, Max-Min, Sufferage and MCT against the few lines that the papers write."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from tests.effort import share
from tests.workflow.simulator.test_reference import platforms, workflows

from tradewind import plugins
from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.planner.base import Online, Planner
from tradewind.workflow.platform import Platform, Vm
from tradewind.workflow.schedule import check
from tradewind.workflow.simulator.reference import SimulationState, simulate

RULES = ("minmin", "maxmin", "sufferage", "mct")


def made(name: str) -> Planner:
    planner: Planner = plugins.create("planner", name, {})
    return planner


def textbook(rule: str, flow: Workflow, platform: Platform) -> tuple[list[int], list[float]]:
    """Machine and end of each task: tasks of one core, a list of free moments for each machine."""
    seconds = platform.seconds(flow)
    free = [[vm.boot_seconds] * vm.slots for vm in platform.vms]
    on, ends = [-1] * len(flow), [0.0] * len(flow)
    while any(vm < 0 for vm in on):
        rated = []
        for task in sorted(range(len(flow)), key=lambda each: int(flow.places[each])):
            if on[task] >= 0 or any(on[parent] < 0 for parent in flow.parents[task]):
                continue
            ready = max((ends[parent] for parent in flow.parents[task]), default=0.0)
            options = sorted((max(ready, min(free[vm])) + seconds[task, vm], vm) for vm in range(len(platform.vms)))
            second = options[1][0] if len(options) > 1 else 1e300
            rated.append((options[0][0], second - options[0][0], task, options[0][1]))
        keys = {"minmin": lambda r: r[0], "maxmin": lambda r: -r[0], "sufferage": lambda r: -r[1], "mct": lambda r: 0}
        end, _, task, vm = min(rated, key=keys[rule])
        free[vm].remove(min(free[vm]))
        free[vm].append(end)
        on[task], ends[task] = vm, end
    return on, ends


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=share(60), deadline=None)
@given(workflows(), platforms())
def test_the_compiled_loop_does_what_the_textbook_says(rule: str, flow: Workflow, platform: Platform) -> None:
    found = made(rule).plan(flow, platform)
    on, ends = textbook(rule, flow, platform)
    assert found.vm.tolist() == on
    # Machines may run a task of the plan earlier than the loop had thought, never later.
    assert all(one <= other + 1e-9 for one, other in zip(found.finish.tolist(), ends, strict=True))


@pytest.mark.slow
def test_each_rule_takes_another_task_first() -> None:
    flow = Workflow("three", (Task("long", "a", 10.0), Task("short", "a", 1.0), Task("middle", "a", 4.0)), ((), (), ()))
    one = Platform((Vm("a"),))
    orders = {rule: made(rule).plan(flow, one).order[0] for rule in RULES}
    assert orders["minmin"] == (1, 2, 0)
    assert orders["maxmin"] == (0, 2, 1)
    assert orders["mct"] == (0, 1, 2)


@pytest.mark.parametrize("rule", RULES)
def test_a_run_is_decided_anew_when_it_goes_otherwise(rule: str) -> None:
    """A machine that comes up late gets nothing that another can do before."""
    planner = made(rule)
    assert isinstance(planner, Online)
    platform = Platform((Vm("there"), Vm("late", 10.0, boot_seconds=1000.0)))
    flow = Workflow("few", tuple(Task(str(i), "a", 5.0) for i in range(4)), ((),) * 4)
    real = simulate(flow, platform, planner.director(flow, platform))
    check(flow, platform, real)
    assert real.makespan == 20.0 and set(real.vm.tolist()) == {0}


@pytest.mark.parametrize("rule", RULES)
def test_what_ends_at_the_moment_it_began_lets_others_begin(rule: str) -> None:
    planner = made(rule)
    assert isinstance(planner, Online)
    flow = Workflow("none", (Task("a", "t", 0.0), Task("b", "t", 1.0), Task("c", "t", 0.0)), ((), (), ()))
    platform = Platform((Vm("one"),))
    real = simulate(flow, platform, planner.director(flow, platform))
    check(flow, platform, real)
    assert real.makespan == 1.0


@pytest.mark.parametrize("rule", RULES)
def test_tasks_without_run_times_take_every_free_slot_once(rule: str) -> None:
    planner = made(rule)
    assert isinstance(planner, Online)
    flow = Workflow("bare", tuple(Task(str(n), "t", 0.0) for n in range(5)), ((),) * 5)
    platform = Platform((Vm("two", slots=2), Vm("one")))
    director, ready = planner.director(flow, platform), list(range(5))
    state = SimulationState(flow, platform, 0.0, [2, 1], [set(), set()], [-1] * 5)
    placed = []
    while (picked := director.pick(ready, state)) is not None:
        task, vm = picked
        assert state.fits(task, vm)
        ready.remove(task)
        state.free[vm] -= 1
        state.vm[task] = vm
        placed.append(vm)
    assert sorted(placed) == [0, 0, 1]
    assert state.free == [0, 0]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["heft", "minmin", "peft"])
def test_local_files_are_planned_for(name: str) -> None:
    """A child stays where its large file is, although another machine is free and a little faster."""
    tasks = (Task("make", "a", 10.0, (), ("big",)), Task("read", "a", 10.0, ("big",)))
    flow = Workflow("pair", tasks, ((), (0,)), {"big": 1_000_000_000})
    two = Platform((Vm("a", 1.0), Vm("b", 1.1)), "local", 10.0)
    found = made(name).plan(flow, two)
    assert found.vm[0] == found.vm[1]
    free = made(name).plan(flow, replace(two, storage="none"))
    assert free.makespan <= found.makespan
