"""A real cluster on this machine: searches that share it, wishes of users, and crashes."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.engines import until
from tests.tenancy.cluster import policy
from tests.tenancy.world import JOB, FourCpus, World, check_accounts, cluster_process

from tradewind.cli.app import run
from tradewind.engine.assemble import new_study
from tradewind.errors import StudyBusyError
from tradewind.problem.spec import Spec
from tradewind.store.cluster import JobRow, TenantRow
from tradewind.tenancy import framework
from tradewind.tenancy.accounting import bills
from tradewind.tenancy.fairness.strict import StrictFairness
from tradewind.tenancy.lookout import Limited
from tradewind.tenancy.resources import USUAL, Kinds


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    with closing(made.store), closing(made.studies):
        yield made


def test_two_searches_share_a_machine_and_both_end(world: World) -> None:
    one, two = world.submit("one"), world.submit("two", "B")
    cluster = world.run_until(world.over)
    for row in (one, two):
        assert world.store.job(row.id).state == "done"
        check_accounts(world, row, 6)
    assert cluster.allocator.decisions == 12
    assert not cluster.allocator.requests
    assert world.studies.find_studies("A/one")
    assert world.studies.find_studies("B/two")
    kept = world.store.clusters()[0]
    assert kept.holder == ""
    assert set(kept.snapshot["tenants"]) == {"A", "B"}


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


def test_who_is_due_keeps_its_place_from_run_to_run(world: World) -> None:
    """Between the end of a run and the next proposal of its search, the place goes to nobody who is due less."""
    world.store.set_tenant(TenantRow("hi", priority=5))
    for tenant in ("hi", "lo"):
        world.submit(tenant, tenant, trials=4, parallel=1)
    cluster = world.cluster(Limited(FourCpus(), {"cpu": 1.0}), policy(StrictFairness))
    cluster.run(lambda: not world.over())
    begun = sorted(
        (float(mark[1]), name) for name in ("hi", "lo") for mark in world.marks_of(name) if mark[0] == "begin"
    )
    order = [name for _, name in begun]
    first = order.index("hi")
    assert order[first : first + 4] == ["hi"] * 4, order
    assert first <= 1, "the other one begins only while the first has proposed nothing yet"
    assert len(order) == 8


def test_wishes_are_followed(world: World) -> None:
    going, paused, ended = world.submit("going"), world.submit("paused"), world.submit("ended", trials=500)
    world.store.want(paused.id, "pause")
    begun = time.monotonic()

    def done() -> bool:
        if time.monotonic() - begun > 1.5:
            world.store.want(ended.id, "cancel") if world.store.job(ended.id).state == "running" else None
        return world.store.job(going.id).state == "done" and world.store.job(ended.id).state == "cancelled"

    world.run_until(done)
    assert world.store.job(going.id).state == "done"
    assert world.store.job(ended.id).state == "cancelled"
    assert world.store.job(paused.id).state == "paused"
    assert world.marks_of("paused") == []
    world.store.want(paused.id, "run")
    world.run_until(world.over)
    assert world.store.job(paused.id).state == "done"
    check_accounts(world, paused, 6)


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


def test_a_search_that_cannot_run_fails_alone(world: World) -> None:
    good = world.submit("good")
    bad = world.store.submit(JobRow(0, "A", "bad", {"version": 1, "base": str(world.folder), "job": {"name": "bad"}}))
    world.run_until(world.over)
    assert world.store.job(good.id).state == "done"
    failed = world.store.job(bad.id)
    assert failed.state == "failed"
    assert failed.reason


def test_a_quota_too_small_is_told(world: World) -> None:
    world.store.set_tenant(TenantRow("A", quota={"cpu": 0.5, "dollars": 10.0}))  # the service keeps the second
    row = world.submit("small")
    world.run_until(world.over)
    refused = world.store.job(row.id)
    assert refused.state == "cancelled"
    assert "quota of 0.5 cpu" in refused.reason


def test_one_cluster_of_a_name_at_a_time(world: World) -> None:
    token = world.store.hold("default", "elsewhere:1:0.0", 60.0, {})
    with pytest.raises(StudyBusyError, match="cluster default is being run by"):
        world.cluster().run(lambda: False)
    world.store.release("default", token)
    world.cluster().run(lambda: False)


class Slow:
    """Nodes that take long to be told, but for the first time."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self.asked = seconds, 0

    def nodes(self) -> dict[str, dict[str, float]]:
        self.asked += 1
        if self.asked > 1:
            time.sleep(self._seconds)
        return FourCpus().nodes()


def test_an_engine_that_answers_late_delays_nobody(world: World) -> None:
    row = world.submit("one")
    nodes = Slow(4.0)
    cluster, longest, last = world.cluster(nodes), 0.0, time.monotonic()

    def wanted() -> bool:
        nonlocal longest, last
        now = time.monotonic()
        longest, last = max(longest, now - last), now
        return not world.over() or nodes.asked < 2

    cluster.run(wanted)
    assert nodes.asked >= 2
    assert longest < 3.0, "the loop has waited for the nodes"
    check_accounts(world, row, 6)


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
    nodes = Limited(FourCpus(), {}, {"licence": 1.0})
    cluster = world.cluster(nodes, policy(more={"kinds": Kinds((*USUAL, "licence"))}))
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
    (bill,) = bills(world.store, world.studies)
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


@pytest.mark.slow
def test_a_core_in_a_process_that_is_killed_is_started_again(world: World) -> None:
    row = world.submit("killed", trials=8, seconds=0.4, parallel=2, core="process")
    killed: list[int] = []

    def done() -> bool:
        if not killed and len(world.marks_of("killed")) >= 4:
            for child in psutil.Process().children():
                with suppress(psutil.Error):
                    if "spawn_main" in " ".join(child.cmdline()):
                        child.kill()
                        killed.append(child.pid)
        return world.over()

    world.run_until(done)
    assert killed
    assert world.store.job(row.id).state == "done"
    check_accounts(world, row, 8)


@pytest.mark.slow
def test_a_core_in_a_process_ends_with_a_cluster_that_is_killed(world: World) -> None:
    row = world.submit("apart", trials=4, seconds=0.6, core="process")
    with cluster_process(world, "--limit", "cpu=2") as process:
        until(lambda: world.marks_of("apart"), 30, "a run")
        cores = [child for child in psutil.Process(process.pid).children() if "spawn_main" in " ".join(child.cmdline())]
        process.send_signal(signal.SIGKILL)
        assert len(cores) == 1
        assert psutil.wait_procs(cores, timeout=5.0)[1] == []
    world.run_until(world.over)
    assert world.store.job(row.id).state == "done"
    check_accounts(world, row, 4)


@pytest.mark.slow
def test_kill_9_of_the_cluster_loses_and_repeats_nothing(world: World) -> None:
    rows = [world.submit(name, tenant, trials=10, seconds=0.15) for name, tenant in (("one", "A"), ("two", "B"))]
    for turn in range(6):
        with cluster_process(world, "--limit", "cpu=2") as process:
            time.sleep(1.2 + 0.23 * turn)
            process.send_signal(signal.SIGKILL)
    with cluster_process(world, "--limit", "cpu=2") as process:
        assert process.wait(timeout=90) == 0
    for row in rows:
        assert world.store.job(row.id).state == "done"
        check_accounts(world, row, 10)


def test_the_commands(world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TRADEWIND_HOME", str(world.folder))
    monkeypatch.setenv("TRADEWIND_STORE", world.url)
    text = JOB.format(name="job", python=sys.executable, marks=str(world.marks), seconds=0.05, trials=4, parallel=2)
    (world.folder / "job.yaml").write_text(text)
    file = str(world.folder / "job.yaml")
    assert run(["submit", file, "--tenant", "physics", "--weight", "2", "--parallel", "4"]) == 0
    asked = ("--demand", "cpu=1,licence=2", "--core-demand", "memory=512MiB")
    assert run(["submit", file, "--tenant", "bio", "--json", "--target", "0", *asked]) == 0
    assert world.store.job(2).options["demand"] == {"cpu": 1.0, "licence": 2.0}
    assert world.store.job(2).options["core_demand"] == {"memory": 0.5}
    out = capsys.readouterr().out
    assert "No cluster runs: tradewind cluster start" in out
    assert json.loads(out.splitlines()[-1]) == {"id": 2, "tenant": "bio", "name": "job", "state": "queued"}
    assert run(["tenant", "set", "bio", "--quota", "cpu=1", "--quota", "memory=4GiB"]) == 0
    assert run(["nice", "1", "--", "-5"]) == 0
    assert run(["queue"]) == 0
    assert "physics" in capsys.readouterr().out
    assert run(["cluster", "start", "--until-empty", "--limit", "cpu=2", "--resource", "licence=2"]) == 0
    assert run(["queue", "--all", "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {job["tenant"]: job["state"] for job in found} == {"physics": "done", "bio": "done"}
    assert next(job for job in found if job["tenant"] == "physics")["trials"] == 4
    assert run(["tenant", "list", "--json"]) == 0
    bills = {row["tenant"]: row for row in json.loads(capsys.readouterr().out)}
    assert bills["physics"]["runs"] == 4
    assert bills["bio"]["quota"] == {"cpu": 1.0, "memory": 4.0}
    assert bills["physics"]["seconds"]["cpu"] > 0
    assert run(["top", "--once"]) == 0
    assert "not running" in capsys.readouterr().out
    assert run(["top", "--prometheus"]) == 0
    assert 'tradewind_tenant_weight{cluster="default",tenant="physics"} 2' in capsys.readouterr().out
    assert run(["cancel", "1"]) == 3
    assert "search 1 (job) is over: done" in capsys.readouterr().err
    assert run(["cancel", "2", "--tenant", "physics"]) != 0
    assert "tenant physics has no search 2" in capsys.readouterr().err


def test_a_search_for_a_cluster_of_a_name(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRADEWIND_HOME", str(world.folder))
    monkeypatch.setenv("TRADEWIND_STORE", world.url)
    text = JOB.format(name="job", python=sys.executable, marks=str(world.marks), seconds=0.05, trials=2, parallel=2)
    file = world.folder / "job.yaml"
    file.write_text(text)
    for _ in range(2):
        assert run(["submit", str(file), "--cluster", "lab"]) == 0
    assert "Cluster lab does not run: tradewind cluster start --name lab" in capsys.readouterr().out
    token = world.store.hold("default", "elsewhere:1:0.0", 60.0, {})
    assert run(["cancel", "2"]) == 0
    assert "Search 2 (job) is cancelled" in capsys.readouterr().out
    world.store.release("default", token)
    assert run(["cluster", "start", "--until-empty", "--limit", "cpu=2"]) == 0
    capsys.readouterr()
    assert run(["queue", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (found["id"], found["state"], found["cluster"]) == (1, "queued", "lab")
    assert run(["cluster", "start", "--name", "lab", "--until-empty", "--limit", "cpu=2"]) == 0
    check_accounts(world, world.store.job(1), 2)


def test_studies_that_a_lost_cluster_held_are_gone_on_with(world: World) -> None:
    """The cluster's hold runs out before theirs: its machine was restarted, or another one takes its place."""
    row = world.submit("one")
    study = world.studies.create_study(new_study(Spec.from_json(row.spec), name="A/one"))
    world.studies.hold(study.id, "elsewhere:1:0.0", 100.0)
    world.store.change_job(row.id, study_id=study.id, state="running")
    world.run_until(world.over)
    over = world.store.job(row.id)
    assert (over.state, over.study_id) == ("done", study.id)
    check_accounts(world, row, 6)


@pytest.mark.slow
def test_a_study_that_somebody_takes_is_taken_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framework, "_AGAIN", 0.5)
    row = world.submit("taken", trials=4, seconds=0.5)
    taken: list[str] = []

    def done() -> bool:
        study_id = world.store.job(row.id).study_id
        if not taken and study_id is not None and world.marks_of("taken"):
            taken.append(world.studies.hold(study_id, "elsewhere:1:0.0", 100.0, force=True))
        return world.over()

    world.run_until(done)
    assert taken
    assert world.store.job(row.id).state == "done"
    check_accounts(world, row, 4)
