"""Events reach all who may have them, once and in order, whoever has written them."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.service.async_thread import run_apart
from tests.service.live_server import HELLO, move, principal

from tradewind.errors import BusyError, TooManyError
from tradewind.service.accounts.identity import Principal
from tradewind.service.context import Context, open_context
from tradewind.service.http.event_hub import EventHub, EventSubscriber
from tradewind.service.settings import ServiceSettings
from tradewind.store.service.requests import RequestEventFeed


@pytest.fixture
def settings() -> ServiceSettings:
    """Looks often, so that tests need not wait."""
    return ServiceSettings(event_seconds=0.01, streams=3, streams_per_user=2)


@pytest.fixture
def people(context: Context) -> Iterator[dict[str, Principal]]:
    """Users of two tenants and an administrator, with an application."""
    for name, role in (("ann", "user"), ("bob", "user"), ("root", "admin")):
        context.accounts.add_user(name, role=role)  # type: ignore[arg-type]
    found = {name: principal(context, name) for name in ("ann", "bob", "root")}
    context.applications.register(found["root"], HELLO, shared=True)
    yield found


def submit(context: Context, who: Principal) -> int:
    """A new request."""
    return context.requests.submit(who, {"application": "hello"}).id


async def heard(listener: EventSubscriber, count: int) -> list[tuple[int, str]]:
    """So many events: number and stage."""
    found: list[tuple[int, str]] = []
    async with asyncio.timeout(10.0):
        while len(found) < count:
            await listener.ready.wait()
            listener.ready.clear()
            found += [(number, stage) for number, stage, _ in listener.waiting]
            listener.waiting.clear()
    return found


def test_the_watch_reads_each_event_once(context: Context, people: dict[str, Principal]) -> None:
    number = submit(context, people["ann"])
    watch = RequestEventFeed(context.database)
    assert watch.look() == []
    move(context.requests, number, "booting")
    (event,) = watch.look()
    assert (event.request_id, event.tenant, event.stage) == (number, "ann", "booting")
    assert watch.look() == []
    submit(context, people["bob"])
    assert [(one.tenant, one.stage) for one in watch.look()] == [("bob", "pending")]
    assert watch.last == event.id + 1
    watch.close()


def test_the_watch_asks_sqlite_only_when_something_was_written(
    context: Context, people: dict[str, Principal], monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = RequestEventFeed(context.database)
    watch.look()

    def fails() -> None:
        raise AssertionError("it was read for nothing")

    monkeypatch.setattr(context.database, "read", fails)
    for _ in range(3):
        assert watch.look() == []
    monkeypatch.undo()
    submit(context, people["ann"])
    assert len(watch.look()) == 1
    watch.close()


def test_events_of_another_process_are_seen(tmp_path: Path, context: Context, people: dict[str, Principal]) -> None:
    watch = RequestEventFeed(context.database)
    other = open_context(context.settings, context.url, tmp_path / "home")
    submit(other, people["ann"])
    other.close()
    assert len(watch.look()) == 1
    watch.close()


@pytest.mark.slow
def test_each_hears_what_it_may(context: Context, people: dict[str, Principal]) -> None:
    first = submit(context, people["ann"])

    async def scene() -> None:
        names = {"ann": None, "bob": None, "root": None, "one": first}
        listeners = {
            name: EventSubscriber(people["ann" if name == "one" else name], number) for name, number in names.items()
        }
        for listener in listeners.values():
            context.streams.listen(listener)
        second = await asyncio.to_thread(submit, context, people["bob"])
        await asyncio.to_thread(move, context.requests, first, "booting")
        await asyncio.to_thread(move, context.requests, second, "booting")
        assert [stage for _, stage in await heard(listeners["root"], 3)] == ["pending", "booting", "booting"]
        assert [stage for _, stage in await heard(listeners["ann"], 1)] == ["booting"]
        assert [stage for _, stage in await heard(listeners["one"], 1)] == ["booting"]
        assert [stage for _, stage in await heard(listeners["bob"], 2)] == ["pending", "booting"]
        for listener in listeners.values():
            context.streams.forget(listener)
            assert not listener.waiting
        move(context.requests, first, "done")
        await asyncio.sleep(0.05)
        assert not any(listener.waiting for listener in listeners.values())

    run_apart(scene())


@pytest.mark.slow
def test_many_listeners_hear_all_in_order(context: Context, people: dict[str, Principal]) -> None:
    """More listeners than are served at once, and writers that do not wait for them."""
    listeners: list[EventSubscriber] = []
    requests, threads = 6, 3

    def write() -> None:
        for _ in range(requests):
            move(context.requests, submit(context, people["ann"]), "done")

    async def scene() -> None:
        listeners.extend(EventSubscriber(people["root"], None) for _ in range(150))
        for listener in listeners:
            context.streams.listen(listener)
        writers = [threading.Thread(target=write) for _ in range(threads)]
        for writer in writers:
            writer.start()
        each = await asyncio.gather(*(heard(listener, 2 * requests * threads) for listener in listeners))
        for writer in writers:
            writer.join()
        numbers = [number for number, _ in each[0]]
        assert numbers == sorted(set(numbers))
        assert all(one == each[0] for one in each)

    run_apart(scene())


@pytest.mark.slow
def test_a_reader_that_does_not_read_is_left(context: Context, people: dict[str, Principal]) -> None:
    async def scene() -> None:
        listener = EventSubscriber(people["ann"], None)
        listener.put([(number, "booting", b"") for number in range(600)])
        listener.put([(number, "booting", b"") for number in range(600, 1001)])
        assert listener.gone
        assert len(listener.waiting) == 1000
        # It has read some when the next ones come: with one left out, no later one may seem to be the next.
        for _ in range(500):
            listener.waiting.popleft()
        listener.put([(1001, "executing", b"")])
        assert [number for number, _, _ in listener.waiting] == list(range(500, 1000))

    run_apart(scene())


def test_what_waits_is_kept_once_for_all(context: Context, people: dict[str, Principal]) -> None:
    async def scene() -> None:
        listeners = [EventSubscriber(people["ann"], None) for _ in range(3)]
        for listener in listeners:
            context.streams.listen(listener)
        listeners[2].gone = True
        await asyncio.to_thread(submit, context, people["ann"])
        async with asyncio.timeout(10.0):
            for listener in listeners[:2]:
                await listener.ready.wait()
        first, second, third = (listener.waiting for listener in listeners)
        assert first[0] is second[0]
        assert not third, "who is left hears no more"

    run_apart(scene())


def test_what_ends_a_look_does_not_end_looking(
    context: Context, people: dict[str, Principal], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As a disk that fails below SQLite's own connection of the watch."""
    failed = threading.Event()
    changed = RequestEventFeed._changed

    def fails(watch: RequestEventFeed) -> int | None:
        if not failed.is_set():
            failed.set()
            raise sqlite3.OperationalError("disk I/O error")
        return changed(watch)

    async def scene() -> None:
        listener = EventSubscriber(people["ann"], None)
        context.streams.listen(listener)
        monkeypatch.setattr(RequestEventFeed, "_changed", fails)
        assert await asyncio.to_thread(failed.wait, 10.0)
        await asyncio.to_thread(submit, context, people["ann"])
        assert [stage for _, stage in await heard(listener, 1)] == ["pending"]

    run_apart(scene())
    assert "events cannot be read: disk I/O error" in caplog.text


def test_places_are_counted(context: Context, people: dict[str, Principal]) -> None:
    hub = context.streams
    for _ in range(2):
        hub.take_place(people["ann"])
    with pytest.raises(TooManyError, match="2 open streams") as caught:
        hub.take_place(people["ann"])
    assert caught.value.wait > 0
    hub.take_place(people["bob"])
    with pytest.raises(BusyError, match="as many open streams as it may"):
        hub.take_place(people["root"])
    assert hub.streams == 3
    hub.leave_place(people["ann"])
    hub.take_place(people["root"])
    assert hub.streams == 3


def test_a_hub_without_a_thread_closes(context: Context) -> None:
    hub = EventHub(context.database, context.settings)
    hub.close()
    assert hub.streams == 0
