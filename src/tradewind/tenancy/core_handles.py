"""Runs Cores in threads of the cluster's process or in processes of their own, and ends runs left without a Core."""

from __future__ import annotations

import logging
import multiprocessing
import multiprocessing.connection
import os
import queue
import threading
import traceback
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any, Protocol

from tradewind.errors import DeployError, StoreError, StudyNotFoundError, TradewindError
from tradewind.tenancy.core import CoreInbox, CoreSettings, run_core
from tradewind.tenancy.messages import CoreEndedMessage, CoreOrder, CoreOutbox, EndOrder, RunFoundMessage
from tradewind.tenancy.resources import demand_of_run

_log = logging.getLogger("tradewind.tenancy")

_RETRY_SECONDS = 5.0
"""Seconds until the next attempt where an engine or the store did not answer."""


def end_runs(settings: CoreSettings, inbox: CoreInbox, outbox: CoreOutbox, *, over: CoreEndedMessage) -> None:
    """End the runs of a search, and pay for them; then it is over, and not before.

    What cannot be ended now is tried again, until the cluster ends: the next one goes on with it.

    Args:
        settings: The search; it has a study.
        inbox: Orders of the cluster.
        outbox: Where messages go; the last one is ``over``, or why it could not be.
        over: What becomes of the search.
    """
    try:
        while problem := _attempt(settings, outbox, over.reason):
            _log.warning("search %d: its runs cannot be ended now: %s", over.job, problem)
            if _is_left(inbox):
                over = CoreEndedMessage(over.job, "left", problem)
                break
    except TradewindError as error:
        over = CoreEndedMessage(over.job, "failed", f"{over.reason}; what it has left running cannot be ended: {error}")
    except Exception as error:
        traceback.print_exc()
        over = CoreEndedMessage(over.job, "failed", f"{over.reason}; unexpected {type(error).__name__}: {error}")
    outbox.put(over)


def _attempt(settings: CoreSettings, outbox: CoreOutbox, reason: str) -> str:
    """End what runs; what could not be ended for now, in words.

    Raises:
        TradewindError: It will not be possible later either.
    """
    from tradewind import plugins
    from tradewind.engine.cleanup.study_teardown import tear_down_study

    job = settings.job
    assert job.study_id is not None
    try:
        with closing(plugins.create("store", "sql", {}, url=settings.url)) as store:
            study = store.study(job.study_id)
            trials = {trial.number: trial for trial in store.trials(study.id)}
            for run in store.runs(study.id, open_only=True):  # until they have ended, their place is taken
                demand = demand_of_run(trials[run.trial].offer, job.options)
                outbox.put(RunFoundMessage(job.id, f"{job.id}/{run.trial}/{run.run_id}", demand))
            # Who runs the cluster has its searches: whoever else still holds this study finds out.
            ended = tear_down_study(store, study, settings.data_folder, reason=reason, force=True)
    except StudyNotFoundError:
        raise
    except (DeployError, StoreError) as error:
        return str(error)
    return "; ".join(ended.problems)


def _is_left(inbox: CoreInbox) -> bool:
    """Wait until the next attempt; True when the cluster ends meanwhile."""
    return inbox.get(_RETRY_SECONDS) == EndOrder("left")


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
