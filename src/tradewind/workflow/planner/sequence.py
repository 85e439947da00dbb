"""Orders in which a list scheduler takes the tasks of a workflow."""

from __future__ import annotations

import heapq

import numpy as np

from tradewind.workflow.graph import Indices, Numbers, Workflow


def by_rank(flow: Workflow, ranks: Numbers) -> Indices:
    """The tasks in descending order of ranks that never rise from parent to child; of equal ones, parents first."""
    return np.lexsort((flow.places, -ranks)).astype(np.int32)


def by_priority(flow: Workflow, priorities: Numbers) -> Indices:
    """At each step, of the tasks whose parents were taken, the one of the highest priority; ties by arrival."""
    left = [len(parents) for parents in flow.parents]
    heap = [(-priorities[task], int(flow.places[task]), task) for task, count in enumerate(left) if not count]
    heapq.heapify(heap)
    found: list[int] = []
    while heap:
        task = heapq.heappop(heap)[2]
        found.append(task)
        for child in flow.children[task]:
            left[child] -= 1
            if not left[child]:
                heapq.heappush(heap, (-priorities[child], int(flow.places[child]), child))
    return np.array(found, dtype=np.int32)


def above_children(flow: Workflow, ranks: Numbers) -> Numbers:
    """Ranks of which none is below a child's."""
    for task in flow.order[::-1]:
        for child in flow.children[task]:
            ranks[task] = max(ranks[task], ranks[child])
    return ranks
