"""A readable event-driven simulator of schedules and online policies on a set of machines."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from tradewind.errors import WorkflowError
from tradewind.workflow.graph import Numbers, Workflow
from tradewind.workflow.platform import Platform
from tradewind.workflow.schedule import RepeatedAttempt, Schedule
from tradewind.workflow.simulator.world import World


@dataclass
class SimulationState:
    """State of a run that a policy may know at a moment.

    Attributes:
        flow: The workflow.
        platform: The machines that its tasks run on.
        now: Seconds since the beginning.
        free: Free slots of each machine.
        spare: Free amounts of each machine of what can run out besides slots (see `Platform.scarce`).
        holding: The files on each machine, under local storage.
        vm: The machine of each task that was placed, else -1.
        finished: The tasks that have ended well.
        failed: The tasks that have failed for good.
        skipped: The tasks that need one of those, and never run.
    """

    flow: Workflow
    platform: Platform
    now: float = 0.0
    free: list[int] = field(default_factory=list)
    holding: list[set[str]] = field(default_factory=list)
    vm: list[int] = field(default_factory=list)
    finished: set[int] = field(default_factory=set)
    spare: list[list[int]] = field(default_factory=list)
    failed: set[int] = field(default_factory=set)
    skipped: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        if not self.spare:
            self.spare = self.platform.scarce(self.flow)[1].tolist()

    @cached_property
    def reading(self) -> Numbers:
        """Seconds that each task reads before it runs, under shared storage."""
        return self.platform.reading(self.flow)

    @cached_property
    def takes(self) -> list[list[int]]:
        """Amounts that each task takes of what `spare` counts."""
        found: list[list[int]] = self.platform.scarce(self.flow)[0].tolist()
        return found

    @cached_property
    def _misfits(self) -> list[list[bool]] | None:
        """Marks of the machines that each task does not fit on however free they are; None where all fit."""
        return None if self.platform.suits(self.flow) else (~self.platform.fits(self.flow)).tolist()

    def fits(self, task: int, vm: int) -> bool:
        """True when a task fits on a machine, and the machine has free slots and all else that it uses."""
        if self.free[vm] < self.flow.tasks[task].cores:
            return False
        if any(there < takes for there, takes in zip(self.spare[vm], self.takes[task], strict=True)):
            return False
        return self._misfits is None or not self._misfits[task][vm]

    def use(self, task: int, vm: int, times: int = 1) -> None:
        """Take what a task uses of a machine; -1 times gives it back."""
        self.free[vm] -= times * self.flow.tasks[task].cores
        self.spare[vm] = [there - times * takes for there, takes in zip(self.spare[vm], self.takes[task], strict=True)]

    def fetching(self, task: int, vm: int) -> float:
        """Seconds that bringing a task's inputs to a machine takes."""
        if self.platform.storage == "shared":
            return float(self.reading[task])
        if self.platform.storage == "local":
            missing = [name for name in self.flow.real_inputs[task] if name not in self.holding[vm]]
            return sum(self.platform.fetching(self.flow.sizes.get(name, 0)) for name in missing)
        return 0.0


class Director(ABC):
    """Decides what runs next; it is asked whenever something has changed."""

    @abstractmethod
    def pick(self, ready: Sequence[int], state: SimulationState) -> tuple[int, int] | None:
        """Choose a ready task and the machine with free slots for it that it is placed on now, or None to wait.

        Args:
            ready: Tasks whose parents have ended, those of the highest priority first, then in the order in which
                they became ready.
            state: State of the run; it changes after each answer.
        """

    def ended(self, task: int, vm: int, begin: float, now: float, failed: bool) -> None:  # noqa: B027 most need not
        """Take note of the end of an attempt, before the next `pick`; a director that learns overrides this.

        Args:
            task: The task.
            vm: The machine that it ran on.
            begin: Time at which the attempt began to occupy the machine, in seconds.
            now: Time at which it ended, in seconds.
            failed: True if the attempt failed; the task is then run again, or is in `SimulationState.failed`.
        """


class ScheduleDirector(Director):
    """Follows a schedule: each machine runs its tasks in their order, and waits for the one whose turn it is.

    Args:
        schedule: The schedule; only machines and order are read from it.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._turns: dict[int, list[int]] | None = None

    def pick(self, ready: Sequence[int], state: SimulationState) -> tuple[int, int] | None:
        """The next task of a machine, when it is ready and fits."""
        if self._turns is None:
            self._turns = {vm: list(reversed(tasks)) for vm, tasks in self._schedule.order_in(state.flow).items()}
        if state.failed:
            for turns in self._turns.values():
                while turns and (turns[-1] in state.failed or turns[-1] in state.skipped):
                    turns.pop()
        waiting = [(vm, turns) for vm, turns in self._turns.items() if turns and state.free[vm]]
        there = set(ready) if waiting else set()
        for vm, turns in waiting:
            if turns[-1] in there and state.fits(turns[-1], vm):
                return turns.pop(), vm
        return None

    def ended(self, task: int, vm: int, begin: float, now: float, failed: bool) -> None:
        """A failed task is repeated on its machine before those after it."""
        if failed and self._turns is not None:
            self._turns[vm].append(task)


class PriorityDirector(Director):
    """Gives the ready task of the smallest key to the first machine of a list that has room for it.

    Args:
        keys: Priority of each task, the smallest first.
        preference: The machines, the most preferred first.
    """

    def __init__(self, keys: Sequence[float], preference: Sequence[int]) -> None:
        self._keys, self._preference = keys, preference

    def pick(self, ready: Sequence[int], state: SimulationState) -> tuple[int, int] | None:
        """The first task in the order of keys that fits somewhere."""
        if not any(state.free):
            return None
        for task in sorted(ready, key=lambda each: self._keys[each]):
            for vm in self._preference:
                if state.fits(task, vm):
                    return task, vm
        return None


def simulate(flow: Workflow, platform: Platform, director: Director, world: World | None = None) -> Schedule:
    """Run a workflow in simulated time.

    Args:
        flow: The workflow.
        platform: The machines.
        director: Decides which task goes where, and when.
        world: Deviations from the plan: noise, failures, delays; none without it.

    Returns:
        The schedule as it really was; of a repeated task, its last attempt, and those before in `repeated`. Tasks
        whose last attempt failed are in `failed`, those that need them in `skipped`.

    Raises:
        WorkflowError: A task fits on no machine, the director places one where it does not fit, or it places nothing
            although nothing runs.
    """
    platform.check(flow)
    return _Run(flow, platform, director, world or World()).run()


class _Run:
    """State of one simulation."""

    def __init__(self, flow: Workflow, platform: Platform, director: Director, world: World) -> None:
        self.flow, self.platform, self.director, self.world = flow, platform, director, world
        self.state = SimulationState(
            flow, platform, 0.0, [0] * len(platform.vms), [set() for _ in platform.vms], [-1] * len(flow)
        )
        self.ready: list[int] = []
        self.left = [len(parents) for parents in flow.parents]
        # Time at which each task knows of the ends of those of its parents that have ended.
        self.known = [0.0] * len(flow)
        self.start, self.finish = np.zeros(len(flow)), np.zeros(len(flow))
        self.attempts = np.zeros(len(flow), dtype=np.int32)
        self.repeated: list[RepeatedAttempt] = []
        # Files that are fetched since this moment: for tasks that start at the same moment they are not there yet.
        self.coming: list[tuple[int, Sequence[str]]] = []
        # What happens: (when, in which order, what, task or machine).
        self.events: list[tuple[float, int, str, int]] = []

    def _at(self, time: float, what: str, number: int) -> None:
        order = {"up": 0, "end": 0, "fail": 0, "ready": 1}[what]
        heapq.heappush(self.events, (time, order, what, number))

    def run(self) -> Schedule:
        """Run until every task that can has ended."""
        for vm, machine in enumerate(self.platform.vms):
            self._at(machine.boot_seconds, "up", vm)
        for task, count in enumerate(self.left):
            if not count:
                self._at(self.world.delay("engine", self.flow, task), "ready", task)
        while self.events:
            if self.events[0][0] > self.state.now:
                for vm, names in self.coming:
                    self.state.holding[vm].update(names)
                self.coming.clear()
            self.state.now = self.events[0][0]
            # All that happens at one moment happens before anything is decided.
            while self.events and self.events[0][0] == self.state.now:
                _, _, what, number = heapq.heappop(self.events)
                self._take(what, number)
            self._decide()
        failed, skipped = sorted(self.state.failed), sorted(self.state.skipped)
        if len(self.state.finished) + len(failed) + len(skipped) < len(self.flow):
            raise self.world.stuck(self.flow, self.ready)
        vms = np.array(self.state.vm, dtype=np.int32)
        repeated = tuple(self.repeated)
        return Schedule(vms, self.start, self.finish, self.attempts, repeated, tuple(failed), tuple(skipped))

    def _take(self, what: str, number: int) -> None:
        if what == "up":
            self.state.free[number] = self.platform.vms[number].slots
        elif what == "ready":
            self.ready.append(number)
        else:
            vm = self.state.vm[number]
            self.state.use(number, vm, -1)
            begin = float(self.start[number])
            for_good = what == "fail" and self.attempts[number] > self.world.retries
            if for_good:
                self.state.failed.add(number)
                self._skip(number)
            self.director.ended(number, vm, begin, self.state.now, what == "fail")
            if for_good:
                return
            if what == "fail":
                self.repeated.append(RepeatedAttempt(number, vm, begin, self.state.now))
                self.state.vm[number] = -1
                self.ready.append(number)
                return
            self.state.finished.add(number)
            self.state.holding[vm].update(self.flow.tasks[number].outputs)
            for child in self.flow.children[number]:
                known = self.state.now + self.world.delay("post", self.flow, number)
                self.known[child] = max(self.known[child], known)
                self.left[child] -= 1
                if not self.left[child]:
                    self._at(self.known[child] + self.world.delay("engine", self.flow, child), "ready", child)

    def _skip(self, task: int) -> None:
        """Leave out all that needs a task."""
        waiting = [task]
        while waiting:
            new = set(self.flow.children[waiting.pop()]) - self.state.skipped
            self.state.skipped |= new
            waiting.extend(new)

    def _decide(self) -> None:
        if self.flow.priorities:
            self.ready.sort(key=lambda task: -self.flow.priorities[task])
        while self.ready:
            picked = self.director.pick(self.ready, self.state)
            if picked is None:
                return
            task, vm = picked
            self.ready.remove(task)
            self._place(task, vm)

    def _place(self, task: int, vm: int) -> None:
        state = self.state
        if why := self.platform.misfit(self.flow, task, vm):
            raise WorkflowError(
                f"task {self.flow.tasks[task].id!r} was placed on machine {self.platform.vms[vm].name!r}, where it "
                f"does not fit: {why}"
            )
        begin = state.now + self.world.delay("queue", self.flow, task)
        fetching = state.fetching(task, vm)
        self.coming.append((vm, self.flow.real_inputs[task]))
        running = self.flow.tasks[task].runtime / self.platform.vms[vm].speed
        seconds, fails = self.world.duration(task, vm, begin, int(self.attempts[task]), fetching, running)
        state.use(task, vm)
        state.vm[task] = vm
        self.attempts[task] += 1
        self.start[task], self.finish[task] = begin, begin + seconds
        self._at(begin + seconds, "fail" if fails else "end", task)
