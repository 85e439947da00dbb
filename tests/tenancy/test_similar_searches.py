"""How long earlier searches took, on its way from the store to the priority."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.tenancy.allocators import asks, cluster, policy, started
from tests.tenancy.world import World

from tradewind.store.clusters.cluster_store import JobRow
from tradewind.tenancy import events as ev
from tradewind.tenancy.priority.expected_gain import GainPriority
from tradewind.tenancy.shared_cluster import SharedCluster, cluster_snapshot
from tradewind.tenancy.simulator import RecordedTrials, SimulatedJob, simulate
from tradewind.tenancy.views import JobView

ONE = {"cpu": 1.0}


def test_what_usually_takes_less_goes_first() -> None:
    allocator = cluster({"n": {"cpu": 1}}, ["A"], policy(priority=GainPriority))
    jobs = [ev.JobSubmitted(name, "A") for name in "ab"]
    known = [ev.SimilarSearchesEnded("a", [40, 60], 9.0), ev.SimilarSearchesEnded("b", [4, 6], 9.0)]
    runs = [*asks("a", 3, ONE), *asks("b", 3, ONE)]
    assert started(allocator.handle_all([*jobs, *known, *runs], 0.0)) == ["b0"]
    assert started(allocator.handle_all([ev.RequestEnded("b0"), ev.ResultReported("b", 1.0, 9.0)], 9.0)) == ["b1"]
    # It is told anew when more are over.
    allocator.handle(ev.SimilarSearchesEnded("b", [400, 600], 9.0), 10.0)
    assert started(allocator.handle_all([ev.RequestEnded("b1"), ev.ResultReported("b", 1.0, 9.0)], 18.0)) == ["a0"]


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_what_is_no_time_counts_as_not_known(seconds: float) -> None:
    allocator = cluster({"n": {"cpu": 1}}, ["A"], policy(priority=GainPriority))
    allocator.handle_all([ev.JobSubmitted("j", "A"), ev.SimilarSearchesEnded("j", [3, 0, 5], seconds)], 0.0)
    view = allocator.jobs["j"].view
    assert (view.earlier, view.usual_seconds) == ((3, 5), None)
    allocator.handle(ev.SimilarSearchesEnded("j", [], 5.0), 0.0)
    assert (view.earlier, view.usual_seconds) == ((), None)


def test_of_a_search_that_is_over_nothing_is_kept() -> None:
    allocator = cluster({"n": {"cpu": 1}}, ["A"])
    assert (
        allocator.handle_all([ev.JobSubmitted("j", "A"), ev.JobEnded("j"), ev.SimilarSearchesEnded("j", [3], 5.0)], 0.0)
        == []
    )
    assert "j" not in allocator.jobs


def test_a_core_that_starts_again_does_not_forget_them() -> None:
    allocator = cluster({"n": {"cpu": 1}}, ["A"])
    allocator.handle_all([ev.JobSubmitted("j", "A"), ev.SimilarSearchesEnded("j", [3], 5.0), ev.ResultsReset("j")], 0.0)
    assert allocator.jobs["j"].view.earlier == (3,)


def test_who_watches_is_told_of_the_median() -> None:
    allocator = cluster({"n": {"cpu": 1}}, ["A"])
    submitted = [ev.JobSubmitted(name, "A") for name in ("1", "2")]
    allocator.handle_all([*submitted, ev.SimilarSearchesEnded("1", [3, 9, 4], 5.0)], 0.0)
    rows = {number: JobRow(number, "A", "train", {}) for number in (1, 2, 3)}
    found = [job.get("usual") for job in cluster_snapshot(allocator, rows, {}, 0.0)["jobs"]]
    assert found == [{"searches": 3, "results": 4}, None, None]


def test_simulated_searches_have_them() -> None:
    seen: list[JobView] = []

    class Watched(GainPriority):
        def key(self, job: JobView) -> tuple[float, ...]:
            seen.append(job)
            return super().key(job)

    trials = RecordedTrials([1.0], [2.0])
    job = SimulatedJob("j", "A", trials, ONE, earlier=(7, 9), usual_seconds=2.0)
    simulate({"n": ONE}, [ev.TenantSet("A")], [job], policy(priority=Watched))
    assert {(view.earlier, view.usual_seconds) for view in seen} == {((7, 9), 2.0)}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    with closing(made.store), closing(made.studies):
        yield made


@pytest.mark.slow
def test_a_cluster_learns_it_from_what_has_ended_on_it(world: World) -> None:
    """Of two that are alike the second knows how long the first took, also when it waited all the time."""
    first, second = world.submit("train", trials=3), world.submit("train", trials=3)
    other = world.submit("else", trials=2)
    for row in (second, other):
        world.store.want(row.id, "pause")

    def seen(cluster: SharedCluster, wanted: Callable[[], bool]) -> dict[int, tuple[int, ...]]:
        """What is known of each search of a cluster that goes on as long as it is wanted."""
        views: dict[str, JobView] = {}

        def on() -> bool:
            views.update({name: job.view for name, job in cluster.allocator.jobs.items()})
            return wanted()

        cluster.run(on)
        assert all((view.usual_seconds is None) == (not view.earlier) for view in views.values())
        return {int(name): view.earlier for name, view in views.items()}

    running = world.cluster(how=policy(priority=GainPriority))

    def unknown() -> bool:
        held = running.allocator.jobs.get(str(second.id))
        return held is None or not held.view.earlier

    found = seen(running, unknown)
    assert found == {first.id: (), second.id: (3,), other.id: ()}
    # And one that comes later, or again, after the cluster was started anew.
    late = world.submit("train", trials=3)
    world.store.want(late.id, "pause")
    again = world.cluster()
    found = seen(again, lambda: len(again.allocator.jobs) < 3)  # they come with what is known
    assert found == {second.id: (3,), other.id: (), late.id: (3,)}
