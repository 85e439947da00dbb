"""Compares policies in the same worlds: each meets the same luck, so their differences say more than their means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tradewind.workflow.graph import Numbers
from tradewind.workflow.learning.arrays import EpisodeArrays, PreparedWorld, schedule
from tradewind.workflow.schedule import Schedule
from tradewind.workflow.simulator.world import World


def simulate_schedule(arrays: EpisodeArrays, plan: Schedule, world: World | PreparedWorld) -> Schedule:
    """What a plan comes to when each machine runs its tasks in their order, compiled.

    Args:
        arrays: The workflow and its machines.
        plan: The plan.
        world: The world, or one that was drawn before.

    Raises:
        WorkflowError: The plan contradicts the graph.
    """
    from tradewind.workflow.learning import kernel

    order_of = plan.order_in(arrays.flow)
    lists = [order_of.get(vm, ()) for vm in range(len(arrays.platform.vms))]
    starts, order = arrays.flow.csr(lists)
    prepared = arrays.prepared(world) if isinstance(world, World) else world
    return schedule(prepared.run(lambda given: kernel.follow(given, starts, order.copy())))


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """How much longer one policy takes than another in the same worlds.

    Attributes:
        ratio: Geometric mean of the ratio of their makespans; below 1, the first is faster.
        low: Lower end of the 95 % interval of the mean.
        high: Its upper end.
        worlds: In how many worlds.
    """

    ratio: float
    low: float
    high: float
    worlds: int


def compare_pairs(ours: Sequence[float] | Numbers, theirs: Sequence[float] | Numbers) -> PairedComparison:
    """The ratio of makespans in the same worlds, with a 95 % interval (Student's t over logarithms)."""
    from scipy.stats import t

    logs = np.log(np.asarray(ours, dtype=float) / np.asarray(theirs, dtype=float))
    mean, count = float(logs.mean()), len(logs)
    half = float(t.ppf(0.975, count - 1) * logs.std(ddof=1) / np.sqrt(count)) if count > 1 else float("inf")
    return PairedComparison(float(np.exp(mean)), float(np.exp(mean - half)), float(np.exp(mean + half)), count)
