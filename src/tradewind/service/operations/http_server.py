"""What answers calls in a process: uvicorn, the application, and the certificate."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import socket
from collections.abc import Generator
from typing import TYPE_CHECKING

import uvicorn

from tradewind.errors import InputError
from tradewind.service.app import create_app
from tradewind.service.operations.sockets import load_certificate
from tradewind.service.patience import SlowClientProtocol

if TYPE_CHECKING:
    import ssl

    from tradewind.service.context import Context
    from tradewind.service.http.call_metrics import CallMetrics
    from tradewind.service.operations.health import HealthChecks
    from tradewind.service.settings import ServiceSettings

_LAST_READS = 1.0
"""Seconds for which nobody may read an answer of an ending server: it then leaves that one."""

_log = logging.getLogger("tradewind.service")


class HttpServer(uvicorn.Server):
    """uvicorn's server; signals are ours, because the worker has to be told too, and because all ends with code 0.

    Args:
        config: How it answers.
        traffic: What passes through it.
        health: What can be said of it.
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
        """Begin to answer, and tell the system's service manager so."""
        await super().startup(sockets)
        notify_systemd("READY=1")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more, end the streams, and wait for what is being answered."""
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
        """Read the certificate again: one that was renewed counts for new connections."""
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
    """Everything that answers, not yet listening.

    Args:
        context: What its parts share.
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
    """Tell systemd, where it has started this process with ``Type=notify``; see sd_notify(3)."""
    place = os.environ.get("NOTIFY_SOCKET", "")
    if not place.startswith(("/", "@")):
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as told:
        told.connect("\0" + place[1:] if place.startswith("@") else place)
        told.sendall(state.encode())
