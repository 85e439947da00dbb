"""The search as one of several workers knows it: a replica, which takes in what the others have changed."""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from tradewind.engine.ask_tell.asked_trial import (
    Asked,
    CallbackChoices,
    as_number,
    asked_trial,
    checked_store,
    found_study,
)
from tradewind.engine.ask_tell.own_trials import OwnTrials
from tradewind.engine.ask_tell.proposed_ahead import AheadCount, may_propose_ahead
from tradewind.engine.past_studies import with_past_studies
from tradewind.engine.proposals import (
    ask_searcher,
    first_proposals,
    restore_searcher_state,
    searcher_state_fields,
)
from tradewind.engine.records.trial_callbacks import callbacks_of
from tradewind.engine.search_builder import (
    ask_tell_machine,
    build_problem,
    build_searcher,
    refuse_queued,
    study_document,
)
from tradewind.engine.state_machine import events as ev
from tradewind.errors import ConfigurationError, TradewindError
from tradewind.problem import Run, RunState, Trial
from tradewind.store.base import Change, Store, store_at, this_process
from tradewind.store.studies.quick_turns import AHEAD, NOBODY
from tradewind.store.studies.study_workers import SharedChanges, SharedStep
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


class SharedReplica:
    """The state machine of a study that several workers share, its searcher, and the worker's part in both.

    Its arguments are those of `SharedStudy`, which asks and tells by it.
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
            self._own = OwnTrials(self.spec, self._problem, self._searcher, self.row.owner, lease)
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
        self._wake = threading.Event()  # the thread that renews the lease is to look what there is to do
        self._keeps = False  # trials are taken before they are asked for
        self._in_vain = 0  # questions in a row that got nothing
        self._begin_callbacks()
        self._open()
        self._heart = threading.Thread(target=self._beat, name=f"study-{self.row.id}-lease", daemon=True)
        self._heart.start()

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
        self._leads = self._is_due = False  # it makes the proposals; the next ones are due
        self._owed: list[ev.WriteRows] = []  # what follows from others' changes, for the next step
        self._ahead = AheadCount()
        self._read_before = 0  # changes that were read before the step
        self._finished = ""  # why, as another worker has found
        self._others_run = False  # as of the last `ask` that got nothing
        self._number = 0  # of the last change of all
        self._owners: dict[int, str | None] = {}  # of the runs that have not ended
        self._live: set[str | None] = set()
        self._live_at = -math.inf
        with self._workers.step(lasting=False) as step:
            self._note_row(step)
            # All changes up to that one are in what is read from here on, while nobody is kept waiting.
            self._seen = self._number = step.last()
        trials, runs = self._workers.everything()
        is_read = self._read_alone(trials, runs)
        with self._workers.step(lasting=False) as step:
            if is_read:
                self._catch_up(step)
            else:
                self._read_under_lock(step, trials, runs)
            owners = step.open()
            self._owners |= owners
            ahead = [number for number, owner in owners.items() if owner == AHEAD]
            # Trials up to that one are not ahead; nothing was given back until that change.
            self._after = min(ahead, default=max(self._machine.history.trials, default=NOBODY) + 1) - 1
            self._since = 0 if None in owners.values() else self._seen
        self._damaged = False

    def _note_row(self, step: SharedStep) -> None:
        self.row = self._store.study(self.row.id)
        self._stands = self.row.spec == self._present.get("spec", self.row.spec)  # as this worker would write it
        restore_searcher_state(self._searcher, self.row)
        self._searcher_state = step.searcher_state

    def _read_alone(self, trials: Sequence[Trial], runs: Sequence[Run]) -> bool:
        """Take in what the store has; False, and nothing is taken in, where something is to be written for it.

        That is only right while nobody else can change anything.
        """
        if first_proposals(self.spec, self._problem, trials).proposals:
            return False
        self._feed(None, ev.SearchOpened(trials, runs, self.row.elapsed))
        if not self._owed and not self._new:
            return True
        self._owed, self._new = [], []
        self._prepare()
        return False

    def _read_under_lock(self, step: SharedStep, trials: Sequence[Trial], runs: Sequence[Run]) -> None:
        """Take in what the store has, with what was changed since it was read, and write what follows from it."""
        self._note_row(step)
        news = step.changes(self._seen)
        self._seen = self._number = news.number
        known = {trial.number: trial for trial in (*trials, *news.trials)}
        every = {run.run_id: run for run in (*runs, *news.runs)}
        trials = [known[number] for number in sorted(known)]
        runs = sorted(every.values(), key=lambda run: (run.trial, run.attempt, run.run_id))
        self._owners = {**step.open()}
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
                if ahead and self._ahead.many and self._workers.at_hand:
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
        changed = self._read_before + self._take(step.changes(self._seen))
        self._ahead.caught_up(changed, quick=self._own.is_quick)
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
        return any(owner == self._token and not self._has(trial) for trial, owner in self._owners.items())

    def _has(self, trial: int) -> bool:
        return trial in self._asked or trial in self._own.taken

    def _look_now_and_then(self, step: SharedStep) -> None:
        if not self._has_looked:
            self._look_who_lives(step)

    @property
    def _has_looked(self) -> bool:
        """True where it was seen just now who is alive."""
        return time.monotonic() - self._live_at < _LIVE_SECONDS

    def _look_who_lives(self, step: SharedStep) -> None:
        self._live, self._live_at = {self._token, *step.live()}, time.monotonic()
        self._ahead.workers = len(self._live)

    def _orphaned(self) -> list[Run]:
        """The runs that nobody has, by trial: of a worker that was not seen alive, or of an interrupted `ask`."""

        def has_somebody(trial: int) -> bool:
            owner = self._owners.get(trial)
            return self._has(trial) if owner == self._token else owner == AHEAD or owner in self._live

        found = [run for run in self._machine.runs.values() if not has_somebody(run.trial)]
        return sorted(found, key=by_trial)

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
        """Renew the lease of a worker that makes no step, and give back what was taken for it and it does not ask for.

        What fails is tried again, and noticed by the next call.
        """
        interval = self._lease * _HEARTBEAT
        while not self._closed:
            self._wake.wait(min(interval, _LIVE_SECONDS) if self._keeps else interval)
            self._wake.clear()
            if self._renewed.ago() > interval:
                with suppress(TradewindError), self._workers.step(lasting=False) as step:
                    self._hold_on(step)
            if self._own.outdated and self._lock.acquire(blocking=False):
                try:
                    with suppress(TradewindError):
                        if self._own.outdated and not self._closed:
                            self._return_taken()
                finally:
                    self._lock.release()

    def _return_taken(self) -> None:
        """Let others have what was taken for the next `ask`."""
        if numbers := list(self._own.taken):
            self._own.doubtful = True  # whoever is interrupted gives them back anew
            self._workers.quick.give_back(self._token, numbers)
            for number in numbers:
                self._own.forget(number)
            self._own.doubtful = False


def by_trial(run: Run) -> int:
    """The order of runs by their trials."""
    return run.trial
