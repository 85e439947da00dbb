"""Users, tokens, sessions and the audit log, with several servers at one database."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tradewind.errors import ConflictError, NotFoundError, StoreError
from tradewind.store.service.accounts import AccountStore, SessionRow, SessionStore, UserRow
from tradewind.store.service.audit import AuditRow, AuditStore
from tradewind.store.sql.database import Database

pytestmark = pytest.mark.slow

Servers = tuple[Database, Database]


@pytest.fixture(params=["sqlite", "postgresql"])
def servers(request: pytest.FixtureRequest) -> Iterator[Servers]:
    """Two servers' connections to one database."""
    url = request.getfixturevalue(f"{request.param}_url")
    with ExitStack() as stack:
        opened = [Database(url, busy_timeout=30.0) for _ in range(2)]
        for database in opened:
            stack.callback(database.close)
        yield opened[0], opened[1]


def at_once(work: Callable[[int], object], threads: int) -> list[object]:
    """What each of some threads returned or raised, all begun at one moment."""
    gate, results = threading.Barrier(threads), list[object]([None] * threads)

    def run(number: int) -> None:
        gate.wait(10)
        try:
            results[number] = work(number)
        except ConflictError as error:
            results[number] = error

    running = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(60)
    return results


def test_attempts_of_several_servers_are_counted_together(servers: Servers) -> None:
    stores = [SessionStore(database) for database in servers]

    def attempt(number: int) -> float:
        return stores[number % 2].attempt({"name@place": 5, "place": 100}, 60.0)

    waits = at_once(attempt, 12)
    assert waits.count(0.0) == 5
    assert all(30 < wait <= 60 for wait in waits if wait)  # type: ignore[operator]
    assert stores[0].attempt({"other@place": 5, "place": 6}, 60.0) == 0  # what was refused was not counted
    assert stores[1].attempt({"third@place": 5, "place": 6}, 60.0) > 0
    stores[0].forgive(["name@place"])
    assert stores[1].attempt({"name@place": 5}, 60.0) == 0


def test_a_clock_that_was_ahead_keeps_nobody_out(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    store, real = SessionStore(servers[0]), time.time
    monkeypatch.setattr("time.time", lambda: real() + 86400.0)
    assert [store.attempt({"key": 1}, 60.0) > 0 for _ in range(2)] == [False, True]
    monkeypatch.setattr("time.time", real)
    assert store.attempt({"key": 1}, 60.0) == 0
    assert store.attempt({"key": 1}, 60.0) > 0


def test_attempts_are_forgotten_one_by_one(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    store, real, gone = SessionStore(servers[0]), time.time, 0.0
    monkeypatch.setattr(time, "time", lambda: real() + gone)
    for _ in range(3):
        assert store.attempt({"key": 3}, 60.0) == 0
        gone += 10
    assert store.attempt({"key": 3}, 60.0) == pytest.approx(30, abs=5)
    gone += 31
    assert store.attempt({"key": 3}, 60.0) == 0
    assert store.attempt({"key": 3}, 60.0) == pytest.approx(9, abs=5)


def test_two_servers_cannot_take_both_last_administrators_away(servers: Servers) -> None:
    stores = [AccountStore(database) for database in servers]
    for _ in range(5):
        admins = [stores[0].add_user(UserRow(0, f"admin{_}{n}", "admin", "lab")) for n in range(2)]
        for user in stores[0].users():
            if user.name not in {admin.name for admin in admins}:
                stores[0].remove(user.id)

        def demote(number: int, admins: list[UserRow] = admins) -> object:
            return stores[number].change(admins[number].id, role="user")

        results = at_once(demote, 2)
        assert sum(isinstance(result, ConflictError) for result in results) == 1
        assert [user.role for user in stores[1].users()].count("admin") == 1


def test_a_name_is_one_users(servers: Servers) -> None:
    stores = [AccountStore(database) for database in servers]
    results = at_once(lambda number: stores[number].add_user(UserRow(0, "ann", "user", "lab")), 2)
    assert sum(isinstance(result, ConflictError) for result in results) == 1
    assert [user.name for user in stores[0].users()] == ["ann"]


def test_unknown_users_and_fields(servers: Servers) -> None:
    store = AccountStore(servers[0])
    ann = store.add_user(UserRow(0, "ann", "user", "lab", settings={"theme": "dark"}))
    assert store.find("' OR 1=1 --") is None
    for wrong in (0, ann.id + 1, 2**31 - 1):
        with pytest.raises(NotFoundError):
            store.user(wrong)
        with pytest.raises(NotFoundError):
            store.delete_token(ann.id, wrong)
    with pytest.raises(StoreError, match="cannot be changed"):
        store.change(ann.id, name="eve")
    assert store.user_named("ann") == ann


def test_sessions_go_with_their_user_and_their_time(servers: Servers) -> None:
    users, store = AccountStore(servers[0]), SessionStore(servers[1])
    ann = users.add_user(UserRow(0, "ann", "user", "lab"))
    now = time.time()
    store.add(SessionRow("over", ann.id, now - 20, now - 20, now - 10))
    store.add(SessionRow("lasting", ann.id, now, now, now + 100))
    assert store.find("over") is None
    found = store.find("lasting")
    assert found is not None
    assert found == (SessionRow("lasting", ann.id, now, now, now + 100), ann)
    store.touch("lasting", now + 5, now + 105)
    assert [row.expires for row in store.of_user(ann.id)] == [now + 105]
    assert users.remove(ann.id)
    assert store.find("lasting") is None


def test_the_audit_log_is_read_backwards_and_forgets(servers: Servers) -> None:
    store, now = AuditStore(servers[0]), time.time()
    for number in range(6):
        age = 10 * 86400 if number < 3 else 0
        action = "user.add" if number % 2 else "users.list"
        store.add(AuditRow(0, now - age, "ann", "lab", "::1", action, f"user {number}", "done", {"n": number}))
    assert [row.details["n"] for row in store.page(limit=3)] == [5, 4, 3]
    assert [row.details["n"] for row in store.page(before=store.page(limit=3)[-1].id)] == [2, 1, 0]
    assert [row.details["n"] for row in store.page(action="user")] == [5, 3, 1]
    assert store.page(action="user%") == store.page(user="a_n") == []
    assert (store.forget(11), store.forget(5), store.forget(5)) == (0, 3, 0)
    assert len(store.page()) == 3
    assert (store.forget(-1), store.page()) == (3, [])
