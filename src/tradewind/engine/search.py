"""Carries out a search: feeds the state machine, and does what it says."""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from tradewind.engine.cleanup.old_checkpoints import OldCheckpoints
from tradewind.engine.proposals import ask_searcher, refresh_held_study, restore_searcher_state, searcher_state_fields
from tradewind.engine.records.trial_callbacks import TrialCallbacks, session_end
from tradewind.engine.report_listener import ReportListener
from tradewind.engine.state_machine.events import (
    AskSearcher,
    CancelRun,
    GiveBackMachines,
    InterpretOutput,
    Interrupted,
    KeepMachines,
    KeptMachinesChanged,
    Launch,
    LaunchPermitted,
    MachinesFree,
    OutputInterpreted,
    PricedProposal,
    RequestPermit,
    RunChanged,
    RunPreempted,
    SearchEvent,
    SearchInstruction,
    SearchOpened,
    SettleRun,
    StopSearch,
    TellSearcher,
    Tick,
    WatchMachines,
    WithdrawPermit,
    WriteRows,
)
from tradewind.engine.state_machine.search_machine import SearchMachine
from tradewind.engine.state_machine.snapshot import SearchSnapshot, take_snapshot
from tradewind.errors import InterpretationError, StudyBusyError
from tradewind.problem import Problem, Run, RunOutput, RunPreemption, RunRequest, RunState, Trial
from tradewind.searcher.base import Searcher
from tradewind.store.base import Change, Store, StudyRow, this_process
from tradewind.utils.clock import Clock, SimulatedClock
from tradewind.utils.processes import Moment

if TYPE_CHECKING:
    from tradewind.deployer.lifecycle.deployer import FreeMachines
    from tradewind.deployer.lifecycle.kept_machines import KeptFleet
    from tradewind.deployer.runner.base import Runner


class DeployerProtocol(Protocol):
    """The deployer, as the search loop uses it."""

    @property
    def clock(self) -> Clock:
        """The clock that runs take place on."""
        ...

    @property
    def runner(self) -> Runner:
        """The runner that carries out runs."""
        ...

    @property
    def kept(self) -> KeptFleet:
        """The machines that are kept between runs."""
        ...

    def free_machines(self) -> Sequence[FreeMachines]:
        """The machines of runs that wait for `decide`."""
        ...

    def decide(self, run_id: str, *, keep: bool) -> None:
        """Say whether the machines of a run are kept for the next one."""
        ...

    def launch(self, run: Run, request: RunRequest) -> Run:
        """Start a run whose row is stored."""
        ...

    def adopt(self, run: Run, request: RunRequest, unwanted: str = "", *, repeats: bool = False) -> Run:
        """Find a run of an earlier process again; with a reason why it is ``unwanted``, only to end it."""
        ...

    def poll(self) -> list[Run]:
        """Rows of runs that changed."""
        ...

    def wait(self, seconds: float) -> None:
        """Return when something may have changed, when woken, or after ``seconds``."""
        ...

    def wake(self) -> None:
        """Let the `wait` that is under way return now, or else the next one at once; any thread may call it."""
        ...

    def abort(self, reasons: Mapping[str, str], *, repeats: bool = False) -> Sequence[Run]:
        """Begin to end some runs that are not wanted any more, while others go on; `poll` tells of their end."""
        ...

    def stop(self, reasons: Mapping[str, str]) -> None:
        """Begin to end some runs, all at the same time, before `cancel` waits for each."""
        ...

    def cancel(self, run_id: str, reason: str) -> Run | None:
        """End a run and give its machines back."""
        ...

    def settle(self, run_id: str) -> None:
        """Forget a run whose end is stored."""
        ...

    def sweep(self, known_run_ids: set[str]) -> list[str]:
        """Give back everything that has no row."""
        ...

    def output(self, run: Run, request: RunRequest) -> RunOutput:
        """The output of a run, for the interpreters."""
        ...

    def close(self) -> None:
        """Give back connections."""
        ...


class LaunchGate(Protocol):
    """Grants permits to run, where a search shares a cluster with others."""

    def want(self, trial: Trial) -> None:
        """A trial would run; `Search.grant` gives it leave."""
        ...

    def unwant(self, number: int) -> None:
        """A trial that wanted to run does not any more."""
        ...

    def launched(self, trial: Trial, run: Run, *, again: bool) -> None:
        """A run is started, or one of an earlier process found again."""
        ...

    def ended(self, run_id: str) -> None:
        """A run is gone, and its end is stored."""
        ...

    def told(self, trial: Trial) -> None:
        """The searcher has been given the result of a trial."""
        ...


RunRequestFactory = Callable[[Trial, Run, float | None], RunRequest]
MetricsReader = Callable[[RunOutput], dict[str, float]]


@dataclass(frozen=True)
class SearchComponents:
    """The parts that a search is put together from.

    Attributes:
        study: The study's row.
        problem: The problem.
        machine: The state machine.
        searcher: The searcher.
        deployer: The deployer.
        store: The store.
        request: Makes the request of a run from its trial, its row and its wall time.
        read: Reads the metrics of a finished run.
        listener: Reads what runs report while they run, where a stopper wants to know.
        enqueued: What the user wants tried before all that the searcher proposes.
        code: Gives the digest of the program's folder, for the trial of a number that begins now; None where nothing of
            it is run.
        callbacks: Where trials are written, too; None for nowhere.
        old_checkpoints: The checkpoints that are removed while the search goes on; None where there are none.
    """

    study: StudyRow
    problem: Problem
    machine: SearchMachine
    searcher: Searcher
    deployer: DeployerProtocol
    store: Store
    request: RunRequestFactory
    read: MetricsReader
    listener: ReportListener | None = None
    enqueued: Sequence[PricedProposal] = ()
    code: Callable[[int], str] | None = None
    callbacks: TrialCallbacks | None = None
    old_checkpoints: OldCheckpoints | None = None


_LEAST_WAIT = 1e-3
"""Seconds: a limit is passed, not met, and a clock that counts from 1970 moves by no less than a microsecond."""

_LEAST_WAIT_FOR_MONEY = 1.0
"""Seconds: what runs cost goes up in steps, and several of them share what is free."""


def seconds_to_deadline(machine: SearchMachine) -> float:
    """Seconds until a run may have to be ended for a limit, for money or for time; infinite when none has to be."""
    seconds = [_until_limits(machine), _until_no_money(machine)]
    if machine.seconds_left is not None and machine.runs:
        seconds.append(machine.seconds_left)
    seconds += [lease.until - machine.now for lease in machine.kept.staying]
    return max(_LEAST_WAIT, min(seconds))


def _until_limits(machine: SearchMachine) -> float:
    """Seconds until a program has taken longer than it may; the incumbent may have changed since its start."""
    best = machine.history.best_value
    found = [math.inf]
    for run in machine.going_on():
        if run.state is RunState.EXECUTING:
            limits = machine.run_limits.limits(machine.history.trials[run.trial], best)
            found.append(min((seconds for seconds, _ in limits), default=math.inf) - run.runtime)
    # Runs past a limit have been asked to end.
    return min((seconds + _LEAST_WAIT for seconds in found if seconds >= 0), default=math.inf)


def _until_no_money(machine: SearchMachine) -> float:
    """Seconds until the first run may have used up what was set aside for it and its part of what is free."""
    free = machine.ledger.free
    runs = [run for run in machine.going_on() if run.state is not RunState.COLLECTING]
    if free is None:
        return math.inf
    found = [math.inf]
    for run in runs:
        hourly = machine.history.trials[run.trial].offer.hourly
        if hourly > 0:
            left = max(0.0, run.reserved - run.cost) + free / len(runs)
            found.append(left / hourly * 3600.0)
    return max(_LEAST_WAIT_FOR_MONEY, min(found))


def tags_in_use(runs: Collection[Run]) -> set[str]:
    """The ids of the runs that have not ended, and the tags of all machines that they have or that are kept."""
    found = {tag for run in runs if not run.state.ended for tag in (run.run_id, run.cluster)}
    return found | {run.lease.cluster for run in runs if run.lease is not None and run.lease.ended is None}


LEASE_SECONDS = 120.0
"""How long a study stays taken when its process says nothing; a process of this host that died lets go at once."""

_SIGN_OF_LIFE = 10.0
"""Seconds between two renewals; the time used is stored with them, so that a crash forgets no more than that."""

_PATIENCE = 0.25
"""Seconds to wait at most before looking around again: the pace of the display and of metering."""

_SIMULATED_PATIENCE = 3600.0
"""The same on a clock that jumps, where nobody looks on: with the other one, a run of an hour would take seconds.

A run that has to be ended before is looked at when it is due."""


class Search:
    """A search on its way.

    Args:
        parts: What it is put together from.
        observer: Called with a snapshot whenever something may have changed.
        gate: Who gives leave to run; needed where the policy is gated.
    """

    def __init__(
        self,
        parts: SearchComponents,
        observer: Callable[[SearchSnapshot], None] | None = None,
        gate: LaunchGate | None = None,
    ) -> None:
        self.parts = parts
        self._gate = gate
        self._told_to_stop = self._opened = False
        self.swept: list[str] = []
        self._observer = observer
        self._requests: dict[str, RunRequest] = {}
        self._token = ""
        self._held = Moment.now()
        self._ours = True

    def run(self, wanted: Callable[[], bool] = lambda: True) -> StopSearch:
        """Search until a rule, the searcher, the budget or the user ends it.

        Args:
            wanted: Asked often; False ends the search cleanly: runs are cancelled and paid, and it can be resumed.

        Returns:
            Why it ended.

        Raises:
            StudyBusyError: Another live process runs this study, or has taken it over with its runs.
            StoreError: The store cannot be written any more; all runs are cancelled first.
        """
        self.begin()
        try:
            while (stop := self.stopped) is None:
                if not self.step(wanted=wanted()):
                    self.wait(self.patience)
            return stop
        finally:
            self.end()

    @property
    def study(self) -> StudyRow:
        """The row of its study."""
        return self.parts.study

    @property
    def stopped(self) -> StopSearch | None:
        """The reason why the search has ended; None while it goes on."""
        return self.parts.machine.stopped

    @property
    def running(self) -> bool:
        """True while a run of the search has not ended."""
        return bool(self.parts.machine.runs)

    @property
    def trials(self) -> Mapping[int, Trial]:
        """All its trials so far, by number."""
        return self.parts.machine.history.trials

    @property
    def runner(self) -> Runner:
        """The deployer that carries out the runs."""
        return self.parts.deployer.runner

    @property
    def patience(self) -> float:
        """Seconds, on the clock that runs take place on, to `wait` when nothing else is to be looked at."""
        return _SIMULATED_PATIENCE if isinstance(self.parts.deployer.clock, SimulatedClock) else _PATIENCE

    def begin(self, *, force: bool = False, wanted: bool = True) -> None:
        """Take the study, and its runs of an earlier process; `end` must follow, whatever happens.

        Args:
            force: Take it from a live process, too: that one finds out when it next writes.
            wanted: False where it is only taken to be ended: no run that has ended meanwhile is repeated.

        Raises:
            StudyBusyError: Another live process runs it, without ``force``.
        """
        store = self.parts.store
        self._token = store.hold(self.parts.study.id, this_process(), LEASE_SECONDS, force=force)
        self._held = Moment.now()
        self._ours = True
        self._told_to_stop = not wanted
        try:
            self._open()
        except BaseException as error:
            self._ours = not isinstance(error, StudyBusyError)
            self.end()
            raise

    def step(self, *, wanted: bool = True) -> bool:
        """One round: take what changed and do what follows.

        Args:
            wanted: False ends the search cleanly: runs are cancelled and paid, and it can be resumed.

        Returns:
            True when there is more to do at once; otherwise `wait` for it.

        Raises:
            StudyBusyError: Another process has taken the study over with its runs.
            StoreError: The store cannot be written any more.
        """
        try:
            if not wanted and not self._told_to_stop:
                self._told_to_stop = True
                self._feed(Interrupted())
            more = self._turn()
            if self.parts.machine.stopped is not None:
                self._show()
            return more
        except StudyBusyError:
            self._ours = False  # who took the study has taken over its runs, too
            raise

    def wait(self, patience: float) -> None:
        """Return when something may have changed, when woken, or after so many seconds on the clock of the runs."""
        deployer = self.parts.deployer
        if isinstance(deployer.clock, SimulatedClock):
            patience = min(patience, seconds_to_deadline(self.parts.machine))
        deployer.wait(patience)

    def wake(self) -> None:
        """Let the `wait` that is under way return now, or else the next one at once; any thread may call it."""
        self.parts.deployer.wake()

    def leave(self) -> None:
        """Let `end` leave the runs as they are: another process goes on with them."""
        self._ours = False

    def grant(self, number: int) -> None:
        """Let a trial run that wanted to."""
        self._feed(LaunchPermitted(number))

    def preempt(self, run_id: str, preemption: RunPreemption) -> None:
        """End a run whose place another tenant of the cluster gets: its trial is run again, and nobody learns of it."""
        self._feed(RunPreempted(run_id, preemption))

    # ------------------------------------------------------------------ the loop

    def _open(self) -> None:
        parts = self.parts = replace(self.parts, study=refresh_held_study(self.parts.store, self.parts.study))
        study_id = parts.study.id
        runs = parts.store.runs(study_id)
        self.swept = parts.deployer.sweep(tags_in_use(runs))
        restore_searcher_state(parts.searcher, parts.study)
        present = {"state": "open", "reason": "", "spec": parts.study.spec}
        parts.store.write(study_id, Change(study=present), self._token)
        reports = parts.listener.earlier(runs) if parts.listener is not None else {}
        trials = parts.store.trials(study_id)
        if parts.callbacks is not None:
            parts.callbacks.begin(parts.study, trials, runs, parts.deployer.runner)
        opened = SearchOpened(trials, runs, parts.study.elapsed, reports, parts.enqueued)
        self._feed(opened, *([Interrupted()] if self._told_to_stop else []))
        self._opened = True
        self._remove_old_checkpoints()

    def _turn(self) -> bool:
        deployer = self.parts.deployer
        if self._held.ago() > _SIGN_OF_LIFE:
            # Before anything is done: the machine may have been suspended, and another process may have the study.
            store, study_id, machine = self.parts.store, self.parts.study.id, self.parts.machine
            store.renew(study_id, self._token, LEASE_SECONDS)
            # What runs cost so far is not to be forgotten by a crash. One that has ended is written with its trial.
            open_runs = (*(run for run in machine.runs.values() if not run.state.ended), *machine.kept.rows)
            store.write(study_id, Change(runs=open_runs, study={"elapsed": machine.elapsed}), self._token)
            self._held = Moment.now()
        changed = deployer.poll()
        waits = [run.run_id for run in changed if self._begins_to_wait(run)]
        for run in changed:
            self._feed(RunChanged(run))
        going = self.parts.machine.runs
        if rows := [going[run_id] for run_id in waits if run_id in going]:
            self.parts.store.write(self.parts.study.id, Change(runs=rows), self._token)
        free = deployer.free_machines()
        for each in free:
            self._feed(MachinesFree(each.run_id, each.seconds, each.expires))
        for news in deployer.kept.news():
            self._feed(KeptMachinesChanged(news.cluster, news.gone, news.until))
        if self.parts.listener is not None:
            for report in self.parts.listener.look(list(self.parts.machine.runs.values()), deployer.clock.now()):
                self._feed(report)
        self._feed(Tick())
        self._show()
        return self.parts.machine.stopped is not None or bool(free) or any(run.state.ended for run in changed)

    def _begins_to_wait(self, news: Run) -> bool:
        """True of a run that something keeps from going on: other processes are to see at once what it is."""
        known = self.parts.machine.runs.get(news.run_id)
        return bool(news.reason) and not news.state.ended and known is not None and not known.reason

    def end(self) -> None:
        """Whatever happened: nothing stays running that nobody watches, and the study is let go."""
        parts = self.parts
        with contextlib.ExitStack() as last:  # each of them is done, whatever becomes of the others
            if parts.callbacks is not None:
                end = session_end(parts.machine, failed=self.stopped is None)
                last.callback(parts.callbacks.finish, end if self._ours else None)
            last.callback(parts.store.release, parts.study.id, self._token)
            last.callback(parts.deployer.close)
            if parts.callbacks is not None:
                last.callback(parts.callbacks.stop_reading)
            if self._ours and parts.machine.stopped is None:
                last.callback(self._give_back_kept)
                reasons = dict.fromkeys(parts.machine.runs, "the search ended with an error")
                for run_id, reason in reasons.items():
                    last.callback(parts.deployer.cancel, run_id, reason)
                last.callback(parts.deployer.stop, reasons)  # the last of them is the first that is called

    def _give_back_kept(self) -> None:
        deployer = self.parts.deployer
        if deployer.kept.tags:
            deployer.kept.finish()
            for news in deployer.kept.news():
                self._feed(KeptMachinesChanged(news.cluster, news.gone, news.until))

    def _show(self) -> None:
        if self._observer is not None:
            self._observer(take_snapshot(self.parts.machine))

    # ------------------------------------------------------------------ instructions

    def _feed(self, *events: SearchEvent) -> None:
        waiting: deque[SearchEvent] = deque(events)
        while waiting:
            event = waiting.popleft()
            for one in (*self._told_at_the_end(event), event):
                instructions = self.parts.machine.handle(one, self.parts.deployer.clock.now())
                cancels = [each for each in instructions if isinstance(each, CancelRun)]
                for instruction in instructions:
                    if cancels and isinstance(instruction, CancelRun):
                        waiting.extend(self._begin_to_end(cancels))
                        cancels = []
                    waiting.extend(self._carry_out(instruction))
                if self.parts.callbacks is not None and isinstance(one, RunChanged):
                    self.parts.callbacks.run_changed(one.run)

    def _begin_to_end(self, cancels: Sequence[CancelRun]) -> list[SearchEvent]:
        """End some runs, all at the same time; those of them that are to be waited for are not waited for here."""
        deployer = self.parts.deployer
        waited = {each.run_id: each.reason for each in cancels if each.waits}
        if len(waited) > 1:
            deployer.stop(waited)
        found: list[SearchEvent] = []
        for repeats in (False, True):
            others = {each.run_id: each.reason for each in cancels if not each.waits and each.repeats == repeats}
            found += [RunChanged(run) for run in deployer.abort(others, repeats=repeats)] if others else []
        return found

    def _told_at_the_end(self, event: SearchEvent) -> Sequence[SearchEvent]:
        """Take what a run has reported, before the machine hears that it is over: others are compared with it."""
        if self.parts.listener is None or not isinstance(event, RunChanged) or not event.run.state.ended:
            return ()
        return self.parts.listener.whole(event.run)

    def _carry_out(self, instruction: SearchInstruction) -> Sequence[SearchEvent]:
        parts = self.parts
        match instruction:
            case AskSearcher(count):
                return [ask_searcher(parts.machine, parts.searcher, count)]
            case WriteRows(trials, runs, study):
                fields = {**study, **searcher_state_fields(parts.searcher)}
                parts.store.write(parts.study.id, Change(trials, runs, fields), self._token)
                if parts.callbacks is not None:
                    parts.callbacks.wrote(trials, runs)
            case RequestPermit(trial):
                assert self._gate is not None
                self._gate.want(trial)
            case WithdrawPermit(number):
                assert self._gate is not None
                self._gate.unwant(number)
            case Launch(trial, run, wall_seconds, again, unwanted, repeats):
                if self._gate is not None:
                    self._gate.launched(trial, run, again=again)
                request = parts.request(trial, run, wall_seconds)
                self._requests[run.run_id] = request
                run = replace(run, folder=str(request.folder))
                if parts.code is not None and not again:
                    run = replace(run, code=parts.code(trial.number))
                deployer = parts.deployer
                if again:
                    return [RunChanged(deployer.adopt(run, request, unwanted, repeats=repeats))]
                return [RunChanged(deployer.launch(run, request))]
            case CancelRun(run_id, reason, waits=True):
                cancelled = parts.deployer.cancel(run_id, reason)
                return [] if cancelled is None else [RunChanged(cancelled)]
            case KeepMachines() | WatchMachines() | GiveBackMachines():
                return self._about_machines(instruction)
            case InterpretOutput(trial, run):
                return [self._interpret(run)]
            case TellSearcher(trial):
                parts.searcher.tell(trial)
                if self._gate is not None:
                    self._gate.told(trial)
                self._remove_old_checkpoints()
            case SettleRun(run_id):
                if self._gate is not None:
                    self._gate.ended(run_id)
                parts.deployer.settle(run_id)
                self._requests.pop(run_id, None)
            case CancelRun() | StopSearch():
                pass
        return []

    def _remove_old_checkpoints(self) -> None:
        if self.parts.old_checkpoints is not None and self._opened:  # once, and not for each trial that is told again
            self.parts.old_checkpoints.remove(self.parts.machine, self.parts.searcher)

    def _about_machines(self, instruction: KeepMachines | WatchMachines | GiveBackMachines) -> Sequence[SearchEvent]:
        deployer = self.parts.deployer
        match instruction:
            case KeepMachines(run_id, keep):
                deployer.decide(run_id, keep=keep)
            case WatchMachines(cluster):
                deployer.kept.watch(cluster)
            case GiveBackMachines(cluster, waits=True):
                deployer.kept.finish({cluster})
            case GiveBackMachines(cluster):
                deployer.kept.give_back(cluster)
        return [KeptMachinesChanged(news.cluster, news.gone, news.until) for news in deployer.kept.news()]

    def _interpret(self, run: Run) -> OutputInterpreted:
        output = self.parts.deployer.output(run, self._requests[run.run_id])
        try:
            return OutputInterpreted(run.run_id, self.parts.read(output))
        except InterpretationError as error:
            return OutputInterpreted(run.run_id, None, str(error))
