"""The table of requests and their events, in SQLite and in PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import sqlalchemy as sa

from tradewind.errors import ConflictError, NotFoundError, StoreError
from tradewind.store.service.accounts import AccountStore, UserRow
from tradewind.store.service.request_queries import last_event_number
from tradewind.store.service.requests import NewRequestEvent, RequestRow, RequestStore
from tradewind.store.sql.database import Database
from tradewind.store.sql.schema import audit, requests


@pytest.fixture(params=["sqlite_url", "postgresql_url"])
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    with closing(Database(request.getfixturevalue(request.param), busy_timeout=30.0)) as opened:
        accounts = AccountStore(opened)
        accounts.add_user(UserRow(0, "ann", "user", "physics"))
        accounts.add_user(UserRow(0, "bob", "user", "biology"))
        yield opened


@pytest.fixture
def store(database: Database) -> RequestStore:
    return RequestStore(database)


def asked(user: int = 1, tenant: str = "physics", **fields: Any) -> RequestRow:
    return RequestRow(0, tenant, user, fields.pop("kind", "run"), {"application": "hello"}, **fields)


def add(store: RequestStore, user: int = 1, tenant: str = "physics", **fields: Any) -> RequestRow:
    row, new = store.add(asked(user, tenant, **fields), NewRequestEvent("pending", "asked for"))
    assert new
    return row


@pytest.mark.slow
def test_a_request_is_kept_as_it_was_asked(store: RequestStore) -> None:
    row = add(store, name="mine\0", plan={"backend": "local"})
    assert store.get(row.id) == row
    assert (row.state, row.wanted, row.user, row.application) == ("pending", "run", "ann", "")
    assert (row.name, row.document, row.plan) == ("mine\ufffd", {"application": "hello"}, {"backend": "local"})
    assert row.created == row.updated > 0 or row.updated >= row.created
    with pytest.raises(NotFoundError, match="no such request"):
        store.get(99)


def test_a_key_stands_for_one_request_of_one_user(store: RequestStore) -> None:
    first, new = store.add(asked(key="k"), NewRequestEvent("pending", ""))
    again, newer = store.add(asked(key="k"), NewRequestEvent("pending", ""))
    other, newest = store.add(asked(2, "biology", key="k"), NewRequestEvent("pending", ""))
    assert (new, newer, newest) == (True, False, True)
    assert again == first
    assert other.id != first.id
    assert len(store.events(request_id=first.id)) == 1
    different = RequestRow(0, "physics", 1, "run", {"application": "other"}, key="k")
    with pytest.raises(ConflictError, match="'k' is that of request 1, which is another one"):
        store.add(different, NewRequestEvent("pending", ""))


@pytest.mark.slow
def test_the_same_key_at_the_same_moment_is_one_request(store: RequestStore) -> None:
    found: list[tuple[int, bool]] = []

    def ask() -> None:
        row, new = store.add(asked(key="same"), NewRequestEvent("pending", ""))
        found.append((row.id, new))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({number for number, _ in found}) == 1
    assert sum(new for _, new in found) == 1


@pytest.mark.slow
def test_lists_are_filtered_and_paged(store: RequestStore) -> None:
    rows = [add(store, 1 + n % 2, ("physics", "biology")[n % 2], name=f"Run {n}_%") for n in range(6)]
    store.change_free(rows[0].id, ["pending"], {"state": "done"}, NewRequestEvent("done", ""))
    names = [row.name for row in store.page()]
    assert names == [f"Run {n}_%" for n in (5, 4, 3, 2, 1, 0)]
    assert [row.id for row in store.page(tenant="physics")] == [rows[4].id, rows[2].id, rows[0].id]
    assert [row.id for row in store.page(states=["done"])] == [rows[0].id]
    assert [row.id for row in store.page(limit=2, before=rows[4].id)] == [rows[3].id, rows[2].id]
    assert [row.name for row in store.page(text="run 3")] == ["Run 3_%"]
    assert len(store.page(text="_%")) == 6  # they are no wildcards
    assert [row.id for row in store.page(text=str(rows[5].id))] == [rows[5].id]
    for application in ("hello", "hello@1", "hello@99999999999999999999999", "hello@\u0661"):
        assert store.page(application=application) == []


@pytest.mark.slow
def test_events_are_read_on_from_a_number(database: Database, store: RequestStore) -> None:
    mine, other = add(store), add(store, 2, "biology")
    store.want(mine.id, "cancel", NewRequestEvent("pending", "wanted", {"user": "ann"}))
    store.want(mine.id, "cancel", NewRequestEvent("pending", "wanted again"))
    events = store.events(tenant="physics")
    assert [(event.request_id, event.text) for event in events] == [(mine.id, "asked for"), (mine.id, "wanted")]
    assert events[1].details == {"user": "ann"}
    assert [event.request_id for event in store.events(since=events[0].id)] == [other.id, mine.id]
    assert store.events(since=last_event_number(database)) == []
    assert len(store.events(limit=1)) == 1
    assert [event.request_id for event in store.events(request_id=other.id)] == [other.id]


@pytest.mark.slow
def test_events_appear_in_the_order_of_their_numbers(database: Database, store: RequestStore) -> None:
    """A reader that goes on from the last number that it saw misses none, whoever writes at the same time."""
    rows = [add(store) for _ in range(4)]
    seen: list[int] = []
    stop = threading.Event()

    def read() -> None:
        since = 0
        while not stop.is_set() or last_event_number(database) > since:
            for event in store.events(since=since):
                seen.append(event.id)
                since = event.id

    def write(number: int) -> None:
        for turn in range(15):
            store.change_free(number, ["pending"], {"cost": float(turn)}, NewRequestEvent("pending", str(turn)))

    threads = [threading.Thread(target=write, args=(row.id,)) for row in rows]
    reader = threading.Thread(target=read)
    for thread in (reader, *threads):
        thread.start()
    for thread in threads:
        thread.join()
    stop.set()
    reader.join()
    assert seen == sorted(seen)
    assert len(seen) == 4 * 16


@pytest.mark.slow
def test_only_known_fields_change_and_only_in_the_right_state(store: RequestStore) -> None:
    row = add(store)
    with pytest.raises(StoreError, match="'created_by' cannot be changed"):
        store.change_free(row.id, ["pending"], {"created_by": "x"}, NewRequestEvent("pending", ""))
    with pytest.raises(ConflictError, match=f"request {row.id} is pending"):
        store.change_free(row.id, ["done"], {"cost": 1.0}, NewRequestEvent("done", ""))
    with pytest.raises(NotFoundError):
        store.change_free(99, ["pending"], {"cost": 1.0}, NewRequestEvent("done", ""))
    assert store.get(row.id) == row
    assert len(store.events()) == 1


@pytest.mark.slow
def test_what_is_removed_leaves_its_cost_and_a_line_in_the_audit_log(store: RequestStore, database: Database) -> None:
    row = add(store, name="secret", key="k", progress={"x": 1})
    store.change_free(row.id, ["pending"], {"state": "done", "cost": 1.5}, NewRequestEvent("done", "secret too"))
    store.remove(row.id, {"user": "ann", "address": "10.0.0.1"})
    with pytest.raises(NotFoundError):
        store.get(row.id)
    assert store.page() == [] == store.events()
    with database.read() as connection:
        left = connection.execute(sa.select(requests)).mappings().one()
        line = connection.execute(sa.select(audit)).mappings().one()
    assert (left["state"], left["cost"], left["name"], left["key"], left["progress"]) == (
        "deleted",
        1.5,
        "",
        None,
        "{}",
    )
    assert (line["user"], line["address"], line["action"], line["tenant"]) == (
        "ann", "10.0.0.1", "request.delete", "physics",
    )  # fmt: skip
    assert '"cost":1.5' in line["details"]
    assert "secret" not in str(dict(line)) + str(dict(left))
    with pytest.raises(NotFoundError):
        store.remove(row.id, {})
