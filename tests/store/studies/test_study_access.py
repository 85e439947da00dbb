"""Whose studies are, on SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import sqlalchemy as sa

from tradewind.problem import Configuration, Offer, Proposal, Run, RunState, Trial, TrialState
from tradewind.store.base import Change, Store, StudyRow
from tradewind.store.clusters.cluster_store import ClusterStore, JobRow
from tradewind.store.service.accounts import AccountStore, UserRow
from tradewind.store.service.requests import NewRequestEvent, RequestRow, RequestStore
from tradewind.store.sql.database import Database
from tradewind.store.sql.schema import requests
from tradewind.store.studies.study_access import StudyAccess


class World:
    """A database with studies of all origins.

    Attributes:
        database: The database.
        store: Its studies.
        access: Whose they are.
        ids: The studies: of a search and of a plain run that were asked for, of a cluster, and of the command line.
    """

    def __init__(self, url: str, store: Store) -> None:
        self.database = Database(url, busy_timeout=10.0)
        self.store = store
        self.access = StudyAccess(self.database)
        self.ids = {name: self._study(name) for name in ("search", "run", "cluster", "line")}
        ann = AccountStore(self.database).add_user(UserRow(0, "ann", "user", "physics"))
        for kind in ("search", "run"):
            row = RequestRow(0, "physics", ann.id, kind, {}, kind)
            stored, _ = RequestStore(self.database).add(row, NewRequestEvent("pending", ""))
            with self.database.write() as connection:
                mine = requests.c.id == stored.id
                connection.execute(sa.update(requests).where(mine).values(study_id=self.ids[kind]))
        cluster = ClusterStore(url)
        cluster.submit(JobRow(0, "biology", "cluster", {}, study_id=self.ids["cluster"]))
        cluster.close()

    def _study(self, name: str) -> int:
        return self.store.create_study(StudyRow(0, name, name, {}, 1.0, owner=f"tw-{name}")).id

    def launch(self, name: str, state: RunState, run_id: str) -> None:
        chosen = Configuration({"n": 1})
        offer = Offer("aws", "c5.large", 2, 4, 0.5, nodes=3)
        trial = Trial(0, Proposal(chosen), offer, TrialState.RUNNING, chosen.key, created=1.0)
        run = Run(run_id, 0, state=state, started=5.0, reserved=0.25)
        self.store.write(self.ids[name], Change([trial], [run]))


@pytest.fixture(params=["sqlite_url", "postgresql_url"])
def there(request: pytest.FixtureRequest, open_store: Callable[..., Store]) -> Iterator[World]:
    url = request.getfixturevalue(request.param)
    made = World(url, open_store(url))
    yield made
    made.database.close()


@pytest.mark.slow
def test_a_study_belongs_to_who_asked_for_it(there: World) -> None:
    owners = {name: there.access.of(number) for name, number in there.ids.items()}
    assert {name: one.tenant for name, one in owners.items() if one is not None} == {
        "search": "physics",
        "run": "physics",
        "cluster": "biology",
        "line": "",
    }
    assert there.access.of(4711) is None
    names = [one.name for one in there.access.page()]
    assert names == ["line", "cluster", "search"], "a plain run is nothing to compare"
    assert [one.name for one in there.access.page(tenant="physics")] == ["search"]
    assert [one.name for one in there.access.page(tenant="physics", single_runs=True)] == ["run", "search"]
    assert [one.name for one in there.access.page(text="CLUS")] == ["cluster"]
    assert [one.name for one in there.access.page(before=there.ids["line"], limit=1)] == ["cluster"]


@pytest.mark.slow
def test_states_are_those_of_now(there: World) -> None:
    token = there.store.hold(there.ids["line"], "elsewhere:17:1.0", 60.0)
    there.store.write(there.ids["search"], Change(study={"state": "finished"}))
    for states, names in (
        (["running"], ["line"]),
        (["finished"], ["search"]),
        (["stopped"], ["cluster"]),
        (["running", "finished"], ["line", "search"]),
    ):
        assert [one.name for one in there.access.page(states=states)] == names
    there.store.release(there.ids["line"], token)
    assert there.access.page(states=["running"]) == []


def test_a_stamp_changes_with_its_study_only(there: World) -> None:
    ids = list(there.ids.values())
    before = there.access.stamps(ids)
    assert there.access.stamps(ids) == before
    there.launch("search", RunState.BOOTING, "r1")
    after = there.access.stamps(ids)
    assert {number for number in ids if before[number] != after[number]} == {there.ids["search"]}
    there.store.write(there.ids["search"], Change(runs=[Run("r1", 0, state=RunState.EXECUTING, cost=0.1)]))
    assert there.access.stamps(ids)[there.ids["search"]] != after[there.ids["search"]]
    assert there.access.stamps([]) == {}


@pytest.mark.slow
def test_open_runs_have_their_machines_and_their_watcher(there: World) -> None:
    there.launch("search", RunState.BOOTING, "r1")
    there.launch("line", RunState.EXECUTING, "r2")
    there.launch("cluster", RunState.DONE, "r3")
    there.store.hold(there.ids["line"], "elsewhere:17:1.0", 60.0)
    found = {one.run_id: one for one in there.access.open_runs()}
    assert set(found) == {"r1", "r2"}
    first = found["r1"]
    assert (first.study, first.tenant, first.nodes, first.instance_type) == ("search", "physics", 3, "c5.large")
    assert (first.price_per_hour, first.started, first.reserved, first.holder) == (0.5, 5.0, 0.25, "")
    assert found["r2"].holder == "elsewhere:17"
    assert [one.run_id for one in there.access.open_runs("physics")] == ["r1"]
    assert there.access.open_runs("biology") == []
