"""Connections that go to the address that was judged, whatever the name points at by then."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tradewind.utils.ssrf_guard import PinnedHttpConnection, PinnedHttpsConnection, is_public

NAME = "no-such-host.invalid"
"""A name that nobody can look up: who connects by it fails."""


class Listener:
    """Takes connections on 127.0.0.1, answers each as an HTTP server would, and counts them."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.socket.getsockname()[1])
        self.first: list[bytes] = []
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self.socket.accept()
                with connection:
                    self.first.append(connection.recv(4096))
                    connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")

    def close(self) -> None:
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self.thread.join(10)


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener()
    yield made
    made.close()


def test_a_connection_goes_to_the_judged_address_and_names_the_host(listener: Listener) -> None:
    connection = PinnedHttpConnection(NAME, listener.port, ["127.0.0.1"], 10.0)
    connection.request("GET", "/")
    assert connection.getresponse().status == 204
    connection.close()
    assert f"Host: {NAME}:{listener.port}".encode() in listener.first[0]


def test_so_does_one_with_tls(listener: Listener) -> None:
    connection = PinnedHttpsConnection(NAME, listener.port, ["127.0.0.1"], 10.0, ssl.create_default_context())
    with pytest.raises(ssl.SSLError):  # the listener does not speak TLS
        connection.request("GET", "/")
    assert NAME.encode() in listener.first[0], "the greeting of TLS names the host, whose certificate is wanted"


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("192.0.2.1", False),
        ("127.0.0.1", False),
        ("169.254.169.254", False),
        ("::1", False),
        ("::ffff:10.0.0.1", False),
        ("64:ff9b::a00:1", False),
        ("8.8.8.8", True),
        ("2001:4860:4860::8888", True),
        ("no address", False),
    ],
)
def test_addresses_inside_are_not_public(address: str, public: bool) -> None:
    assert is_public(address) is public
