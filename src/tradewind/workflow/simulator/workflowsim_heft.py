"""WorkflowSim's HEFT, with its faulty search for gaps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tradewind.workflow.graph import Workflow

HEFT_RATE = 1000.0
"""WorkflowSim's bandwidth of every VM; here it is read as Mbit/s."""

Busy = list[tuple[float, float]]
"""When a VM runs something, in the order in which WorkflowSim keeps it, which is not always that of time."""


class HasMips(Protocol):
    """A VM, as far as HEFT looks at it."""

    @property
    def mips(self) -> float:
        """Speed of one core."""


def heft(flow: Workflow, vms: Sequence[HasMips]) -> list[int]:
    """WorkflowSim's HEFT plan: the VM of each task; equal ranks in the order of the file.

    It knows no shared file system, and fixes VMs, not the order on them.
    """
    lengths = [int(max(1000.0 * task.runtime, 100.0)) for task in flow.tasks]
    costs = [[length / vm.mips for vm in vms] for length in lengths]
    sending = _sending(flow)
    ranks = [0.0] * len(flow)
    for task in map(int, flow.order[::-1]):
        below = (sending[task, child] + ranks[child] for child in flow.children[task])
        ranks[task] = sum(costs[task]) / len(vms) + max(below, default=0.0)
    plan, ends = [0] * len(flow), [0.0] * len(flow)
    busy: list[Busy] = [[] for _ in vms]
    # Equal ranks of a parent and its child occur where a task is so short that adding it changes nothing.
    for task in sorted(range(len(flow)), key=lambda each: (-ranks[each], int(flow.places[each]))):
        best, least, ready = 0, float("inf"), 0.0
        for vm in range(len(vms)):
            arrivals = (ends[p] + (sending[p, task] if plan[p] != vm else 0.0) for p in flow.parents[task])
            arrival = max(arrivals, default=0.0)
            _, start = _slot(busy[vm], arrival, costs[task][vm])
            if start + costs[task][vm] < least:
                best, least, ready = vm, start + costs[task][vm], arrival
        place, start = _slot(busy[best], ready, costs[task][best])
        busy[best].insert(place, (start, start + costs[task][best]))
        plan[task], ends[task] = best, least
    return plan


def _sending(flow: Workflow) -> dict[tuple[int, int], float]:
    """Seconds that files need from each task to each of its children, bytes over Mbit/s."""
    found = {}
    for task, children in enumerate(flow.children):
        for child in children:
            wanted = frozenset(flow.tasks[child].inputs)
            size = sum(flow.sizes.get(name, 0) or 1 for name in flow.tasks[task].outputs if name in wanted)
            found[task, child] = size / 1_000_000 * 8.0 / HEFT_RATE
    return found


def _slot(busy: Busy, ready: float, cost: float) -> tuple[int, float]:
    """Where in the list of a VM a task would stand, and when it would start; the list may end up unsorted."""
    if not busy:
        return 0, ready
    if len(busy) == 1:
        if ready >= busy[0][1]:
            return 1, ready
        return (0, ready) if ready + cost <= busy[0][0] else (1, busy[0][1])
    place, start = len(busy), max(ready, busy[-1][1])
    for at in range(len(busy) - 1, 0, -1):
        if ready > busy[at - 1][1]:
            if ready + cost <= busy[at][0]:
                start = ready  # and its place stays at the end of the list: the fault
            break
        if busy[at - 1][1] + cost <= busy[at][0]:
            place, start = at, busy[at - 1][1]
    if ready + cost <= busy[0][0]:
        return 0, ready
    return place, start
