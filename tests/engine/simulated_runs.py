"""A world for the state machine: runs that take time, fail and get lost, on a clock that jumps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tradewind.engine.proposals import ask_searcher
from tradewind.engine.state_machine.events import (
    AskSearcher,
    CancelRun,
    InterpretOutput,
    Launch,
    OutputInterpreted,
    RunChanged,
    SearchEvent,
    SearchOpened,
    StopSearch,
    TellSearcher,
    Tick,
    WriteRows,
)
from tradewind.engine.state_machine.search_machine import SearchMachine
from tradewind.engine.state_machine.search_policy import SearchPolicy
from tradewind.problem import Fault, Problem, Run, RunState, Trial
from tradewind.searcher.base import Searcher


@dataclass(frozen=True)
class Fate:
    """What will happen to a run: how long it would take, and how it ends if nobody cuts it short."""

    runtime: float
    state: RunState = RunState.DONE
    fault: Fault | None = None
    reason: str = ""
    metrics: dict[str, float] | None = field(default_factory=dict)


@dataclass
class _Running:
    run: Run
    fate: Fate
    start: float
    wall: float | None
    hourly: float


class World:
    """Carries out instructions.

    Args:
        problem: The problem.
        searcher: Proposes.
        fate: What happens to each run.
        policy: Of the search.
        kill_latency: Seconds that a run goes on after its wall time.
        on_step: Called after each event, to check what must always hold.
    """

    def __init__(
        self,
        problem: Problem,
        searcher: Searcher,
        fate: Callable[[Trial, Run], Fate],
        policy: SearchPolicy | None = None,
        kill_latency: float = 0.0,
        on_step: Callable[[World], None] = lambda world: None,
    ) -> None:
        self.machine = SearchMachine(problem, policy or SearchPolicy(owner="t"))
        self.searcher = searcher
        self.problem = problem
        self.fate = fate
        self.kill_latency = kill_latency
        self.on_step = on_step
        self.now = 0.0
        self.running: dict[str, _Running] = {}
        self.trial_rows: dict[int, Trial] = {}
        self.run_rows: dict[str, Run] = {}
        self.study: dict[str, object] = {}
        self.launched: list[str] = []
        self.told: list[int] = []
        self.overshoot_allowed = 0.0
        self.stop: StopSearch | None = None

    def open(self, trials: list[Trial] | None = None, runs: list[Run] | None = None) -> None:
        """Start, or resume from rows."""
        self.trial_rows = {t.number: t for t in trials or []}
        self.run_rows = {r.run_id: r for r in runs or []}
        self.feed(SearchOpened(trials or [], runs or []))

    def drive(self, most: int = 100_000) -> StopSearch:
        """Until the search stops."""
        for _ in range(most):
            if self.stop:
                return self.stop
            self.step()
        raise AssertionError("the search does not end")

    def step(self) -> None:
        """Let the next run end."""
        if not self.running:
            self.feed(Tick())
            assert self.stop or self.running, "nothing runs and nothing was said"
            return
        first = min(self.running.values(), key=self._ends)
        self.now = max(self.now, self._ends(first))
        self._progress()
        ended = self._end(first)
        self.feed(RunChanged(ended))

    def _ends(self, running: _Running) -> float:
        own = running.start + running.fate.runtime
        if running.wall is None:
            return own
        return min(own, running.start + running.wall + self.kill_latency)

    def _progress(self) -> None:
        billing = self.problem.terms.billing
        for other in list(self.running.values()):
            seconds = self.now - other.start
            run = replace(
                other.run, state=RunState.EXECUTING, runtime=seconds, cost=billing.cost(seconds, other.hourly)
            )
            other.run = run

    def _end(self, running: _Running, cancelled: bool = False) -> Run:
        del self.running[running.run.run_id]
        seconds = self.now - running.start
        fate = running.fate
        state, reason, fault = fate.state, fate.reason, fate.fault
        if cancelled:
            state, reason, fault = RunState.CANCELLED, "cancelled", None
        elif seconds < fate.runtime:
            state, reason, fault = RunState.TIMED_OUT, "wall time", None
        cost = self.problem.terms.billing.cost(seconds, running.hourly)
        return replace(running.run, state=state, reason=reason, fault=fault, runtime=seconds, cost=cost, ended=self.now)

    def feed(self, event: SearchEvent) -> None:
        """Give the machine an event and carry out what it says."""
        events: list[SearchEvent] = [event]
        while events:
            for instruction in self.machine.handle(events.pop(0), self.now):
                match instruction:
                    case AskSearcher(count):
                        events.append(ask_searcher(self.machine, self.searcher, count))
                    case WriteRows(trials, runs, study):
                        self.trial_rows.update({t.number: t for t in trials})
                        self.run_rows.update({r.run_id: r for r in runs})
                        self.study.update(study)
                    case Launch(trial, run, wall, _, unwanted):
                        assert run.run_id in self.run_rows, "a run was started before its row was stored"
                        assert run.run_id not in self.launched, "a run was started twice"
                        self.launched.append(run.run_id)
                        offer = trial.offer
                        self.overshoot_allowed += self.problem.terms.billing.unit_cost(offer.hourly)
                        self.running[run.run_id] = _Running(run, self.fate(trial, run), self.now, wall, offer.hourly)
                        if wall is not None:
                            assert wall > 0
                        if unwanted:
                            events.append(RunChanged(self._end(self.running[run.run_id], cancelled=True)))
                    case CancelRun(run_id, _):
                        if run_id in self.running:
                            events.append(RunChanged(self._end(self.running[run_id], cancelled=True)))
                    case InterpretOutput(trial, run):
                        metrics = self.fate(trial, run).metrics
                        reason = "" if metrics is not None else "no match"
                        events.append(OutputInterpreted(run.run_id, metrics, reason))
                    case TellSearcher(trial):
                        self.told.append(trial.number)
                        self.searcher.tell(trial)
                    case StopSearch():
                        self.stop = instruction
            self.on_step(self)
