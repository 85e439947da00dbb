"""A study from Python: ask for configurations, run them yourself, tell what happened."""

from __future__ import annotations

import os
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from tradewind.engine.ask_tell.asked_trial import (
    Asked,
    CallbackChoices,
    RunOutcome,
    TrialEnd,
    asked_count,
    asked_trial,
    check_given_back,
    checked_store,
    named_trial,
    not_asked,
    read_job,
)
from tradewind.engine.ask_tell.shared_replica import LEASE_SECONDS
from tradewind.engine.ask_tell.shared_study import SharedStudy
from tradewind.engine.function_calls import call_for_trial, check_plain_function
from tradewind.engine.past_studies import with_past_studies
from tradewind.engine.progress import OptimiseProgress
from tradewind.engine.proposals import (
    ask_searcher,
    enqueued_proposal,
    first_proposals,
    known_trial_words,
    refresh_held_study,
    restore_searcher_state,
    searcher_state_fields,
)
from tradewind.engine.records.trial_callbacks import ReportsReader, callbacks_of, session_end
from tradewind.engine.search_builder import (
    ask_tell_machine,
    build_problem,
    build_searcher,
    find_or_new_study,
    refuse_queued,
    stored_study,
)
from tradewind.engine.state_machine.events import (
    AskSearcher,
    ConfigurationEnqueued,
    InterpretOutput,
    Launch,
    OutputInterpreted,
    RunChanged,
    SearchEvent,
    SearchInstruction,
    SearchOpened,
    TellSearcher,
    Tick,
    WriteRows,
)
from tradewind.engine.study_view import TrialList, study_html, study_text
from tradewind.errors import ConfigurationError, StudyBusyError
from tradewind.problem import Run, RunState, Trial, Value
from tradewind.store.base import Change, Store, StudyRow, store_at, this_process
from tradewind.utils.clock import SystemClock
from tradewind.utils.interrupts import delayed_interrupt
from tradewind.utils.paths import data_folder
from tradewind.utils.processes import Moment

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


_LEASE = 24 * 3600.0
"""Seconds a study stays taken between two calls; a process that has died lets go of it at once."""

_RENEWED_AFTER = 600.0
"""Seconds after which a call takes it for that long anew."""

_open_here: weakref.WeakValueDictionary[str, Study] = weakref.WeakValueDictionary()
"""The studies that are open in this process, by their owner's tag."""


class Study:
    """A search whose trials you run yourself. Everything told is in the store before the call returns.

    Use it as a context manager. A study of the same name and problem goes on where it was left: what was asked for
    and never told comes first. Any thread may call it; `AsyncStudy` is the same for asyncio. It belongs to the process
    that opened it: a forked child may only read, and it cannot be pickled.

    Args:
        source: A job YAML's path, or the same as a mapping; ``job`` may be left out of a mapping.
        store: Address of the store; the user's own without it.
        fresh: Start anew even if there is a study to go on with.
        callbacks: Where trials are written, too, while they run, instead of what the job says: ``["mlflow"]``, or
            ``[{"use": "tensorboard", "folder": "runs"}]``. `close` waits until they are written.

    Raises:
        MissingProgramError: The package of a callback is not installed.
        SpecError: The specification is wrong.
        StudyBusyError: Another live process runs this study, or another `Study` of this process.
    """

    def __init__(
        self,
        source: Path | str | Mapping[str, Any],
        *,
        store: str | None = None,
        fresh: bool = False,
        callbacks: CallbackChoices | None = None,
    ) -> None:
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._closed = self._failed = False
        self.spec = read_job(source, callbacks)
        if self.spec.early_stop is not None:
            raise self.spec.error(
                ("early_stop",),
                "early_stop: nobody watches a function or your own loop while it runs",
                "take it out, or let tradewind tune run the program",
            )
        if not isinstance(fresh, bool):
            raise ConfigurationError(f"fresh={fresh!r} is no choice", hint="write True or False")
        self._store: Store = store_at(checked_store(store))
        self._problem = build_problem(self.spec, data_folder())
        self._callbacks = callbacks_of(self.spec, self._problem, data_folder())
        row, _ = find_or_new_study(self.spec, self._store, fresh=fresh)
        if not fresh:
            refuse_queued(self.spec, row, self._store)
        self._prepare(row)
        self.row, new = stored_study(row, self.spec, self._store, fresh=fresh)  # what is refused leaves none behind
        if not new and not row.id:
            self._prepare(self.row)  # another process was quicker
        self._asked: dict[int, Asked] = {}
        self._new: list[Asked] = []
        self._results: dict[int, tuple[Run, dict[str, float]]] = {}  # of a `tell` that has not returned, by trial
        self._unreturned: set[int] = set()  # the trials of a `tell` that was interrupted after all was stored
        self._damaged = False
        self._events: deque[SearchEvent] = deque()
        self._instructions: deque[SearchInstruction] = deque()
        # Written with the first rows: who opens a study that is finished to look at it leaves it so.
        self._present: dict[str, Any] = {"state": "open", "reason": "", "spec": self.row.spec}
        other = _open_here.get(self.row.owner)
        if other is not None and other._process == os.getpid():
            raise StudyBusyError(
                f"the study {self.row.name!r} is open already in this process",
                hint="go on with the Study that you have, or close() it first",
            )
        self._token = self._store.hold(self.row.id, this_process(), _LEASE)
        _open_here[self.row.owner] = self
        self._held = Moment.now()
        self.row = refresh_held_study(self._store, self.row)
        self._callbacks.begin(self.row, self._store.trials(self.row.id), self._store.runs(self.row.id))
        self._open()

    @staticmethod
    def open(
        store: str | None = None,
        source: Path | str | Mapping[str, Any] | None = None,
        *,
        lease: float = LEASE_SECONDS,
        callbacks: CallbackChoices | None = None,
    ) -> SharedStudy:
        """Open a study for one of several workers: any number of processes and hosts may ask and tell at once.

        Args:
            store: Address of the store; the user's own without it.
            source: A job YAML's path, or the same as a mapping: the study is made where there is none. Or the name of a
                study that is there; without it, the newest one.
            lease: Seconds after which a worker that says nothing has lost its trials to the others.
            callbacks: Where trials are written, too, while they run; each worker writes those that it tells.

        Raises:
            StudyNotFoundError: There is no study of that name.
            StudyBusyError: A process runs it alone, or a cluster does.
        """
        return SharedStudy(store, source, lease=lease, callbacks=callbacks)

    def _open(self) -> None:
        restore_searcher_state(self._searcher, self.row)
        trials, runs = self._store.trials(self.row.id), self._store.runs(self.row.id)
        first = first_proposals(self.spec, self._problem, trials).proposals.values()
        self._feed(SearchOpened(trials, runs, self.row.elapsed, enqueued=list(first)))

    def _prepare(self, row: StudyRow) -> None:
        """Make the parts of the search of a study, which need not be stored yet."""
        self._problem = with_past_studies(self._problem, self.spec, row, self._store)
        self._searcher = build_searcher(self.spec, self._problem)
        first_proposals(self.spec, self._problem, ())  # what is wrong with them is said before the study is stored
        self._machine = ask_tell_machine(self.spec, self._problem, self._searcher, row.owner)

    # ------------------------------------------------------------------ asking and telling

    def enqueue(self, configuration: Mapping[str, Value]) -> Trial:
        """Have a configuration tried before all that the searcher proposes; it is stored when the call returns.

        What is enqueued comes from `ask` in this order, also after a crash. It is a trial as any other: it counts in
        the budget, and the searcher learns from it.

        Args:
            configuration: Values of some or all parameters. Of machines that are left open it gets the cheapest that
                fit, of other parameters the middle of the scale, or the first value where there is no order.

        Returns:
            The new trial. Of a configuration that is on its way, or was tried before, the trial that there is, with
            a warning: it is not tried again.

        Raises:
            ConfigurationError: It is not in the space, nobody sells it, or the study has ended.
            StoreError: It could not be written; the next call writes it.
        """
        with self._exclusively("enqueue"):
            self._hold_on()
            self._carry_out()
            found = enqueued_proposal(self._problem, self._machine, configuration)
            if isinstance(found, Trial):
                warnings.warn(known_trial_words(found), stacklevel=2)
                return found
            self._feed(ConfigurationEnqueued(found))
            return self._machine.history.pending[-1]

    def ask(self, count: int = 1) -> list[Asked]:
        """Configurations to run, at most ``count``.

        Fewer, or none, come back when the budget or the space is used up, or when the searcher first wants to be
        told of what is on its way; `finished` says why.
        """
        wanted = asked_count(count)
        with self._exclusively("ask"):
            self._hold_on()
            self._carry_out()
            if not self._new:
                self._machine.parallel = len(self._machine.runs) + wanted
                try:
                    self._feed(Tick())
                finally:
                    self._machine.parallel = 0
            given = self._new[:wanted]
            try:
                with self._changing():
                    del self._new[:wanted]
                    self._asked.update({asked.number: asked for asked in given})
                    for asked in given:  # a lost run that comes back is to be told anew
                        self._results.pop(asked.number, None)
                        self._unreturned.discard(asked.number)
            except BaseException:  # interrupted: nobody gets them
                self.give_back(given)
                raise
            return given

    def give_back(self, asked: Sequence[Asked]) -> None:
        """Return trials that nobody runs: the next `ask` gives them out again. What was told already stays told.

        Raises:
            ConfigurationError: It is not what `ask` returned.
        """
        check_given_back(asked)
        with self._exclusively("give_back"), self._changing():
            back = [one for one in asked if self._asked.get(one.number) == one and one.number not in self._results]
            for one in back:
                del self._asked[one.number]
            self._new[:0] = back

    @property
    def pending(self) -> list[Asked]:
        """The trials that were asked for and wait to be told, by number."""
        with self._reading():
            return [self._asked[number] for number in sorted(self._asked.keys() - self._results.keys())]

    def tell(
        self,
        asked: Asked | int,
        *,
        runtime: float,
        metrics: Mapping[str, float] | None = None,
        cost: float | None = None,
        state: TrialEnd = "succeeded",
        reason: str = "",
    ) -> Trial:
        """Say what a run did. A call that raised can be repeated.

        What the store could not take is kept, and written first at the next call; what was told first counts.

        Args:
            asked: The trial, or its number.
            runtime: Seconds that it took.
            metrics: What it measured, by name. A trial whose objective is NaN or infinite has failed.
            cost: USD that it cost; the offer's price for the run time without it.
            state: ``failed`` for the program's fault, ``aborted`` if you cut it short, ``lost`` for the machine's
                fault: a lost run comes back from `ask`.
            reason: Why, in words.

        Returns:
            The trial as it is stored now.

        Raises:
            ConfigurationError: No such trial is waiting to be told, or what is told of it makes no sense.
            StoreError: It could not be written.
        """
        number = named_trial(asked)
        stored = False
        try:
            with self._exclusively("tell"):
                self._hold_on()
                self._carry_out()
                stored = number in self._unreturned
                if not stored and number not in self._results:
                    self._take_result(number, RunOutcome(runtime, metrics, cost, state, reason))
                with self._changing():
                    stored = True
                    self._asked.pop(number, None)
                    self._results.pop(number, None)
                    self._unreturned.discard(number)
                return self._machine.history.trials[number]
        except BaseException:
            if stored:  # interrupted on its way back: whoever repeats the call gets the trial
                self._unreturned.add(number)
            raise

    def _take_result(self, number: int, outcome: RunOutcome) -> None:
        """Check and store what `tell` says of a trial."""
        run = next((run for run in self._machine.runs.values() if run.trial == number), None)
        if run is None or number not in self._asked:
            raise not_asked(number, self._machine.history.trials.get(number))
        ended, measured = outcome.checked(self._problem, self._machine.history.trials[number], run)
        with self._changing():
            self._results[number] = ended, measured
            self._events.append(RunChanged(ended))
        self._carry_out()

    def optimise(
        self,
        function: Callable[..., float | Mapping[str, float] | None],
        trials: int | None = None,
        *,
        progress: bool | None = None,
    ) -> Trial | None:
        """Let Tradewind call a Python function with each configuration as keyword arguments.

        The function returns the objective's value, or a mapping of metrics, or None when the objective is its run
        time or its cost; it may also call `tradewind.report`. An exception makes the trial failed.

        Args:
            function: What to call.
            trials: How many times at most, now; until the budget or the space is used up without it.
            progress: Show a progress bar, or do not; without it one is shown on a terminal and in a notebook, and
                none in a pipe, in a file, or where the variable ``CI`` is set.

        Returns:
            The best trial, or None.

        Raises:
            ConfigurationError: ``function`` cannot be called, ``trials`` is no number of calls, or ``progress`` is
                neither True nor False nor None.
        """
        check_plain_function(function)
        with self.progress_bar(trials, shown=progress) as bar:
            return self._optimise(function, trials, bar.update)

    def progress_bar(self, trials: int | None = None, *, shown: bool | None = None) -> OptimiseProgress:
        """The progress bar of `optimise`, for loops of `ask` and `tell`: a context manager with `update`.

        Args:
            trials: Trials at most, now; until the budget or the space is used up without it.
            shown: Show it, or do not; as ``progress`` of `optimise`.

        Raises:
            ConfigurationError: ``trials`` is no number of calls, or ``shown`` is neither True nor False nor None.
        """
        return OptimiseProgress(self, self._problem, trials, shown)

    def _optimise(
        self, function: Callable[..., Any], trials: int | None, after_trial: Callable[[], object]
    ) -> Trial | None:
        done = 0
        while trials is None or done < trials:
            given = self.ask()
            if not given:
                break
            try:
                self.tell(
                    given[0], **call_for_trial(function, given[0], self.objective_metric, self._reports_of(given[0]))
                )
            except BaseException:  # Ctrl-C, or the end of the interpreter
                self.give_back(given)
                raise
            done += 1
            after_trial()
        return self.best

    def _reports_of(self, asked: Asked) -> ReportsReader | None:
        """A reader for the callbacks of what a call reports over its steps."""
        return self._callbacks.read_reports(asked.number)

    # ------------------------------------------------------------------ reading

    @property
    def objective_metric(self) -> str:
        """The metric that is made small or large; ``cost`` or ``runtime`` where it is none of yours."""
        return self._problem.objective.metric

    @property
    def best(self) -> Trial | None:
        """The best feasible trial, or None."""
        with self._reading():
            return self._machine.history.best

    @property
    def best_configuration(self) -> dict[str, Value] | None:
        """The best feasible trial's values, or None."""
        return dict(best.configuration) if (best := self.best) else None

    @property
    def trials(self) -> list[Trial]:
        """All trials, by number. In a notebook the list shows itself as a table."""
        with self._reading():
            history = self._machine.history
            best = history.best.number if history.best else None
            return TrialList([history.trials[n] for n in sorted(history.trials)], self._problem.objective, best)

    @property
    def spent(self) -> float:
        """USD, total."""
        return self._machine.ledger.spent

    @property
    def finished(self) -> str | None:
        """The reason why the study proposes nothing more, or None."""
        return stopped.reason if (stopped := self._machine.stopped) else None

    @property
    def store_url(self) -> str:
        """Address of the store that the study is in."""
        return self._store.url

    def to_pandas(self) -> pd.DataFrame:
        """One row a trial, as ``tradewind export`` has it; needs ``pip install 'tradewind[pandas]'``."""
        from tradewind.store.studies import tabular

        return tabular.to_pandas(tabular.frame_columns(self._store, self.row.id))

    def to_polars(self) -> pl.DataFrame:
        """One row a trial, as ``tradewind export`` has it; needs ``pip install 'tradewind[polars]'``."""
        from tradewind.store.studies import tabular

        return tabular.to_polars(tabular.frame_columns(self._store, self.row.id))

    def close(self) -> None:
        """Let go of the study; it can be opened again, by any process. A forked child has nothing to let go of.

        Raises:
            StoreError: What was told could still not be written.
        """
        if self._process != os.getpid() or self._closed:
            return
        with self._lock:
            try:
                if self._results:
                    self._repair()
                    self._carry_out()
            finally:
                self._closed = True
                _open_here.pop(self.row.owner, None)
                self._store.release(self.row.id, self._token)
                self._store.close()
                self._callbacks.finish(session_end(self._machine, failed=self._failed))

    def __reduce__(self) -> NoReturn:
        raise ConfigurationError(
            "a Study cannot be pickled: it belongs to the process that opened it",
            hint="send what `ask` returned, and `tell` here; or close it here, and open it there",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._failed = kind is not None
        self.close()

    def __repr__(self) -> str:
        return study_text(self, self._problem.objective)

    def _repr_html_(self) -> str:
        return study_html(self, self._problem.objective)

    # ------------------------------------------------------------------ the state machine

    @contextmanager
    def _exclusively(self, call: str) -> Generator[None]:
        """Let one thread at a time change the study, in the process that it belongs to."""
        if self._process != os.getpid():
            raise ConfigurationError(
                f"{call}: this Study belongs to process {self._process}; this one, {os.getpid()}, was forked from it",
                hint="ask and tell in the process that opened it, and hand the results to it",
            )
        with self._lock:
            if self._closed:
                raise ConfigurationError(f"{call}: this Study was closed", hint="open it again: Study(...)")
            self._repair()
            yield

    @contextmanager
    def _changing(self) -> Generator[None]:
        """Note that an interrupt has come between changes that belong together; Ctrl-C waits until they are made."""
        with delayed_interrupt():
            try:
                yield
            except BaseException:
                self._damaged = True
                raise

    def _repair(self) -> None:
        """Make the search anew out of the store, after an interrupt that left it half-way; nothing told is lost."""
        if not self._damaged:
            return
        self.row = refresh_held_study(self._store, self.row)
        self._prepare(self.row)
        self._events.clear()
        self._instructions.clear()
        self._new.clear()
        self._open()  # gives out every run that has not ended
        self._new = [asked for asked in self._new if asked.number not in self._asked]
        self._damaged = False
        for ended in [run for run, _ in self._results.values() if run.run_id in self._machine.runs]:
            self._feed(RunChanged(ended))

    @contextmanager
    def _reading(self) -> Generator[None]:
        if self._process != os.getpid():
            yield  # a copy that nobody changes; another thread may have held the lock when it was made
            return
        with self._lock:
            yield

    def _hold_on(self) -> None:
        if self._held.ago() > _RENEWED_AFTER:
            self._store.renew(self.row.id, self._token, _LEASE)
            self._held = Moment.now()

    def _feed(self, event: SearchEvent) -> None:
        self._events.append(event)
        self._carry_out()

    def _carry_out(self) -> None:
        """Do all that is to be done, in order; what an error or an interrupt leaves is done at the next call."""
        while self._instructions or self._events:
            if not self._instructions:
                with self._changing():
                    self._instructions.extend(self._machine.handle(self._events.popleft(), SystemClock().now()))
                continue
            # What fails or is interrupted stays the first: nobody is to hear of what is not in the store, and a
            # searcher that has raised is asked again.
            instruction = self._instructions[0]
            events = self._perform(instruction)
            with self._changing():
                if isinstance(instruction, Launch):
                    self._new.append(asked_trial(instruction.trial, instruction.wall_seconds))
                self._instructions.popleft()
                self._events.extend(events)

    def _perform(self, instruction: SearchInstruction) -> Sequence[SearchEvent]:
        """Do what changes nothing when it is done twice.

        Returns:
            What happened.
        """
        match instruction:
            case WriteRows() as rows:
                self._write(rows)
            case AskSearcher(count):
                return [ask_searcher(self._machine, self._searcher, count)]
            case TellSearcher(trial):
                self._searcher.tell(trial)
            case Launch(_, run):
                return [RunChanged(replace(run, state=RunState.EXECUTING))]
            case InterpretOutput(_, run):
                return [OutputInterpreted(run.run_id, self._results[run.trial][1])]
        return []

    def _write(self, rows: WriteRows) -> None:
        trials, runs = rows.trials, rows.runs
        every = {**self._present, **rows.study, **searcher_state_fields(self._searcher)}
        # What was only asked for need not wait for the disk: who asked dies in a power cut, too.
        ended = not runs or any(t.state.ended for t in trials) or any(r.state.ended for r in runs)
        self._store.write(self.row.id, Change(trials, runs, every, lasting=ended), self._token)
        self._callbacks.wrote(trials, runs)
        self._present = {}
