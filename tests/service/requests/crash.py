"""A worker process that kills itself with SIGKILL at a place that it is told."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tradewind.deployer.run_lifecycle import RunLifecycle
from tradewind.engine.loop import Search
from tradewind.service.operations import worker_process
from tradewind.service.requests.planning import Planner
from tradewind.service.requests.telling import Telling
from tradewind.service.requests.worker import Worker
from tradewind.service.settings import ServiceSettings
from tradewind.store.claims import ClaimStore
from tradewind.store.sql import SqlStore

POINTS: dict[str, tuple[type, str, str]] = {
    "claimed": (Worker, "_begin", "before"),
    "prepared": (Planner, "prepare", "after"),
    "named": (ClaimStore, "name_study", "after"),
    "held": (SqlStore, "hold", "after"),
    "begun": (Search, "begin", "after"),
    "handed over": (RunLifecycle, "_hand_over", "after"),
    "submitted": (RunLifecycle, "_submitted", "after"),
    "ended": (Telling, "finish", "before"),
    "finished": (Telling, "finish", "after"),
}
"""Where it can die: class, method, and whether before or after it. A stage is entered after `Telling.passed`."""

STAGES = ("booting", "bootstrapping", "submitting", "executing", "collecting")


def die(*_: Any) -> None:
    """End as a power cut does."""
    os.kill(os.getpid(), signal.SIGKILL)


def arm(place: str) -> None:
    """Have the process die at a place."""
    if place in STAGES:
        original = Telling.passed

        def passed(self: Telling, entered: Any) -> None:
            original(self, entered)
            if entered.stage == place:
                self.flush()
                die()

        Telling.passed = passed  # type: ignore[method-assign,assignment]
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
