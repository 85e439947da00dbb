"""The compiled simulator comes to the times of the readable one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.effort import share
from tests.workflow.datasets import dax, needs_datasets

from tradewind import plugins
from tradewind.errors import WorkflowError
from tradewind.workflow.files import open_platform
from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.platform import Platform, Vm
from tradewind.workflow.schedule import Schedule, check
from tradewind.workflow.simulator.compiled import CompiledSimulator, replay_plan
from tradewind.workflow.simulator.reference import PriorityDirector, ScheduleDirector, simulate
from tradewind.workflow.simulator.world import World


@st.composite
def workflows(draw: st.DrawFn) -> Workflow:
    """Graphs whose tasks stand in any order in the file, of several cores, some without length.

    Where a task may read a file without waiting for the one that writes it, all have a length: see `CompiledSimulator`.
    """
    count = draw(st.integers(1, 16))
    loose = draw(st.booleans())
    place = draw(st.permutations(range(count)))
    rows: list[tuple[int, ...]] = [()] * count
    for task in range(count):
        drawn = draw(st.sets(st.integers(0, task - 1), max_size=3)) if task else set()
        rows[place[task]] = tuple(sorted(place[parent] for parent in drawn))
    tasks = []
    for i in range(count):
        extra = draw(st.sampled_from([(), ("outside",), (f"f{(i + 1) % count}",) if loose else ()]))
        inputs = tuple(dict.fromkeys((*(f"f{p}" for p in rows[i]), *extra)))
        time = draw(st.sampled_from([0.25 if loose else 0.0, 0.5, 1.0, 3.0, 7.25]))
        tasks.append(Task(str(i), "t", time, inputs, (f"f{i}",), draw(st.sampled_from([1, 1, 1, 2, 3]))))
    sizes = {f"f{i}": 3_000_000 * (i % 4) for i in range(count)} | {"outside": 7_000_000}
    return Workflow("drawn", tuple(tasks), tuple(rows), sizes)


@st.composite
def platforms(draw: st.DrawFn) -> Platform:
    kinds = [(1.0, 1, 0.0), (4.0, 1, 0.0), (2.0, 3, 0.0), (4.0, 2, 5.0), (1.0, 4, 1.0)]
    rows = [*draw(st.lists(st.sampled_from(kinds), max_size=3)), (2.0, 3, 0.5)]
    vms = tuple(Vm(f"vm{i}", speed, slots, boot_seconds=boot) for i, (speed, slots, boot) in enumerate(rows))
    return Platform(vms, draw(st.sampled_from(["none", "shared", "local"])), latency=draw(st.sampled_from([0.0, 0.25])))


delays = st.fixed_dictionaries(
    {},
    optional={
        "engine": st.sampled_from([0.0, 1.0, [2.0, 0.0, 0.5]]),
        "queue": st.sampled_from([0.5, [0.0, 1.0]]),
        "post": st.sampled_from([1.5, [0.0, 3.0, 0.0]]),
    },
)


def check_same(quick: Schedule, plain: Schedule) -> None:
    assert quick.vm.tolist() == plain.vm.tolist()
    assert quick.start.tolist() == plain.start.tolist()
    assert quick.finish.tolist() == plain.finish.tolist()


@pytest.mark.slow
@settings(max_examples=share(300), deadline=None)
@given(workflows(), platforms(), delays, st.randoms(use_true_random=False))
def test_policies(flow: Workflow, platform: Platform, delays: dict[str, object], chance: object) -> None:
    given = World(delays=delays)  # type: ignore[arg-type]
    keys = [float(chance.randint(0, 3)) for _ in range(len(flow))]  # type: ignore[attr-defined]
    preference = list(range(len(platform.vms)))
    chance.shuffle(preference)  # type: ignore[attr-defined]
    expected = simulate(flow, platform, PriorityDirector(keys, preference), given)
    check_same(CompiledSimulator(flow, platform, delays).queue(keys, preference), expected)  # type: ignore[arg-type]


@pytest.mark.slow
@settings(max_examples=share(300), deadline=None)
@given(workflows(), platforms(), delays, st.integers(0, 5), st.booleans())
def test_plans(flow: Workflow, platform: Platform, delays: dict[str, object], seed: int, noisy: bool) -> None:
    rng = np.random.default_rng(seed)
    plan = simulate(
        flow, platform, PriorityDirector(rng.random(len(flow)).tolist(), rng.permutation(len(platform.vms)).tolist())
    )
    given = World(delays=delays, noise=0.3 if noisy else 0.0, seed=seed)  # type: ignore[arg-type]
    expected = simulate(flow, platform, ScheduleDirector(plan), given)
    factors = np.array([given.luck(task, 0)[0] for task in range(len(flow))]) if noisy else None
    quick = CompiledSimulator(flow, platform, delays).follow(plan, factors)  # type: ignore[arg-type]
    check_same(quick, expected)
    if not delays:
        check(flow, platform, quick)


@pytest.mark.slow
def test_tasks_that_start_together_all_wait_for_a_file() -> None:
    # Neither takes time of its own: the plan's order must not depend on who fetches it.
    tasks = (*(Task(name, "t", 0.0, ("x",)) for name in "ab"), Task("c", "t", 2.0), Task("d", "t", 0.0, ("x",)))
    flow = Workflow("w", tasks, ((), (), (0,), (2,)), {"x": 3_000_000})
    platform = Platform((Vm("one", slots=2),), "local", bandwidth=1.0)
    found = simulate(flow, platform, PriorityDirector([0.0] * 4, [0]))
    assert found.finish.tolist() == [3.0, 3.0, 5.0, 5.0]  # the last one finds it there
    check_same(CompiledSimulator(flow, platform).queue([0.0] * 4, [0]), found)
    check_same(simulate(flow, platform, ScheduleDirector(found)), found)
    check_same(CompiledSimulator(flow, platform).follow(found), found)


@pytest.mark.slow
@pytest.mark.parametrize("planner", ["heft", "mct", "cpop", "fcfs"])
@settings(max_examples=share(60), deadline=None)
@given(flow=workflows(), platform=platforms())
def test_plans_say_when_tasks_of_no_length_end(planner: str, flow: Workflow, platform: Platform) -> None:
    waits = [{name for parent in parents for name in flow.tasks[parent].outputs} for parents in flow.parents]
    made = {name for task in flow.tasks for name in task.outputs}
    assume(all(set(names) & made <= known for names, known in zip(flow.real_inputs, waits, strict=True)))
    plan = replay_plan(flow, platform, plugins.create("planner", planner, {}).plan(flow, platform))
    followed = simulate(flow, platform, ScheduleDirector(plan))
    assert (followed.start.tolist(), followed.finish.tolist()) == (plan.start.tolist(), plan.finish.tolist())


@pytest.mark.slow
def test_each_parent_is_heard_of_after_its_own_delay() -> None:
    # c ends last, and a, which ended before, is heard of after it.
    tasks = (Task("a", "t", 4.0), Task("b", "t", 1.0), Task("c", "t", 1.0), Task("d", "t", 1.0))
    flow, platform = Workflow("w", tasks, ((), (), (1,), (0, 2))), Platform((Vm("one", slots=4),))
    delays = {"post": [3.0, 0.0]}
    expected = simulate(flow, platform, PriorityDirector([0.0] * 4, [0]), World(delays=delays))  # type: ignore[arg-type]
    assert expected.start.tolist() == [0.0, 0.0, 4.0, 7.0]
    quick = CompiledSimulator(flow, platform, delays)  # type: ignore[arg-type]
    check_same(quick.queue([0.0] * 4, [0]), expected)
    check_same(quick.follow(expected), expected)


def test_a_plan_against_the_graph_stands_still() -> None:
    flow = Workflow("w", (Task("a", "a", 1.0), Task("b", "b", 1.0)), ((), (0,)))
    wrong = Schedule(np.array([0, 0]), np.array([5.0, 0.0]), np.array([6.0, 1.0]))
    with pytest.raises(WorkflowError, match="stands still: a is ready"):
        CompiledSimulator(flow, Platform((Vm("one"),))).follow(wrong)


def test_a_plan_on_a_machine_that_is_too_small() -> None:
    flow = Workflow("w", (Task("a", "a", 1.0, cores=2),), ((),))
    plan = Schedule(np.array([0]), np.array([0.0]), np.array([1.0]))
    with pytest.raises(WorkflowError, match="stands still: a is ready"):
        CompiledSimulator(flow, Platform((Vm("small"), Vm("large", slots=2)))).follow(plan)


@pytest.mark.slow
@needs_datasets
@pytest.mark.parametrize("graph", ["Montage_100", "Epigenomics_100", "Sipht_60", "CyberShake_100"])
@pytest.mark.parametrize("vcpu", [16, 128])
def test_real_graphs(graph: str, vcpu: int) -> None:
    flow, platform = dax(graph), open_platform(f"paper3:{vcpu}")
    preference = np.argsort(-platform.speeds, kind="stable").tolist()
    compiled = CompiledSimulator(flow, platform)
    plan = compiled.queue(np.zeros(len(flow)), preference)
    check_same(plan, simulate(flow, platform, PriorityDirector([0.0] * len(flow), preference)))
    check_same(compiled.follow(plan), simulate(flow, platform, ScheduleDirector(plan)))


@pytest.mark.parametrize("planner", ["cpop", "sufferage", "heft"])
def test_a_plan_says_when_its_tasks_end_though_they_read_what_they_do_not_wait_for(planner: str) -> None:
    def task(number: int, runtime: float, *inputs: int) -> Task:
        return Task(f"t{number}", "t", runtime, tuple(f"f{place}" for place in inputs), (f"f{number}",))

    tasks = (task(0, 1, 1, 4, 5), task(1, 4), task(2, 1, 0), task(3, 3, 2, 4, 6), task(4, 2, 1, 3), task(5, 1, 1),
             task(6, 3, 0, 3))  # fmt: skip
    sizes = {f"f{number}": size * 15_000_000 for number, size in enumerate((2, 1, 3, 3, 1, 3, 1))}
    flow = Workflow("unwaited", tasks, ((), (), (0,), (), (), (2,), (4,)), sizes)
    platform = Platform((Vm("x", slots=2), Vm("y", 2.0)), "local")
    planned = plugins.create("planner", planner, {}, seed=0).plan(flow, platform)
    found = replay_plan(flow, platform, planned)
    check(flow, platform, found)
    real = simulate(flow, platform, ScheduleDirector(found))
    assert found.finish.tolist() == pytest.approx(real.finish.tolist())
    if planner == "sufferage":
        assert (planned.makespan, found.makespan) == (13.0, 9.5)
    nowhere = replace(platform, storage="none")
    assert replay_plan(flow, nowhere, planned) is planned
