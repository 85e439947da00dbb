"""The worker process: carries requests out, sends notices, and ends with the server that started it.

``python -m tradewind.service.operations.supervision.worker_process`` reads its configuration as one line of JSON from
standard input, which stays open as long as the server lives.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

from tradewind.deployer.runner.warden.client import keep_wardens
from tradewind.errors import TradewindError
from tradewind.service.context import open_context
from tradewind.service.notifications.sender import NotificationSender
from tradewind.service.operations import preload
from tradewind.service.operations.restarting_thread import thread_status
from tradewind.service.operations.supervision import child_process
from tradewind.service.requests.worker import RequestWorker
from tradewind.service.results.upload_worker import UploadWorker
from tradewind.service.settings import ServiceSettings
from tradewind.utils.units import count

MODULE = "tradewind.service.operations.supervision.worker_process"

_LAST_SECONDS = 2.0
"""Seconds of ``stop_seconds`` that are left for the process to end in."""

_log = logging.getLogger("tradewind.service.worker")


def configuration(settings: ServiceSettings, url: str, data_folder: Path) -> dict[str, Any]:
    """Build the configuration of the worker process.

    Args:
        settings: The server's settings; ``public_url`` is the address in notices.
        url: Address of the store.
        data_folder: Folder for runs, runners and refreshed prices.
    """
    return child_process.child_configuration(settings, url, data_folder)


def main() -> int:
    """Work until the server ends this process, or is gone.

    Returns:
        The exit code.
    """
    heard = child_process.read_configuration()
    if heard is None:
        return 0
    settings, document = heard
    stop = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end)
    threading.Thread(target=_wait_for_end, args=(stop,), name="tradewind-server-gone", daemon=True).start()
    try:
        work(settings, document["url"], Path(document["data_folder"]), stop)
    except TradewindError as error:
        _log.error("%s", error)
        return error.exit_code
    return 0


def work(settings: ServiceSettings, url: str, data_folder: Path, stop: threading.Event) -> None:
    """Carry requests out and send notices until an event is set, then hand back what is not done.

    Args:
        settings: The server's settings.
        url: Address of the store.
        data_folder: Folder for runs, runners and refreshed prices.
        stop: Event that ends it.

    Raises:
        StoreError: The database cannot be opened.
    """
    context = open_context(settings, url, data_folder)
    keep_wardens(settings.runs)
    preload.load_modules(preload.WORKER_MODULES)
    try:
        sending = NotificationSender(context.database, settings, context.notices)
        sending.start()
        uploads = UploadWorker(context.database, context.results, data_folder)
        uploads.start()
        patience = max(1.0, settings.stop_seconds - _LAST_SECONDS) / 2
        try:
            threads = (*sending.threads, uploads.thread)
            about = f"{count(settings.runs, 'request')} at a time"
            with context.presence.here("worker", about, lambda: {"threads": [thread_status(one) for one in threads]}):
                RequestWorker(context).run(stop, patience)
        finally:
            ends = time.monotonic() + patience
            sending.stop(patience)
            uploads.stop(max(0.0, ends - time.monotonic()))
    finally:
        context.close()


def _wait_for_end(stop: threading.Event) -> None:
    """End this process with the server: when standard input ends, nobody would restart or end it any more."""
    while sys.stdin.buffer.read(4096):
        pass
    if not stop.is_set():
        _log.warning("the server is gone: the worker ends, too")
        stop.set()


if __name__ == "__main__":
    code = main()
    logging.shutdown()
    # Threads that wait for somebody's server would hold the process up; what they do is left to the next one.
    os._exit(code)
