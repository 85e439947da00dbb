"""`tradewind serve`: takes the port, opens the database, answers, looks after the worker, and ends in good order."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from tradewind.errors import InputError
from tradewind.service.app import create_app
from tradewind.service.context import Context, open_context
from tradewind.service.operations import warm, worker_process
from tradewind.service.operations.children import Child
from tradewind.service.operations.first import welcome
from tradewind.service.operations.health import Health
from tradewind.service.operations.sockets import address_of, listen, load_certificate, tls_of
from tradewind.service.operations.traffic import Traffic
from tradewind.service.patience import PatientProtocol
from tradewind.service.settings import ServiceSettings

FORCED = 130
"""The exit code after a second signal, as shells have it for Ctrl-C."""

_log = logging.getLogger("tradewind.service")


class _Answering(uvicorn.Server):
    """uvicorn's server; signals are ours, because the worker has to be told too, and because all ends with code 0."""

    def __init__(self, config: uvicorn.Config, traffic: Traffic, health: Health) -> None:
        super().__init__(config)
        self.health = health
        self._traffic = traffic

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave signals alone."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer, and tell the system's service manager so."""
        await super().startup(sockets)
        tell_manager("READY=1")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more, end the streams, and wait for what is being answered."""
        tell_manager("STOPPING=1")
        self._traffic.end_streams()
        await super().shutdown(sockets)


class Server:
    """A server from its start to its end.

    Args:
        settings: The server's settings.
        url: Address of the store.
        data_folder: For runs, runners and refreshed prices.
    """

    def __init__(self, settings: ServiceSettings, url: str, data_folder: Path) -> None:
        self._settings, self._url, self._data_folder = settings, url, data_folder
        self._answering: _Answering | None = None
        self._children: list[Child] = []
        self._signals = 0
        self._told = 0.0

    def run(self, say: Callable[[str], None], *, terminal: bool) -> int:
        """Answer until a signal ends it.

        Args:
            say: Where the address goes, and how the first administrator comes in.
            terminal: Whether somebody sits before it who may see a password.

        Returns:
            The exit code: 0, or `FORCED` after a second signal.

        Raises:
            ServiceError: The port is taken.
            InputError: The certificate cannot be used.
            StoreError: The database cannot be opened.
        """
        # What is cheap and often wrong comes first; people come in last, when everything else is there.
        tls = tls_of(self._settings)
        with contextlib.ExitStack() as stack:
            listening = stack.enter_context(contextlib.closing(listen(self._settings)))
            context = open_context(self._settings, self._url, self._data_folder)
            stack.callback(context.close)
            answering = self._answering = self._prepare(context, tls)
            warm.load(warm.ACCEPTING)
            stack.enter_context(self._signals_taken())
            address = address_of(self._settings, listening)
            stack.callback(self._end_children)
            self._start_children(answering.health, address)
            stack.enter_context(context.presence.here("server", address))
            for line in welcome(context, address, terminal=terminal):
                say(line)
            _log.info("listening on %s", address, extra={"facts": {"address": address, "pid": os.getpid()}})
            answering.run(sockets=[listening])
        forced = self._signals > 1
        _log.info("ended%s", " at once" if forced else "")
        return FORCED if forced else 0

    def _prepare(self, context: Context, tls: Any) -> _Answering:
        settings = self._settings
        app = create_app(context)
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="on",
            http=PatientProtocol,
            ws="none",
            proxy_headers=settings.behind_proxy,
            forwarded_allow_ips=settings.proxies,
            timeout_graceful_shutdown=max(1, math.ceil(settings.stop_seconds)),
        )
        config.load()
        config.ssl = tls
        return _Answering(config, app.state.traffic, app.state.health)

    def _start_children(self, health: Health, address: str) -> None:
        settings = self._settings
        if settings.runs == 0:
            _log.info("this server only answers: others of this database carry requests out (runs: 0)")
            return
        # Notices say where people come to the server, which knows its address only now.
        told = settings if settings.public_url else settings.model_copy(update={"public_url": address})
        words = [sys.executable, "-m", worker_process.MODULE]
        self._children = [Child("worker", words, worker_process.configuration(told, self._url, self._data_folder))]
        health.children = self._children
        for child in self._children:
            child.start()

    def _end_children(self) -> None:
        for child in self._children:
            child.end()
        deadline = (self._told or time.monotonic()) + self._settings.stop_seconds
        for child in self._children:
            child.join(max(0.0, deadline - time.monotonic()))

    @contextlib.contextmanager
    def _signals_taken(self) -> Generator[None, None, None]:
        mine: dict[int, Any] = {signal.SIGINT: self._stop, signal.SIGTERM: self._stop, signal.SIGHUP: self._reload}
        before = {number: signal.signal(number, handler) for number, handler in mine.items()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1
        answering = self._answering
        assert answering is not None
        answering.should_exit = True
        if self._signals > 1:
            answering.force_exit = True
            for child in self._children:
                child.kill()
            return
        self._told = time.monotonic()
        for child in self._children:
            child.end()
        with contextlib.suppress(OSError):
            os.write(2, b"tradewind: ending (once more to end at once)\n" if sys.stderr.isatty() else b"")

    def _reload(self, number: int, frame: FrameType | None) -> None:
        """A certificate that was renewed counts for new connections."""
        answering, settings = self._answering, self._settings
        if answering is None or answering.config.ssl is None or settings.tls_certificate is None:
            return
        try:
            load_certificate(answering.config.ssl, settings.tls_certificate, settings.tls_key)
        except InputError as error:
            _log.error("the old certificate is kept: %s", error)
        else:
            _log.info("the certificate was read again")


def tell_manager(state: str) -> None:
    """Tell systemd, where it has started this process with ``Type=notify``; see sd_notify(3)."""
    place = os.environ.get("NOTIFY_SOCKET", "")
    if not place.startswith(("/", "@")):
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as told:
        told.connect("\0" + place[1:] if place.startswith("@") else place)
        told.sendall(state.encode())
