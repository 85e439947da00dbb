"""Gives the trials of a study to its callbacks as they begin, report and end; what fails there never stops a search."""

from __future__ import annotations

import atexit
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from tradewind import plugins
from tradewind.callback.base import BegunTrial, Callback, EndedTrial, SessionEnd, StudyFacts
from tradewind.deployer.environment import METRICS
from tradewind.engine.deployment import resolve_setting_paths
from tradewind.engine.records.running_reports import RunningReports, Series
from tradewind.errors import DeployError, TradewindError
from tradewind.interpreter.reported_series import read_series
from tradewind.passwords import hide_passwords
from tradewind.problem import Problem, Run, Trial, TrialState
from tradewind.store.base import Store, StudyRow
from tradewind.utils.units import count

if TYPE_CHECKING:
    from tradewind.deployer.runner.base import Runner
    from tradewind.engine.state_machine.search_machine import SearchMachine
    from tradewind.problem.job_spec.choices import PluginChoice
    from tradewind.problem.job_spec.spec import JobSpec

_PATIENCE = 60.0
"""Seconds that the end of a search waits for a callback that gets nothing done."""

_RETRY = 60.0
"""Seconds until a tracker that could not be reached is tried again, when another trial ends."""

_FAILURES = 3
"""Trials that fail one after the other until the others are left for later."""

_LOOK = 0.1
_REASON_LENGTH = 300

ReportsReader = Callable[[Path], AbstractContextManager[None]]
"""A context for the time in which a call of this process reports to a file."""

_log = logging.getLogger("tradewind.engine")


@dataclass(slots=True)
class _Waiting:
    """A trial that is to be given to a callback, as it stands: what comes later says all of what came before."""

    trial: Trial
    run: Run | None = None
    series: Series | None = None

    @property
    def ended(self) -> bool:
        """True where it is given with its end."""
        return self.trial.state.ended

    def give(self, callback: Callback) -> None:
        """Call what is to be called with it."""
        if self.ended:
            series = self.series
            if series is None and self.run is not None and self.run.folder:
                series = read_series(Path(self.run.folder) / METRICS)
            callback.log(EndedTrial(self.trial, self.run, series or {}))
            return
        begun = BegunTrial(self.trial, self.run, self.series or {})
        callback.begin(begun)
        if begun.series:
            callback.report(begun)


@dataclass(frozen=True, slots=True)
class _End:
    session: SessionEnd | None


class TrialCallbacks:
    """The callbacks of a study, each in a thread of its own.

    Args:
        choices: The callbacks, with their settings.
        problem: The problem of the study.
        base: The folder that relative paths in the settings start in.
        data_folder: Where Tradewind keeps its data.

    Raises:
        MissingProgramError: The package of one is not installed.
        SpecError: The settings of one are wrong.
    """

    def __init__(self, choices: Sequence[PluginChoice], problem: Problem, base: Path, data_folder: Path) -> None:
        self._made: list[tuple[type[Callback], plugins.Settings]] = []
        self._problem, self._base, self._data_folder = problem, base, data_folder
        self._threads: list[_CallbackThread] = []
        self._runs: dict[int, Run] = {}
        self._series: dict[int, Series] = {}
        self._running: dict[int, Trial] = {}
        self._reports = RunningReports(self._reported)
        for choice in choices:
            part = cast("type[Callback]", plugins.load("callback", choice.name))
            given = resolve_setting_paths(base, "callback", choice.name, choice.settings)
            self._made.append((part, plugins.settings_for(part, given, where=f"callback {choice.name}")))
            for look in part.needs:
                look()

    def begin(
        self, study: StudyRow, trials: Iterable[Trial], runs: Iterable[Run], runner: Runner | None = None
    ) -> None:
        """Start, and give those trials that ended in earlier processes and are not there yet, and those that run.

        Args:
            study: The row of the study.
            trials: Its trials so far.
            runs: Their runs.
            runner: Who carries them out; None where they are calls of this process.
        """
        self._reports = RunningReports(self._reported, runner)
        facts = _facts(study, self._problem, self._base, self._data_folder)
        for part, settings in self._made:
            self._threads.append(_CallbackThread(part, settings, facts))
        self.wrote(trials, sorted(runs, key=lambda run: run.attempt))
        for thread in self._threads:
            thread.start()
        if self._threads:
            atexit.register(self.finish, None)  # of a study that nobody closes

    def read_reports(self, number: int) -> ReportsReader | None:
        """A context for a call of this process, entered with the file that it reports to, which is gone afterwards.

        Args:
            number: The number of the trial.
        """
        if not self._made:
            return None

        def keep(series: Series) -> None:
            self._series[number] = series

        return lambda path: self._reports.file_of(number, path, keep)

    def wrote(self, trials: Iterable[Trial], runs: Iterable[Run]) -> None:
        """Give the trials that have begun or ended; what was written is in the store.

        Args:
            trials: Trials that have changed.
            runs: Runs that have changed.
        """
        if not self._threads:
            return
        for run in runs:
            self._runs[run.trial] = run
        for trial in trials:
            number = trial.number
            if trial.state.ended:
                self._running.pop(number, None)
                self._reports.forget(number)
                self._put(_Waiting(trial, self._runs.pop(number, None), self._series.pop(number, None)))
            elif trial.state is TrialState.RUNNING:
                before = self._running.get(number)
                self._running[number] = trial
                if before is None or before.attempts != trial.attempts:
                    self._put(_Waiting(trial, self._runs.get(number)))

    def run_changed(self, run: Run) -> None:
        """Read what a run reports from the moment when it executes to its end.

        Args:
            run: The run as it stands.
        """
        if self._threads:
            self._reports.run_changed(run)

    def _put(self, waiting: _Waiting) -> None:
        for thread in self._threads:
            thread.put(waiting)

    def _reported(self, number: int, series: Series) -> None:
        """Give what a run has reported so far; called in the thread that reads it."""
        if (trial := self._running.get(number)) is not None:
            self._put(_Waiting(trial, self._runs.get(number), series))

    def stop_reading(self) -> None:
        """Read nothing more of what runs: their runner may be closed."""
        self._reports.stop()

    def finish(self, end: SessionEnd | None) -> int:
        """Wait until all is written, as long as anything gets done, and say in one line what could not be.

        Args:
            end: How the work on the study ended; None where another process goes on with it.

        Returns:
            How many trials are missing somewhere.
        """
        self.stop_reading()
        threads, self._threads = self._threads, []
        atexit.unregister(self.finish)
        for thread in threads:
            thread.finish(end)
        return sum(thread.wait() for thread in threads)


def session_end(machine: SearchMachine, *, failed: bool) -> SessionEnd:
    """The end of the work on a study, as it stands.

    Args:
        machine: The state machine of its search.
        failed: It was ended by an error.
    """
    stop, history = machine.stopped, machine.history
    interrupted = stop is not None and stop.interrupted
    return SessionEnd(
        "failed" if failed else "interrupted" if interrupted else "finished",
        stop.reason if stop is not None else "it ended with an error" if failed else "",
        sum(trial.state.ended for trial in history.trials.values()),
        machine.ledger.spent,
        history.best,
    )


def callbacks_of(spec: JobSpec, problem: Problem, data_folder: Path) -> TrialCallbacks:
    """The callbacks of a specification.

    Args:
        spec: The specification.
        problem: Its problem.
        data_folder: Where Tradewind keeps its data.

    Raises:
        MissingProgramError: The package of one is not installed.
        SpecError: The settings of one are wrong.
    """
    with spec.placed(("callbacks",)):
        return TrialCallbacks(spec.callbacks, problem, spec.base, data_folder)


def write_trials(
    choice: PluginChoice, study: StudyRow, problem: Problem, store: Store, base: Path, data_folder: Path
) -> tuple[int, str]:
    """Give all trials of a study that have ended to a callback, those that are there already left out.

    Args:
        choice: The callback, with its settings.
        study: The row of the study.
        problem: Its problem.
        store: Where it is kept.
        base: The folder that relative paths in the settings start in.
        data_folder: Where Tradewind keeps its data.

    Returns:
        How many trials were written, and where.

    Raises:
        DeployError: The tracker does not take them.
        MissingProgramError: Its package is not installed.
        SpecError: A setting is wrong.
    """
    (part, settings), *_ = TrialCallbacks([choice], problem, base, data_folder)._made
    last = {run.trial: run for run in store.runs(study.id)}
    summary = store.summaries([study.id])[0]
    try:
        callback = part(settings=settings, study=_facts(study, problem, base, data_folder))
        known = set(callback.open())
        ended = [trial for trial in store.trials(study.id) if trial.state.ended]
        for trial in ended:
            if trial.number not in known:
                _Waiting(trial, last.get(trial.number)).give(callback)
        status: Literal["finished", "interrupted"] = "interrupted" if study.state == "interrupted" else "finished"
        callback.close(SessionEnd(status, study.reason, len(ended), summary.spent, summary.best))
    except TradewindError:
        raise
    except Exception as error:  # whatever a tracker raises
        raise DeployError(f"{part.name}: {_words(error)}") from error
    return sum(trial.number not in known for trial in ended), callback.place


def _facts(study: StudyRow, problem: Problem, base: Path, data_folder: Path) -> StudyFacts:
    return StudyFacts(
        study.id,
        study.name,
        study.owner,
        str(study.spec.get("searcher", "")),
        study.seed,
        study.created,
        problem,
        base,
        data_folder,
    )


def _words(error: Exception) -> str:
    """The words of an error, in one line."""
    words = error.message if isinstance(error, TradewindError) else f"{type(error).__name__}: {error}"
    words = hide_passwords(words)
    return " ".join(words.split())[:_REASON_LENGTH]


class _CallbackThread:
    """One callback, and the trials that it has not taken yet, each as it stands."""

    def __init__(self, part: type[Callback], settings: plugins.Settings, study: StudyFacts) -> None:
        self._part, self._settings, self._study = part, settings, study
        self._place = part.name
        self._callback: Callback | None = None
        self._queue: queue.SimpleQueue[_Waiting | _End] = queue.SimpleQueue()
        self._waiting: dict[int, _Waiting] = {}
        self._known: set[int] = set()
        self._logged: set[int] = set()
        self._missing: set[int] = set()
        self._error = ""
        self._said = False
        self._next = 0.0
        self._progress = time.monotonic()
        self._thread = threading.Thread(target=self._work, name=f"tradewind-{part.name}", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def put(self, waiting: _Waiting) -> None:
        """Have a trial written."""
        if waiting.ended:
            self._missing.add(waiting.trial.number)
        self._queue.put(waiting)

    def finish(self, end: SessionEnd | None) -> None:
        """Have the end written, after all trials."""
        self._progress = time.monotonic()
        self._queue.put(_End(end))

    def wait(self) -> int:
        """Wait for the thread, and say what is missing; how many trials."""
        while self._thread.is_alive() and time.monotonic() - self._progress < _PATIENCE:
            self._thread.join(_LOOK)
        if self._thread.is_alive():
            self._error = f"nothing was done for {_PATIENCE:g} seconds"
        missing = len(self._missing)
        if self._error:
            what = count(missing, "trial") if missing else "the end"
            again = f"tradewind export {self._study.name} --to {self._part.name} tries again"
            _log.warning("%s: %s could not be written: %s; %s", self._place, what, self._error, again)
        return missing

    def _work(self) -> None:
        end: _End | None = None
        self._catch_up()
        while end is None:
            given = [self._queue.get()]
            given += [self._queue.get() for _ in range(self._queue.qsize())]  # what has ended meanwhile is given once
            for one in given:
                if isinstance(one, _End):
                    end = one
                    self._next = 0.0
                    self._waiting = {number: each for number, each in self._waiting.items() if each.ended}
                else:
                    self._take(one)
            self._catch_up()
        if self._callback is None or end.session is None:
            return
        try:
            self._callback.close(end.session)
        except Exception as error:  # whatever a tracker raises
            self._note(error)

    def _take(self, given: _Waiting) -> None:
        """Let a trial wait for its turn, unless it is there with its end."""
        number = given.trial.number
        if number in self._known:
            self._missing.discard(number)
        elif given.ended or number not in self._logged:  # what was read of it while it ended comes too late
            self._waiting[number] = given

    def _catch_up(self) -> None:
        """Give all that waits, unless something failed a moment ago; a trial that fails is the last one from then."""
        if time.monotonic() < self._next or not (self._callback is not None or self._open()):
            return
        failures = 0
        for number in list(self._waiting):
            if self._callback is None or number not in self._waiting:
                continue
            try:
                self._waiting[number].give(self._callback)
            except Exception as error:  # whatever a tracker raises
                failures += 1
                self._waiting[number] = self._waiting.pop(number)
                self._note(error)
                if failures == _FAILURES or not self._open():
                    return
            else:
                if self._waiting[number].ended:
                    self._logged.add(number)
                self._forget(number)
                failures = 0
        if not self._waiting:
            self._error = ""

    def _forget(self, number: int) -> None:
        """Note that a trial is written as it stands."""
        if (given := self._waiting.pop(number, None)) is None or given.ended:
            self._missing.discard(number)
        self._progress = time.monotonic()

    def _open(self) -> bool:
        """Make the callback and see what is there; False if it cannot be used."""
        try:
            made = self._part(settings=self._settings, study=self._study)
            self._place = made.place
            self._known = set(made.open())
        except Exception as error:  # whatever a tracker raises
            self._note(error)
            return False
        self._callback, self._place, self._next = made, made.place, 0.0
        for number in self._known:
            self._forget(number)
        return True

    def _note(self, error: Exception) -> None:
        """Say the first failure, and remember the latest."""
        self._error = _words(error)
        self._callback, self._next = None, time.monotonic() + _RETRY
        if not self._said:
            self._said = True
            later = "the search goes on, and its trials are written later"
            _log.warning("%s: %s; %s", self._place, self._error, later)
