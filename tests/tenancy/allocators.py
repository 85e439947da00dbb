"""Allocators as the tests need them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tradewind.tenancy import events as ev
from tradewind.tenancy.allocator import AllocationPolicy, Allocator
from tradewind.tenancy.fairness.base import Fairness
from tradewind.tenancy.fairness.drf import DrfFairness
from tradewind.tenancy.priority.base import Priority
from tradewind.tenancy.priority.fifo import FifoPriority


def policy(
    fairness: type[Fairness] = DrfFairness, priority: type[Priority] = FifoPriority, more: Any = None, **settings: Any
) -> AllocationPolicy:
    """A policy of these parts; ``more`` are fields of `AllocationPolicy`, the rest are settings of the priority."""
    return AllocationPolicy(
        fairness(settings=fairness.Settings()), priority(settings=priority.Settings(**settings)), **(more or {})
    )


def cluster(
    nodes: Mapping[str, Mapping[str, float]],
    tenants: Mapping[str, float] | Sequence[str],
    how: AllocationPolicy | None = None,
) -> Allocator:
    """An allocator with nodes and tenants (with their weights)."""
    found = Allocator(how or policy())
    weights = tenants if isinstance(tenants, Mapping) else dict.fromkeys(tenants, 1.0)
    found.handle_all([ev.NodeJoined(node, capacity) for node, capacity in nodes.items()], 0.0)
    found.handle_all([ev.TenantSet(name, weight) for name, weight in weights.items()], 0.0)
    return found


def started(instructions: Sequence[ev.AllocatorInstruction]) -> list[str]:
    """The runs that were started."""
    return [each.request for each in instructions if isinstance(each, ev.StartRun)]


def asks(job: str, count: int, demand: Mapping[str, float], first: int = 0) -> list[ev.AllocatorEvent]:
    """So many runs of a search, named JOB0, JOB1, ..."""
    return [ev.RequestMade(job, f"{job}{number}", demand) for number in range(first, first + count)]
