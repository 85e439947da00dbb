"""Machines on which only some tasks fit: every planner, the simulators and the bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.effort import share
from tests.workflow.planner.test_conformance import QUICK

from tradewind import plugins
from tradewind.errors import WorkflowError
from tradewind.workflow.bounds import lower_bound
from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.learning.adaptive import AdaptivePolicy, AdaptiveWeights, readable
from tradewind.workflow.learning.arrays import EpisodeArrays
from tradewind.workflow.learning.evaluation import simulate_schedule
from tradewind.workflow.learning.q_learning import QLearningSettings, QPolicy
from tradewind.workflow.learning.training_folder import digest
from tradewind.workflow.planner import cp_sat
from tradewind.workflow.planner.base import Online, Planner
from tradewind.workflow.planner.cp_sat import CpSatPlanner, CpSatSettings
from tradewind.workflow.planner.list_scheduling import mean_of_fitting
from tradewind.workflow.platform import Platform, Storage, Vm
from tradewind.workflow.schedule import Schedule, check
from tradewind.workflow.simulator.compiled import CompiledSimulator, replay_plan
from tradewind.workflow.simulator.reference import (
    Director,
    PriorityDirector,
    ScheduleDirector,
    SimulationState,
    simulate,
)
from tradewind.workflow.simulator.replications import SimulationCase, simulate_like_workflowsim, simulate_repeatedly
from tradewind.workflow.simulator.world import World

GIB = 2**30
SMALL = QUICK | {"search": {"turns": 20}, "cost_search": {"turns": 20}, "q_learning": {"episodes": 3}}


@st.composite
def workflows(draw: st.DrawFn, most: int = 12, cores: tuple[int, ...] = (1, 1, 1, 2)) -> Workflow:
    """Graphs of tasks that need 1, 4 or 16 GiB, or do not say; some of them use GPUs and disk, or go before others."""
    count = draw(st.integers(1, most))
    parents = tuple(
        tuple(sorted(draw(st.sets(st.integers(0, task - 1), max_size=3)))) if task else () for task in range(count)
    )
    memory = st.sampled_from([None, GIB, GIB, 4 * GIB, 16 * GIB])
    gpus = st.sampled_from(draw(st.sampled_from([(0,), (0, 0, 1), (1,), (0, 1, 2)])))
    disk = st.sampled_from(draw(st.sampled_from([(None,), (None, 10 * GIB, 40 * GIB)])))
    priority = st.sampled_from(draw(st.sampled_from([(0,), (0, -2, 5)])))
    tasks = tuple(
        Task(
            str(i), f"a{i % 3}", draw(st.sampled_from([0.0, 0.5, 1.0, 3.0, 7.25])), tuple(f"f{p}" for p in parents[i]),
            (f"f{i}",), draw(st.sampled_from(cores)), draw(memory), gpus=draw(gpus), disk_bytes=draw(disk),
            priority=draw(priority),
        )
        for i in range(count)
    )  # fmt: skip
    return Workflow("drawn", tasks, parents, {f"f{i}": 3_000_000 * (i % 4) for i in range(count)})


@st.composite
def platforms(draw: st.DrawFn, storages: tuple[Storage, ...] = ("none", "shared", "local")) -> Platform:
    """A large machine that holds every task, and smaller ones, some of them alike but for their memory."""
    kinds = [
        (1.0, 1, 0.0, 2, 0, None),
        (4.0, 1, 0.0, 2, 1, None),
        (4.0, 1, 0.0, 8, 0, 20),
        (2.0, 3, 0.0, 4, 1, 50),
        (4.0, 2, 5.0, 24, 2, None),
        (4.0, 2, 5.0, 1, 0, None),
    ]
    rows = draw(st.lists(st.sampled_from(kinds), max_size=4))
    rows.insert(draw(st.integers(0, len(rows))), (2.0, 4, 0.0, 32, 2, 60))
    vms = tuple(
        Vm(
            f"vm{i}", speed, slots, 0.1 * speed, boot_seconds=boot, memory_bytes=gib * GIB, gpus=gpus,
            disk_bytes=None if disk is None else disk * GIB,
        )
        for i, (speed, slots, boot, gib, gpus, disk) in enumerate(rows)
    )  # fmt: skip
    return Platform(vms, draw(st.sampled_from(storages)))


def fitting(flow: Workflow, platform: Platform, schedule: Schedule) -> None:
    """No task is on a machine with too little of something for it, whatever else of this package says."""
    for task, vm in zip(flow.tasks, schedule.vm, strict=True):
        machine = platform.vms[vm]
        assert (task.memory_bytes or 0) <= (machine.memory_bytes or 0)
        assert task.cores <= machine.slots
        assert task.gpus <= machine.gpus
        assert machine.disk_bytes is None or (task.disk_bytes or 0) <= machine.disk_bytes
    # What runs there at a time fits, too.
    for moment in schedule.start:
        running = np.flatnonzero((schedule.start <= moment) & (moment < schedule.finish))
        for vm, machine in enumerate(platform.vms):
            together = [flow.tasks[task] for task in running if schedule.vm[task] == vm]
            assert sum(task.memory_bytes or 0 for task in together) <= (machine.memory_bytes or 0)
            assert sum(task.gpus for task in together) <= machine.gpus
            assert machine.disk_bytes is None or sum(task.disk_bytes or 0 for task in together) <= machine.disk_bytes


@pytest.mark.slow
@pytest.mark.parametrize("name", plugins.names("planner"))
def test_no_task_is_planned_where_it_does_not_fit(name: str) -> None:
    @settings(max_examples=share(25, 8), deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(workflows(), platforms())
    def on(flow: Workflow, platform: Platform) -> None:
        held = platform.holding(flow)
        planner: Planner = plugins.create("planner", name, SMALL.get(name, {}), seed=1)
        plan = replay_plan(flow, held, planner.plan(flow, held))
        check(flow, held, plan)
        fitting(flow, platform, plan)
        assert plan.makespan >= lower_bound(flow, held) * (1 - 1e-9)
        followed = simulate(flow, held, ScheduleDirector(plan))
        assert CompiledSimulator(flow, held).follow(plan).finish.tolist() == followed.finish.tolist()
        assert followed.makespan <= plan.makespan * (1 + 1e-9) + 1e-9
        if isinstance(planner, Online):
            for world in (World(), World(noise=0.4, failure=0.2, seed=3, last_ends_well=True)):
                real = simulate(flow, held, planner.director(flow, held), world)
                check(flow, held, real)
                fitting(flow, platform, real)

    on()


@pytest.mark.slow
@settings(max_examples=share(100, 20), deadline=None)
@given(workflows(16), platforms(), st.randoms(use_true_random=False))
def test_the_compiled_simulator_passes_over_the_same_machines(
    flow: Workflow, platform: Platform, chance: object
) -> None:
    held = platform.holding(flow)
    keys = [float(chance.randint(0, 3)) for _ in range(len(flow))]  # type: ignore[attr-defined]
    preference = list(range(len(held.vms)))
    chance.shuffle(preference)  # type: ignore[attr-defined]
    readable = simulate(flow, held, PriorityDirector(keys, preference))
    quick = CompiledSimulator(flow, held).queue(keys, preference)
    assert quick.vm.tolist() == readable.vm.tolist()
    assert quick.start.tolist() == readable.start.tolist()
    assert quick.finish.tolist() == readable.finish.tolist()
    fitting(flow, platform, quick)


@pytest.mark.slow
@settings(max_examples=share(15, 8), deadline=None)
@given(workflows(6), platforms(("none", "shared")))
def test_no_bound_is_above_the_optimum(flow: Workflow, platform: Platform) -> None:
    held = platform.holding(flow)
    judge = CpSatPlanner(settings=CpSatSettings(work=2.0))
    optimum = judge.plan(flow, held)
    fitting(flow, platform, optimum)
    assume(judge.proven)
    assert lower_bound(flow, held) <= optimum.makespan + 1e-5 * max(1.0, optimum.makespan)


def test_the_bound_knows_where_a_task_must_run() -> None:
    flow = Workflow("two", (Task("large", "a", 8.0, memory_bytes=16 * GIB), Task("small", "a", 8.0)), ((), ()))
    slow, quick = Vm("slow", 1.0, memory_bytes=16 * GIB), Vm("quick", 4.0, memory_bytes=2 * GIB)
    assert lower_bound(flow, Platform((slow, quick))) == pytest.approx(8.0)
    plan = plugins.create("planner", "heft", {}).plan(flow, Platform((slow, quick)))
    assert plan.vm.tolist() == [0, 1] and plan.makespan == 8.0


class _Careless(Director):
    """Puts everything on the first machine."""

    def pick(self, ready: Sequence[int], state: SimulationState) -> tuple[int, int] | None:
        return (ready[0], 0) if state.free[0] else None


def test_a_task_that_does_not_fit_is_never_started() -> None:
    flow = Workflow("one", (Task("large", "a", 8.0, memory_bytes=16 * GIB),), ((),))
    platform = Platform((Vm("small", memory_bytes=GIB), Vm("big", memory_bytes=32 * GIB)))
    wrong = Schedule(np.array([0], dtype=np.int32), np.zeros(1), np.array([8.0]))
    with pytest.raises(
        WorkflowError, match="'large' was placed on machine 'small', where it does not fit: it needs 16"
    ):
        simulate(flow, platform, _Careless())
    with pytest.raises(WorkflowError, match="large is ready and was placed nowhere"):
        simulate(flow, platform, ScheduleDirector(wrong))
    with pytest.raises(WorkflowError, match="large is ready and was placed nowhere"):
        CompiledSimulator(flow, platform).follow(wrong)
    with pytest.raises(WorkflowError, match="'large' is planned on machine 'small', where it does not fit"):
        check(flow, platform, wrong)


@pytest.mark.slow
@settings(max_examples=share(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(workflows(), platforms(("none", "shared")), st.sampled_from([{}, {"noise": 0.4, "failure": 0.2}]))
def test_episodes_of_learning_keep_to_machines_that_fit(
    flow: Workflow, platform: Platform, deviations: dict[str, float]
) -> None:
    held, world = platform.holding(flow), World(**deviations, seed=5, last_ends_well=True)  # type: ignore[arg-type]
    policy = AdaptivePolicy(flow, held, AdaptiveWeights())
    quick, plain = policy.run(world), readable(policy, world)
    assert (quick.vm.tolist(), quick.finish.tolist()) == (plain.vm.tolist(), plain.finish.tolist())
    table, twin = (QPolicy(flow, held, QLearningSettings(**deviations, keyed_by="activity"), 3) for _ in range(2))
    table.collect(world)
    twin.collect(world)
    for done in (quick, table.learn(world), table.run(world)):
        fitting(flow, platform, done)
    taught = simulate(flow, held, twin.director(learning=True), world)
    twin.see(taught)
    assert (table.state(), table.times.tolist()) == (twin.state(), twin.times.tolist())
    plain = simulate(flow, held, table.director(), world)
    assert table.run(world).finish.tolist() == plain.finish.tolist()
    heft: Planner = plugins.create("planner", "heft", {})
    plan = heft.plan(flow, held)
    arrays = EpisodeArrays(flow, held)
    assert (
        simulate_schedule(arrays, plan, world).finish.tolist()
        == simulate(flow, held, ScheduleDirector(plan), world).finish.tolist()
    )


def test_what_was_learned_is_not_taken_where_other_tasks_fit() -> None:
    small, large = Vm("small", memory_bytes=4 * GIB), Vm("large", memory_bytes=32 * GIB)
    flows = [Workflow("w", (Task("a", "a", 1.0, memory_bytes=gib * GIB),), ((),)) for gib in (1, 2, 8)]
    names = [digest(flow, Platform((small, large))) for flow in flows]
    assert names[0] == names[1] != names[2]
    # Where memory is counted, what is needed of it counts, too.
    wide = Platform((Vm("wide", slots=16, memory_bytes=16 * GIB),))
    pairs = [tuple(Task(f"t{gib}", "a", 1.0, memory_bytes=gib * GIB) for gib in (1, most)) for most in (2, 8)]
    again = [tuple(replace(task, id=str(i)) for i, task in enumerate(tasks)) for tasks in pairs]
    assert len({digest(Workflow("w", tasks, ((), ())), wide) for tasks in again}) == 2


@pytest.mark.parametrize("name", ["adaptive", "q_learning"])
def test_learning_lets_a_task_of_much_memory_share_a_machine(name: str) -> None:
    tasks = (Task("dense", "a", 10.0, memory_bytes=48 * GIB),
             *(Task(f"t{i}", "a", 10.0, memory_bytes=GIB) for i in range(15)))  # fmt: skip
    flow, machine = Workflow("bag", tasks, ((),) * 16), Vm("one", slots=16, memory_bytes=64 * GIB)
    platform = Platform((machine,)).holding(flow)
    planner: Planner = plugins.create("planner", name, SMALL.get(name, {}), seed=1)
    plan = planner.plan(flow, platform)
    fitting(flow, platform, plan)
    assert plan.makespan == 10.0
    # Two dense ones do not share it; what waits for memory does not keep the others from their cores.
    flow = Workflow("bag", (replace(tasks[0], id="denser"), *tasks), ((),) * 17)
    plan = planner.plan(flow, platform)
    fitting(flow, platform, plan)
    assert plan.makespan == 20.0
    assert sorted(plan.start.tolist()) == [0.0] * 16 + [10.0]


def test_an_agent_starts_what_memory_holds() -> None:
    pytest.importorskip("gymnasium")
    from tradewind.workflow.learning.environment import WorkflowEnv

    flow = Workflow("pair", tuple(Task(str(i), "a", 5.0, memory_bytes=gib * GIB) for i, gib in enumerate((5, 5, 1))),
                    ((),) * 3)  # fmt: skip
    world = WorkflowEnv(flow, Platform((Vm("one", slots=4, memory_bytes=8 * GIB), Vm("other", memory_bytes=8 * GIB))))
    world.reset(seed=1)
    ended = False
    while not ended:
        _, _, ended, _, _ = world.step(np.int64(0))
    fitting(flow, world.platform, world.schedule)
    assert world.schedule.makespan == 10.0


def test_a_cluster_of_tasks_needs_what_the_largest_of_them_needs() -> None:
    parents = ((), (0,), (1,))
    tasks = tuple(Task(f"t{i}", "a", 5.0, memory_bytes=gib * GIB) for i, gib in enumerate((1, 16, 2)))
    flow = Workflow("chain", tasks, parents)
    platform = Platform((Vm("quick", 4.0, memory_bytes=4 * GIB), Vm("large", memory_bytes=20 * GIB))).holding(flow)
    for name in ("heft", "mct"):
        case = SimulationCase(flow, platform, None, None, name, lambda name=name: plugins.create("planner", name, {}))  # type: ignore[misc]
        apart, together = (
            simulate_repeatedly(case, World(), 1, clustering).schedule for clustering in (None, "vertical")
        )
        assert apart.vm.tolist() == [0, 1, 0]
        assert together.vm.tolist() == [1, 1, 1]
        assert together.makespan == 15.0


def test_workflowsims_own_rules_refuse_a_machine_that_is_too_small() -> None:
    flow = Workflow("two", (Task("large", "a", 8.0, memory_bytes=16 * GIB), Task("small", "a", 8.0)), ((), ()))
    platform = Platform((Vm("big", memory_bytes=32 * GIB), Vm("little", memory_bytes=2 * GIB)), "shared")
    with pytest.raises(WorkflowError, match="'large' does not fit on machine 'little': it needs 16 GiB of") as said:
        simulate_like_workflowsim(flow, platform, "MCT")
    assert said.value.hint and "planner workflowsim" in said.value.hint
    assert simulate_like_workflowsim(flow, Platform(platform.vms[:1], "shared"), "MCT").schedule.vm.tolist() == [0, 0]


@pytest.mark.parametrize("name", ["cp_sat", "ic_pcp", "cost_search", "search", "heft"])
@pytest.mark.parametrize("first", [0, 1])
def test_machines_that_differ_in_memory_alone_are_not_taken_for_each_other(name: str, first: int) -> None:
    tasks = [Task(f"large{i}", "a", 6.0, memory_bytes=16 * GIB) for i in range(2)]
    flow = Workflow("three", (*tasks, Task("small", "a", 5.0, memory_bytes=GIB)), ((),) * 3)
    vms = (Vm("little", memory_bytes=2 * GIB), Vm("big", memory_bytes=20 * GIB))
    platform = Platform((vms[first], vms[1 - first])).holding(flow)
    planner: Planner = plugins.create(
        "planner", name, SMALL.get(name, {}) | ({"work": 1.0} if name == "cp_sat" else {})
    )
    plan = planner.plan(flow, platform)
    fitting(flow, platform, plan)
    if name in ("cp_sat", "search"):
        assert plan.makespan == pytest.approx(12.0)
        assert lower_bound(flow, platform) == pytest.approx(12.0, rel=1e-5)
    if name == "cp_sat":
        assert planner.said.startswith("proven optimal")


def test_heft_ranks_a_task_by_its_mean_over_the_machines_that_it_fits_on() -> None:
    assert mean_of_fitting(np.array([[1.0, np.inf, np.inf], [2.0, 4.0, 6.0]])).tolist() == [1.0, 4.0]
    # Two tasks for the large machine: the one before the long chain goes first, although it is the shorter one.
    tasks = (Task("alone", "a", 3.0, memory_bytes=16 * GIB), Task("first", "a", 1.0, memory_bytes=16 * GIB),
             Task("chain", "a", 8.0))  # fmt: skip
    flow = Workflow("three", tasks, ((), (), (1,)))
    platform = Platform((Vm("little", memory_bytes=2 * GIB), Vm("big", memory_bytes=20 * GIB)))
    plan = plugins.create("planner", "heft", {}).plan(flow, platform)
    assert plan.vm.tolist() == [1, 1, 0]
    assert plan.start.tolist() == [1.0, 0.0, 1.0]


@pytest.mark.parametrize(("most", "makespan"), [(4_250_000_000, 20.0), (2_100_000_000, 30.0)])
def test_cp_sat_counts_memory_that_is_too_large_for_its_solver_in_larger_units(most: int, makespan: float) -> None:
    # Of an odd byte: no larger unit has all of them.
    amounts = [2_000_000_001 * GIB, 2_000_000_000 * GIB, 2_000_000_000 * GIB, 5]
    tasks = tuple(Task(str(i), "a", 10.0, memory_bytes=each) for i, each in enumerate(amounts))
    flow = Workflow("huge", tasks, ((),) * 4)
    platform = Platform((Vm("one", slots=4, memory_bytes=most * GIB),))
    planner = CpSatPlanner(settings=CpSatSettings(work=1.0))
    # It looks for a plan, where a refused model gave the one to begin with.
    slow = Schedule(np.zeros(4, dtype=np.int32), np.array([0.0, 10.0, 20.0, 30.0]), np.array([10.0, 20.0, 30.0, 40.0]))
    model = cp_sat._Model(
        flow, platform, platform.seconds(flow), slow, pytest.importorskip("ortools.sat.python.cp_model")
    )
    assert not model.model.validate()
    assert planner.plan(flow, platform).makespan == makespan
    assert not planner.proven and "rounded" in planner.said
