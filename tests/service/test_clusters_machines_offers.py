"""Clusters, machines, offers and servers, as the service shows them and to whom."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.cli.study.orphaned_runs import World, world
from tests.waiting import eventually

from tradewind.errors import ConflictError, ForbiddenError, InputError, NotFoundError
from tradewind.problem import RunState
from tradewind.service.accounts.identity import Principal
from tradewind.service.context import Context
from tradewind.service.machines import MachineService
from tradewind.service.offers import OfferService
from tradewind.service.visibility import ANOTHER, OTHERS
from tradewind.store.base import this_process
from tradewind.store.clusters.cluster_store import JobRow
from tradewind.store.service.audit import AuditStore
from tradewind.store.sql.database import Database
from tradewind.utils.paths import data_folder

ANN = Principal(1, "ann", "user", "physics")
ROOT = Principal(3, "root", "admin", "root")


def tenant(weight: float, share: float, cpu: float, *, running: int = 1, waiting: int = 0) -> dict[str, Any]:
    return {
        "weight": weight,
        "share": share,
        "used": {"cpu": cpu, "memory": 2 * cpu},
        "usage": {"cpu": 3600 * cpu},
        "running": running,
        "waiting": waiting,
    }


SNAPSHOT: dict[str, Any] = {
    "total": {"cpu": 16.0, "memory": 64.0},
    "nodes": {"n1": {"has": {"cpu": 16.0, "memory": 64.0}, "free": {"cpu": 4.0, "memory": 40.0}}},
    "tenants": {
        "physics": tenant(1.0, 0.25, 4.0, waiting=2),
        "biology": tenant(2.0, 0.5, 8.0),
        "history": tenant(1.0, 0.0, 0.0, running=0),
    },
    "decisions": 9,
    "jobs": [
        {"id": 1, "tenant": "physics", "name": "fit", "state": "running", "submitted": 1.0, "running": 1, "waiting": 2,
         "why": "others are due before it, or no node has room", "taken": {"runs": 1, "tenant": "biology", "at": 3.0}},
        {"id": 2, "tenant": "biology", "name": "blast", "state": "running", "submitted": 2.0, "running": 1,
         "waiting": 0, "why": ""},
    ],
}  # fmt: skip


@pytest.fixture
def busy(context: Context) -> Context:
    """A cluster that runs."""
    settings = {"engine": "slurm", "fairness": "drf", "secret": "x"}
    token = context.cluster.hold("default", this_process(), 60.0, settings)
    context.cluster.renew("default", token, 60.0, SNAPSHOT)
    return context


def test_an_administrator_sees_all_of_a_cluster(busy: Context) -> None:
    found = busy.clusters.get(ROOT, "default")
    assert found["running"]
    assert found["settings"] == {"engine": "slurm", "fairness": "drf", "priority": ""}
    assert (found["nodes"], found["used"]) == (1, {"cpu": 12.0, "memory": 24.0})
    assert {one["tenant"]: one["due"] for one in found["tenants"]} == {
        "physics": pytest.approx(1 / 3),
        "biology": pytest.approx(2 / 3),
        "history": 0.0,
    }
    assert [job["name"] for job in found["jobs"]] == ["fit", "blast"]
    assert found["jobs"][0]["taken"]["tenant"] == "biology"


def test_a_user_sees_the_others_together_and_no_search_of_theirs(busy: Context) -> None:
    (found,) = busy.clusters.list(ANN)
    assert [job["name"] for job in found["jobs"]] == ["fit"]
    assert found["jobs"][0]["taken"] == {"runs": 1, "tenant": ANOTHER, "at": 3.0}
    assert "biology" not in json.dumps(found)
    mine, others = found["tenants"]
    assert (mine["tenant"], mine["share"], mine["due"]) == ("physics", 0.25, pytest.approx(1 / 3))
    assert (others["tenant"], others["share"], others["hours"]) == (OTHERS, 0.5, {"cpu": 8.0, "memory": 0.0})
    with pytest.raises(NotFoundError):
        busy.clusters.get(ANN, "another")


@pytest.mark.slow
def test_searches_in_the_queue_are_shown_to_their_tenant(busy: Context) -> None:
    mine = busy.cluster.submit(JobRow(0, "physics", "fit", {}))
    theirs = busy.cluster.submit(JobRow(0, "biology", "blast", {}, state="done"))
    assert [job["id"] for job in busy.clusters.jobs(ANN)] == [mine.id]
    assert [job["id"] for job in busy.clusters.jobs(ROOT)] == [theirs.id, mine.id]
    assert [job["id"] for job in busy.clusters.jobs(ROOT, open_only=True)] == [mine.id]
    assert busy.clusters.job(ANN, mine.id)["open"]
    for number in (theirs.id, 4711):
        with pytest.raises(NotFoundError):
            busy.clusters.job(ANN, number)


# ---------------------------------------------------------------------- machines


@pytest.fixture
def left(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        yield made


@pytest.fixture
def machines(left: World) -> Iterator[MachineService]:
    """The functions over the store of that world."""
    database = Database(left.store.url, busy_timeout=10.0)
    yield MachineService(database, left.store, data_folder())
    database.close()


def test_what_runs_costs_money_and_says_who_watches_it(left: World, machines: MachineService) -> None:
    run = left.leave()
    (lease,) = machines.leases(ROOT)
    assert (lease["run"], lease["state"], lease["holder"]) == (run.run_id, "executing", "")
    assert (lease["nodes"], lease["instance_type"], lease["price_per_hour"]) == (1, "small", 3600.0)
    assert run.started is not None
    assert lease["so_far"] == pytest.approx(time.time() - run.started, abs=2.0), "a dollar a second"
    assert machines.leases(ANN) == [], "it was begun on the command line"
    left.store.hold(left.study.id, "elsewhere:17:1.0", 60.0)
    assert machines.leases(ROOT)[0]["holder"] == "elsewhere:17"


@pytest.mark.slow
def test_only_what_was_chosen_is_given_back(left: World, machines: MachineService) -> None:
    expired, other, watched = (
        left.leave(0, expires=time.time() - 5),
        left.leave(1, expires=time.time() - 5),
        left.leave(2),
    )
    found = machines.look(ROOT)
    assert {one["run"] for one in found["left_over"]} == {expired.run_id, other.run_id}
    assert watched.run_id in {one["run"] for one in found["kept"]}
    assert machines.looked(ROOT) == found
    chosen = next(one["id"] for one in found["left_over"] if one["run"] == expired.run_id)
    keep = next(one["id"] for one in found["kept"] if one["run"] == watched.run_id)
    nothing = "machines/simulated/nothing"
    done = machines.reap(ROOT, [chosen, keep, nothing])
    assert [(one["id"], one["gone"]) for one in done] == [(chosen, True), (keep, False), (nothing, False)]
    assert done[2]["problem"] == "nothing of this id was found"
    with closing(Database(left.store.url, busy_timeout=10.0)) as database:
        lines = [(row.subject, row.details["gone"]) for row in AuditStore(database).page(action="machines.reap")]
    assert lines == [(f"machines {keep}", False), (f"machines {chosen}", True)]
    assert left.run(expired.run_id).state is RunState.CANCELLED
    assert left.found() >= {other.run_id, watched.run_id}
    assert expired.run_id not in left.found()


def test_an_id_that_no_machine_has_breaks_nothing(machines: MachineService) -> None:
    with pytest.raises(InputError, match=r"U\+D800"):
        machines.reap(ROOT, ["\ud800"])
    assert machines.look(ROOT)["left_over"] == []


def test_only_administrators_look_at_machines(machines: MachineService) -> None:
    for ask in (machines.look, machines.looked, lambda who: machines.reap(who, [])):
        with pytest.raises(ForbiddenError):
            ask(ANN)
    with machines._asking, pytest.raises(ConflictError, match="being asked"):
        machines.look(ROOT)


# ---------------------------------------------------------------------- offers and servers


def test_all_offers_come_by_column(tmp_path: Path) -> None:
    offers = OfferService(tmp_path)
    found = offers.all(ANN)
    columns = found["columns"]
    assert found["total"] == len(columns["vcpu"]) == len(columns["provider"]["codes"]) > 3000
    assert columns["price_per_hour"] == sorted(columns["price_per_hour"])
    assert {"aws", "azure", "gcp", "local"} <= set(columns["provider"]["words"])
    assert max(columns["gpus"]) >= 8, "machines with accelerators are among them"
    assert set(columns["interruptions_per_hour"]) == {None}, "price lists do not know how often spot is taken back"
    first = offers.all_json(ANN)
    assert offers.all_json(ANN)[1] is first[1], "made once"
    (tmp_path / "prices").mkdir()
    (tmp_path / "prices/aws.json").write_text(json.dumps({"version": 1, "offers": []}))
    assert offers.all_json(ANN)[0] == first[0]
    assert offers.find(ANN, provider=("local",), limit=2)[0].provider == "local"


def test_who_is_there_is_told_until_it_ends(context: Context) -> None:
    with context.presence.here("worker", "4 requests at a time"):
        found = eventually(lambda: context.presence.list(ROOT))
        assert [(one["kind"], one["about"], one["alive"]) for one in found] == [
            ("worker", "4 requests at a time", True)
        ]
        with pytest.raises(ForbiddenError):
            context.presence.list(ANN)
    assert [(one["alive"], one["ended"]) for one in context.presence.list(ROOT)] == [(False, True)]
