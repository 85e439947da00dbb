"""Notices, links and values in SQLite and in PostgreSQL: each event is looked at once, each notice taken once."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest
import sqlalchemy as sa
from tests.store.service.test_requests import add

from tradewind.errors import NotFoundError, StoreError
from tradewind.store.service.accounts import AccountStore, UserRow
from tradewind.store.service.notices import NoticeRow, NoticeStore, RequestTransition
from tradewind.store.service.operations import OperationsStore
from tradewind.store.service.request_results import LinkRow, LinkStore
from tradewind.store.service.request_values import DELETED
from tradewind.store.service.requests import NewRequestEvent, RequestStore
from tradewind.store.service.shared_values import SharedValueStore
from tradewind.store.sql import schema
from tradewind.store.sql.database import Database

pytestmark = pytest.mark.slow

AT_ONCE = 4


@pytest.fixture(params=["sqlite_url", "postgresql_url"])
def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def servers(url: str) -> Iterator[list[Database]]:
    """Several servers of one database, which has a user."""
    with ExitStack() as stack:
        opened = [stack.enter_context(closing(Database(url, busy_timeout=30.0))) for _ in range(AT_ONCE)]
        AccountStore(opened[0]).add_user(UserRow(0, "ann", "user", "physics"))
        AccountStore(opened[0]).add_user(UserRow(0, "bob", "user", "biology"))
        yield opened


def together(servers: list[Database], work: Callable[[Database], None]) -> None:
    """Let all servers do something at the same moment."""
    start = threading.Barrier(len(servers))
    failed: list[BaseException] = []

    def one(database: Database) -> None:
        start.wait(20.0)
        try:
            work(database)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=one, args=(database,)) for database in servers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    assert failed == []


def note(happening: RequestTransition) -> list[NoticeRow]:
    return [NoticeRow(0, happening.user.id, "email", "x@example.org", {"event": happening.event.id})]


def test_each_event_is_looked_at_once(servers: list[Database]) -> None:
    requests = RequestStore(servers[0])
    for _ in range(25):
        row = add(requests)
        requests.change_free(row.id, ("pending",), {"state": "failed"}, NewRequestEvent("failed", "it failed"))
    looked: list[int] = []

    def gather(database: Database) -> None:
        while count := NoticeStore(database).gather(note):
            looked.append(count)

    together(servers, gather)
    found = NoticeStore(servers[0]).of_user(1, 1000)
    events = [row.document["event"] for row in found]
    assert (sum(looked), len(events), len(set(events))) == (50, 50, 50)
    assert len({row.delivery for row in found}) == 50


def test_what_is_told_of_an_event(servers: list[Database]) -> None:
    requests, seen = RequestStore(servers[0]), list[RequestTransition]()
    row = add(requests)
    requests.change_free(row.id, ("pending",), {"state": "done"}, NewRequestEvent("done", "it is done", {"n": 1}))
    NoticeStore(servers[1]).gather(lambda happening: seen.append(happening) or [])  # type: ignore[func-returns-value]
    assert [(one.before, one.event.stage) for one in seen] == [("", "pending"), ("pending", "done")]
    assert (seen[1].event.details, seen[1].request.state, seen[1].user.name) == ({"n": 1}, "done", "ann")
    assert NoticeStore(servers[0]).gather(note) == 0


def test_a_request_that_is_gone_holds_up_no_others(servers: list[Database]) -> None:
    requests = RequestStore(servers[0])
    gone, there = add(requests), add(requests)
    with servers[0].write() as connection:  # as it is between being wished away and being removed
        connection.execute(sa.update(schema.requests).where(schema.requests.c.id == gone.id).values(state=DELETED))
    seen: list[int] = []
    assert NoticeStore(servers[1]).gather(lambda happening: seen.append(happening.request.id) or []) == 2  # type: ignore[func-returns-value]
    assert seen == [there.id]


def test_what_cannot_be_read_while_it_is_written_is_looked_at_again(servers: list[Database]) -> None:
    add(RequestStore(servers[0]))
    store = NoticeStore(servers[0])

    def away(_happening: RequestTransition) -> list[NoticeRow]:
        raise StoreError("the database is away")

    with pytest.raises(StoreError, match="away"):
        store.gather(away)
    assert store.gather(note) == 1


def test_what_one_has_set_keeps_no_other_from_being_told(servers: list[Database]) -> None:
    requests, store = RequestStore(servers[0]), NoticeStore(servers[0])
    broken, odd, well = (add(requests).id for _ in range(3))

    def write(happening: RequestTransition) -> list[NoticeRow]:
        if happening.request.id == broken:
            raise ValueError("broken")
        target = "http://\ud800/x" if happening.request.id == odd else "x@example.org"
        return [NoticeRow(0, happening.user.id, "email", target, {"event": happening.request.id})]

    assert store.gather(write) == 3
    told = {row.document["event"]: row.target for row in store.of_user(1, 10)}
    assert told == {odd: "http://?/x", well: "x@example.org"}
    assert store.gather(write) == 0


def test_each_notice_is_taken_once(servers: list[Database]) -> None:
    store = NoticeStore(servers[0])
    for number in range(40):
        store.add(NoticeRow(0, 1, "email" if number % 2 else "webhook", "x", {"number": number}))
    taken: list[int] = []

    def work(database: Database) -> None:
        mine = NoticeStore(database)
        while found := mine.claim("email", 3, 60.0):
            for row in found:
                taken.append(row.id)
                mine.finish(row)

    together(servers, work)
    assert Counter(taken) == dict.fromkeys(range(2, 41, 2), 1)
    assert {row.state for row in store.of_user(1, 100) if row.kind == "email"} == {"sent"}
    assert {row.state for row in store.of_user(1, 100) if row.kind == "webhook"} == {"waiting"}
    assert len(store.claim("webhook", 100, 60.0)) == 20
    assert store.claim("webhook", 100, 60.0) == []
    assert store.claim("webhook", 0, 60.0) == []


def test_what_waits_is_taken_when_it_is_due(servers: list[Database]) -> None:
    store = NoticeStore(servers[0])
    store.add(NoticeRow(0, 1, "email", "x", due=time.time() + 3600))
    assert store.claim("email", 10, 60.0) == []
    store.add(NoticeRow(0, 1, "email", "y"))
    (row,) = store.claim("email", 10, 60.0)
    store.finish(row, problem="busy", again=time.time() - 1)
    (again,) = store.claim("email", 10, 0.0)
    assert (again.id, again.attempts, again.problem) == (row.id, 2, "busy")
    (taken_over,) = store.claim("email", 10, 60.0)  # its lease was none
    store.finish(again)
    assert store.of_user(1, 10)[0].state == "sending"
    store.finish(taken_over, problem="never")
    assert (store.of_user(1, 10)[0].state, store.of_user(1, 10)[0].problem) == ("failed", "never")


def test_links(servers: list[Database]) -> None:
    number = add(RequestStore(servers[0])).id
    store = LinkStore(servers[0])
    store.add(LinkRow("a" * 64, number))
    store.add(LinkRow("b" * 64, number, "outputs", expires=time.time() + 60))
    store.add(LinkRow("c" * 64, number, expires=time.time() - 60))
    assert {row.path for row in store.of_request(number)} == {"", "outputs"}
    assert store.find("c" * 64) is None and store.find("d" * 64) is None
    found = store.find("b" * 64)
    assert found is not None and found.id == "b" * 16
    assert not store.delete(number + 1, "a" * 16)
    assert store.delete(number, "a" * 16)
    assert [row.digest[0] for row in store.of_request(number)] == ["b"]


def test_of_several_values_one_is_the_first(servers: list[Database]) -> None:
    found: list[str] = []
    together(servers, lambda database: found.append(SharedValueStore(database).first("key", str(id(database)))))
    assert len(set(found)) == 1
    assert SharedValueStore(servers[0]).get("key") == found[0]


def test_what_users_set_is_merged(servers: list[Database]) -> None:
    names = iter("abcd")
    lock = threading.Lock()

    def work(database: Database) -> None:
        with lock:
            name = next(names)
        for number in range(10):
            SharedValueStore(database).change_user(1, name, {"number": number})

    together(servers, work)
    kept = AccountStore(servers[0]).user(1).settings
    assert kept == {name: {"number": 9} for name in "abcd"}
    assert "a" not in SharedValueStore(servers[0]).change_user(1, "a", None)
    with pytest.raises(NotFoundError):
        SharedValueStore(servers[0]).change_user(99, "a", {})


def test_figures(servers: list[Database]) -> None:
    requests, store = RequestStore(servers[0]), OperationsStore(servers[0])
    assert store.figures().requests == {}
    first, second = add(requests), add(requests)
    fields = {"state": "done", "cost": 1.5, "started": 10.0, "ended": 40.0}
    requests.change_free(first.id, ("pending",), fields, NewRequestEvent("done", "done"))
    NoticeStore(servers[0]).add(NoticeRow(0, 1, "email", "x"))
    found = store.figures()
    assert found.requests == {"done": 1, "pending": 1}
    assert (found.spent, found.durations, found.held, found.lost) == (1.5, {"done": (1, 30.0)}, 0, 0)
    assert 0 <= found.oldest < 600
    assert found.notices == {("email", "waiting"): 1}
    together(servers, lambda database: OperationsStore(database).probe())
    assert store.version() == store.newest
    assert second.id
