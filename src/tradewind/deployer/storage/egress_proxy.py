"""A way out of this machine for a package that connects by itself: to addresses that everybody can reach only.

It is an HTTP proxy for one client on this machine. It looks the name up, judges all its addresses, and connects to one
that was judged, also where the server redirects to another one. What goes through it is TLS between the client and the
server: the certificate is judged by the client, by the name.
"""

from __future__ import annotations

import base64
import contextlib
import hmac
import secrets
import socket
import threading
from collections.abc import Iterator

from tradewind.errors import DeployError, InputError, UnreachableError
from tradewind.utils.ssrf_guard import connect_pinned, resolve_addresses

_CONNECT_SECONDS = 10.0
_LONGEST_HEAD = 16_384
_PIECE = 1 << 16
_LOW_PORTS = (80, 443)


class EgressProxy:
    """An HTTP proxy on this machine for the client of one storage address, until it is closed.

    Args:
        shown: The storage address, for messages.

    Attributes:
        refusal: Why the last connection was refused; None where it was not.
    """

    def __init__(self, shown: str) -> None:
        self.refusal: DeployError | None = None
        self._shown = shown
        self._secret = secrets.token_urlsafe(24)
        self._server = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._listen, name="tradewind-egress", daemon=True).start()

    @property
    def url(self) -> str:
        """The address that the client uses as its proxy; nobody else on this machine knows its password."""
        return f"http://proxy:{self._secret}@127.0.0.1:{self._server.getsockname()[1]}"

    def close(self) -> None:
        """Take no more connections, and end those that are open."""
        with self._lock:
            ends = [self._server, *self._open]
        for end in ends:
            with contextlib.suppress(OSError):  # it may be closed already
                end.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _listen(self) -> None:
        while True:
            try:
                taken, _ = self._server.accept()
            except OSError:  # it is closed
                return
            threading.Thread(target=self._serve, args=(taken,), name="tradewind-egress", daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        """Carry one connection."""
        with self._kept(client), contextlib.suppress(OSError):
            client.settimeout(_CONNECT_SECONDS)
            target = self._target(_head(client))
            if target is None:
                client.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
                return
            server = self._reached(*target)
            if server is None:
                client.sendall(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
                return
            with self._kept(server):
                client.settimeout(None)
                server.settimeout(None)
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                back = threading.Thread(target=_pass_on, args=(server, client), name="tradewind-egress", daemon=True)
                back.start()
                _pass_on(client, server)
                back.join()

    def _target(self, head: str) -> tuple[str, int] | None:
        """Read the host and port that a request names; None where it has no right to any."""
        first, *fields = head.split("\r\n")
        method, _, rest = first.partition(" ")
        host, _, port = rest.partition(" ")[0].rpartition(":")
        values = {name.lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
        wanted = b"Basic " + base64.b64encode(f"proxy:{self._secret}".encode())
        known = hmac.compare_digest(values.get("proxy-authorization", "").encode(), wanted)
        if not known or method != "CONNECT" or not host or not port.isdecimal():
            return None
        return host.strip("[]"), int(port)

    def _reached(self, host: str, port: int) -> socket.socket | None:
        """A connection to an address of a host that was judged; None where there is none."""
        try:
            if port < 1024 and port not in _LOW_PORTS:
                raise InputError(f"no connection goes to port {port}")
            made = connect_pinned(resolve_addresses(host, port, private=False), port, _CONNECT_SECONDS)
        except InputError as error:
            self.refusal = DeployError(f"{self._shown}: {error.message}", hint=error.hint, retryable=False)
        except UnreachableError as error:
            self.refusal = error
        except OSError as error:
            self.refusal = UnreachableError(f"{self._shown} cannot be reached: {error.strerror or error}")
        else:
            self.refusal = None
            return made
        return None

    @contextlib.contextmanager
    def _kept(self, end: socket.socket) -> Iterator[None]:
        with self._lock:
            self._open.add(end)
        try:
            yield
        finally:
            with self._lock:
                self._open.discard(end)
            end.close()


def _head(client: socket.socket) -> str:
    """The head of a request; empty where none comes."""
    got = b""
    while b"\r\n\r\n" not in got and len(got) < _LONGEST_HEAD:
        piece = client.recv(_LONGEST_HEAD)
        if not piece:
            return ""
        got += piece
    return got.partition(b"\r\n\r\n")[0].decode("latin-1")


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    """Send on what comes until no more does, and say so."""
    with contextlib.suppress(OSError):
        while piece := source.recv(_PIECE):
            target.sendall(piece)
    for end, how in ((target, socket.SHUT_WR), (source, socket.SHUT_RD)):
        with contextlib.suppress(OSError):
            end.shutdown(how)
