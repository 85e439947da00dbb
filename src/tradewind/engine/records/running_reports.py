"""Reads what the runs of a study report while they run, for its callbacks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tradewind.callback.base import SeriesPoint
from tradewind.deployer.runner.base import Runner, StreamsReports
from tradewind.errors import DeployError
from tradewind.interpreter.reported_series import SeriesReader, read_series
from tradewind.plugins import CallsNetwork
from tradewind.problem import Run, RunState

Series = Mapping[str, Sequence[SeriesPoint]]

_EVERY, _EVERY_FAR = 1.0, 5.0
"""Seconds between two looks, on this machine and across a network."""

_LAST = 10.0
"""Seconds that a look which is on its way may still take."""

_PIECES = 16
"""Pieces of one run that are read at one look, so that a program that writes without end holds up nobody."""


@dataclass(slots=True)
class _Source:
    """The reports of a trial's run: how they are read, and all that was found in them."""

    run_id: str
    read: Callable[[int], bytes]
    reader: SeriesReader = field(default_factory=SeriesReader)

    def look(self) -> bool:
        """Read what was written since; True where there was a value."""
        news = False
        try:
            for _ in range(_PIECES):
                if not (piece := self.read(self.reader.offset)):
                    break
                news |= self.reader.feed(piece)
        except (DeployError, OSError):
            pass  # the next look reads it, or the end of the run does
        return news


class RunningReports:
    """Looks now and then, in a thread of its own, what the runs of a study have reported.

    Args:
        tell: Called with the number of a trial and all that its run has reported so far, if that is more than before.
        runner: Who carries out the runs; None where they are functions of this process.
    """

    def __init__(self, tell: Callable[[int, Series], None], runner: Runner | None = None) -> None:
        self._tell = tell
        self._runner: StreamsReports | None = runner if isinstance(runner, StreamsReports) else None
        self._sources: dict[int, _Source] = {}
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._every = _EVERY_FAR if isinstance(runner, CallsNetwork) else _EVERY
        self._thread: threading.Thread | None = None

    def run_changed(self, run: Run) -> None:
        """Begin to read a run that executes; the reading of one that has ended is over."""
        runner = self._runner
        if runner is None:
            return
        if run.state.ended:
            self.forget(run.trial)
        elif run.state is RunState.EXECUTING and run.handle is not None:
            handle = run.handle
            self._add(run.trial, run.run_id, lambda offset: runner.read_report(handle, offset))

    @contextmanager
    def file_of(self, number: int, path: Path, keep: Callable[[Series], None]) -> Generator[None]:
        """Read the reports of a call of this process while it lasts, and all of them before their file is gone.

        Args:
            number: The number of the trial.
            path: The file.
            keep: Called with all of it.
        """
        self._add(number, str(path), lambda offset: _read(path, offset))
        try:
            yield
        finally:
            self.forget(number)
            keep(read_series(path))

    def forget(self, number: int) -> None:
        """Read nothing more of a trial."""
        with self._lock:
            self._sources.pop(number, None)

    def stop(self) -> None:
        """Read nothing more; it returns when nothing is being read."""
        self._end.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_LAST)

    def _add(self, number: int, run_id: str, read: Callable[[int], bytes]) -> None:
        with self._lock:
            known = self._sources.get(number)
            if known is None or known.run_id != run_id:
                self._sources[number] = _Source(run_id, read)
            if self._thread is None and not self._end.is_set():
                self._thread = threading.Thread(target=self._work, name="tradewind-reports", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while not self._end.wait(self._every):
            with self._lock:
                sources = list(self._sources.items())
            for number, source in sources:
                if not self._end.is_set() and source.look():
                    self._tell(number, source.reader.series())


def _read(path: Path, offset: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(1 << 20)
    except FileNotFoundError:  # nothing was reported yet
        return b""
