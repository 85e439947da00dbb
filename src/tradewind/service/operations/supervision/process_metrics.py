"""Metrics of the processes of one server, exchanged through files, so that each can answer for all of them.

A call for the metrics comes to whichever process takes it. Each writes its own into a file of a folder that they share,
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
"""Seconds after which the metrics of a process are left out: it is dead, or does not get to write."""

_log = logging.getLogger("tradewind.service.board")


@dataclass(frozen=True)
class ChildStatus:
    """Status of a child process, as its supervisor reports it; see `ChildProcess`."""

    name: str
    alive: bool
    pid: int | None
    restarts: int


SupervisedProcess = ChildProcess | ChildStatus
"""A process supervised by this one, or by another one of the server."""


@dataclass(frozen=True)
class ProcessMetrics:
    """Metrics of an HTTP process.

    Attributes:
        name: Number of the process in its server: ``1`` is the first, which supervises the others.
        at: Time of the report, seconds since the epoch.
        latencies: For each route the answers in each bucket, and the sum of their seconds.
        counts: Method, route, status, and number of answers.
        streams: Number of event streams that are open.
        memory: Resident memory, bytes.
        processor: Seconds of processor time used so far.
        files: Number of files and connections that are open.
        started: Start time, seconds since the epoch.
        workers: The workers that it supervises.
        others: The other HTTP processes, where it supervises them.
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
        """Measure this process now."""
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
        """Read the metrics that another process has written."""
        kept = {key: [ChildStatus(**one) for one in document[key]] for key in ("workers", "others")}
        return cls(**{**document, **kept})


def _child_status(one: SupervisedProcess) -> ChildStatus:
    return ChildStatus(one.name, one.alive, one.pid, one.restarts)


class ProcessMetricsFolder:
    """The shared folder of metrics, as one process sees it.

    Args:
        folder: Folder that all processes of a server write to.
        name: This process's name; see `ProcessMetrics`.
        facts: Returns its metrics, called every second.
    """

    def __init__(self, folder: Path, name: str, facts: Callable[[], ProcessMetrics]) -> None:
        self._folder, self._name, self._facts = folder, name, facts
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write_often, name="tradewind-board", daemon=True)

    def start(self) -> None:
        """Start to write every second."""
        self._thread.start()

    def close(self) -> None:
        """Stop writing."""
        self._over.set()
        self._thread.join(2.0)

    def all(self) -> list[ProcessMetrics]:
        """Return the metrics of all processes that wrote some lately, and of this one now; by name."""
        found = {self._name: self._facts()}
        for file in self._folder.glob("*.json"):
            # It is replaced while we look, or removed because the server ends.
            with contextlib.suppress(OSError):
                said = ProcessMetrics.read(json.loads(file.read_bytes()))
                if time.time() - said.at < _SILENT:
                    found.setdefault(said.name, said)
        return [found[name] for name in sorted(found, key=int)]

    def _write_often(self) -> None:
        while True:
            new = self._folder / f".{self._name}.new"
            try:
                new.write_text(json.dumps(asdict(self._facts())))
                new.replace(self._folder / f"{self._name}.json")
            except OSError as error:
                # Metrics are for people: answering does not wait for them.
                _log.warning("the figures of process %s cannot be written: %s", self._name, error.strerror or error)
            if self._over.wait(_EVERY):
                return
