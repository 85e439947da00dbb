"""Hill climbing over the priorities of a list scheduler."""

from __future__ import annotations

import time

from pydantic import Field

from tradewind.plugins import Settings
from tradewind.workflow.bounds import lower_bound
from tradewind.workflow.graph import Workflow
from tradewind.workflow.plan import Schedule
from tradewind.workflow.planner.base import Planner
from tradewind.workflow.planner.lanes import Lanes
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
        best = lanes.place(by_rank(flow, ranks)).makespan
        goal = lower_bound(flow, platform) * (1.0 + 1e-9)
        left, turn = self.settings.turns, 0
        while best > goal and (left is None or left > 0):
            if left is None and time.process_time() >= until:
                break
            turns = max(1, _WORK // len(flow))
            turns = turns if left is None else min(turns, left)
            ranks, best, _ = lanes.climb(ranks, best, goal, turns, self.seed * 1_000_003 + turn)
            left = None if left is None else left - turns
            turn += 1
        return lanes.place(by_rank(flow, ranks))
