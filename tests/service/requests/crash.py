"""A worker process that kills itself with SIGKILL at a place that it is told."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tradewind.deployer.lifecycle.run_lifecycle import RunLifecycle
from tradewind.engine.search import Search
from tradewind.service.operations.supervision import worker_process
from tradewind.service.requests.progress_writer import RequestProgressWriter
from tradewind.service.requests.request_planner import RequestPlanner
from tradewind.service.requests.worker import RequestWorker
from tradewind.service.settings import ServiceSettings
from tradewind.store.service.claims import ClaimStore
from tradewind.store.studies.sql_store import SqlStore

POINTS: dict[str, tuple[type, str, str]] = {
    "claimed": (RequestWorker, "_begin", "before"),
    "prepared": (RequestPlanner, "prepare", "after"),
    "named": (ClaimStore, "name_study", "after"),
    "held": (SqlStore, "hold", "after"),
    "begun": (Search, "begin", "after"),
    "handed over": (RunLifecycle, "_hand_over", "after"),
    "submitted": (RunLifecycle, "_submitted", "after"),
    "ended": (RequestProgressWriter, "finish", "before"),
    "finished": (RequestProgressWriter, "finish", "after"),
}
"""Places to die at: class, method, before or after it. A stage is entered after `RequestProgressWriter.passed`."""

STAGES = ("booting", "bootstrapping", "submitting", "executing", "collecting")


def die(*_: Any) -> None:
    """End as a power cut does."""
    os.kill(os.getpid(), signal.SIGKILL)


def arm(place: str) -> None:
    """Have the process die at a place."""
    if place in STAGES:
        original = RequestProgressWriter.passed

        def passed(self: RequestProgressWriter, entered: Any) -> None:
            original(self, entered)
            if entered.stage == place:
                self.flush()
                die()

        RequestProgressWriter.passed = passed  # type: ignore[method-assign,assignment]
        return
    owner, name, when = POINTS[place]
    setattr(owner, name, _deadly(getattr(owner, name), when))


def _deadly(function: Callable[..., Any], when: str) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        if when == "before":
            die()
        found = function(*arguments, **named)
        die()
        return found

    return call


if __name__ == "__main__":
    line = json.loads(sys.stdin.buffer.readline())
    if line["dies"]:
        arm(line["dies"])
    import threading

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    settings = ServiceSettings.model_validate(line["settings"])
    worker_process.work(settings, line["url"], Path(line["data_folder"]), stop)
    os._exit(0)
