"""A study that several workers share: processes of one host or of many, each with its own database connection."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, NoReturn, Self

from tradewind.engine.ask_tell.asked_trial import (
    Asked,
    RunOutcome,
    TrialEnd,
    asked_count,
    check_calls,
    check_given_back,
    named_trial,
    not_asked,
)
from tradewind.engine.ask_tell.shared_replica import SharedReplica, by_trial
from tradewind.engine.function_calls import call_for_trial, check_plain_function
from tradewind.engine.proposals import (
    enqueued_proposal,
    known_trial_words,
)
from tradewind.engine.records.trial_callbacks import session_end
from tradewind.engine.search_builder import (
    study_document,
)
from tradewind.engine.state_machine import events as ev
from tradewind.errors import ConfigurationError, TradewindError
from tradewind.problem import Trial, Value
from tradewind.store.studies.quick_turns import AHEAD, Told, Turn, Wanted
from tradewind.store.studies.study_workers import SharedStep
from tradewind.utils.processes import Moment

_PATIENCE = 0.1
"""Seconds between two looks whether others have left something to do."""

_PROPOSES = 2.0
"""Seconds for which the others leave the next proposals to the worker that has made the last ones."""

_SOON, _DOUBLINGS, _LONGEST_PAUSE = 0.005, 5, 0.16
"""Seconds between the first two looks whether that one has made some, and between later ones."""


class SharedStudy(SharedReplica):
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

    # ------------------------------------------------------------------ asking and telling

    def ask(self, count: int = 1) -> list[Asked]:
        """Configurations to run, at most ``count``: those first that a worker has given back, or died with.

        Fewer, or none, come back when the budget or the space is used up, or when the searcher first wants to be told
        of what is on its way; `finished` says why.
        """
        given = self._ask(asked_count(count))
        if not given and self._others_run:
            self._pause()
        self._in_vain = 0 if given else self._in_vain + 1
        return given

    def _pause(self) -> None:
        """Have who asks again and again while there is nothing to be had not keep those from working who have it."""
        if self._in_vain:
            time.sleep(_SOON * 2.0 ** min(self._in_vain, _DOUBLINGS))

    def _ask(self, wanted: int) -> list[Asked]:
        given: list[Asked] = []
        with self._exclusively("ask"):
            try:
                self._own.asks(wanted)
                given, enough = self._taken_before(wanted)
                if not enough or self._is_due:
                    with self._step("ask", lasting=False, ahead=True) as step:
                        more = self._hand_out(step, wanted - len(given))
                        self._others_run = bool(self._machine.runs)
                    given += [self._held(asked) for asked in more]
                self._asked |= {asked.number: asked for asked in given}
                for asked in given:
                    self._own.taken.pop(asked.number, None)
                self._own.handed()
                return given
            except BaseException:  # interrupted: nobody got them, so that the next `ask` gives them out
                for asked in given:
                    self._asked.pop(asked.number, None)
                if not self._damaged:
                    self._own.keep(given)
                raise

    @property
    def _goes_ahead(self) -> bool:
        """True where trials are proposed before anybody asks: many ask at once, and no result decides what is next."""
        return self._is_free and self._ahead.worth > 0 and self._machine.ending is None

    @property
    def _is_quick(self) -> bool:
        """True where it can take and tell trials without knowing those of others."""
        return self._goes_ahead and not self._damaged and (self._stands or not self._present)

    def _held(self, asked: Asked) -> Asked:
        """A trial that was handed out in a step: where nothing depends on others, it can be told without them."""
        run = self._run_of(asked.number)
        if self._is_free and run is not None:
            self._own.hold(self._machine.history.trials[asked.number], [run])
        return asked

    def _taken_before(self, wanted: int) -> tuple[list[Asked], bool]:
        """Trials that were proposed ahead, without what others have changed; False where that is to be known.

        So most workers need not take in what all others find. The one that has made the last proposals does, and
        makes the next ones in time; the others wait for it.
        """
        if self._own.outdated:
            self._return_taken()
        begun = Moment.now()
        if not self._is_quick and self._is_free and self._own.is_quick:
            self._note_proposer()
        while len(self._own.taken) < wanted:
            if not self._is_quick or self._forgotten():
                return list(self._own.taken.values()), False
            turn = self._look_first() or self._turn(None, wanted - len(self._own.taken))
            if turn is None:
                return [], False
            if turn.state == "finished" and self._is_finished():
                return [], True
            if turn.taken:
                continue
            if turn.state == "finished" or turn.waits:
                return list(self._own.taken.values()), False
            if self._all_proposed(turn):
                return list(self._own.taken.values()), self._all_at_work()
            # The proposer's clock may be ahead: nobody waits for longer than it would lead.
            waits_in_vain = not turn.is_proposed_for or begun.ago() > _PROPOSES
            if turn.proposer.token == self._token or (waits_in_vain and self._claim_lead()):
                return list(self._own.taken.values()), False
            self._await_proposals()
        return list(self._own.taken.values())[:wanted], True

    def _look_first(self) -> Turn | None:
        """Look what there is for who has asked in vain already: where it is nothing again, nobody was kept waiting."""
        if not self._in_vain:
            return None
        turn = self._workers.quick.look(Wanted(1, 0, self._after, self._since))
        return None if turn.left else turn

    def _note_proposer(self) -> None:
        """Take trials that another worker proposes ahead, before it is known how many others there are."""
        turn = self._workers.quick.look(Wanted(0, 0, self._after, self._since))
        if turn.is_proposed_for and turn.proposer.token != self._token:
            self._ahead.led()

    def _claim_lead(self) -> bool:
        """Become the one that makes the proposals; else another one does, and not all take in what all have found."""
        with self._step("ask", lasting=False, catch_up=False) as step:
            self._leads = step.lead(self._token, self._holder, _PROPOSES)
        return self._leads

    def _await_proposals(self) -> None:
        """Wait until there seems to be something to take, or nobody who proposes it; to look stops nobody."""
        begun, pause = Moment.now(), _SOON
        while begun.ago() <= _PROPOSES:
            time.sleep(pause)
            turn = self._workers.quick.look(Wanted(1, 0, self._after, self._since))
            if turn.left or turn.waits or not turn.done or not turn.is_proposed_for or self._all_proposed(turn):
                return
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _all_at_work(self) -> bool:
        """As `_all_live`; who was seen alive just now is not looked for again, which would keep others from working."""
        workers = set(self._workers.open().values())
        if workers and workers <= self._live and self._has_looked:
            self._others_run = True
            return True
        with self._step("ask", lasting=False, catch_up=False) as step:
            return self._all_live(step)

    def _all_proposed(self, turn: Turn) -> bool:
        return self.spec.budget.trials is not None and turn.newest + 1 >= self.spec.budget.trials

    def _turn(self, told: Told | None, wanted: int) -> Turn | None:
        """Write a result and take trials, for the next `ask`; None where nobody knows what came of it."""
        few, most = self._ahead.worth // 2 if self._leads else 0, self.spec.budget.trials
        try:
            turn = self._workers.quick.take(self._token, told, Wanted(wanted, few, self._after, self._since), most)
            if turn is None:
                self._damaged = True
                return None
            self._own.keep([self._own.hold(trial, runs) for trial, runs in turn.taken])
        except BaseException:  # who has what is read anew
            self._damaged = True
            raise
        self._ahead.many = True
        self._after = max([self._after, *(trial.number for trial, _ in turn.taken)])
        if wanted and not turn.waits:
            self._since = turn.number
            self._leads = turn.proposer.token == self._token
            self._is_due = self._leads and turn.left < few and not self._all_proposed(turn)
        if turn.taken and not self._keeps:
            self._keeps = True
            self._wake.set()
        return turn

    def _is_finished(self) -> bool:
        """True where another worker has found that the study is over, by the same job as this one's."""
        row = self._store.study(self.row.id)
        if row.spec == study_document(self.spec):
            self._finished = row.reason
        return bool(self._finished)

    def _all_live(self, step: SharedStep) -> bool:
        """True where some trials are open, and each is with a worker that is alive; or where the study is over."""
        if step.state == "finished":
            return self._is_finished()
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
            ahead = sorted((run for run in runs.values() if self._owners.get(run.trial) == AHEAD), key=by_trial)
            if len(history.pending) == len(runs):  # nothing waits to be started
                given = self._handed(ahead[:wanted])
            lacking = 0 if given else wanted
            spare = self._ahead.worth - len(ahead) + len(given) if self._goes_ahead else 0
            if spare > 0:
                self._leads = step.lead(self._token, self._holder, _PROPOSES)
                spare = spare if self._leads else 0
            if lacking or spare > self._ahead.worth // 2:
                given += self._propose(step, lacking, max(0, spare))
            self._is_due = False
        if not wanted:
            self._point_out(step)
        if not given:
            self._look_who_lives(step)
            given = self._abandoned(step, wanted)
        if given:
            self._keep(step, given)
        return given

    def _point_out(self, step: SharedStep) -> None:
        """Have the next ones that ask look for trials that no turn finds: those of the dead, and passed-over ones."""
        found = [run.trial for run in self._orphaned() if self._owners.get(run.trial) is not None]
        found += [n for n, owner in self._owners.items() if owner == AHEAD and n <= self._after]
        if found:
            self._write(step, ev.WriteRows(), dict.fromkeys(found))

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
        number, outcome = named_trial(asked), RunOutcome(runtime, metrics, cost, state, reason)
        stored = False
        try:
            with self._exclusively("tell"):
                self._own.tells()
                if (trial := self._tell_quickly(number, outcome)) is not None:
                    stored = True
                    self._has_told(number)
                    return trial
                with self._step("tell", lasting=True, catch_up=not self._tells_alone) as step:
                    if number in self._unreturned or self._is_stored(number):  # a call that was interrupted is repeated
                        self._catch_up(step)
                        counts = True
                    else:
                        counts = self._take_result(step, number, outcome)
                    trial = self._machine.history.trials[number]
                stored = True
                self._has_told(number)
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

    def _has_told(self, number: int) -> None:
        for kept in (self._told, self._asked, self._sent):
            kept.pop(number, None)
        self._own.forget(number)
        self._unreturned.discard(number)
        self._own.told()

    def _tell_quickly(self, number: int, outcome: RunOutcome) -> Trial | None:
        """Write a result that decides nothing for others, and take the next trials; None where it is not such a one."""
        mine = number in self._asked and number in self._own and number not in self._unreturned
        if not mine or number in self._sent or outcome.state == "lost" or not self._is_quick:
            return None
        told = self._own.end(number, outcome)
        self._sent[number] = told.run
        wanted = self._own.worth_taking - len(self._own.taken) if len(self._asked) == 1 else 0
        turn = self._turn(told, max(0, wanted))
        if turn is None or not turn.done:
            return None
        self._owners.pop(number, None)
        if self.spec.callbacks:
            self._callbacks.wrote([told.trial], [told.run])
        if self._all_proposed(turn) and not self._workers.at_hand and not self._workers.open():
            self._end()
        return told.trial

    def _end(self) -> None:
        """End a study whose last trials were told side by side, so that nobody has seen that they are the last."""
        with self._step("tell", lasting=True) as step:
            self._feed(step, ev.Tick())

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
            self._return_taken()
            with self._step("give_back", lasting=False) as step:
                running = {run.trial for run in self._machine.runs.values()}
                mine: dict[int, str | None] = {
                    number: None for number in back if number in running and self._owners.get(number) == self._token
                }
                if mine:
                    self._write(step, ev.WriteRows(), mine)
            for number in back:
                self._asked.pop(number, None)
                self._own.forget(number)

    def enqueue(self, configuration: Mapping[str, Value]) -> Trial:
        """Have a configuration tried before all that the searcher proposes, by whichever worker asks next.

        Returns:
            The new trial. Of a configuration that is on its way, or was tried before, the trial that there is, with
            a warning.

        Raises:
            ConfigurationError: It is not in the space, nobody sells it, or the study has ended.
        """
        with self._exclusively("enqueue"):
            self._return_taken()
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
        check_plain_function(function)
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
        with self._exclusively("optimise"):
            self._return_taken()
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
            self._wake.set()
            try:
                with suppress(TradewindError):  # who leaves loses them in any case
                    self._return_taken()
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
