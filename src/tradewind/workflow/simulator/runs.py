"""One workflow simulated several times: each with its own luck."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from tradewind.workflow.bounds import lower_bound
from tradewind.workflow.clustering.clustered import Clustered
from tradewind.workflow.clustering.methods import cluster
from tradewind.workflow.graph import Workflow
from tradewind.workflow.plan import Figures, Schedule, figures
from tradewind.workflow.planner.base import Online, Planner
from tradewind.workflow.platform import Platform
from tradewind.workflow.simulator.reference import Director, Following, simulate
from tradewind.workflow.simulator.world import World


@dataclass(frozen=True)
class Case:
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
class Result:
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
    figures: tuple[Figures, ...]
    seeds: tuple[int, ...]
    notes: tuple[tuple[str, str], ...] = ()


def run(case: Case, world: World, repeat: int, clustering: str | None = None, joining: Sequence[float] = ()) -> Result:
    """Simulate a case.

    Args:
        case: The case.
        world: What is not as planned; its seed is that of the first simulation, each further one has the next.
        repeat: How many simulations.
        clustering: Tasks are put together first; see `tradewind.workflow.clustering.methods.cluster`.
        joining: Seconds more for each job of several tasks.

    Raises:
        WorkflowError: A task fits on no machine, the plan contradicts the graph, or there is no such clustering.
    """
    clustered = None if clustering is None else cluster(case.flow, clustering, joining)
    flow = case.flow if clustered is None else clustered.flow
    director = _directors(case, flow)
    bound = lower_bound(case.flow, case.platform)
    first: Schedule | None = None
    found = []
    for place in range(repeat):
        jobs = simulate(flow, case.platform, director(), replace(world, seed=world.seed + place))
        tasks = jobs if clustered is None else clustered.unfold(jobs)
        first = tasks if first is None else first
        found.append(figures(case.flow, case.platform, tasks, bound))
    assert first is not None
    seeds = tuple(range(world.seed, world.seed + repeat))
    return Result(case.platform, first, tuple(found), seeds, _notes(first, clustered))


def _directors(case: Case, flow: Workflow) -> Callable[[], Director]:
    """Who decides in each simulation: the plan, or a planner that goes on deciding, or its plan."""
    if case.schedule is not None:
        schedule = case.schedule
        return lambda: Following(schedule)
    assert case.make is not None
    planner = case.make()
    if isinstance(planner, Online):
        online = planner
        return lambda: online.director(flow, case.platform)
    planned = planner.plan(flow, case.platform)
    return lambda: Following(planned)


def _notes(schedule: Schedule, clustered: Clustered | None) -> tuple[tuple[str, str], ...]:
    notes = []
    if clustered is not None:
        several = sum(len(group) > 1 for group in clustered.members)
        notes.append(("jobs", f"{len(clustered.flow):,}, {several:,} of them of several tasks"))
    again = int(np.maximum(schedule.attempts - 1, 0).sum())
    if again:
        notes.append(("repeated", f"{again:,} attempts failed"))
    return tuple(notes)


def spread(values: Sequence[float]) -> tuple[float, float, float, float, float]:
    """Mean, the bounds of the middle 90 %, least and most."""
    low, high = np.quantile(values, [0.05, 0.95])
    return float(np.mean(values)), float(low), float(high), min(values), max(values)


def to_json(case: Case, result: Result) -> dict[str, Any]:
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
