"""What the tests of clusters on real engines share."""

from __future__ import annotations

import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from tests.tenancy.world import World, check_accounts, cluster_process
from tests.waiting import eventually

from tradewind.problem import Fault, Run
from tradewind.store.clusters.cluster_store import JobRow, TenantRow

Started = Callable[[], Any]


def snapshot(world: World) -> dict[str, Any]:
    """What the cluster was like last; empty before its first look."""
    rows = world.store.clusters()
    return dict(rows[0].snapshot) if rows else {}


def nodes_of(world: World) -> dict[str, dict[str, float]]:
    """Capacity of each node, as the running cluster sees it."""
    return {name: node["has"] for name, node in snapshot(world).get("nodes", {}).items()}


def runs_of(world: World, row: JobRow) -> list[Run]:
    """All runs of a search."""
    study = world.store.job(row.id).study_id
    return [] if study is None else world.studies.runs(study)


def check_ended(world: World, rows: Sequence[JobRow], trials: int) -> None:
    """Every search is done, and each trial's command was carried out once: nothing was lost or repeated."""
    for row in rows:
        assert world.store.job(row.id).state == "done", world.store.job(row.id).reason
        check_accounts(world, row, trials)
        assert sum(mark[0] == "begin" for mark in world.marks_of(row.name)) == trials


def check_shares(world: World, start: Started, shares: tuple[float, float], trials: int, seconds: float) -> None:
    """Two tenants with weights 2 and 1 and two searches each: their shares while both wait, and all ends."""
    world.store.set_tenant(TenantRow("A", weight=2.0))
    rows = [
        world.submit(f"{tenant}{number}", tenant, trials=trials, seconds=seconds, parallel=6)
        for tenant in "AB"
        for number in range(2)
    ]
    seen: Counter[tuple[float, float]] = Counter()
    with start() as process:
        end = time.monotonic() + 200
        while process.poll() is None and time.monotonic() < end:
            tenants = snapshot(world).get("tenants", {})
            if len(tenants) == 2 and all(each["waiting"] for each in tenants.values()):
                seen[round(tenants["A"]["share"], 6), round(tenants["B"]["share"], 6)] += 1
            time.sleep(0.2)
        assert process.wait(timeout=5) == 0
    check_ended(world, rows, trials)
    wanted = (round(shares[0], 6), round(shares[1], 6))
    assert seen[wanted] >= 0.8 * sum(seen.values()) > 5, seen


def check_node_loss(world: World, start: Started, lose: Callable[[], None], back: Callable[[], None]) -> list[Run]:
    """A node dies under runs and comes back: its runs are repeated, and no trial pays for it; those runs."""
    rows = [
        world.submit(name, tenant, trials=8, seconds=2.5, parallel=6) for name, tenant in (("one", "A"), ("two", "B"))
    ]
    with start() as process:
        eventually(lambda: min(len(world.marks_of(row.name)) for row in rows) >= 1, 60, "runs of both")
        eventually(lambda: nodes_of(world), 20, "the nodes")
        before = nodes_of(world)
        lose()
        eventually(lambda: len(nodes_of(world)) == len(before) - 1, 60, "a node less")
        back()
        eventually(lambda: len(nodes_of(world)) == len(before), 90, "the node again")
        assert process.wait(timeout=150) == 0
    for row in rows:
        assert world.store.job(row.id).state == "done", world.store.job(row.id).reason
        check_accounts(world, row, 8)
    runs = [run for row in rows for run in runs_of(world, row)]
    return [run for run in runs if run.fault is Fault.INFRASTRUCTURE]


def check_kills(
    world: World, words: Sequence[str], kills: int, seconds: float, *, run: float = 0.4, **environment: str
) -> None:
    """Kill the cluster with SIGKILL at several moments: its runs go on, and the next one goes on with them.

    Args:
        world: Where.
        words: How the cluster is started.
        kills: How often it is killed.
        seconds: After so long, the first time.
        run: Seconds that each run takes.
        environment: Of the cluster's process.
    """
    rows = [world.submit(name, tenant, trials=10, seconds=run) for name, tenant in (("one", "A"), ("two", "B"))]
    killed = 0
    for turn in range(kills):
        with cluster_process(world, *words, **environment) as process:
            try:
                process.wait(timeout=seconds + 0.37 * turn)
            except subprocess.TimeoutExpired:
                killed += 1
                process.send_signal(signal.SIGKILL)
    with cluster_process(world, *words, **environment) as process:
        assert process.wait(timeout=150) == 0
    assert killed >= 2
    check_ended(world, rows, 10)
