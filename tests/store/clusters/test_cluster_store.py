"""The tables of shared clusters, in SQLite and in PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from tradewind.errors import InputError, StoreError, StudyBusyError, StudyNotFoundError
from tradewind.store import migrations
from tradewind.store.base import this_process
from tradewind.store.clusters.cluster_store import ClusterStore, JobRow, TenantRow


@pytest.fixture(params=["sqlite_url", "postgresql_url"])
def store(request: pytest.FixtureRequest) -> Iterator[ClusterStore]:
    with closing(ClusterStore(request.getfixturevalue(request.param))) as opened:
        yield opened


def job(tenant: str = "A", name: str = "train") -> JobRow:
    return JobRow(0, tenant, name, {"job": {"name": name}}, {"core": "thread"})


@pytest.mark.slow
def test_a_submitted_search_is_there_with_its_tenant(store: ClusterStore) -> None:
    row = store.submit(job())
    assert store.job(row.id) == row
    assert (row.state, row.wanted, row.study_id) == ("queued", "run", None)
    assert row.submitted > 0
    assert [tenant.name for tenant in store.tenants()] == ["A"]
    with pytest.raises(StudyNotFoundError, match="there is no search 99 in the queue"):
        store.job(99)


def test_tenants_change_and_keep_when_they_came(store: ClusterStore) -> None:
    store.set_tenant(TenantRow("A", 2.0, 1, {"cpu": 4.0}))
    (first,) = store.tenants()
    store.set_tenant(TenantRow("A", 3.0))
    (second,) = store.tenants()
    assert (second.weight, second.quota) == (3.0, {})
    assert second.created == first.created > 0


@pytest.mark.slow
def test_lists_are_filtered_and_paged(store: ClusterStore) -> None:
    rows = [store.submit(job("AB"[number % 2], f"j{number}")) for number in range(5)]
    store.change_job(rows[0].id, state="done", ended=1.0)
    assert [row.name for row in store.jobs()] == ["j4", "j3", "j2", "j1", "j0"]
    assert [row.name for row in store.jobs(tenant="A")] == ["j4", "j2", "j0"]
    assert [row.name for row in store.jobs(open_only=True, tenant="A")] == ["j4", "j2"]
    assert [row.name for row in store.jobs(limit=2)] == ["j4", "j3"]
    assert [row.name for row in store.jobs(limit=2, before=rows[3].id)] == ["j2", "j1"]


@pytest.mark.slow
def test_wishes_are_for_what_is_not_over(store: ClusterStore) -> None:
    row = store.submit(job())
    assert store.want(row.id, "pause").wanted == "pause"
    store.change_job(row.id, state="cancelled", reason="by its owner")
    with pytest.raises(InputError, match=r"search \d+ \(train\) is over: cancelled"):
        store.want(row.id, "run")
    with pytest.raises(StoreError, match="'tenant' cannot be changed"):
        store.change_job(row.id, tenant="B")


def test_one_process_runs_a_cluster(store: ClusterStore) -> None:
    token = store.hold("main", "elsewhere:12:0.0", 60.0, {"engine": "process"})
    with pytest.raises(StudyBusyError, match="cluster main is being run by process elsewhere:12"):
        store.hold("main", this_process(), 60.0, {})
    store.renew("main", token, 60.0, {"decisions": 3})
    (row,) = store.clusters()
    assert (row.name, row.holder, row.snapshot) == ("main", "elsewhere:12:0.0", {"decisions": 3})
    store.release("main", token)
    mine = store.hold("main", this_process(), 60.0, {"engine": "ray"})
    with pytest.raises(StudyBusyError, match="was taken over"):
        store.renew("main", token, 60.0, {})
    (row,) = store.clusters()
    assert row.settings == {"engine": "ray"}
    assert row.snapshot == {"decisions": 3}
    store.release("main", mine)


@pytest.mark.slow
def test_a_hold_that_ran_out_is_free(store: ClusterStore) -> None:
    store.hold("main", "elsewhere:12:0.0", -1.0, {})
    assert store.clusters()[0].holder == ""
    assert store.hold("main", this_process(), 60.0, {})


@pytest.mark.slow
def test_a_search_is_one_clusters(store: ClusterStore) -> None:
    free, named = store.submit(job()), store.submit(replace(job(), cluster="lab"))
    over = store.submit(replace(job(), state="done"))
    assert [number for number, _, _ in store.intents("main")] == [free.id]
    assert [number for number, _, _ in store.intents("lab")] == [free.id, named.id]
    assert store.take(named.id, "main") is None
    assert store.take(over.id, "main") is None
    assert store.take(free.id, "main") == replace(free, cluster="main")
    assert store.take(free.id, "main") == replace(free, cluster="main")
    assert store.take(free.id, "lab") is None
    assert [number for number, _, _ in store.intents("lab")] == [named.id]
    assert [row.id for row in store.jobs(open_only=True, cluster="main")] == [free.id]
    assert store.job(named.id).cluster == "lab"


@pytest.mark.slow
def test_a_search_of_an_older_store_is_for_any_cluster(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'old.db'}"
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__path__[0])))
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0003")
        connection.exec_driver_sql("INSERT INTO tenants VALUES ('A', 1, 0, '{}', 1)")
        columns = "tenant, name, spec, options, nice, wanted, state, reason, submitted"
        values = "'A', 'train', '{}', '{}', 3, 'run', 'queued', '', 1"
        connection.exec_driver_sql(f"INSERT INTO cluster_jobs ({columns}) VALUES ({values})")
    engine.dispose()
    with closing(ClusterStore(url)) as opened:
        (row,) = opened.jobs()
        assert (row.name, row.nice, row.cluster) == ("train", 3, "")
        assert opened.take(row.id, "lab") == replace(row, cluster="lab")
