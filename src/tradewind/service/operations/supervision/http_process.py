"""A further HTTP process of the server: it accepts calls at the socket of the server that has started it.

``python -m tradewind.service.operations.supervision.http_process`` reads its configuration as one line of JSON from
standard input, which stays open as long as the server lives; the configuration names the inherited socket by its file
descriptor.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import socket
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from tradewind.errors import TradewindError
from tradewind.service.context import open_context
from tradewind.service.operations import preload
from tradewind.service.operations.http_server import HttpServer, prepare_http_server, server_url, tls_context
from tradewind.service.operations.supervision import child_process
from tradewind.service.operations.supervision.process_metrics import ProcessMetrics, ProcessMetricsFolder
from tradewind.service.settings import ServiceSettings

MODULE = "tradewind.service.operations.supervision.http_process"

_LAST_SECONDS = 2.0
"""Seconds of ``stop_seconds`` that are left for the process to end in."""

_log = logging.getLogger("tradewind.service")


def configuration(
    settings: ServiceSettings, url: str, data_folder: Path, listening: int, metrics_folder: Path, name: str
) -> dict[str, Any]:
    """Build the configuration of an HTTP process.

    Args:
        settings: The server's settings.
        url: Address of the store.
        data_folder: Folder for runs, runners and refreshed prices.
        listening: File descriptor of the socket that it inherits.
        metrics_folder: Folder in which the server's processes write their metrics.
        name: Name of the process among them.
    """
    return child_process.child_configuration(
        settings, url, data_folder, listening=listening, metrics_folder=str(metrics_folder), name=name
    )


def main() -> int:
    """Answer calls until the server ends this process, or is gone.

    Returns:
        The exit code.
    """
    heard = child_process.read_configuration()
    if heard is None:
        return 0
    settings, document = heard
    os.environ.pop("NOTIFY_SOCKET", None)  # the first process speaks for all
    try:
        serve_http(settings, document)
    except TradewindError as error:
        _log.error("%s", error)
        return error.exit_code
    return 0


def serve_http(settings: ServiceSettings, document: dict[str, Any]) -> None:
    """Answer calls until a signal ends it, or the server is gone.

    Args:
        settings: The server's settings.
        document: The whole of `configuration`.

    Raises:
        InputError: The certificate cannot be used.
        StoreError: The database cannot be opened.
    """
    tls = tls_context(settings)
    folder, name = Path(document["metrics_folder"]), str(document["name"])
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(contextlib.closing(socket.socket(fileno=document["listening"])))
        context = open_context(settings, document["url"], Path(document["data_folder"]))
        stack.callback(context.close)
        answering = prepare_http_server(context, tls, _LAST_SECONDS)
        preload.load_modules(preload.HTTP_MODULES)
        _take_signals(answering)
        threading.Thread(
            target=_wait_for_end, args=(answering, folder), name="tradewind-server-gone", daemon=True
        ).start()
        metrics = ProcessMetricsFolder(folder, name, lambda: ProcessMetrics.of(name, answering.traffic, (), ()))
        stack.callback(metrics.close)
        metrics.start()
        answering.health.process_metrics = metrics
        stack.enter_context(context.presence.here("server", server_url(settings, listening)))
        preload.prepare_pages()
        _log.info("process %s of the server answers, too", name)
        answering.run(sockets=[listening])


def _take_signals(answering: HttpServer) -> None:
    def end(number: int, frame: FrameType | None) -> None:
        answering.should_exit = True

    def reload(number: int, frame: FrameType | None) -> None:
        answering.reload()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    signal.signal(signal.SIGHUP, reload)


def _wait_for_end(answering: HttpServer, metrics_folder: Path) -> None:
    """End this process with the server: when standard input ends, nobody would restart or end it any more."""
    while sys.stdin.buffer.read(4096):
        pass
    if not answering.should_exit:
        _log.warning("the server is gone: this process ends, too")
        shutil.rmtree(metrics_folder, ignore_errors=True)
        answering.should_exit = True


if __name__ == "__main__":
    code = main()
    logging.shutdown()
    # Threads that wait for somebody would hold the process up; what they answer, nobody reads any more.
    os._exit(code)
