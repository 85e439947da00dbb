"""Every planner, and what is proven of their plans."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from tests.effort import share
from tests.workflow.datasets import dax, needs_datasets
from tests.workflow.simulator.test_reference import made, platforms, workflows

from tradewind.workflow.bounds import lower_bound
from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.planner.base import Planner
from tradewind.workflow.planner.heft import HeftPlanner
from tradewind.workflow.planner.search import SearchPlanner
from tradewind.workflow.platform import Platform, Vm
from tradewind.workflow.schedule import Schedule, check

PLANNERS: dict[str, type[Planner]] = {"heft": HeftPlanner, "search": SearchPlanner}
QUICK: dict[str, dict[str, Any]] = {"search": {"turns": 200}}


def plan(name: str, flow: Workflow, platform: Platform, **given: Any) -> Schedule:
    part = PLANNERS[name]
    return part(settings=part.Settings(**(given or QUICK.get(name, {}))), seed=3).plan(flow, platform)


def paper_vms(vcpu: int) -> Platform:
    """Paper 3's machines, with one task at a time on each and the shared file system of 15 MB/s."""
    vms = [Vm(f"slow{i}") for i in range(8)] + [Vm(f"fast{i}", 4.156) for i in range((vcpu - 8) // 8)]
    return Platform(tuple(vms), "shared")


@pytest.mark.slow
@pytest.mark.parametrize("name", list(PLANNERS))
@settings(max_examples=share(40), deadline=None)
@given(workflows(), platforms())
def test_every_plan_keeps_the_rules(name: str, flow: Workflow, platform: Platform) -> None:
    found = plan(name, flow, platform)
    check(flow, platform, found)
    assert found.makespan >= lower_bound(flow, platform) * (1 - 1e-9)


@pytest.mark.parametrize("name", list(PLANNERS))
def test_equal_seeds_give_equal_plans_and_leave_other_chance_alone(name: str) -> None:
    flow, platform = made()
    before = np.random.get_state()[1].tolist()  # type: ignore[index]
    one, other = plan(name, flow, platform), plan(name, flow, platform)
    assert one.start.tolist() == other.start.tolist()
    assert one.vm.tolist() == other.vm.tolist()
    assert np.random.get_state()[1].tolist() == before  # type: ignore[index]


@pytest.mark.parametrize("name", list(PLANNERS))
def test_one_task_and_tasks_that_take_no_time(name: str) -> None:
    platform = Platform((Vm("slow"), Vm("fast", 2.0, boot_seconds=1.0)))
    assert plan(name, Workflow("one", (Task("a", "a", 3.0),), ((),)), platform).makespan == 2.5
    nothing = Workflow("none", tuple(Task(str(i), "a", 0.0) for i in range(3)), ((), (0,), (1,)))
    found = plan(name, nothing, Platform((Vm("a"),)))
    check(nothing, Platform((Vm("a"),)), found)
    assert found.makespan == 0.0


_PLAIN = """
import sys
sys.modules["numba"] = None
from tests.workflow.planner.test_planners import plan
from tests.workflow.simulator.test_reference import made
print(plan(sys.argv[1], *made()).finish.tolist())
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", list(PLANNERS))
def test_without_numba_the_plan_is_the_same(name: str) -> None:
    command = [sys.executable, "-c", _PLAIN, name]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout.strip() == str(plan(name, *made()).finish.tolist())


@pytest.mark.slow
@needs_datasets
@pytest.mark.parametrize(
    ("graph", "vcpu", "optimum"),
    [
        ("Montage_25", 16, 48.185),
        ("Montage_25", 64, 25.753),
        ("Montage_25", 128, 22.273),
        ("Epigenomics_24", 16, 3406.738),
        ("CyberShake_30", 16, 2856.541),
    ],
)
def test_the_search_finds_the_proven_optimum(graph: str, vcpu: int, optimum: float) -> None:
    found = plan("search", dax(graph), paper_vms(vcpu), turns=20_000)
    # The optima were proven with lengths in whole milliseconds.
    assert found.makespan == pytest.approx(optimum, rel=3e-5)
