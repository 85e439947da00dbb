"""The state machine of a plan that is carried out: whatever happens, nothing is lost and nothing is done twice."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tradewind.workflow.execution.events import (
    Ended,
    Ending,
    Event,
    Finish,
    Instruction,
    Interrupted,
    Launch,
    MachineLost,
    MachineUp,
    Opened,
    Outcome,
    PlanFailed,
    Planned,
    Replan,
)
from tradewind.workflow.execution.state import ExecutionMachine, Graph, Patience, Presence, Step

DONE, FAILED, LOST = Outcome.DONE, Outcome.FAILED, Outcome.LOST


def machine(
    parents: list[tuple[int, ...]], order: dict[int, list[int]], slots: tuple[int, ...] = (1, 1), **patience: int
) -> ExecutionMachine:
    return ExecutionMachine(Graph(parents, [1] * len(parents), slots), order, Patience(**patience))


def up(target: ExecutionMachine, *vms: int) -> list[Instruction]:
    target.handle(Opened())
    return [each for vm in vms for each in target.handle(MachineUp(vm))]


def test_a_task_begins_when_its_parents_have_ended_and_it_is_its_turn() -> None:
    runs = machine([(), (0,), (), (1,)], {0: [0, 3], 1: [2, 1]})
    assert up(runs, 0) == [Launch(0, 0, 1)]
    assert runs.handle(MachineUp(1)) == [Launch(2, 1, 1)]
    assert runs.handle(Ended(0, 1, DONE)) == []  # 3 is next here, and waits for 1, which waits for its turn
    assert runs.handle(Ended(2, 1, DONE)) == [Launch(1, 1, 1)]
    assert runs.handle(Ended(1, 1, DONE)) == [Launch(3, 0, 1)]
    assert runs.handle(Ended(3, 1, DONE)) == [Finish(Ending.DONE)]


def test_the_order_is_kept_although_another_task_could_begin() -> None:
    runs = machine([(), (0,), ()], {0: [1, 2], 1: [0]})
    assert up(runs, 0) == []
    assert runs.handle(MachineUp(1)) == [Launch(0, 1, 1)]
    assert runs.handle(Ended(0, 1, DONE)) == [Launch(1, 0, 1)]
    assert runs.handle(Ended(1, 1, DONE)) == [Launch(2, 0, 1)]


def test_slots_and_cores() -> None:
    runs = ExecutionMachine(Graph([(), (), (), ()], [1, 2, 1, 1], [3]), {0: [0, 1, 2, 3]}, Patience())
    assert up(runs, 0) == [Launch(0, 0, 1), Launch(1, 0, 1)]
    assert runs.handle(Ended(1, 1, DONE)) == [Launch(2, 0, 1), Launch(3, 0, 1)]


def test_a_failure_is_tried_again_and_the_last_time_elsewhere() -> None:
    runs = machine([(), (), ()], {0: [0, 2], 1: [1]}, retries=2)
    up(runs, 0, 1)
    assert runs.handle(Ended(0, 1, FAILED)) == [Launch(0, 0, 2)]  # before what comes after it
    assert runs.handle(Ended(0, 2, FAILED)) == [Launch(2, 0, 1)]
    assert runs.handle(Ended(1, 1, DONE)) == [Launch(0, 1, 3)]
    assert runs.handle(Ended(0, 3, DONE)) == []
    assert runs.handle(Ended(2, 1, DONE)) == [Finish(Ending.DONE)]


def test_what_needs_a_failed_task_is_left_out_and_the_rest_is_planned_again() -> None:
    runs = machine([(), (0,), (1,), (), ()], {0: [0, 1, 2], 1: [3, 4]}, retries=0)
    up(runs, 0, 1)
    assert runs.handle(Ended(0, 1, FAILED)) == [Replan((4,), (0, 1))]
    assert [runs.steps[task] for task in (0, 1, 2)] == [Step.FAILED, Step.BLOCKED, Step.BLOCKED]
    assert runs.handle(Planned({0: (4,)})) == [Launch(4, 0, 1)]
    runs.handle(Ended(3, 1, DONE))
    assert runs.handle(Ended(4, 1, DONE)) == [Finish(Ending.FAILED)]


def test_a_lost_machine_gives_its_tasks_to_the_others() -> None:
    runs = machine([(), (), (), (0,)], {0: [0, 2], 1: [1, 3]})
    up(runs, 0, 1)
    assert runs.handle(MachineLost(0)) == [Replan((0, 2, 3), (1,))]
    assert runs.handle(Ended(0, 1, DONE)) == []  # too late: it has been given up
    assert runs.handle(Ended(1, 1, DONE)) == []  # nothing of the old order is left but 3, which waits
    assert runs.handle(Planned({1: (0, 2, 3)})) == [Launch(0, 1, 2)]
    assert runs.attempts == [2, 1, 0, 0]


def test_what_is_lost_while_the_rest_is_planned_is_planned_at_once_too() -> None:
    runs = machine([(), (), ()], {0: [0], 1: [1], 2: [2]}, slots=(1, 1, 1))
    up(runs, 0, 1, 2)
    assert runs.handle(MachineLost(0)) == [Replan((0,), (1, 2))]
    assert runs.handle(MachineLost(1)) == []
    assert runs.handle(Planned({2: (0,)})) == [Replan((0, 1), (2,))]


def test_a_task_that_takes_its_machines_along_is_given_up() -> None:
    runs = machine([(), ()], {0: [0], 1: [1]}, slots=(1, 1, 1, 1), losses=1)
    up(runs, 0, 1, 2, 3)
    assert runs.handle(MachineLost(0)) == [Replan((0,), (1, 2, 3))]
    assert runs.handle(Planned({2: (0,)})) == [Launch(0, 2, 2)]
    assert runs.handle(MachineLost(2)) == []
    assert runs.steps[0] is Step.FAILED
    assert runs.handle(Ended(1, 1, DONE)) == [Finish(Ending.FAILED)]


def test_without_machines_it_ends_and_says_so() -> None:
    runs = machine([(), ()], {0: [0, 1]}, slots=(1,))
    up(runs, 0)
    assert runs.handle(MachineLost(0)) == [Finish(Ending.MACHINES)]
    assert runs.handle(MachineUp(0)) == []


def test_what_fits_nowhere_ends_it() -> None:
    runs = ExecutionMachine(Graph([(), ()], [2, 1], [2, 1]), {0: [0, 1]}, Patience())
    up(runs, 0, 1)
    assert runs.handle(MachineLost(0)) == [Replan((0, 1), (1,))]
    assert runs.handle(PlanFailed()) == [Finish(Ending.IMPOSSIBLE)]


def test_an_order_that_waits_for_itself_is_planned_again_once() -> None:
    runs = machine([(), (0,)], {0: [1, 0]}, slots=(1,))
    assert up(runs, 0) == [Replan((0, 1), (0,))]
    assert runs.handle(Planned({0: (1, 0)})) == [Finish(Ending.IMPOSSIBLE)]


def test_an_interruption_starts_nothing_more() -> None:
    runs = machine([(), ()], {0: [0, 1]})
    up(runs, 0)
    assert runs.handle(Interrupted()) == [Finish(Ending.INTERRUPTED)]
    assert runs.handle(Ended(0, 1, DONE)) == []


def test_going_on_knows_what_is_finished_and_what_runs() -> None:
    runs = machine([(), (0,), (), (1, 2)], {0: [0, 1, 3], 1: [2]})
    assert runs.handle(Opened(frozenset({0}), {2: (1, 1)}, {0: 1, 1: 3, 2: 1})) == []
    assert runs.handle(MachineUp(0)) == [Launch(1, 0, 4)]
    assert runs.handle(MachineUp(1)) == []
    assert runs.handle(Ended(2, 1, DONE)) == []
    assert runs.handle(Ended(1, 4, DONE)) == [Launch(3, 0, 1)]


def test_a_run_whose_tasks_are_all_finished_ends_at_once() -> None:
    assert machine([(), (0,)], {0: [0, 1]}).handle(Opened(frozenset({0, 1}))) == [Finish(Ending.DONE)]


# ---------------------------------------------------------------- whatever happens


@dataclass
class World:
    """Carries out the instructions of a state machine, badly; and keeps account."""

    graph: Graph
    order: dict[int, list[int]]
    patience: Patience
    chance: random.Random
    troubles: int
    crash: bool = True
    finished: Counter[int] = field(default_factory=Counter)
    attempts: Counter[int] = field(default_factory=Counter)
    running: dict[int, tuple[int, int]] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)
    plans: list[Replan] = field(default_factory=list)
    started: list[Launch] = field(default_factory=list)
    ending: Ending | None = None
    replanned: bool = False
    late: list[Ended] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.machine = self._made()

    def _made(self) -> ExecutionMachine:
        return ExecutionMachine(self.graph, self.order, self.patience)

    def run(self, first: Opened | None = None) -> None:
        self._do(first or Opened())
        for _ in range(10_000):
            if self.ending is not None:
                return
            self._step()
        raise AssertionError("it does not end")

    def _step(self) -> None:
        choices: list[Event | str] = [
            MachineUp(vm) for vm, there in enumerate(self.machine.presence) if there is Presence.COMING
        ]
        choices += [Ended(task, attempt, DONE) for task, (_, attempt) in self.running.items()]
        choices += ["plan"] if self.plans else []
        if self.troubles and self.chance.random() < 0.4:
            self.troubles -= 1
            troubles: list[Event | str] = [
                Ended(task, attempt, self.chance.choice((FAILED, LOST))) for task, (_, attempt) in self.running.items()
            ]
            troubles += [MachineLost(vm) for vm in range(len(self.graph.slots)) if vm not in self.lost]
            troubles += ["crash"] if self.crash else []
            troubles += self.late  # a machine that was given up speaks after all
            choices = troubles or choices
        assert choices, "nothing is under way, and it does not end"
        chosen = self.chance.choice(choices)
        if isinstance(chosen, str):
            self._crash() if chosen == "crash" else self._plan()
        else:
            self._do(chosen)

    def _plan(self) -> None:
        """Any order that does not wait for itself will do: parents come before children."""
        asked = self.plans.pop()
        fits = {
            task: [vm for vm in asked.vms if self.graph.slots[vm] >= self.graph.cores[task]] for task in asked.tasks
        }
        if not all(fits.values()):
            self._do(PlanFailed())
            return
        order: dict[int, list[int]] = {}
        for task in asked.tasks:
            order.setdefault(self.chance.choice(fits[task]), []).append(task)
        self.replanned = True
        self._do(Planned({vm: tuple(tasks) for vm, tasks in order.items()}))

    def _crash(self) -> None:
        """The controller is killed; another one finds what was written down, and the machines that are still there."""
        self.plans.clear()
        alive = {task: place for task, place in self.running.items() if self.chance.random() < 0.5}
        self.running = alive
        self.lost = set()
        self.machine = self._made()
        self._do(Opened(frozenset(self.finished), dict(alive), dict(self.attempts), self.replanned))

    def _do(self, event: Event) -> None:
        if isinstance(event, Ended) and self.running.get(event.task, (0, 0))[1] == event.attempt:
            del self.running[event.task]
            if event.outcome is DONE:
                self.finished[event.task] += 1
        if isinstance(event, MachineLost):
            self.lost.add(event.vm)
            self.late += [Ended(task, n, DONE) for task, (vm, n) in self.running.items() if vm == event.vm]
            self.running = {task: place for task, place in self.running.items() if place[0] != event.vm}
        for instruction in self.machine.handle(event):
            match instruction:
                case Launch():
                    self._launch(instruction)
                case Replan():
                    self.plans.append(instruction)
                case Finish(ending):
                    self.ending = ending

    def _launch(self, launch: Launch) -> None:
        task, vm = launch.task, launch.vm
        assert task not in self.finished, "a finished task is run again"
        assert task not in self.running, "a task runs twice"
        assert all(parent in self.finished for parent in self.graph.parents[task]), "a parent has not ended"
        assert vm not in self.lost, "the machine is gone"
        self.attempts[task] += 1
        assert launch.attempt == self.attempts[task]
        self.running[task] = (vm, launch.attempt)
        used = sum(self.graph.cores[other] for other, (where, _) in self.running.items() if where == vm)
        assert used <= self.graph.slots[vm], "more runs than there are slots"
        self.started.append(launch)


@st.composite
def worlds(draw: st.DrawFn, troubles: int) -> World:
    count = draw(st.integers(1, 12))
    parents = [
        tuple(sorted(draw(st.sets(st.integers(0, task - 1), max_size=3)))) if task else () for task in range(count)
    ]
    slots = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    cores = [draw(st.integers(1, max(slots))) for _ in range(count)]
    order: dict[int, list[int]] = {}
    for task in range(count):
        order.setdefault(draw(st.sampled_from([vm for vm, n in enumerate(slots) if n >= cores[task]])), []).append(task)
    return World(
        Graph(parents, cores, slots),
        order,
        Patience(retries=draw(st.integers(0, 2)), losses=draw(st.integers(0, 2))),
        random.Random(draw(st.integers(0, 2**32))),
        troubles=draw(st.integers(0, troubles)),
    )


@settings(max_examples=150, deadline=None)
@given(worlds(troubles=0))
def test_without_trouble_each_task_runs_once_and_in_order(world: World) -> None:
    world.run()
    assert world.ending is Ending.DONE
    assert sorted(launch.task for launch in world.started) == list(range(len(world.graph.parents)))
    for vm, tasks in world.order.items():
        assert [launch.task for launch in world.started if launch.vm == vm] == tasks


@settings(max_examples=250, deadline=None)
@given(worlds(troubles=12))
def test_with_failures_losses_and_crashes_nothing_is_lost_or_done_twice(world: World) -> None:
    world.run()
    assert all(count == 1 for count in world.finished.values())
    steps = world.machine.steps
    assert [step is Step.DONE for step in steps] == [task in world.finished for task in range(len(steps))]
    if world.ending is Ending.DONE:
        assert len(world.finished) == len(steps)
    elif world.ending is Ending.FAILED:
        for task, step in enumerate(steps):  # only what failed, and what needs it, is not done
            blocked = any(steps[parent] in (Step.FAILED, Step.BLOCKED) for parent in world.graph.parents[task])
            assert step in (Step.DONE, Step.FAILED) or blocked
    else:
        assert world.lost, world.ending


@settings(max_examples=100, deadline=None)
@given(worlds(troubles=8))
def test_after_any_trouble_another_session_finishes(world: World) -> None:
    world.run()
    finished, attempts = frozenset(world.finished), dict(world.attempts)
    after = World(world.graph, world.order, world.patience, world.chance, troubles=0)
    after.finished.update(finished)
    after.attempts.update(attempts)
    after.run(Opened(finished, {}, attempts, world.replanned))
    assert after.ending is Ending.DONE
    assert sorted(after.finished) == list(range(len(world.graph.parents)))
    assert set(after.finished.values()) <= {1}


@pytest.mark.parametrize("vms", [1, 3])
def test_ten_thousand_tasks_cost_little(vms: int) -> None:
    count = 10_000
    order = {vm: list(range(vm, count, vms)) for vm in range(vms)}
    runs = ExecutionMachine(Graph([()] * count, [1] * count, [1] * vms), order, Patience())
    pending = [each for vm in range(vms) for each in up(runs, vm)]
    handled = 0
    while runs.ending is None:
        launch = pending.pop()
        assert isinstance(launch, Launch)
        pending += [each for each in runs.handle(Ended(launch.task, 1, DONE)) if isinstance(each, Launch)]
        handled += 1
    assert handled == count
