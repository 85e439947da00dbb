"""Money for runs that are taken is set aside where all look who set anything aside."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.tenancy.world import World

from tradewind.engine.search_builder import study_document
from tradewind.errors import QuotaError
from tradewind.problem.job_spec.spec import JobSpec, parse_spec
from tradewind.store.base import this_process
from tradewind.store.clusters.cluster_store import JobRow, TenantRow
from tradewind.tenancy.events import PreemptRun
from tradewind.tenancy.preemption.payments import PreemptionPayments
from tradewind.tenancy.request_queue import ResourceRequest
from tradewind.tenancy.submission.continuation import resume_search
from tradewind.tenancy.submission.search_submission import add_search

TAKER = TenantRow("B", quota={"dollars": 1.0})
JOB = """
name: {}
job: {{command: 'true'}}
space: {{x: 1..9}}
offers: {{provider: local, vcpu: 1}}
budget: {{dollars: {}}}
"""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    made.store.set_tenant(TAKER)
    for cluster in ("default", "second"):
        made.store.hold(cluster, this_process(), 600.0, {})
    with closing(made.store), closing(made.studies):
        yield made


def run_of(trial: int, price: float) -> tuple[PreemptRun, ResourceRequest]:
    """A run of search 1 that has taken an hour, and the order to take it for tenant B."""
    name = f"1/{trial}/0"
    return PreemptRun(name, "1", "m", "B", "taker"), ResourceRequest(name, None, (), since=0.0, price=price)  # type: ignore[arg-type]


def why(payments: PreemptionPayments, trial: int, price: float) -> str:
    order, run = run_of(trial, price)
    return payments.why_unpaid(order, TAKER, run, None, 3600.0)


def spec(name: str, dollars: float) -> JobSpec:
    return parse_spec(JOB.format(name, dollars), base=Path.cwd())


def submit(world: World, name: str, dollars: float) -> JobRow:
    wanted = spec(name, dollars)
    return add_search(world.store, wanted, JobRow(0, "B", name, study_document(wanted)))


def test_what_is_promised_for_a_taken_run_is_promised_to_nobody_else(world: World) -> None:
    payments = PreemptionPayments(world.store, "default", grace=0.0)
    assert why(payments, 0, 0.7) == ""
    assert world.store.spending("B")[1] == pytest.approx(0.7)
    with pytest.raises(QuotaError, match=r"\$0\.300 of it are neither spent nor promised"):
        submit(world, "x", 0.5)
    other = PreemptionPayments(world.store, "second", grace=0.0)
    assert why(other, 0, 0.5) == "$0.300 of its quota are left, and the run costs $0.500"
    payments.forget({})
    assert world.store.spending("B") == ({}, 0.0)
    assert submit(world, "x", 0.5).state == "queued"
    assert why(other, 1, 0.5) == ""


def test_what_a_search_has_taken_meanwhile_takes_no_run(world: World) -> None:
    payments = PreemptionPayments(world.store, "default", grace=0.0)
    submit(world, "x", 0.6)
    assert why(payments, 0, 0.5) == "$0.400 of its quota are left, and the run costs $0.500"
    assert world.store.spending("B")[1] == 0.0


def test_what_a_cluster_that_died_had_promised_is_forgotten_when_it_begins_again(world: World) -> None:
    assert why(PreemptionPayments(world.store, "default", grace=0.0), 0, 0.7) == ""
    PreemptionPayments(world.store, "second", grace=0.0).begin()
    assert world.store.spending("B")[1] == pytest.approx(0.7), "what others have promised stays"
    PreemptionPayments(world.store, "default", grace=0.0).begin()
    assert world.store.spending("B")[1] == 0.0


@pytest.mark.parametrize(
    ("holder", "seconds"),
    [(None, 600.0), ("a-host-that-is-gone:7:1.0@there", 0.0), ("{host}:{pid}:1.0@{there}", 600.0)],
)
def test_what_a_cluster_had_promised_counts_as_long_as_it_is_held(
    world: World, holder: str | None, seconds: float
) -> None:
    """One that was let go of, one whose time ran out on another host, and one whose process is dead."""
    token = world.store.hold("third", this_process(), 600.0, {})
    assert why(PreemptionPayments(world.store, "third", grace=0.0), 0, 0.7) == ""
    assert why(PreemptionPayments(world.store, "second", grace=0.0), 0, 0.1) == ""
    assert world.store.spending("B")[1] == pytest.approx(0.8)
    world.store.release("third", token)
    if holder is not None:
        host, pid, _, there = re.split("[:@]", this_process())
        world.store.hold("third", holder.format(host=host, pid=pid, there=there), seconds, {})
    assert world.store.spending("B")[1] == pytest.approx(0.1), "what a live one has promised stays"
    assert submit(world, "x", 0.85).state == "queued"


def test_what_is_promised_between_the_look_and_the_entry_of_a_search_is_seen(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    payments = PreemptionPayments(world.store, "default", grace=0.0)
    enter, promised = type(world.store).submit, list[str]()

    def late(store: Any, job: JobRow) -> JobRow:
        promised.append(why(payments, 0, 0.7))
        return enter(store, job)

    monkeypatch.setattr(type(world.store), "submit", late)
    with pytest.raises(QuotaError):
        submit(world, "x", 0.5)
    assert promised == [""]
    assert world.store.job(1).wanted == "cancel"


def test_resuming_a_search_counts_what_was_promised_at_the_same_moment(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    payments = PreemptionPayments(world.store, "default", grace=0.0)
    row = submit(world, "x", 0.5)
    row = world.store.change_job(row.id, state="cancelled", wanted="cancel", reason="so", ended=1.0)
    reopen = type(world.store).reopen
    promised: list[str] = []

    def late(store: Any, number: int, **fields: Any) -> JobRow:
        if not promised:
            promised.append(why(payments, 0, 0.7))
        return reopen(store, number, **fields)

    monkeypatch.setattr(type(world.store), "reopen", late)
    with pytest.raises(QuotaError):
        resume_search(world.store, world.studies, row)
    assert promised == [""]
    assert world.store.job(row.id) == row
