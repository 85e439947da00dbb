"""The dollars of a tenant's quota, where its searches are submitted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.store.service.test_requests import add
from tests.tenancy.world import World

from tradewind.cli.app import run
from tradewind.engine.search_builder import study_document
from tradewind.errors import QuotaError
from tradewind.problem.job_spec.spec import parse_spec
from tradewind.reporting.prometheus import metrics_text
from tradewind.store.base import Change, StudyRow, this_process
from tradewind.store.clusters.cluster_store import JobRow, TenantRow
from tradewind.store.service.accounts import AccountStore, UserRow
from tradewind.store.service.claims import ClaimStore
from tradewind.store.service.requests import RequestStore
from tradewind.store.sql.database import Database
from tradewind.tenancy.billing import check_dollar_quota, tenant_bills
from tradewind.tenancy.events import AllocatorEvent
from tradewind.tenancy.messages import CoreMessage, ProgressMessage
from tradewind.tenancy.shared_cluster import SharedCluster
from tradewind.testing.stores import run as run_row
from tradewind.testing.stores import trial

JOB = "name: one\njob: {command: 'true'}\nspace: {x: 1..9}\noffers: {provider: local, vcpu: 1}\nbudget: {BUDGET}\n"
TENANT = TenantRow("A", quota={"dollars": 3.0})


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv("TRADEWIND_HOME", str(tmp_path))
    made = World(tmp_path)
    monkeypatch.setenv("TRADEWIND_STORE", made.url)
    with closing(made.store), closing(made.studies):
        yield made


def submit(world: World, budget: str) -> int:
    (world.work / "job.yaml").write_text(JOB.replace("BUDGET", budget))
    return run(["submit", str(world.work / "job.yaml"), "--tenant", "A"])


@pytest.mark.slow
def test_budgets_that_fit_together_keep_the_quota(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tenant", "set", "A", "--quota", "dollars=3"]) == 0
    assert submit(world, "dollars: 2, trials: 2") == 0
    assert submit(world, "dollars: 2, trials: 2") == 16
    assert "tenant A may spend $3.00 in all, and $1.00 of it are neither spent nor promised" in capsys.readouterr().err
    assert len(world.store.jobs()) == 1
    assert submit(world, "trials: 2") == 16
    assert "and the search has no budget (write budget: {dollars: 2})" in capsys.readouterr().err
    assert submit(world, "dollars: 1, trials: 2") == 0
    # What is over counts with what it has spent, which is a few cents of a cent.
    assert run(["cluster", "start", "--until-empty"]) == 0
    assert {job.state for job in world.store.jobs()} == {"done"}
    assert submit(world, "dollars: 2.99") == 0


@pytest.mark.slow
def test_a_search_that_is_not_over_and_has_no_budget_may_spend_anything(world: World) -> None:
    wanted, without = (JobRow(0, "A", "x", {"budget": {"dollars": dollars}}) for dollars in (1.0, None))
    check_dollar_quota(TENANT, {}, 0.0, wanted)
    world.store.set_tenant(TENANT)
    world.store.submit(without)
    with pytest.raises(QuotaError, match=r"search 1, which is not over, has no budget \(tradewind cancel 1\)"):
        check_dollar_quota(TENANT, *world.store.spending("A"), wanted)
    assert world.store.spending("A", before=1) == ({}, 0.0)
    world.store.change_job(1, state="cancelled")
    check_dollar_quota(TENANT, *world.store.spending("A"), wanted)
    check_dollar_quota(TenantRow("A"), {}, 0.0, without)


@pytest.mark.slow
def test_requests_and_searches_have_one_account(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """What is set aside for a request is not promised to a search once more, nor the other way round."""
    world.store.set_tenant(TENANT)
    with closing(Database(world.url, busy_timeout=10.0)) as database:
        AccountStore(database).add_user(UserRow(0, "ann", "user", "A"))
        add(RequestStore(database), tenant="A")
        claims = ClaimStore(database)
        claim = claims.claim(this_process(), 60.0, lambda lines: (lines[0].first, 2.0))
        assert claim is not None
        assert world.store.spending("A") == ({}, 2.0)
        assert submit(world, "dollars: 2, trials: 2") == 16
        assert "$1.00 of it are neither spent nor promised to searches and requests" in capsys.readouterr().err
        assert submit(world, "dollars: 0.9, trials: 2") == 0
        assert claims.queue_state("A").spent == pytest.approx(2.9)
        # A search that a request has handed over is one thing with it.
        claims.name_job(claim, JobRow(0, "A", "x", {"budget": {"dollars": 2.0}}), {"reserved": 2.0})
        assert world.store.spending("A") == ({1: 0.9}, 2.0)
        assert claims.queue_state("A").spent == pytest.approx(2.9)
    assert run(["tenant", "list", "--json"]) == 0
    (bill,) = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (bill["searches"], bill["requests"]) == (2, 1)


def test_of_two_at_the_same_moment_one_is_taken_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.store.set_tenant(TENANT)
    before = type(world.store).submit

    def late(store: object, job: JobRow) -> JobRow:
        monkeypatch.undo()
        before(world.store, JobRow(0, "A", "other", {"budget": {"dollars": 2.0}}))
        return before(world.store, job)

    monkeypatch.setattr(type(world.store), "submit", late)
    monkeypatch.setenv("TRADEWIND_STORE", world.url)
    (world.work / "job.yaml").write_text(JOB.replace("BUDGET", "dollars: 2"))
    assert run(["submit", str(world.work / "job.yaml"), "--tenant", "A", "--store", world.url]) == 16
    mine = next(job for job in world.store.jobs() if job.name == "one")
    assert mine.wanted == "cancel" or mine.state == "cancelled"


@pytest.mark.slow
def test_a_search_whose_runs_are_simulated_spends_nothing(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its budget is set aside until it has begun: which engine its cluster has is not known before."""
    world.store.set_tenant(TENANT)
    (world.work / "runs.csv").write_text("x,runtime\n" + "".join(f"{x},{3600 * x}\n" for x in range(1, 10)))
    text = JOB.replace("BUDGET", "dollars: 2, trials: 3")
    spec = parse_spec(f"{text}deploy: {{runner: {{use: replay, file: runs.csv}}}}\n", base=world.work)
    number = world.store.submit(JobRow(0, "A", "one", study_document(spec))).id
    assert world.store.spending("A") == ({number: 2.0}, 0.0)
    said, take = list[CoreMessage](), SharedCluster._take

    def heard(self: SharedCluster, message: CoreMessage) -> list[AllocatorEvent]:
        said.append(message)
        return take(self, message)

    monkeypatch.setattr(SharedCluster, "_take", heard)
    world.run_until(world.over)
    job = world.store.job(number)
    assert (job.state, job.simulated) == ("done", True)
    [summary] = world.studies.summaries([job.study_id or 0])
    assert summary.spent > 0
    assert world.store.spending("A") == ({}, 0.0)
    last = [message.document for message in said if isinstance(message, ProgressMessage)][-1]
    shown = {**last, "id": number, "tenant": "A", "name": "one", "running": 0}
    assert (shown["spent"], shown["simulated"]) == (0.0, pytest.approx(summary.spent))
    labels = f'cluster="",tenant="A",search="{number}",name="one"'
    assert f"tradewind_search_spent_dollars{{{labels}}} 0\n" in metrics_text({"jobs": [shown]})
    assert run(["queue", "--all", "--json", "--store", world.url]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])[0]["spent"] == 0.0
    assert run(["queue", "--all", "--store", world.url]) == 0
    assert ", simulated" in capsys.readouterr().out


def test_simulated_runs_are_on_no_bill(world: World) -> None:
    world.store.set_tenant(TENANT)
    for number, runner in enumerate(("process", "workflow"), 1):
        spec = {"job": {"space": {}, "deploy": {"runner": {"use": runner}}}}
        study = world.studies.create_study(StudyRow(0, runner, "key", spec, 1.0))
        world.studies.write(study.id, Change([trial(0)], [run_row(0, cost=0.5)]))
        world.store.submit(JobRow(0, "A", runner, spec))
        world.store.change_job(number, study_id=study.id, state="done")
    (bill,) = tenant_bills(world.store, world.studies)
    assert (bill["runs"], bill["dollars"]) == (2, 0.5)
