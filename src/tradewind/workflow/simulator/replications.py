"""One workflow simulated several times: each with its own luck."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from tradewind.utils.units import count
from tradewind.workflow.bounds import lower_bound
from tradewind.workflow.clustering.clustered import ClusteredWorkflow
from tradewind.workflow.graph import Numbers, Workflow
from tradewind.workflow.planner.base import Online, Planner
from tradewind.workflow.platform import Platform
from tradewind.workflow.schedule import Schedule, ScheduleFigures, figures
from tradewind.workflow.simulator.compiled import CompiledSimulator
from tradewind.workflow.simulator.reference import ScheduleDirector, simulate
from tradewind.workflow.simulator.task_clustering import cluster
from tradewind.workflow.simulator.world import World


@dataclass(frozen=True)
class SimulationCase:
    """What is to be simulated.

    Attributes:
        flow: The workflow.
        platform: Its machines.
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
    """What came of it.

    Attributes:
        platform: The machines.
        schedule: When and where each task ran, in the first simulation.
        figures: The figures of each simulation.
        seeds: The seed of each.
        notes: Names and values of what else there is to say.
    """

    platform: Platform
    schedule: Schedule
    figures: tuple[ScheduleFigures, ...]
    seeds: tuple[int, ...]
    notes: tuple[tuple[str, str], ...] = ()


def simulate_repeatedly(
    case: SimulationCase, world: World, repeat: int, clustering: str | None = None, joining: Sequence[float] = ()
) -> ReplicationResult:
    """Simulate a case.

    Args:
        case: The case.
        world: What is not as planned; its seed is that of the first simulation, each further one has the next.
        repeat: How many simulations.
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
    found = []
    for place in range(repeat):
        jobs = simulation(replace(world, seed=world.seed + place))
        tasks = jobs if clustered is None else clustered.unfold(jobs)
        first = tasks if first is None else first
        found.append(figures(case.flow, case.platform, tasks, bound))
    assert first is not None
    seeds = tuple(range(world.seed, world.seed + repeat))
    return ReplicationResult(case.platform, first, tuple(found), seeds, _notes(first, clustered))


def _simulation(case: SimulationCase, flow: Workflow, world: World) -> Callable[[World], Schedule]:
    """What simulates: with the plan, or a planner that goes on deciding, or its plan.

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
    """What each task's time is multiplied with."""
    if not world.noise:
        return None
    return np.array([world.luck(task, 0)[0] for task in range(len(flow))])


def _notes(schedule: Schedule, clustered: ClusteredWorkflow | None) -> tuple[tuple[str, str], ...]:
    notes = []
    if clustered is not None:
        several = sum(len(group) > 1 for group in clustered.members)
        notes.append(("jobs", f"{len(clustered.flow):,}, {several:,} of them of several tasks"))
    again = int(np.maximum(schedule.attempts - 1, 0).sum())
    if again:
        notes.append(("repeated", f"{count(again, 'attempt')} failed"))
    return tuple(notes)


def spread(values: Sequence[float]) -> tuple[float, float, float, float, float]:
    """Mean, the bounds of the middle 90 %, least and most."""
    low, high = np.quantile(values, [0.05, 0.95])
    return float(np.mean(values)), float(low), float(high), min(values), max(values)


def to_json(case: SimulationCase, result: ReplicationResult) -> dict[str, Any]:
    """A result as a document."""
    schedule, vms = result.schedule, result.platform.vms
    names = ("mean", "low", "high", "least", "most")
    return {
        "workflow": case.flow.name,
        "planner": case.planner,
        "planned_makespan": None if case.planned is None else case.planned.makespan,
        "figures": asdict(result.figures[0]),
        "runs": [
            {"seed": seed, **asdict(each)} for seed, each in zip(result.seeds, result.figures, strict=True)
        ],
        "spread": {
            name: dict(zip(names, spread([getattr(each, name) for each in result.figures]), strict=True))
            for name in ("makespan", "gap", "utilisation", "cost")
        },
        "notes": dict(result.notes),
        "warnings": list(case.flow.warnings),
        "tasks": [
            {
                "task": case.flow.tasks[task].id,
                "vm": vms[schedule.vm[task]].name,
                "start": float(schedule.start[task]),
                "finish": float(schedule.finish[task]),
                "attempts": int(schedule.attempts[task]) if len(schedule.attempts) else 1,
            }
            for task in map(int, schedule.sequence(case.flow))
        ],
    }  # fmt: skip
