"""Where Cores run: in threads of the cluster's process, or in processes of their own."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from tradewind.tenancy.core import CoreInbox, CoreSettings, run_core
from tradewind.tenancy.ending import end_runs
from tradewind.tenancy.messages import CoreEndedMessage, CoreOrder, CoreOutbox


class CoreHandle(Protocol):
    """A Core that runs."""

    def send(self, order: CoreOrder) -> None:
        """Give it an order."""
        ...

    def join(self, seconds: float) -> None:
        """Wait for its end."""
        ...


class ThreadCore:
    """A Core in a thread: quick to start; its searcher shares the processor with all others of the process.

    Args:
        settings: What it searches.
        outbox: Where its messages go.
        work: What is done there.
    """

    def __init__(
        self,
        settings: CoreSettings,
        outbox: CoreOutbox,
        work: Callable[[CoreSettings, CoreInbox, CoreOutbox], None] = run_core,
    ) -> None:
        self._inbox = CoreInbox()
        name = f"core-{settings.job.id}"
        self._thread = threading.Thread(target=work, args=(settings, self._inbox, outbox), name=name, daemon=True)
        self._thread.start()

    def send(self, order: CoreOrder) -> None:
        """See `CoreHandle.send`."""
        self._inbox.put(order)

    def join(self, seconds: float) -> None:
        """See `CoreHandle.join`."""
        self._thread.join(seconds)


class RunCleanup(ThreadCore):
    """In place of a Core: what the search has left running is ended, and then it is over.

    Args:
        settings: The search; it has a study.
        outbox: Where messages go.
        over: What becomes of the search.
    """

    def __init__(self, settings: CoreSettings, outbox: CoreOutbox, over: CoreEndedMessage) -> None:
        super().__init__(settings, outbox, partial(end_runs, over=over))


class ProcessCore:
    """A Core in a process of its own, for searchers that are heavy or the user's own; it may be killed.

    Args:
        settings: What it searches.
        outbox: Where its messages go.
    """

    def __init__(self, settings: CoreSettings, outbox: CoreOutbox) -> None:
        context = multiprocessing.get_context("spawn")
        self._inbox: Any = context.Queue()
        self._messages: Any = context.Queue()
        self._job = settings.job.id
        self._outbox = outbox
        name = f"tradewind-core-{settings.job.id}"
        arguments = (settings, self._inbox, self._messages)
        self.process = context.Process(target=_run_apart, args=arguments, name=name, daemon=True)
        self.process.start()
        self._forwarder = threading.Thread(target=self._forward, name=f"{name}-messages", daemon=True)
        self._forwarder.start()

    def send(self, order: CoreOrder) -> None:
        """See `CoreHandle.send`."""
        self._inbox.put(order)

    def join(self, seconds: float) -> None:
        """See `CoreHandle.join`."""
        self._forwarder.join(seconds)

    def _forward(self) -> None:
        """Pass messages on until the last one; a process that ends without it has crashed."""
        while True:
            try:
                message = self._messages.get(timeout=0.2)
            except queue.Empty:
                if not self.process.is_alive() and self._messages.empty():
                    why = f"its Core ended with {self.process.exitcode}"
                    self._outbox.put(CoreEndedMessage(self._job, "crashed", why))
                    return
                continue
            self._outbox.put(message)
            if isinstance(message, CoreEndedMessage):
                self.process.join(5.0)
                return


def _run_apart(settings: CoreSettings, orders: Any, outbox: CoreOutbox) -> None:
    """Run a search in this process, which ends when the cluster's does, however that one ended."""
    inbox = CoreInbox()

    def pass_on() -> None:
        while True:
            inbox.put(orders.get())

    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    threading.Thread(target=pass_on, name="orders", daemon=True).start()
    run_core(settings, inbox, outbox)


def _end_with_parent() -> None:
    """End this process at once when the one that started it does: what runs is left to the next cluster."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    multiprocessing.connection.wait([parent.sentinel])
    os._exit(1)
