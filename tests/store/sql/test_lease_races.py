"""A lease that is taken while another process writes by it: one of the two comes first, and the other one sees that."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, Literal

import pytest
import sqlalchemy as sa
from tests.store.conftest import OpenStore

from tradewind.errors import ConflictError, StudyBusyError, TradewindError
from tradewind.store.base import Change, Store, StudyRow
from tradewind.store.clusters.cluster_store import ClusterStore
from tradewind.store.service.accounts import AccountStore, UserRow
from tradewind.store.service.claims import ClaimStore
from tradewind.store.service.notices import NoticeRow, NoticeStore
from tradewind.store.service.request_values import NewRequestEvent, RequestRow
from tradewind.store.service.requests import RequestStore
from tradewind.store.sql.database import Database
from tradewind.store.sql.leases import CLUSTER_LEASES, REQUEST_LEASES, STUDY_LEASES
from tradewind.testing.stores import run, study_row, trial

FIRST, SECOND = "first-host.example:1:1.0", "second-host.example:2:2.0"


@pytest.fixture(params=["sqlite_url", "postgresql_url"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    with closing(Database(url, busy_timeout=30.0)) as opened:
        yield opened


@pytest.fixture
def store(url: str, open_store: OpenStore) -> Store:
    return open_store(url)


def meanwhile(database: Database, taken: Callable[[Any], object], work: Callable[[], object]) -> TradewindError | None:
    """Take a lease; have another one work before that is committed; what that one was told at the end."""
    told: list[TradewindError | None] = []

    def other() -> None:
        try:
            work()
        except TradewindError as error:
            told.append(error)
        else:
            told.append(None)

    thread = threading.Thread(target=other)
    with database.write() as connection:
        taken(connection)
        thread.start()
        _wait_for_waiter(database, thread)
    thread.join()
    return told[0]


def _wait_for_waiter(database: Database, thread: threading.Thread) -> None:
    """On PostgreSQL, wait until the other one waits for a lock; SQLite lets it begin after this one only."""
    query = sa.text("SELECT count(*) FROM pg_locks WHERE NOT granted")
    until = time.monotonic() + 20.0
    while database.dialect == "postgresql" and thread.is_alive() and time.monotonic() < until:
        with database.read() as connection:
            if connection.scalar(query):
                return
        time.sleep(0.01)


def study_of(store: Store) -> tuple[StudyRow, str]:
    study = store.create_study(study_row())
    return study, store.hold(study.id, FIRST, 60.0)


@pytest.mark.parametrize("many", [False, True], ids=["one statement", "a transaction"])
def test_a_step_of_a_holder_that_lost_the_study_meanwhile_writes_nothing(
    database: Database, store: Store, many: bool
) -> None:
    study, token = study_of(store)
    numbers = range(2 if many else 1)
    step = Change([trial(n, 0.5) for n in numbers], [run(n) for n in numbers], {"elapsed": 7.0})
    told = meanwhile(
        database,
        lambda connection: STUDY_LEASES.take(connection, study.id, SECOND, 60.0),
        lambda: store.write(study.id, step, token),
    )
    assert isinstance(told, StudyBusyError)
    assert "second-host.example:2" in str(told)
    assert (store.trials(study.id), store.study(study.id).elapsed) == ([], 0.0)


def test_a_renewal_that_comes_with_a_takeover_is_refused(database: Database, store: Store) -> None:
    study, token = study_of(store)
    told = meanwhile(
        database,
        lambda connection: STUDY_LEASES.take(connection, study.id, SECOND, 60.0),
        lambda: store.renew(study.id, token, 60.0),
    )
    assert isinstance(told, StudyBusyError)


def test_a_second_one_that_takes_a_free_study_at_that_moment_is_refused(database: Database, store: Store) -> None:
    study = store.create_study(study_row())
    told = meanwhile(
        database,
        lambda connection: STUDY_LEASES.take(connection, study.id, FIRST, 60.0),
        lambda: store.hold(study.id, SECOND, 60.0),
    )
    assert isinstance(told, StudyBusyError)
    assert store.summaries([study.id])[0].holder == "first-host.example:1"


def test_a_second_one_that_takes_a_new_cluster_at_that_moment_is_refused(database: Database, url: str) -> None:
    with closing(ClusterStore(url)) as clusters:
        clusters.release("one", clusters.hold("one", FIRST, 60.0, {}))
        told = meanwhile(
            database,
            lambda connection: CLUSTER_LEASES.take(connection, "one", FIRST, 60.0),
            lambda: clusters.hold("one", SECOND, 60.0, {}),
        )
    assert isinstance(told, StudyBusyError)


def request_of(database: Database) -> tuple[RequestStore, int]:
    accounts, store = AccountStore(database), RequestStore(database)
    user = accounts.add_user(UserRow(0, "ada", "user", "physics"))
    row = RequestRow(0, "physics", user.id, "run", {}, "it")
    return store, store.add(row, NewRequestEvent("pending", "asked for"))[0].id


def test_a_request_that_is_taken_at_that_moment_is_not_cancelled_as_a_free_one(database: Database) -> None:
    requests, number = request_of(database)
    told = meanwhile(
        database,
        lambda connection: REQUEST_LEASES.take(connection, number, FIRST, 60.0, updated=1.0),
        lambda: requests.change_free(number, ["pending"], {"state": "cancelled"}, NewRequestEvent("cancelled", "")),
    )
    assert isinstance(told, ConflictError)
    assert requests.get(number).state == "pending"


def test_a_request_that_is_taken_at_that_moment_is_not_removed(database: Database) -> None:
    requests, number = request_of(database)
    told = meanwhile(
        database,
        lambda connection: REQUEST_LEASES.take(connection, number, FIRST, 60.0, updated=1.0),
        lambda: requests.remove(number, {}),
    )
    assert isinstance(told, ConflictError)


@pytest.mark.parametrize("hold", ["keep", "release", "leave"])
def test_a_change_of_a_request_that_is_taken_over_at_that_moment_is_refused(
    database: Database, hold: Literal["keep", "release", "leave"]
) -> None:
    requests, number = request_of(database)
    claims = ClaimStore(database)
    claim = claims.claim(FIRST, 60.0, lambda lines: (lines[0].first, 0.0))
    assert claim is not None
    told = meanwhile(
        database,
        lambda connection: REQUEST_LEASES.take(connection, number, SECOND, 60.0, updated=1.0),
        lambda: claims.change(number, claim.token, {"state": "executing"}, hold=hold),
    )
    assert isinstance(told, StudyBusyError)
    assert (requests.get(number).state, requests.get(number).hold_holder) == ("pending", SECOND)


def test_a_request_that_is_cancelled_at_that_moment_is_not_claimed(database: Database) -> None:
    requests, number = request_of(database)
    claims, found = ClaimStore(database), []

    def cancel(connection: Any) -> None:
        from tradewind.store.sql.schema import requests as table

        connection.execute(sa.update(table).where(table.c.id == number).values(state="cancelled"))

    meanwhile(
        database,
        cancel,
        lambda: found.append(claims.claim(FIRST, 60.0, lambda lines: (lines[0].first, 0.0))),
    )
    assert (found, requests.get(number).hold_holder) == ([None], None)


def test_a_notice_whose_sender_is_gone_is_taken_over_once(database: Database) -> None:
    user = AccountStore(database).add_user(UserRow(0, "ada", "user", "physics"))
    notices = NoticeStore(database)
    notices.add(NoticeRow(0, user.id, "email", "ada@example.org", {}))
    assert len(notices.claim("email", 5, -1.0)) == 1
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(len(notices.claim("email", 5, 60.0)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [0, 0, 0, 1]
