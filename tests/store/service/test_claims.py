"""Claims of requests, in SQLite and in PostgreSQL."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest
import sqlalchemy as sa
from tests.store.service.test_requests import add

from tradewind.errors import StudyBusyError
from tradewind.store.base import StudyRow, process_of_this_host, this_process
from tradewind.store.clusters.cluster_store import ClusterStore, JobRow, TenantRow
from tradewind.store.service.accounts import AccountStore, UserRow
from tradewind.store.service.claims import Claim, ClaimStore
from tradewind.store.service.request_values import TenantQueueState
from tradewind.store.service.requests import NewRequestEvent, RequestStore
from tradewind.store.sql.database import Database

HERE = this_process()
OTHER = "elsewhere:17:1.00"


@pytest.fixture(params=["sqlite_url", "postgresql_url"])
def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    with closing(Database(url, busy_timeout=30.0)) as opened:
        AccountStore(opened).add_user(UserRow(0, "ann", "user", "physics"))
        AccountStore(opened).add_user(UserRow(0, "bob", "user", "biology"))
        yield opened


@pytest.fixture
def requests(database: Database) -> RequestStore:
    return RequestStore(database)


@pytest.fixture
def claims(database: Database) -> ClaimStore:
    return ClaimStore(database)


def oldest(lines: Sequence[TenantQueueState]) -> tuple[int, float] | None:
    line = min(lines, key=lambda line: line.first)
    return line.first, 0.0


def claim(claims: ClaimStore, holder: str = HERE, seconds: float = 60.0) -> Claim:
    found = claims.claim(holder, seconds, oldest)
    assert found is not None
    return found


@pytest.mark.slow
def test_the_oldest_is_claimed_once(requests: RequestStore, claims: ClaimStore) -> None:
    assert not claims.waits()
    assert claims.claim(HERE, 60.0, oldest) is None
    first, second = add(requests), add(requests, 2, "biology")
    assert claims.waits()
    assert not claims.waits(room=False)
    assert claims.claim(HERE, 60.0, oldest, room=False) is None
    one, two = claim(claims), claim(claims)
    assert [one.row.id, two.row.id] == [first.id, second.id]
    assert (one.row.state, one.row.hold_holder, one.before) == ("pending", HERE, "")
    assert claims.claim(HERE, 60.0, oldest) is None
    assert not claims.waits()


@pytest.mark.slow
def test_who_chooses_sees_what_each_tenant_uses(
    url: str, requests: RequestStore, claims: ClaimStore, database: Database
) -> None:
    with closing(ClusterStore(url)) as cluster:
        cluster.set_tenant(TenantRow("physics", 2.0, quota={"requests": 3, "dollars": 10.0}))
    first = add(requests, plan={"dollars": 2.0})
    requests.change_free(first.id, ["pending"], {"cost": 0.5}, NewRequestEvent("pending", ""))
    add(requests)
    add(requests, 2, "biology")
    seen: list[TenantQueueState] = []

    def choose(lines: Sequence[TenantQueueState]) -> tuple[int, float] | None:
        seen.extend(sorted(lines, key=lambda line: line.tenant))
        return min(line.first for line in lines), 2.0

    assert claims.claim(HERE, 60.0, choose) is not None
    biology, physics = seen
    assert (biology.weight, biology.quota, biology.spent, biology.running) == (1.0, {}, 0.0, 0)
    assert physics == TenantQueueState(
        "physics", first.id, {"dollars": 2.0}, 0.5, 2.0, {"requests": 3, "dollars": 10.0}, 0, 0.5
    )
    line, waiting = claims.queue("physics")
    assert (line.running, line.spent, waiting) == (1, 2.0, [first.id + 1])  # one that runs counts with what it may cost
    assert claims.queue_state("physics").spent == 2.0
    assert claims.claim(HERE, 60.0, lambda lines: None) is None


@pytest.mark.slow
def test_only_who_holds_it_changes_it(requests: RequestStore, claims: ClaimStore) -> None:
    add(requests)
    mine = claim(claims)
    claims.change(
        mine.row.id, mine.token, {"state": "executing", "cost": 0.1}, [NewRequestEvent("executing", "it runs")]
    )
    with pytest.raises(StudyBusyError, match="taken over by another process"):
        claims.change(mine.row.id, "another", {"state": "done"}, [NewRequestEvent("done", "no")])
    assert claims.renew({mine.row.id: mine.token}, 60.0) == set()
    assert claims.renew({mine.row.id: "another"}, 60.0) == {mine.row.id}
    requests.want(mine.row.id, "delete", NewRequestEvent("executing", "wanted"))
    assert claims.intents([mine.row.id]) == {mine.row.id: "delete"}
    assert (
        claims.change(mine.row.id, mine.token, {"state": "done"}, [NewRequestEvent("done", "")], hold="release")
        == "delete"
    )
    row = requests.get(mine.row.id)
    assert (row.state, row.cost, row.hold_holder) == ("done", 0.1, None)
    assert [event.stage for event in requests.events()] == ["pending", "executing", "executing", "done"]


@pytest.mark.slow
def test_what_a_silent_process_held_is_taken_over(
    requests: RequestStore, claims: ClaimStore, database: Database
) -> None:
    add(requests)
    other = claim(claims, OTHER, seconds=2.0)
    claims.change(other.row.id, other.token, {"state": "executing"}, [])
    assert claims.claim(HERE, 60.0, oldest) is None
    assert not claims.waits()
    time.sleep(2.05)
    assert not claims.waits(mine=[other.row.id])
    assert ClaimStore(database).waits()
    time.sleep(1.0)
    assert claims.waits()  # nobody has written anything: it looks again after a second
    assert claims.claim(HERE, 60.0, oldest, room=False) is None
    assert claims.claim(HERE, 60.0, oldest, mine=[other.row.id]) is None
    mine = claim(claims)
    assert (mine.row.id, mine.row.state, mine.before) == (other.row.id, "executing", "elsewhere:17")
    with pytest.raises(StudyBusyError):
        claims.change(other.row.id, other.token, {"cost": 1.0})
    assert requests.events()[-1].text == "taken over from process elsewhere:17, which is gone"


@pytest.mark.slow
def test_what_a_dead_process_of_this_host_held_is_taken_over_at_once(
    requests: RequestStore, claims: ClaimStore
) -> None:
    add(requests)
    dead = claim(claims, process_of_this_host(os.getpid(), 1.0), seconds=600.0)  # not the start of this process
    assert claims.waits()
    assert claim(claims).row.id == dead.row.id


@pytest.mark.slow
def test_what_is_left_goes_to_the_next_at_once(requests: RequestStore, claims: ClaimStore) -> None:
    add(requests)
    mine = claim(claims)
    claims.change(mine.row.id, mine.token, {"state": "executing"}, hold="leave")
    assert claims.waits()
    assert claim(claims, OTHER).row.id == mine.row.id


@pytest.mark.slow
def test_a_study_is_named_before_anything_is_made_for_it(
    requests: RequestStore, claims: ClaimStore, database: Database, url: str
) -> None:
    from tradewind import plugins

    add(requests)
    mine = claim(claims)
    study = StudyRow(0, "physics/hello", "key", {"job": {}}, 1.0, owner="tw-1")
    stored = claims.name_study(mine, study, {"plan": {"configuration": {"nodes": 1}}, "started": 5.0})
    row = requests.get(mine.row.id)
    assert (row.study_id, row.plan, row.started) == (stored.id, {"configuration": {"nodes": 1}}, 5.0)
    with closing(plugins.create("store", "sql", {}, url=url)) as store:
        assert store.study(stored.id).name == "physics/hello"
        lost = Claim(mine.row, "another")
        with pytest.raises(StudyBusyError):
            claims.name_study(lost, study, {})
        assert len(store.find_studies()) == 1


@pytest.mark.slow
def test_a_search_goes_into_the_queue_of_clusters_once(requests: RequestStore, claims: ClaimStore, url: str) -> None:
    row = add(requests, kind="search", cluster="lab")
    assert claims.waits(room=False)
    mine = claims.claim(HERE, 60.0, oldest, room=False)
    assert mine is not None
    number = claims.name_job(mine, JobRow(0, "physics", "hello", {"job": {}}, {"core": "thread"}))
    assert requests.get(row.id).cluster_job == number
    with closing(ClusterStore(url)) as cluster:
        job = cluster.job(number)
        assert (job.tenant, job.state, job.options) == ("physics", "queued", {"core": "thread"})
        with pytest.raises(StudyBusyError):
            claims.name_job(Claim(mine.row, "another"), job)
        assert len(cluster.jobs()) == 1


@pytest.mark.slow
def test_many_claim_at_the_same_time_and_each_request_once(url: str, requests: RequestStore) -> None:
    for _ in range(24):
        add(requests)
    got: list[int] = []

    def work(name: str) -> None:
        with closing(Database(url, busy_timeout=30.0)) as opened:
            mine = ClaimStore(opened)
            while (found := mine.claim(name, 60.0, oldest)) is not None:
                got.append(found.row.id)

    threads = [threading.Thread(target=work, args=(f"host{n}:1:1.0",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == [row.id for row in reversed(requests.page(limit=100))]


@pytest.mark.slow
def test_no_statement_is_put_together_for_a_request(
    requests: RequestStore, claims: ClaimStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Putting a statement together takes longer than running it: a worker does neither more than it has to."""
    add(requests)

    def refuse(*_given: object) -> None:
        raise AssertionError("a statement is put together once")

    for name in ("select", "update", "insert"):
        monkeypatch.setattr(sa, name, refuse)
    assert claims.waits()
    mine = claim(claims)
    number, token = mine.row.id, mine.token
    assert claims.renew({number: token}, 60.0) == set()
    assert claims.intents([number]) == {number: "run"}
    study = StudyRow(0, "quick", "k", {}, 1.0, owner="tw-1")
    claims.name_study(mine, study, {"started": 1.0})
    assert claims.change(number, token, {"state": "done"}, [NewRequestEvent("done", "well")], hold="release") == "run"
    assert [event.text for event in requests.events(request_id=number)][-1] == "well"
    assert not claims.waits()


@pytest.mark.slow
def test_every_tenant_s_first_request_for_a_cluster_is_looked_at(requests: RequestStore, claims: ClaimStore) -> None:
    """Whose money does not pay any more holds nobody else back."""
    for _ in range(21):
        add(requests, kind="search", cluster="lab", plan={"dollars": 6.0})
    theirs = add(requests, 2, "biology", kind="search", cluster="lab")
    seen: list[str] = []

    def only_biology(lines: Sequence[TenantQueueState]) -> tuple[int, float] | None:
        seen.extend(line.tenant for line in lines)
        return next(((line.first, 1.0) for line in lines if line.tenant == "biology"), None)

    found = claims.claim(HERE, 60.0, only_biology, room=False)
    assert found is not None
    assert (found.row.id, found.row.reserved) == (theirs.id, 1.0)
    assert seen == ["physics", "biology"]  # and not all of 21
