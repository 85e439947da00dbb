"""Plans that are not carried out as they stand."""

from __future__ import annotations

import numpy as np
import pytest

from tradewind.errors import WorkflowError
from tradewind.workflow.files import Plan, with_feasible_times
from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.platform import Platform, Vm
from tradewind.workflow.schedule import Schedule

FLOW = Workflow("w", tuple(Task(name, name, 10.0) for name in "abc"), ((), (), (0,)))


def edited(*spans: tuple[float, float]) -> Plan:
    starts, ends = (np.array(each) for each in zip(*spans, strict=True))
    return Plan(FLOW, Platform((Vm("only"),)), Schedule(np.zeros(3, dtype=np.int32), starts, ends), "me")


def test_times_that_hold_stay() -> None:
    plan = edited((0, 10), (15, 30), (30, 40))
    assert with_feasible_times(plan) == (plan, "")


def test_where_only_starts_say_another_order_times_follow_it() -> None:
    plan, said = with_feasible_times(edited((5, 20), (0, 10), (21, 30)))
    assert plan.schedule.order == {0: (1, 0, 2)}
    assert (plan.schedule.start.tolist(), plan.schedule.finish.tolist()) == ([10, 0, 20], [20, 10, 30])
    assert said == "computed anew from its order: in the file machine 'only' runs more than it has slots for at 5.000 s"


def test_an_order_that_cannot_be_is_refused() -> None:
    with pytest.raises(WorkflowError, match="stands still: a, b is ready"):
        with_feasible_times(edited((20, 30), (10, 20), (0, 10)))
