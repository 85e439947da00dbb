"""Hill climbing over the priorities of a list scheduler."""

from __future__ import annotations

import time

from pydantic import Field

from tradewind.plugins import Settings
from tradewind.workflow.bounds import lower_bound
from tradewind.workflow.graph import Workflow
from tradewind.workflow.plan import Schedule
from tradewind.workflow.planner.base import Planner
from tradewind.workflow.planner.lanes import Climb, Lanes
from tradewind.workflow.planner.sequence import by_rank
from tradewind.workflow.platform import Platform

_WORK = 20_000
"""Tasks that are placed between two looks at the clock."""


class SearchSettings(Settings):
    """Settings of the search."""

    seconds: float = Field(2.0, gt=0, description="Processor time that it may take")
    turns: int | None = Field(None, ge=1, description="Changes to try instead of a time: the same plan on any machine")


class SearchPlanner(Planner):
    """Begins with HEFT, and changes priorities at random as long as the schedule gets no longer.

    It ends early when the lower bound is reached, which proves the schedule optimal. With ``turns`` the plan depends on
    the seed alone; with ``seconds`` also on the machine that plans.
    """

    Settings = SearchSettings
    settings: SearchSettings

    def plan(self, flow: Workflow, platform: Platform) -> Schedule:
        """See `Planner.plan`."""
        until = time.process_time() + self.settings.seconds
        lanes = Lanes(flow, platform)
        ranks = lanes.mean_ranks()
        first = lanes.place(by_rank(flow, ranks))
        goal = lower_bound(flow, platform) * (1.0 + 1e-9)
        climb = Climb(ranks, first.makespan, self.seed)
        block = max(1, _WORK // len(flow))
        while climb.past[1] > goal:
            left = block if self.settings.turns is None else min(block, self.settings.turns - climb.turn)
            if left <= 0 or (self.settings.turns is None and time.process_time() >= until):
                break
            lanes.climb(climb, goal, left)
        return lanes.place(by_rank(flow, climb.best[0]), climb.best[1])
