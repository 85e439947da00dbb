"""Plans carried out on the nodes of a Ray cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.engines.ray import RayCluster, ray_cluster
from tests.workflow.execution.plans import (
    agents,
    asked_just_in_time,
    carry,
    chunks,
    flow_of,
    history,
    plan_of,
    sh,
    two_after_another,
)

from tradewind import plugins
from tradewind.deployer.runner.base import Runner
from tradewind.workflow.execution.events import ExecutionEnding
from tradewind.workflow.execution.options import ExecutionProgress
from tradewind.workflow.execution.pilots import PilotSettings

__all__ = ["ray_cluster"]
pytestmark = [pytest.mark.xdist_group("ray"), pytest.mark.slow]

TERMS = PilotSettings(linger=10.0, poll_seconds=1.0, silence=10.0)


def on(cluster: RayCluster, folder: Path) -> Runner:
    given = {"address": cluster.address}
    runner: Runner = plugins.create("runner", "ray", given, data_folder=folder / "machines" / ".runner")
    return runner


def test_each_machine_of_the_plan_is_an_actor_on_a_node(ray_cluster: RayCluster, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    flow = flow_of(*(sh(f"t{n}", f"echo $TRADEWIND_MACHINE > out{n}; sleep 0.3", writes=f"out{n}") for n in range(4)))
    carried = carry(plan_of(flow), folder, runner=on(ray_cluster, folder), terms=TERMS)
    assert carried.ending is ExecutionEnding.DONE
    assert {(folder / f"files/out{n}").read_text().strip() for n in range(4)} == {"vm-1", "vm-2"}
    assert not agents(folder)


def test_a_machine_whose_first_task_is_late_is_asked_for_shortly_before(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    plan, folder, scale = two_after_another(1000.0), tmp_path / "run", 0.01
    carried = carry(plan, folder, runner=on(ray_cluster, folder), terms=TERMS, synthetic=True, scale=scale)
    asked_just_in_time(folder, carried, plan, scale)
    assert not agents(folder)


def test_a_node_that_dies_loses_nothing(ray_cluster: RayCluster, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    killed: list[str] = []

    def watch(seen: ExecutionProgress) -> None:
        if not killed and seen.done >= 2:
            killed.append("two")
            ray_cluster.kill("two")

    try:
        carried = carry(
            plan_of(flow_of(*chunks(8, 0.8))), folder, runner=on(ray_cluster, folder), terms=TERMS, watch=watch
        )
    finally:
        if killed:
            ray_cluster.start_worker("two")
    assert killed
    assert carried.ending is ExecutionEnding.DONE
    assert len(carried.results["machines_lost"]) == 1
    assert (folder / "files/total").read_text().split() == [str(n) for n in range(8)]
    finished = [each.task for each in history(folder).attempts.values() if each.end and each.end["outcome"] == "done"]
    assert len(finished) == len(set(finished)) == 9
