"""Slow connections, on a real server."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn
from tests.waiting import eventually

from tradewind.service.http.call_metrics import CallMetrics
from tradewind.service.operations.http_server import HttpServer, SlowClientProtocol

pytestmark = pytest.mark.slow


class Hasty(SlowClientProtocol):
    """It waits for less than a second."""

    ASK_SECONDS = 0.3
    READ_SECONDS = 0.3


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answers with a lot where that is asked for, and reads no bodies."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    if scope["path"] == "/slow":
        await asyncio.sleep(0.5)
    for _ in range({"/much": 500, "/some": 13}.get(scope["path"], 1)):
        await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
    await send({"type": "http.response.body", "body": b"end"})


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, int]]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(app, http=Hasty, ws="none", lifespan="off", log_config=None, timeout_keep_alive=3)
        running = uvicorn.Server(config)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
        thread.start()
        eventually(lambda: running.started, what="the server to start")
        yield listening.getsockname()
        running.should_exit = True
        thread.join(10)


@pytest.fixture
def connection(server: tuple[str, int]) -> Iterator[socket.socket]:
    with socket.create_connection(server, timeout=10) as opened:
        yield opened


def closed_after(connection: socket.socket, most: float) -> float:
    """Seconds until the server closes the connection; what it says until then is left out."""
    started = time.monotonic()
    connection.settimeout(most)
    try:
        while connection.recv(65536):
            pass
    except ConnectionError:
        pass
    return time.monotonic() - started


def read_answer(connection: socket.socket) -> bytes:
    received = bytearray()
    while received[-10:] != b"end\r\n0\r\n\r\n":
        part = connection.recv(1 << 20)
        if not part:
            raise ConnectionError("the server closed it")
        received += part
    return bytes(received)


def test_who_says_nothing_is_not_waited_for(connection: socket.socket) -> None:
    assert 0.2 < closed_after(connection, 5) < 4


def test_who_drips_headers_is_not_waited_for(connection: socket.socket) -> None:
    started = time.monotonic()
    connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n")
    with pytest.raises(OSError):  # reset, or a broken pipe
        for number in range(100):
            time.sleep(0.05)
            connection.sendall(b"X-%d: y\r\n" % number)
    assert time.monotonic() - started < 4


def test_a_second_call_that_drips_is_not_waited_for(connection: socket.socket) -> None:
    connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert read_answer(connection).startswith(b"HTTP/1.1 200")
    connection.sendall(b"GET / HT")
    assert 0.2 < closed_after(connection, 5) < 4


def test_a_body_that_nobody_wants_is_not_waited_for(connection: socket.socket) -> None:
    connection.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nx")
    assert closed_after(connection, 5) < 4


def test_who_does_not_read_is_not_waited_for(connection: socket.socket) -> None:
    connection.sendall(b"GET /much HTTP/1.1\r\nHost: x\r\n\r\n")
    time.sleep(1.2)
    with pytest.raises(ConnectionError):  # what the system still has is dropped with the connection
        read_answer(connection)


def test_others_are_served_as_ever(connection: socket.socket) -> None:
    for path in (b"/", b"/slow", b"/much", b"/"):  # one connection; an answer may take longer than a question
        connection.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n\r\n")
        assert read_answer(connection).startswith(b"HTTP/1.1 200")
        time.sleep(0.4)  # keep-alive has its own time


@pytest.fixture
def ending() -> Iterator[tuple[HttpServer, threading.Thread, socket.socket]]:
    """A server that ends as ours does, its thread, and a client over what is, with small buffers, a slow line."""
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as client:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 200_000)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 30_000)
        config = uvicorn.Config(
            app, http=SlowClientProtocol, ws="none", lifespan="off", log_config=None, timeout_graceful_shutdown=20
        )
        unused: Any = None
        running = HttpServer(config, CallMetrics(), unused, unused)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
        thread.start()
        eventually(lambda: running.started, what="the server to start")
        client.settimeout(10)
        client.connect(listening.getsockname())
        client.sendall(b"GET /some HTTP/1.1\r\nHost: x\r\n\r\n")
        yield running, thread, client
        running.should_exit = running.force_exit = True
        thread.join(10)


def read_slowly(connection: socket.socket, rounds: int) -> bytes:
    """The end of what came in so many rounds of 40 kB each 0.3 s, or until the end of the answer."""
    received = b""
    for _ in range(rounds):
        for _ in range(4):
            received = (received + connection.recv(10_000))[-20:]
            if received.endswith(b"end\r\n0\r\n\r\n"):
                return received
        time.sleep(0.3)
    return received


@pytest.mark.thorough
def test_a_slow_download_comes_to_its_end_though_the_server_ends(
    ending: tuple[HttpServer, threading.Thread, socket.socket],
) -> None:
    running, thread, client = ending
    read_slowly(client, 1)
    running.should_exit = True
    assert read_slowly(client, 200).endswith(b"end\r\n0\r\n\r\n")
    thread.join(10)
    assert not thread.is_alive()


def test_who_stops_reading_while_the_server_ends_is_left(
    ending: tuple[HttpServer, threading.Thread, socket.socket],
) -> None:
    running, thread, client = ending
    read_slowly(client, 1)
    running.should_exit = True
    read_slowly(client, 5)
    started = time.monotonic()
    thread.join(15)
    assert time.monotonic() - started < 8
    with pytest.raises(ConnectionError):
        read_slowly(client, 200)
