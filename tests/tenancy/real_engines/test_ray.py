"""Searches that share a real Ray cluster: a head without CPUs and two workers with one each."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from tests.engines.ray import RayCluster, ray_cluster
from tests.tenancy.real_engines.checks import (
    check_ended,
    check_kills,
    check_node_loss,
    check_shares,
    nodes_of,
    snapshot,
)
from tests.tenancy.world import World, cluster_process
from tests.waiting import eventually

pytestmark = [pytest.mark.xdist_group("ray"), pytest.mark.timeout(300)]
__all__ = ["ray_cluster"]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    made = World(tmp_path)
    with closing(made.store), closing(made.studies):
        yield made


@pytest.fixture
def words(ray_cluster: RayCluster, world: World) -> list[str]:
    settings = {"address": ray_cluster.address, "scratch": world.folder / "scratch", "namespace": world.folder.name}
    return ["--ray", *(word for key, value in settings.items() for word in ("--set", f"{key}={value}"))]


@pytest.mark.slow
def test_the_nodes_of_a_cluster_and_their_runs(world: World, words: list[str]) -> None:
    row = world.submit("one", trials=3)
    with cluster_process(world, *words) as process:
        assert process.wait(timeout=90) == 0
    check_ended(world, [row], 3)
    found = nodes_of(world)
    assert len(found) == 2
    assert [node["cpu"] for node in found.values()] == [1.0, 1.0]
    assert all(7 < node["memory"] < 8 for node in found.values())


@pytest.mark.slow
def test_shares_of_tenants_and_searches(world: World, words: list[str]) -> None:
    check_shares(world, partial(cluster_process, world, *words), (0.5, 0.5), 6, 0.7)


@pytest.mark.slow
def test_kill_9_of_the_cluster_loses_and_repeats_nothing(world: World, words: list[str]) -> None:
    check_kills(world, words, int(os.environ.get("TRADEWIND_KILLS", "3")), 6.0, run=0.8)


@pytest.mark.slow
def test_what_waits_in_rays_own_queue_survives_a_killed_cluster(world: World, words: list[str]) -> None:
    row, more = world.submit("one", trials=10, seconds=0.5, parallel=6), ["--queued", "1"]
    with cluster_process(world, *words, *more) as process:
        eventually(lambda: any(each["running"] == 4 for each in snapshot(world).get("jobs", ())), 60, "a run waits")
        process.kill()
    with cluster_process(world, *words, *more) as process:
        assert process.wait(timeout=90) == 0
    check_ended(world, [row], 10)
    moments = sorted((float(mark[1]), 1 if mark[0] == "begin" else -1) for mark in world.marks_of("one"))
    assert max(itertools.accumulate(step for _, step in moments)) == 2  # each worker has one CPU


@pytest.mark.slow
def test_a_node_that_dies_has_its_runs_repeated(world: World, words: list[str], ray_cluster: RayCluster) -> None:
    def lose() -> None:
        eventually(lambda: all(world.marks_of(name) for name in ("one", "two")), 30, "runs on both workers")
        ray_cluster.kill("two")

    repeated = check_node_loss(
        world, partial(cluster_process, world, *words), lose, partial(ray_cluster.start_worker, "two")
    )
    assert repeated
