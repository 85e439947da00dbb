"""A study that several workers share: processes of one host or of many, each with its own database connection."""

from __future__ import annotations

import json
import math
import os
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

from tradewind.engine.ask_tell.asked_trial import (
    Asked,
    CallbackChoices,
    RunOutcome,
    TrialEnd,
    as_number,
    asked_count,
    asked_trial,
    check_calls,
    check_given_back,
    checked_store,
    found_study,
    named_trial,
    not_asked,
)
from tradewind.engine.ask_tell.proposed_ahead import AheadCount, may_propose_ahead
from tradewind.engine.function_calls import call_for_trial, check_callable
from tradewind.engine.past_studies import with_past_studies
from tradewind.engine.proposals import (
    ask_searcher,
    enqueued_proposal,
    first_proposals,
    known_trial_words,
    restore_searcher_state,
    searcher_state_fields,
)
from tradewind.engine.records.trial_callbacks import callbacks_of, session_end
from tradewind.engine.search_builder import (
    ask_tell_machine,
    build_problem,
    build_searcher,
    refuse_queued,
    study_document,
)
from tradewind.engine.state_machine import events as ev
from tradewind.errors import ConfigurationError, TradewindError
from tradewind.problem import Run, RunState, Trial, Value
from tradewind.store.base import Change, Store, store_at, this_process
from tradewind.store.studies.study_workers import AHEAD, SharedChanges, SharedStep
from tradewind.utils.clock import SystemClock
from tradewind.utils.paths import data_folder
from tradewind.utils.processes import Moment

LEASE_SECONDS = 120.0
"""Seconds after which a worker that says nothing has lost its trials to the others; one of this host that has died has
lost them at once."""

_HEARTBEAT = 0.25
"""Share of the lease after which it is renewed."""

_LIVE_SECONDS = 1.0
"""Seconds for which it counts who was seen alive."""

_JUST_NOW = 60.0
"""Seconds for which a trial is left to the callbacks of the worker that told it."""

_PATIENCE = 0.1
"""Seconds between two looks whether others have left something to do."""


class SharedStudy:
    """A study whose trials any number of workers run at once; `Study.open` opens it.

    Each worker asks and tells as with a `Study`. Each trial is handed to exactly one of them; one that dies gives its
    trials back when its lease ends, and on its own host at once. All that is told is in the store before the call
    returns. Any thread may call it; it belongs to the process that opened it.

    Args:
        store: Address of the store; the user's own without it.
        source: A job YAML's path, or the same as a mapping: the study is made where there is none. A name of a study
            that is there; without it, the newest one.
        lease: Seconds after which a worker that says nothing has lost its trials.
        callbacks: Where trials are written, too, as for `Study`; each worker writes those that it tells.

    Raises:
        StudyNotFoundError: There is no study of that name.
        StudyBusyError: A process runs it alone, or a cluster does.
    """

    def __init__(
        self,
        store: str | None = None,
        source: Path | str | Mapping[str, Any] | None = None,
        *,
        lease: float = LEASE_SECONDS,
        callbacks: CallbackChoices | None = None,
    ) -> None:
        if isinstance(lease, bool) or not 0 < as_number(lease) < math.inf:
            raise ConfigurationError(f"lease={lease!r} is no time", hint="write seconds, more than 0")
        self._lock = threading.RLock()
        self._process, self._closed = os.getpid(), False
        self._lease = lease
        self._store: Store = store_at(checked_store(store))
        try:
            self.spec, self.row = found_study(self._store, source, callbacks)
            refuse_queued(self.spec, self.row, self._store)
            if self.spec.early_stop is not None:
                raise self.spec.error(("early_stop",), "early_stop: nobody watches your own loop while it runs")
            self._problem = build_problem(self.spec, data_folder())
            self._callbacks = callbacks_of(self.spec, self._problem, data_folder())
            self._prepare()
            self._workers = self._store.workers(self.row.id)
            self._holder = this_process()
            self._token = self._workers.join(self._holder, self._lease)
            self._renewed = Moment.now()
        except BaseException:
            self._store.close()
            raise
        self._asked: dict[int, Asked] = {}
        self._new: list[Asked] = []
        self._told: dict[int, dict[str, float]] = {}  # the metrics of a `tell` on its way, by trial
        self._sent: dict[int, Run] = {}  # the run of it as it ended
        self._unreturned: set[int] = set()  # the trials of a `tell` that was interrupted after all was stored
        self._present: dict[str, Any] = {"state": "open", "reason": "", "spec": study_document(self.spec)}
        self._written: list[tuple[Sequence[Trial], Sequence[Run]]] = []  # in the step that is on its way
        self._begin_callbacks()
        self._open()
        self._end = threading.Event()
        self._heart = threading.Thread(target=self._beat, name=f"study-{self.row.id}-lease", daemon=True)
        self._heart.start()

    # ------------------------------------------------------------------ asking and telling

    def ask(self, count: int = 1) -> list[Asked]:
        """Configurations to run, at most ``count``: those first that a worker has given back, or died with.

        Fewer, or none, come back when the budget or the space is used up, or when the searcher first wants to be told
        of what is on its way; `finished` says why.
        """
        wanted = asked_count(count)
        given: list[Asked] = []
        with self._exclusively("ask"):
            try:
                taken = None
                if self._goes_ahead:
                    with self._step("ask", lasting=False, catch_up=False) as step:
                        taken = self._take_free(step, wanted)
                given = taken or []
                if taken is None:
                    with self._step("ask", lasting=False, ahead=True) as step:
                        given = self._hand_out(step, wanted)
                        self._others_run = bool(self._machine.runs)
                self._asked |= {asked.number: asked for asked in given}
                return given
            except BaseException:  # interrupted: nobody got them, so that the next `ask` gives them out
                for asked in given:
                    self._asked.pop(asked.number, None)
                raise

    @property
    def _goes_ahead(self) -> bool:
        """True where trials are proposed before anybody asks: many ask at once, and no result decides what is next."""
        may = self._is_free and self._workers.at_hand
        return may and self._ahead.worth > 0 and self._machine.ending is None

    def _take_free(self, step: SharedStep, wanted: int) -> list[Asked] | None:
        """Take trials that nobody has, without what others have changed; None where that is to be known.

        So most workers need not take in what all others find. The one that has made the last proposals does, and
        makes the next ones in time.
        """
        if step.state == "finished":
            return [] if self._is_finished() else None
        few, most = self._ahead.worth // 2, self.spec.budget.trials
        free = step.free(wanted + few)
        self._ahead.many = True
        if free.waits or self._forgotten():
            return None
        if most is None or free.newest + 1 < most:
            proposed_last = free.newest + 1 == self._machine.history.next_number
            if len(free.running) < wanted + (few if proposed_last else 0):
                return None
        elif not free.running:  # all are proposed
            return [] if self._all_live(step) else None
        self._number = step.last()
        given = []
        for number in free.running[:wanted]:
            trial, runs = step.trial(number)
            self._feed(step, ev.ChangedElsewhere([trial], runs))
            given.append(asked_trial(trial, self._cap(runs[-1])))
        self._keep(step, given)
        return given

    def _is_finished(self) -> bool:
        """True where another worker has found that the study is over, by the same job as this one's."""
        row = self._store.study(self.row.id)
        if row.spec == study_document(self.spec):
            self._finished = row.reason
        return bool(self._finished)

    def _all_live(self, step: SharedStep) -> bool:
        """True where some trials are open, and each is with a worker that is alive."""
        self._look_now_and_then(step)
        workers = set(step.open().values())
        if workers - self._live:
            self._look_who_lives(step)
        self._others_run = bool(workers) and workers <= self._live
        return self._others_run

    def _hand_out(self, step: SharedStep, wanted: int) -> list[Asked]:
        """Trials for whoever asks: given back, enqueued, proposed ahead or new, in this order."""
        given = self._abandoned(step, wanted)
        if not given:
            history, runs = self._machine.history, self._machine.runs
            ahead = sorted((run for run in runs.values() if self._owners.get(run.trial) == AHEAD), key=_by_trial)
            if len(history.pending) == len(runs):  # nothing waits to be started
                given = self._handed(ahead[:wanted])
            lacking = 0 if given else wanted
            spare = self._ahead.worth - len(ahead) + len(given) if self._goes_ahead else 0
            if lacking or spare > self._ahead.worth // 2:
                given += self._propose(step, lacking, max(0, spare))
        if not given:
            self._look_who_lives(step)
            given = self._abandoned(step, wanted)
        if given:
            self._keep(step, given)
        return given

    def _propose(self, step: SharedStep, wanted: int, spare: int) -> list[Asked]:
        """Have the searcher asked for so many trials, and for some that are handed out later."""
        self._machine.parallel = len(self._machine.runs) + wanted + spare
        self._feed(step, ev.Tick())
        self._machine.parallel = 0
        new, self._new = self._new, []
        if len(new) > wanted:
            self._write(step, ev.WriteRows(), {asked.number: AHEAD for asked in new[wanted:]})
        return new[:wanted]

    def _keep(self, step: SharedStep, given: Sequence[Asked]) -> None:
        """Write that this worker has these trials."""
        self._write(step, ev.WriteRows(), {asked.number: self._token for asked in given})
        if self.spec.callbacks:  # also of those that another worker has begun
            self._written.append(([self._machine.history.trials[one.number] for one in given], ()))

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
        """Say what a run did, as `Study.tell`; a call that raised can be repeated.

        A result that comes after the lease counts, unless another worker has told the trial: then the first result
        counts, with a warning.

        Returns:
            The trial as it is stored now.

        Raises:
            ConfigurationError: No such trial is waiting to be told here, or what is told of it makes no sense.
            StoreError: It could not be written.
        """
        number = named_trial(asked)
        stored = False
        try:
            with self._exclusively("tell"):
                with self._step("tell", lasting=True, catch_up=not self._tells_alone) as step:
                    if number in self._unreturned or self._is_stored(number):  # a call that was interrupted is repeated
                        self._catch_up(step)
                        counts = True
                    else:
                        counts = self._take_result(step, number, RunOutcome(runtime, metrics, cost, state, reason))
                    trial = self._machine.history.trials[number]
                stored = True
                for kept in (self._told, self._asked, self._sent):
                    kept.pop(number, None)
                self._unreturned.discard(number)
            if not counts:
                warnings.warn(
                    f"trial {number} was told by another worker after its lease had ended: the first result counts",
                    stacklevel=2,
                )
            return trial
        except BaseException:
            if stored:  # whoever repeats the call gets the trial
                self._unreturned.add(number)
            raise

    def _take_result(self, step: SharedStep, number: int, outcome: RunOutcome) -> bool:
        """Check and write what `tell` says of a trial; False where another worker has told it already."""
        run = self._run_of(number)
        alone = self._tells_alone and run is not None and step.stands(number, run.attempt)
        if alone and self._workers.at_hand:  # who tells the last one ends the study
            alone = not step.is_last(number, self.spec.budget.trials)
        if alone:
            self._number = step.last()
        else:
            self._catch_up(step)
            run = self._run_of(number)
        trial = self._machine.history.trials.get(number)
        if number not in self._asked or trial is None:
            raise not_asked(number, trial)
        if run is None:
            return False
        self._sent[number], self._told[number] = outcome.checked(self._problem, trial, run)
        self._feed(step, ev.RunChanged(self._sent[number]))
        return True

    def _is_stored(self, number: int) -> bool:
        """True where a `tell` of this trial was interrupted, but after the store had taken it."""
        if (sent := self._sent.get(number)) is None:
            return False
        return any(
            (run.attempt, run.ended) == (sent.attempt, sent.ended)
            for run in self._store.runs(self.row.id, trial=number)
        )

    def give_back(self, asked: Sequence[Asked]) -> None:
        """Return trials that nobody here runs: the next `ask` of any worker gives them out again.

        Raises:
            ConfigurationError: It is not what `ask` returned.
        """
        check_given_back(asked)
        with self._exclusively("give_back"):
            back = [one.number for one in asked if one.number in self._asked]
            with self._step("give_back", lasting=False) as step:
                running = {run.trial for run in self._machine.runs.values()}
                mine: dict[int, str | None] = {
                    number: None for number in back if number in running and self._owners.get(number) == self._token
                }
                if mine:
                    self._write(step, ev.WriteRows(), mine)
            for number in back:
                self._asked.pop(number, None)

    def enqueue(self, configuration: Mapping[str, Value]) -> Trial:
        """Have a configuration tried before all that the searcher proposes, by whichever worker asks next.

        Returns:
            The new trial. Of a configuration that is on its way, or was tried before, the trial that there is, with
            a warning.

        Raises:
            ConfigurationError: It is not in the space, nobody sells it, or the study has ended.
        """
        with self._step("enqueue", lasting=True) as step:
            found = enqueued_proposal(self._problem, self._machine, configuration)
            if isinstance(found, Trial):
                warnings.warn(known_trial_words(found), stacklevel=2)
                return found
            self._feed(step, ev.ConfigurationEnqueued(found))
            return self._machine.history.pending[-1]

    def optimise(self, function: Callable[..., Any], trials: int | None = None) -> Trial | None:
        """Call a function with each configuration that this worker is handed, as `Study.optimise`.

        Where nothing is left but trials of other workers it waits for their end: should one die, its trials come here.

        Args:
            function: What to call.
            trials: How many times at most, by this worker.

        Returns:
            The best trial of all workers, or None.

        Raises:
            ConfigurationError: ``function`` cannot be called, or ``trials`` is no number of calls.
        """
        check_callable(function)
        check_calls(trials)
        done = 0
        while trials is None or done < trials:
            given = self.ask()
            if not given:
                if self.finished is not None or not self._others_run:
                    break
                time.sleep(_PATIENCE)
                continue
            try:
                reports = self._callbacks.read_reports(given[0].number)
                self.tell(given[0], **call_for_trial(function, given[0], self._problem.objective.metric, reports))
            except BaseException:  # Ctrl-C, or the end of the interpreter
                self.give_back(given)
                raise
            done += 1
        return self.best

    # ------------------------------------------------------------------ reading

    @property
    def pending(self) -> list[Asked]:
        """The trials that this worker asked for and has not told, by number."""
        return [self._asked[number] for number in sorted(self._asked)]

    @property
    def trials(self) -> list[Trial]:
        """All trials of all workers as they are now, by number."""
        with self._step("trials", lasting=False):
            history = self._machine.history
            return [history.trials[number] for number in sorted(history.trials)]

    @property
    def best(self) -> Trial | None:
        """The best feasible trial of all workers as they are now, or None."""
        with self._step("best", lasting=False):
            return self._machine.history.best

    @property
    def best_configuration(self) -> dict[str, Value] | None:
        """The best feasible trial's values, or None."""
        return dict(best.configuration) if (best := self.best) else None

    @property
    def spent(self) -> float:
        """USD that all workers have spent as it is now, total."""
        with self._step("spent", lasting=False):
            return self._machine.ledger.spent

    @property
    def finished(self) -> str | None:
        """The reason why the study proposes nothing more, as of the last call, or None."""
        return stopped.reason if (stopped := self._machine.stopped) else self._finished or None

    @property
    def store_url(self) -> str:
        """Address of the store that the study is in."""
        return self._store.url

    def close(self) -> None:
        """Be a worker no more: what was asked for here and not told is for the others."""
        if self._process != os.getpid() or self._closed:
            return
        with self._lock:
            others = True
            if self.spec.callbacks:  # they are told how the study ended
                with suppress(TradewindError), self._step("close", lasting=False) as step:
                    others = bool(step.live() - {self._token})
            self._closed = True
            self._end.set()
            try:
                self._workers.leave(self._token)
            finally:
                self._store.close()
                self._callbacks.finish(None if others else session_end(self._machine, failed=False))

    def __reduce__(self) -> NoReturn:
        raise ConfigurationError("a study cannot be pickled", hint="each process opens it: Study.open(url)")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ------------------------------------------------------------------ the replica of the search

    def _begin_callbacks(self) -> None:
        """Have those trials written, too, that nobody else writes any more: what was told just now, its worker does."""
        if self.spec.callbacks:
            told = time.time() - _JUST_NOW
            left = [
                trial for trial in self._store.trials(self.row.id) if trial.ended is not None and trial.ended < told
            ]
            self._callbacks.begin(self.row, left, self._store.runs(self.row.id))

    def _prepare(self) -> None:
        self._problem = with_past_studies(self._problem, self.spec, self.row, self._store)
        self._searcher = build_searcher(self.spec, self._problem)
        self._machine = ask_tell_machine(self.spec, self._problem, self._searcher, self.row.owner)
        self._is_free = may_propose_ahead(self.spec, self._problem, self._searcher)

    def _open(self) -> None:
        """Make the search anew out of the store."""
        self._new = []
        self._owed: list[ev.WriteRows] = []  # what follows from others' changes, for the next step
        self._ahead = AheadCount()
        self._read_before = 0  # changes that were read before the step
        self._finished = ""  # why, as another worker has found
        self._others_run = False  # as of the last `ask` that got nothing
        self._number = 0  # of the last change of all
        self._owners: dict[int, str | None] = {}  # of the runs that have not ended
        self._live: set[str | None] = set()
        self._live_at = -math.inf
        self._damaged = False
        with self._workers.step(lasting=False) as step:
            self.row = self._store.study(self.row.id)
            restore_searcher_state(self._searcher, self.row)
            self._searcher_state = step.searcher_state
            trials, runs = self._store.trials(self.row.id), self._store.runs(self.row.id)
            news = step.changes(0)
            self._seen = self._number = news.number
            self._owners = dict(news.owners)
            first = list(first_proposals(self.spec, self._problem, trials).proposals.values())
            self._feed(step, ev.SearchOpened(trials, runs, self.row.elapsed, enqueued=first))
            self._new = []  # runs that go on: who has them is known

    @property
    def _tells_alone(self) -> bool:
        """True where a result decides nothing that the changes of others may decide, too: they can be read later."""
        unlimited = not self.spec.stop and self.spec.budget.dollars is None and self.spec.budget.hours is None
        left = self._machine.trials_left  # as of the last changes, which are not always taken where it is not looked at
        return unlimited and self._machine.ending is None and (self._workers.at_hand or left is None or left > 0)

    def _run_of(self, number: int) -> Run | None:
        return next((run for run in self._machine.runs.values() if run.trial == number), None)

    @contextmanager
    def _exclusively(self, call: str) -> Generator[None]:
        """Let one thread at a time change what this worker knows, in the process that opened the study."""
        if self._process != os.getpid():
            raise ConfigurationError(
                f"{call}: this study was opened by process {self._process}", hint="each process opens it: Study.open"
            )
        with self._lock:
            if self._closed:
                raise ConfigurationError(f"{call}: this study was closed", hint="open it again: Study.open(url)")
            yield

    @contextmanager
    def _step(self, call: str, *, lasting: bool, catch_up: bool = True, ahead: bool = False) -> Generator[SharedStep]:
        """One step: all that others have changed is taken, and nobody comes between until it is written.

        Args:
            call: The call, for the words of an error.
            lasting: It survives a power cut.
            catch_up: Take what others have changed.
            ahead: Take most of it before anybody is kept waiting, where there was much the last time.
        """
        with self._exclusively(call):
            if self._damaged:
                self._prepare()
                self._open()
            try:
                if ahead and self._ahead.many:
                    self._read_before += self._take(self._workers.changes(self._seen))
                with self._workers.step(lasting=lasting) as step:
                    self._hold_on(step)
                    if catch_up:
                        self._catch_up(step)
                    yield step
            except BaseException:  # what the replica has done is not in the store
                self._damaged = True
                self._told.clear()
                self._written.clear()
                raise
            for trials, runs in self._written:
                self._callbacks.wrote(trials, runs)
            self._written.clear()

    def _catch_up(self, step: SharedStep) -> None:
        if step.searcher_state is not None and step.searcher_state != self._searcher_state:
            self._searcher_state = step.searcher_state
            kept = json.loads(step.searcher_state)
            if kept.get("searcher") == self._searcher.name and kept.get("state"):
                self._searcher.restore(kept["state"])
        self._ahead.caught_up(self._read_before + self._take(step.changes(self._seen)))
        self._read_before = 0
        for rows in self._owed:
            self._write(step, rows, {})
        self._owed.clear()
        self._number = self._seen

    def _take(self, news: SharedChanges) -> int:
        """Take what others have changed; how many trials."""
        if news.trials:
            self._seen = news.number
            self._owners |= news.owners
            self._feed(None, ev.ChangedElsewhere(news.trials, news.runs))
        for trial in news.trials:
            if trial.state.ended:
                self._owners.pop(trial.number, None)
        return len(news.trials)

    def _abandoned(self, step: SharedStep, most: int) -> list[Asked]:
        """Trials that run for nobody: they were given back, or their worker is dead."""
        self._look_now_and_then(step)
        runs = self._orphaned()
        if any(self._owners.get(run.trial) is not None for run in runs):  # or it has joined since the last look
            self._look_who_lives(step)
            runs = self._orphaned()
        return self._handed(runs[:most])

    def _handed(self, runs: Sequence[Run]) -> list[Asked]:
        history = self._machine.history
        return [asked_trial(history.trials[run.trial], self._cap(run)) for run in runs]

    def _forgotten(self) -> bool:
        """True where an `ask` of this worker was interrupted after all was stored: somebody has to run its trials."""
        return any(owner == self._token and trial not in self._asked for trial, owner in self._owners.items())

    def _look_now_and_then(self, step: SharedStep) -> None:
        if time.monotonic() - self._live_at > _LIVE_SECONDS:
            self._look_who_lives(step)

    def _look_who_lives(self, step: SharedStep) -> None:
        self._live, self._live_at = {self._token, *step.live()}, time.monotonic()

    def _orphaned(self) -> list[Run]:
        """The runs that nobody has, by trial: of a worker that was not seen alive, or of an interrupted `ask`."""

        def has_somebody(trial: int) -> bool:
            owner = self._owners.get(trial)
            return trial in self._asked if owner == self._token else owner == AHEAD or owner in self._live

        found = [run for run in self._machine.runs.values() if not has_somebody(run.trial)]
        return sorted(found, key=_by_trial)

    def _cap(self, run: Run) -> float | None:
        return self._machine.cap(self._machine.history.trials[run.trial], run)[0]

    def _feed(self, step: SharedStep | None, event: ev.SearchEvent) -> None:
        """Carry an event out with all that follows from it; without a step, what is to be written waits for one."""
        events, found = deque([event]), list[ev.WriteRows]()
        while events:
            for instruction in self._machine.handle(events.popleft(), SystemClock().now()):
                match instruction:
                    case ev.WriteRows() as rows:
                        found.append(rows)
                    case ev.AskSearcher(count):
                        events.append(ask_searcher(self._machine, self._searcher, count))
                    case ev.TellSearcher(trial):
                        self._searcher.tell(trial)
                    case ev.Launch(trial, run, cap, again) if not again:
                        self._new.append(asked_trial(trial, cap))
                        events.append(ev.RunChanged(replace(run, state=RunState.EXECUTING)))
                    case ev.InterpretOutput(_, run):
                        events.append(ev.OutputInterpreted(run.run_id, self._told[run.trial]))
        # None is left for a later step: by then another worker may have ended the run.
        begun = tuple(self._machine.active_runs.rows(()))
        if found or begun:
            rows = ev.WriteRows.joined([*found, ev.WriteRows(runs=begun)])
            if step is None:
                self._owed.append(rows)
            else:
                self._write(step, rows, {trial.number: None for trial in rows.trials})

    def _write(self, step: SharedStep, rows: ev.WriteRows, owners: dict[int, str | None]) -> None:
        fields = {**rows.study, **(searcher_state_fields(self._searcher) if rows.study else {})}
        if rows.trials:  # who only looks at a study that is finished leaves it so
            fields = {**self._present, **fields}
            self._present = {}
        if owners:
            # One's own changes need not be read again, unless others' before them are still to be read.
            self._seen += self._number == self._seen
            self._number += 1
        step.write(Change(rows.trials, rows.runs, fields), self._number, owners)
        if self.spec.callbacks and rows.trials:
            self._written.append((rows.trials, rows.runs))
        self._owners |= owners
        for trial in rows.trials:
            if trial.state.ended:
                self._owners.pop(trial.number, None)

    def _hold_on(self, step: SharedStep) -> None:
        """Renew the lease with a step now and then."""
        if self._renewed.ago() > self._lease * _HEARTBEAT:
            step.renew(self._token, self._holder, self._lease)
            self._renewed = Moment.now()

    def _beat(self) -> None:
        """Renew the lease of a worker that makes no step; what fails is tried again, and noticed by the next call."""
        while not self._end.wait(self._lease * _HEARTBEAT):
            if self._renewed.ago() > self._lease * _HEARTBEAT:
                with suppress(TradewindError), self._workers.step(lasting=False) as step:
                    self._hold_on(step)


def _by_trial(run: Run) -> int:
    return run.trial
