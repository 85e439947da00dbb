"""Every registered planner holds its contract, and gives the numbers that it gave."""

from __future__ import annotations

from typing import Any

import pytest

from tradewind import plugins
from tradewind.testing.planners import PLATFORMS, PlannerConformance, example_flow
from tradewind.workflow.planner.base import Planner

QUICK: dict[str, dict[str, Any]] = {"search": {"turns": 100}, "cost_search": {"turns": 60}, "cp_sat": {"work": 0.02}}
"""Settings with which a planner is quick, and depends on its seed alone."""


class TestPlanners(PlannerConformance):
    @pytest.fixture(autouse=True, params=plugins.names("planner"))
    def _named(self, request: pytest.FixtureRequest) -> None:
        self.name = str(request.param)

    def make(self, seed: int = 0) -> Planner:
        made: Planner = plugins.create("planner", self.name, QUICK.get(self.name, {}), seed=seed)
        return made
