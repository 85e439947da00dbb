"""Merges tasks into jobs: horizontal, vertical, block and balanced clustering.

Chen, Ferreira da Silva, Deelman and Sakellariou, "Balanced task clustering in scientific workflows", IEEE e-Science
2013; horizontal and vertical clustering are those of Pegasus and WorkflowSim.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tradewind.errors import WorkflowError
from tradewind.utils.suggestions import did_you_mean
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
        over them. An attempt at a job that was repeated is shared out in the same way. All tasks of a job that failed
        have failed.
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
        failed, skipped = (
            tuple(sorted(task for job in jobs for task in self.members[job]))
            for jobs in (schedule.failed, schedule.skipped)
        )
        return Schedule(vm, start, finish, attempts, tuple(repeated), failed, skipped)

    def _ends(self, job: int, seconds: float) -> Numbers:
        """Seconds after its start at which each task of a job ends, of a job that takes so many seconds."""
        runtimes = self.original.runtimes[list(self.members[job])]
        weights = runtimes if runtimes.sum() > 0 else np.ones(len(runtimes))
        ends = np.cumsum(weights) / weights.sum() * seconds
        ends[-1] = seconds  # exactly
        return np.asarray(ends)


def merge_tasks(
    flow: Workflow, groups: Sequence[Sequence[int]], delay: float | Sequence[float] = 0.0
) -> ClusteredWorkflow:
    """Merge each group of tasks into one task.

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


Groups = list[list[int]]


@dataclass(frozen=True, slots=True)
class JobLimit:
    """Limit of the number, or of the size, of the jobs of a level.

    Attributes:
        number: Jobs of each level at most, or None.
        size: Tasks of each job at most, or None.
    """

    number: int | None = None
    size: int | None = None

    def jobs(self, tasks: int) -> int:
        """Number of jobs that so many tasks of a level become."""
        if self.number is not None:
            return min(tasks, self.number)
        return math.ceil(tasks / (self.size or 1))


def cluster(flow: Workflow, method: str, delay: float | Sequence[float] = 0.0) -> ClusteredWorkflow:
    """Put tasks of a workflow together by a method.

    Args:
        flow: The workflow.
        method: ``vertical``, or another one with the jobs of each level at most (``horizontal:4``) or the tasks of
            each job at most (``horizontal:size=4``): ``horizontal``, ``block``, ``balanced`` (of run times),
            ``impact``, ``distance``.
        delay: Seconds more for each job of several tasks; see `merge_tasks`.

    Raises:
        WorkflowError: There is no such method, or its number is none.
    """
    name, colon, words = method.partition(":")
    if name not in METHODS:
        raise WorkflowError(f"there is no clustering {name!r}", hint=did_you_mean(name, METHODS, "there are"))
    if name == "vertical":
        if colon:
            raise WorkflowError(f"{method!r}: vertical clustering has no number", hint="write vertical")
        return merge_tasks(flow, vertical(flow), delay)
    return merge_tasks(flow, METHODS[name](flow, _bound(method, words)), delay)


def _bound(method: str, words: str) -> JobLimit:
    kind, equals, text = words.rpartition("=")
    number = int(text) if text.isdecimal() else 0
    if number < 1 or (kind if equals else "number") not in ("number", "size"):
        hint = "write horizontal:4 for four jobs a level, or horizontal:size=4 for four tasks a job"
        raise WorkflowError(f"the clustering {method!r} has no number of jobs", hint=hint)
    return JobLimit(size=number) if kind == "size" else JobLimit(number=number)


def _levels(flow: Workflow) -> list[list[int]]:
    """The tasks of each depth, in the order of the file."""
    found: list[list[int]] = [[] for _ in flow.widths]
    for task in range(len(flow)):
        found[int(flow.depth[task])].append(task)
    return found


def horizontal(flow: Workflow, bound: JobLimit) -> Groups:
    """Tasks of one depth together, in the order of the file, in jobs of nearly equal counts."""
    return [group for level in _levels(flow) for group in _slices(level, bound)]


def _slices(tasks: Sequence[int], bound: JobLimit) -> Groups:
    if bound.size is not None:
        return [list(tasks[at : at + bound.size]) for at in range(0, len(tasks), bound.size)]
    return [list(map(int, part)) for part in np.array_split(np.array(tasks), bound.jobs(len(tasks)))]


def vertical(flow: Workflow) -> Groups:
    """Chains together: a task with one child, which has no other parent."""
    groups: Groups = []
    for task in map(int, flow.order):
        parents = flow.parents[task]
        if len(parents) == 1 and len(flow.children[parents[0]]) == 1:
            continue
        chain = [task]
        while len(flow.children[chain[-1]]) == 1 and len(flow.parents[flow.children[chain[-1]][0]]) == 1:
            chain.append(flow.children[chain[-1]][0])
        groups.append(chain)
    return groups


def block(flow: Workflow, bound: JobLimit) -> Groups:
    """Chains first, then chains between the same depths together: blocks of the graph."""
    chains: dict[tuple[int, int], list[list[int]]] = {}
    for chain in vertical(flow):
        chains.setdefault((int(flow.depth[chain[0]]), int(flow.depth[chain[-1]])), []).append(chain)
    found: Groups = []
    for alike in chains.values():
        found += [[task for at in places for task in alike[at]] for places in _slices(range(len(alike)), bound)]
    return found


def runtime_balanced(flow: Workflow, bound: JobLimit) -> Groups:
    """Horizontal runtime balancing: the longest task first, each to the job that is shortest so far (algorithm 2)."""
    return _greedy(flow, bound, lambda level, place: lambda task, job: 0.0)


def impact_balanced(flow: Workflow, bound: JobLimit) -> Groups:
    """Horizontal impact factor balancing: among the jobs whose tasks matter most alike to what follows (algorithm 3).

    A task's impact factor is the sum, over its children, of theirs divided by their number of parents; that of a task
    without children is one (equation 3).
    """
    impact = impact_factors(flow)

    def difference(level: Sequence[int], groups: Groups) -> Callable[[int, int], float]:
        def of(task: int, job: int) -> float:
            inside = groups[job]
            mean = sum(float(impact[each]) for each in inside) / len(inside) if inside else float(impact[task])
            return round(abs(float(impact[task]) - mean), 12)

        return of

    return _greedy(flow, bound, difference)


def impact_factors(flow: Workflow) -> Numbers:
    """Impact factor of each task on those that follow it (Chen et al., equation 3)."""
    impact = np.zeros(len(flow))
    for task in flow.order[::-1]:
        children = flow.children[task]
        impact[task] = sum(impact[child] / len(flow.parents[child]) for child in children) if children else 1.0
    return impact


def distance_balanced(flow: Workflow, bound: JobLimit) -> Groups:
    """Horizontal distance balancing: among the jobs whose tasks meet soonest again (algorithm 4).

    The distance of two tasks of a level is the number of steps from both to the nearest task that follows both.
    """

    def distances(level: Sequence[int], groups: Groups) -> Callable[[int, int], float]:
        below = {task: _steps_below(flow, task) for task in level}

        def of(task: int, job: int) -> float:
            inside = groups[job]
            return max((_distance(below[task], below[each]) for each in inside), default=0.0)

        return of

    return _greedy(flow, bound, distances)


def _steps_below(flow: Workflow, task: int) -> dict[int, int]:
    """The steps from a task to all that follow it."""
    steps = {task: 0}
    waiting = [task]
    for each in waiting:
        for child in flow.children[each]:
            if child not in steps:
                steps[child] = steps[each] + 1
                waiting.append(child)
    return steps


def _distance(one: dict[int, int], other: dict[int, int]) -> float:
    less, more = (one, other) if len(one) < len(other) else (other, one)
    return min((float(steps + more[task]) for task, steps in less.items() if task in more), default=math.inf)


Measure = Callable[[Sequence[int], Groups], Callable[[int, int], float]]


def _greedy(flow: Workflow, bound: JobLimit, measure: Measure) -> Groups:
    """Level by level, the longest task first: to the shortest of the jobs that the measure puts first."""
    found: Groups = []
    runtimes = flow.runtimes
    for level in _levels(flow):
        groups: Groups = [[] for _ in range(bound.jobs(len(level)))]
        seconds = [0.0] * len(groups)
        of = measure(level, groups)
        for task in sorted(level, key=lambda each: (-runtimes[each], each)):
            open_ = [job for job, inside in enumerate(groups) if bound.size is None or len(inside) < bound.size]
            best = min(open_, key=lambda job: (of(task, job), seconds[job], job))
            groups[best].append(task)
            seconds[best] += float(runtimes[task])
        found += [group for group in groups if group]
    return found


METHODS: dict[str, Callable[[Workflow, JobLimit], Groups]] = {
    "horizontal": horizontal,
    "vertical": lambda flow, bound: vertical(flow),
    "block": block,
    "balanced": runtime_balanced,
    "impact": impact_balanced,
    "distance": distance_balanced,
}
"""The methods by their names on the command line."""
