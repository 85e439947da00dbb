"""``tradewind serve --processes``: several processes answer at one port, and none of them is missed when it dies."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import httpx2
import psutil
import pytest
from tests.service.live_server import HELLO
from tests.service.notification_receivers import certificate
from tests.service.operations.test_serve import PATIENCE, Served, seed, serving
from tests.waiting import eventually

from tradewind.service.http.call_metrics import CallMetrics
from tradewind.service.operations.supervision.process_metrics import ProcessMetrics, ProcessMetricsFolder


def answering(served: Served) -> dict[str, psutil.Process]:
    """The further processes, by what the log calls them; none while one of them is not there."""
    found = re.findall(r"answering process (\d+) is process (\d+)", served.log.read_text())
    return {name: psutil.Process(int(pid)) for name, pid in found if psutil.pid_exists(int(pid))}


def all_there(served: Served, count: int) -> None:
    """Wait until so many processes say something of themselves."""
    eventually(lambda: served.get("/metrics").text.count("tradewind_event_streams{") == count, seconds=PATIENCE)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path, "--processes", "3", "--runs", "0") as made:
        all_there(made, 3)
        yield made


def spread(served: Served, calls: int) -> dict[str, int]:
    """How many of so many calls each process has answered, as the figures have it."""
    for _ in range(calls):
        assert served.get("/healthz").status_code == 200
    pattern = r'tradewind_http_responses_total\{process="(\d)",method="GET",route="/healthz",status="200"\} (\d+)'

    def counted() -> dict[str, int]:
        return {name: int(count) for name, count in re.findall(pattern, served.get("/metrics").text)}

    found: dict[str, int] = {}

    def all_counted() -> bool:
        found.update(counted())  # whichever answers knows of the others what they told a moment ago
        return sum(found.values()) >= calls

    eventually(all_counted, seconds=PATIENCE)
    return found


@pytest.mark.slow
def test_all_answer_one_that_is_killed_is_started_again_and_all_end(served: Served) -> None:
    """One server for all of it: to start three processes takes half a minute of a busy machine."""
    assert sum(spread(served, 40).values()) == 40

    def complete() -> bool:
        text = served.get("/metrics").text
        figures = [f'process_open_fds{{process="{name}"}}' for name in "123"]
        return all(each in text for each in [*figures, 'tradewind_process_up{process="3"} 1'])

    for _ in range(10):  # whichever takes the call; on a busy machine another one may answer it too late
        eventually(complete, seconds=PATIENCE)
        assert served.get("/readyz").status_code == 200

    victim = answering(served)["2"]
    victim.kill()
    for _ in range(40):
        assert served.get("/healthz").status_code == 200
    eventually(lambda: 'tradewind_process_restarts_total{process="2"} 1' in served.get("/metrics").text)
    eventually(lambda: served.log.read_text().count("process 2 of the server answers, too") == 2, seconds=PATIENCE)
    assert answering(served)["2"].pid != victim.pid
    all_there(served, 3)

    others = list(answering(served).values())
    assert len(others) == 2
    code, seconds = served.end()
    assert (code, seconds < 12.0) == (0, True)
    assert [other.is_running() for other in others] == [False, False]
    assert "Traceback" not in served.log.read_text()


def begun_upload(served: Served, secret: str) -> socket.socket:
    """A connection with the first part of an upload."""
    opened = socket.create_connection(("127.0.0.1", httpx2.URL(served.url).port or 0), 10.0)
    head = f"POST /api/v1/uploads?name=x HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {secret}\r\n"
    opened.sendall(f"{head}Content-Type: application/octet-stream\r\nContent-Length: 1000\r\n\r\nabc".encode())
    return opened


@pytest.mark.thorough
@pytest.mark.slow
def test_uploads_that_do_not_end_are_broken_off(tmp_path: Path) -> None:
    context, root = seed(tmp_path)
    secret = context.accounts.make_token(root.user_id, "test")
    words = ("--processes", "2", "--runs", "0", "--set", "stop_seconds=4")
    with contextlib.ExitStack() as stack, serving(tmp_path, *words) as served:
        eventually(lambda: "process 2 of the server answers, too" in served.log.read_text(), seconds=PATIENCE)
        for _ in range(12):  # each of the two gets some
            stack.enter_context(begun_upload(served, secret))
        time.sleep(1.0)
        assert served.end()[0] == 0
    log = served.log.read_text()
    assert log.count("POST /api/v1/uploads was broken off: the server ends") == 12
    assert "Traceback" not in log
    assert "did not end within" not in log
    context.close()


@pytest.mark.thorough
@pytest.mark.slow
def test_all_end_when_the_first_is_killed(served: Served) -> None:
    others = list(answering(served).values())
    served.process.kill()
    served.process.wait(10.0)
    gone: Callable[[psutil.Process], bool] = lambda one: not one.is_running() or one.status() == psutil.STATUS_ZOMBIE  # noqa: E731
    eventually(lambda: all(gone(other) for other in others), seconds=PATIENCE)
    with pytest.raises(httpx2.ConnectError):
        served.get("/healthz")


@pytest.mark.thorough
@pytest.mark.slow
def test_no_request_is_lost_or_made_twice_when_processes_are_killed(tmp_path: Path) -> None:
    """Clients that ask again with the same key get one request each, and each of those is carried out once."""
    context, root = seed(tmp_path)
    context.applications.register(root, HELLO, shared=True)
    secret = context.accounts.make_token(root.user_id, "test")
    headers = {"Authorization": f"Bearer {secret}"}
    numbers: list[int] = []
    troubles: list[str] = []

    def submit(first: int) -> None:
        for key in range(first, 60, 6):
            body = {"application": "hello", "parameters": {"times": 1}}
            mine = {**headers, "Idempotency-Key": f"key-{key}"}
            for _ in range(20):
                try:
                    answer = httpx2.post(f"{url}/api/v1/requests", json=body, headers=mine, timeout=PATIENCE)
                except httpx2.TransportError as error:  # its process was killed in the midst of it
                    troubles.append(type(error).__name__)
                    continue
                assert answer.status_code in (200, 201), answer.text
                numbers.append(answer.json()["id"])
                break

    with serving(tmp_path, "--processes", "3", "--runs", "4") as served:
        url = served.url
        all_there(served, 3)
        threads = [threading.Thread(target=submit, args=(first,)) for first in range(6)]
        for thread in threads:
            thread.start()
        killed = 0
        while any(thread.is_alive() for thread in threads):
            if killed < 3 and len(numbers) >= 10 * (killed + 1) and (others := answering(served)):
                max(others.values(), key=lambda one: one.pid).kill()
                killed += 1
            time.sleep(0.01)
        assert killed >= 2, troubles
        assert len(numbers) == len(set(numbers)) == 60, troubles
        eventually(lambda: all(context.requests.get(root, one).over for one in numbers), seconds=120.0)
        assert {context.requests.get(root, one).state for one in numbers} == {"done"}
        for one in numbers:
            ended = [event for event in context.requests.events(root, one) if event.stage == "done"]
            assert len(ended) == 1
        assert served.end()[0] == 0
    context.close()


@pytest.mark.thorough
@pytest.mark.slow
def test_a_renewed_certificate_reaches_all(tmp_path: Path) -> None:
    chain, key = certificate(tmp_path / "tls")
    words = ("--tls-certificate", str(chain), "--tls-key", str(key), "--runs", "0", "--processes", "2")
    with serving(tmp_path, *words) as served:
        eventually(lambda: "process 2 of the server answers, too" in served.log.read_text(), seconds=PATIENCE)
        time.sleep(0.5)
        certificate(tmp_path / "tls")
        served.process.send_signal(1)
        eventually(lambda: served.log.read_text().count("the certificate was read again") == 2)
        trusted = ssl.create_default_context(cafile=chain)
        assert {httpx2.get(f"{served.url}/healthz", verify=trusted).status_code for _ in range(20)} == {200}
        assert served.end()[0] == 0


def test_process_metrics_forget_who_says_nothing_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [
        ProcessMetricsFolder(tmp_path, name, partial(ProcessMetrics.of, name, CallMetrics(), (), ())) for name in "12"
    ]
    folders[0].start()
    eventually(lambda: [one.name for one in folders[1].all()] == ["1", "2"])
    folders[0].close()
    monkeypatch.setattr("tradewind.service.operations.supervision.process_metrics._SILENT", -1.0)
    assert [one.name for one in folders[1].all()] == ["2"]
