"""A real cluster on this machine: searches from their start to their end, wishes of users, and crashes."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from tests.deployer.helpers import OFFER, process_runner, request_for
from tests.tenancy.world import JOB, FourCpus, World, check_accounts, cluster_process
from tests.waiting import eventually

from tradewind.cli.app import run
from tradewind.deployer.runner.resource_limits import cpus_here
from tradewind.engine.search_builder import new_study
from tradewind.errors import StudyBusyError
from tradewind.problem.job_spec.spec import JobSpec
from tradewind.store.clusters.cluster_store import JobRow
from tradewind.tenancy import shared_cluster

pytestmark = pytest.mark.slow


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


def test_runs_wait_for_those_of_other_programs_and_the_queue_says_so(world: World, tmp_path: Path) -> None:
    other = process_runner(tmp_path, share=True)
    sleeps = request_for(tmp_path, ("sleep", "600"), offer=replace(OFFER, vcpu=float(cpus_here())))
    handle = other.submit(sleeps, ())
    row, said = world.submit("waits", trials=2, share=True), list[str]()
    cluster = world.cluster()

    def wanted() -> bool:
        trouble = str(cluster.shown.get(row.id, {}).get("trouble", ""))
        if trouble and not said:
            said.append(trouble)
            other.cancel(handle)
        return not world.over()

    cluster.run(wanted)
    other.close()
    assert said == [f"it waits: {cpus_here()} of {cpus_here()} CPUs are used by others"]
    check_accounts(world, row, 2)


def test_a_search_on_a_running_cluster_ends_once_no_trial_pays_and_says_so(world: World) -> None:
    row = world.submit("frugal", trials=30, future_runs=1)
    world.run_until(world.over)
    found = world.store.job(row.id)
    assert found.state == "done"
    assert found.study_id is not None
    reason = world.studies.study(found.study_id).reason
    assert reason.startswith("no trial is worth its money: the best would save")
    assert found.reason.startswith(reason.partition(";")[0])
    assert 6 <= len(world.studies.trials(found.study_id)) < 30


def test_wishes_are_followed(world: World) -> None:
    # forty values of half a second, two at once: it goes on for ten seconds unless it is stopped
    going, paused = world.submit("going"), world.submit("paused")
    ended = world.submit("ended", trials=500, seconds=0.5)
    world.store.want(paused.id, "pause")

    def done() -> bool:
        if any(mark[0] == "end" for mark in world.marks_of("ended")) and world.store.job(ended.id).state == "running":
            world.store.want(ended.id, "cancel")
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


def test_a_search_that_cannot_run_fails_alone(world: World) -> None:
    good = world.submit("good")
    bad = world.store.submit(JobRow(0, "A", "bad", {"version": 1, "base": str(world.folder), "job": {"name": "bad"}}))
    world.run_until(world.over)
    assert world.store.job(good.id).state == "done"
    failed = world.store.job(bad.id)
    assert failed.state == "failed"
    assert failed.reason


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


@pytest.mark.thorough
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
        eventually(lambda: world.marks_of("apart"), 30, "a run")
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
    assert world.store.job(2).options["run"] == {"cpu": 1.0, "memory": 1.0}
    out = capsys.readouterr().out
    assert "when another trial is not expected to improve the best by 1 % (least_improvement: changes it" in out
    assert "No cluster runs: tradewind cluster start" in out
    submitted = json.loads(out.splitlines()[-1])
    assert len(submitted.pop("code")) == 64
    assert submitted == {"id": 2, "tenant": "bio", "name": "job", "state": "queued"}
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
    assert "search 1 (job) is over: done (tradewind resume 1 lets it go on)" in capsys.readouterr().err
    assert run(["nice", "1", "3"]) == 3
    assert "search 1 (job) is over: done" in capsys.readouterr().err
    assert run(["cancel", "2", "--tenant", "physics"]) != 0
    assert "tenant physics has no search 2" in capsys.readouterr().err


def test_nothing_waits_in_the_queue_of_an_engine_that_has_none(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRADEWIND_HOME", str(world.folder))
    assert run(["cluster", "start", "--store", world.url, "--queued", "1"]) == 3
    assert "--queued 1: process has no queue" in capsys.readouterr().err


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
    study = world.studies.create_study(new_study(JobSpec.from_json(row.spec), name="A/one"))
    world.studies.hold(study.id, "elsewhere:1:0.0", 100.0)
    world.store.change_job(row.id, study_id=study.id, state="running")
    world.run_until(world.over)
    over = world.store.job(row.id)
    assert (over.state, over.study_id) == ("done", study.id)
    check_accounts(world, row, 6)


@pytest.mark.slow
def test_a_study_that_somebody_takes_is_taken_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_cluster, "_AGAIN", 0.5)
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
