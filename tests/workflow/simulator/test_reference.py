"""The readable simulator, and the compiled loops, which do the same."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import share
from tests.workflow.datasets import dax, needs_datasets

from tradewind import plugins
from tradewind.errors import WorkflowError
from tradewind.plugins import Settings
from tradewind.problem import Billing
from tradewind.workflow.bounds import lower_bound
from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.learning.adaptive import AdaptivePolicy, AdaptiveWeights
from tradewind.workflow.planner.heft import HeftPlanner
from tradewind.workflow.planner.list_scheduling import SlotArrays
from tradewind.workflow.platform import Platform, Vm
from tradewind.workflow.schedule import RepeatedAttempt, Schedule, check, figures
from tradewind.workflow.simulator.compiled import CompiledSimulator
from tradewind.workflow.simulator.reference import PriorityDirector, ScheduleDirector, simulate
from tradewind.workflow.simulator.world import World


def heft(flow: Workflow, platform: Platform) -> Schedule:
    return HeftPlanner(settings=Settings()).plan(flow, platform)


@st.composite
def workflows(draw: st.DrawFn, most: int = 14) -> Workflow:
    count = draw(st.integers(1, most))
    parents = tuple(
        tuple(sorted(draw(st.sets(st.integers(0, task - 1), max_size=3)))) if task else () for task in range(count)
    )
    times = draw(st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0, 7.25]), min_size=count, max_size=count))
    tasks = tuple(
        Task(str(i), f"a{i % 3}", times[i], tuple(f"f{p}" for p in parents[i]), (f"f{i}",)) for i in range(count)
    )
    return Workflow("drawn", tasks, parents, {f"f{i}": 3_000_000 * (i % 4) for i in range(count)})


@st.composite
def platforms(draw: st.DrawFn) -> Platform:
    kinds = draw(
        st.lists(st.sampled_from([(1.0, 1, 0.0), (4.0, 1, 0.0), (2.0, 3, 0.0), (4.0, 2, 5.0)]), min_size=1, max_size=4)
    )
    vms = tuple(
        Vm(f"vm{i}", speed, slots, 0.1 * speed, boot_seconds=boot) for i, (speed, slots, boot) in enumerate(kinds)
    )
    return Platform(vms, draw(st.sampled_from(["none", "shared"])))


@pytest.mark.slow
@settings(max_examples=share(150), deadline=None)
@given(workflows(), platforms())
def test_heft_is_a_schedule_and_the_simulator_comes_to_the_same_times(flow: Workflow, platform: Platform) -> None:
    plan = heft(flow, platform)
    check(flow, platform, plan)
    bound = lower_bound(flow, platform)
    assert bound <= plan.makespan * (1 + 1e-9)
    real = simulate(flow, platform, ScheduleDirector(plan))
    check(flow, platform, real)
    assert real.makespan <= plan.makespan * (1 + 1e-9) + 1e-9
    said = figures(flow, platform, real, bound)
    assert 0 <= said.utilisation <= 1 + 1e-9
    assert said.gap >= -1e-9


@pytest.mark.slow
@settings(max_examples=share(150), deadline=None)
@given(workflows(), platforms(), st.randoms(use_true_random=False))
def test_the_compiled_loop_does_what_the_readable_one_does(flow: Workflow, platform: Platform, chance: object) -> None:
    keys = np.array([float(task % 3) for task in range(len(flow))])
    preference = np.argsort(-platform.speeds, kind="stable").astype(np.int32)
    quick = SlotArrays(flow, platform).simulate(keys, preference)
    plain = simulate(flow, platform, PriorityDirector(keys.tolist(), preference.tolist()))
    assert quick.start.tolist() == pytest.approx(plain.start.tolist())
    assert quick.finish.tolist() == pytest.approx(plain.finish.tolist())
    assert quick.vm.tolist() == plain.vm.tolist()


@pytest.mark.slow
@settings(max_examples=share(60), deadline=None)
@given(workflows(7), platforms())
def test_no_order_of_tasks_beats_the_lower_bound(flow: Workflow, platform: Platform) -> None:
    bound = lower_bound(flow, platform)
    lanes = SlotArrays(flow, platform)
    for seed in range(20):
        weights = np.random.default_rng(seed).random(len(flow))
        sequence = np.array(sorted(range(len(flow)), key=lambda t: (flow.depth[t], weights[t])), dtype=np.int32)
        assert lanes.place(sequence).makespan >= bound * (1 - 1e-9)


def test_local_storage_fetches_a_file_once() -> None:
    tasks = (Task("a", "a", 1.0, (), ("x",)), Task("b", "b", 1.0, ("x",)), Task("c", "c", 1.0, ("x",)))
    flow = Workflow("w", tasks, ((), (0,), (1,)), {"x": 30_000_000})
    two = Platform((Vm("one"), Vm("two")), "local", bandwidth=10.0, latency=0.5)
    here = Schedule(np.array([0, 0, 0]), np.array([0.0, 1.0, 2.0]), np.array([1.0, 2.0, 3.0]))
    there = Schedule(np.array([0, 1, 1]), np.array([0.0, 1.0, 2.0]), np.array([1.0, 2.0, 3.0]))
    assert simulate(flow, two, ScheduleDirector(here)).makespan == 3.0
    assert simulate(flow, two, ScheduleDirector(there)).makespan == 3.0 + 3.5


def test_tasks_of_several_cores_wait_for_them() -> None:
    tasks = (Task("a", "a", 2.0), Task("b", "b", 2.0, cores=3), Task("c", "c", 2.0))
    flow = Workflow("w", tasks, ((), (), ()))
    platform = Platform((Vm("one", slots=3),))
    plan = simulate(flow, platform, PriorityDirector([0.0, 1.0, 2.0], [0]))
    check(flow, platform, plan)
    assert plan.makespan == 4.0
    with pytest.raises(WorkflowError, match="uses 3 cores, and no machine has as many"):
        simulate(flow, Platform((Vm("one", slots=2),)), PriorityDirector([0.0] * 3, [0]))


def test_a_plan_against_the_graph_stands_still_with_one_line() -> None:
    tasks = (Task("a", "a", 1.0), Task("b", "b", 1.0))
    flow = Workflow("w", tasks, ((), (0,)))
    wrong = Schedule(np.array([0, 0]), np.array([5.0, 0.0]), np.array([6.0, 1.0]))
    with pytest.raises(WorkflowError, match="stands still: a is ready"):
        simulate(flow, Platform((Vm("one"),)), ScheduleDirector(wrong))


def test_delays_failures_and_noise() -> None:
    tasks = tuple(Task(str(i), "t", 10.0) for i in range(4))
    flow = Workflow("chain", tasks, ((), (0,), (1,), (2,)))
    platform = Platform((Vm("one"),))
    plan = ScheduleDirector(heft(flow, platform))
    late = simulate(flow, platform, plan, World(delays={"engine": 1.0, "queue": 0.5, "post": [2.0, 0.25]}))
    assert late.makespan == pytest.approx(40 + 4 * 1.0 + 4 * 0.5 + 2.0 + 2 * 0.25)
    world = World(failure=0.9, retries=2, seed=4, last_ends_well=True)
    failing = simulate(flow, platform, PriorityDirector([0.0] * 4, [0]), world)
    assert failing.attempts.max() <= 3
    assert failing.attempts.sum() > 4
    assert failing.makespan > 40.0
    one, other = (
        simulate(flow, platform, PriorityDirector([0.0] * 4, [0]), World(noise=0.3, seed=s)).makespan for s in (1, 2)
    )
    assert one != other
    assert one == simulate(flow, platform, PriorityDirector([0.0] * 4, [0]), World(noise=0.3, seed=1)).makespan


def test_attempts_that_failed_are_paid_and_occupy_their_machine() -> None:
    flow = Workflow("w", (Task("a", "a", 100.0),), ((),))
    platform = Platform((Vm("one", price_per_hour=3.6), Vm("other", price_per_hour=36.0)), billing=Billing(0, 0, 1e-9))
    world = World(failure=1.0, retries=3, seed=1, last_ends_well=True)
    real = simulate(flow, platform, PriorityDirector([0.0], [0]), world)
    assert real.attempts.tolist() == [4]
    assert [each.task for each in real.repeated] == [0, 0, 0]
    assert real.repeated[0].start == 0.0 and real.repeated[-1].finish == real.start[0]
    said = figures(flow, platform, real, 100.0)
    assert real.makespan > 101.0
    assert said.cost == pytest.approx(real.makespan * 3.6 / 3600, abs=1e-4)
    assert said.serial == pytest.approx(real.makespan)
    assert said.utilisation == pytest.approx(0.5)


def test_a_machine_on_which_only_an_attempt_failed_is_paid() -> None:
    flow = Workflow("w", (Task("a", "a", 100.0, cores=2),), ((),))
    platform = Platform((Vm("one", 1.0, 2, 3.6), Vm("other", 1.0, 2, 36.0)), billing=Billing(0, 0, 1e-9))
    again = Schedule(
        np.array([0]), np.array([50.0]), np.array([150.0]), np.array([2]), (RepeatedAttempt(0, 1, 10.0, 50.0),)
    )
    said = figures(flow, platform, again, 100.0)
    assert said.cost == pytest.approx(0.1 + 0.4)
    assert (said.serial, said.utilisation) == pytest.approx((140.0, 280 / 600))


def test_a_task_that_failed_is_repeated_before_those_after_it_in_the_plan() -> None:
    flow = Workflow("w", tuple(Task(str(i), "t", 10.0) for i in range(4)), ((), (), (), ()))
    platform = Platform((Vm("one"), Vm("two")))
    plan = heft(flow, platform)
    real = simulate(flow, platform, ScheduleDirector(plan), World(failure=0.5, seed=4))
    assert real.attempts.max() > 1
    assert real.order == plan.order


def test_a_task_whose_attempts_are_used_up_fails_for_good_and_what_needs_it_does_not_run() -> None:
    # bad -> child -> grandchild; other -> grandchild; alone.
    names = ("bad", "child", "other", "grandchild", "alone")
    flow = Workflow("w", tuple(Task(name, "t", 10.0) for name in names), ((), (0,), (), (1, 2), ()))
    platform = Platform((Vm("one", price_per_hour=3.6), Vm("two", price_per_hour=3.6)), billing=Billing(0, 0, 1e-9))
    plan = Schedule(np.array([0, 0, 1, 0, 0]), np.array([0.0, 10, 0, 20, 30]), np.array([10.0, 20, 10, 30, 40]))
    seed = next(seed for seed in range(99) if _fails(World(failure=0.5, retries=1, seed=seed)) == [0])
    world = World(failure=0.5, retries=1, seed=seed)
    for director in (ScheduleDirector(plan), PriorityDirector([0.0] * 5, [0, 1])):
        real = simulate(flow, platform, director, world)
        assert (real.failed, real.skipped) == ((0,), (1, 3))
        assert real.vm[[1, 3]].tolist() == [-1, -1] and real.attempts[[0, 1, 3]].tolist() == [2, 0, 0]
        assert real.finish[0] > real.start[0] and real.finish[[2, 4]].min() > 0
        assert sorted(task for tasks in real.order.values() for task in tasks) == [0, 2, 4]
        said = figures(flow, platform, real, 30.0)
        spent = real.finish - real.start
        assert said.serial == pytest.approx(spent.sum() + sum(each.finish - each.start for each in real.repeated))
    # Did its last attempt end well, all would run: nothing else of its luck is different.
    more = simulate(flow, platform, ScheduleDirector(plan), replace(world, last_ends_well=True))
    assert more.failed == more.skipped == ()


def _fails(world: World) -> list[int]:
    """Of five tasks, those whose attempts are used up."""
    return [task for task in range(5) if all(world.luck(task, attempt)[1] is not None for attempt in range(2))]


def test_machines_that_drift_and_move() -> None:
    flow = Workflow("w", (Task("a", "a", 300.0),), ((),))
    platform = Platform((Vm("one"),))
    moved = simulate(flow, platform, PriorityDirector([0.0], [0]), World(migration=1.0, pause=6.0, period=60.0))
    # 54 s of work in each minute: 300 s of work take 5 whole minutes, and 6 s of pause and 30 s of work in the sixth.
    assert moved.makespan == pytest.approx(5 * 60 + 6 + 30)
    times = {
        simulate(flow, platform, PriorityDirector([0.0], [0]), World(drift=0.2, seed=s)).makespan for s in range(5)
    }
    assert len(times) == 5
    unknown = simulate(flow, platform, PriorityDirector([0.0], [0]), World(unknown=0.5, seed=3)).makespan
    assert unknown != 300.0


@pytest.mark.parametrize("pause", [60.0, 75.0])
def test_a_world_in_which_nothing_ever_ends_is_refused(pause: float) -> None:
    with pytest.raises(WorkflowError, match=r"no task would ever end: each machine is moved every 60 s") as refusal:
        World(migration=1.0, pause=pause, period=60.0)
    assert refusal.value.hint
    assert World(migration=0.99, pause=pause, period=60.0).pause == pause
    assert World(migration=1.0, pause=59.0, period=60.0).migration == 1.0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"noise": 800.0}, "noise is 800, not 0 to 3"),
        ({"unknown": 3.1}, "unknown is 3.1, not 0 to 3"),
        ({"drift": -0.1}, "drift is -0.1, not 0 to 3"),
        ({"noise": float("nan")}, "noise is nan, not 0 to 3"),
        ({"failure": float("nan")}, "failure is nan"),
        ({"migration": 1.5}, "migration is 1.5"),
        ({"period": 0.0}, "a period of 0 s"),
        ({"pause": float("inf")}, "a pause of inf s"),
    ],
)
def test_worlds_that_are_none(given: dict[str, float], words: str) -> None:
    with pytest.raises(WorkflowError, match=words) as refusal:
        World(**given)  # type: ignore[arg-type]  # all of them numbers
    assert refusal.value.hint


def test_machines_that_drift_beyond_all_numbers_still_have_a_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tradewind.workflow.simulator.world._FARTHEST", 5.0)  # which takes less steps than 700
    speeds = {World(drift=3.0, seed=seed).speed(0, 100)[0] for seed in range(20)}
    assert min(speeds) == np.exp(-5.0) and max(speeds) == np.exp(5.0)


def test_a_migration_that_takes_a_whole_period_ends_whatever_the_rounding() -> None:
    flow = Workflow("w", (Task("a", "a", 30.0),), ((),))
    for period in (0.1, 0.7, 1 / 3, 51.17 / 20):
        world = World(migration=0.5, pause=period, period=period, seed=1)
        real = simulate(flow, Platform((Vm("one"),)), PriorityDirector([0.0], [0]), world).makespan
        still = sum(world.speed(0, place)[1] > place * period + period / 2 for place in range(int(real / period)))
        assert real == pytest.approx(30.0 + still * period)


def test_speeds_far_ahead_can_be_asked_for_from_deep_below() -> None:
    def below(left: int) -> float:
        return below(left - 1) if left else World(drift=0.01, seed=77).speed(0, 3000)[0]

    assert below(300) > 0


def test_speeds_do_not_depend_on_the_order_in_which_they_are_asked_for() -> None:
    forth, back = World(drift=0.1, unknown=0.3, seed=5), World(drift=0.1, unknown=0.3, seed=5)
    ahead = [forth.speed(vm, place) for vm in (0, 1) for place in range(50)]
    assert [back.speed(vm, place) for vm in (1, 0) for place in reversed(range(50))] == ahead[::-1]
    assert len(set(ahead)) == 100
    assert forth == back
    assert replace(forth, seed=6).speed(0, 0) == World(drift=0.1, unknown=0.3, seed=6).speed(0, 0) != ahead[0]


def test_speeds_are_walked_to_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made, steps = random.Random, []
    monkeypatch.setattr(random, "Random", lambda seed: steps.append(seed) or made(seed))  # type: ignore[func-returns-value]
    world = World(drift=0.1, seed=5)
    for place in range(300):
        world.speed(0, place)
    assert len(steps) == 300


@pytest.mark.thorough
def test_a_task_that_goes_through_speeds_without_end_is_refused() -> None:
    flow = Workflow("long", (Task("a", "t", 1e12),), ((),))
    for drift in (0.0, 1e-3):
        world = World(unknown=0.1, drift=drift, period=1.0, seed=5)
        with pytest.raises(WorkflowError, match=r"more than 1,000,000 periods of 1 s"):
            simulate(flow, Platform((Vm("a"),)), PriorityDirector([0.0], [0]), world)
    short = World(unknown=0.1, period=1e-300, seed=5)
    late = Workflow("late", (Task("a", "t", 1.0), Task("b", "t", 1.0)), ((), (0,)))
    with pytest.raises(WorkflowError, match="more than 1,000,000 periods"):
        AdaptivePolicy(late, Platform((Vm("a", boot_seconds=5.0),)), AdaptiveWeights()).run(short)


def made() -> tuple[Workflow, Platform]:
    parents = tuple(tuple(sorted({i // 2, i // 3} - {i})) if i else () for i in range(40))
    tasks = tuple(Task(str(i), "t", 1.0 + (i * 7) % 5) for i in range(40))
    return Workflow("made", tasks, parents), Platform((Vm("a"), Vm("b", 2.0, 2), Vm("c", 4.0)))


@needs_datasets
@pytest.mark.parametrize(
    ("graph", "vcpu", "optimum"),
    [
        ("Montage_25", 16, 48.185),
        ("Montage_25", 64, 25.753),
        ("Montage_25", 128, 22.273),
        ("Epigenomics_24", 16, 3406.738),
    ],
)
def test_proven_optima_lie_between_bound_and_plan(graph: str, vcpu: int, optimum: float) -> None:
    vms = [Vm(f"slow{i}") for i in range(8)] + [Vm(f"fast{i}", 4.156) for i in range((vcpu - 8) // 8)]
    platform = Platform(tuple(vms), "shared")
    assert lower_bound(dax(graph), platform) <= optimum + 1e-3
    assert heft(dax(graph), platform).makespan >= optimum - 1e-2


def test_of_equal_tasks_that_of_the_highest_priority_goes_first() -> None:
    """As HTCondor has it; what a policy prefers goes before."""
    tasks = tuple(Task(f"t{place}", "t", 1.0, priority=priority) for place, priority in enumerate((0, 5, -5, 5)))
    flow, platform = Workflow("w", tasks, ((),) * 4), Platform((Vm("one"),))
    assert flow.order.tolist() == [1, 3, 0, 2]
    for keys, order in (([0.0] * 4, [1, 3, 0, 2]), ([1.0, 1.0, 0.0, 1.0], [2, 1, 3, 0])):
        plain = simulate(flow, platform, PriorityDirector(keys, [0]))
        assert np.argsort(plain.start).tolist() == order
        assert CompiledSimulator(flow, platform).queue(keys, [0]).start.tolist() == plain.start.tolist()
    for name in ("heft", "mct", "minmin", "fcfs", "peft", "roundrobin", "adaptive"):
        plan = plugins.create("planner", name, {}).plan(flow, platform)
        assert np.argsort(plan.start).tolist() == [1, 3, 0, 2], name
