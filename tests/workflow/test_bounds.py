"""Lower bounds of the makespan where files have to be fetched."""

from __future__ import annotations

import pytest

from tradewind.workflow.bounds import lower_bound
from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.planner.heft import HeftPlanner
from tradewind.workflow.platform import Platform, Vm
from tradewind.workflow.simulator.compiled import replay_plan

SIZES = {"in": 150_000_000, "mid": 150_000_000}


def bound(flow: Workflow, machines: int = 2) -> tuple[float, float]:
    """The bound under local storage of 15 MB/s, and the makespan of HEFT."""
    platform = Platform(tuple(Vm(f"one-{i}") for i in range(machines)), "local")
    plan = HeftPlanner(settings=HeftPlanner.Settings()).plan(flow, platform)
    return lower_bound(flow, platform), replay_plan(flow, platform, plan).makespan


def test_a_file_from_outside_has_to_be_fetched_once() -> None:
    alone = Workflow("w", (Task("a", "a", 10.0, ("in",)),), ((),), SIZES)
    assert bound(alone) == pytest.approx((20.0, 20.0), rel=1e-5)
    chain = (Task("a", "a", 10.0, ("in",), ("mid",)), Task("b", "b", 10.0, ("in", "mid")))
    # What b reads can be on its machine already: it was fetched, or written, there.
    assert bound(Workflow("w", chain, ((), (0,)), SIZES)) == pytest.approx((30.0, 30.0), rel=1e-5)


def test_a_file_that_either_of_two_may_fetch_first_counts_for_none() -> None:
    two = (Task("a", "a", 10.0, ("in",)), Task("b", "b", 10.0, ("in",)))
    found, reached = bound(Workflow("w", two, ((), ()), SIZES), machines=1)
    assert found <= reached == pytest.approx(30.0)
    written = (Task("a", "a", 10.0, ("in",)), Task("b", "b", 10.0, (), ("in",)))
    assert bound(Workflow("w", written, ((), ()), SIZES))[0] <= 10.0 * (1 + 1e-6)
