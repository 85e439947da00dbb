"""What the processes of one server say of themselves to each other, so that each can answer for all of them.

A call for the figures comes to whichever process takes it. Each writes its own into a file of a folder that they share,
every second, and reads those of the others when it is asked.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from tradewind.service.http.call_metrics import CallMetrics
from tradewind.service.operations.supervision.child_process import ChildProcess

_EVERY = 1.0
_SILENT = 10.0
"""Seconds after which what a process said is no longer told: it is dead, or does not get to say anything."""

_log = logging.getLogger("tradewind.service.board")


@dataclass(frozen=True)
class ChildStatus:
    """What the process that keeps a child says of it; see `ChildProcess`."""

    name: str
    alive: bool
    pid: int | None
    restarts: int


SupervisedProcess = ChildProcess | ChildStatus
"""A process that this one keeps alive, or another one of the server."""


@dataclass(frozen=True)
class ProcessMetrics:
    """What a process that answers says of itself.

    Attributes:
        name: Which one of its server's it is: ``1`` is the first, which keeps the others.
        at: When it said so, seconds since the epoch.
        latencies: For each route how many answers fell into each bucket, and their seconds together.
        counts: Method, route, status, and number of answers.
        streams: Event streams that are open.
        memory: Resident, bytes.
        processor: Seconds used so far.
        files: Files and connections that are open.
        started: When it was started, seconds since the epoch.
        workers: The workers that it keeps.
        others: The processes that answer, too, and that it keeps.
    """

    name: str
    at: float
    latencies: list[tuple[str, list[int], float]]
    counts: list[tuple[str, str, int, int]]
    streams: int
    memory: int
    processor: float
    files: int
    started: float
    workers: list[ChildStatus]
    others: list[ChildStatus]

    @classmethod
    def of(
        cls, name: str, traffic: CallMetrics, workers: Sequence[SupervisedProcess], others: Sequence[SupervisedProcess]
    ) -> ProcessMetrics:
        """Those of this process, now."""
        process = psutil.Process()
        times = process.cpu_times()
        return cls(
            name=name,
            at=time.time(),
            latencies=[(route, *found) for route, found in sorted(traffic.latencies().items())],
            counts=[(*what, count) for what, count in sorted(traffic.counts().items())],
            streams=traffic.streams,
            memory=process.memory_info().rss,
            processor=times.user + times.system,
            files=process.num_fds(),
            started=process.create_time(),
            workers=[_child_status(one) for one in workers],
            others=[_child_status(one) for one in others],
        )

    @classmethod
    def read(cls, document: dict[str, Any]) -> ProcessMetrics:
        """Those that another process has written."""
        kept = {key: [ChildStatus(**one) for one in document[key]] for key in ("workers", "others")}
        return cls(**{**document, **kept})


def _child_status(one: SupervisedProcess) -> ChildStatus:
    return ChildStatus(one.name, one.alive, one.pid, one.restarts)


class ProcessMetricsFolder:
    """The folder, as one process sees it.

    Args:
        folder: Where all of a server write.
        name: This process's name; see `ProcessMetrics`.
        facts: What it says, asked every second.
    """

    def __init__(self, folder: Path, name: str, facts: Callable[[], ProcessMetrics]) -> None:
        self._folder, self._name, self._facts = folder, name, facts
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tell, name="tradewind-board", daemon=True)

    def start(self) -> None:
        """Write from now on."""
        self._thread.start()

    def close(self) -> None:
        """Write no more."""
        self._over.set()
        self._thread.join(2.0)

    def all(self) -> list[ProcessMetrics]:
        """What all processes say that were heard of lately, this one just now; by name."""
        found = {self._name: self._facts()}
        for file in self._folder.glob("*.json"):
            # It is replaced while we look, or removed because the server ends.
            with contextlib.suppress(OSError):
                said = ProcessMetrics.read(json.loads(file.read_bytes()))
                if time.time() - said.at < _SILENT:
                    found.setdefault(said.name, said)
        return [found[name] for name in sorted(found, key=int)]

    def _tell(self) -> None:
        while True:
            new = self._folder / f".{self._name}.new"
            try:
                new.write_text(json.dumps(asdict(self._facts())))
                new.replace(self._folder / f"{self._name}.json")
            except OSError as error:
                # Figures are told for people: answering does not wait for them.
                _log.warning("the figures of process %s cannot be written: %s", self._name, error.strerror or error)
            if self._over.wait(_EVERY):
                return
