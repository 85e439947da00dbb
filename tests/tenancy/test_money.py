"""The dollars of a tenant's quota, where its searches are submitted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.tenancy.world import World

from tradewind.cli.app import run
from tradewind.errors import QuotaError
from tradewind.store.cluster import JobRow, TenantRow
from tradewind.tenancy.money import check_money

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


def test_a_search_that_is_not_over_and_has_no_budget_may_spend_anything(world: World) -> None:
    wanted, without = (JobRow(0, "A", "x", {"budget": {"dollars": dollars}}) for dollars in (1.0, None))
    check_money(TENANT, [], world.studies, wanted)
    with pytest.raises(QuotaError, match=r"search 7, which is not over, has no budget \(tradewind cancel 7\)"):
        check_money(TENANT, [JobRow(7, "A", "x", without.spec)], world.studies, wanted)
    check_money(TENANT, [JobRow(7, "A", "x", without.spec, state="cancelled")], world.studies, wanted)
    check_money(TenantRow("A"), [], world.studies, without)


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
