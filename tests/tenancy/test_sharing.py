"""Who gets what of a real cluster: shares, quotas, demands, and places for Cores."""

from __future__ import annotations

import os
import queue
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest
from tests.tenancy.allocators import policy
from tests.tenancy.world import FourCpus, World, check_accounts

from tradewind.deployer.runner.process import ProcessRunner
from tradewind.problem import Handle, Machine, Run, RunRequest, TenantShare, Trial
from tradewind.store.clusters.cluster_store import TenantRow
from tradewind.tenancy import shared_cluster
from tradewind.tenancy.billing import tenant_bills
from tradewind.tenancy.core import Core, CoreInbox, CoreSettings
from tradewind.tenancy.core_handles import ThreadCore
from tradewind.tenancy.fairness.strict import StrictFairness
from tradewind.tenancy.messages import CoreOutbox
from tradewind.tenancy.node_monitor import LimitedNodes
from tradewind.tenancy.resources import DEFAULT_RESOURCES, ResourceKinds

pytestmark = pytest.mark.slow


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    with closing(made.store), closing(made.studies):
        yield made


@pytest.mark.slow
def test_weights_hold_while_both_have_work(world: World) -> None:
    world.store.set_tenant(TenantRow("A", weight=3.0))
    world.store.set_tenant(TenantRow("B", weight=1.0))
    for name, tenant in (("one", "A"), ("two", "B")):
        world.submit(name, tenant, trials=30, seconds=0.3, parallel=4)
    cluster, until = world.cluster(), time.monotonic() + 60
    seen: list[tuple[float, float]] = []

    def wanted() -> bool:
        tenants = cluster.allocator.tenants
        busy = [job for job in cluster.allocator.jobs.values() if job.waiting]
        if len(busy) == 2:
            seen.append((tenants["A"].view.share, tenants["B"].view.share))
        return len(seen) < 200 and not cluster.empty() and time.monotonic() < until

    cluster.run(wanted)
    settled = seen[len(seen) // 4 :]
    assert len(settled) > 20
    assert Counter(settled).most_common(1)[0][0] == (0.75, 0.25)


def test_runs_know_their_tenant_and_its_weight_of_now(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that others share, too, that says who of those that wait is next."""
    known: list[TenantShare | None] = []
    submit = ProcessRunner.submit

    def noted(self: ProcessRunner, request: RunRequest, machines: Sequence[Machine]) -> Handle:
        known.append(request.tenant)
        if len(known) == 2:
            world.store.set_tenant(TenantRow("A", weight=5.0))
        return submit(self, request, machines)

    monkeypatch.setattr(ProcessRunner, "submit", noted)
    world.store.set_tenant(TenantRow("A", weight=3.0))
    world.submit("one", "A", trials=8, seconds=0.3, parallel=1)
    world.run_until(world.over)
    assert known[0] == TenantShare("A", 3.0)
    assert known[-1] == TenantShare("A", 5.0)


def test_a_core_knows_the_weight_of_its_tenant_before_anything_is_granted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs of an earlier one that still wait for slots of their machine ask anew, and nobody grants them again."""
    settings: list[CoreSettings] = []
    requests: list[RunRequest] = []
    submit = ProcessRunner.submit

    def noted(self: ProcessRunner, request: RunRequest, machines: Sequence[Machine]) -> Handle:
        requests.append(request)
        return submit(self, request, machines)

    def core(given: CoreSettings, outbox: CoreOutbox) -> ThreadCore:
        settings.append(given)
        return ThreadCore(given, outbox)

    monkeypatch.setattr(ProcessRunner, "submit", noted)
    monkeypatch.setattr(shared_cluster, "ThreadCore", core)
    world.store.set_tenant(TenantRow("A", weight=3.0))
    world.submit("one", "A", trials=1)
    world.run_until(world.over)
    again = Core(settings[0], CoreInbox(), queue.Queue())
    made = again._requests(lambda trial, run, wall_seconds: requests[0])
    assert made(cast("Trial", None), cast("Run", None), None).tenant == TenantShare("A", 3.0)


def test_who_is_due_keeps_its_place_from_run_to_run(world: World) -> None:
    """Between the end of a run and the next proposal of its search, the place goes to nobody who is due less."""
    world.store.set_tenant(TenantRow("hi", priority=5))
    for tenant in ("hi", "lo"):
        world.submit(tenant, tenant, trials=4, parallel=1)
    cluster = world.cluster(LimitedNodes(FourCpus(), {"cpu": 1.0}), policy(StrictFairness))
    cluster.run(lambda: not world.over())
    begun = sorted(
        (float(mark[1]), name) for name in ("hi", "lo") for mark in world.marks_of(name) if mark[0] == "begin"
    )
    order = [name for _, name in begun]
    first = order.index("hi")
    assert order[first : first + 4] == ["hi"] * 4, order
    assert first <= 1, "the other one begins only while the first has proposed nothing yet"
    assert len(order) == 8


def test_a_search_that_is_paused_uses_up_no_hours(world: World) -> None:
    row = world.submit("paused", trials=1)
    world.store.want(row.id, "pause")
    begun = time.monotonic()
    world.run_until(lambda: time.monotonic() - begun > 2.0)
    world.store.want(row.id, "run")
    begun = time.monotonic()
    world.run_until(world.over)
    check_accounts(world, row, 1)
    study = world.store.job(row.id).study_id
    assert study is not None
    assert world.studies.study(study).elapsed < time.monotonic() - begun + 1.0


def test_a_quota_too_small_is_told(world: World) -> None:
    world.store.set_tenant(TenantRow("A", quota={"cpu": 0.5, "dollars": 10.0}))  # the service keeps the second
    row = world.submit("small")
    world.run_until(world.over)
    refused = world.store.job(row.id)
    assert refused.state == "failed"
    assert "quota of 0.5 CPUs" in refused.reason


def test_a_core_that_no_node_can_ever_hold_is_told(world: World) -> None:
    """It waited for its place for ever, and ``cluster start --until-empty`` with it."""
    world.store.set_tenant(TenantRow("B", quota={"cpu": 0.5}))
    large, poor = world.submit("large", core_demand={"cpu": 64.0}), world.submit("poor", "B", core_demand={"cpu": 1.0})
    world.run_until(world.over, 20.0, how=policy(more={"grows": False}))
    assert [world.store.job(row.id).state for row in (large, poor)] == ["failed", "failed"]
    assert (
        world.store.job(large.id).reason == "its Core takes 64 CPUs, and this cluster has no node that is large enough"
    )
    assert world.store.job(poor.id).reason == "its Core takes 1 CPU, and tenant B has a quota of 0.5 CPUs"


def _most_at_once(world: World, *names: str) -> int:
    marks = sorted((float(mark[1]), mark[0]) for name in names for mark in world.marks_of(name))
    running = [0]
    for _, what in marks:
        running.append(running[-1] + (1 if what == "begin" else -1))
    return max(running)


def test_what_a_search_has_used_is_known_after_a_restart(world: World) -> None:
    row = world.submit("used", trials=4, seconds=0.3)
    name = str(row.id)
    world.run_until(lambda: len(world.marks_of("used")) >= 5)
    begun = time.monotonic()
    cluster = world.cluster()
    world.store.want(row.id, "pause")  # nothing more runs: what it has is what it had
    attained: list[float] = []

    def wanted() -> bool:
        job = cluster.allocator.jobs.get(name)
        attained.append(0.0 if job is None else job.view.attained)
        return attained[-1] == 0.0 and time.monotonic() - begun < 20.0

    cluster.run(wanted)
    study = world.store.job(row.id).study_id
    assert study is not None
    ran = sum(trial.observation.runtime for trial in world.studies.trials(study) if trial.observation is not None)
    assert ran >= 0.6
    assert attained[-1] == pytest.approx(ran / 4), "each takes one CPU of four"


def test_a_licence_is_used_by_one_run_at_a_time(world: World) -> None:
    """A resource that the engine does not know of is given out as CPUs are."""
    rows = [world.submit(name, tenant, demand={"licence": 1.0}) for name, tenant in (("one", "A"), ("two", "B"))]
    free = world.submit("free", "C", seconds=0.3)
    nodes = LimitedNodes(FourCpus(), {}, {"licence": 1.0})
    cluster = world.cluster(nodes, policy(more={"kinds": ResourceKinds((*DEFAULT_RESOURCES, "licence"))}))
    cluster.run(lambda: not world.over())
    for row in (*rows, free):
        check_accounts(world, row, 6)
    assert _most_at_once(world, "one", "two") == 1
    assert _most_at_once(world, "free") == 2


def test_runs_take_what_their_owner_says(world: World) -> None:
    row = world.submit("wide", demand={"cpu": 3.0}, parallel=4)
    world.run_until(world.over)
    check_accounts(world, row, 6)
    assert _most_at_once(world, "wide") == 1


def test_runs_get_and_pay_what_their_owner_says(world: World) -> None:
    row = world.submit("wide", trials=2, demand={"cpu": 2.0, "memory": 0.5})
    world.run_until(world.over)
    check_accounts(world, row, 2)
    begun = [mark for mark in world.marks_of("wide") if mark[0] == "begin"]
    assert {int(mark[3]) for mark in begun} == {min(2, len(os.sched_getaffinity(0)))}, "their offer has one CPU"
    (bill,) = tenant_bills(world.store, world.studies)
    study = world.store.job(row.id).study_id
    assert study is not None
    ran = sum(run.runtime for run in world.studies.runs(study))
    assert bill["seconds"] == {"cpu": pytest.approx(2.0 * ran), "memory": pytest.approx(0.5 * ran)}


def test_a_core_waits_for_its_place_and_keeps_it(world: World) -> None:
    first = world.submit("first", core_demand={"cpu": 1.0})
    second = world.submit("second", core_demand={"cpu": 1.0})
    world.run_until(world.over)
    ended, started = world.store.job(first.id).ended, world.store.job(second.id).started
    assert ended is not None
    assert started is not None
    assert started >= ended - 0.5, "Cores take a quarter of the cluster together at most, one CPU of four here"
    for row in (first, second):
        check_accounts(world, row, 6)


def test_a_core_leaves_room_for_the_runs_of_others(world: World) -> None:
    whole = world.submit("whole", "A", trials=3, parallel=1, demand={"cpu": 4.0})
    small = world.submit("small", "B", trials=3, core_demand={"cpu": 1.0})
    never = world.submit("never", "C", core_demand={"cpu": 1.0}, demand={"cpu": 4.0})
    world.run_until(world.over)
    for row in (whole, small):
        check_accounts(world, row, 3)
    ended, started = world.store.job(whole.id).ended, world.store.job(small.id).started
    assert ended is not None
    assert started is not None
    assert started >= ended - 0.5, "beside its Core no run of four CPUs has room"
    over = world.store.job(never.id)
    assert over.state == "failed"
    assert "it takes 4 CPUs, 1 GiB of memory beside the 1 CPU of its Core, and no node" in over.reason


def test_a_core_that_waits_for_its_place_does_not_begin_while_the_cluster_ends(world: World) -> None:
    rows = [world.submit(name, trials=4, seconds=0.3, core_demand={"cpu": 1.0}) for name in ("first", "second")]
    begun = time.monotonic()
    world.run_until(lambda: bool(world.marks_of("first")), 30.0)
    assert time.monotonic() - begun < 25.0
    assert world.marks_of("second") == []
    assert [world.store.job(row.id).state for row in rows] == ["queued", "queued"]
    world.run_until(world.over)
    assert [world.store.job(row.id).state for row in rows] == ["done", "done"]


@pytest.mark.parametrize("options", [{"demand": {"unicorns": 1.0}}, {"core_demand": {"unicorns": 1.0}}])
def test_a_resource_that_the_cluster_has_not_fails_that_search_alone(world: World, options: dict[str, Any]) -> None:
    good = world.submit("good")
    bad = world.submit("bad", **options)
    world.run_until(world.over)
    assert world.store.job(good.id).state == "done"
    failed = world.store.job(bad.id)
    assert failed.state == "failed"
    assert "there is no resource 'unicorns' in this cluster" in failed.reason
