"""A world for the state machine of a run: machines that obey their orders, a journal, and troubles of all kinds."""

from __future__ import annotations

import random
from collections import Counter, deque
from dataclasses import dataclass, field, replace
from typing import Any, cast

from hypothesis import strategies as st

from tradewind.workflow.execution.events import (
    Arm,
    ArmedTaskBegun,
    AttemptEnded,
    AttemptOutcome,
    ExecutionEnding,
    ExecutionEvent,
    ExecutionInstruction,
    Finish,
    GiveBack,
    MachineLost,
    MachineSilent,
    MachineUp,
    OrderPlanned,
    PlanFailed,
    Recall,
    Replan,
    TaskLaunch,
    VmDue,
)
from tradewind.workflow.execution.journal import RunHistory, attempt_key, end_record, start_record
from tradewind.workflow.execution.recovery import recover
from tradewind.workflow.execution.run_folder import WorkflowRunFolder
from tradewind.workflow.execution.state_machine import ExecutionMachine
from tradewind.workflow.execution.task_states import ExecutionGraph, RetryLimits, VmState
from tradewind.workflow.graph import Task, Workflow

DONE, FAILED, LOST = AttemptOutcome.DONE, AttemptOutcome.FAILED, AttemptOutcome.LOST

Try = tuple[int, int]
"""A task, and which attempt at it."""


class KilledError(Exception):
    """The controller has been killed."""


@dataclass
class Node:
    """Simulated agent of a machine; see `tradewind.workflow.execution.agent`."""

    vm: int
    pilot: int
    world: World
    running: set[Try] = field(default_factory=set)
    armed: dict[Try, set[Try]] = field(default_factory=dict)
    ended: dict[Try, AttemptOutcome] = field(default_factory=dict)
    said: deque[tuple[Try, AttemptOutcome]] = field(default_factory=deque)

    def order(self, one: Try, after: set[Try]) -> None:
        if one in self.ended:
            self.said.append((one, self.ended[one]))
        elif one not in self.running:
            self.armed.pop(one, None)
            left = {other for other in after if self.ended.get(other) is not DONE}
            if not left:
                self.begin(one)
            elif left <= self.running:
                self.armed[one] = left

    def begin(self, one: Try) -> None:
        self.running.add(one)
        self.world.see(self, one)

    def end(self, one: Try, outcome: AttemptOutcome) -> None:
        self.running.remove(one)
        self.ended[one] = outcome
        for other, after in list(self.armed.items()):
            if one in after:
                after.remove(one)
                if outcome is not DONE or not after:
                    del self.armed[other]
                    if outcome is DONE:
                        self.begin(other)
        self.said.append((one, outcome))


@dataclass
class Notes:
    """Simulated run folder, with the ends that machines have left there."""

    ends: dict[Try, AttemptOutcome] = field(default_factory=dict)
    begun: set[Try] = field(default_factory=set)

    @property
    def path(self) -> Notes:
        return self

    def attempt(self, task: str, attempt: int) -> Try:
        return int(task[1:]), attempt

    def __truediv__(self, one: Try) -> Any:
        class Place:
            exists = staticmethod(lambda: one in self.begun)

        return Place

    def end(self, task: str, attempt: int) -> dict[str, Any] | None:
        outcome = self.ends.get((int(task[1:]), attempt))
        return None if outcome in (None, LOST) else {"outcome": str(outcome)}


@dataclass
class World:
    """Carries out the instructions of a state machine as the controller does, badly; and keeps account."""

    graph: ExecutionGraph
    order: dict[int, list[int]]
    retry_limits: RetryLimits
    chance: random.Random
    troubles: int
    finished: Counter[int] = field(default_factory=Counter)
    nodes: dict[int, Node] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    lost: set[int] = field(default_factory=set)
    plans: list[Replan] = field(default_factory=list)
    started: list[tuple[int, int]] = field(default_factory=list)
    arms: int = 0
    gives_back: bool = False
    later: frozenset[int] = frozenset()
    given_back: int = 0
    recalled: int = 0
    ending: ExecutionEnding | None = None
    late: list[AttemptEnded] = field(default_factory=list)
    history: RunHistory = field(default_factory=RunHistory)
    notes: Notes = field(default_factory=Notes)

    def __post_init__(self) -> None:
        tasks = tuple(Task(f"t{n}", "a", 1.0) for n in range(len(self.graph.parents)))
        self.flow = Workflow("world", tasks, tuple(tuple(each) for each in self.graph.parents))
        self.clock = 0.0

    def made(self) -> ExecutionMachine:
        return ExecutionMachine(self.graph, self.order, self.retry_limits, give_back=self.gives_back)

    @property
    def running(self) -> set[int]:
        return {task for node in self.nodes.values() for task, _ in node.running}

    def run(self) -> None:
        """One session after the other, until one has not been killed."""
        for _ in range(10_000):
            try:
                self.open()
                while self.ending is None:
                    self.step()
                return
            except KilledError:
                self.plans.clear()
        raise AssertionError("it does not end")

    # ------------------------------------------------------------------ the controller

    def record(self, *records: dict[str, Any]) -> None:
        for each in records:
            self.clock += 1.0
            self.history.take({"at": self.clock, **each})
            if each["e"] == "end" and each["outcome"] == "done":
                self.finished[int(each["task"][1:])] += 1
            self.perhaps_killed(0.02)

    def perhaps_killed(self, chance: float) -> None:
        if self.troubles and self.chance.random() < chance:
            self.troubles -= 1
            raise KilledError

    def open(self) -> None:
        self.ending, self.machine = None, self.made()
        self.lost.clear()
        for vm, node in list(self.nodes.items()):
            node.said.clear()
            if self.chance.random() < 0.5:
                self.die(vm)
        kept = {f"m{vm}": (vm, node.pilot) for vm, node in self.nodes.items()}
        opened = recover(self.flow, cast(WorkflowRunFolder, self.notes), self.history, kept, self.record)
        self.carry_out(self.machine.handle(replace(opened, later=self.later - self.nodes.keys())))
        for vm in range(len(self.graph.slots)):
            if vm in self.nodes:
                self.link(vm)
            elif self.machine.vm_states[vm] is VmState.COMING:
                self.fetch(vm)

    def fetch(self, vm: int) -> None:
        """Ask for a machine."""
        pilot = self.history.pilots.get(f"m{vm}", 0) + 1
        self.record({"e": "pilot", "vm": f"m{vm}", "pilot": pilot})
        self.nodes[vm] = Node(vm, pilot, self)

    def link(self, vm: int) -> None:
        """A connection is there, again."""
        self.nodes[vm].said.clear()
        for task, (where, attempt) in self.machine.places.items():
            if where == vm:
                self.nodes[vm].order((task, attempt), set())
        if (armed := self.machine.armed.get(vm)) is not None:
            after = {(other, self.machine.places[other][1]) for other in armed.after}
            self.nodes[vm].order((armed.task, armed.attempt), after)

    def handle(self, event: ExecutionEvent) -> None:
        self.carry_out(self.machine.handle(event))

    def carry_out(self, instructions: list[ExecutionInstruction]) -> None:
        self.record(
            *(self.written(each) for each in instructions if isinstance(each, TaskLaunch | Arm | ArmedTaskBegun))
        )
        for each in instructions:
            match each:
                case TaskLaunch(task, vm, attempt):
                    self.tell(vm, (task, attempt), set())
                case Arm(task, vm, attempt, after):
                    self.arms += 1
                    self.tell(vm, (task, attempt), {(other, self.machine.places[other][1]) for other in after})
                case Replan():
                    self.plans.append(each)
                case GiveBack(vm):
                    self.give_back(vm)
                case Recall(vm):
                    self.recalled += f"m{vm}" in self.history.pilots
                    self.fetch(vm)
                case Finish(ending):
                    self.ending = ending

    def give_back(self, vm: int) -> None:
        self.given_back += 1
        assert not any(where == vm for where, _ in self.machine.places.values()), "it runs something"
        assert vm not in self.machine.armed, "it is to begin something"
        self.record({"e": "down", "vm": f"m{vm}", "lost": False})
        self.perhaps_killed(0.1)
        node = self.nodes.pop(vm, None)
        if node is not None:
            self.notes.ends.update(node.ended)

    def tell(self, vm: int, one: Try, after: set[Try]) -> None:
        self.perhaps_killed(0.02)
        assert self.machine.vm_states[vm] is VmState.UP, "the machine is not there"
        self.nodes[vm].order(one, after)

    def written(self, each: TaskLaunch | Arm | ArmedTaskBegun) -> dict[str, Any]:
        record = start_record(f"t{each.task}", each.attempt, f"m{each.vm}", self.history.pilots[f"m{each.vm}"])
        if isinstance(each, Arm):
            keys = [attempt_key(f"t{task}", self.machine.places[task][1]) for task in each.after]
            return {**record, "e": "arm", "after": keys}
        return record

    def hear(self, vm: int) -> None:
        (task, attempt), outcome = self.nodes[vm].said.popleft()
        if self.machine.places.get(task) == (vm, attempt):
            self.ended(task, attempt, outcome)

    def ended(self, task: int, attempt: int, outcome: AttemptOutcome) -> None:
        self.record(end_record(f"t{task}", attempt, {"outcome": str(outcome)}, 0.0))
        self.handle(AttemptEnded(task, attempt, outcome))

    def lose(self, vm: int) -> None:
        """As the controller does it."""
        self.late += [AttemptEnded(task, attempt, DONE) for task, attempt in self.nodes[vm].running]
        self.die(vm)
        self.lost.add(vm)
        self.record({"e": "down", "vm": f"m{vm}", "lost": True, "reason": "it is lost"})
        self.handle(MachineSilent(vm))
        there = True
        while there and self.ending is None:
            there = False
            for task, (where, attempt) in list(self.machine.places.items()):
                if where == vm and self.notes.end(f"t{task}", attempt) is not None:
                    there = True
                    self.ended(task, attempt, self.notes.ends[task, attempt])
        if self.ending is None:
            for task, (where, attempt) in self.machine.places.items():
                if where == vm:
                    self.record(end_record(f"t{task}", attempt, {"outcome": "lost"}, 0.0))
            self.handle(MachineLost(vm))

    # ------------------------------------------------------------------ the world

    def die(self, vm: int) -> None:
        """A machine goes away; the last that ended there may not have been written down."""
        node = self.nodes.pop(vm)
        ends = list(node.ended.items())
        keep = len(ends) - (bool(ends) and ends[-1][0] not in self.notes.ends and self.chance.random() < 0.5)
        self.notes.ends.update(ends[:keep])
        recorded = {(int(task[1:]), n) for (task, n), each in self.history.attempts.items() if each.end is not None}
        self.done -= {task for (task, n), _ in ends[keep:] if (task, n) not in recorded}

    def see(self, node: Node, one: Try) -> None:
        """A machine begins something: look whether it may."""
        task, _ = one
        assert one not in self.notes.begun, "an attempt begins twice"
        assert task not in self.done, "a task that has ended well is run again"
        assert sum(task == other for each in self.nodes.values() for other, _ in each.running) == 1, "it runs twice"
        assert all(parent in self.done for parent in self.graph.parents[task]), "a parent has not ended"
        used = sum(self.graph.cores[other] for other, _ in node.running)
        assert used <= self.graph.slots[node.vm], "more runs than there are slots"
        self.notes.begun.add(one)
        self.started.append((node.vm, task))

    def step(self) -> None:
        choices: list[tuple[Any, ...]] = [
            (self.handle, MachineUp(vm))
            for vm, there in enumerate(self.machine.vm_states)
            if there is VmState.COMING and vm in self.nodes
        ]
        there = self.machine.vm_states
        choices += [(self.handle, VmDue(vm)) for vm in self.later if there[vm] is VmState.LATER and self.running]
        choices += [(self.finish, vm, one, DONE) for vm, node in self.nodes.items() for one in sorted(node.running)]
        choices += [(self.hear, vm) for vm, node in self.nodes.items() if node.said]
        choices += [(self.plan,)] if self.plans else []
        if self.troubles and self.chance.random() < 0.3:
            self.troubles -= 1
            troubles: list[tuple[Any, ...]] = [
                (self.finish, vm, one, self.chance.choice((FAILED, LOST)))
                for vm, node in self.nodes.items()
                for one in sorted(node.running)
            ]
            troubles += [(each, vm) for vm in self.nodes for each in (self.lose, self.link)]
            troubles += [(self.perhaps_killed, 1.0)]
            troubles += [(self.handle, each) for each in self.late]  # a machine that was given up speaks after all
            choices = troubles or choices
        assert choices, "nothing is under way, and it does not end"
        what, *words = self.chance.choice(choices)
        what(*words)

    def finish(self, vm: int, one: Try, outcome: AttemptOutcome) -> None:
        if outcome is DONE:
            self.done.add(one[0])
        self.nodes[vm].end(one, outcome)
        self.notes.ends.update(list(self.nodes[vm].ended.items())[:-1])

    def plan(self) -> None:
        """Any order that does not wait for itself will do: parents come before children."""
        asked = self.plans.pop()
        fits = {
            task: [vm for vm in asked.vms if self.graph.slots[vm] >= self.graph.cores[task]] for task in asked.tasks
        }
        if not all(fits.values()):
            self.handle(PlanFailed())
            return
        order: dict[int, list[int]] = {}
        for task in asked.tasks:
            order.setdefault(self.chance.choice(fits[task]), []).append(task)
        self.record({"e": "plan"})
        self.handle(OrderPlanned({vm: tuple(tasks) for vm, tasks in order.items()}))


@st.composite
def worlds(draw: st.DrawFn, troubles: int) -> World:
    """Small workflows on a few machines."""
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
        ExecutionGraph(parents, cores, slots),
        order,
        RetryLimits(retries=draw(st.integers(0, 2)), losses=draw(st.integers(0, 2))),
        random.Random(draw(st.integers(0, 2**32))),
        troubles=draw(st.integers(0, troubles)),
        gives_back=draw(st.booleans()),
        later=draw(st.frozensets(st.integers(0, len(slots) - 1))),
    )
