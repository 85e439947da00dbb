"""A schedule: the machine, start and end of every task, with its figures and its rules."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tradewind.errors import WorkflowError
from tradewind.utils.units import count
from tradewind.workflow.graph import Indices, Numbers, Workflow
from tradewind.workflow.platform import Platform
from tradewind.workflow.readers.yaml_lines import finite

FORMAT = "tradewind-plan-1"

AHEAD_SECONDS = 60.0
"""Least seconds before its first task at which a machine is requested, unless a run says so."""

_TIMES = ("start", "finish")

_DEEPEST = 2
"""Depth of a plan's JSON below which everything stands on one line."""


class RepeatedAttempt(NamedTuple):
    """An attempt at a task that had to be repeated: it failed, or its machine was lost.

    Attributes:
        task: The task.
        vm: The machine that the attempt occupied.
        start: Begin of the attempt, in seconds.
        finish: End of the attempt, in seconds.
    """

    task: int
    vm: int
    start: float
    finish: float


@dataclass(frozen=True)
class Schedule:
    """Machine, start and end of each task; planned, simulated or measured.

    Attributes:
        vm: The machine of each task.
        start: Time at which each task begins to occupy its machine, in seconds; reading its inputs is part of it.
        finish: Time at which it has ended, in seconds.
        attempts: Number of starts of each task; 1 where nothing failed.
        repeated: The attempts before the last one of their task; they occupied machines too.
        failed: Tasks whose last attempt failed, too; it is the one that the schedule has.
        skipped: Tasks that did not run, because they need one that failed; their machine is -1.
    """

    vm: Indices
    start: Numbers
    finish: Numbers
    attempts: Indices = field(default_factory=lambda: np.zeros(0, dtype=np.int32))
    repeated: tuple[RepeatedAttempt, ...] = ()
    failed: tuple[int, ...] = ()
    skipped: tuple[int, ...] = ()

    @cached_property
    def makespan(self) -> float:
        """Seconds from the beginning to the end of the last task."""
        return float(self.finish.max()) if len(self.finish) else 0.0

    @cached_property
    def order(self) -> Mapping[int, tuple[int, ...]]:
        """The tasks of each machine that has any, in the order of their starts."""
        return self._by_machine(np.lexsort((self.finish, self.start)))

    def order_in(self, flow: Workflow) -> Mapping[int, tuple[int, ...]]:
        """As `order`, and of tasks of no length that share a moment, parents first: an order that can be kept."""
        return self._by_machine(self.sequence(flow))

    def _by_machine(self, sequence: Indices | NDArray[np.intp]) -> Mapping[int, tuple[int, ...]]:
        found: dict[int, list[int]] = {}
        for task in sequence[self.vm[sequence] >= 0]:
            found.setdefault(int(self.vm[task]), []).append(int(task))
        return {vm: tuple(tasks) for vm, tasks in sorted(found.items())}

    def sequence(self, flow: Workflow) -> Indices:
        """All tasks in the order of their starts; of those that start together, tasks of no length and parents first.

        A run that follows a plan keeps this order, and comes to the plan's times.
        """
        place = np.empty(len(flow), dtype=np.int32)
        place[flow.order] = np.arange(len(flow))
        return np.lexsort((place, self.finish > self.start, self.start)).astype(np.int32)


@dataclass(frozen=True, slots=True)
class ScheduleFigures:
    """The figures that are computed of every schedule.

    Attributes:
        makespan: Seconds from the beginning to the end of the last task.
        lower_bound: Seconds that no schedule on these machines can beat.
        gap: Excess of the makespan over the bound, as a share of the bound.
        serial: Seconds that the tasks take one after the other, each on its machine: what paper 3's table shows.
            Attempts that were repeated are in it, as they are in utilisation and cost.
        speedup: Serial time on the fastest machine over the makespan.
        utilisation: Share of the machines' slot time, until the end, in which tasks ran.
        cost: USD, every machine kept from its first task to its last.
    """

    makespan: float
    lower_bound: float
    gap: float
    serial: float
    speedup: float
    utilisation: float
    cost: float


def figures(flow: Workflow, platform: Platform, schedule: Schedule, lower_bound: float) -> ScheduleFigures:
    """Compute the figures of a schedule.

    Args:
        flow: The workflow.
        platform: The machines that its tasks run on.
        schedule: The schedule of all its tasks; those that were skipped count nothing.
        lower_bound: Seconds, of `tradewind.workflow.bounds.lower_bound`.
    """
    again, ran = schedule.repeated, np.delete(np.arange(len(flow)), np.array(schedule.skipped, dtype=np.intp))
    start = np.concatenate([schedule.start[ran], [each.start for each in again]])
    finish = np.concatenate([schedule.finish[ran], [each.finish for each in again]])
    spans = finish - start
    cores = np.array([flow.tasks[task].cores for task in (*ran, *(each.task for each in again))])
    slots = sum(vm.slots for vm in platform.vms)
    fastest = float((flow.runtimes / platform.speeds.max()).sum() + platform.reading(flow).sum())
    vm = np.concatenate([schedule.vm[ran], np.array([each.vm for each in again], dtype=np.int32)])
    first, last = np.full(len(platform.vms), np.inf), np.full(len(platform.vms), -np.inf)
    np.minimum.at(first, vm, start)
    np.maximum.at(last, vm, finish)
    kept = np.maximum(last - first, 0.0)
    makespan = schedule.makespan
    return ScheduleFigures(
        makespan=makespan,
        lower_bound=lower_bound,
        gap=makespan / lower_bound - 1.0 if lower_bound > 0 else 0.0,
        serial=float(spans.sum()),
        speedup=fastest / makespan if makespan > 0 else 1.0,
        utilisation=float((spans * cores).sum() / (makespan * slots)) if makespan > 0 else 0.0,
        cost=platform.cost(kept),
    )


def vm_request_times(platform: Platform, schedule: Schedule, ahead: float | None = AHEAD_SECONDS) -> Numbers:
    """Compute the times at which a run requests each machine of a plan, in seconds from its beginning.

    One that costs money is asked for so long before its first task that it has twice the time that it takes to boot,
    and at least ``ahead``; one that costs nothing at the beginning.

    Args:
        platform: The machines.
        schedule: The plan.
        ahead: Seconds; None asks for all at the beginning.
    """
    asked = np.zeros(len(platform.vms))
    if ahead is None:
        return asked
    first = np.full(len(platform.vms), np.inf)
    np.minimum.at(first, schedule.vm, schedule.start)
    for place, vm in enumerate(platform.vms):
        if vm.price_per_hour > 0 and np.isfinite(first[place]):
            asked[place] = max(0.0, first[place] - max(2.0 * vm.boot_seconds, ahead))
    return asked


def held_cost(
    platform: Platform, schedule: Schedule, *, give_back: bool = True, ahead: float | None = AHEAD_SECONDS
) -> float:
    """Compute the USD for the machines of a plan as a run holds them, each from the moment at which it is asked for.

    `ScheduleFigures.cost` counts each from its first task on: with a machine that comes no moment too early.

    Args:
        platform: The machines.
        schedule: The plan; a machine without a task is not asked for.
        give_back: True when each is given back after its last task, and not after the last of all.
        ahead: See `vm_request_times`.
    """
    ends = np.zeros(len(platform.vms))
    np.maximum.at(ends, schedule.vm, schedule.finish if give_back else schedule.makespan)
    boots = np.array([vm.boot_seconds for vm in platform.vms])
    # What a machine takes to come is added by `Platform.cost`.
    return platform.cost(np.maximum(ends - vm_request_times(platform, schedule, ahead) - boots, 0.0))


def check(flow: Workflow, platform: Platform, schedule: Schedule, tolerance: float = 1e-6) -> None:
    """Check that a schedule keeps every rule.

    Raises:
        WorkflowError: A task has no machine or one that it does not fit on, begins before a parent has ended, or a
            machine runs more than it can.
    """
    if not len(schedule.vm) == len(schedule.start) == len(schedule.finish) == len(flow):
        raise WorkflowError(f"the plan has {count(len(schedule.vm), 'task')}, and workflow {flow.name} has {len(flow)}")
    for task, vm in enumerate(schedule.vm):
        if not 0 <= vm < len(platform.vms):
            raise WorkflowError(f"task {flow.tasks[task].id!r} is on machine {vm}, which is not there")
        _check_fit(flow, platform, task, int(vm))
        for parent in flow.parents[task]:
            if schedule.start[task] < schedule.finish[parent] - tolerance:
                late = flow.tasks[parent].id
                raise WorkflowError(f"task {flow.tasks[task].id!r} begins before its parent {late!r} has ended")
    amounts, rooms = platform.scarce(flow)
    cores = np.array([task.cores for task in flow.tasks], dtype=np.int64)
    names = platform.scarce_names(flow)
    for vm, tasks in schedule.order.items():
        machine = platform.vms[vm]
        others = zip(amounts.T, rooms[vm].tolist(), names, strict=True)
        for needs, has, what in ((cores, machine.slots, "slots"), *others):
            moment = _overfull(schedule, tasks, needs, has, tolerance)
            if moment is not None:
                raise WorkflowError(f"machine {machine.name!r} runs more than it has {what} for at {moment:.3f} s")


def _check_fit(flow: Workflow, platform: Platform, task: int, vm: int, file: str | None = None) -> None:
    if why := platform.misfit(flow, task, vm):
        where = platform.vms[vm].name
        raise WorkflowError(
            f"task {flow.tasks[task].id!r} is planned on machine {where!r}, where it does not fit: {why}",
            file=file,
            hint="plan it again: tradewind workflow plan gives each task a machine that it fits on",
        )


def _overfull(
    schedule: Schedule, tasks: Sequence[int], needs: NDArray[np.int64], has: int, tolerance: float
) -> float | None:
    """First time at which some tasks take more than their machine has, or None."""
    events = [(float(schedule.start[task]) + tolerance, int(needs[task])) for task in tasks]
    events += [(float(schedule.finish[task]), -int(needs[task])) for task in tasks]
    used = 0
    for moment, change in sorted(events):
        used += change
        if used > has:
            return moment
    return None


def to_json(flow: Workflow, platform: Platform, schedule: Schedule, planner: str) -> dict[str, Any]:
    """Write a plan as a document that people can read and another process can carry out."""
    return {
        "format": FORMAT,
        "workflow": flow.name,
        "planner": planner,
        "makespan": schedule.makespan,
        "vms": [
            {
                "name": vm.name,
                "kind": vm.kind,
                "speed": vm.speed,
                "slots": vm.slots,
                "price_per_hour": vm.price_per_hour,
            }
            for vm in platform.vms
        ],
        "tasks": [
            {
                "task": flow.tasks[task].id,
                "vm": platform.vms[schedule.vm[task]].name,
                "start": float(schedule.start[task]),
                "finish": float(schedule.finish[task]),
            }
            for task in map(int, schedule.sequence(flow))
        ],
    }


def from_json(document: Any, flow: Workflow, platform: Platform, *, file: str) -> Schedule:
    """Read the schedule of a plan; the order of its tasks on a machine is that of their starts.

    Raises:
        WorkflowError: The document is no plan, or not one of this workflow on these machines; or it gives a task a
            machine that the task does not fit on.
    """
    if not isinstance(document, Mapping) or document.get("format") != FORMAT:
        raise WorkflowError(f"it is no plan: its 'format' is not {FORMAT}", file=file)
    names = {vm.name: place for place, vm in enumerate(platform.vms)}
    vm = np.full(len(flow), -1, dtype=np.int32)
    start, finish = np.zeros(len(flow)), np.zeros(len(flow))
    try:
        for row in document["tasks"]:
            if row["task"] not in flow.index:
                raise WorkflowError(f"workflow {flow.name} has no task {row['task']!r}", file=file)
            if row["vm"] not in names:
                raise WorkflowError(
                    f"there is no machine {row['vm']!r}", file=file, hint=f"there are {', '.join(names)}"
                )
            task = flow.index[row["task"]]
            if vm[task] >= 0:
                raise WorkflowError(f"task {row['task']!r} is planned twice", file=file)
            vm[task] = names[row["vm"]]
            _check_fit(flow, platform, task, int(vm[task]), file)
            start[task], finish[task] = (finite(row[key], f"the {key} of {row['task']!r}") for key in _TIMES)
            if finish[task] < start[task]:
                raise ValueError(f"{row['task']!r} ends at {finish[task]:g} s, before it begins at {start[task]:g} s")
    except (KeyError, TypeError, ValueError) as error:
        raise WorkflowError(f"a row of its tasks is not as it should be: {error}", file=file) from None
    missing = [flow.tasks[task].id for task in np.flatnonzero(vm < 0)]
    if missing:
        raise WorkflowError(
            f"the plan has no machine for {count(len(missing), 'task')}, the first is {missing[0]!r}", file=file
        )
    return Schedule(vm, start, finish)


def dump(document: Mapping[str, Any]) -> str:
    """Write a plan as text, one task, machine or file a line."""
    return _lines(document, 0) + "\n"


def _lines(value: Any, depth: int) -> str:
    """JSON in which what is not nested deeply stands on a line of its own."""
    items = list(value.items() if isinstance(value, Mapping) else value) if isinstance(value, Mapping | list) else []
    long = depth == 0 or any(isinstance(each, Mapping | list) for each in _members(value)) or len(items) > 20
    if not items or not long or depth > _DEEPEST:
        return json.dumps(value)
    inner = " " * (depth + 1)
    if isinstance(value, Mapping):
        rows = [f"{json.dumps(str(key))}: {_lines(each, depth + 1)}" for key, each in value.items()]
        return "{\n" + ",\n".join(inner + row for row in rows) + f"\n{' ' * depth}}}"
    return "[\n" + ",\n".join(inner + _lines(each, depth + 1) for each in value) + f"\n{' ' * depth}]"


def _members(value: Any) -> Sequence[Any]:
    return list(value.values()) if isinstance(value, Mapping) else value if isinstance(value, list) else []
