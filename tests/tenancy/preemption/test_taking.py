"""Runs that are taken on a real cluster: who gets their places, who pays, and what their searches learn of it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.tenancy.allocators import policy
from tests.tenancy.world import World

from tradewind.engine.search_builder import study_document
from tradewind.errors import QuotaError
from tradewind.problem import Run, RunState
from tradewind.problem.job_spec.spec import parse_spec
from tradewind.store.clusters.cluster_store import JobRow, TenantRow
from tradewind.tenancy.billing import tenant_bills
from tradewind.tenancy.fairness.fair_share import FairShareFairness
from tradewind.tenancy.shared_cluster import SharedCluster
from tradewind.tenancy.submission.search_submission import add_search

pytestmark = pytest.mark.slow

WITHIN = 1.5


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    with closing(made.store), closing(made.studies):
        yield made


def submit(world: World, name: str, tenant: str, seconds: float, trials: int, dollars: float | None = None) -> JobRow:
    return world.submit(name, tenant, trials=trials, seconds=seconds, parallel=4, dollars=dollars)


def taken(world: World, row: JobRow) -> list[Run]:
    study = world.store.job(row.id).study_id
    return [] if study is None else [run for run in world.studies.runs(study) if run.preemption is not None]


@dataclass
class Contest:
    """Tenant A has all four CPUs with long runs; B comes later."""

    world: World
    a: JobRow
    b: JobRow | None = None
    arrived: float = 0.0
    places: int = 4
    dollars: float | None = None

    def cluster(self) -> SharedCluster:
        return self.world.cluster(how=policy(FairShareFairness, more={"grace": 0.5}))

    def begun(self, name: str) -> list[float]:
        return sorted(float(mark[1]) for mark in self.world.marks_of(name) if mark[0] == "begin")

    def wanted(self) -> bool:
        if self.b is None and len(self.begun("long")) >= self.places:
            time.sleep(0.05)
            self.b, self.arrived = submit(self.world, "short", "B", 0.2, 4, self.dollars), time.time()
        return self.world.store.job(self.a.id).state in ("queued", "running")


def contest(world: World, seconds: float = 4.0, **preempt: object) -> Contest:
    how = {"within": WITHIN, "pays": "taker", "exempt": 0.2, **preempt}
    world.store.set_tenant(TenantRow("B", preempt=how))
    return Contest(world, submit(world, "long", "A", seconds, 5))


def test_a_tenant_gets_places_of_others_within_its_time(world: World) -> None:
    there = contest(world)
    until = time.monotonic() + 60
    there.cluster().run(lambda: there.wanted() and time.monotonic() < until)
    assert there.b is not None
    gone = taken(world, there.a)
    assert len(gone) == 2, "half of four places"
    begun = there.begun("short")
    assert len(begun) == 4
    assert begun[1] - there.arrived < WITHIN + 1.5, "by the programs' own time stamps"
    assert {run.state for run in gone} == {RunState.CANCELLED}
    assert {run.reason for run in gone} == {"taken for tenant B"}
    _check_trials(there)
    _check_bills(there, gone)


def _check_trials(there: Contest) -> None:
    """All trials have one result each; a taken run is no attempt that failed, and nothing was learned of it."""
    study = there.world.store.job(there.a.id).study_id
    assert study is not None
    found = there.world.studies.trials(study)
    assert {trial.state.value for trial in found} == {"succeeded"}
    assert len(found) == 5
    assert there.world.store.job(there.a.id).state == "done"
    ends = [mark[2] for mark in there.world.marks_of("long") if mark[0] == "end"]
    assert len(ends) == len(set(ends)) == 5
    assert sum(trial.attempts for trial in found) == 7
    assert [trial.observation.runtime for trial in found if trial.observation] == pytest.approx([4.0] * 5, abs=1.5)


def _check_bills(there: Contest, gone: list[Run]) -> None:
    """What was taken is on the bill of the taker, and not in the budget of the search."""
    world, study = there.world, there.world.store.job(there.a.id).study_id
    assert study is not None
    costs = [run.preemption.cost for run in gone if run.preemption]
    assert all(cost > 0 for cost in costs)
    assert [run.cost for run in gone] == [0.0, 0.0]
    spent = sum(trial.spent for trial in world.studies.trials(study))
    assert spent == pytest.approx(sum(run.cost for run in world.studies.runs(study)))
    bills = {bill["tenant"]: bill for bill in tenant_bills(world.store, world.studies)}
    assert bills["A"]["taken"] == 2
    assert bills["A"]["dollars"] == pytest.approx(spent)
    assert there.b is not None
    own = world.studies.runs(world.store.job(there.b.id).study_id or 0)
    assert bills["B"]["dollars"] == pytest.approx(sum(run.cost for run in own) + sum(costs))
    assert world.store.spending("B")[1] == pytest.approx(sum(costs))


def test_a_quota_that_cannot_pay_takes_nothing(world: World) -> None:
    there = contest(world, seconds=1.5, within=0.6, exempt=0.05)
    world.store.set_tenant(TenantRow("B", quota={"dollars": 0.0}, preempt={"within": 0.6, "exempt": 0.05}))
    until = time.monotonic() + 60
    there.cluster().run(lambda: there.wanted() and time.monotonic() < until)
    assert taken(world, there.a) == []


_BUDGET = """
name: late
job: {{command: 'true'}}
space: {{x: 1..9}}
offers: {{provider: local, vcpu: 1}}
budget: {{dollars: {}}}
"""

_DIES = """
import os, signal, sys
from tradewind.cli.app import run
from tradewind.deployer.lifecycle.deployer import Deployer
abort = Deployer.abort

def die(self, reasons, *, repeats=False):
    return os.kill(os.getpid(), signal.SIGKILL) if repeats else abort(self, reasons)

Deployer.abort = die
sys.exit(run(sys.argv[1:]))
"""
"""A cluster that is killed when it has noted that runs are taken, and has sent nothing to their programs yet."""


def test_a_cluster_that_dies_while_it_takes_runs_goes_on_with_that(world: World) -> None:
    there = contest(world, seconds=30.0)
    world.store.set_tenant(TenantRow("B", quota={"dollars": 1.0}, preempt={"within": WITHIN, "exempt": 0.2}))
    there.dollars = 0.25
    there.places = min(4, len(os.sched_getaffinity(0)))
    command = [sys.executable, "-c", _DIES, "cluster", "start", "--store", world.url]
    with subprocess.Popen(command, env={**os.environ, "TRADEWIND_HOME": str(world.folder)}) as process:
        until = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < until and there.wanted():
            time.sleep(0.05)
        process.kill()
    noted = taken(world, there.a)
    assert noted
    assert not any(run.state.ended for run in noted)
    searches, set_aside = world.store.spending("B")
    assert searches == {2: 0.25}
    assert 0 < set_aside == pytest.approx(sum(max(run.cost, run.reserved) for run in noted)), "as noted, and once"
    wanted = parse_spec(_BUDGET.format(1.0 - 0.25 - set_aside + 0.01), base=world.work)
    with pytest.raises(QuotaError, match="neither spent nor promised"):  # at that moment somebody submits for B
        add_search(world.store, wanted, JobRow(0, "B", "late", study_document(wanted)))
    until = time.monotonic() + 60
    there.cluster().run(lambda: time.monotonic() < until and not all(run.state.ended for run in taken(world, there.a)))
    gone = taken(world, there.a)
    assert {run.run_id for run in noted} <= {run.run_id for run in gone}
    assert all(run.state is RunState.CANCELLED and run.cost == 0.0 and run.preemption for run in gone)
    study = world.store.job(there.a.id).study_id
    assert study is not None
    states = {trial.number: trial.state.value for trial in world.studies.trials(study)}
    assert {states[run.trial] for run in gone} <= {"pending", "running"}, "each is run again"
    assert [mark for mark in world.marks_of("long") if mark[0] == "end"] == [], "none of them went on to its end"
    costs = sum(run.preemption.cost for run in gone if run.preemption)
    assert world.store.spending("B")[1] == pytest.approx(costs), "paid once, by whom the policy names"
    bills = {bill["tenant"]: bill for bill in tenant_bills(world.store, world.studies)}
    assert bills["A"]["dollars"] == pytest.approx(sum(run.cost for run in world.studies.runs(study)))
