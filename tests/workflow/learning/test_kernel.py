"""The compiled episodes do what the readable simulator does with the directors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import share

from tradewind.errors import WorkflowError
from tradewind.plugins import Settings
from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.learning import kernel
from tradewind.workflow.learning.adaptive import AdaptivePolicy, AdaptiveWeights, readable
from tradewind.workflow.learning.arrays import EpisodeArrays, schedule
from tradewind.workflow.learning.evaluation import simulate_schedule
from tradewind.workflow.learning.q_learning import KeyedBy, QLearningSettings, QPolicy
from tradewind.workflow.planner.heft import HeftPlanner
from tradewind.workflow.platform import Platform, Vm
from tradewind.workflow.schedule import Schedule, check
from tradewind.workflow.simulator.reference import PriorityDirector, ScheduleDirector, simulate
from tradewind.workflow.simulator.world import World


@st.composite
def workflows(draw: st.DrawFn) -> Workflow:
    count = draw(st.integers(1, 14))
    parents = tuple(
        tuple(sorted(draw(st.sets(st.integers(0, task - 1), max_size=3)))) if task else () for task in range(count)
    )
    times = draw(st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0, 7.25]), min_size=count, max_size=count))
    wide = draw(st.booleans())
    tasks = tuple(
        Task(
            str(i),
            f"a{i % 3}",
            times[i],
            tuple(f"f{p}" for p in parents[i]),
            (f"f{i}",),
            2 if wide and i % 4 == 1 else 1,
        )
        for i in range(count)
    )
    return Workflow("drawn", tasks, parents, {f"f{i}": 3_000_000 * (i % 4) for i in range(count)})


@st.composite
def platforms(draw: st.DrawFn) -> Platform:
    kinds = draw(st.lists(st.sampled_from([(1.0, 1, 0.0), (4.0, 1, 0.0), (4.0, 2, 5.0)]), max_size=3))
    vms = [Vm(f"vm{i}", speed, slots, boot_seconds=boot) for i, (speed, slots, boot) in enumerate(kinds)]
    return Platform((*vms, Vm("wide", 2.0, 3)), draw(st.sampled_from(["none", "shared"])))


@st.composite
def worlds(draw: st.DrawFn) -> World:
    if draw(st.booleans()):
        return World()
    chosen: dict[str, Any] = {
        "noise": 0.4, "unknown": 0.5, "drift": 0.2, "migration": 0.3, "failure": 0.4,
        "delays": {"engine": 0.25, "queue": [0.5, 0.0], "post": [1.0, 0.125]},
    }  # fmt: skip
    kept = {key: value for key, value in chosen.items() if draw(st.booleans())}
    kept["last_ends_well"] = True  # as in all that is learned from
    return World(**kept, period=draw(st.sampled_from([2.0, 0.7])), pause=0.7, seed=draw(st.integers(0, 50)))


def expect_same(quick: Schedule, plain: Schedule) -> None:
    assert quick.vm.tolist() == plain.vm.tolist()
    assert quick.start.tolist() == plain.start.tolist()
    assert quick.finish.tolist() == plain.finish.tolist()
    assert quick.attempts.tolist() == plain.attempts.tolist()


@pytest.mark.slow
@settings(max_examples=share(150), deadline=None)
@given(workflows(), platforms(), worlds())
def test_a_followed_plan(flow: Workflow, platform: Platform, world: World) -> None:
    plan = simulate(flow, platform, PriorityDirector([0.0] * len(flow), range(len(platform.vms))))
    expect_same(
        simulate_schedule(EpisodeArrays(flow, platform), plan, world),
        simulate(flow, platform, ScheduleDirector(plan), world),
    )


@pytest.mark.slow
@settings(max_examples=share(100), deadline=None)
@given(workflows(), platforms(), worlds())
def test_a_list_of_priorities(flow: Workflow, platform: Platform, world: World) -> None:
    keys = np.array([float(task * 5 % 3) for task in range(len(flow))])
    preference = np.argsort(-platform.speeds, kind="stable")
    quick = schedule(EpisodeArrays(flow, platform).run(world, lambda given: kernel.by_key(given, keys, preference)))
    expect_same(quick, simulate(flow, platform, PriorityDirector(keys.tolist(), preference.tolist()), world))


@pytest.mark.slow
@settings(max_examples=share(200), deadline=None)
@given(workflows(), platforms(), worlds(), st.sampled_from([-0.5, 0.0, 1.0]))
def test_the_adaptive_policy(flow: Workflow, platform: Platform, world: World, caution: float) -> None:
    policy = AdaptivePolicy(
        flow, platform, AdaptiveWeights(caution=caution, patience=max(caution, 0.0), fastest=0.5, own=0.1)
    )
    quick, plain = policy.run(world), readable(policy, world)
    expect_same(quick, plain)
    if not world.delays:
        check(flow, platform, quick)


@pytest.mark.slow
@settings(max_examples=share(200), deadline=None)
@given(workflows(), platforms(), worlds(), st.sampled_from(["machine", "activation", "activity"]), st.integers(0, 9))
def test_q_learning(flow: Workflow, platform: Platform, world: World, keyed_by: KeyedBy, seed: int) -> None:
    chosen = QLearningSettings(keyed_by=keyed_by, explore=0.4, learning_rate=0.7)
    quick, plain = (QPolicy(flow, platform, chosen, seed) for _ in range(2))
    for _ in range(3):
        real = simulate(flow, platform, plain.director(learning=True), world)
        plain.see(real)
        expect_same(quick.learn(world), real)
        assert quick.state() == plain.state()
        assert quick.times.tolist() == plain.times.tolist()
    before = quick.state()
    expect_same(quick.run(world), simulate(flow, platform, plain.director(), world))
    assert quick.state() == before


@pytest.mark.slow
def test_a_run_that_lasts_longer_than_speeds_were_drawn_for() -> None:
    flow = Workflow("long", (Task("a", "a", 1000.0),), ((),))
    platform = Platform((Vm("one"),))
    policy, world = AdaptivePolicy(flow, platform, AdaptiveWeights()), World(drift=0.1, period=1.0, seed=5)
    assert policy.run(world).makespan == readable(policy, world).makespan


@pytest.mark.slow
def test_a_plan_against_the_graph_is_told_in_one_line() -> None:
    flow = Workflow("w", (Task("a", "a", 1.0), Task("b", "b", 1.0)), ((), (0,)))
    wrong = Schedule(np.array([0, 0]), np.array([5.0, 0.0]), np.array([6.0, 1.0]))
    with pytest.raises(WorkflowError, match="stands still: a is ready"):
        simulate_schedule(EpisodeArrays(flow, Platform((Vm("one"),))), wrong, World())


def test_tasks_that_take_no_time_on_machines_that_start_late_are_placed() -> None:
    flow = Workflow("none", tuple(Task(str(n), "a", 0.0) for n in range(3)), ((),) * 3)
    policy = AdaptivePolicy(
        flow, Platform((Vm("soon", boot_seconds=5.0), Vm("late", boot_seconds=30.0))), AdaptiveWeights()
    )
    found = policy.run(World())
    assert (found.vm.tolist(), found.finish.tolist()) == ([0, 0, 0], [5.0, 5.0, 5.0])
    expect_same(found, readable(policy, World()))


def test_adaptive_learns_which_machine_is_slow() -> None:
    flow = Workflow("w", tuple(Task(str(i), "a", 10.0) for i in range(40)), ((),) * 40)
    platform = Platform((Vm("a"), Vm("b"), Vm("c"), Vm("d")))
    world = World(unknown=0.8, seed=2)
    policy = AdaptivePolicy(flow, platform, AdaptiveWeights(deviation=0.8, noise=0.05))
    director = policy.director()
    real = simulate(flow, platform, director, world)
    truth = [np.log(world.speed(vm, 0)[0]) for vm in range(4)]
    assert director.posterior[0].tolist() == pytest.approx(truth, abs=0.02)
    fixed = simulate_schedule(policy.arrays, HeftPlanner(settings=Settings()).plan(flow, platform), world)
    assert real.makespan < 0.75 * fixed.makespan
