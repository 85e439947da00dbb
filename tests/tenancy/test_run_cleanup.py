"""A search is over when its runs are: whoever left them."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.tenancy.world import World, cluster_process
from tests.waiting import eventually

from tradewind.store.clusters.cluster_store import JobRow, TenantRow
from tradewind.tenancy import shared_cluster
from tradewind.tenancy.core import CoreSettings
from tradewind.tenancy.messages import CoreEndedMessage
from tradewind.tenancy.shared_cluster import SharedCluster

pytestmark = pytest.mark.slow


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    with closing(made.store), closing(made.studies):
        yield made
    for process in _processes_of(made):
        process.kill()


def _processes_of(world: World) -> list[psutil.Process]:
    """The runs' own processes: they have the folder of marks in their program."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.name().startswith("python") and f"{world.marks}" in " ".join(process.cmdline()):
                found.append(process)
    return found


def _left_running(world: World, **options: Any) -> JobRow:
    """A search whose two long runs go on while its cluster was killed."""
    row = world.submit("long", trials=2, seconds=120.0, **options)
    with cluster_process(world) as process:
        eventually(lambda: len(world.marks_of("long")) == 2)
        process.send_signal(signal.SIGKILL)
    assert _processes_of(world)
    return row


def check_ended_and_paid(world: World, row: JobRow, state: str) -> JobRow:
    over = world.store.job(row.id)
    assert over.state == state
    assert over.study_id is not None
    assert _processes_of(world) == []
    runs = world.studies.runs(over.study_id)
    assert len(runs) == 2
    assert all(run.state.ended and run.runtime > 0 and run.cost > 0 for run in runs)
    return over


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"core_demand": {"memory": 0.1}}])
def test_what_is_cancelled_while_no_cluster_runs_is_ended_by_the_next(world: World, options: dict[str, Any]) -> None:
    row = _left_running(world, **options)
    world.store.want(row.id, "cancel")
    cluster = world.run_until(world.over)
    assert check_ended_and_paid(world, row, "cancelled").reason == "cancelled by its owner"
    assert not cluster.allocator.requests
    assert not cluster.allocator.jobs


@pytest.mark.slow
def test_what_is_cancelled_while_its_core_waits_for_a_place_is_ended(world: World) -> None:
    row = _left_running(world, core_demand={"memory": 0.1})
    world.store.set_tenant(TenantRow("A", quota={"memory": 0.05}))  # no room for its Core
    cluster, begun = world.cluster(), time.monotonic()

    def wanted() -> bool:
        if time.monotonic() - begun > 1.0 and world.store.job(row.id).wanted == "run":
            world.store.want(row.id, "cancel")
        return not world.over() and time.monotonic() - begun < 60

    cluster.run(wanted)
    check_ended_and_paid(world, row, "cancelled")
    assert not cluster.allocator.jobs


@pytest.mark.slow
def test_a_search_that_this_cluster_cannot_carry_on_leaves_no_run(world: World) -> None:
    row = _left_running(world)
    world.store.change_job(row.id, options={"demand": {"licence": 1.0}})
    world.run_until(world.over)
    assert "there is no resource 'licence'" in check_ended_and_paid(world, row, "failed").reason


class Crashes:
    """A Core that is gone as soon as it has begun."""

    started = 0

    def __init__(self, settings: CoreSettings, outbox: Any) -> None:
        type(self).started += 1
        outbox.put(CoreEndedMessage(settings.job.id, "crashed", "its Core ended with -9"))

    def send(self, order: object) -> None:
        return

    def join(self, seconds: float) -> None:
        return


@pytest.mark.thorough
@pytest.mark.slow
def test_a_core_that_crashes_for_good_leaves_no_run(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    row = _left_running(world)
    monkeypatch.setattr(Crashes, "started", 0)
    monkeypatch.setattr(shared_cluster, "ThreadCore", Crashes)
    world.run_until(world.over)
    assert Crashes.started == 3
    assert check_ended_and_paid(world, row, "failed").reason == "its Core ended with -9"


@pytest.mark.slow
def test_a_core_that_fails_leaves_no_run(world: World) -> None:
    row = _left_running(world)
    broken = {**world.store.job(row.id).spec}
    broken["job"] = {**broken["job"], "searcher": {"use": "nonsense"}}
    world.store.change_job(row.id, spec=broken)
    world.run_until(world.over)
    assert "nonsense" in check_ended_and_paid(world, row, "failed").reason


def test_a_search_that_is_refused_leaves_no_study_behind(world: World) -> None:
    row = world.submit("refused")
    document = {**world.store.job(row.id).spec}
    document["job"] = {**document["job"], "searcher": {"use": "ernest"}}
    world.store.change_job(row.id, spec=document)
    world.run_until(world.over)
    over = world.store.job(row.id)
    assert (over.state, over.study_id) == ("failed", None)
    assert "least cost or runtime" in over.reason
    assert world.studies.find_studies() == []


def test_a_crash_while_the_cluster_ends_is_no_end_of_the_search(world: World) -> None:
    row = world.submit("one")
    cluster = world.cluster()
    with closing(cluster.store):
        _known(cluster, row)
        cluster._stopping = True
        cluster._over(CoreEndedMessage(row.id, "crashed", "its Core ended with 1"))
    assert world.store.job(row.id).state == "queued"


def _known(cluster: SharedCluster, row: JobRow) -> None:
    cluster._jobs[row.id] = row
