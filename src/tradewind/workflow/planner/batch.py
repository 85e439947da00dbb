"""Min-Min, Max-Min, Sufferage and MCT: rules that choose the next of the tasks that could be placed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from tradewind.workflow.graph import Numbers, Workflow
from tradewind.workflow.planner.base import Online, Planner
from tradewind.workflow.planner.list_scheduling import MachineArrays
from tradewind.workflow.platform import Places, Platform
from tradewind.workflow.schedule import Schedule
from tradewind.workflow.simulator.reference import Director, SimulationState

MINMIN, MAXMIN, SUFFERAGE, MCT = 0, 1, 2, 3
"""The rules, as `tradewind.workflow.kernel_general` numbers them."""


class _BatchPlanner(Planner, Online):
    """Planner of a batch of tasks whose parents have been placed, or have ended; subclasses give the rule."""

    rule: ClassVar[int]

    def plan(self, flow: Workflow, platform: Platform) -> Schedule:
        """See `Planner.plan`."""
        return MachineArrays(flow, platform).batch(self.rule)

    def director(self, flow: Workflow, platform: Platform) -> Director:
        """See `Online.director`."""
        return BatchDirector(flow, platform, self.rule)


class MinminPlanner(_BatchPlanner):
    """Min-Min: the task that can end first is placed next, where it ends first.

    Ibarra and Kim, "Heuristic algorithms for scheduling independent tasks on nonidentical processors", JACM 24(2),
    1977; a task joins the batch when its parents have been placed.
    """

    rule = MINMIN


class MaxminPlanner(_BatchPlanner):
    """Max-Min: the task whose earliest possible end is the latest is placed next, where it ends first.

    Ibarra and Kim, "Heuristic algorithms for scheduling independent tasks on nonidentical processors", JACM 24(2),
    1977; a task joins the batch when its parents have been placed.
    """

    rule = MAXMIN


class SufferagePlanner(_BatchPlanner):
    """Sufferage: the task that would lose most on its second-best machine is placed next, where it ends first.

    Maheswaran et al., "Dynamic mapping of a class of independent tasks onto heterogeneous computing systems", JPDC
    59(2), 1999; a task joins the batch when its parents have been placed.
    """

    rule = SUFFERAGE


class MctPlanner(_BatchPlanner):
    """MCT: tasks in the order of their arrival, each where it ends first behind what is placed there.

    Minimum completion time: Maheswaran et al., "Dynamic mapping of a class of independent tasks onto heterogeneous
    computing systems", JPDC 59(2), 1999.
    """

    rule = MCT

    def plan(self, flow: Workflow, platform: Platform) -> Schedule:
        """See `Planner.plan`."""
        return MachineArrays(flow, platform).append(flow.order)


class BatchDirector(Director):
    """Places all ready tasks anew by a rule whenever something has happened, and starts those that can start.

    Maheswaran et al., 1999, call this the batch mode. What runs is expected to take what it should take.

    Args:
        flow: The workflow.
        platform: The machines that its tasks run on.
        rule: `MINMIN`, `MAXMIN`, `SUFFERAGE` or `MCT`.
    """

    def __init__(self, flow: Workflow, platform: Platform, rule: int) -> None:
        self._rule = rule
        self._platform = platform
        self._cores = np.array([task.cores for task in flow.tasks], dtype=np.int64)
        self._slots = np.array([vm.slots for vm in platform.vms], dtype=np.int64)
        self._amounts, self._rooms = platform.scarce(flow)
        self._seconds = platform.seconds(flow)
        # Of what runs: machine, expected end.
        self._running: dict[int, tuple[int, float]] = {}
        self._decided: list[tuple[int, int]] = []
        self._moment = (-1.0, 0)
        # The rule would have started more where what it started has no run time and so seems to leave its cores free.
        self._more = False

    def pick(self, ready: Sequence[int], state: SimulationState) -> tuple[int, int] | None:
        """The next task that the rule would start now."""
        if self._moment != (state.now, len(ready)) or (self._more and not self._decided):
            self._decided = self._decide(ready, state)
        if not self._decided:
            self._moment = (state.now, len(ready))
            return None
        task, vm = self._decided.pop(0)
        self._moment = (state.now, len(ready) - 1)
        self._running[task] = vm, state.now + float(self._seconds[task, vm]) + self._fetching(task, vm, state)
        return task, vm

    def ended(self, task: int, vm: int, begin: float, now: float, failed: bool) -> None:
        """Decide anew, even at the moment of the last decision: a task may take no time at all."""
        self._running.pop(task, None)  # one that has failed may never be ready again, or is started by somebody else
        self._moment = (-1.0, 0)

    def _fetching(self, task: int, vm: int, state: SimulationState) -> float:
        return state.fetching(task, vm) if self._platform.storage == "local" else 0.0

    def _decide(self, ready: Sequence[int], state: SimulationState) -> list[tuple[int, int]]:
        """Tasks that start now."""
        from tradewind.workflow import kernel_general

        batch = np.array(ready)
        seconds = self._seconds[batch]
        if self._platform.storage == "local":
            seconds = seconds + [[state.fetching(task, vm) for vm in range(len(self._slots))] for task in ready]
        needs, kept = (self._cores[batch], self._amounts[batch]), (self._lanes(state), *self._pieces(state, len(batch)))
        vm, start = kernel_general.batch_now(self._rule, seconds, needs, self._slots, state.now, kept)
        free, spare, decided = list(state.free), np.array(state.spare, dtype=np.int64).reshape(self._rooms.shape), []
        starting = np.flatnonzero(start <= state.now)
        for task, where in zip(batch[starting].tolist(), vm[starting].tolist(), strict=True):
            if free[where] >= self._cores[task] and (spare[where] >= self._amounts[task]).all():
                free[where] -= int(self._cores[task])
                spare[where] -= self._amounts[task]
                decided.append((task, where))
        self._more = len(decided) < len(starting)
        return decided

    def _pieces(self, state: SimulationState, batch: int) -> tuple[Numbers, Places, Places]:
        """Expected times and sizes of the free pieces of what machines have, with space for those of a batch."""
        (vms, counted), later = self._rooms.shape, np.nextafter(state.now, np.inf)
        most = batch + 2 + len(self._running)
        until, size = np.empty((vms, counted, most)), np.zeros((vms, counted, most), dtype=np.int64)
        number = np.zeros((vms, counted), dtype=np.int64)
        for vm, of in np.ndindex(vms, counted):
            running = ((task, end) for task, (where, end) in self._running.items() if where == vm)
            pieces = [(max(end, later), int(self._amounts[task, of])) for task, end in running]
            # A machine that is not there has no slots yet; what others run there is free as late as that.
            free = min(int(self._rooms[vm, of]), int(state.spare[vm][of])) if state.free[vm] else 0
            unknown = int(self._rooms[vm, of]) - free - sum(piece for _, piece in pieces)
            pieces += [(state.now, free), (max(self._platform.vms[vm].boot_seconds, later), unknown)]
            pieces.sort()
            until[vm, of, : len(pieces)], size[vm, of, : len(pieces)] = zip(*pieces, strict=True)
            number[vm, of] = len(pieces)
        return until, size, number

    def _lanes(self, state: SimulationState) -> Numbers:
        """Time at which each core is expected to be free: now, at the end of its task, or once its machine is up."""
        lanes = np.full((len(self._slots), int(self._slots.max())), np.inf)
        later = np.nextafter(state.now, np.inf)
        ends: dict[int, list[float]] = {}
        for task, (vm, end) in self._running.items():
            ends.setdefault(vm, []).extend([max(end, later)] * int(self._cores[task]))
        for vm, machine in enumerate(self._platform.vms):
            free = [state.now] * state.free[vm]
            busy = sorted(ends.get(vm, ()))
            unknown = [max(machine.boot_seconds, later)] * (machine.slots - len(free) - len(busy))
            lanes[vm, : machine.slots] = sorted([*free, *busy, *unknown])
        return lanes
