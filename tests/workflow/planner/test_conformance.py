"""Every registered planner holds its contract, and gives the numbers that it gave."""

from __future__ import annotations

from typing import Any

import pytest

from tradewind import plugins
from tradewind.testing.planners import PLATFORMS, PlannerConformance, example_flow
from tradewind.workflow.planner.base import Planner

QUICK: dict[str, dict[str, Any]] = {"search": {"turns": 100}, "cost_search": {"turns": 60}, "cp_sat": {"work": 0.02}}
"""Settings with which a planner is quick, and depends on its seed alone."""


for _long in (
    "keeps_the_rules",
    "places_tasks_of_several_cores",
    "decides_during_a_run",
):
    pytest.mark.slow(getattr(PlannerConformance, f"test_{_long}"))
pytest.mark.thorough(PlannerConformance.test_plans_the_same_without_numba)  # two of them in test_planners


class TestPlanners(PlannerConformance):
    @pytest.fixture(autouse=True, params=plugins.names("planner"))
    def _named(self, request: pytest.FixtureRequest) -> None:
        self.name = str(request.param)

    def make(self, seed: int = 0) -> Planner:
        made: Planner = plugins.create("planner", self.name, QUICK.get(self.name, {}), seed=seed)
        return made


GOLDEN: dict[str, tuple[float, float]] = {
    "cost_search": (10.65, 45.25),
    "cpop": (8.125, 15.75),
    "fcfs": (10.65, 22.25),
    "heft": (8.2, 15.25),
    "ic_pcp": (78.7, 48.0),
    "maxmin": (10.625, 19.0),
    "mct": (8.8, 14.5),
    "minmin": (10.65, 16.0),
    "peft": (8.6, 16.5),
    "random": (26.8, 36.5),
    "roundrobin": (21.1, 32.75),
    "search": (7.925, 13.5),
    "sufferage": (9.05, 17.0),
    "workflowsim": (14.5, 40.25),
}
"""Makespans on the machines ``unlike``, and on ``local`` with tasks of two cores; seed 0."""


@pytest.mark.parametrize("name", list(GOLDEN))
def test_golden_makespans(name: str) -> None:
    planner: Planner = plugins.create("planner", name, QUICK.get(name, {}), seed=0)
    unlike, local = GOLDEN[name]
    assert planner.plan(example_flow(), PLATFORMS["unlike"]).makespan == pytest.approx(unlike, abs=1e-9)
    assert planner.plan(example_flow(cores=2), PLATFORMS["local"]).makespan == pytest.approx(local, abs=1e-9)
