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

from tradewind.service.patience import PatientProtocol


class Hasty(PatientProtocol):
    """It waits for less than a second."""

    ASK_SECONDS = 0.3
    READ_SECONDS = 0.3


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answers with a lot where that is asked for, and reads no bodies."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    if scope["path"] == "/slow":
        await asyncio.sleep(0.5)
    for _ in range(500 if scope["path"] == "/much" else 1):
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
