"""The HTTP server of a process: listening socket, TLS certificate, uvicorn, and connections of slow clients."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import logging
import math
import os
import socket
import ssl
import struct
import termios
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from tradewind.errors import InputError, ServiceError
from tradewind.service.app import create_app
from tradewind.service.settings import ServiceSettings

if TYPE_CHECKING:
    from tradewind.service.context import Context
    from tradewind.service.http.call_metrics import CallMetrics
    from tradewind.service.operations.health import HealthChecks

_log = logging.getLogger("tradewind.service")
_guard_log = logging.getLogger("tradewind.service.guard")


def open_listening_socket(settings: ServiceSettings) -> socket.socket:
    """Bind and listen on the port; connections are not accepted yet.

    Raises:
        ServiceError: It is taken, or may not be used.
        InputError: The host is none of this machine.
    """
    host, port = settings.host, settings.port
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise InputError(
            f"host {host!r} is no address of this machine: {error.strerror}", hint="write --host 127.0.0.1 or 0.0.0.0"
        ) from None
    taken = socket.socket(family, kind, protocol)
    try:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            with contextlib.suppress(OSError):
                taken.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        taken.bind(address)
        taken.listen(2048)
    except OSError as error:
        taken.close()
        raise _bind_error(error, host, port) from None
    taken.set_inheritable(False)
    return taken


def _bind_error(error: OSError, host: str, port: int) -> ServiceError | InputError:
    if error.errno == errno.EADDRINUSE:
        return ServiceError(
            f"port {port} of {host} is in use by another program",
            hint=f"end that one, or write --port {port + 1 if port < 65535 else 0}; --port 0 takes a free one",
        )
    if error.errno == errno.EACCES:
        return ServiceError(
            f"port {port} may not be used by this user", hint="take one above 1023, and a proxy before it"
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return InputError(f"host {host!r} is no address of this machine", hint="write --host 127.0.0.1 or 0.0.0.0")
    return ServiceError(f"cannot listen on {host}:{port}: {error.strerror or error}")


def tls_context(settings: ServiceSettings) -> ssl.SSLContext | None:
    """Load the certificate and its key, and check that they belong together; None for plain HTTP.

    Raises:
        InputError: One is missing, cannot be read, or they do not match.
    """
    certificate, key = settings.tls_certificate, settings.tls_key
    if certificate is None:
        if key is not None:
            raise InputError("there is a tls_key but no tls_certificate", hint="write --tls-certificate FILE too")
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    load_certificate(context, certificate, key)
    return context


def load_certificate(context: ssl.SSLContext, certificate: Path, key: Path | None) -> None:
    """Load a certificate into a context, also while it is in use: later connections see the new one.

    Raises:
        InputError: It cannot be used.
    """
    for path in (certificate, key):
        try:
            if path is not None:
                path.open("rb").close()
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise InputError(
                f"the key {key or certificate} does not belong to the certificate {certificate}",
                hint="the file of the chain begins with the server's own certificate",
            ) from None
        named = f"{certificate}" if key is None else f"{certificate} with the key {key}"
        why = str(error.reason or error).replace("_", " ").lower()
        raise InputError(f"{named} cannot be used: {why}", hint="both are PEM files") from None


def _no_password() -> str:
    raise InputError("the TLS key is locked by a password", hint="openssl pkey -in KEY -out OPEN-KEY unlocks a copy")


def server_url(settings: ServiceSettings, listening: socket.socket) -> str:
    """Return the address of the server for people of this machine, as ``http://127.0.0.1:8765``."""
    host, port = listening.getsockname()[:2]
    if host in ("0.0.0.0", "::"):  # noqa: S104  (nothing is bound here)
        host = "127.0.0.1" if host == "0.0.0.0" else "::1"  # noqa: S104
    scheme = "http" if settings.tls_certificate is None else "https"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


class SlowClientProtocol(H11Protocol):
    """HTTP/1.1 that closes connections of slow clients; `uvicorn.Config` takes it as ``http``.

    uvicorn waits for the rest of a call's headers, and for somebody to read an answer, as long as the connection lives;
    a few thousand connections that send a letter a minute would take all that a server has (Slowloris, CWE-400).
    """

    ASK_SECONDS = 15.0
    """Seconds from the first byte of a call, or from the connection, to the end of its headers."""

    READ_SECONDS = 60.0
    """Seconds for which a client may leave a full send buffer unread."""

    _asking: asyncio.TimerHandle | None = None
    _reading: asyncio.TimerHandle | None = None
    _left: tuple[asyncio.TimerHandle, int] | None = None

    def connection_made(self, transport: Any) -> None:
        """Start the timer of the first call."""
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers."""
        for timer in (self._asking, self._reading):
            if timer is not None:
                timer.cancel()
        self._asking = self._reading = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Receive data, and stop the timer where a call is complete."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """End a response, and start the timer where there is more of a call than its answer needed."""
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        """Start the timer of a client that does not read."""
        super().pause_writing()
        if self._reading is None:
            self._reading = self.loop.call_later(self.READ_SECONDS, self._give_up, "reads")

    def resume_writing(self) -> None:
        """Stop the timer: the client reads again."""
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
        super().resume_writing()

    def leave(self) -> None:
        """Close the connection of an ending server if nobody has read since the last call of this method.

        A large answer over a slow line is full to the brim most of the time: that alone says nothing.
        """
        before, self._left = self._left, None
        if self._reading is not None:
            self._left = self._reading, self.transport.get_write_buffer_size() + self._queued()
            if self._left == before:
                self._give_up("reads")

    def _queued(self) -> int:
        """Return the bytes that the system has taken and the client has not; 0 where it does not say.

        The system takes more only when a third of its buffer is free: over a slow line that is seconds of reading.
        """
        connection = self.transport.get_extra_info("socket")
        try:
            return int(struct.unpack("i", fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(4)))[0])
        except (AttributeError, OSError):
            return 0

    def _watch(self) -> None:
        waits = self._waits() and not self.transport.is_closing()
        if waits and self._asking is None:
            self._asking = self.loop.call_later(self.ASK_SECONDS, self._give_up, "sends")
        elif not waits and self._asking is not None:
            self._asking.cancel()
            self._asking = None

    def _waits(self) -> bool:
        """True where the client owes the rest of something; keep-alive waits for nothing."""
        if self.conn.their_state is h11.IDLE:
            return self.cycle is None or bool(self.conn.trailing_data[0])
        # The body of a call that was answered without it.
        return self.cycle is not None and self.cycle.response_complete and self.conn.their_state is h11.SEND_BODY

    def _give_up(self, what: str) -> None:
        _guard_log.warning(
            "the connection of %s was closed: it %s too slowly", self.client[0] if self.client else "?", what
        )
        connection = self.transport.get_extra_info("socket")
        if connection is not None:
            # Without this, what nobody reads stays with the system until it gives up, too.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()


_LAST_READS = 1.0
"""Seconds for which nobody may read an answer of an ending server: it then leaves that one."""


class HttpServer(uvicorn.Server):
    """uvicorn's server without its signal handling: the worker has to be signalled too, and the exit code is 0.

    Args:
        config: Configuration of uvicorn.
        traffic: Counts of its calls.
        health: Health checks of this process.
        settings: The server's settings.
    """

    def __init__(
        self, config: uvicorn.Config, traffic: CallMetrics, health: HealthChecks, settings: ServiceSettings
    ) -> None:
        super().__init__(config)
        self.health = health
        self.traffic = traffic
        self._settings = settings

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave signals alone."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept calls, and notify the system's service manager."""
        await super().startup(sockets)
        notify_systemd("READY=1")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting calls, end the streams, and wait for open calls."""
        notify_systemd("STOPPING=1")
        self.traffic.end_streams()
        self._leave()
        await super().shutdown(sockets)

    def _leave(self) -> None:
        for connection in list(self.server_state.connections):
            if isinstance(connection, SlowClientProtocol):
                connection.leave()
        if self.server_state.connections:  # somebody may stop reading later
            asyncio.get_running_loop().call_later(_LAST_READS, self._leave)

    def reload(self) -> None:
        """Reload the certificate: one that was renewed counts for new connections."""
        settings = self._settings
        if self.config.ssl is None or settings.tls_certificate is None:
            return
        try:
            load_certificate(self.config.ssl, settings.tls_certificate, settings.tls_key)
        except InputError as error:
            _log.error("the old certificate is kept: %s", error)
        else:
            _log.info("the certificate was read again")


def prepare_http_server(context: Context, tls: ssl.SSLContext | None, spare: float = 0.0) -> HttpServer:
    """Build the HTTP server of a process, not yet listening.

    Args:
        context: The server's shared context.
        tls: The certificate; None for plain HTTP.
        spare: Seconds of ``stop_seconds`` that it leaves to the process to end in.
    """
    settings = context.settings
    app = create_app(context)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="on",
        http=SlowClientProtocol,
        ws="none",
        proxy_headers=settings.behind_proxy,
        forwarded_allow_ips=settings.proxies,
        timeout_graceful_shutdown=max(1, math.ceil(settings.stop_seconds - spare)),
    )
    config.load()
    config.ssl = tls
    return HttpServer(config, app.state.traffic, app.state.health, settings)


def notify_systemd(state: str) -> None:
    """Notify systemd, where it has started this process with ``Type=notify``; see sd_notify(3)."""
    place = os.environ.get("NOTIFY_SOCKET", "")
    if not place.startswith(("/", "@")):
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notify:
        notify.connect("\0" + place[1:] if place.startswith("@") else place)
        notify.sendall(state.encode())
