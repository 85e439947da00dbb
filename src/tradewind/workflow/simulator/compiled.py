"""The compiled simulator: the same times as the readable one, for worlds without chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tradewind.workflow.graph import Indices, Numbers, Workflow
from tradewind.workflow.platform import Platform
from tradewind.workflow.schedule import Schedule
from tradewind.workflow.simulator.world import Moment, World

Ints = NDArray[np.integer[Any]]

_TURNS = 8
"""Tasks that come to start together go in another order from then on, which moves others: so often at most."""


class CompiledSimulator:
    """A workflow and its machines as arrays, simulated by compiled loops.

    Tests compare it with `tradewind.workflow.simulator.reference.simulate`, whose `ScheduleDirector` is `follow` here,
    and whose `PriorityDirector` is `queue`. All kinds of storage, tasks of several cores, boot times and delays of the
    system are the same; noise, drift, failures and directors of one's own are left to the readable one. Under local
    storage they may differ where a task reads a file without waiting for a task of no length that writes it at
    the same moment.

    Args:
        flow: The workflow.
        platform: The machines that its tasks run on.
        delays: Delays of the workflow system, as `World` has them.

    Raises:
        WorkflowError: A task fits on no machine.
    """

    def __init__(
        self, flow: Workflow, platform: Platform, delays: Mapping[Moment, float | Sequence[float]] | None = None
    ) -> None:
        self.flow, self.platform = flow, platform
        self.seconds = platform.seconds(flow)
        amounts, rooms = platform.scarce(flow)
        self._needs = np.array([task.cores for task in flow.tasks], dtype=np.int64), amounts
        self._sizes = np.array([vm.slots for vm in platform.vms], dtype=np.int64), rooms
        self._suited = platform.suits(flow)
        # Of tasks of one core that fit on every machine, none can be passed over for another.
        self._alike = self._suited and flow.needs[0] == 1 and not rooms.size
        self._ready_at = np.array([vm.boot_seconds for vm in platform.vms])
        starts, children = flow.csr(flow.children)
        self._graph = (starts, children, np.array([len(each) for each in flow.parents], dtype=np.int32))
        world = World(delays=delays or {})
        moments: tuple[Moment, ...] = ("engine", "queue", "post")
        self._world = world
        none = np.zeros(len(flow))
        engine, queue, post = (
            np.array([world.delay(moment, flow, task) for task in range(len(flow))]) if delays else none
            for moment in moments
        )
        self._delays = (engine, queue, post)

    @cached_property
    def _files(self) -> tuple[Indices, Indices, Indices, Indices, Numbers, int]:
        """Files that tasks read and write under local storage, with the number of machines; none without it."""
        local = self.platform.storage == "local"
        return *self.platform.local_files(self.flow), len(self.platform.vms) if local else 0

    def follow(self, schedule: Schedule, factors: Numbers | None = None) -> Schedule:
        """Follow a plan: each machine runs its tasks in their order.

        Args:
            schedule: Only machines and order are read from it.
            factors: Factor of the time of each task on its machine, reading left out; 1 without it.

        Raises:
            WorkflowError: The plan contradicts the graph, or a task is on a machine that it does not fit on.
        """
        from tradewind.workflow import kernel_simulate

        vm, before, after = self.turns(schedule)
        if not self._suited and len(tight := np.flatnonzero(self.seconds[np.arange(len(vm)), vm] == np.inf)):
            raise self._world.stuck(self.flow, [int(task) for task in tight])
        start, finish, done = kernel_simulate.follow_plan(
            self._graph, self._changed(factors), vm, before, after, self._needs, self._sizes, self._ready_at,
            self._files, self._delays,
        )  # fmt: skip
        if done < len(self.flow):
            stuck = [task for task in range(len(self.flow)) if not finish[task] and not self.flow.parents[task]]
            raise self._world.stuck(self.flow, stuck)
        return Schedule(vm, start, finish, np.ones(len(self.flow), dtype=np.int32))

    def turns(self, schedule: Schedule) -> tuple[Indices, Ints, Ints]:
        """The machine of each task, and the tasks before and after it there."""
        vm = np.asarray(schedule.vm, dtype=np.int32)
        before, after = np.full(len(vm), -1, dtype=np.int64), np.full(len(vm), -1, dtype=np.int64)
        sequence = schedule.sequence(self.flow)
        # By machine, and within one by their turns.
        line = sequence[np.argsort(vm[sequence], kind="stable")]
        same = vm[line[1:]] == vm[line[:-1]]
        before[line[1:][same]], after[line[:-1][same]] = line[:-1][same], line[1:][same]
        return vm, before, after

    def _changed(self, factors: Numbers | None) -> Numbers:
        if factors is None:
            return self.seconds
        running = self.flow.runtimes[:, None] / self.platform.speeds[None, :]
        return np.asarray(self.platform.reading(self.flow)[:, None] + running * factors[:, None])

    def queue(self, keys: Sequence[float] | Numbers, preference: Sequence[int] | Ints) -> Schedule:
        """Give the ready task of the smallest key that fits somewhere to the most preferred machine with room.

        Args:
            keys: Key of each task, the smallest first; of equal ones, the task of the highest priority goes first, then
                the one that became ready first.
            preference: The machines, the most preferred first.
        """
        from tradewind.workflow import kernel_simulate

        _, ranks = np.unique(np.asarray(keys, dtype=np.float64), return_inverse=True)
        if self.flow.priorities:
            pairs = np.stack([ranks, -np.array(self.flow.priorities, dtype=np.int64)])
            ranks = np.unique(pairs, axis=1, return_inverse=True)[1].reshape(-1)
        vms, start, finish, done = kernel_simulate.run_queue(
            self._graph, self.seconds, ranks.astype(np.int64), np.asarray(preference, dtype=np.int64), self._needs,
            self._sizes, self._alike, self._ready_at, self._files, self._delays,
        )  # fmt: skip
        if done < len(self.flow):
            raise self._world.stuck(self.flow, [task for task in range(len(self.flow)) if vms[task] < 0])
        return Schedule(vms.astype(np.int32), start, finish, np.ones(len(self.flow), dtype=np.int32))


def replay_plan(flow: Workflow, platform: Platform, schedule: Schedule) -> Schedule:
    """Give a plan the times that come of following it when every task takes its expected time.

    Under local storage planners are now and then wrong about them: a task that reads a file without waiting for the
    task that writes it fetches the file from outside or not, as things go, and one that starts earlier may end later.
    Elsewhere a plan keeps its times.

    Args:
        flow: The workflow.
        platform: The machines that its tasks run on.
        schedule: The schedule of a planner.

    Raises:
        WorkflowError: The plan contradicts the graph.
    """
    if platform.storage != "local":
        return schedule
    simulator = CompiledSimulator(flow, platform)
    for _ in range(_TURNS):
        before, schedule = schedule, simulator.follow(schedule)
        if before.order_in(flow) == schedule.order_in(flow):
            break
    return schedule
