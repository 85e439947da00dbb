"""What users want is done, whatever comes in between; here with Cores that do nothing by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.tenancy.allocators import policy
from tests.tenancy.world import World

from tradewind.engine.search_builder import new_study
from tradewind.problem.job_spec.spec import JobSpec
from tradewind.store.clusters.cluster_store import JobRow
from tradewind.tenancy import events as ev
from tradewind.tenancy import shared_cluster
from tradewind.tenancy.core import CoreSettings
from tradewind.tenancy.messages import CoreEndedMessage, CoreOrder, EndOrder, ResultMessage, StudyMessage
from tradewind.tenancy.priority.dynamic import DynamicPriority
from tradewind.tenancy.shared_cluster import SharedCluster


class Still:
    """A Core that only keeps what it is told."""

    def __init__(self, settings: CoreSettings, outbox: Any) -> None:
        self.job, self.orders = settings.job, list[CoreOrder]()
        all_of_them.append(self)

    def send(self, order: CoreOrder) -> None:
        self.orders.append(order)

    def join(self, seconds: float) -> None:
        return


all_of_them: list[Still] = []


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(shared_cluster, "ThreadCore", Still)
    all_of_them.clear()
    made = World(tmp_path)
    with closing(made.store), closing(made.studies):
        yield made


@pytest.fixture
def cluster(world: World) -> Iterator[SharedCluster]:
    made = world.cluster()
    with closing(made.store):
        made._see_nodes(made._engine.nodes())
        yield made


def _study(world: World, row: JobRow) -> int:
    return world.studies.create_study(new_study(JobSpec.from_json(row.spec))).id


def test_a_cancel_that_comes_while_a_search_begins_is_followed(world: World, cluster: SharedCluster) -> None:
    row = world.submit("one")
    cluster._look()
    (core,) = all_of_them
    world.store.want(row.id, "cancel")
    cluster._take(StudyMessage(row.id, _study(world, row)))
    assert core.orders == []
    cluster._look()
    assert core.orders == [EndOrder("cancelled")]
    cluster._look()
    assert core.orders == [EndOrder("cancelled")]


@pytest.mark.slow
def test_a_pause_and_a_place_that_come_while_a_search_begins_are_followed(world: World, cluster: SharedCluster) -> None:
    row = world.submit("one")
    cluster._look()
    world.store.want(row.id, "pause")
    world.store.change_job(row.id, nice=7)
    cluster._take(StudyMessage(row.id, _study(world, row)))
    cluster._look()
    job = cluster.allocator.jobs[str(row.id)]
    assert (job.paused, job.nice) == (True, 7)
    assert world.store.job(row.id).state == "paused"


def test_a_core_that_crashes_before_it_has_heard_of_the_cancel(world: World, cluster: SharedCluster) -> None:
    row = world.submit("one")
    cluster._look()
    cluster._take(StudyMessage(row.id, _study(world, row)))
    world.store.want(row.id, "cancel")
    cluster._look()
    cluster._feed(*cluster._take(CoreEndedMessage(row.id, "crashed", "its Core ended with -9")))
    assert len(all_of_them) == 1, "nothing is searched any more"
    cluster._feed(*cluster._take(cluster._outbox.get(timeout=20)))
    over = world.store.job(row.id)
    assert (over.state, over.reason) == ("cancelled", "cancelled by its owner")
    assert not cluster._core_handles
    assert not cluster.allocator.jobs


@pytest.mark.slow
def test_a_core_that_crashes_before_it_begins_and_was_cancelled(world: World, cluster: SharedCluster) -> None:
    row = world.submit("one")
    cluster._look()
    world.store.want(row.id, "cancel")
    cluster._look()
    cluster._feed(*cluster._take(CoreEndedMessage(row.id, "crashed", "its Core ended with -9")))
    assert len(all_of_them) == 1
    assert world.store.job(row.id).state == "cancelled"


@pytest.mark.slow
def test_results_that_a_core_tells_again_count_once(world: World, cluster: SharedCluster) -> None:
    row = world.submit("one")
    cluster._look()
    for _ in range(2):
        cluster._take(StudyMessage(row.id, _study(world, row)))
        cluster._feed(*cluster._take(ResultMessage(row.id, 4.0, 10.0, {"cpu": 2.0, "unicorns": 1.0})))
        view = cluster.allocator.jobs[str(row.id)].view
        assert (view.values, view.seconds, view.attained) == ([4.0], [10.0], 5.0)
        cluster._feed(*cluster._take(CoreEndedMessage(row.id, "crashed", "its Core ended with -9")))
    assert len(all_of_them) == 3


def test_a_core_whose_node_is_gone_goes_on_and_is_not_started_twice(world: World, cluster: SharedCluster) -> None:
    two = {name: {"cpu": 4.0, "memory": 8.0} for name in ("n1", "n2")}
    cluster._see_nodes(two)
    row = world.submit("one", core_demand={"cpu": 1.0})
    cluster._look()
    (core,) = all_of_them
    place = cluster.allocator.jobs[str(row.id)].core_node
    cluster._see_nodes({name: each for name, each in two.items() if name != place})
    assert all_of_them == [core]
    assert cluster._core_handles == {row.id: core}
    moved = cluster.allocator.jobs[str(row.id)].core_node
    assert moved not in (None, place), "it counts where there is room for it"
    cluster._feed(*cluster._take(CoreEndedMessage(row.id, "crashed", "its Core ended with -9")))
    assert len(all_of_them) == 2, "one that has ended is started again"


def test_two_clusters_share_no_search(world: World, cluster: SharedCluster) -> None:
    first, named, second = world.submit("first"), world.submit("named"), world.submit("second")
    world.store.change_job(named.id, cluster="other")
    other = world.cluster(name="other")
    with closing(other.store):
        cluster._look()
        other._look()
        other._look()
        cluster._look()
        assert [core.job.id for core in all_of_them] == [first.id, second.id, named.id]
        assert set(cluster._core_handles) == {first.id, second.id}
        assert set(other._core_handles) == {named.id}
        cluster._take(CoreEndedMessage(first.id, "done", "all tried"))
        cluster._take(CoreEndedMessage(second.id, "done", "all tried"))
        assert cluster.empty()
        assert not other.empty()
    assert [world.store.job(row.id).cluster for row in (first, named, second)] == ["default", "other", "default"]


def test_who_looks_at_the_same_moment_gets_no_search_of_the_other(
    world: World, cluster: SharedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have read the queue before either takes from it."""
    row = world.submit("one")
    other = world.cluster(name="other")
    with closing(other.store):
        wishes = other.store.intents("other")
        monkeypatch.setattr(other.store, "intents", lambda cluster: wishes)
        cluster._look()
        other._look()
        assert len(all_of_them) == 1
        assert set(cluster._core_handles) == {row.id}
        assert not other._core_handles


@pytest.mark.slow
def test_a_search_whose_study_was_taken_goes_on_after_a_while(
    world: World, cluster: SharedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = world.submit("one")
    cluster._look()
    cluster._take(StudyMessage(row.id, _study(world, row)))
    cluster._feed(*cluster._take(CoreEndedMessage(row.id, "left", "study 1 was taken over by another process")))
    cluster._look()
    assert len(all_of_them) == 1
    assert world.store.job(row.id).state == "queued"
    monkeypatch.setattr(cluster, "_again", {row.id: 0.0})
    cluster._look()
    assert len(all_of_them) == 2
    assert set(cluster._core_handles) == {row.id}


def test_a_search_whose_study_was_taken_can_be_cancelled_at_once(world: World, cluster: SharedCluster) -> None:
    row = world.submit("one")
    cluster._look()
    cluster._feed(*cluster._take(CoreEndedMessage(row.id, "left", "study 1 was taken over by another process")))
    world.store.want(row.id, "cancel")
    cluster._look()
    assert world.store.job(row.id).state == "cancelled"
    assert len(all_of_them) == 1
    assert not cluster.allocator.jobs


def test_how_far_a_priority_had_fallen_is_known_after_a_restart(world: World) -> None:
    """It had risen again, which does not follow from its results; a Core that was started again changes nothing."""
    row = world.submit("flat")
    how = [policy(priority=DynamicPriority, sample=2, multiple=0, threshold=1.0) for _ in range(2)]
    first, second = world.cluster(how=how[0]), world.cluster(how=how[1])
    with closing(first.store), closing(second.store):
        first._token = world.store.hold("default", "here", 60.0, {})
        first._look()
        first._feed(*[ev.ResultReported(str(row.id), 1.0, 1.0) for _ in range(4)])
        view = first.allocator.jobs[str(row.id)].view
        how[0].priority.unopposed(view)
        first._feed(ev.ResultReported(str(row.id), 1.0, 1.0))
        first._feed(ev.ResultsReset(str(row.id)))
        first._keep_snapshot()
        assert world.store.remembered("default") == {row.id: {"results": 5, "fallen": 1, "idle": 0}}
        assert world.store.remembered("another") == {}
        second._remembered = second.store.remembered("default")
        second._look()
        second._feed(*[ev.ResultReported(str(row.id), 1.0, 1.0) for _ in range(5)])
        assert how[1].priority.key(second.allocator.jobs[str(row.id)].view)[0] == 1
        second._take(CoreEndedMessage(row.id, "left", "somebody else has its study"))
        assert second._remembered[row.id]["fallen"] == 1
        assert second._snapshot()["remembered"] == {str(row.id): {"results": 5, "fallen": 1, "idle": 0}}
