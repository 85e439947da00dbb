"""`tradewind serve`: takes the port, opens the database, answers, looks after its processes, and ends in good order."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from tradewind.errors import ConflictError
from tradewind.service.applications import ready
from tradewind.service.context import Context, open_context
from tradewind.service.operations import preload
from tradewind.service.operations.http_server import (
    HttpServer,
    open_listening_socket,
    prepare_http_server,
    server_url,
    tls_context,
)
from tradewind.service.operations.privileges import leave_root
from tradewind.service.operations.supervision import http_process, worker_process
from tradewind.service.operations.supervision.child_process import ChildProcess
from tradewind.service.operations.supervision.process_metrics import ProcessMetrics, ProcessMetricsFolder
from tradewind.service.settings import ServiceSettings, check_secrets
from tradewind.store.service.operations import OperationsStore

FIRST_ADMINISTRATOR = "admin"
"""The first administrator's name."""

_PASSWORD_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"  # noqa: S105  (letters; none is taken for another one)


def start_messages(context: Context, address: str, *, terminal: bool) -> Iterator[str]:
    """Compose the lines to print: the address, and on a database without users how the first one is made.

    On a terminal an administrator is made, and the password shown this once; elsewhere it would end in a log.

    Args:
        context: The server's shared context.
        address: Address that the server listens at.
        terminal: True where standard output is a terminal.
    """
    yield f"Tradewind is at {context.settings.public_url or address} (Ctrl-C ends it)"
    if OperationsStore(context.database).has_users():
        return
    ready.install(context.applications, ready.STARTERS)
    if not terminal:
        add = f"tradewind user add {FIRST_ADMINISTRATOR} --role admin"
        yield f"There is no user yet: {add}, on this machine and with this database"
        return
    password = random_password()
    try:
        context.accounts.add_user(FIRST_ADMINISTRATOR, role="admin", password=password)
    except ConflictError:  # another server of this database was quicker
        return
    yield "There was no user yet. Sign in as the administrator; the password is shown this once:"
    yield f"  name      {FIRST_ADMINISTRATOR}"
    yield f"  password  {password}"


def random_password() -> str:
    """Generate a password that is easy to type: 16 characters, 79 random bits."""
    return "-".join("".join(secrets.choice(_PASSWORD_LETTERS) for _ in range(4)) for _ in range(4))


FORCED = 130
"""The exit code after a second signal, as shells have it for Ctrl-C."""

_FIRST_PROCESS = "1"
"""The name of this process among those that answer."""

_log = logging.getLogger("tradewind.service")


class Server:
    """A server from its start to its end.

    Args:
        settings: The server's settings.
        url: Address of the store.
        data_folder: Folder for runs, runners and refreshed prices.
    """

    def __init__(self, settings: ServiceSettings, url: str, data_folder: Path) -> None:
        self._settings, self._url, self._data_folder = settings, url, data_folder
        self._answering: HttpServer | None = None
        self._workers: list[ChildProcess] = []
        self._others: list[ChildProcess] = []
        self._signals = 0
        self._stop_time = 0.0

    def run(self, say: Callable[[str], None], *, terminal: bool) -> int:
        """Answer until a signal ends it.

        Args:
            say: Prints a line of `start_messages`.
            terminal: True where standard output is a terminal, which may show a password.

        Returns:
            The exit code: 0, or `FORCED` after a second signal.

        Raises:
            ServiceError: The port is taken.
            InputError: The certificate cannot be used, or there is no such user.
            ServiceError: The user that the server becomes cannot reach its data.
            StoreError: The database cannot be opened.
        """
        # What is cheap and often wrong comes first; people come in last, when everything else is there.
        tls = tls_context(self._settings)
        with contextlib.ExitStack() as stack:
            listening = stack.enter_context(contextlib.closing(open_listening_socket(self._settings)))
            if line := leave_root(self._settings, self._data_folder):
                say(line)
                check_secrets(self._settings)  # as the user that it is now
            context = open_context(self._settings, self._url, self._data_folder)
            stack.callback(context.close)
            answering = self._answering = prepare_http_server(context, tls)
            preload.load_modules(preload.HTTP_MODULES)
            stack.enter_context(self._signals_taken())
            address = server_url(self._settings, listening)
            self._have_worker(answering, address)
            self._have_others(answering, listening, stack)
            stack.callback(self._end_children)
            for child in self._children:
                child.start()
            stack.enter_context(context.presence.here("server", address))
            for line in start_messages(context, address, terminal=terminal):
                say(line)
            _log.info("listening on %s", address, extra={"facts": {"address": address, "pid": os.getpid()}})
            preload.prepare_pages()
            answering.run(sockets=[listening])
        forced = self._signals > 1
        _log.info("ended%s", " at once" if forced else "")
        return FORCED if forced else 0

    @property
    def _children(self) -> list[ChildProcess]:
        return [*self._workers, *self._others]

    def _have_worker(self, answering: HttpServer, address: str) -> None:
        settings = self._settings
        if settings.runs == 0:
            _log.info("this server only answers: others of this database carry requests out (runs: 0)")
            return
        # Notices have the public address of the server, which knows it only now.
        public = settings if settings.public_url else settings.model_copy(update={"public_url": address})
        words = [sys.executable, "-m", worker_process.MODULE]
        self._workers = [
            ChildProcess("worker", words, worker_process.configuration(public, self._url, self._data_folder))
        ]
        answering.health.children = self._workers

    def _have_others(self, answering: HttpServer, listening: socket.socket, stack: contextlib.ExitStack) -> None:
        """Prepare further processes that accept calls at the same socket: whichever has time takes the next one."""
        if self._settings.processes == 1:
            return
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tradewind-", ignore_cleanup_errors=True)))
        words = [sys.executable, "-m", http_process.MODULE]
        number = listening.fileno()
        for name in map(str, range(2, self._settings.processes + 1)):
            values = http_process.configuration(self._settings, self._url, self._data_folder, number, folder, name)
            self._others.append(ChildProcess(f"answering process {name}", words, values, (number,)))

        def facts() -> ProcessMetrics:
            return ProcessMetrics.of(_FIRST_PROCESS, answering.traffic, self._workers, self._others)

        metrics = answering.health.process_metrics = ProcessMetricsFolder(folder, _FIRST_PROCESS, facts)
        stack.callback(metrics.close)
        metrics.start()

    def _end_children(self) -> None:
        for child in self._children:
            child.end()
        deadline = (self._stop_time or time.monotonic()) + self._settings.stop_seconds
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
        self._stop_time = time.monotonic()
        for child in self._children:
            child.end()
        with contextlib.suppress(OSError):
            os.write(2, b"tradewind: ending (once more to end at once)\n" if sys.stderr.isatty() else b"")

    def _reload(self, number: int, frame: FrameType | None) -> None:
        """Reload the certificate in all HTTP processes: one that was renewed counts for new connections."""
        if self._answering is not None:
            self._answering.reload()
        for child in self._others:
            child.send_signal(number)
