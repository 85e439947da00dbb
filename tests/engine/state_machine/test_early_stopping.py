from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import share
from tests.engine.searchers import in_order
from tests.engine.simulated_runs import Fate, World
from tests.engine.state_machine.test_search_machine import tuning

from tradewind import plugins
from tradewind.engine.state_machine.early_stopping import EarlyStopping, estimated_savings, judged_metric
from tradewind.engine.state_machine.events import CancelRun, RunChanged, RunReported, SearchOpened, WriteRows
from tradewind.engine.state_machine.search_policy import SearchPolicy
from tradewind.errors import SpecError
from tradewind.interpreter.log_reader import CurvePoints
from tradewind.problem import STOPPED_EARLY, Objective, Problem, Run, RunState, Threshold, Trial, TrialState
from tradewind.stopper.base import Stopper

Curves = Sequence[Sequence[float]]


def stopper(name: str = "median", **given: Any) -> Stopper:
    made = plugins.create("stopper", name, given)
    assert isinstance(made, Stopper)
    return made


def training(parallel: int = 1, goal: Any = "minimise", **options: Any) -> Problem:
    return tuning(parallel, objective=Objective("loss", goal), **options)


class Training(World):
    """A world whose runs report a value each second, and end half a second after the last one."""

    def __init__(self, problem: Problem, curves: Curves, policy: Stopper, fate: Any = None) -> None:
        self.curves = curves
        self.reported: dict[str, int] = {}
        self.stops: list[tuple[int, int, int | None]] = []  # trial, steps, the best trial then

        def end(trial: Trial, run: Run) -> Fate:
            values = self.curve(trial.number)
            return Fate(len(values) + 0.5, metrics={"loss": values[-1]})

        super().__init__(problem, in_order(problem), fate or end, SearchPolicy(owner="t", abort=False, stopper=policy))

    def curve(self, number: int) -> Sequence[float]:
        return self.curves[number % len(self.curves)]

    def step(self) -> None:
        reports = []
        for run_id, one in self.running.items():
            told = self.reported.get(run_id, 0)
            if told < len(self.curve(one.run.trial)):
                reports.append((one.start + told + 1.0, run_id))
        ends = [(self._ends(one), run_id) for run_id, one in self.running.items()]
        if not ends or not reports or min(ends)[0] < min(reports)[0]:
            if ends:  # the loop tells the whole curve before the end
                one = self.running[min(ends)[1]]
                points = tuple(enumerate(self.curve(one.run.trial)[: self.reported.get(one.run.run_id, 0)], 1))
                self.feed(RunReported(one.run.run_id, points, final=True))
            super().step()
            return
        self.now, run_id = min(reports)
        self._progress()
        for one in list(self.running.values()):
            self.feed(RunChanged(one.run))
        number = self.running[run_id].run.trial
        told = self.reported[run_id] = self.reported.get(run_id, 0) + 1
        best = self.machine.history.best
        self.feed(RunReported(run_id, ((float(told), self.curve(number)[told - 1]),)))
        if run_id not in self.running:
            self.stops.append((number, told, best.number if best else None))


def trained(problem: Problem, curves: Curves, policy: Stopper) -> Training:
    world = Training(problem, curves, policy)
    world.open()
    world.drive()
    return world


GOOD, BAD = (0.9, 0.5, 0.3, 0.2), (0.9, 0.8, 0.8, 0.8)


def test_a_hopeless_trial_is_stopped_paid_and_told_with_its_last_value() -> None:
    world = trained(training(), [GOOD, GOOD, BAD, GOOD], stopper(trials=2))
    trial = world.trial_rows[2]
    seen = trial.observation
    assert seen is not None
    assert trial.stopped_early
    assert (trial.state, seen.censored, seen.feasible, seen.objective) == (TrialState.ABORTED, True, False, None)
    assert seen.reason.startswith("stopped early: loss: its best by step 2 is 0.8")
    assert (seen.metrics["loss"], seen.metrics["step"], seen.runtime) == (0.8, 2.0, 2.0)
    assert trial.spent == seen.cost > 0
    assert world.told.count(2) == 1
    assert world.stops[0] == (2, 2, world.stops[0][2])
    assert world.machine.early_stopping.stopped[0] == (2.0, trial.offer.hourly)


def test_without_a_policy_nothing_is_stopped() -> None:
    world = World(training(), in_order(training()), lambda t, r: Fate(2.0, metrics={"loss": 1.0}))
    world.open()
    run_id = next(iter(world.running))
    assert not any(isinstance(i, CancelRun) for i in world.machine.handle(RunReported(run_id, ((1.0, 9e9),)), 1.0))


@pytest.mark.slow
@settings(max_examples=share(120), deadline=None)
@given(
    curves=st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=9), min_size=2, max_size=12),
    parallel=st.integers(1, 4),
    policy=st.sampled_from([("median", {"trials": 1}), ("median", {"trials": 3}), ("successive_halving", {"eta": 2})]),
    goal=st.sampled_from(["minimise", "maximise"]),
)
def test_what_is_stopped_was_worse_than_the_best_there_and_all_is_paid(
    curves: list[list[float]], parallel: int, policy: tuple[str, dict[str, Any]], goal: str
) -> None:
    problem = training(parallel, goal)
    world = trained(problem, curves, stopper(policy[0], **policy[1]))
    again = trained(problem, curves, stopper(policy[0], **policy[1]))
    assert world.trial_rows == again.trial_rows
    assert world.run_rows == again.run_rows, "the same events gave other decisions"

    sign = 1 if goal == "minimise" else -1
    for number, steps, best in world.stops:
        own = min(sign * value for value in world.curve(number)[:steps])
        if best is not None:
            assert min(sign * value for value in world.curve(best)[:steps]) < own
    stopped = {number for number, trial in world.trial_rows.items() if trial.stopped_early}
    assert stopped == {number for number, _, _ in world.stops}
    assert len(stopped) < len(world.trial_rows) == 12
    assert sorted(world.told) == list(range(12)), "a trial was not told, or told twice"
    spent = sum(run.cost for run in world.run_rows.values())
    assert world.machine.ledger.spent == pytest.approx(spent, abs=1e-9)
    assert world.machine.ledger.reserved == 0
    assert all(run.state.ended for run in world.run_rows.values())


def test_a_trial_as_good_as_the_best_is_never_stopped() -> None:
    late = (0.9, 0.9, 0.9, 0.1)  # the best comes late: its beginning is worse than the median
    world = trained(training(), [GOOD, GOOD, late, late], stopper(trials=5))
    assert 2 not in {number for number, _, _ in world.stops}
    assert world.machine.history.best is not None
    assert world.machine.history.best.number == 2
    assert world.stops == []


def test_a_crash_between_decision_and_cancellation_ends_the_run_and_does_not_repeat_it() -> None:
    problem = training()
    world = Training(problem, [GOOD, GOOD, BAD, GOOD], stopper(trials=2))
    world.open()
    while 2 not in world.trial_rows:
        world.step()
    run_id = next(iter(world.running))
    out = world.machine.handle(RunReported(run_id, ((1.0, 0.9), (2.0, 0.8))), world.now)
    assert [type(one) for one in out] == [WriteRows, CancelRun]
    assert isinstance(out[0], WriteRows)
    world.run_rows.update({run.run_id: run for run in out[0].runs})  # and now the process is killed

    resumed = Training(problem, [GOOD, GOOD, BAD, GOOD], stopper(trials=2))
    resumed.now = world.now
    resumed.open(list(world.trial_rows.values()), list(world.run_rows.values()))
    trial = resumed.trial_rows[2]
    assert trial.stopped_early
    assert trial.attempts == 1
    assert resumed.run_rows[run_id].state == RunState.CANCELLED
    resumed.drive()
    assert len(resumed.trial_rows) == 12


def test_curves_of_earlier_sessions_are_compared_with() -> None:
    problem = training()
    world = Training(problem, [GOOD, GOOD, BAD], stopper(trials=2))
    world.open()
    while 2 not in world.trial_rows:
        world.step()
    trials, runs = list(world.trial_rows.values()), list(world.run_rows.values())
    points = tuple(enumerate(GOOD, 1))
    for reports, expected in (({}, False), ({0: points, 1: points}, True)):
        resumed = Training(problem, [GOOD], stopper(trials=2))
        resumed.machine.handle(SearchOpened(trials, runs, 0.0, reports), 10.0)
        out = resumed.machine.handle(RunReported(runs[-1].run_id, ((1.0, 0.9), (2.0, 0.8))), 11.0)
        assert any(isinstance(one, CancelRun) for one in out) is expected


def test_a_run_that_goes_on_after_a_restart_is_not_judged_again_where_it_was() -> None:
    world = Training(training(), [GOOD], stopper())
    world.open()
    first = replace(world.machine.history.trials[0], state=TrialState.RUNNING)
    others = [replace(first, number=n, state=TrialState.SUCCEEDED) for n in range(1, 6)]
    reports = {other.number: tuple((float(step), 0.1) for step in range(1, 10)) for other in others}
    told = tuple((float(step), 0.9) for step in range(1, 6))
    resumed, fresh = (EarlyStopping(training(), stopper("successive_halving")) for _ in range(2))
    resumed.open([first, *others], reports)
    fresh.open(others, reports)
    assert "came to step 3" in fresh.take(RunReported("a", told), first, None)
    assert resumed.take(RunReported("a", ()), first, None) == ""
    assert resumed.take(RunReported("a", told), first, None) == ""
    assert resumed.take(RunReported("a", ((8.0, 0.9),)), first, None) == ""
    assert "came to step 9" in resumed.take(RunReported("a", ((9.0, 0.9),)), first, None)
    resumed.open([first], {})
    assert resumed.take(RunReported("a", CurvePoints(told), final=True), first, None) == ""
    # Its trial is repeated: the new run is told from its own beginning.
    resumed.open([first], {})
    resumed.close(replace(first, state=TrialState.PENDING))
    assert "came to step 3" in resumed.take(RunReported("b", told), first, None)


def test_a_failed_or_lost_run_is_compared_with_nobody() -> None:
    fates = {0: Fate(4.5, RunState.FAILED), 1: Fate(4.5, RunState.FAILED)}
    world = Training(training(), [GOOD, GOOD, BAD, BAD], stopper(trials=2))
    usual = world.fate
    world.fate = lambda trial, run: fates.get(trial.number) or usual(trial, run)
    world.open()
    world.drive()
    assert 2 not in {number for number, _, _ in world.stops}


def test_trials_on_parts_of_the_input_are_compared_among_themselves() -> None:
    early_stopping = EarlyStopping(training(), stopper(trials=1))
    world = Training(training(), [GOOD], stopper())
    world.open()
    whole = world.machine.history.trials[0]
    part = replace(whole, number=1, proposal=replace(whole.proposal, fidelity=0.5))
    early_stopping.take(RunReported("a", ((1.0, 0.1),), final=True), whole, None)
    early_stopping.close(replace(whole, state=TrialState.SUCCEEDED))
    assert early_stopping.take(RunReported("b", ((1.0, 0.9),)), part, None) == ""
    assert early_stopping.take(RunReported("c", ((1.0, 0.9),)), replace(whole, number=2), None).startswith(
        STOPPED_EARLY
    )


def test_what_keeps_its_bound_or_is_at_its_last_step_goes_on() -> None:
    bounded = replace(training(), objective=Objective("cost"))
    bounded = replace(
        bounded, constraints=replace(bounded.constraints, thresholds=(Threshold("accuracy", at_least=0.7),))
    )
    trial = Training(training(), [GOOD], stopper())
    trial.open()
    first = trial.machine.history.trials[0]
    for value, last_step, goes_on in ((0.75, None, True), (0.65, None, False), (0.65, 1, True)):
        early_stopping = EarlyStopping(bounded, stopper(trials=1, metric="accuracy", last_step=last_step))
        early_stopping.take(RunReported("a", ((1.0, 0.9),), final=True), first, None)
        early_stopping.close(replace(first, state=TrialState.SUCCEEDED))
        why = early_stopping.take(RunReported("b", ((1.0, value),)), replace(first, number=1), None)
        assert (why == "") is goes_on


def test_what_is_judged_by_is_the_objective_a_bound_or_said() -> None:
    assert judged_metric(training(goal="maximise"), stopper().settings) == ("loss", "maximise")
    bounds = (Threshold("ratio", at_most=3.0), Threshold("share", at_least=0.1, at_most=0.2))
    plain = replace(tuning(), constraints=replace(tuning().constraints, thresholds=bounds))
    assert judged_metric(plain, stopper(metric="ratio").settings) == ("ratio", "minimise")
    assert judged_metric(plain, stopper(metric="x", goal="maximise").settings) == ("x", "maximise")
    with pytest.raises(SpecError, match="cost is no metric that a run reports"):
        judged_metric(plain, stopper().settings)
    for metric in ("x", "share"):
        with pytest.raises(SpecError, match=r"whether .* is to be small or large"):
            judged_metric(plain, stopper(metric=metric).settings)


def test_what_was_saved_is_counted_from_the_usual_run_time() -> None:
    assert estimated_savings([10.0, 20.0, 90.0], [(5.0, 3.6), (25.0, 3.6)]) == pytest.approx(0.015)
    assert estimated_savings([], [(5.0, 3.6)]) == 0.0
