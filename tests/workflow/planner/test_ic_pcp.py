"""Partial critical paths: the paper's steps on small graphs, money and time against all plans, and what cannot be."""

from __future__ import annotations

import numpy as np
import pytest
from tests.workflow.planner.test_cost_search import PLATFORM, all_plans, cost, flows

from tradewind.errors import NothingFeasibleError, WorkflowError
from tradewind.problem import Billing
from tradewind.testing.planners import PLATFORMS, example_flow, idle_flow
from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.planner.cost_search import CostSearchPlanner, CostSearchSettings
from tradewind.workflow.planner.ic_pcp import IcPcpPlanner, IcPcpSettings
from tradewind.workflow.platform import Platform, Vm
from tradewind.workflow.schedule import Schedule, check, figures


def plan(flow: Workflow, platform: Platform = PLATFORM, deadline: float | None = None) -> Schedule:
    planner = IcPcpPlanner(settings=IcPcpSettings(deadline=deadline))
    found = planner.plan(flow, platform)
    check(flow, platform, found)
    assert planner.said.endswith("for this run")
    return found


def types(count: int, unit: float = 60.0) -> Platform:
    """As many machines as one may want of three types."""
    kinds = (("slow", 1.0, 0.6), ("mid", 2.0, 1.5), ("fast", 4.0, 4.0))
    vms = tuple(Vm(f"{kind}{i}", speed, 1, price, kind) for kind, speed, price in kinds for i in range(count))
    return Platform(vms, billing=Billing(granularity_seconds=unit))


def test_the_critical_path_stays_together_and_the_rest_fills_what_is_paid() -> None:
    """0 -> 1 -> 3 is the critical path of the diamond; 2 ends in time beside it on a machine of its own."""
    flow = Workflow(
        "diamond", tuple(Task(str(i), "a", s) for i, s in enumerate((30.0, 50.0, 20.0, 20.0))), ((), (0,), (0,), (1, 2))
    )
    platform = types(4)
    found = plan(flow, platform, 100.0)
    names = [platform.vms[vm].name for vm in found.vm]
    assert names == ["slow0", "slow0", "slow1", "slow0"]
    assert found.makespan == pytest.approx(100.0)
    assert found.start.tolist() == pytest.approx([0.0, 30.0, 30.0, 80.0])
    # With 20 s less the path has to be on the next faster type; task 2 has time enough on the slow one until 40 s.
    faster = plan(flow, platform, 80.0)
    assert [platform.vms[vm].kind for vm in faster.vm] == ["mid", "mid", "slow", "mid"]
    assert faster.makespan == pytest.approx(50.0)


def test_a_machine_that_is_paid_for_takes_what_fits_before_another_is_begun() -> None:
    flow = Workflow("free", tuple(Task(str(i), "a", 25.0) for i in range(4)), ((),) * 4)
    found = plan(flow, types(4), 60.0)
    assert len(set(found.vm.tolist())) == 2, "two tasks fit into a minute that is paid for"
    assert len(set(plan(flow, types(4), 200.0).vm.tolist())) <= 2


@pytest.mark.slow
def test_later_deadlines_cost_no_more_than_all_that_is_to_be_had() -> None:
    for flow in flows():
        plans = all_plans(flow)
        spans = sorted({makespan for makespan, _ in plans})
        for deadline in (spans[len(spans) // 3], spans[-1]):
            best = min(money for makespan, money in plans if makespan <= deadline + 1e-9)
            found = plan(flow, PLATFORM, deadline)
            assert found.makespan <= deadline * (1 + 1e-9)
            assert best - 1e-9 <= cost(flow, found) <= 3.0 * best, "one of each machine: no place for whole paths"
        least = min(money for _, money in plans)
        assert least - 1e-9 <= cost(flow, plan(flow)) <= 2.0 * least, "any time will do"


@pytest.mark.parametrize(
    ("unit", "deadline", "makespan", "money"),
    [
        (60.0, 12.0, 12.0, 0.08),
        (60.0, 20.0, 17.5, 0.055),
        (60.0, 40.0, 37.0, 0.02),
        (1.0, 12.0, 11.75, 0.013916667),
        (1.0, 40.0, 39.5, 0.012166666),
        (1.0, None, 42.0, 0.011666666),
    ],
)
def test_golden_plans(unit: float, deadline: float | None, makespan: float, money: float) -> None:
    flow, platform = example_flow(), types(3, unit)
    found = plan(flow, platform, deadline)
    assert (found.makespan, cost_on(flow, platform, found)) == pytest.approx((makespan, money), abs=1e-9)


def cost_on(flow: Workflow, platform: Platform, found: Schedule) -> float:
    return figures(flow, platform, found, 0.0).cost


@pytest.mark.parametrize("kind", list(PLATFORMS))
def test_the_search_for_money_begins_with_it_and_is_never_dearer(kind: str) -> None:
    flow, platform = example_flow(), PLATFORMS[kind]
    for deadline in (60.0, 120.0, 400.0):
        try:
            money = cost_on(flow, platform, plan(flow, platform, deadline))
        except NothingFeasibleError:
            continue
        search = CostSearchPlanner(settings=CostSearchSettings(deadline=deadline, turns=1), seed=0)
        assert cost_on(flow, platform, search.plan(flow, platform)) <= money + 1e-9


def test_a_deadline_that_cannot_be_kept_is_one_clear_line() -> None:
    flow = next(flows())
    with pytest.raises(NothingFeasibleError, match=r"within 1\.0 s: none can end before") as caught:
        plan(flow, PLATFORM, 1.0)
    assert "\n" not in str(caught.value)
    wide = Workflow("wide", tuple(Task(str(i), "a", 30.0) for i in range(5)), ((),) * 5)
    one = Platform((Vm("slow", 1.0, 1, 0.6), Vm("slower", 0.9, 1, 0.1)))
    with pytest.raises(NothingFeasibleError, match=r"the one that it finds takes"):
        plan(wide, one, 80.0)
    with pytest.raises(WorkflowError, match="huge"):
        plan(Workflow("big", (Task("huge", "a", 1.0, cores=9),), ((),)), PLATFORM, 10.0)


def test_tasks_of_no_length_and_of_several_cores() -> None:
    for platform in PLATFORMS.values():
        assert plan(idle_flow(), platform).makespan > 0
        assert plan(idle_flow(), platform, 200.0).makespan <= 200.0
    assert plan(example_flow(cores=2), PLATFORMS["local"], 400.0).makespan <= 400.0


def test_files_that_are_there_already_keep_a_path_together() -> None:
    """Under local storage a child beside its parent fetches nothing: no time, and no money."""
    tasks = (Task("a", "a", 10.0, (), ("big",)), Task("b", "a", 10.0, ("big",), ()))
    flow = Workflow("pair", tasks, ((), (0,)), {"big": 600_000_000})
    platform = Platform((Vm("one", 1.0, 1, 0.6), Vm("two", 1.0, 1, 0.6)), "local", 15.0)
    found = plan(flow, platform, 30.0)
    assert found.vm[0] == found.vm[1]
    assert found.makespan == pytest.approx(20.0)


def test_gaps_are_used() -> None:
    """A short task that nothing waits for goes between two that are bound to their times."""
    tasks = (Task("first", "a", 10.0), Task("other", "a", 40.0), Task("last", "a", 10.0), Task("short", "a", 15.0))
    flow = Workflow("gap", tasks, ((), (), (0, 1), ()))
    platform = Platform((Vm("one", 1.0, 1, 0.6), Vm("two", 1.0, 1, 0.6)), billing=Billing(granularity_seconds=60.0))
    found = plan(flow, platform, 55.0)
    assert np.bincount(found.vm).tolist() in ([2, 2], [3, 1], [1, 3])
    assert found.makespan <= 55.0
