"""WorkflowSim's schedulers as a planner."""

from __future__ import annotations

import pytest
from tests.workflow.datasets import dax, needs_datasets
from tests.workflow.planner.test_planners import paper_vms

from tradewind import plugins
from tradewind.testing.planners import example_flow
from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.planner.workflowsim import WorkflowsimSettings
from tradewind.workflow.platform import Platform, Vm
from tradewind.workflow.schedule import check
from tradewind.workflow.simulator.workflowsim import POLICIES, heft
from tradewind.workflow.simulator.workflowsim import WorkflowSimVm as SimVm

SCHEDULERS = (*POLICIES, "HEFT", "DHEFT")


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("storage", ["none", "shared", "local"])
def test_every_scheduler_makes_a_plan(scheduler: str, storage: str) -> None:
    platform = Platform((Vm("a"), Vm("b", 2.0, 2), Vm("c", 4.0)), storage)  # type: ignore[arg-type]
    planner = plugins.create("planner", "workflowsim", {"scheduler": scheduler})
    found = planner.plan(example_flow(), platform)
    check(example_flow(), platform, found)
    assert len(found.order) > 1


def test_the_settings_name_all_schedulers() -> None:
    assert {WorkflowsimSettings.model_validate({"scheduler": name}).scheduler for name in SCHEDULERS} == set(SCHEDULERS)


def test_mct_prefers_cores_and_not_the_end() -> None:
    """WorkflowSim's MCT takes the idle VM with the most MIPS in total, whatever a task gains from them."""
    platform = Platform((Vm("quick", 3.0), Vm("wide", 1.0, 8)), "shared")
    flow = Workflow("one", (Task("a", "a", 9.0),), ((),))
    theirs = plugins.create("planner", "workflowsim", {"scheduler": "MCT"}).plan(flow, platform)
    ours = plugins.create("planner", "mct", {}).plan(flow, platform)
    assert (theirs.makespan, ours.makespan) == (9.0, 3.0)


def test_its_heft_puts_a_chain_on_the_fastest_and_knows_files_only_between_vms() -> None:
    tasks = (Task("a", "a", 2.0, (), ("x",)), Task("b", "b", 4.0, ("x",)), Task("c", "c", 3.0, ("x",)))
    flow = Workflow("fork", tasks, ((), (0,), (0,)), {"x": 1_000_000})
    assert heft(flow, [SimVm(1000.0), SimVm(2000.0)]) == [1, 1, 0]
    # 8 s of transfer to the slow VM (1 GB over 1000 Mbit/s) keep both children where the file is.
    heavy = Workflow("fork", tasks, ((), (0,), (0,)), {"x": 1_000_000_000})
    assert heft(heavy, [SimVm(1000.0), SimVm(2000.0)]) == [1, 1, 1]


@needs_datasets
def test_its_heft_is_worse_than_heft() -> None:
    """WorkflowSim looks for gaps in a list that it does not keep sorted, and does not keep the order."""
    flow, platform = dax("Montage_100"), paper_vms(64)
    theirs = plugins.create("planner", "workflowsim", {"scheduler": "HEFT"}).plan(flow, platform)
    ours = plugins.create("planner", "heft", {}).plan(flow, platform)
    assert ours.makespan < theirs.makespan
