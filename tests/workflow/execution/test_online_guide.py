"""Somebody decides during a run where tasks go: the guide learns of every end, and nothing is lost or done twice."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from tests.effort import share
from tests.workflow.execution.plans import QUICK, agents, chunks, counted, flow_of, heft, local, plan_of, sh
from tests.workflow.execution.world import World, worlds

from tradewind import plugins
from tradewind.errors import PluginError, WorkflowError
from tradewind.workflow.execution.events import (
    AttemptEnded,
    AttemptOutcome,
    ExecutionEnding,
    ExecutionOpened,
    GuideReady,
    MachineUp,
    PlanFailed,
    TaskLaunch,
)
from tradewind.workflow.execution.options import ExecutionOptions, ExecutionProgress
from tradewind.workflow.execution.plan_run import ExecutionResult, execute_plan
from tradewind.workflow.execution.replanning import DirectorGuide, guide_for
from tradewind.workflow.execution.state_machine import ExecutionMachine
from tradewind.workflow.execution.task_states import ExecutionGraph, RetryLimits, TaskState
from tradewind.workflow.files import Plan
from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.planner.heft import HeftPlanner
from tradewind.workflow.platform import Platform, Vm
from tradewind.workflow.simulator.reference import Director, SimulationState

ONLINE = ("adaptive", "fcfs", "maxmin", "mct", "minmin", "q_learning", "sufferage")


# ---------------------------------------------------------------- whatever happens


@dataclass
class ByChance:
    """Starts any task that fits anywhere, or waits although one would, as long as something runs."""

    vms: tuple[int, ...]
    graph: ExecutionGraph
    chance: random.Random
    running: set[int] = field(default_factory=set)

    def pick(
        self, ready: Sequence[int], free: Sequence[int], spare: Sequence[Sequence[int]] = ()
    ) -> tuple[int, int] | None:
        choices = [(task, vm) for task in ready for vm in self.vms if free[vm] >= self.graph.cores[task]]
        if not choices or (self.running and self.chance.random() < 0.3):
            return None
        chosen = self.chance.choice(choices)
        self.running.add(chosen[0])
        return chosen

    def ended(self, task: int, vm: int, *, failed: bool) -> None:
        self.running.discard(task)


class GuidedWorld(World):
    """As the world of a plan, but whoever decides is asked."""

    def made(self) -> ExecutionMachine:
        guide = ByChance(tuple(range(len(self.graph.slots))), self.graph, self.chance)
        return ExecutionMachine(self.graph, {}, self.retry_limits, guide)

    def plan(self) -> None:
        asked = self.plans.pop()
        most = max(self.graph.slots[vm] for vm in asked.vms)
        if any(self.graph.cores[task] > most for task in asked.tasks):
            self.handle(PlanFailed())
            return
        running = set(self.machine.places)
        assert running <= set(asked.tasks), "what runs may have to be run again"
        self.record({"e": "plan"})
        self.handle(GuideReady(ByChance(asked.vms, self.graph, self.chance, running)))


def guided(world: World) -> GuidedWorld:
    return GuidedWorld(world.graph, {}, world.retry_limits, world.chance, world.troubles)


@pytest.mark.slow
@settings(max_examples=share(100), deadline=None)
@given(worlds(troubles=0))
def test_without_trouble_each_task_runs_once(plain: World) -> None:
    world = guided(plain)
    world.run()
    assert world.ending is ExecutionEnding.DONE
    assert sorted(task for _, task in world.started) == list(range(len(world.graph.parents)))
    assert world.arms == 0


@pytest.mark.slow
@settings(max_examples=share(250), deadline=None)
@given(worlds(troubles=12))
def test_with_failures_losses_and_crashes_nothing_is_lost_or_done_twice(plain: World) -> None:
    world = guided(plain)
    world.run()
    assert all(count == 1 for count in world.finished.values())
    steps = world.machine.task_states
    assert [step is TaskState.DONE for step in steps] == [task in world.finished for task in range(len(steps))]
    if world.ending is ExecutionEnding.DONE:
        assert len(world.finished) == len(steps)
    elif world.ending is ExecutionEnding.FAILED:
        for task, step in enumerate(steps):
            blocked = any(
                steps[parent] in (TaskState.FAILED, TaskState.BLOCKED) for parent in world.graph.parents[task]
            )
            assert step in (TaskState.DONE, TaskState.FAILED) or blocked
    else:
        assert world.lost, world.ending


class DirectedWorld(GuidedWorld):
    """As that one, but a planner of the package decides."""

    planner = ""

    def made(self) -> ExecutionMachine:
        self.time = 0.0
        flow = replace(self.flow, tasks=tuple(
            replace(task, runtime=self.chance.choice((0.0, 1.0, 5.0)), cores=cores)
            for task, cores in zip(self.flow.tasks, self.graph.cores, strict=True)
        ))  # fmt: skip
        self.directed = flow, Platform(tuple(Vm(f"m{vm}", slots=count) for vm, count in enumerate(self.graph.slots)))
        guide = self.director(range(len(flow)), range(len(self.graph.slots)))
        return ExecutionMachine(self.graph, {}, self.retry_limits, guide)

    def director(self, tasks: Sequence[int], vms: Sequence[int]) -> DirectorGuide:
        flow, platform = self.directed
        return guide_for(flow, platform, tasks, vms, plugins.create("planner", self.planner, {}), self.now, booted=True)

    def now(self) -> float:
        self.time += self.chance.choice((0.0, 0.0, 0.3, 1.0))
        return self.time

    def plan(self) -> None:
        asked = self.plans.pop()
        try:
            guide = self.director(asked.tasks, asked.vms)
        except WorkflowError:
            self.handle(PlanFailed())
            return
        self.record({"e": "plan"})
        self.handle(GuideReady(guide))


@pytest.mark.slow
@pytest.mark.parametrize("planner", [name for name in ONLINE if name != "q_learning"])  # it takes a second to learn
def test_each_of_them_bears_failures_losses_and_crashes(planner: str) -> None:
    @settings(max_examples=share(40), deadline=None)
    @given(worlds(troubles=12))
    def bears(plain: World) -> None:
        world = DirectedWorld(plain.graph, {}, plain.retry_limits, plain.chance, plain.troubles)
        world.planner = planner
        world.run()
        assert all(count == 1 for count in world.finished.values())

    bears()


@pytest.mark.slow
@pytest.mark.parametrize("planner", ["maxmin", "mct", "minmin", "sufferage"])
def test_a_task_that_failed_for_good_occupies_no_core_for_who_decides(planner: str) -> None:
    flow, platform = Workflow("w", (Task("bad", "a", 9.0), Task("good", "a", 1.0)), ((), ())), Platform((Vm("one"),))
    guide = guide_for(flow, platform, (0, 1), (0,), plugins.create("planner", planner, {}), lambda: 0.0, booted=True)
    assert guide.pick([0], [1]) == (0, 0)
    guide.ended(0, 0, failed=True)
    assert guide.pick([1], [1]) == (1, 0)


def test_the_last_attempt_is_on_another_machine_whatever_is_decided() -> None:
    graph = ExecutionGraph([()], [1], [1, 1])
    chance = random.Random(1)
    runs = ExecutionMachine(graph, {}, RetryLimits(retries=1), ByChance((0, 1), graph, chance))
    runs.handle(ExecutionOpened())
    first = [*runs.handle(MachineUp(0)), *runs.handle(MachineUp(1))]
    assert [type(each) for each in first] == [TaskLaunch]
    assert isinstance(first[0], TaskLaunch)
    [again] = runs.handle(AttemptEnded(0, 1, AttemptOutcome.FAILED))
    assert isinstance(again, TaskLaunch)
    assert again.vm != first[0].vm


def test_who_decides_what_cannot_be_is_refused() -> None:
    class Wrong(ByChance):
        def pick(
            self, ready: Sequence[int], free: Sequence[int], spare: Sequence[Sequence[int]] = ()
        ) -> tuple[int, int] | None:
            return ready[0], 1

    graph = ExecutionGraph([()], [1], [1, 0])
    runs = ExecutionMachine(graph, {}, RetryLimits(), Wrong((0, 1), graph, random.Random(1)))
    with pytest.raises(WorkflowError, match="cannot start it now"):
        runs.handle(MachineUp(0))


# ---------------------------------------------------------------- what a director learns


class Notes(Director):
    """Writes down the ends that it learns of; takes the first task that fits, on the last machine."""

    def __init__(self) -> None:
        self.ends: list[tuple[Any, ...]] = []
        self.moments: list[float] = []

    def pick(self, ready: Sequence[int], state: SimulationState) -> tuple[int, int] | None:
        self.moments.append(state.now)
        choices = ((task, vm) for task in ready for vm in reversed(range(len(state.free))) if state.fits(task, vm))
        return next(choices, None)

    def ended(self, task: int, vm: int, begin: float, now: float, failed: bool) -> None:
        self.ends.append((task, vm, begin, now, failed))


def test_a_director_over_the_rest_is_told_its_own_numbers_and_the_plans_time() -> None:
    tasks = tuple(Task(name, "a", 5.0, (), (f"{name}.out",)) for name in "abcd")
    flow = Workflow("w", tasks, ((), (0,), (0,), (1, 2)))
    platform = Platform((Vm("one"), Vm("two"), Vm("three")), storage="local")
    now = [10.0]
    notes = Notes()
    rest = Workflow("w", tasks[1:], ((), (), (0, 1)))
    left = Platform(platform.vms[1:], storage="local")
    guide = DirectorGuide(notes, rest, left, (1, 2, 3), (1, 2), lambda: now[0])
    assert guide.pick([1, 2], [0, 1, 1]) == (1, 2)
    now[0] = 11.0
    assert guide.pick([2], [0, 1, 0]) == (2, 1)
    assert guide.pick([], [0, 0, 0]) is None
    assert notes.moments == [10.0, 10.0, 10.0], "what is decided at once is decided at one moment"
    now[0] = 17.0
    guide.ended(1, 2, failed=False)
    guide.ended(0, 0, failed=True)  # it began before this director
    guide.ended(2, 1, failed=True)
    assert notes.ends == [(0, 1, 10.0, 17.0, False), (1, 0, 10.0, 17.0, True)]
    assert guide.pick([2], [0, 1, 1]) == (2, 2)
    assert notes.moments[-1] == 17.0
    assert flow.parents[3] == (1, 2)


def test_a_planner_that_plans_beforehand_is_refused() -> None:
    flow = Workflow("w", (Task("a", "a", 1.0),), ((),))
    with pytest.raises(PluginError, match="heft does not decide during a run"):
        guide_for(flow, Platform((Vm("one"),)), (0,), (0,), heft(), lambda: 0.0, booted=False)
    assert HeftPlanner.name == "heft"


# ---------------------------------------------------------------- carried out


def online(plan: Plan, folder: Path, planner: str, *, watch: Any = None, **more: Any) -> ExecutionResult:
    options = ExecutionOptions(inputs=folder.parent, online=True, **more)
    who = plugins.create("planner", planner, {})
    given = {"watch": watch} if watch is not None else {}
    return execute_plan(plan, folder, local(folder), options=options, planner=who, terms=QUICK, **given)


@pytest.mark.slow
@pytest.mark.parametrize("planner", ONLINE)
def test_each_of_them_carries_out_a_workflow(planner: str, tmp_path: Path) -> None:
    carried = online(plan_of(flow_of(*chunks(6, 0.05)), vms=3), tmp_path / "run", planner)
    assert carried.ending is ExecutionEnding.DONE
    assert set(counted(tmp_path / "run").values()) == {1}
    assert len(counted(tmp_path / "run")) == 7
    assert not agents(tmp_path / "run")


def test_all_planners_that_decide_are_tried_here() -> None:
    named = [name for name, part in plugins.load_all("planner").items() if "Online" in part.capabilities()]
    assert sorted(named) == sorted(ONLINE)


@pytest.mark.slow
def test_what_fails_is_run_again_and_what_needs_it_is_left_out(tmp_path: Path) -> None:
    script = "echo x >> tries; test $(wc -l < tries) -ge 2 && touch done"
    carried = online(plan_of(flow_of(sh("shaky", script, writes="done"))), tmp_path / "one" / "run", "mct")
    assert carried.ending is ExecutionEnding.DONE
    assert carried.results["tasks"][0]["attempts"] == 2
    flow = flow_of(sh("bad", "exit 3", writes="a"), sh("child", "touch b", after="a", writes="b"), sh("other", "true"))
    failed = online(plan_of(flow), tmp_path / "two" / "run", "adaptive")
    assert failed.ending is ExecutionEnding.FAILED
    assert failed.failures == {"bad": "it exited with code 3"}


def slow_machines(count: int) -> Plan:
    """Half of the machines are five times as slow as the plan says; tasks find out by the name of theirs."""
    script = "case $TRADEWIND_MACHINE in vm-1|vm-2) sleep 1;; *) sleep 0.2;; esac"
    return plan_of(flow_of(*(sh(f"t{n}", script, runtime=0.2, activity="a") for n in range(count))), vms=4)


@pytest.mark.thorough
@pytest.mark.slow
def test_machines_that_are_slower_than_stated_get_less_to_do(tmp_path: Path) -> None:
    plan = slow_machines(24)
    options = ExecutionOptions(inputs=tmp_path)
    folder = tmp_path / "followed" / "run"
    followed = execute_plan(plan, folder, local(folder), options=options, planner=heft(), terms=QUICK)
    carried = online(plan, tmp_path / "online" / "run", "adaptive")
    on_slow = [sum(row["vm"] in ("vm-1", "vm-2") for row in each.results["tasks"]) for each in (followed, carried)]
    assert on_slow[0] == 12
    assert on_slow[1] <= 8
    assert carried.results["actual"]["makespan"] < 0.7 * followed.results["actual"]["makespan"]


@pytest.mark.slow
def test_a_machine_that_is_lost_loses_nothing(tmp_path: Path) -> None:
    killed: list[int] = []

    def watch(seen: ExecutionProgress) -> None:
        if not killed and seen.done >= 2:
            victim = agents(tmp_path / "run")[0]
            victim.kill()
            killed.append(victim.pid)

    plan = plan_of(flow_of(*chunks(12, 0.4)), vms=3)
    carried = online(plan, tmp_path / "run", "adaptive", watch=watch)
    assert killed
    assert carried.ending is ExecutionEnding.DONE
    assert len(carried.results["machines_lost"]) == 1
    assert len((tmp_path / "run/files/total").read_text().split()) == 12


def test_who_decides_may_not_place_a_task_where_it_does_not_fit() -> None:
    graph = ExecutionGraph([()], [1], [1, 1], [[False, True]])

    @dataclass
    class Careless:
        vms: tuple[int, ...] = (0, 1)

        def pick(
            self, ready: Sequence[int], free: Sequence[int], spare: Sequence[Sequence[int]] = ()
        ) -> tuple[int, int] | None:
            return (ready[0], 0) if free[0] else None

        def ended(self, task: int, vm: int, *, failed: bool) -> None: ...

    runs = ExecutionMachine(graph, {}, RetryLimits(), Careless())
    runs.handle(ExecutionOpened())
    with pytest.raises(WorkflowError, match="task 0 on machine 0, which cannot start it now"):
        runs.handle(MachineUp(0))
