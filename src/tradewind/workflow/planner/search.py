"""Local search over the priorities of a list scheduler, and over what it prefers."""

from __future__ import annotations

import time

import numpy as np
from pydantic import Field

from tradewind.plugins import Settings
from tradewind.workflow.bounds import lower_bound
from tradewind.workflow.graph import Workflow
from tradewind.workflow.planner.base import Planner
from tradewind.workflow.planner.list_scheduling import (
    LocalSearchState,
    MachineArrays,
    SlotArrays,
    above_children,
    by_rank,
    is_plain,
)
from tradewind.workflow.platform import Platform
from tradewind.workflow.schedule import Schedule

_WORK = 20_000
"""Tasks that are placed between two looks at the clock."""


class SearchSettings(Settings):
    """Settings of the search."""

    seconds: float = Field(2.0, gt=0, description="Processor time that it may take")
    turns: int | None = Field(None, ge=1, description="Changes to try instead of a time: the same plan on any machine")


class SearchPlanner(Planner):
    """Search: begins with HEFT, and changes priorities and choices of machines as long as the plan gets no longer.

    Where machines are compared for a task, its leaning says how much its own run time counts beside the time at which
    it ends: a task that leans to fast machines waits for one, another leaves them to others. When nothing helps for
    long, the search begins elsewhere and keeps the best plan (iterated local search: Lourenço, Martin and Stützle, in
    "Handbook of Metaheuristics", 2003). It ends early when the lower bound is reached, which proves the plan optimal.
    With ``turns`` the plan depends on the seed alone; with ``seconds`` also on the machine that plans.
    """

    Settings = SearchSettings
    settings: SearchSettings

    def plan(self, flow: Workflow, platform: Platform) -> Schedule:
        """See `Planner.plan`."""
        self._until = time.process_time() + self.settings.seconds
        goal = lower_bound(flow, platform) * (1.0 + 1e-9)
        found = self._plain(flow, platform, goal) if is_plain(flow, platform) else self._general(flow, platform, goal)
        self.said = "proven optimal: the lower bound is reached" if found.makespan <= goal else ""
        return found

    def _goes_on(self, turn: int) -> bool:
        if self.settings.turns is not None:
            return turn < self.settings.turns
        return time.process_time() < self._until

    def _plain(self, flow: Workflow, platform: Platform, goal: float) -> Schedule:
        lanes = SlotArrays(flow, platform)
        ranks = lanes.mean_ranks()
        climb = LocalSearchState(ranks, lanes.place(by_rank(flow, ranks)).makespan, self.seed)
        block = max(1, _WORK // len(flow))
        while climb.past[1] > goal and self._goes_on(climb.turn):
            left = block if self.settings.turns is None else min(block, self.settings.turns - climb.turn)
            lanes.climb(climb, goal, left)
        return lanes.place(by_rank(flow, climb.best[0]), climb.best[1])

    def _general(self, flow: Workflow, platform: Platform, goal: float) -> Schedule:
        """The same where tasks use several cores or files lie on machines: slower, and never from elsewhere."""
        machines = MachineArrays(flow, platform)
        chance = np.random.default_rng(self.seed)
        ranks, lean = machines.upward(machines.means), np.zeros(len(flow))
        fits = np.isfinite(machines.seconds)
        took = np.where(fits, machines.seconds, 0.0)
        best, turn = machines.insert(by_rank(flow, ranks)), 0
        while best.makespan > goal and self._goes_on(turn):
            turn += 1
            strength = chance.random()
            some = chance.integers(len(flow), size=1 + int(strength**3 * 0.3 * len(flow)))
            new_ranks, new_lean = ranks.copy(), lean.copy()
            if chance.random() < 0.5:
                new_ranks[some] += ranks.max() * 0.3 * strength * chance.standard_normal(len(some))
                new_ranks = above_children(flow, np.maximum(new_ranks, 0.0))
            else:
                new_lean[some] = np.maximum(-0.95, lean[some] + 2.0 * strength * chance.standard_normal(len(some)))
            found = machines.insert(by_rank(flow, new_ranks), new_lean[:, None] * took)
            if found.makespan <= best.makespan:
                ranks, lean, best = new_ranks, new_lean, found
        return best
