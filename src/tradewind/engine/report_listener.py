"""Reads what runs report while they run, for the stopper of a search."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING

from tradewind.deployer.environment import METRICS
from tradewind.deployer.runner.base import Runner, StreamsLogs, StreamsReports
from tradewind.engine.state_machine.events import RunReported
from tradewind.errors import DeployError
from tradewind.interpreter.log_reader import CurvePoint, CurvePointReader, CurvePoints
from tradewind.plugins import CallsNetwork, Capability
from tradewind.problem import Run, RunState

if TYPE_CHECKING:
    from tradewind.stopper.base import StopperSettings

_PIECES = 64
"""Pieces of one run that are read at one look, so that a program that writes without end holds up nobody."""

_BLOCK = 1 << 22

_log = logging.getLogger("tradewind.engine")


def why_reports_unavailable(runner: type[Runner], name: str, file: str) -> tuple[str, str]:
    """The reason why a runner cannot read what its runs report, and a hint; two empty texts if it can.

    Args:
        runner: The runner.
        name: Its entry-point name.
        file: ``metrics``, ``stdout`` or ``stderr``.
    """
    needed: type[Capability] = StreamsReports if file == "metrics" else StreamsLogs
    if issubclass(runner, needed):
        return "", ""
    if file == "metrics" and issubclass(runner, StreamsLogs):
        why = f"the {name} runner cannot read metrics while a run is running"
        return why, "print them as lines of JSON, and add file: stdout to early_stop"
    return f"the {name} runner tells nothing of a run while it is running", "take early_stop out, or use another runner"


class ReportListener:
    """Reads what runs report.

    Args:
        runner: Who runs them.
        settings: Where the reports are.
        metric: The metric that is looked for.
    """

    def __init__(self, runner: Runner, settings: StopperSettings, metric: str) -> None:
        self._runner = runner
        self._settings = settings
        self._metric = metric
        self._readers: dict[str, CurvePointReader] = {}
        self._next = 0.0
        self._task: Future[list[RunReported]] | None = None

    def look(self, runs: Iterable[Run], now: float) -> list[RunReported]:
        """Values that runs have reported since the last look; nothing if that was not long ago.

        An engine across a network is asked in a thread, and what it says is returned later.

        Args:
            runs: The runs that have not ended.
            now: Seconds on the runner's clock.
        """
        if self._task is not None:
            if not self._task.done():
                return []
            task, self._task = self._task, None
            self._next = now + self._settings.every
            return task.result()
        if now < self._next:
            return []
        self._next = now + self._settings.every
        running = [run for run in runs if run.state == RunState.EXECUTING and run.handle is not None]
        if not running or not isinstance(self._runner, CallsNetwork):
            return self._read_all(running)
        self._task = task = Future()

        def carry_out() -> None:
            try:
                task.set_result(self._read_all(running))
            except BaseException as error:
                task.set_exception(error)

        threading.Thread(target=carry_out, name="tradewind-listener", daemon=True).start()
        return []

    def _read_all(self, runs: Sequence[Run]) -> list[RunReported]:
        found = []
        for run in runs:
            reader = self._readers.setdefault(run.run_id, self._reader())
            points: list[CurvePoint] = []
            try:
                for _ in range(_PIECES):
                    piece = self._piece(run, reader.offset)
                    if not piece:
                        break
                    points += reader.feed(piece)
            except DeployError as error:
                # The run goes on; the next look reads what this one could not.
                _log.warning("run %s: what it reports cannot be read: %s", run.run_id, error)
            if points:
                found.append(RunReported(run.run_id, tuple(points)))
        return found

    def _piece(self, run: Run, offset: int) -> bytes:
        assert run.handle is not None
        file = self._settings.file
        if file == "metrics":
            assert isinstance(self._runner, StreamsReports)
            return self._runner.read_report(run.handle, offset)
        assert isinstance(self._runner, StreamsLogs)
        return self._runner.read_log(run.handle, file, offset)

    def _reader(self) -> CurvePointReader:
        return CurvePointReader(self._metric, self._settings.step, self._settings.pattern)

    def whole(self, run: Run) -> list[RunReported]:
        """Read what an ended run has reported, from its folder on this machine; nothing if it is not there."""
        self._readers.pop(run.run_id, None)
        name = METRICS if self._settings.file == "metrics" else self._settings.file
        reader, points, path = self._reader(), CurvePoints(), Path(run.folder) / name
        if not run.folder or not path.is_file():
            return []
        try:
            with path.open("rb") as file:
                while block := file.read(_BLOCK):
                    points.extend(reader.feed(block))
        except OSError:
            return []
        points.extend(reader.feed(b"", last=True))
        return [RunReported(run.run_id, points, final=True)]

    def earlier(self, runs: Iterable[Run]) -> Mapping[int, Collection[CurvePoint]]:
        """Read what the last runs of ended trials have reported, by the trial's number."""
        last = {run.trial: run for run in sorted(runs, key=lambda run: (run.trial, run.attempt)) if run.state.ended}
        return {number: read.points for number, run in last.items() for read in self.whole(run)}
