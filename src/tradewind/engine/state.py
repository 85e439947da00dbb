"""The state machine of a search: events in, instructions out, no input and output.

`SearchMachine.handle` is the only method that changes anything. Whoever carries out the instructions does so in
order, and feeds back what happens as further events; the engine's loop does it with a deployer and a store, a
test with neither.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import replace

from tradewind.engine import outcome
from tradewind.engine.book import TrialBook
from tradewind.engine.early import EarlyStops
from tradewind.engine.events import (
    Ask,
    Cancel,
    Event,
    Granted,
    Instruction,
    Interpret,
    Interpreted,
    Interrupted,
    Launch,
    NothingProposed,
    Opened,
    Priced,
    Proposed,
    Reported,
    RunChanged,
    Settle,
    Stop,
    Tell,
    Tick,
    Unwant,
    Want,
    Write,
)
from tradewind.engine.fallback import Refusals
from tradewind.engine.leave import Leave
from tradewind.engine.ledger import Ledger
from tradewind.engine.policy import Policy
from tradewind.engine.purse import Purse
from tradewind.engine.stopping import Progress
from tradewind.problem import STOPPED_EARLY, Observation, Offer, Problem, Run, RunState, Trial, TrialState
from tradewind.units import format_duration, format_money

_REPEATS = 20
"""A searcher that proposes so many finished trials in a row is stopped: it will not get further."""

_LOST = 8
"""So many trials in a row that the infrastructure lost end the search: nobody is told of them, so it would not end."""

_NO_OFFER = Offer("", "", 0, 0, 0)


class SearchMachine:
    """A search: which trials there are, what they cost, and what is to be done next.

    Args:
        problem: The problem.
        policy: How it is carried out.

    Attributes:
        parallel: Runs at the same time; it may be changed between events.
        ledger: The money.
        book: The trials.
        runs: The current run of each trial that has one.
        early: What the runs have reported, and which were given up for it.
        ending: Why nothing more will be asked, or None; what runs may still end.
        stopped: Why the search is over, or None.
    """

    def __init__(self, problem: Problem, policy: Policy) -> None:
        self.problem = problem
        self.policy = policy
        self.parallel = problem.terms.parallel
        self.ledger = Ledger(problem.budget.dollars)
        self.book = TrialBook(problem.objective, problem.constraints.deadline)
        self.purse = Purse(problem, abort=policy.abort, priced=policy.priced_aborts, kill_seconds=policy.kill_seconds)
        self.runs: dict[str, Run] = {}  # the current run of each open trial
        self.stopped: Stop | None = None
        self._elapsed_before = 0.0
        self._opened_at = 0.0
        self._now = 0.0
        self._waiting: deque[Trial] = deque()  # proposed, not running: no room or no money yet
        self._deadlines: dict[str, str] = {}  # run -> why its wall time is what it is
        self._aborting: dict[str, str] = {}  # run -> why it is being cancelled
        self.ending: str | None = None
        self._dropping = False  # what waits is not launched any more
        self._interrupting = False
        self._asking = False  # an answer of the searcher is on its way
        self._asked = False  # the searcher knows all that is known now
        self._repeats = 0
        self._lost = 0  # trials in a row
        self._losses: Counter[int] = Counter()  # trial -> runs that the infrastructure lost
        self._refusals = Refusals(policy.spot_attempts)
        self._leave = Leave()
        self.early = EarlyStops(problem, policy.stopper)
        self._dirty: dict[str, Run] = {}

    # ------------------------------------------------------------------ for those who ask

    @property
    def elapsed(self) -> float:
        """Wall-clock seconds used, earlier sessions included."""
        return self._elapsed_before + self._now - self._opened_at

    @property
    def seconds_left(self) -> float | None:
        """Wall-clock seconds left, or None."""
        hours = self.problem.budget.hours
        return None if hours is None else max(0.0, hours * 3600.0 - self.elapsed)

    @property
    def trials_left(self) -> int | None:
        """Trials that may still be proposed, or None."""
        limit = self.problem.budget.trials
        return None if limit is None else max(0, limit - len(self.book.trials))

    def running_offers(self) -> list[Offer]:
        """The offers that runs are on now."""
        return [self.book.trials[run.trial].offer for run in self.runs.values()]

    # ------------------------------------------------------------------ the one method that changes anything

    def handle(self, event: Event, now: float) -> list[Instruction]:
        """Take one event.

        Args:
            event: What happened.
            now: When, in seconds on the runner's clock.

        Returns:
            What is to be done, in this order.
        """
        if self.stopped:
            return []
        self._now = max(self._now, now)
        out: list[Instruction] = []
        match event:
            case Opened():
                out += self._open(event, now)
            case Proposed(proposals):
                self._asking = self._asked = False
                out += self._take(proposals)
            case NothingProposed(reason, final):
                self._asking = False
                # Who waits for a trial on its way, where there is none, would wait for ever.
                if final or (self._asked and not self.runs and not self._waiting):
                    self._end(reason)
            case RunChanged(run):
                out += self._run_changed(run)
            case Interpreted():
                out += self._interpreted(event)
            case Reported():
                out += self._reported(event)
            case Interrupted():
                self._interrupting = True
                self._end("interrupted; the same command resumes", drop=True)
                out += [Cancel(run_id, "the user stopped the search") for run_id in self.runs]
            case Granted(number):
                self._leave.give(number)
            case Tick():
                pass
        return out + self._next()

    # ------------------------------------------------------------------ opening

    def _open(self, event: Opened, now: float) -> list[Instruction]:
        self._opened_at = self._now = now
        self._elapsed_before = event.elapsed
        out: list[Instruction] = []
        open_runs = {run.trial: run for run in event.runs if not run.state.ended}
        for run in event.runs:
            if run.state.ended:
                self.ledger.settle(run.run_id, run.cost)
                self._losses[run.trial] += outcome.is_lost(run)
                self._refusals.note(run)
        for trial in event.trials:
            self.book.put(trial)
            if trial.state.ended:
                self._end_trial(trial)
                if trial.state.informs:
                    out.append(Tell(trial))
            elif trial.number in open_runs:
                run = open_runs[trial.number]
                self.ledger.take_over(run.run_id, run.reserved)
                self.runs[run.run_id] = run
            else:
                self._waiting.append(trial)
        self.early.open(event.trials, event.reports)
        out += [self._adopt(run) for run in list(self.runs.values())]
        self._aborting = {r.run_id: r.reason for r in self.runs.values() if r.reason.startswith(STOPPED_EARLY)}
        out += [Cancel(run_id, why) for run_id, why in self._aborting.items()]
        self.book.last = None
        return out

    def _adopt(self, run: Run) -> Launch:
        """Go on with a run of an earlier process; one that began without a budget gets a share of the new one."""
        trial = self.book.trials[run.trial]
        if not run.reserved and self.problem.budget.dollars is not None:
            others = len(self.runs) - 1
            amount = self.purse.reservation(trial, self.book.best_value, self.ledger.free, others) or 0.0
            run = replace(run, reserved=amount)
            self.ledger.take_over(run.run_id, amount)
            self.runs[run.run_id] = self._dirty[run.run_id] = run
        cap, why = self.cap(trial, run)
        self._deadlines[run.run_id] = why
        return Launch(trial, run, cap, again=True)

    # ------------------------------------------------------------------ what comes next

    def _next(self) -> list[Instruction]:
        """Launch what waits, ask for more, or stop."""
        out: list[Instruction] = []
        if self.ending is None:
            self._apply_rules()
        out += self._abort_losers()
        out += self._launch_waiting()
        if self.ending is None and not self._asking and not self._asked:
            room = self.parallel - len(self.runs) - len(self._waiting)
            left = self.trials_left
            room = room if left is None else min(room, left)
            if room > 0:
                self._asking = self._asked = True
                return [*out, Ask(room)]
        if self.ending is not None and not self.runs and (self._dropping or not self._waiting):
            self.stopped = Stop(self.ending, self._interrupting)
            state = "interrupted" if self._interrupting else "finished"
            out += [
                self._write(study={"state": state, "reason": self.ending, "elapsed": self.elapsed}),
                self.stopped,
            ]
        return out

    def _end(self, reason: str, *, drop: bool = False) -> None:
        """Ask for nothing more; with ``drop``, launch nothing more either."""
        if self.ending is None or self._interrupting:
            self.ending = reason
        self._dropping = self._dropping or drop

    def _apply_rules(self) -> None:
        budget = self.problem.budget
        if self.trials_left == 0 and not self._waiting:
            self._end(f"the budget of {budget.trials} trials is used up")
        elif self.seconds_left == 0:
            self._end(f"the time budget of {format_duration((budget.hours or 0) * 3600)} is used up", drop=True)
        elif self.ledger.free == 0 and not self.runs:
            self._end(f"the budget of {format_money(budget.dollars)} is used up", drop=True)
        else:
            progress = Progress(self.problem.objective, self.book.ended, self.book.best, self.ledger.spent)
            for rule in self.policy.rules:
                if reason := rule(progress):
                    self._end(reason, drop=True)
                    break

    def _abort_losers(self) -> list[Instruction]:
        """Cancel running trials that the new incumbent has made hopeless, or that the time budget overtook."""
        out: list[Instruction] = []
        late = self.seconds_left == 0
        best = self.book.best_value
        for run in self.runs.values():
            if run.run_id in self._aborting or run.state.ended:
                continue
            trial = self.book.trials[run.trial]
            why = ""
            if late:
                why = "the time budget was used up"
            elif run.state == RunState.EXECUTING:
                limits = self.purse.limits(trial, best)
                why = next((reason for seconds, reason in limits if run.runtime > seconds), "")
            if why:
                self._aborting[run.run_id] = why
                out.append(Cancel(run.run_id, why))
        return out

    # ------------------------------------------------------------------ proposals

    def _take(self, proposals: Sequence[Priced]) -> list[Instruction]:
        out: list[Instruction] = []
        keys = {trial.key for trial in self.book.pending}
        for priced in proposals:
            if not priced.proposal.repeat and (priced.key in keys or self.book.known(priced.key)):
                self._repeats += 1
                if self._repeats >= _REPEATS:
                    self._end("the searcher proposes only what was tried before")
                continue
            self._repeats = 0
            keys.add(priced.key)
            trial = Trial(
                number=self.book.next_number,
                proposal=priced.proposal,
                offer=priced.offer or _NO_OFFER,
                state=TrialState.PENDING,
                key=priced.key,
                created=self._now,
            )
            self.book.put(trial)
            if priced.offer is not None:
                self._waiting.append(trial)  # stored when it is launched; after a crash it is proposed again
                continue
            seen = Observation(None, 0.0, 0.0, feasible=False, reason=priced.reason)
            trial = replace(trial, state=TrialState.FAILED, observation=seen, ended=self._now)
            self._end_trial(trial)
            out += [self._write(trials=[trial]), Tell(trial)]
        return out

    # ------------------------------------------------------------------ launching

    def _launch_waiting(self) -> list[Instruction]:
        out: list[Instruction] = []
        for trial in list(self._waiting):
            if self._dropping or len(self.runs) >= self.parallel:
                break
            if not self.policy.gated and self.runs and not self.policy.room(trial.offer, self.running_offers()):
                break
            amount = self.purse.reservation(trial, self.book.best_value, self.ledger.free, len(self.runs))
            if amount is None:
                if self.runs:
                    out += [Unwant(trial.number)] if self._leave.drop(trial.number) else []
                    break  # money comes back when a run ends
                self._waiting.remove(trial)
                self._cannot_pay(trial)
            elif self.policy.gated and not self._leave.may(trial.number):
                out += [Want(trial)] if self._leave.ask(trial.number) else []
            else:
                self._waiting.remove(trial)
                self._leave.drop(trial.number)
                out += self._launch(trial, amount)
        return out + ([Unwant(number) for number in self._leave.drop_all()] if self._dropping else [])

    def _launch(self, trial: Trial, amount: float) -> list[Instruction]:
        attempt = trial.attempts + 1
        run = Run(
            run_id=f"{self.policy.owner}-{trial.number:05d}-{attempt}",
            trial=trial.number,
            attempt=attempt,
            reserved=amount,
            started=self._now,
            offer_key=trial.offer.key,
        )
        self.ledger.reserve(run.run_id, amount)
        trial = replace(trial, state=TrialState.RUNNING, attempts=attempt, started=trial.started or self._now)
        self.book.put(trial)
        self.runs[run.run_id] = run
        cap, why = self.cap(trial, run)
        self._deadlines[run.run_id] = why
        return [self._write(trials=[trial], runs=[run]), Launch(trial, run, cap)]

    def cap(self, trial: Trial, run: Run) -> tuple[float | None, str]:
        """When a run must end, in seconds of execution, and why."""
        return self.purse.cap(trial, run.reserved, self.book.best_value, self.seconds_left)

    def _cannot_pay(self, trial: Trial) -> None:
        """Nothing runs, and the money left does not pay a run of this trial: the search is over."""
        if self.book.ended or trial.attempts:
            self._end(f"the {format_money(self.ledger.free)} left of the budget do not pay another run", drop=True)
        else:
            budget = format_money(self.problem.budget.dollars)
            self._end(f"the budget of {budget} does not pay a single run", drop=True)
        if trial.attempts:
            self._waiting.appendleft(trial)  # stored as pending: a larger budget goes on with it
        else:
            self.book.drop(trial)

    # ------------------------------------------------------------------ runs

    def _run_changed(self, run: Run) -> list[Instruction]:
        known = self.runs.get(run.run_id)
        if known is None:
            return []
        run = replace(run, reserved=known.reserved)
        self.runs[run.run_id] = run
        if not run.state.ended:
            self._dirty[run.run_id] = run
            if not self.ledger.meter(run.run_id, run.cost) and self._over_a_unit(run):
                why = f"it cost more than the {format_money(run.reserved)} set aside for it"
                self._aborting.setdefault(run.run_id, why)
                return [Cancel(run.run_id, why)]
            return []
        trial = self.book.trials[run.trial]
        accepted = run.state == RunState.FAILED and run.exit_code in self.policy.exit_codes
        if run.state == RunState.DONE or accepted:
            return [Interpret(trial, run)]
        if run.state == RunState.TIMED_OUT:
            return self._finish(run, self._cut(trial, run))
        if run.state == RunState.CANCELLED:
            if run.run_id in self._aborting:
                return self._finish(run, self._cut(trial, run))
            return self._put_back(run, trial)
        if outcome.is_lost(run):
            return self._retry(run, trial)
        return self._finish(run, outcome.failed(trial, run, run.reason))

    def _reported(self, event: Reported) -> list[Instruction]:
        if (run := self.runs.get(event.run_id)) is None:
            return []
        why = self.early.take(event, self.book.trials[run.trial], self.book.best)
        if not why or run.state.ended or self._aborting.setdefault(run.run_id, why) != why:
            return []
        # Stored first: after a crash the run is ended, and its trial is not repeated.
        return [self._write(runs=[replace(run, reason=why)]), Cancel(run.run_id, why)]

    def _cut(self, trial: Trial, run: Run) -> Trial:
        why = self._aborting.get(run.run_id) or self._deadlines.get(run.run_id) or run.reason
        return outcome.aborted(trial, run, why, self.problem.objective, self.early.reached(trial))

    def _over_a_unit(self, run: Run) -> bool:
        offer = self.book.trials[run.trial].offer
        return (
            self.problem.budget.dollars is not None
            and run.cost > run.reserved + self.problem.terms.billing.unit_cost(offer.hourly) / 2
        )

    def _interpreted(self, event: Interpreted) -> list[Instruction]:
        run = self.runs.get(event.run_id)
        if run is None:
            return []
        trial = self.book.trials[run.trial]
        if event.metrics is None:
            return self._finish(run, outcome.failed(trial, run, event.reason))
        ended = outcome.succeeded(trial, run, event.metrics, self.problem.objective, self.problem.constraints)
        return self._finish(run, ended)

    def _finish(self, run: Run, trial: Trial) -> list[Instruction]:
        """A trial has ended: charge it, store it, tell it."""
        trial = self._charge(run, trial)
        self._lost = 0
        self._end_trial(trial)
        return [self._write(trials=[trial], runs=[run]), Settle(run.run_id), Tell(trial)]

    def _put_back(self, run: Run, trial: Trial) -> list[Instruction]:
        """A run was cancelled by the user: it is paid, and its trial is run again on resuming."""
        trial = self._charge(run, replace(trial, state=TrialState.PENDING))
        self._waiting.append(trial)
        return [self._write(trials=[trial], runs=[run]), Settle(run.run_id)]

    def _retry(self, run: Run, trial: Trial) -> list[Instruction]:
        self._refusals.note(run)
        if other := self._refusals.other_offer(trial, self.policy.elsewhere):
            return self._put_back(run, replace(trial, offer=other))  # at most once for each offer
        self._losses[trial.number] += 1  # what the user interrupted is no attempt that failed
        if self._losses[trial.number] <= self.policy.retries:
            return self._put_back(run, trial)
        seen = Observation(None, run.cost, run.runtime, feasible=False, reason=run.reason)
        lost = replace(trial, state=TrialState.LOST, observation=seen, ended=run.ended)
        lost = self._charge(run, lost)
        self._end_trial(lost)
        self._lost += 1
        if self._lost >= _LOST:
            self._end(f"{self._lost} trials in a row were lost, the last one: {run.reason}", drop=True)
        return [self._write(trials=[lost], runs=[run]), Settle(run.run_id)]

    def _charge(self, run: Run, trial: Trial) -> Trial:
        self.ledger.settle(run.run_id, run.cost)
        del self.runs[run.run_id]
        self._dirty.pop(run.run_id, None)
        self._aborting.pop(run.run_id, None)
        self._deadlines.pop(run.run_id, None)
        trial = replace(trial, spent=round(trial.spent + run.cost, 9))
        self.early.close(trial)
        self.book.put(trial)
        return trial

    # ------------------------------------------------------------------ bookkeeping

    def _end_trial(self, trial: Trial) -> None:
        self.book.end(trial)
        self._asked = False  # something new was learned: a searcher that waited may be asked again

    def _write(
        self, trials: Sequence[Trial] = (), runs: Sequence[Run] = (), study: dict[str, object] | None = None
    ) -> Write:
        """Rows to store, with whatever else has changed since the last time."""
        rows = {**self._dirty, **{run.run_id: run for run in runs}}
        self._dirty.clear()
        return Write(tuple(trials), tuple(rows.values()), {"elapsed": self.elapsed, **(study or {})})
