"""Plans for a deadline and for money, against all plans of tiny workflows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from tradewind.errors import NothingFeasibleError
from tradewind.problem import Billing
from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.planner.cost_search import CostSearchPlanner, CostSearchSettings
from tradewind.workflow.planner.list_scheduling import MachineArrays
from tradewind.workflow.platform import Platform, Vm
from tradewind.workflow.schedule import Schedule, figures

HOURLY = Billing(granularity_seconds=60.0)


def flows() -> Iterator[Workflow]:
    diamond = tuple(Task(str(i), "a", seconds) for i, seconds in enumerate((30.0, 50.0, 70.0, 20.0)))
    yield Workflow("diamond", diamond, ((), (0,), (0,), (1, 2)))
    yield Workflow("free", tuple(Task(str(i), "a", 25.0 + 10 * i) for i in range(4)), ((),) * 4)
    fork = tuple(Task(str(i), "a", seconds) for i, seconds in enumerate((10.0, 90.0, 45.0, 45.0, 5.0)))
    yield Workflow("fork", fork, ((), (0,), (0,), (0,), (1,)))


PLATFORM = Platform((Vm("slow", 1.0, 1, 0.6), Vm("mid", 2.0, 1, 1.5), Vm("fast", 4.0, 1, 4.0)), billing=HOURLY)


def cost(flow: Workflow, plan: Schedule) -> float:
    return figures(flow, PLATFORM, plan, 0.0).cost


def all_plans(flow: Workflow) -> list[tuple[float, float]]:
    """Makespan and cost of every order on every choice of machines."""
    machines = MachineArrays(flow, PLATFORM)
    orders = [
        np.array(order, dtype=np.int32)
        for order in itertools.permutations(range(len(flow)))
        if all(order.index(p) < order.index(t) for t in range(len(flow)) for p in flow.parents[t])
    ]
    found = set()
    for given in itertools.product(range(3), repeat=len(flow)):
        for order in orders:
            plan = machines.append(order, given)
            found.add((round(plan.makespan, 9), round(cost(flow, plan), 9)))
    return sorted(found)


def search(flow: Workflow, **given: float) -> Schedule:
    return CostSearchPlanner(settings=CostSearchSettings(turns=400, **given), seed=1).plan(flow, PLATFORM)


@pytest.mark.slow
@pytest.mark.parametrize("flow", list(flows()), ids=lambda flow: flow.name)
def test_no_plan_is_cheaper_in_time_or_faster_for_the_money(flow: Workflow) -> None:
    plans = all_plans(flow)
    spans = sorted({makespan for makespan, _ in plans})
    for deadline in (spans[0], spans[len(spans) // 3], spans[-1]):
        best = min(money for makespan, money in plans if makespan <= deadline + 1e-9)
        found = search(flow, deadline=deadline)
        assert found.makespan <= deadline * (1 + 1e-8)
        assert cost(flow, found) == pytest.approx(best), f"{flow.name} within {deadline} s"
    prices = sorted({money for _, money in plans})
    for budget in (prices[0], prices[len(prices) // 4]):
        best = min(makespan for makespan, money in plans if money <= budget + 1e-9)
        found = search(flow, budget=budget)
        assert cost(flow, found) <= budget * (1 + 1e-8)
        assert found.makespan == pytest.approx(best), f"{flow.name} for {budget} USD"


@pytest.mark.slow
def test_what_cannot_be_kept_is_said_in_one_line() -> None:
    flow = next(flows())
    with pytest.raises(NothingFeasibleError, match=r"none can end before") as caught:
        search(flow, deadline=1.0)
    assert "\n" not in str(caught.value)
    with pytest.raises(NothingFeasibleError, match=r"was found for 0\.\d*¢.*: the nearest takes"):
        search(flow, budget=0.0001)
    fastest = search(flow, deadline=37.5)
    with pytest.raises(NothingFeasibleError, match=r"within 37\.5 s and for"):
        search(flow, deadline=37.5, budget=cost(flow, fastest) * 0.5)
