"""The state machine of a search: events in, instructions out, no input and output.

`SearchMachine.handle` is the only method that changes anything. Whoever carries out the instructions does so in
order, and feeds back what happens as further events; the engine's loop does it with a deployer and a store, a
test with neither.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tradewind.engine.state_machine import events as ev
from tradewind.engine.state_machine import trial_outcome
from tradewind.engine.state_machine.active_runs import ActiveRuns
from tradewind.engine.state_machine.architectures import ArchitectureFailures
from tradewind.engine.state_machine.budget import Ledger, RunLimits
from tradewind.engine.state_machine.early_stopping import EarlyStopping
from tradewind.engine.state_machine.kept_machines import KeptMachines
from tradewind.engine.state_machine.retry_policy import RetryTracker
from tradewind.engine.state_machine.search_policy import SearchPolicy
from tradewind.engine.state_machine.termination import TerminationCheck
from tradewind.engine.state_machine.trial_history import ProposalIntake, TrialHistory, new_trial
from tradewind.problem import Fault, MachineLease, Offer, Problem, Run, RunPreemption, RunState, Trial, TrialState
from tradewind.utils.units import count, format_money


class LaunchPermits:
    """Trials that wait for leave to run, and trials that have it."""

    def __init__(self) -> None:
        self._asked: set[int] = set()
        self._given: set[int] = set()

    def waits(self) -> bool:
        """True when a trial has asked for leave and has not been started."""
        return bool(self._asked)

    def ask(self, number: int) -> bool:
        """Note that leave for a trial is asked for; False when it was before."""
        new = number not in self._asked
        self._asked.add(number)
        return new

    def give(self, number: int) -> None:
        """A trial may run; one that does not wait any more gains nothing by it."""
        if number in self._asked:
            self._given.add(number)

    def may(self, number: int) -> bool:
        """True when a trial has leave."""
        return number in self._given

    def drop(self, number: int) -> bool:
        """Forget a trial, which has been started or is not wanted any more; False when nothing was asked for it."""
        self._given.discard(number)
        known = number in self._asked
        self._asked.discard(number)
        return known

    def drop_all(self) -> list[int]:
        """Forget all trials, and say which there were."""
        found = sorted(self._asked)
        self._asked.clear()
        self._given.clear()
        return found


class SearchMachine:
    """A search: which trials there are, what they cost, and what is to be done next.

    Args:
        problem: The problem.
        policy: How it is carried out.

    Attributes:
        parallel: Runs at the same time; it may be changed between events.
        ledger: The money.
        history: The trials.
        active_runs: The runs that have not ended.
        kept: The machines that no run has now.
        early_stopping: What the runs have reported, and which were given up for it.
        ending: Why nothing more will be asked, or None; what runs may still end.
        stopped: Why the search is over, or None.
    """

    def __init__(self, problem: Problem, policy: SearchPolicy) -> None:
        self.problem = problem
        self.policy = policy
        self.parallel = problem.terms.parallel
        self.ledger = Ledger(problem.budget.dollars)
        self.kept = KeptMachines(policy.keep, problem.terms.billing, self.ledger)
        self.history = TrialHistory(problem.objective, problem.constraints)
        self.run_limits = RunLimits(problem, policy)
        self.stopped: ev.StopSearch | None = None
        self._architectures = ArchitectureFailures(policy.architectures)
        self._allowance = TerminationCheck(problem, policy.rules, self._architectures)
        self.active_runs = ActiveRuns()
        self._waiting: deque[Trial] = deque()  # proposed, not running: no room or no money yet
        self.ending: str | None = None
        self._dropping = False  # what waits is not launched any more
        self._interrupting = False
        self._trouble = ""  # what ended it, where that has to be mended
        self._asking = False  # an answer of the searcher is on its way
        self._asked = False  # the searcher knows all that is known now
        self._intake = ProposalIntake()
        self._retries = RetryTracker(policy)
        self._permits = LaunchPermits()
        self.early_stopping = EarlyStopping(problem, policy.stopper)

    # ------------------------------------------------------------------ for those who ask

    @property
    def runs(self) -> Mapping[str, Run]:
        """The current run of each trial that has one, by its id."""
        return self.active_runs.runs

    @property
    def elapsed(self) -> float:
        """Wall-clock seconds used, earlier sessions included."""
        return self._allowance.elapsed

    @property
    def now(self) -> float:
        """The runner's clock at the latest event, in seconds."""
        return self._allowance.now

    @property
    def seconds_left(self) -> float | None:
        """Wall-clock seconds left, or None."""
        return self._allowance.seconds_left

    @property
    def trials_left(self) -> int | None:
        """Trials that may still be proposed, or None."""
        return self._allowance.trials_left(self.history)

    @property
    def why_closed(self) -> str | None:
        """The reason why the user can enqueue nothing more, or None."""
        if self.stopped is not None:
            return self.stopped.reason
        if self._dropping:
            return self.ending
        if (over := self._over()) is not None:
            return over[0]
        trials = count(self.problem.budget.trials or 0, "trial")
        return f"the budget of {trials} leaves no further one" if self.trials_left == 0 else None

    def going_on(self) -> list[Run]:
        """The runs that nobody is ending."""
        return list(self.active_runs.going_on())

    def running_offers(self) -> list[Offer]:
        """The offers that runs are on now."""
        return [self.history.trials[run.trial].offer for run in self.runs.values()]

    # ------------------------------------------------------------------ the one method that changes anything

    def handle(self, event: ev.SearchEvent, now: float) -> list[ev.SearchInstruction]:
        """Take one event.

        Args:
            event: What happened.
            now: When, in seconds on the runner's clock.

        Returns:
            What is to be done, in this order.
        """
        if self.stopped:
            return []
        # A search that only waits for leave, because others are due or somebody has paused it, uses up no time.
        self._allowance.advance(now, counts=bool(self.runs) or not self._permits.waits())
        out: list[ev.SearchInstruction] = []
        match event:
            case ev.SearchOpened():
                out += self._open(event, now)
            case ev.ProposalsMade(proposals):
                self._asking = self._asked = False
                out += self._take(proposals)
            case ev.ConfigurationEnqueued(proposal):
                out += self._enqueue([proposal])
            case ev.ChangedElsewhere(trials, runs):
                out += self._take_changes(trials, runs)
            case ev.NothingProposed(reason, final):
                self._asking = False
                # Who waits for a trial on its way, where there is none, would wait for ever.
                if final or (self._asked and not self.runs and not self._waiting):
                    self._end(reason)
            case ev.RunChanged(run):
                out += self._run_changed(run)
            case ev.OutputInterpreted():
                out += self._interpreted(event)
            case ev.RunReported():
                out += self._reported(event)
            case ev.Interrupted():
                self._interrupting = True
                self._end("interrupted; the same command resumes", drop=True)
                out += [ev.CancelRun(run_id, "the user stopped the search", waits=True) for run_id in self.runs]
            case ev.LaunchPermitted(number):
                self._permits.give(number)
            case ev.RunPreempted(run_id, preemption):
                out += self._preempt(run_id, preemption)
            case ev.MachinesFree():
                out += self._machines_free(event)
            case ev.KeptMachinesChanged(cluster, gone, until):
                out += self._kept_changed(cluster, until, gone=gone)
            case ev.Tick():
                pass
        return out + self._next()

    # ------------------------------------------------------------------ opening

    def _open(self, event: ev.SearchOpened, now: float) -> list[ev.SearchInstruction]:
        self._allowance.open(now, event.elapsed)
        out: list[ev.SearchInstruction] = []
        open_runs = {run.trial: run for run in event.runs if not run.state.ended}
        numbered = {trial.number: trial for trial in event.trials}
        out += [ev.WatchMachines(cluster) for cluster in self.kept.take_up(event.runs)]
        for run in event.runs:
            if run.state.ended:
                self._retries.note(run)
                if (known := numbered.get(run.trial)) is not None:
                    self._architectures.note(run, known)
        for trial in event.trials:
            self.history.put(trial)
            if trial.state.ended:
                self._architectures.take_up(trial)
                self._end_trial(trial)
                if trial.state.informs:
                    out.append(ev.TellSearcher(trial))
            elif trial.number in open_runs:
                run = open_runs[trial.number]
                self.ledger.take_over(run.run_id, run.reserved)
                self.active_runs.put(run)
            else:
                self._waiting.append(trial)
        self.early_stopping.open(event.trials, event.reports)
        self.active_runs.take_up()
        out += [self._adopt(run) for run in list(self.runs.values())]
        self.history.last = None
        return out + self._enqueue(event.enqueued)

    def _take_changes(self, trials: Sequence[Trial], runs: Sequence[Run]) -> list[ev.SearchInstruction]:
        """Take trials as other workers have left them: what those have stored is not stored again."""
        out: list[ev.SearchInstruction] = []
        attempts_of: dict[int, list[Run]] = {}
        for run in sorted(runs, key=lambda run: run.attempt):
            attempts_of.setdefault(run.trial, []).append(run)
        changed = {trial.number for trial in trials}
        self._waiting = deque(trial for trial in self._waiting if trial.number not in changed)
        for trial in trials:
            known = self.history.trials.get(trial.number)
            if known is not None and known.state.ended:
                continue
            attempts = known.attempts if known is not None and known.key == trial.key else 0
            for run in attempts_of.get(trial.number, ()):
                if run.run_id in self.runs or run.attempt > attempts:
                    self._take_run(run, trial)
            self.history.put(trial)
            if trial.state.ended:
                self._end_trial(trial)
                out += [ev.TellSearcher(trial)] if trial.state.informs else []
            elif not any(run.run_id in self.runs for run in attempts_of.get(trial.number, ())):
                self._waiting.append(trial)
        return out

    def _take_run(self, run: Run, trial: Trial) -> None:
        """Take a run as another worker has left it: its money is set aside, or spent."""
        if not run.state.ended:
            self.ledger.take_over(run.run_id, run.reserved)
            self.active_runs.put(run)
            return
        self._retries.note(run)
        self._architectures.note(run, trial)
        self.ledger.settle(run.run_id, run.cost)
        if run.run_id in self.runs:
            self.active_runs.remove(run.run_id)

    def _adopt(self, run: Run) -> ev.Launch:
        """Go on with a run of an earlier process; one that began without a budget gets a share of the new one."""
        trial = self.history.trials[run.trial]
        if not run.reserved and self.problem.budget.dollars is not None:
            others = len(self.runs) - 1
            amount = self.run_limits.reservation(trial, self.history.best, self.ledger.free, others, self.seconds_left)
            amount = self.run_limits.share(self.ledger.free or 0.0, others) if amount is None else amount
            run = replace(run, reserved=amount)
            self.ledger.take_over(run.run_id, amount)
            self.active_runs.put(run, stored=False)
        unwanted = self.active_runs.why_ending(run.run_id)
        return ev.Launch(trial, run, self._until(trial, run), True, unwanted, run.preemption is not None)

    def _until(self, trial: Trial, run: Run) -> float | None:
        cap, why = self.cap(trial, run)
        self.active_runs.may_take(run.run_id, cap, why)
        return cap

    # ------------------------------------------------------------------ what comes next

    def _next(self) -> list[ev.SearchInstruction]:
        """Launch what waits, ask for more, or stop."""
        out: list[ev.SearchInstruction] = []
        if self.ending is None:
            out += self._drop_misfits()
            over = self._over()
            if over is not None:
                self._end(over[0], drop=over[1])
        out += self._abort_losers()
        self.kept.meter(self._allowance.now)
        out += self._give_back(self.kept.due(self._allowance.now))
        out += self._launch_waiting()
        if self.ending is None and not self._asking and not self._asked:
            room = self.parallel - len(self.runs) - len(self._waiting)
            left = self.trials_left
            room = room if left is None else min(room, left)
            if room > 0:
                self._asking = self._asked = True
                return [*out, ev.AskSearcher(room)]
        if self.ending is not None and not self.runs and (self._dropping or not self._waiting):
            if self.kept:
                return out + self._give_back(self.kept.staying)
            self.stopped = ev.StopSearch(self.ending, self._interrupting, self._trouble)
            state = "interrupted" if self._interrupting else "finished"
            out += [
                self._write(study={"state": state, "reason": self.ending, "elapsed": self.elapsed}),
                self.stopped,
            ]
        return out

    def _over(self) -> tuple[str, bool] | None:
        """The reason why the search is over, and True if waiting trials are dropped; None while it goes on."""
        # Machines that are kept give their money back when they go.
        running = bool(self.runs or self.kept)
        return self._allowance.why_over(self.history, self.ledger, waiting=bool(self._waiting), running=running)

    def _end(self, reason: str, *, drop: bool = False) -> None:
        """Ask for nothing more; with ``drop``, launch nothing more either."""
        if self.ending is None or self._interrupting:
            self.ending = reason
        self._dropping = self._dropping or drop

    def _abort_losers(self) -> list[ev.SearchInstruction]:
        """Cancel running trials that the new incumbent has made hopeless, or that the time budget overtook."""
        out: list[ev.SearchInstruction] = []
        late = self.seconds_left == 0
        best = self.history.best_value
        # A program that has ended is not in it: its output, which is being brought, is what it was run for.
        for run in [run for run in self.going_on() if run.state != RunState.COLLECTING]:
            why = ""
            if late:
                why = "the time budget was used up"
            elif run.state == RunState.EXECUTING and run.runtime > 0:
                limits = self.run_limits.limits(self.history.trials[run.trial], best)
                why = next((reason for seconds, reason in limits if run.runtime > seconds), "")
            out += self._abort(run.run_id, why) if why else []
        return out

    # ------------------------------------------------------------------ proposals

    def _take(self, proposals: Sequence[ev.PricedProposal]) -> list[ev.SearchInstruction]:
        out: list[ev.SearchInstruction] = []
        for trial in self._intake.take(proposals, self.history, self._allowance.now):
            if trial.state.ended:
                self._end_trial(trial)
                out += [self._write(trials=[trial]), ev.TellSearcher(trial)]
            else:
                self._waiting.append(trial)  # stored when it is launched; after a crash it is proposed again
        if self._intake.stuck:
            self._end("the searcher proposes only what was tried before")
        return out

    def _drop_misfits(self) -> list[ev.SearchInstruction]:
        """End trials without a run whose machines have an architecture that the program has shown not to be for."""
        out: list[ev.SearchInstruction] = []
        for trial in list(self._waiting):
            if (ended := self._architectures.refused(trial, self._allowance.now)) is None:
                continue
            self._waiting.remove(trial)
            out += [ev.WithdrawPermit(trial.number)] if self._permits.drop(trial.number) else []
            self._end_trial(ended)
            out += [self._write(trials=[ended]), ev.TellSearcher(ended)]
        return out

    def _enqueue(self, proposals: Sequence[ev.PricedProposal]) -> list[ev.SearchInstruction]:
        """Let trials wait that the user wants: stored, for nobody proposes them again, and before the searcher's."""
        found: list[Trial] = []
        for priced in proposals:
            if self.why_closed is None and self.history.of_key(priced.key) is None:
                trial = new_trial(priced, self.history, self._allowance.now)
                mine = [at for at, other in enumerate(self._waiting, 1) if other.attempts or other.proposal.enqueued]
                self._waiting.insert(max(mine, default=0), trial)
                found.append(trial)
        return [self._write(trials=found)] if found else []

    # ------------------------------------------------------------------ launching

    def _launch_waiting(self) -> list[ev.SearchInstruction]:
        out: list[ev.SearchInstruction] = []
        for trial in self.kept.first_wanted(self._waiting):
            if self._dropping or len(self.runs) >= self.parallel:
                break
            if not self.policy.gated and self.runs and not self.policy.room(trial.offer, self.running_offers()):
                break
            lease = self.kept.of_offer(trial.offer)
            free = self.ledger.free if lease is None else self.kept.free_without(lease)
            amount = self.run_limits.reservation(trial, self.history.best, free, len(self.runs), self.seconds_left)
            if amount is None and self.kept:
                out += self._give_back(self.kept.staying)
                break  # the money comes back when they are gone
            if amount is None:
                if self.runs:
                    out += [ev.WithdrawPermit(trial.number)] if self._permits.drop(trial.number) else []
                    break  # money comes back when a run ends
                self._waiting.remove(trial)
                self._cannot_pay(trial)
            elif self.policy.gated and not self._permits.may(trial.number):
                out += [ev.RequestPermit(trial)] if self._permits.ask(trial.number) else []
            elif lease is not None and not self._lasts(lease, trial, amount):
                out += self._give_back([lease])
                break
            elif lease is None and len(self.runs) + len(self.kept) >= self.parallel:
                out += self._give_back(self.kept.staying[:1])
                break  # machines that are kept take the place of a run until they are gone
            else:
                self._waiting.remove(trial)
                self._permits.drop(trial.number)
                out += self._launch(trial, amount, lease)
        return out + ([ev.WithdrawPermit(number) for number in self._permits.drop_all()] if self._dropping else [])

    def _lasts(self, lease: MachineLease, trial: Trial, amount: float) -> bool:
        """True when kept machines do not expire before a run of a trial on them could end."""
        wall, _ = self.cap(trial, Run("", trial.number, reserved=amount))
        return self.kept.lasts(lease, self._allowance.now, wall)

    def _launch(self, trial: Trial, amount: float, lease: MachineLease | None) -> list[ev.SearchInstruction]:
        attempt = trial.attempts + 1
        run = Run(
            run_id=f"{self.policy.owner}-{trial.number:05d}-{attempt}",
            trial=trial.number,
            attempt=attempt,
            reserved=amount,
            started=self._allowance.now,
            offer_key=trial.offer.key,
        )
        trials, runs = [], []
        if lease is not None:
            taken, left = self.kept.take(lease, run.run_id, self._allowance.now)
            run = replace(run, taken=taken)
            trials, runs = [self._charge_lease(left)], [left]
        self.ledger.reserve(run.run_id, amount)
        trial = replace(trial, state=TrialState.RUNNING, attempts=attempt, started=trial.started or self._allowance.now)
        self.history.put(trial)
        self.active_runs.put(run)
        cap = self._until(trial, run)
        return [self._write(trials=[*trials, trial], runs=[*runs, run]), ev.Launch(trial, run, cap)]

    def cap(self, trial: Trial, run: Run) -> tuple[float | None, str]:
        """The time at which a run must end, in seconds of execution, and the reason."""
        return self.run_limits.cap(trial, run, self.history.best_value, self.seconds_left)

    def _cannot_pay(self, trial: Trial) -> None:
        """End the search: nothing runs, and the money left does not pay a run of this trial."""
        self._end(self._allowance.why_unpaid(self.history, self.ledger, trial.attempts), drop=True)
        if trial.attempts or trial.proposal.enqueued:
            self._waiting.appendleft(trial)  # stored as pending: a larger budget goes on with it
        else:
            self.history.drop(trial)

    # ------------------------------------------------------------------ machines that are kept

    def _machines_free(self, event: ev.MachinesFree) -> list[ev.SearchInstruction]:
        run = self.runs.get(event.run_id)
        more = not self._dropping and (bool(self._waiting) or (self.ending is None and self.trials_left != 0))
        keep = run is not None and more
        if run is not None and keep:
            offer = self.history.trials[run.trial].offer
            keep = self.kept.ask(run, offer, run.cluster, event.seconds, event.expires, self._allowance.now)
        return [ev.KeepMachines(event.run_id, keep)]

    def _kept_changed(self, cluster: str, until: float, *, gone: bool) -> list[ev.SearchInstruction]:
        if not self.kept.knows(cluster):
            return []
        if not gone:
            return self._give_back([lease for lease in self.kept.staying if lease.cluster == cluster])
        left = self.kept.end(cluster, until)
        return [self._write(trials=[self._charge_lease(left)], runs=[left])]

    def _give_back(self, leases: Sequence[MachineLease]) -> list[ev.SearchInstruction]:
        return [ev.GiveBackMachines(cluster, waits=self._interrupting) for cluster in self.kept.give_back(leases)]

    def _charge_lease(self, run: Run) -> Trial:
        """The trial of a run whose machines are not kept any more, with what keeping them has cost."""
        assert run.lease is not None
        trial = self.history.trials[run.trial]
        trial = replace(trial, spent=round(trial.spent + run.lease.cost, 9))
        self.history.put(trial)
        return trial

    # ------------------------------------------------------------------ runs

    def _run_changed(self, news: Run) -> list[ev.SearchInstruction]:
        if (run := self.active_runs.known(news)) is None:
            return []
        weighs = self.active_runs.put(run, stored=run.state.ended)
        if not run.state.ended:
            offer = self.history.trials[run.trial].offer
            within = self.ledger.meter(run.run_id, run.cost)
            # Machines that took longer to come up, or were held for copying, may have money that nobody else has.
            done = news.state == RunState.COLLECTING
            if not (within or done) and self.ledger.free == 0 and self.run_limits.overdrawn(run, offer):
                why = f"it cost more than the {format_money(run.reserved)} set aside for it, and the budget has no more"
                if instructions := self._abort(run.run_id, why):
                    return instructions
            return [self._write()] if weighs else []
        run = self.kept.begin(run)
        gone = run.state == RunState.CANCELLED or trial_outcome.is_lost(run)
        if run.preemption is not None and not gone:
            run = self.active_runs.spare(run)
        self.active_runs.put(run)
        trial = self.history.trials[run.trial]
        self._architectures.note(run, trial)
        accepted = run.state == RunState.FAILED and run.fault == Fault.JOB and run.exit_code in self.policy.exit_codes
        if run.state == RunState.DONE or accepted:
            return [ev.InterpretOutput(trial, run)]
        if run.state == RunState.TIMED_OUT:
            return self._finish(run, self._cut(trial, run))
        if gone:
            if run.preemption is not None:
                return self._put_back(run.paid(), trial)
            if self.active_runs.aborted(run.run_id):
                return self._finish(run, self._cut(trial, run))
            return self._put_back(run, trial) if run.state == RunState.CANCELLED else self._retry(run, trial)
        return self._finish(run, trial_outcome.failed(trial, run, run.reason))

    def _reported(self, event: ev.RunReported) -> list[ev.SearchInstruction]:
        if (run := self.runs.get(event.run_id)) is None:
            return []
        why = self.early_stopping.take(event, self.history.trials[run.trial], self.history.best)
        return self._abort(run.run_id, why) if why and not run.state.ended else []

    def _abort(self, run_id: str, why: str) -> list[ev.SearchInstruction]:
        """Cancel a run that is not wanted any more; nothing where that is being done already."""
        if not self.active_runs.abort(run_id, why):
            return []
        # Stored first: after a crash the run is ended, and its trial is not repeated.
        return [self._write(), ev.CancelRun(run_id, why)]

    def _preempt(self, run_id: str, preemption: RunPreemption) -> list[ev.SearchInstruction]:
        """End a run whose place another tenant gets; nothing where it is about to end in any case."""
        run = self.runs.get(run_id)
        if run is None or run.state.ended or run.state == RunState.COLLECTING:
            return []
        if not self.active_runs.preempt(run_id, preemption):
            return []
        return [self._write(), ev.CancelRun(run_id, preemption.words, repeats=True)]  # stored first, as above

    def _cut(self, trial: Trial, run: Run) -> Trial:
        why = self.active_runs.why_cut(run)
        reached = self.early_stopping.reached(trial)
        return trial_outcome.aborted(trial, run, why, self.problem.objective, self.problem.terms, reached)

    def _interpreted(self, event: ev.OutputInterpreted) -> list[ev.SearchInstruction]:
        run = self.runs.get(event.run_id)
        if run is None:
            return []
        trial = self.history.trials[run.trial]
        if event.metrics is None:
            return self._finish(run, trial_outcome.failed(trial, run, event.reason))
        of = self.problem
        ended = trial_outcome.succeeded(trial, run, event.metrics, of.objective, of.constraints, of.terms)
        return self._finish(run, ended)

    def _finish(self, run: Run, trial: Trial) -> list[ev.SearchInstruction]:
        """A trial has ended: charge it, store it, tell it."""
        trial = self._charge(run, trial)
        self._retries.ended()
        self._end_trial(trial)
        return [self._write(trials=[trial], runs=[run]), ev.SettleRun(run.run_id), ev.TellSearcher(trial)]

    def _put_back(self, run: Run, trial: Trial) -> list[ev.SearchInstruction]:
        """A run was cancelled by the user, or taken: it is paid, and its trial is run again."""
        trial = self._charge(run, replace(trial, state=TrialState.PENDING))
        self._waiting.append(trial)
        return [self._write(trials=[trial], runs=[run]), ev.SettleRun(run.run_id)]

    def _retry(self, run: Run, trial: Trial) -> list[ev.SearchInstruction]:
        if again := self._retries.again(run, trial):
            return self._put_back(run, again)
        lost = self._charge(run, self._retries.lost(run, trial))
        self._end_trial(lost)
        reason, trouble = self._retries.why_over(run)
        if reason:
            self._end(reason, drop=True)
            self._trouble = trouble
        return [self._write(trials=[lost], runs=[run]), ev.SettleRun(run.run_id)]

    def _charge(self, run: Run, trial: Trial) -> Trial:
        self.ledger.settle(run.run_id, run.cost)
        self.active_runs.remove(run.run_id)
        self.kept.put(run)
        trial = replace(trial, spent=round(trial.spent + run.cost, 9))
        self.early_stopping.close(trial)
        self.history.put(trial)
        return trial

    # ------------------------------------------------------------------ bookkeeping

    def _end_trial(self, trial: Trial) -> None:
        self.history.end(trial)
        self._asked = False  # something new was learned: a searcher that waited may be asked again

    def _write(
        self, trials: Sequence[Trial] = (), runs: Sequence[Run] = (), study: dict[str, object] | None = None
    ) -> ev.WriteRows:
        """Rows to store, with whatever else has changed since the last time."""
        return ev.WriteRows(
            tuple(trials), tuple(self.active_runs.rows(runs)), {"elapsed": self.elapsed, **(study or {})}
        )
