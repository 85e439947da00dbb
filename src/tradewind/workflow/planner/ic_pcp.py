"""Partial critical paths: a cheap plan for a deadline, in milliseconds."""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from pydantic import Field

from tradewind.errors import NothingFeasibleError
from tradewind.plugins import Settings
from tradewind.problem.job_spec.values import PositiveDuration
from tradewind.utils.units import format_duration, format_money
from tradewind.workflow.bounds import lower_bound
from tradewind.workflow.graph import Workflow
from tradewind.workflow.planner.base import Planner
from tradewind.workflow.planner.list_scheduling import MachineArrays, by_priority
from tradewind.workflow.platform import Platform
from tradewind.workflow.schedule import Schedule, figures

_CLOSE = 1e-9


class IcPcpSettings(Settings):
    """Settings of IC-PCP."""

    deadline: PositiveDuration | None = Field(None, description="Time within which the workflow has to end: 90m")


class IcPcpPlanner(Planner):
    """IC-PCP: critical paths, one after the other, each to the machine that takes it in time for the least more money.

    Abrishami, Naghibzadeh and Epema, "Deadline-constrained workflow scheduling algorithms for Infrastructure as a
    Service clouds", FGCS 29(1), 2013, algorithms 1 to 3. It differs where machines are given and not to be had without
    end: each of them is one instance; a path goes where it costs least more, which is nothing where it fits into time
    that is paid for (the paper looks there first, then for the cheapest new instance); gaps between tasks are used; and
    a path that no machine takes as a whole in time is cut, its first task going alone. Without a deadline any time will
    do, and the cheapest machines get all.
    """

    Settings = IcPcpSettings
    settings: IcPcpSettings

    def plan(self, flow: Workflow, platform: Platform) -> Schedule:
        """See `Planner.plan`.

        Raises:
            WorkflowError: A task fits on no machine.
            NothingFeasibleError: The plan does not end by the deadline.
        """
        machines = MachineArrays(flow, platform)
        deadline = self.settings.deadline
        plan = critical_paths(machines, deadline)
        if deadline is not None and plan.makespan > deadline * (1.0 + _CLOSE):
            bound = lower_bound(flow, platform)
            none = f"none can end before {format_duration(bound)}"
            raise NothingFeasibleError(
                f"ic_pcp finds no plan of workflow {flow.name} on these machines that ends within "
                f"{format_duration(deadline)}: "
                + (none if bound > deadline else f"the one that it finds takes {format_duration(plan.makespan)}"),
                hint="give faster or more machines, or a later deadline; the planner cost_search looks further",
            )
        self.said = f"{format_money(figures(flow, platform, plan, 0.0).cost)} for this run"
        return plan


def critical_paths(machines: MachineArrays, deadline: float | None) -> Schedule:
    """Make the plan of IC-PCP, which may be late.

    Args:
        machines: The workflow and its machines.
        deadline: Seconds within which it is to end, or None.
    """
    return _Paths(machines, math.inf if deadline is None else deadline).assigned()


@dataclass
class _Instance:
    """A machine, and what it runs by now.

    Attributes:
        has: Cores of the machine, and amounts of what can run out besides.
        up: Seconds until it can run a task.
        times: Times at which the use changes, in seconds; the first is 0.
        used: The cores and amounts in use from each of these times to the next one; of the last, none.
        first: Begin of its first task.
        last: End of its last task.
    """

    has: tuple[int, ...]
    up: float
    times: list[float] = field(default_factory=lambda: [0.0])
    used: list[tuple[int, ...]] = field(default_factory=list)
    first: float = math.inf
    last: float = -math.inf

    def __post_init__(self) -> None:
        self.used = self.used or [(0,) * len(self.has)]

    def earliest(self, after: float, seconds: float, needs: tuple[int, ...]) -> float:
        """Earliest time at which a task can begin, in a gap if there is one."""
        begin = max(after, self.up)
        for at in range(bisect_right(self.times, begin) - 1, len(self.times) - 1):
            end = self.times[at + 1]
            if any(used + need > has for used, need, has in zip(self.used[at], needs, self.has, strict=True)):
                begin = end
            elif begin + seconds <= end + _CLOSE:
                break
        return begin

    def take(self, begin: float, end: float, needs: tuple[int, ...]) -> None:
        """Note that a task runs from one moment to another."""
        for at in range(self._cut(begin), self._cut(end)):
            self.used[at] = tuple(used + need for used, need in zip(self.used[at], needs, strict=True))
        self.first, self.last = min(self.first, begin), max(self.last, end)

    def _cut(self, moment: float) -> int:
        """Index of a moment among the times; it is inserted if it is missing."""
        at = bisect_left(self.times, moment)
        if at == len(self.times) or self.times[at] != moment:
            self.times.insert(at, moment)
            self.used.insert(at, self.used[at - 1])
        return at

    def kept(self, begin: float = math.inf, end: float = -math.inf) -> float:
        """Seconds from its first task to its last one, perhaps with some more between two moments."""
        return max(0.0, max(self.last, end) - min(self.first, begin))


class _Paths:
    """Assigns the partial critical paths of a workflow to machines.

    Args:
        machines: The workflow and its machines.
        deadline: Seconds, or infinite.
    """

    def __init__(self, machines: MachineArrays, deadline: float) -> None:
        self._machines, self._flow, self._platform = machines, machines.flow, machines.platform
        self._deadline = deadline
        self._classes = self._platform.classes_for(self._flow)
        flow, count = machines.flow, len(machines.flow)
        amounts, rooms = self._platform.scarce(flow)
        self._needs = [(task.cores, *each) for task, each in zip(flow.tasks, amounts.tolist(), strict=True)]
        self._instances = [
            _Instance((vm.slots, *room), vm.boot_seconds)
            for vm, room in zip(self._platform.vms, rooms.tolist(), strict=True)
        ]
        self._least = machines.seconds.min(axis=1)
        starts, children = flow.csr(flow.children)
        self._sending = {
            (task, int(children[at])): float(machines.sending[at])
            for task in range(count)
            for at in range(starts[task], starts[task + 1])
        }
        self._vm = np.full(count, -1, dtype=np.int32)
        self._begin, self._end = np.zeros(count), np.zeros(count)
        self._place = [int(place) for place in flow.places]
        # The earliest end of each task, on the fastest machines as long as it has none; its latest end (equations 1-3).
        self._soonest, self._latest = np.zeros(count), np.full(count, deadline)
        for task in flow.order:
            self._soonest[task] = self._could_end(int(task))
        for task in flow.order[::-1]:
            self._latest[task] = self._must_end(int(task))

    def assigned(self) -> Schedule:
        """All tasks on their machines (algorithms 1 and 2)."""
        flow = self._flow
        leaves = [task for task, children in enumerate(flow.children) if not children]
        stack: list[Sequence[int]] = [leaves]  # what an exit task of no length would wait for, then each task's parents
        while stack:
            open_ones = [task for task in stack[-1] if self._vm[task] < 0]
            if not open_ones:
                stack.pop()
                continue
            path = [self._critical(open_ones, None)]
            while parents := [task for task in flow.parents[path[0]] if self._vm[task] < 0]:
                path.insert(0, self._critical(parents, path[0]))
            placed = self._assign(path)
            self._update(placed)
            stack += [flow.parents[task] for task in reversed(placed)]
        # Where one was late, a child may have been placed before its parent.
        return self._machines.append(by_priority(flow, -self._begin), self._vm)

    def _critical(self, tasks: Iterable[int], child: int | None) -> int:
        """The one from which the results come last."""
        sending = self._sending
        return max(tasks, key=lambda task: (self._soonest[task] + sending.get((task, child or 0), 0.0), -task))

    # ------------------------------------------------------------------ one path to one machine

    def _assign(self, path: list[int]) -> list[int]:
        """Place a path, or as much of its beginning as can be, and say what was placed (algorithm 3)."""
        for tasks in (path, path[:1]):
            offers = [each for vm in self._candidates() if (each := self._offer(tasks, vm)) is not None]
            if offers:
                break
        else:
            offers = [each for vm in self._candidates() if (each := self._offer(tasks, vm, late=True)) is not None]
        # What ends first, if it is late all the same; else what costs least more, and of that what is in use already.
        _, _, _, vm, times = min(offers)
        for task, (begin, end) in zip(tasks, times, strict=True):
            self._instances[vm].take(begin, end, self._needs[task])
            self._vm[task], self._begin[task], self._end[task] = vm, begin, end
        return tasks

    def _candidates(self) -> Iterable[int]:
        """The machines that are in use, and of each kind the first that is not."""
        for alike in self._classes:
            yield from (vm for vm in alike if self._instances[vm].first < math.inf)
            yield from [vm for vm in alike if self._instances[vm].first == math.inf][:1]

    def _offer(
        self, path: Sequence[int], vm: int, *, late: bool = False
    ) -> tuple[float, bool, float, int, list[tuple[float, float]]] | None:
        """Cost of a path on a machine, and the times of its tasks there; None if it does not fit, or not in time."""
        instance, times = self._instances[vm], []
        before = 0.0
        for task in path:
            seconds = self._machines.seconds[task, vm] + self._fetching(task, vm, path)
            if not math.isfinite(seconds):
                return None
            others = (self._soonest[parent] for parent in self._flow.parents[task] if parent not in path)
            begin = instance.earliest(max(before, *others, 0.0), seconds, self._needs[task])
            before = begin + seconds
            if before > self._latest[task] * (1.0 + _CLOSE) and not late:
                return None
            times.append((begin, before))
        money = self._money(vm, instance.kept(times[0][0], before)) - self._money(vm, instance.kept())
        unused = instance.first == math.inf
        return (before, unused, money, vm, times) if late else (round(money, 12), unused, before, vm, times)

    def _money(self, vm: int, kept: float) -> float:
        machine = self._platform.vms[vm]
        if kept <= 0.0:
            return 0.0
        return self._platform.billing.cost(kept + machine.boot_seconds, machine.price_per_hour)

    def _fetching(self, task: int, vm: int, path: Sequence[int]) -> float:
        """Seconds that a machine fetches files of a task under local storage, those left out that are made there."""
        if self._platform.storage != "local":
            return 0.0
        flow, here = self._flow, (*path, *np.flatnonzero(self._vm == vm))
        made = {name for parent in flow.parents[task] if parent in here for name in flow.tasks[parent].outputs}
        return sum(
            self._platform.fetching(flow.sizes.get(name, 0)) for name in flow.real_inputs[task] if name not in made
        )

    # ------------------------------------------------------------------ earliest and latest ends of the others

    def _could_end(self, task: int) -> float:
        if self._vm[task] >= 0:
            return float(self._end[task])
        waits = (self._soonest[parent] + self._sending[parent, task] for parent in self._flow.parents[task])
        return float(max(waits, default=0.0) + self._least[task])

    def _must_end(self, task: int) -> float:
        if self._vm[task] >= 0:
            return float(self._end[task])
        return min((self._before(task, child) for child in self._flow.children[task]), default=self._deadline)

    def _before(self, task: int, child: int) -> float:
        """Latest time at which a task must have ended for one of its children."""
        if self._vm[child] >= 0:
            return float(self._begin[child])  # what it fetches is part of it
        return float(self._latest[child] - self._least[child] - self._sending[task, child])

    def _update(self, placed: Iterable[int]) -> None:
        """Reckon again what follows from tasks that were placed, as far as it changes anything."""
        flow = self._flow
        for task in placed:
            self._soonest[task] = self._latest[task] = self._end[task]
        for values, turn, follows, comes in (
            (self._soonest, 1, flow.children, self._could_end),
            (self._latest, -1, flow.parents, self._must_end),
        ):
            waiting = sorted({(turn * self._place[each], each) for task in placed for each in follows[task]})
            known = {task for _, task in waiting}
            while waiting:
                _, task = heapq.heappop(waiting)
                known.discard(task)
                new = comes(task)
                if new != values[task]:
                    values[task] = new
                    for each in follows[task]:
                        if each not in known:
                            known.add(each)
                            heapq.heappush(waiting, (turn * self._place[each], each))
