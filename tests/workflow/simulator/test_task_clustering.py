"""Tasks put together, by hand and as a transformation that loses nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import share
from tests.workflow.datasets import dax, needs_datasets
from tests.workflow.simulator.test_reference import platforms, workflows

from tradewind.errors import WorkflowError
from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.platform import Platform, Vm
from tradewind.workflow.schedule import check, figures
from tradewind.workflow.simulator.reference import PriorityDirector, simulate
from tradewind.workflow.simulator.task_clustering import METHODS, cluster, impact_factors, merge_tasks
from tradewind.workflow.simulator.world import World


def fork(count: int = 4) -> Workflow:
    """A source, so many chains of two tasks, and a sink."""
    times = [1.0, *(float(i + 1) for i in range(count)), *(10.0 + i for i in range(count)), 2.0]
    parents = (
        (),
        *((0,) for _ in range(count)),
        *((i + 1,) for i in range(count)),
        tuple(range(count + 1, 2 * count + 1)),
    )
    tasks = []
    for i, time in enumerate(times):
        inputs = tuple(f"f{p}" for p in parents[i])
        tasks.append(Task(f"t{i}", "ab"[i % 2], time, inputs, (f"f{i}",), memory_bytes=i))
    return Workflow("fork", tuple(tasks), parents, {f"f{i}": 1_000_000 for i in range(len(times))})  # fmt: skip


def members(flow: Workflow, method: str) -> list[tuple[int, ...]]:
    return list(cluster(flow, method).members)


def test_by_hand() -> None:
    flow = fork()
    assert members(flow, "horizontal:2") == [(0,), (1, 2), (3, 4), (5, 6), (7, 8), (9,)]
    assert members(flow, "horizontal:size=3") == [(0,), (1, 2, 3), (4,), (5, 6, 7), (8,), (9,)]
    assert members(flow, "vertical") == [(0,), (1, 5), (2, 6), (3, 7), (4, 8), (9,)]
    assert members(flow, "block:2") == [(0,), (1, 2, 5, 6), (3, 4, 7, 8), (9,)]
    # The longest first, each to the shorter job: 4 | 3, then 2 to 3, 1 to 4.
    assert members(flow, "balanced:2") == [(0,), (1, 4), (2, 3), (5, 8), (6, 7), (9,)]
    assert sorted(members(flow, "horizontal:100")) == [(i,) for i in range(10)]


def test_what_a_job_is() -> None:
    clustered = cluster(fork(), "block:2", delay=[0.0, 5.0])
    job = clustered.flow.tasks[1]
    assert job.id == "t1+3"
    assert job.activity == "b+a"
    assert job.runtime == 1.0 + 2.0 + 10.0 + 11.0 + 5.0
    assert job.inputs == ("f0",)
    assert job.outputs == ("f1", "f2", "f5", "f6")
    assert job.memory_bytes == 6
    assert clustered.flow.parents == ((), (0,), (0,), (1, 2))
    assert clustered.flow.tasks[0] is clustered.original.tasks[0]
    alone = cluster(fork(), "horizontal:100", delay=5.0).flow
    assert alone.runtimes.sum() == fork().runtimes.sum()


def test_impact_factors_by_hand() -> None:
    # Chen et al.: an end counts one, and is shared out over its parents.
    flow = Workflow("w", tuple(Task(str(i), "t", 1.0) for i in range(5)), ((), (), (), (0, 1), (1, 2)))
    assert impact_factors(flow).tolist() == [0.5, 1.0, 0.5, 1.0, 1.0]


def test_impact_and_distance_choose_among_jobs_that_are_alike() -> None:
    # Two fans: tasks 0-3 are read by task 8, 4-7 by 9; their long tasks open a job each.
    times = [4.0, 3.5, 1.0, 1.0, 4.0, 3.5, 2.0, 2.0, 1.0, 1.0]
    parents = (*(() for _ in range(8)), (0, 1, 2, 3), (4, 5, 6, 7))
    flow = Workflow("fans", tuple(Task(str(i), "t", time) for i, time in enumerate(times)), parents)
    first, second = {0, 1, 2, 3}, {4, 5, 6, 7}
    apart = [set(group) for group in members(flow, "distance:4") if min(group) < 8]
    assert all(group <= first or group <= second for group in apart)
    mixed = [set(group) for group in members(flow, "balanced:4") if min(group) < 8]
    assert any(not (group <= first or group <= second) for group in mixed)
    longer = (*flow.tasks[:7], Task("7", "t", 5.0), *flow.tasks[8:])
    uneven = Workflow("uneven", longer, (*(() for _ in range(8)), (0, 1, 2, 3, 4, 5, 6), (7,)))
    alike = [set(group) for group in members(uneven, "impact:4") if min(group) < 8]
    assert {7} in alike


@pytest.mark.slow
@settings(max_examples=share(120), deadline=None)
@given(
    workflows(),
    platforms(),
    st.sampled_from([*METHODS]),
    st.sampled_from(["number=1", "2", "size=2", "size=5"]),
    st.sampled_from([0.0, 1.5]),
)
def test_nothing_is_lost(flow: Workflow, platform: Platform, method: str, bound: str, delay: float) -> None:
    clustered = cluster(flow, method if method == "vertical" else f"{method}:{bound}", delay)
    assert sorted(task for group in clustered.members for task in group) == list(range(len(flow)))
    several = sum(len(group) > 1 for group in clustered.members)
    assert clustered.flow.runtimes.sum() == pytest.approx(flow.runtimes.sum() + delay * several)
    ran = simulate(
        clustered.flow, platform, PriorityDirector([0.0] * len(clustered.flow), list(range(len(platform.vms))))
    )
    tasks = clustered.unfold(ran)
    check(flow, platform, tasks)
    assert tasks.makespan == ran.makespan
    for job, group in enumerate(clustered.members):
        assert {int(tasks.vm[task]) for task in group} == {int(ran.vm[job])}
        assert np.isclose(tasks.start[list(group)].min(), ran.start[job])


def test_attempts_at_a_job_that_failed_are_shared_out_over_its_tasks() -> None:
    clustered = cluster(fork(), "vertical")
    world = World(failure=0.7, retries=2, seed=3, last_ends_well=True)
    platform = Platform((Vm("one", 1.0, 1, 3.6),))
    ran = simulate(clustered.flow, platform, PriorityDirector([0.0] * len(clustered.flow), [0]), world)
    tasks = clustered.unfold(ran)
    of_several = [each for each in ran.repeated if len(clustered.members[each.task]) > 1]
    assert of_several
    assert len(tasks.repeated) == len(ran.repeated) + len(of_several)
    jobs = figures(clustered.flow, platform, ran, 1.0)
    said = figures(fork(), platform, tasks, 1.0)
    assert (said.serial, said.utilisation, said.cost) == pytest.approx((jobs.serial, 1.0, jobs.cost))


def test_all_tasks_of_a_job_that_failed_for_good_have_failed() -> None:
    clustered = cluster(fork(), "vertical")
    platform = Platform((Vm("one"),))
    world = World(failure=1.0, retries=0)
    ran = simulate(clustered.flow, platform, PriorityDirector([0.0] * len(clustered.flow), [0]), world)
    tasks = clustered.unfold(ran)
    assert sorted((*tasks.failed, *tasks.skipped)) == list(range(len(fork())))
    assert set(tasks.failed) == {task for job in ran.failed for task in clustered.members[job]}
    assert all(tasks.vm[task] == -1 for task in tasks.skipped)


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("horizontl:4", "did you mean 'horizontal'"),
        ("horizontal", "has no number of jobs"),
        ("horizontal:0", "has no number of jobs"),
        ("horizontal:many", "has no number of jobs"),
        ("horizontal:width=3", "has no number of jobs"),
        ("vertical:3", "vertical clustering has no number"),
    ],
)
def test_methods_that_do_not_exist(method: str, words: str) -> None:
    with pytest.raises(WorkflowError, match=words):
        cluster(fork(), method)


def test_a_group_that_waits_for_itself() -> None:
    with pytest.raises(WorkflowError, match="in a circle"):
        merge_tasks(fork(1), [[0, 2], [1], [3]])


@needs_datasets
def test_balanced_jobs_of_a_real_graph_differ_least() -> None:
    flow = dax("Montage_100")

    def spread(method: str) -> float:
        clustered = cluster(flow, method)
        level = [sum(flow.tasks[t].runtime for t in group) for group in clustered.members if flow.depth[group[0]] == 1]
        return max(level) - min(level)

    assert spread("balanced:8") <= spread("horizontal:8")
