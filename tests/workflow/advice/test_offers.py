"""Offers as machines, and what sets of them need at least."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import share
from tests.workflow.advice.samples import OFFERS, TERMS
from tests.workflow.simulator.test_reference import workflows

from tradewind import plugins
from tradewind.errors import WorkflowError
from tradewind.problem import Billing, Offer
from tradewind.workflow.advice.offers import MachineAssumptions, MachineSetBounds, kept_cost, worth_trying
from tradewind.workflow.bounds import lower_bound
from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.planner.heft import HeftPlanner
from tradewind.workflow.platform import Storage
from tradewind.workflow.simulator.reference import PriorityDirector, simulate

ONE = Workflow("one", (Task("a", "a", 10.0, memory_bytes=3 * 2**30), Task("b", "b", 2.0)), ((), ()))


@pytest.mark.slow
@settings(max_examples=share(80), deadline=None)
@given(workflows(), st.sampled_from(OFFERS), st.integers(1, 5), st.sampled_from(["none", "shared"]))
def test_no_plan_beats_the_bounds_of_its_set(flow: Workflow, offer: Offer, nodes: int, storage: Storage) -> None:
    terms = replace(TERMS, storage=storage, billing=Billing(0.0, 2.0, 0.5))
    several = offer.times(nodes)
    platform = terms.platform(several, flow)
    made = HeftPlanner(settings=plugins.Settings()).plan(flow, platform)
    set_bounds = MachineSetBounds(flow, terms)
    assert set_bounds.makespan(several) <= lower_bound(flow, platform) * (1 + 1e-3)
    assert set_bounds.makespan(several) <= made.makespan * (1 + 1e-9)
    assert set_bounds.cost(several) <= kept_cost(platform, made.makespan) + 1e-9
    if set_bounds.idle(several):
        fewer = terms.platform(offer.times(nodes - 1), flow)
        assert HeftPlanner(settings=plugins.Settings()).plan(flow, fewer).makespan <= made.makespan * (1 + 1e-9)


def test_all_machines_are_paid_from_their_order_to_the_end() -> None:
    flow = Workflow("two", (Task("a", "a", 90.0), Task("b", "b", 30.0)), ((), ()))
    offer = Offer("here", "one", 1, 1, 3600.0, nodes=2)
    terms = MachineAssumptions(boot_seconds=10.0, billing=Billing(granularity_seconds=60.0))
    # 100 s from the order to the end are two minutes each, also for the machine that has nothing to do after 40 s.
    assert kept_cost(terms.platform(offer, flow), 100.0) == 2 * 120.0
    assert MachineSetBounds(flow, terms).cost(offer) == 2 * 120.0
    assert MachineSetBounds(flow, replace(terms, boot_seconds=0.0)).makespan(offer) == 90.0


def test_of_machines_alike_only_the_cheapest_is_tried() -> None:
    names = [offer.instance_type for offer in worth_trying(OFFERS, Workflow("w", ONE.tasks * 4, ((),) * 8), TERMS)]
    assert names == ["fast-2", "slow-4", "fast-8"]  # slow-1 has too little memory for 3 GiB
    free = Workflow("w", tuple(Task(str(i), "a", 1.0) for i in range(3)), ((),) * 3)
    # Three tasks are on three slots at most: eight slots are as four, and the cheapest of them stays.
    kept = [offer.instance_type for offer in worth_trying(OFFERS, free, replace(TERMS, speeds={}))]
    assert kept == ["slow-1", "fast-2", "slow-4"]


def test_slots_are_what_memory_and_cores_leave() -> None:
    small, large = OFFERS[3], OFFERS[4]
    assert (TERMS.room(small, ONE), TERMS.sure_room(small, ONE)) == (2, 1)
    assert (TERMS.room(large, ONE), TERMS.sure_room(large, ONE)) == (8, 5)
    assert replace(TERMS, slots=2).room(large, ONE) == 2
    # Memory is counted beside slots; where it cannot run out before them, nobody needs to.
    none = float("inf")
    assert TERMS.amounts(large, ONE) == (16 * 2**30, none, none)
    assert replace(TERMS, slots=2).amounts(large, ONE) == (none, none, none)
    assert TERMS.platform(large, ONE).tight(ONE)
    wide = Workflow("wide", (Task("a", "a", 1.0, cores=4),), ((),))
    assert TERMS.room(small, wide) == 0
    assert MachineSetBounds(wide, TERMS).makespan(small) == float("inf")
    with pytest.raises(WorkflowError, match="a task needs 4 cores, and fast-2 has 2 vCPU"):
        TERMS.platform(small, wide)


def test_the_nearest_word_on_speed_counts() -> None:
    offer = replace(OFFERS[0], facts={"speed": 1.5})
    assert MachineAssumptions().speed(OFFERS[0]) == 1.0
    assert not MachineAssumptions().known(OFFERS[0])
    assert MachineAssumptions().speed(offer) == 1.5
    assert MachineAssumptions({"slow-*": 3.0}).speed(offer) == 3.0
    assert MachineAssumptions({"slow-*": 3.0, "slow": 4.0}).speed(offer) == 4.0
    assert MachineAssumptions({"slow-*": 3.0, "slow": 4.0, "slow-1": 5.0}).speed(offer) == 5.0
    assert MachineAssumptions({"slow-*": 3.0}).known(OFFERS[0])
    with pytest.raises(WorkflowError, match="the speed of slow-1 is 'quick'"):
        MachineAssumptions().speed(replace(offer, facts={"speed": "quick"}))


@pytest.mark.slow
@settings(max_examples=share(60), deadline=None)
@given(workflows(), st.lists(st.sampled_from([None, 1, 3, 7]), min_size=1, max_size=5), st.integers(1, 4),
       st.sampled_from(["none", "shared"]))  # fmt: skip
def test_no_plan_beats_the_bounds_where_memory_is_short(
    flow: Workflow, gib: list[int | None], nodes: int, storage: Storage
) -> None:
    tasks = tuple(
        replace(task, memory_bytes=gib[place % len(gib)] and gib[place % len(gib)] << 30)  # type: ignore[operator]
        for place, task in enumerate(flow.tasks)
    )
    flow, terms = replace(flow, tasks=tasks), replace(TERMS, storage=storage)
    several = Offer("here", "eight", 8, 8, 1.0, nodes=nodes)
    platform, set_bounds = terms.platform(several, flow), MachineSetBounds(flow, terms)
    made = HeftPlanner(settings=plugins.Settings()).plan(flow, platform)
    assert set_bounds.makespan(several) <= made.makespan * (1 + 1e-9)
    kinds = (
        np.array([[1.0, 1.0]]),
        np.array([[float(nodes * terms.room(several, flow)), 0.0]]),
        {0: np.array([[nodes * 8.0 * 2**30, 0.0]])},
    )
    path, work = set_bounds.parts_together(*kinds)
    assert (path[0], work[0]) == pytest.approx(set_bounds.parts(several))
    if set_bounds.idle(several):
        fewer = terms.platform(several.times(nodes - 1), flow)
        spread = simulate(flow, fewer, PriorityDirector([0.0] * len(flow), range(nodes - 1)))
        assert spread.makespan == pytest.approx(flow.critical_path(platform.seconds(flow)[:, 0])[0] + 20.0)


def test_one_machine_less_has_room_only_where_tasks_of_several_cores_find_it() -> None:
    flow = Workflow("wide", tuple(Task(str(i), "a", 1.0, cores=2) for i in range(3)), ((),) * 3)
    three = Offer("here", "three", 3, 0, 1.0, nodes=3)
    # Six cores are on two machines, but only two tasks fit there at a time.
    assert not MachineSetBounds(flow, TERMS).idle(three)
    assert MachineSetBounds(flow, TERMS).idle(three.times(4))


def test_memory_of_a_task_is_that_of_all_its_cores() -> None:
    wide = Workflow("wide", (Task("a", "a", 10.0, cores=4, memory_bytes=8 * 2**30),), ((),))
    offer = Offer("here", "one", 8, 12, 1.0)
    assert MachineAssumptions().room(offer, wide) == 6  # 2 GiB for each slot
    assert MachineAssumptions().room(replace(offer, memory_gib=7), wide) == 0


def test_offers_with_gpus_hold_as_many_tasks_with_one() -> None:
    tasks = tuple(Task(f"t{place}", "train", 10.0, gpus=1) for place in range(4))
    flow = Workflow("w", (*tasks, Task("other", "a", 1.0, disk_bytes=50 * 2**30)), ((),) * 5)
    plain = Offer("here", "plain", 8, 8, 0.1)
    two = Offer("here", "two", 8, 8, 1.0, gpus=2, facts={"disk_gib": 100})
    small = Offer("here", "small", 8, 8, 0.5, gpus=2, facts={"disk_gib": 10})
    terms = MachineAssumptions()
    assert [terms.room(offer, flow) for offer in (plain, two, small)] == [0, 8, 0]
    assert worth_trying([plain, two, small], flow, terms) == [two]
    platform = terms.platform(two.times(2), flow)
    assert [(vm.gpus, vm.disk_bytes) for vm in platform.vms] == [(2, 100 * 2**30)] * 2
    made = HeftPlanner(settings=plugins.Settings()).plan(flow, platform)
    assert made.makespan == MachineSetBounds(flow, terms).makespan(two.times(2)) == 10.0
    assert MachineSetBounds(flow, terms).makespan(two) == 20.0
    with pytest.raises(WorkflowError, match="needs 1 core, 1 GPU and 50 GiB of disk"):
        terms.platform(plain, flow)
