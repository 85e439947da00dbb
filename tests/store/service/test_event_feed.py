"""The watch of events: none is left out and none comes twice, however many write at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from tradewind.store.service.accounts import AccountStore, UserRow
from tradewind.store.service.requests import (
    NewRequestEvent,
    RequestEventFeed,
    RequestRow,
    RequestStore,
    TenantRequestEvent,
)
from tradewind.store.sql.database import Database

WRITERS, EACH = 4, 25


@pytest.fixture(params=["sqlite_url", "postgresql_url"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of an empty database: SQLite's and PostgreSQL's in turn."""
    found: str = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    """It, open."""
    opened = Database(url, busy_timeout=30.0)
    yield opened
    opened.close()


@pytest.mark.slow
def test_none_is_left_out_while_many_write(url: str, database: Database) -> None:
    """A reader that goes by the numbers of rows sees all only if they are committed in that order."""
    user = AccountStore(database).add_user(UserRow(0, "ann", "user", "physics"))
    watch = RequestEventFeed(database)
    made: list[int] = []

    def write() -> None:
        mine = Database(url, busy_timeout=30.0)
        store = RequestStore(mine)
        for _ in range(EACH):
            row, _new = store.add(RequestRow(0, "physics", user.id, "run", {}), NewRequestEvent("pending", "asked"))
            made.append(row.id)
            store.change_free(row.id, ("pending",), {"state": "booting"}, NewRequestEvent("booting", "machines"))
        mine.close()

    threads = [threading.Thread(target=write) for _ in range(WRITERS)]
    for thread in threads:
        thread.start()
    seen: list[TenantRequestEvent] = []
    deadline = time.monotonic() + 60.0
    while len(seen) < 2 * WRITERS * EACH and time.monotonic() < deadline:
        seen += watch.look()
    for thread in threads:
        thread.join()
    assert watch.look() == []
    watch.close()
    numbers = [event.id for event in seen]
    assert numbers == sorted(set(numbers))
    assert sorted(event.request_id for event in seen) == sorted(made * 2)
    assert {event.tenant for event in seen} == {"physics"}
    for request in made:
        assert [event.stage for event in seen if event.request_id == request] == ["pending", "booting"]


@pytest.mark.slow
def test_a_watch_begins_with_what_comes(database: Database) -> None:
    user = AccountStore(database).add_user(UserRow(0, "ann", "user", "physics"))
    store = RequestStore(database)
    store.add(RequestRow(0, "physics", user.id, "run", {}), NewRequestEvent("pending", "before"))
    watch = RequestEventFeed(database)
    store.add(RequestRow(0, "physics", user.id, "run", {}), NewRequestEvent("pending", "after", {"at": "once"}))
    (event,) = watch.look()
    assert (event.text, event.details, event.id) == ("after", {"at": "once"}, watch.last)
    watch.close()
