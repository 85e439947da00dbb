"""Streams over a real connection."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.service.live_server import move, served
from tests.service.module_server import House, house
from tests.waiting import eventually

from tradewind.service.requests.run_files import RunLogPart
from tradewind.service.settings import ServiceSettings

pytestmark = pytest.mark.slow

QUICK = ServiceSettings(event_seconds=0.01, beat_seconds=0.15, streams=6, streams_per_user=4)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A server for all tests of this module."""
    with house(tmp_path_factory.mktemp("streams"), QUICK) as opened:
        yield opened


@pytest.fixture(scope="module")
def address(here: House) -> Iterator[str]:
    """Where it listens."""
    with served(here.context) as url:
        yield url + "/api/v1"


def submit(here: House) -> int:
    """A new request of ann's."""
    answer = here.client.post("/api/v1/requests", json={"application": here.hello}, headers=here.ann)
    return int(answer.json()["id"])


class Reader:
    """Reads messages of a stream, each as its kind, id and document."""

    def __init__(self, response: httpx2.Response) -> None:
        self.response = response
        self.comments = 0
        self.lines = response.iter_lines()

    def next(self) -> tuple[str, str, Any]:
        kind, number, data = "message", "", ""
        for line in self.lines:
            name, _, value = line.partition(": ")
            if line.startswith(":"):
                self.comments += 1
            elif name == "event":
                kind = value
            elif name == "id":
                number = value
            elif name == "data":
                data = value
            elif not line and data:
                return kind, number, json.loads(data)
        return "closed", "", None

    def stages(self, count: int) -> list[str]:
        """The stages of the next events."""
        return [self.next()[2]["stage"] for _ in range(count)]


@contextmanager
def listening(url: str, headers: dict[str, str], **options: Any) -> Iterator[Reader]:
    """An open stream."""
    accept = {"Accept": "text/event-stream", **headers}
    with httpx2.Client(timeout=10.0) as client, client.stream("GET", url, headers=accept, **options) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        yield Reader(response)


def test_a_request_is_followed_to_its_end(here: House, address: str) -> None:
    number = submit(here)
    with listening(f"{address}/requests/{number}/events", here.ann) as reader:
        assert reader.next() == ("open", "0", {"since": 0})
        kind, first, event = reader.next()
        assert (kind, event["stage"], event["request"], str(event["id"])) == ("message", "pending", number, first)
        for state in ("booting", "executing", "done"):
            move(here.context.requests, number, state)
        assert reader.stages(3) == ["booting", "executing", "done"]
        kind, last, end = reader.next()
        assert (kind, end) == ("end", {"state": "done"})
        assert reader.next()[0] == "closed"
    known = {**here.ann, "Accept": "text/event-stream", "Last-Event-ID": last}
    assert httpx2.get(f"{address}/requests/{number}/events", headers=known).status_code == 204
    with listening(f"{address}/requests/{number}/events", {**here.ann, "Last-Event-ID": first}) as reader:
        reader.next()
        assert reader.stages(3) == ["booting", "executing", "done"]


def test_who_comes_back_has_missed_nothing(here: House, address: str) -> None:
    number = submit(here)
    with listening(f"{address}/events", here.ann) as reader:
        _, last, _ = reader.next()
        assert int(last) >= 1
    for state in ("booting", "bootstrapping"):
        move(here.context.requests, number, state)
    with listening(f"{address}/events", {**here.ann, "Last-Event-ID": last}) as reader:
        reader.next()
        assert reader.stages(2) == ["booting", "bootstrapping"]
        move(here.context.requests, number, "executing")
        assert reader.stages(1) == ["executing"]
    with listening(f"{address}/events?since={last}", here.ann) as reader:
        reader.next()
        assert reader.stages(3) == ["booting", "bootstrapping", "executing"]


@pytest.mark.parametrize("since", ["900000000", str(2**53)])
def test_who_knows_more_than_the_store_hears_what_happens_now(here: House, address: str, since: str) -> None:
    """As after a store was restored from an older copy: its numbers begin again below the last one that was heard."""
    number = submit(here)
    with listening(f"{address}/events", {**here.ann, "Last-Event-ID": since}) as reader:
        _, begin, _ = reader.next()
        assert int(begin) < 900_000_000
        move(here.context.requests, number, "booting")
        assert reader.stages(1) == ["booting"]
    with listening(f"{address}/requests/{number}/events?since={since}", here.ann) as reader:
        reader.next()
        move(here.context.requests, number, "done")
        assert reader.stages(1) == ["done"]
        assert reader.next()[0] == "end"


def test_other_tenants_hear_nothing(here: House, address: str) -> None:
    number = submit(here)
    strangers = {**here.bob, "Accept": "text/event-stream"}
    assert httpx2.get(f"{address}/requests/{number}/events", headers=strangers).status_code == 404
    assert httpx2.get(f"{address}/events", headers={"Accept": "text/event-stream"}).status_code == 401
    with listening(f"{address}/events", here.bob) as stranger, listening(f"{address}/events", here.root) as admin:
        stranger.next(), admin.next()
        move(here.context.requests, number, "cancelled")
        assert admin.stages(1) == ["cancelled"]
        answer = here.client.post("/api/v1/requests", json={"application": here.hello}, headers=here.bob)
        assert stranger.next()[2]["request"] == answer.json()["id"]


def test_a_silent_stream_says_that_it_is_there(here: House, address: str) -> None:
    with listening(f"{address}/events", here.ann) as reader:
        reader.next()
        for line in reader.lines:
            if line.startswith(":"):
                break
        assert line == ": still here"


def test_streams_have_a_limit_and_places_come_back(here: House, address: str) -> None:
    opened = [listening(f"{address}/events", here.ann) for _ in range(4)]
    readers = [one.__enter__() for one in opened]
    for reader in readers:
        reader.next()
    headers = {"Accept": "text/event-stream"}
    mine = httpx2.get(f"{address}/events", headers={**here.ann, **headers}, timeout=10.0)
    assert (mine.status_code, mine.json()["code"]) == (429, "service.too-many")
    assert int(mine.headers["retry-after"]) > 0
    others = [listening(f"{address}/events", here.root) for _ in range(2)]
    readers += [one.__enter__() for one in others]
    for reader in readers[4:]:
        reader.next()
    full = httpx2.get(f"{address}/events", headers={**here.bob, **headers})
    assert (full.status_code, full.json()["code"]) == (503, "service.busy")
    assert int(full.headers["retry-after"]) > 0
    for one in (*opened, *others):
        one.__exit__(None, None, None)
    eventually(lambda: not here.context.streams.streams, what="the places of those who have gone to be given back")


def test_a_stream_ends_after_its_time(tmp_path: Path) -> None:
    with house(tmp_path, QUICK.model_copy(update={"stream_minutes": 0.005})) as own, served(own.context) as url:
        began = time.monotonic()
        with listening(f"{url}/api/v1/events", own.ann) as reader:
            assert reader.next()[0] == "open"
            assert reader.next()[0] == "closed"
        assert 0.2 < time.monotonic() - began < 5.0
        eventually(lambda: own.context.streams.streams == 0)  # the server hears of it a moment after us


def test_a_log_is_followed_while_it_grows(here: House, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    number = submit(here)
    written = ["one\n", "two\r\nthree", "\x1b[1m\u00e9"]
    begun = threading.Event()

    def log(
        who: object, request: int, stream: str, offset: int, limit: int, *, trial: int | None, run: str
    ) -> RunLogPart:
        assert (request, stream, trial) == (number, "stderr", 7)
        whole = "".join(written if begun.is_set() else written[:1]).encode()
        return RunLogPart(
            whole[offset : offset + 8].decode(), min(len(whole), offset + 8), begun.is_set() and offset >= 16
        )

    monkeypatch.setattr(here.context.requests, "log", log)
    with listening(f"{address}/requests/{number}/logs/stderr?trial=7", here.ann) as reader:
        kind, next_, part = reader.next()
        assert (kind, next_, part) == ("log", "4", {"text": "one\n", "offset": 0, "next": 4})
        begun.set()
        texts = ["one\n"]
        while (found := reader.next())[0] == "log":
            texts.append(found[2]["text"])
        assert "".join(texts) == "".join(written)
        assert found[0] == "end"
    with listening(f"{address}/requests/{number}/logs/stderr?trial=7", {**here.ann, "Last-Event-ID": "4"}) as reader:
        assert reader.next()[2]["text"] == "two\r\nthr"


def test_a_stream_of_a_log_says_where_another_trial_begins(
    here: House, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = submit(here)

    def log(
        who: object, request: int, stream: str, offset: int, limit: int, *, trial: int | None, run: str
    ) -> RunLogPart:
        if run == "a":
            return RunLogPart("b begins\n", 9, True, "b", 1)
        return RunLogPart("a\n", 2, False, "a", 0)

    monkeypatch.setattr(here.context.requests, "log", log)
    with listening(f"{address}/requests/{number}/logs/stdout", here.ann) as reader:
        assert reader.next()[1:] == ("a:2", {"text": "a\n", "offset": 0, "next": 2, "run": "a", "trial": 0})
        assert reader.next()[1:] == ("b:9", {"text": "b begins\n", "offset": 0, "next": 9, "run": "b", "trial": 1})
        assert reader.next()[0] == "end"
    with here.client.stream("GET", f"/api/v1/requests/{number}/logs/stdout?run=a", headers=here.ann) as answer:
        assert (answer.headers["X-Log-Run"], answer.headers["X-Log-Trial"]) == ("b", "1")


def test_a_log_of_what_is_deleted_ends(here: House, address: str) -> None:
    number = submit(here)
    with listening(f"{address}/requests/{number}/logs/stdout", here.ann) as reader:
        here.client.delete(f"/api/v1/requests/{number}", headers=here.ann)
        kind, _, problem = reader.next()
        assert (kind, problem["status"]) == ("problem", 404)
        assert reader.next()[0] == "closed"
