"""Machines that are kept between trials: who gets them, what they cost, and that all of them go."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import share
from tests.engine.searchers import in_order

from tradewind.engine.proposals import ask_searcher
from tradewind.engine.state_machine import events as ev
from tradewind.engine.state_machine.search_machine import SearchMachine
from tradewind.engine.state_machine.search_policy import KeepPolicy, SearchPolicy
from tradewind.problem import (
    Billing,
    Fault,
    Integer,
    MachineLease,
    Problem,
    Run,
    RunState,
    Trial,
    TrialState,
    round_money,
)
from tradewind.searcher.base import NothingLeft
from tradewind.testing.problems import KnownOutcome, machine_parameters, make_problem

BOOT, RUN = 100.0, 10.0
LIFE = 5_000.0


def tuning(parallel: int = 1, machines: int = 2, **options: Any) -> Problem:
    parameters = [*machine_parameters(machines, (1,)), Integer(name="workers", low=1, high=3)]
    problem = make_problem(parameters, lambda _c, _o: KnownOutcome(RUN), billing=Billing(BOOT), **options)
    return replace(problem, terms=replace(problem.terms, parallel=parallel))


def keeping(seconds: float = 600.0) -> SearchPolicy:
    return SearchPolicy(
        owner="t", abort=False, retries=100, keep=KeepPolicy(seconds, lambda wall: (wall or RUN) + 50.0)
    )


class Cloud:
    """A provider and a deployer without any machines: it counts what it would bill.

    Args:
        problem: The problem.
        policy: Of the search.
        chance: Decides on what goes wrong; nothing does without it.
    """

    def __init__(self, problem: Problem, policy: SearchPolicy, chance: random.Random | None = None) -> None:
        self.problem, self.policy, self.chance = problem, policy, chance
        self.searcher = in_order(problem)
        self.now = 0.0
        self.machines: dict[str, tuple[float, float]] = {}  # tag -> made at, USD per hour
        self.bill = 0.0
        self.made = 0
        self.jobs: dict[str, tuple[Run, float, float]] = {}  # run -> row, ready at, ends at
        self.kept: set[str] = set()
        self.leaving: dict[str, float] = {}
        self.trials: dict[int, Trial] = {}
        self.runs: dict[str, Run] = {}
        self.stop: ev.StopSearch | None = None
        self.most = 0
        self.machine = SearchMachine(problem, policy)

    def open(self) -> None:
        """Begin, or begin again from the rows after a crash: the deployer's memory is gone, the machines are not."""
        self.machine = SearchMachine(self.problem, self.policy)
        self.searcher = in_order(self.problem)
        self.kept, self.leaving = set(), {}
        self.feed(ev.SearchOpened(list(self.trials.values()), list(self.runs.values())))

    def _destroy(self, tag: str) -> None:
        since, hourly = self.machines.pop(tag)
        self.bill += Billing().cost(self.now - since, hourly)

    def feed(self, event: ev.SearchEvent) -> None:
        events = [event]
        while events:
            for instruction in self.machine.handle(events.pop(0), self.now):
                events += self._carry_out(instruction)
                self._check()

    def _carry_out(self, instruction: ev.SearchInstruction) -> list[ev.SearchEvent]:
        match instruction:
            case ev.AskSearcher(count):
                return [ask_searcher(self.machine, self.searcher, count)]
            case ev.WriteRows(trials, runs, _):
                self.trials.update({trial.number: trial for trial in trials})
                self.runs.update({run.run_id: run for run in runs})
            case ev.Launch(trial, run, wall, again):
                self._launch(trial, run, math.inf if wall is None else wall, again=again)
            case ev.KeepMachines(run_id, keep):
                return self._end(run_id, keep=keep)
            case ev.WatchMachines(tag):
                self.kept.add(tag)
            case ev.GiveBackMachines(tag):
                self.leaving.setdefault(tag, self.now + 1.0)
            case ev.InterpretOutput(_, run):
                return [ev.OutputInterpreted(run.run_id, {})]
            case ev.TellSearcher(trial):
                self.searcher.tell(trial)
            case ev.StopSearch():
                self.stop = instruction
            case ev.CancelRun(run_id):
                return self._end(run_id, keep=False, state=RunState.CANCELLED)
            case _:
                pass
        return []

    def _launch(self, trial: Trial, run: Run, wall: float, *, again: bool) -> None:
        if again and run.run_id in self.jobs:
            self.jobs[run.run_id] = (run, *self.jobs[run.run_id][1:])
            return
        assert run.run_id not in self.jobs, "a run was started twice"
        ready = self.now
        if run.taken is None:
            if run.run_id not in self.machines:
                self.machines[run.run_id] = self.now, trial.offer.hourly
                self.made += 1
            ready += BOOT
        else:
            assert run.run_id not in self.machines
            self.kept.discard(run.cluster)
        self.jobs[run.run_id] = run, ready, ready + min(RUN, wall)

    def step(self) -> None:
        """The next thing that happens."""
        moments = [end for _, _, end in self.jobs.values()] + list(self.leaving.values())
        moments += [lease.until for lease in self.machine.kept.staying]
        self.now = max(self.now, min(moments, default=self.now))
        if self.chance is not None and self.kept and self.chance.random() < 0.2:
            lost = self.chance.choice(sorted(self.kept))
            if lost in self.machines and lost not in self.leaving:
                self._destroy(lost)
                self.kept.discard(lost)
                self.feed(ev.KeptMachinesChanged(lost, gone=True, until=self.now))
        for tag in [tag for tag, due in self.leaving.items() if due <= self.now]:
            del self.leaving[tag]
            if self.chance is not None and self.chance.random() < 0.3:
                self.leaving[tag] = self.now + 1.0  # the provider has refused
                continue
            if tag in self.machines:
                self._destroy(tag)
            self.kept.discard(tag)
            self.feed(ev.KeptMachinesChanged(tag, gone=True, until=self.now))
        for run, _, end in list(self.jobs.values()):
            if end <= self.now and run.run_id in self.jobs:
                self._ended(run)
        self.feed(ev.Tick())

    def _ended(self, run: Run) -> None:
        tag = run.cluster
        if tag not in self.machines or (self.chance is not None and self.chance.random() < 0.1):
            for event in self._end(run.run_id, keep=False, state=RunState.PREEMPTED):
                self.feed(event)
            return
        run = replace(run, cost=self._own(run), state=RunState.EXECUTING, runtime=RUN)
        self.jobs[run.run_id] = (run, *self.jobs[run.run_id][1:])
        self.feed(ev.RunChanged(run))
        self.feed(ev.MachinesFree(run.run_id, self.now - self.machines[tag][0], self.machines[tag][0] + LIFE))

    def _own(self, run: Run) -> float:
        hourly, billing = self.trials[run.trial].offer.hourly, Billing()
        assert run.started is not None
        seconds = self.now - run.started
        if run.taken is None:
            return billing.cost(seconds, hourly)
        return billing.further_cost(run.taken.seconds, seconds, hourly)

    def _end(self, run_id: str, *, keep: bool, state: RunState = RunState.DONE) -> list[ev.SearchEvent]:
        if run_id not in self.jobs:
            return []
        run, ready, _ = self.jobs.pop(run_id)
        lease = None
        if keep:
            seconds = self.now - self.machines[run.cluster][0]
            lease = MachineLease(run.cluster, seconds, self.machines[run.cluster][0] + LIFE, self.now)
            self.kept.add(run.cluster)
        elif run.cluster in self.machines:
            self._destroy(run.cluster)
        fault = Fault.INFRASTRUCTURE if state is RunState.PREEMPTED else None
        runtime = max(0.0, self.now - ready)
        if state is RunState.DONE and runtime < RUN:
            state = RunState.TIMED_OUT
        ended = replace(
            run, state=state, cost=self._own(run), runtime=runtime, ended=self.now, fault=fault, lease=lease
        )
        return [ev.RunChanged(ended)]

    def _check(self) -> None:
        self.most = max(self.most, len(self.machines))
        ledger, limit = self.machine.ledger, self.problem.budget.dollars
        if limit is not None:
            assert ledger.spent + ledger.reserved <= limit + 1e-6
        stored = {run.lease.cluster for run in self.runs.values() if run.lease and run.lease.ended is None}
        assert self.kept <= stored | {run.cluster for run in self.machine.runs.values()}, "kept without a row"

    def drive(self) -> None:
        for _ in range(10_000):
            if self.stop:
                return
            self.step()
        raise AssertionError("the search does not end")

    @property
    def spent(self) -> float:
        return round_money(sum(run.cost for run in self.runs.values()))

    def settled(self) -> None:
        """All machines are gone, and all that they cost is in the rows, once."""
        assert not self.machines
        assert self.spent == pytest.approx(self.bill)
        assert self.machine.ledger.spent == pytest.approx(self.bill)
        assert self.machine.ledger.reserved == 0
        assert sum(trial.spent for trial in self.trials.values()) == pytest.approx(self.bill)
        assert all(run.lease is None or run.lease.ended is not None for run in self.runs.values())


def searched(problem: Problem, policy: SearchPolicy) -> Cloud:
    cloud = Cloud(problem, policy)
    cloud.open()
    cloud.drive()
    cloud.settled()
    return cloud


def test_set_up_is_paid_once_for_the_trials_of_an_offer_and_each_costs_what_it_would_alone() -> None:
    cloud = searched(tuning(), keeping())
    assert len(cloud.trials) == 6
    assert cloud.made == 2, "each offer's machines are made once"
    first, second = cloud.trials[0], cloud.trials[1]
    assert first.offer.key == second.offer.key
    assert first.observation is not None and second.observation is not None
    hourly = first.offer.hourly
    assert first.observation.cost == pytest.approx(Billing().cost(BOOT + RUN, hourly))
    assert second.observation.cost == pytest.approx(first.observation.cost), "a user's runs have no machines kept"
    assert cloud.runs["t-00001-1"].own_cost == pytest.approx(Billing().cost(RUN, hourly)), "and this is what was paid"
    assert cloud.runs["t-00001-1"].cluster == "t-00000-1"


def test_without_it_each_trial_makes_its_own() -> None:
    cloud = searched(tuning(), SearchPolicy(owner="t", abort=False))
    assert cloud.made == 6
    assert all(run.lease is None and run.taken is None for run in cloud.runs.values())


def test_machines_that_are_kept_take_a_place_and_make_room_for_another_offer() -> None:
    cloud = searched(tuning(parallel=2, machines=3), keeping())
    assert cloud.most <= 2
    assert cloud.made == 6, "two at once of each offer, not nine"


def test_machines_are_given_back_when_their_time_is_over() -> None:
    cloud = Cloud(tuning(parallel=2, machines=1, trials=3), keeping(30.0))
    cloud.open()
    run, ready, _ = cloud.jobs["t-00001-1"]
    cloud.jobs["t-00001-1"] = run, ready, ready + 1_000.0  # the other one goes on for long
    cloud.searcher.ask = lambda state, count=1: NothingLeft("wait", final=False)  # type: ignore[method-assign]
    while not cloud.kept:
        cloud.step()
    [lease] = cloud.machine.kept.leases
    assert lease.until == lease.since + 30.0
    while cloud.kept:
        cloud.step()
    assert cloud.now == lease.until + 1.0, "a second is what the provider takes"
    assert cloud.trials[0].spent == pytest.approx(cloud.runs["t-00000-1"].own_cost + Billing().cost(31.0, lease.hourly))


def test_money_for_keeping_is_set_aside_and_too_little_of_it_keeps_nothing() -> None:
    problem = tuning(machines=1)
    hourly = float(problem.candidates.hourly.min())
    enough = Billing().cost(BOOT + 3 * RUN, hourly)
    poor = replace(problem, budget=replace(problem.budget, dollars=enough + Billing().cost(60.0, hourly)))
    cloud = Cloud(poor, keeping(600.0))
    cloud.open()
    cloud.drive()
    assert not any(run.lease for run in cloud.runs.values())
    assert cloud.bill <= poor.budget.dollars  # type: ignore[operator]


def test_what_is_kept_for_one_offer_does_not_keep_the_money_from_another() -> None:
    problem = tuning(parallel=2, machines=2, dollars=1_000.0)
    cloud = searched(problem, keeping())
    assert all(trial.state is TrialState.SUCCEEDED for trial in cloud.trials.values())


def test_an_interrupted_search_gives_back_what_it_keeps() -> None:
    cloud = Cloud(tuning(parallel=2, machines=2), keeping())
    cloud.open()
    while not cloud.kept:
        cloud.step()
    cloud.feed(ev.Interrupted())
    cloud.drive()
    cloud.settled()
    assert cloud.stop is not None and cloud.stop.interrupted


def test_kept_machines_that_are_no_good_any_more_are_given_back_at_once() -> None:
    cloud = Cloud(tuning(parallel=2, machines=2), keeping())
    cloud.open()
    while not cloud.kept:
        cloud.step()
    [tag] = cloud.kept
    cloud.feed(ev.KeptMachinesChanged(tag, gone=False, until=cloud.now))
    assert tag in cloud.leaving
    cloud.drive()
    cloud.settled()


def test_machines_that_would_expire_during_the_next_run_are_not_used_for_it() -> None:
    policy = replace(keeping(), keep=KeepPolicy(600.0, lambda wall: LIFE))
    assert searched(tuning(machines=1), policy).made == 3


@given(
    seed=st.integers(0, 10_000),
    parallel=st.integers(1, 3),
    machines=st.integers(1, 3),
    keep=st.sampled_from([1.0, 40.0, 600.0]),
    dollars=st.sampled_from([None, 0.004, 0.01, 100.0]),
)
@settings(max_examples=share(60), deadline=None)
def test_whatever_goes_wrong_and_whenever_it_is_killed_nothing_is_left_or_paid_twice(
    seed: int, parallel: int, machines: int, keep: float, dollars: float | None
) -> None:
    chance = random.Random(seed)
    cloud = Cloud(tuning(parallel, machines, dollars=dollars), keeping(keep), chance)
    cloud.open()
    for _ in range(10_000):
        if cloud.stop:
            break
        if chance.random() < 0.1:
            cloud.open()  # kill -9: only the rows and the machines are left
        elif chance.random() < 0.02:
            cloud.feed(ev.Interrupted())
        else:
            cloud.step()
    assert cloud.stop, "the search does not end"
    cloud.settled()
