"""A workflow of jobs, each of which runs several tasks one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tradewind.workflow.graph import Numbers, Task, Workflow
from tradewind.workflow.schedule import RepeatedAttempt, Schedule


@dataclass(frozen=True)
class ClusteredWorkflow:
    """A workflow whose tasks were put together.

    Attributes:
        original: The workflow as it was.
        flow: The same with one task for each job.
        members: The tasks of each job, in the order in which it runs them.
    """

    original: Workflow
    flow: Workflow
    members: tuple[tuple[int, ...], ...]

    def unfold(self, schedule: Schedule) -> Schedule:
        """The schedule of the original tasks, from that of the jobs.

        A job's time is shared out by the run times of its tasks; what it takes to fetch files and to begin is spread
        over them. An attempt at a job that was repeated is shared out in the same way.
        """
        count = len(self.original)
        vm = np.full(count, -1, dtype=np.int32)
        start, finish = np.zeros(count), np.zeros(count)
        attempts = np.ones(count, dtype=np.int32)
        for job, tasks in enumerate(self.members):
            ends = self._ends(job, schedule.finish[job] - schedule.start[job])
            for place, task in enumerate(tasks):
                vm[task] = schedule.vm[job]
                start[task] = schedule.start[job] + (ends[place - 1] if place else 0.0)
                finish[task] = schedule.start[job] + ends[place] if place + 1 < len(tasks) else schedule.finish[job]
                if len(schedule.attempts):
                    attempts[task] = schedule.attempts[job]
        repeated = []
        for each in schedule.repeated:
            moments = [each.start, *(each.start + self._ends(each.task, each.finish - each.start)[:-1]), each.finish]
            for place, task in enumerate(self.members[each.task]):
                repeated.append(RepeatedAttempt(task, each.vm, float(moments[place]), float(moments[place + 1])))
        return Schedule(vm, start, finish, attempts, tuple(repeated))

    def _ends(self, job: int, seconds: float) -> Numbers:
        """When each task of a job ends, of a job that takes so many seconds."""
        runtimes = self.original.runtimes[list(self.members[job])]
        weights = runtimes if runtimes.sum() > 0 else np.ones(len(runtimes))
        ends = np.cumsum(weights) / weights.sum() * seconds
        ends[-1] = seconds  # exactly
        return np.asarray(ends)


def merge_tasks(
    flow: Workflow, groups: Sequence[Sequence[int]], delay: float | Sequence[float] = 0.0
) -> ClusteredWorkflow:
    """A workflow with one task for each group of tasks.

    A job takes the sum of its tasks' run times, the most cores and memory of any of them, and the delay where it has
    several tasks. It reads what its tasks read and none of them writes.

    Args:
        flow: The workflow.
        groups: Every task in one group; no group may wait for itself through another one.
        delay: Seconds, on the reference machine, that a job of several tasks takes more; a list has one figure for
            each depth, the last for all below.

    Raises:
        WorkflowError: A group waits for itself through another one.
    """
    place = np.empty(len(flow), dtype=np.int64)
    place[flow.order] = np.arange(len(flow))
    members = [tuple(sorted(group, key=lambda task: int(place[task]))) for group in groups]
    # Jobs in the order of their first tasks in the file: a job of one task stays where it was.
    members.sort(key=min)
    job_of = {task: job for job, tasks in enumerate(members) for task in tasks}
    tasks, parents = [], []
    for job, inside in enumerate(members):
        tasks.append(flow.tasks[inside[0]] if len(inside) == 1 else _job(flow, inside, delay))
        parents.append(tuple(sorted({job_of[parent] for task in inside for parent in flow.parents[task]} - {job})))
    clustered = Workflow(flow.name, tuple(tasks), tuple(parents), flow.sizes, flow.warnings)
    return ClusteredWorkflow(flow, clustered, tuple(members))


def _job(flow: Workflow, inside: tuple[int, ...], delay: float | Sequence[float]) -> Task:
    tasks = [flow.tasks[task] for task in inside]
    more = float(delay) if isinstance(delay, int | float) else _at_depth(delay, int(flow.depth[inside[0]]))
    written = dict.fromkeys(name for task in tasks for name in task.outputs)
    read = dict.fromkeys(name for task in tasks for name in task.inputs if name not in written)
    kinds = dict.fromkeys(task.activity for task in tasks)
    memories = [task.memory_bytes for task in tasks if task.memory_bytes is not None]
    return Task(
        "+".join(task.id for task in tasks) if len(tasks) <= 3 else f"{tasks[0].id}+{len(tasks) - 1}",
        "+".join(kinds),
        sum(task.runtime for task in tasks) + more,
        tuple(read),
        tuple(written),
        max(task.cores for task in tasks),
        max(memories, default=None),
    )


def _at_depth(delay: Sequence[float], depth: int) -> float:
    return float(delay[min(depth, len(delay) - 1)]) if delay else 0.0
