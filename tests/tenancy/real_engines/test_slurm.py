"""Searches that share a real Slurm of three nodes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from tests.engines.slurm import SlurmCluster, slurm  # noqa: F401  (a fixture)
from tests.tenancy.real_engines.checks import check_ended, check_kills, check_node_loss, check_shares, nodes_of
from tests.tenancy.world import World, cluster_process
from tests.waiting import eventually

from tradewind.cli.app import run

pytestmark = [pytest.mark.xdist_group("slurm"), pytest.mark.timeout(300)]

WORDS = ("--slurm", "main", "--set", "interval=0.1", "--set", "settle=2", "--set", "grace=0.3")


@pytest.fixture
def engine(slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:  # noqa: F811
    monkeypatch.setenv("SLURM_CONF", str(slurm.conf))
    yield slurm
    slurm.heal()


@pytest.fixture
def world(tmp_path: Path, engine: SlurmCluster) -> Iterator[World]:
    made = World(tmp_path)
    with closing(made.store), closing(made.studies):
        yield made


def test_the_nodes_of_a_partition_and_their_runs(
    world: World, engine: SlurmCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRADEWIND_HOME", str(world.folder))
    row = world.submit("one", trials=3)
    assert run(["cluster", "start", "--store", world.url, "--until-empty", *WORDS]) == 0
    check_ended(world, [row], 3)
    assert nodes_of(world) == {name: {"cpu": 2.0, "memory": 8000 / 1024} for name in engine.nodes}


def test_a_partition_that_is_none_is_told(
    world: World, engine: SlurmCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRADEWIND_HOME", str(world.folder))
    world.submit("one", trials=3)
    assert run(["cluster", "start", "--store", world.url, "--until-empty", "--slurm", "nowhere"]) != 0
    assert "nowhere" in capsys.readouterr().err


@pytest.mark.slow
def test_shares_of_tenants_and_searches(world: World, engine: SlurmCluster) -> None:
    check_shares(world, partial(cluster_process, world, *WORDS), (2 / 3, 1 / 3), 12, 0.7)


@pytest.mark.slow
def test_a_node_that_dies_has_its_runs_repeated(world: World, engine: SlurmCluster) -> None:
    node = engine.nodes[1]

    def lose() -> None:
        eventually(lambda: engine.jobs("-w", node), 20, "a run there")
        engine.kill_node(node)
        # Its daemon does not answer any more; without this Slurm waits for it a while.
        engine.call("scontrol", "update", f"nodename={node}", "state=down", "reason=test")

    start = partial(cluster_process, world, *WORDS)
    repeated = check_node_loss(world, start, lose, partial(engine.start_node, node))
    assert {run.reason for run in repeated} == {"a node failed"}


@pytest.mark.slow
def test_kill_9_of_the_cluster_loses_and_repeats_nothing(world: World, engine: SlurmCluster) -> None:
    check_kills(world, WORDS, int(os.environ.get("TRADEWIND_KILLS", "4")), 2.5)
