"""The one account of a tenant's requests and searches, in SQLite and in PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest
from tests.store.service.test_claims import claim, claims, database, requests, url
from tests.store.service.test_requests import add

from tradewind import plugins
from tradewind.problem import Configuration, Offer, Proposal, Run, RunState, Trial, TrialState
from tradewind.store.base import Change, StudyRow
from tradewind.store.clusters.cluster_store import ClusterStore, JobRow, TenantRow
from tradewind.store.service.claims import ClaimStore
from tradewind.store.service.requests import RequestStore
from tradewind.store.sql.database import Database

__all__ = ["claims", "database", "requests", "url"]


@pytest.fixture
def cluster(url: str, database: Database) -> Iterator[ClusterStore]:
    with closing(ClusterStore(url)) as opened:
        opened.set_tenant(TenantRow("physics", quota={"dollars": 10.0}))
        yield opened


def job(dollars: float | None, study: int | None = None, tenant: str = "physics") -> JobRow:
    return JobRow(0, tenant, "x", {"budget": {"dollars": dollars}}, study_id=study)


@pytest.mark.slow
def test_searches_that_are_over_count_with_what_they_spent(url: str, cluster: ClusterStore, claims: ClaimStore) -> None:
    with closing(plugins.create("store", "sql", {}, url=url)) as studies:
        study = studies.create_study(StudyRow(0, "x", "k", {}, 1.0, owner="tw-1")).id
        number = cluster.submit(job(2.0, study)).id
        assert claims.queue_state("physics").spent == 2.0
        chosen, offer = Configuration({"n": 1}), Offer("aws", "c5.large", 2, 4, 0.5)
        trial = Trial(0, Proposal(chosen), offer, TrialState.RUNNING, chosen.key)
        runs = Run("one", 0, state=RunState.DONE, cost=0.25), Run("two", 0, state=RunState.EXECUTING, cost=2.5)
        studies.write(study, Change([trial], runs))
    assert cluster.spending("physics") == ({number: 2.75}, 0.0)  # it may cost more than was promised, and tells so
    cluster.change_job(number, state="done")
    other = cluster.submit(job(1.0)).id
    assert cluster.spending("physics") == ({number: 2.75, other: 1.0}, 0.0)
    assert cluster.spending("physics", before=other) == ({number: 2.75}, 0.0)
    assert claims.queue_state("physics").spent == 3.75
    cluster.submit(job(5.0, tenant="biology"))
    assert claims.queue_state("physics").spent == 3.75
    cluster.change_job(number, simulated=True)
    assert cluster.spending("physics") == ({other: 1.0}, 0.0)
    assert claims.queue_state("physics").spent == 1.0


@pytest.mark.slow
def test_a_search_without_a_budget_leaves_nothing(cluster: ClusterStore, claims: ClaimStore) -> None:
    number = cluster.submit(job(None)).id
    assert claims.queue_state("physics").spent == float("inf")
    cluster.change_job(number, state="cancelled")
    assert claims.queue_state("physics").spent == 0.0


@pytest.mark.slow
def test_what_a_request_hands_over_is_counted_once(
    cluster: ClusterStore, requests: RequestStore, claims: ClaimStore
) -> None:
    add(requests)
    add(requests)
    first, second = (claim(claims) for _ in range(2))
    for each, dollars in ((first, 2.0), (second, 3.0)):
        claims.change(each.row.id, each.token, {"reserved": dollars}, [])
    assert cluster.spending("physics") == ({}, 5.0)
    claims.name_job(first, job(2.0))
    assert cluster.spending("physics") == ({}, 5.0)
    assert claims.queue_state("physics").spent == 5.0


@pytest.mark.slow
def test_a_request_that_is_tried_again_is_counted_once(
    url: str, database: Database, cluster: ClusterStore, requests: RequestStore, claims: ClaimStore
) -> None:
    """It goes on with its study in a second search, and the first one is no longer the request's."""
    add(requests)
    mine = claim(claims)
    with closing(plugins.create("store", "sql", {}, url=url)) as studies:
        study = studies.create_study(StudyRow(0, "x", "k", {}, 1.0, owner="tw-1")).id
        chosen, offer = Configuration({"n": 1}), Offer("aws", "c5.large", 2, 4, 0.5)
        trial = Trial(0, Proposal(chosen), offer, TrialState.FAILED, chosen.key)
        studies.write(study, Change([trial], [Run("one", 0, state=RunState.FAILED, cost=4.0)]))
    first = claims.name_job(mine, job(6.0, study), {"study_id": study, "cost": 4.0})
    cluster.change_job(first, state="failed")
    claims.change(mine.row.id, mine.token, {"cluster_job": None}, [])
    assert cluster.spending("physics") == ({}, 4.0)
    claims.name_job(mine, job(6.0, study), {"reserved": 6.0})
    assert cluster.spending("physics") == ({}, 6.0)
    assert claims.queue_state("physics").spent == 6.0


@pytest.mark.slow
@pytest.mark.parametrize("url", ["postgresql_url"], indirect=True)
def test_what_a_server_is_setting_aside_is_waited_for(
    cluster: ClusterStore, requests: RequestStore, claims: ClaimStore
) -> None:
    """Between a server's look at the account and its claim nobody else may find the same money left."""
    add(requests)
    chosen, go_on = threading.Event(), threading.Event()

    def slowly(lines: object) -> tuple[int, float]:
        chosen.set()
        assert go_on.wait(30)
        return 1, 4.0

    found: list[object] = []
    server = threading.Thread(target=lambda: found.append(claims.claim("elsewhere:1:0.0", 60.0, slowly)))
    server.start()
    assert chosen.wait(30)
    threading.Timer(0.3, go_on.set).start()
    assert cluster.spending("physics") == ({}, 4.0)
    server.join()
    assert found[0] is not None
