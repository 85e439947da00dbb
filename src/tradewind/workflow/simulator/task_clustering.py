"""Which tasks become one job: horizontal, vertical, block and balanced clustering.

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
from tradewind.workflow.clustering.clustered import ClusteredWorkflow, merge_tasks
from tradewind.workflow.graph import Numbers, Workflow

Groups = list[list[int]]


@dataclass(frozen=True, slots=True)
class JobLimit:
    """How large or how many the jobs of a level may be.

    Attributes:
        number: Jobs of each level at most, or None.
        size: Tasks of each job at most, or None.
    """

    number: int | None = None
    size: int | None = None

    def jobs(self, tasks: int) -> int:
        """How many jobs so many tasks of a level become."""
        if self.number is not None:
            return min(tasks, self.number)
        return math.ceil(tasks / (self.size or 1))


def cluster(flow: Workflow, method: str, delay: float | Sequence[float] = 0.0) -> ClusteredWorkflow:
    """A workflow whose tasks are put together.

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
    """How much each task matters to what follows it (Chen et al., equation 3)."""
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
