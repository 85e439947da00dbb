"""Simulates one workflow several times, each with its own luck."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from tradewind.errors import WorkflowError
from tradewind.utils.units import count, listed
from tradewind.workflow.bounds import lower_bound
from tradewind.workflow.graph import Numbers, Workflow
from tradewind.workflow.planner.base import Online, Planner
from tradewind.workflow.platform import Platform
from tradewind.workflow.schedule import Schedule, ScheduleFigures, figures
from tradewind.workflow.simulator.compiled import CompiledSimulator
from tradewind.workflow.simulator.reference import ScheduleDirector, simulate
from tradewind.workflow.simulator.task_clustering import ClusteredWorkflow, cluster
from tradewind.workflow.simulator.workflowsim import LOCAL_RATE, POLICIES, SHARED_RATE, WorkflowSim, WorkflowSimVm
from tradewind.workflow.simulator.world import World


@dataclass(frozen=True)
class SimulationCase:
    """A workflow, its machines, and the plan or the planner to simulate.

    Attributes:
        flow: The workflow.
        platform: The machines that its tasks run on.
        schedule: The plan to follow, on these machines; None where a planner decides.
        planned: The same with its planned times, to be compared with.
        planner: The planner's name.
        make: Makes the planner; None with a plan.
    """

    flow: Workflow
    platform: Platform
    schedule: Schedule | None
    planned: Schedule | None
    planner: str
    make: Callable[[], Planner] | None


@dataclass(frozen=True)
class ReplicationResult:
    """Result of repeated simulations.

    Attributes:
        platform: The machines.
        schedule: The schedule of the first simulation.
        figures: The figures of each simulation.
        seeds: The seed of each simulation.
        failed: The tasks that failed for good in each simulation.
        skipped: The tasks that did not run in each, because they need one of those.
        notes: Names and values of further remarks.
    """

    platform: Platform
    schedule: Schedule
    figures: tuple[ScheduleFigures, ...]
    seeds: tuple[int, ...]
    failed: tuple[tuple[int, ...], ...] = ()
    skipped: tuple[tuple[int, ...], ...] = ()
    notes: tuple[tuple[str, str], ...] = ()

    @property
    def whole(self) -> tuple[ScheduleFigures, ...]:
        """The figures of the simulations in which no task failed for good."""
        return tuple(each for place, each in enumerate(self.figures) if not self._lost(self.failed, place))

    def lost(self, place: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The tasks of a simulation that failed for good, and those that did not run because of them."""
        return self._lost(self.failed, place), self._lost(self.skipped, place)

    def _lost(self, tasks: tuple[tuple[int, ...], ...], place: int) -> tuple[int, ...]:
        return tasks[place] if tasks else ()


def simulate_repeatedly(
    case: SimulationCase, world: World, repeat: int, clustering: str | None = None, joining: Sequence[float] = ()
) -> ReplicationResult:
    """Simulate a case several times.

    Args:
        case: The case.
        world: Deviations from the plan; its seed is that of the first simulation, each further one has the next.
        repeat: Number of simulations.
        clustering: Tasks are put together first; see `tradewind.workflow.simulator.task_clustering.cluster`.
        joining: Seconds more for each job of several tasks.

    Raises:
        WorkflowError: A task fits on no machine, the plan contradicts the graph, or there is no such clustering.
    """
    clustered = None if clustering is None else cluster(case.flow, clustering, joining)
    flow = case.flow if clustered is None else clustered.flow
    simulation = _simulation(case, flow, world)
    bound = lower_bound(case.flow, case.platform)
    first: Schedule | None = None
    found, failed, skipped = [], [], []
    for place in range(repeat):
        jobs = simulation(replace(world, seed=world.seed + place))
        tasks = jobs if clustered is None else clustered.unfold(jobs)
        first = tasks if first is None else first
        found.append(figures(case.flow, case.platform, tasks, bound))
        failed.append(tasks.failed)
        skipped.append(tasks.skipped)
    assert first is not None
    seeds = tuple(range(world.seed, world.seed + repeat))
    notes = _notes(case.flow, first, clustered)
    return ReplicationResult(case.platform, first, tuple(found), seeds, tuple(failed), tuple(skipped), notes)


def _simulation(case: SimulationCase, flow: Workflow, world: World) -> Callable[[World], Schedule]:
    """Make the function that simulates a world: with the plan, a planner that goes on deciding, or its plan.

    A plan in a world of noise and delays only is followed by the compiled simulator, which comes to the same times.
    """
    platform, schedule = case.platform, case.schedule
    if schedule is None:
        assert case.make is not None
        planner = case.make()
        if isinstance(planner, Online):
            online = planner
            return lambda given: simulate(flow, platform, online.director(flow, platform), given)
        schedule = planner.plan(flow, platform)
    planned = schedule
    if world.failure or world.unknown or world.drift or world.migration:
        return lambda given: simulate(flow, platform, ScheduleDirector(planned), given)
    compiled = CompiledSimulator(flow, platform, world.delays)
    return lambda given: compiled.follow(planned, _noise(flow, given))


def _noise(flow: Workflow, world: World) -> Numbers | None:
    """Draw the factor of each task's time; None without noise."""
    if not world.noise:
        return None
    return np.array([world.luck(task, 0)[0] for task in range(len(flow))])


def _notes(flow: Workflow, schedule: Schedule, clustered: ClusteredWorkflow | None) -> tuple[tuple[str, str], ...]:
    notes = []
    if clustered is not None:
        several = sum(len(group) > 1 for group in clustered.members)
        notes.append(("jobs", f"{len(clustered.flow):,}, {several:,} of them of several tasks"))
    again = int(np.maximum(schedule.attempts - 1, 0).sum())
    if again:
        notes.append(("repeated", f"{count(again, 'attempt')} failed"))
    if schedule.failed:
        attempts = [(flow.tasks[task].id, count(int(schedule.attempts[task]), "attempt")) for task in schedule.failed]
        times = [f"{task} ({tries})" for task, tries in attempts]
        notes.append(("failed", f"for good: {listed(times)}"))
    if schedule.skipped:
        names = [flow.tasks[task].id for task in schedule.skipped]
        notes.append(("not run", f"they need what failed: {listed(names)}"))
    return tuple(notes)


def spread(values: Sequence[float]) -> tuple[float, float, float, float, float]:
    """Mean, the bounds of the middle 90 %, least and most."""
    low, high = np.quantile(values, [0.05, 0.95])
    return float(np.mean(values)), float(low), float(high), min(values), max(values)


def to_json(case: SimulationCase, result: ReplicationResult) -> dict[str, Any]:
    """Write a result as a JSON-able document.

    The makespan of a simulation in which a task failed for good is the time until nothing more could run; it has no
    gap and no speed-up, and is not in the spread.
    """
    schedule, whole = result.schedule, result.whole
    names = ("mean", "low", "high", "least", "most")
    ids = [task.id for task in case.flow.tasks]
    failed, skipped = result.lost(0)
    return {
        "workflow": case.flow.name,
        "planner": case.planner,
        "planned_makespan": None if case.planned is None else case.planned.makespan,
        "figures": _figures_document(result, 0),
        "failed": [{"task": ids[task], "attempts": int(schedule.attempts[task])} for task in failed],
        "skipped": [ids[task] for task in skipped],
        "runs": [
            {
                "seed": seed,
                **_figures_document(result, place),
                "failed": [ids[task] for task in result.lost(place)[0]],
                "skipped": len(result.lost(place)[1]),
            }
            for place, seed in enumerate(result.seeds)
        ],
        "spread": {
            name: dict(zip(names, spread([getattr(each, name) for each in whole]), strict=True)) if whole else None
            for name in ("makespan", "gap", "utilisation", "cost")
        },
        "notes": dict(result.notes),
        "warnings": list(case.flow.warnings),
        "tasks": _rows(case.flow, result),
    }


def _figures_document(result: ReplicationResult, place: int) -> dict[str, Any]:
    found = asdict(result.figures[place])
    return {**found, "gap": None, "speedup": None} if result.lost(place)[0] else found


def _rows(flow: Workflow, result: ReplicationResult) -> list[dict[str, Any]]:
    schedule, vms = result.schedule, result.platform.vms
    failed, skipped = (frozenset(tasks) for tasks in result.lost(0))
    nothing = {"vm": None, "start": None, "finish": None, "attempts": 0, "outcome": "skipped"}
    return [
        {"task": flow.tasks[task].id, **nothing}
        if task in skipped
        else {
            "task": flow.tasks[task].id,
            "vm": vms[schedule.vm[task]].name,
            "start": float(schedule.start[task]),
            "finish": float(schedule.finish[task]),
            "attempts": int(schedule.attempts[task]) if len(schedule.attempts) else 1,
            "outcome": "failed" if task in failed else "done",
        }
        for task in map(int, schedule.sequence(flow))
    ]


WORKFLOWSIM_POLICIES = (*POLICIES, "DHEFT", "HEFT")
"""WorkflowSim's policies and plans. All but HEFT always come to the same result."""


def simulate_like_workflowsim(flow: Workflow, platform: Platform, policy: str) -> ReplicationResult:
    """Simulate a workflow as WorkflowSim 1.0 does: a machine runs one task at a time at the speed of one of its cores.

    A task of several cores takes one. Figures are those of such machines, at WorkflowSim's own bandwidth.

    Args:
        flow: The workflow.
        platform: The machines; speed 1 is 1000 MIPS, and slots are cores, which only say which machine is preferred.
        policy: Policy, by its name in WorkflowSim.

    Raises:
        WorkflowError: WorkflowSim has no such policy, storage is neither shared nor local, or a machine is too small
            for a task: its rules look at nothing but run times.
    """
    if policy not in WORKFLOWSIM_POLICIES:
        hint = f"there are {', '.join(WORKFLOWSIM_POLICIES)}"
        raise WorkflowError(f"--compat workflowsim has no planner {policy or 'yet'!r}", hint=hint)
    if platform.storage == "none":
        raise WorkflowError("WorkflowSim knows shared and local storage only", hint="write storage: shared")
    _check_sizes(flow, platform)
    if flow.priorities:  # it knows none
        flow = replace(flow, tasks=tuple(replace(task, priority=0) for task in flow.tasks))
    vms = [WorkflowSimVm(1000.0 * vm.speed, vm.slots) for vm in platform.vms]
    outcome = WorkflowSim(flow, vms, policy, "SHARED" if platform.storage == "shared" else "LOCAL").run()
    schedule = Schedule(np.array(outcome.vms, dtype=np.int32), np.array(outcome.starts), np.array(outcome.ends))
    rate = SHARED_RATE if platform.storage == "shared" else LOCAL_RATE
    machines = tuple(replace(vm, slots=1, boot_seconds=0.0) for vm in platform.vms)
    single = replace(platform, vms=machines, bandwidth=rate, latency=0.0)
    several = sum(task.cores > 1 for task in flow.tasks)
    narrow = replace(flow, tasks=tuple(replace(task, cores=1) for task in flow.tasks)) if several else flow
    found = figures(narrow, single, schedule, lower_bound(narrow, single))
    notes = [("rules", "those of WorkflowSim 1.0: its clock begins at 0.1 s with a stage-in job")]
    if platform.bandwidth != rate or platform.latency:
        notes.append(("bandwidth", f"{rate:g} MB/s and no latency, as it always has under {platform.storage} storage"))
    if several:
        notes.append(("cores", f"a task takes one there: so do {several:,} that ask for more"))
    if policy == "HEFT":
        notes.append(("ties", "in the order of the file; WorkflowSim's own fall by chance, and its makespan with them"))
    return ReplicationResult(single, schedule, (found,), (0,), notes=tuple(notes))


def _check_sizes(flow: Workflow, platform: Platform) -> None:
    """Refuse machines that are too small for a task in anything but cores."""
    for place in (1, 2, 3):
        small = min(platform.vms, key=lambda vm: vm.size[place])
        if flow.needs[place] > small.size[place]:
            number = next(n for n, task in enumerate(flow.tasks) if task.amounts[place - 1] == flow.needs[place])
            narrow = replace(flow, tasks=tuple(replace(task, cores=1) for task in flow.tasks))
            why = platform.misfit(narrow, number, platform.vms.index(small))
            raise WorkflowError(
                f"WorkflowSim puts any task on any machine: task {flow.tasks[number].id!r} does not fit on machine "
                f"{small.name!r}: {why}",
                hint="leave out --compat, or machines that are too small; the planner workflowsim puts tasks where "
                "they fit",
            )
