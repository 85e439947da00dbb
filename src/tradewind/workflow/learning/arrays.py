"""Turns a workflow, its machines and a world into the arrays that the compiled episodes take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tradewind.errors import WorkflowError
from tradewind.workflow.graph import Numbers, Workflow
from tradewind.workflow.platform import Platform
from tradewind.workflow.schedule import Schedule
from tradewind.workflow.simulator.reference import SimulationState
from tradewind.workflow.simulator.world import MOST_PERIODS, Moment, World

if TYPE_CHECKING:
    from tradewind.workflow.learning.kernel import EpisodeInput, EpisodeState


class EpisodeArrays:
    """A workflow and its machines as arrays, for episodes in any world.

    Args:
        flow: The workflow.
        platform: The machines that its tasks run on; under storage ``local`` the time to fetch files is left out.

    Attributes:
        stated: Seconds of each task on each machine at its stated speed, without reading, infinite where it does not
            fit; shape (tasks, machines).
        reading: Seconds that each task reads before it runs.
        cores: Slots that each task uses.
        slots: Slots of each machine.
        amounts: Amounts that each task takes of what can run out before the slots do; shape (tasks, resources).
        rooms: Amounts that each machine has of it; shape (machines, resources).
        boot: Seconds until each machine is up.
        lane_vm: The machine of each slot.
        lane_starts: Index at which the slots of each machine begin.

    Raises:
        WorkflowError: A task fits on no machine.
    """

    def __init__(self, flow: Workflow, platform: Platform) -> None:
        expected = platform.seconds(flow)
        self.flow, self.platform = flow, platform
        self.child_starts, self.children = flow.csr(flow.children)
        self.parents = np.array([len(each) for each in flow.parents], dtype=np.int64)
        running = flow.runtimes[:, None] / platform.speeds[None, :]
        self.stated = np.ascontiguousarray(np.where(np.isfinite(expected), running, np.inf))
        self.reading = np.asarray(platform.reading(flow), dtype=np.float64)
        self.cores = np.array([task.cores for task in flow.tasks], dtype=np.int64)
        self.slots = np.array([vm.slots for vm in platform.vms], dtype=np.int64)
        self.amounts, self.rooms = platform.scarce(flow)
        self.boot = np.array([vm.boot_seconds for vm in platform.vms], dtype=np.float64)
        self.lane_vm = np.repeat(np.arange(len(platform.vms)), self.slots)
        self.lane_starts = np.concatenate([[0], np.cumsum(self.slots)])
        self._last: PreparedWorld | None = None

    def spare(self, state: SimulationState) -> NDArray[np.int64]:
        """Free amounts of each machine at a moment of a run; as `rooms`."""
        return np.array(state.spare, dtype=np.int64).reshape(self.rooms.shape)

    @property
    def seconds(self) -> Numbers:
        """Seconds of each task on each machine, as stated, reading included; shape (tasks, machines)."""
        return self.stated + self.reading[:, None]

    def given(self, world: World, periods: int = 32) -> EpisodeInput:
        """Draw one world as arrays.

        Args:
            world: The world.
            periods: Number of its periods for which speeds are drawn.
        """
        from tradewind.workflow.learning.kernel import EpisodeInput

        starts, factor, share = self._luck(world)
        varying = bool(world.unknown or world.drift or world.migration)
        none = np.ones((len(self.slots), 0)), np.zeros((len(self.slots), 0))
        speed, still = self._speeds(world, *none, periods) if varying else none
        return EpisodeInput(
            self.child_starts, self.children, self.parents, self.stated, self.reading, self.cores, self.amounts,
            self.slots, self.rooms, self.boot, self._delays(world, "engine"), self._delays(world, "queue"),
            self._delays(world, "post"), starts, factor, share, speed, still, float(world.period), varying,
        )  # fmt: skip

    def longer(self, given: EpisodeInput, world: World) -> EpisodeInput:
        """Draw the same world with speeds for twice as long.

        Raises:
            WorkflowError: Speeds are drawn for as long as one task may take.
        """
        if given.speed.shape[1] > MOST_PERIODS:
            raise WorkflowError(
                f"a run goes through more than {MOST_PERIODS:,} periods of {world.period:g} s",
                hint="give a longer period",
            )
        speed, still = self._speeds(world, given.speed, given.still, 2 * given.speed.shape[1])
        return given._replace(speed=speed, still=still)

    def _speeds(self, world: World, speed: Numbers, still: Numbers, periods: int) -> tuple[Numbers, Numbers]:
        """Draw the speed factor of each machine in each period, and the time until which it stands still.

        Those that are known already are not drawn again.
        """
        known = speed.shape[1]
        more = np.array([[world.speed(vm, place) for place in range(known, periods)] for vm in range(len(self.slots))])
        return np.hstack([speed, more[:, :, 0]]), np.hstack([still, more[:, :, 1]])

    def _delays(self, world: World, moment: Moment) -> Numbers:
        if not world.delays.get(moment):
            return np.zeros(len(self.flow))
        return np.array([world.delay(moment, self.flow, task) for task in range(len(self.flow))])

    def _luck(self, world: World) -> tuple[NDArray[np.int64], Numbers, Numbers]:
        """Draw the attempts: the index at which those of each task begin, their factors, and their shares.

        A share is the part of its time after which an attempt fails, and -1 where it ends well. Episodes come to their
        end: the last attempt ends well.
        """
        tasks, world = len(self.flow), replace(world, last_ends_well=True)
        if not (world.noise or world.failure):
            return np.arange(tasks + 1, dtype=np.int64), np.ones(tasks), np.full(tasks, -1.0)
        starts, factors, shares = [0], [], []
        for task in range(tasks):
            share: float | None = 0.0
            attempt = 0
            while share is not None:
                factor, share = world.luck(task, attempt)
                factors.append(factor)
                shares.append(-1.0 if share is None else share)
                attempt += 1
            starts.append(len(factors))
        return np.array(starts, dtype=np.int64), np.array(factors), np.array(shares)

    def run(self, world: World, episode: Callable[[EpisodeInput], EpisodeState]) -> EpisodeState:
        """Run one episode; where it lasts longer than speeds were drawn for, again with more of them.

        Args:
            world: The world.
            episode: Function that runs an episode; it must be repeatable.

        Raises:
            WorkflowError: Tasks were left over.
        """
        if self._last is None or self._last.world != world:
            self._last = self.prepared(world)
        return self._last.run(episode)

    def prepared(self, world: World) -> PreparedWorld:
        """Draw one world for many episodes."""
        return PreparedWorld(self, world)


class PreparedWorld:
    """One world of a workflow and its machines, drawn once for many episodes.

    Args:
        arrays: The workflow and its machines.
        world: The world.

    Attributes:
        world: The world.
    """

    def __init__(self, arrays: EpisodeArrays, world: World) -> None:
        self._arrays, self.world = arrays, world
        self._given = arrays.given(world)

    def run(self, episode: Callable[[EpisodeInput], EpisodeState]) -> EpisodeState:
        """See `EpisodeArrays.run`."""
        from tradewind.workflow.learning import kernel

        while True:
            run = episode(self._given)
            if run.counts[kernel.BEYOND]:
                self._given = self._arrays.longer(self._given, self.world)
                continue
            if run.counts[kernel.FINISHED] < len(self._arrays.flow):
                waiting = [int(task) for task in run.ready[: run.counts[kernel.WAITING]]]
                raise self.world.stuck(self._arrays.flow, waiting)
            return run


def schedule(run: EpisodeState) -> Schedule:
    """Make the schedule of an episode that has ended."""
    return Schedule(run.vm.astype(np.int32), run.start, run.finish, run.attempts.astype(np.int32))
