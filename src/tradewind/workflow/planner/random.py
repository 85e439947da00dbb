"""Machines by chance."""

from __future__ import annotations

import numpy as np

from tradewind.workflow.graph import Workflow
from tradewind.workflow.planner.base import Planner
from tradewind.workflow.planner.list_scheduling import MachineArrays
from tradewind.workflow.platform import Platform
from tradewind.workflow.schedule import Schedule


class RandomPlanner(Planner):
    """Random: each task goes to a machine drawn by chance among those that it fits on; what others must beat."""

    def plan(self, flow: Workflow, platform: Platform) -> Schedule:
        """See `Planner.plan`."""
        machines = MachineArrays(flow, platform)
        chance = np.random.default_rng(self.seed)
        draws = np.where(np.isfinite(machines.seconds), chance.random(machines.seconds.shape), -1.0)
        return machines.append(flow.order, np.argmax(draws, axis=1))
