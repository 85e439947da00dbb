from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import share
from tests.engine.searchers import Scripted, in_order
from tests.engine.simulated_runs import Fate, World

from tradewind.engine.proposals import price_proposal, user_proposal
from tradewind.engine.state_machine.events import (
    AskSearcher,
    CancelRun,
    ConfigurationEnqueued,
    Interrupted,
    Launch,
    NothingProposed,
    ProposalsMade,
    RunChanged,
    SearchOpened,
    Tick,
)
from tradewind.engine.state_machine.search_machine import SearchMachine
from tradewind.engine.state_machine.search_policy import SearchPolicy
from tradewind.engine.state_machine.stopping_rules import make_stopping_rules
from tradewind.errors import PluginError
from tradewind.problem import (
    Billing,
    Fault,
    Integer,
    Objective,
    Problem,
    Proposal,
    Run,
    RunState,
    StudyTerms,
    Threshold,
    Trial,
    TrialState,
)
from tradewind.searcher.base import NothingLeft, SearchState
from tradewind.testing.problems import KnownOutcome, machine_parameters, make_problem


def tuning(parallel: int = 1, **options: object) -> Problem:
    """12 configurations of two machines; the billing unit is a second."""
    parameters = [*machine_parameters(2, (1, 2)), Integer(name="workers", low=1, high=3)]
    options.setdefault("billing", Billing())
    problem = make_problem(parameters, lambda _c, _o: KnownOutcome(10.0), **options)  # type: ignore[arg-type]
    return replace(problem, terms=replace(problem.terms, parallel=parallel))


def ten_seconds(trial: Trial, run: Run) -> Fate:
    return Fate(10.0)


def by_number(*seconds: float) -> object:
    def fate(trial: Trial, run: Run) -> Fate:
        return Fate(seconds[trial.number % len(seconds)])

    return fate


def searched(problem: Problem, fate: object = ten_seconds, policy: SearchPolicy | None = None) -> World:
    world = World(problem, in_order(problem), fate, policy)  # type: ignore[arg-type]
    world.open()
    world.drive()
    return world


def test_every_configuration_is_run_once_and_told_once() -> None:
    world = searched(tuning())
    assert len(world.launched) == 12
    assert sorted(world.told) == list(range(12))
    assert {t.state for t in world.trial_rows.values()} <= {TrialState.SUCCEEDED, TrialState.ABORTED}
    assert world.stop is not None
    assert world.stop.reason == "every configuration was tried"
    assert world.study["state"] == "finished"


def test_parallel_trials_run_beside_each_other() -> None:
    problem = tuning(parallel=3)
    world = World(problem, in_order(problem), ten_seconds, SearchPolicy(owner="t", abort=False))
    world.open()
    assert len(world.running) == 3
    world.drive()
    assert world.now == pytest.approx(40.0)


def test_the_budget_in_trials_is_kept() -> None:
    world = searched(tuning(parallel=5, trials=7))
    assert len(world.trial_rows) == 7
    assert world.stop is not None
    assert "7 trials" in world.stop.reason


def test_a_trial_that_breaks_a_constraint_is_infeasible_and_not_the_best() -> None:
    problem = tuning(thresholds=[Threshold("ratio", at_least=2.0)])
    fates = {0: {"ratio": 1.0}, 1: {"ratio": 3.0}}
    world = searched(problem, lambda trial, run: Fate(5.0, metrics=fates.get(trial.number, {"ratio": 0.0})))
    first = world.trial_rows[0].observation
    assert first is not None
    assert not first.feasible
    assert "ratio is 1, wanted 2 ≤ ratio" in first.reason
    assert world.machine.history.best is not None
    assert world.machine.history.best.number == 1


def test_a_missing_metric_is_a_failed_trial_that_says_which_metrics_there_are() -> None:
    problem = tuning(objective=Objective("score", "maximise"))
    world = searched(problem, lambda trial, run: Fate(5.0, metrics={"points": 1.0}), SearchPolicy(owner="t"))
    seen = world.trial_rows[0].observation
    assert world.trial_rows[0].state == TrialState.FAILED
    assert seen is not None
    assert "no metric 'score'; it has cost, points, runtime" in seen.reason


def test_what_runs_into_the_deadline_is_aborted_and_censored() -> None:
    world = searched(tuning(deadline=4.0))
    seen = world.trial_rows[0].observation
    assert world.trial_rows[0].state == TrialState.ABORTED
    assert seen is not None
    assert (seen.censored, seen.feasible, seen.runtime) == (True, False, 4.0)
    assert "deadline" in seen.reason
    assert world.machine.history.best is None


@pytest.mark.parametrize("metric", ["cost", "runtime"])
def test_what_breaks_a_bound_on_its_cost_or_time_is_aborted(metric: str) -> None:
    """``constraints.metrics: {cost: {at_most: 0.1}}`` is kept like a deadline, whatever the objective is."""
    objective = Objective("score", "maximise")
    plain = tuning(objective=objective)
    limit = 4.0 if metric == "runtime" else plain.terms.billing.cost(4.0, float(plain.candidates.hourly.min()))
    bounds = replace(plain.constraints, thresholds=(Threshold(metric, at_most=limit),))
    problem = replace(plain, constraints=bounds)
    fates = {0: Fate(3.0, metrics={"score": 1.0}), 1: Fate(60.0, metrics={"score": 9.0})}
    world = searched(problem, lambda trial, run: fates.get(trial.number, Fate(50.0, metrics={"score": 5.0})))
    best = world.machine.history.best
    assert best is not None
    assert best.number == 0
    dear = world.trial_rows[1].observation
    assert dear is not None
    assert world.trial_rows[1].state == TrialState.ABORTED
    assert (dear.censored, dear.objective) == (True, None)
    assert dear.cost <= limit + 1e-9 if metric == "cost" else dear.runtime == limit
    assert "could no longer keep its" in dear.reason
    kept = searched(problem, lambda trial, run: fates.get(trial.number, Fate(50.0, metrics={"score": 5.0})),
                    SearchPolicy(owner="t", abort=False))  # fmt: skip
    late = kept.trial_rows[1].observation
    assert late is not None
    assert (late.feasible, late.objective) == (False, 9.0)
    assert f"wanted {metric} ≤" in late.reason


def test_without_abort_the_deadline_cuts_nothing() -> None:
    world = searched(tuning(deadline=4.0), policy=SearchPolicy(owner="t", abort=False))
    states = {t.state for t in world.trial_rows.values()}
    assert states == {TrialState.SUCCEEDED}
    assert world.machine.history.best is None


def test_a_run_that_cannot_win_any_more_is_cut_short() -> None:
    world = searched(tuning(), by_number(5.0, 60.0))
    dear = world.trial_rows[1].observation
    assert dear is not None
    assert dear.censored
    assert dear.runtime < 60.0
    assert "could no longer cost less" in dear.reason


def test_a_new_best_cuts_short_what_runs_beside_it() -> None:
    problem = tuning(parallel=2)
    world = World(problem, in_order(problem), by_number(5.0, 60.0))  # type: ignore[arg-type]
    world.open()
    world.step()
    world._progress()
    slow = next(iter(r for r in world.running.values() if r.run.trial == 1))
    late = replace(slow.run, runtime=30.0, cost=problem.terms.billing.cost(30.0, slow.hourly))
    out = world.machine.handle(RunChanged(late), 30.0)
    assert [i.run_id for i in out if isinstance(i, CancelRun)] == [slow.run.run_id]


def test_the_searchers_cap_is_kept() -> None:
    problem = tuning()
    first, second = (problem.candidates.configuration(i) for i in (0, 1))
    script = [Proposal(first, abort_time=3.0), Proposal(second, abort_cost=problem.terms.billing.cost(2, 0.0425))]
    world = World(problem, Scripted(problem, script), ten_seconds, SearchPolicy(owner="t", priced_aborts=True))
    world.open()
    world.drive()
    assert next(run.runtime for run in world.run_rows.values()) == 3.0
    assert world.trial_rows[0].state == TrialState.ABORTED


def test_a_lost_run_is_retried_and_never_told() -> None:
    def fate(trial: Trial, run: Run) -> Fate:
        if trial.number == 0 and run.attempt < 3:
            return Fate(2.0, RunState.PREEMPTED, Fault.INFRASTRUCTURE, "the machine went away")
        return Fate(4.0)

    world = searched(tuning(), fate, SearchPolicy(owner="t", retries=2))
    assert world.trial_rows[0].state == TrialState.SUCCEEDED
    assert world.trial_rows[0].attempts == 3
    assert world.told.count(0) == 1
    runs = [run for run in world.run_rows.values() if run.trial == 0]
    assert world.trial_rows[0].spent == pytest.approx(sum(run.cost for run in runs))


def test_a_trial_whose_attempts_are_used_up_is_lost() -> None:
    world = searched(
        tuning(trials=1), lambda t, r: Fate(2.0, RunState.PREEMPTED, Fault.INFRASTRUCTURE), SearchPolicy("t", retries=1)
    )
    assert world.trial_rows[0].state == TrialState.LOST
    assert world.told == []
    assert len(world.launched) == 2


def test_a_failed_program_is_not_retried() -> None:
    world = searched(tuning(trials=1), lambda t, r: Fate(2.0, RunState.FAILED, Fault.JOB, "exit code 3"))
    assert world.trial_rows[0].state == TrialState.FAILED
    assert len(world.launched) == 1
    seen = world.trial_rows[0].observation
    assert seen is not None
    assert seen.reason == "exit code 3"


def test_nothing_but_failures_ends_the_search() -> None:
    rules = make_stopping_rules([("all_failed", {"trials": 3})])
    world = searched(
        tuning(), lambda t, r: Fate(1.0, RunState.FAILED, Fault.JOB, "boom"), SearchPolicy(owner="t", rules=rules)
    )
    assert world.stop is not None
    assert "first 3 trials all failed, the last one: boom" in world.stop.reason


def test_a_misspelt_metric_ends_the_search_after_two_runs() -> None:
    problem = tuning(objective=Objective("score", "maximise"))

    def policy() -> SearchPolicy:
        return SearchPolicy(owner="t", rules=make_stopping_rules([]))

    silent = searched(problem, lambda t, r: Fate(5.0, metrics={"points": 1.0}), policy())
    assert len(silent.launched) == 2
    assert silent.stop is not None
    assert "the first 2 trials all failed, the last one: the output has no metric 'score'" in silent.stop.reason
    sometimes = searched(
        problem,
        lambda t, r: Fate(5.0, metrics={"score" if t.number == 1 else "points": 1.0}),
        policy(),
    )
    assert len(sometimes.launched) == 12


def test_a_budget_below_a_single_run_is_said_so() -> None:
    problem = tuning(dollars=1e-6)
    world = World(problem, Scripted(problem, [Proposal(problem.candidates.configuration(0))]), ten_seconds)
    world.open()
    world.drive()
    assert world.launched == []
    assert world.trial_rows == {}
    assert world.stop is not None
    assert world.stop.reason == "the budget of 0.0001¢ does not pay a single run"


def test_an_interruption_pays_and_puts_back_what_runs() -> None:
    problem = tuning(parallel=2)
    world = World(problem, in_order(problem), ten_seconds)
    world.open()
    world.now = 3.0
    world.feed(Interrupted())
    assert world.stop is not None
    assert world.stop.interrupted
    assert world.study["state"] == "interrupted"
    assert [t.state for t in world.trial_rows.values()] == [TrialState.PENDING] * 2
    assert all(run.cost > 0 and run.state == RunState.CANCELLED for run in world.run_rows.values())

    resumed = World(problem, in_order(problem), ten_seconds)
    resumed.open(list(world.trial_rows.values()), list(world.run_rows.values()))
    resumed.drive()
    assert len(resumed.trial_rows) == 12
    assert resumed.trial_rows[0].attempts == 2
    spent = sum(run.cost for run in resumed.run_rows.values())
    assert resumed.machine.ledger.spent == pytest.approx(spent)


def test_interruptions_use_up_no_retries_and_losses_of_earlier_sessions_do() -> None:
    problem = tuning(trials=1)
    fates = {1: Fate(10.0), 2: Fate(5.0, RunState.PREEMPTED), 3: Fate(10.0), 4: Fate(5.0, RunState.PREEMPTED)}
    world = World(problem, in_order(problem), lambda trial, run: fates[run.attempt], SearchPolicy(owner="t", retries=1))
    world.open()
    for at in (3.0, 20.0):
        world.now = at
        if world.running and next(iter(world.running.values())).run.attempt == 2:
            world.step()
        world.feed(Interrupted())
        trials, runs = list(world.trial_rows.values()), list(world.run_rows.values())
        world = World(
            problem, in_order(problem), lambda trial, run: fates[run.attempt], SearchPolicy(owner="t", retries=1)
        )
        world.open(trials, runs)
    assert [run.state for run in runs] == [RunState.CANCELLED, RunState.PREEMPTED, RunState.CANCELLED]
    world.drive()
    assert world.trial_rows[0].state == TrialState.LOST
    assert world.trial_rows[0].attempts == 4


def test_resuming_finds_a_run_of_an_earlier_process_again() -> None:
    problem = tuning()
    world = World(problem, in_order(problem), ten_seconds)
    world.open()
    trial, run = world.trial_rows[0], next(iter(world.run_rows.values()))
    fresh = World(problem, in_order(problem), ten_seconds)
    out = fresh.machine.handle(SearchOpened([trial], [run]), 0.0)
    launches = [i for i in out if isinstance(i, Launch)]
    assert [(i.run.run_id, i.again) for i in launches] == [(run.run_id, True)]


def test_the_time_budget_cancels_what_runs() -> None:
    problem = tuning()
    problem = replace(problem, budget=replace(problem.budget, hours=5 / 3600))
    world = searched(problem)
    assert world.stop is not None
    assert "time budget" in world.stop.reason
    assert len(world.launched) == 1
    assert world.trial_rows[0].state == TrialState.ABORTED


def test_a_searcher_that_repeats_itself_is_stopped() -> None:
    problem = tuning()
    one = Proposal(problem.candidates.configuration(0))
    world = World(problem, Scripted(problem, [one] * 60), ten_seconds)
    world.open()
    world.drive()
    assert len(world.launched) == 1
    assert world.stop is not None
    assert "only what was tried before" in world.stop.reason


def test_a_repetition_that_is_asked_for_is_run() -> None:
    problem = tuning()
    one = Proposal(problem.candidates.configuration(0), repeat=True)
    world = World(problem, Scripted(problem, [one] * 3), ten_seconds)
    world.open()
    world.drive()
    assert len(world.launched) == 3


def test_nothing_starts_where_there_is_no_room() -> None:
    problem = tuning(parallel=4)
    world = World(
        problem, in_order(problem), ten_seconds, SearchPolicy(owner="t", room=lambda offer, others: len(others) < 2)
    )
    world.open()
    assert len(world.running) == 2
    world.drive()
    assert len(world.launched) == 12


def test_a_stopped_search_says_nothing_more() -> None:
    world = searched(tuning(trials=1))
    assert world.machine.handle(Tick(), 1e9) == []


@pytest.mark.slow
@settings(max_examples=share(150), deadline=None)
@given(
    dollars=st.floats(1e-5, 0.05),
    parallel=st.integers(1, 6),
    seconds=st.lists(st.floats(0.05, 400), min_size=1, max_size=12),
    lost=st.sets(st.integers(0, 11)),
    deadline=st.none() | st.floats(1, 300),
    abort=st.booleans(),
    granularity=st.sampled_from([0.1, 1.0, 60.0]),
    minimum=st.sampled_from([0.0, 60.0]),
    setup=st.sampled_from([0.0, 30.0]),
    latency=st.floats(0.0, 0.09),
    foreseen=st.booleans(),
)
def test_the_hard_cap_is_never_crossed_by_more_than_a_billing_unit_of_what_runs(
    dollars: float,
    parallel: int,
    seconds: list[float],
    lost: set[int],
    deadline: float | None,
    abort: bool,
    granularity: float,
    minimum: float,
    setup: float,
    latency: float,
    foreseen: bool,
) -> None:
    billing = Billing(setup, minimum, granularity)
    problem = tuning(parallel, dollars=dollars, billing=billing, deadline=deadline)

    def fate(trial: Trial, run: Run) -> Fate:
        if trial.number in lost and run.attempt == 1:
            return Fate(seconds[trial.number % len(seconds)] / 2, RunState.PREEMPTED, Fault.INFRASTRUCTURE)
        return Fate(seconds[(trial.number * 7 + run.attempt) % len(seconds)])

    def check(world: World) -> None:
        ledger = world.machine.ledger
        assert ledger.reserved >= 0
        late = sum(billing.unit_cost(running.hourly) for running in world.running.values())
        ended_late = sum(
            billing.unit_cost(world.trial_rows[run.trial].offer.hourly)
            for run in world.run_rows.values()
            if run.state == RunState.TIMED_OUT and run.cost > run.reserved
        )
        assert ledger.spent + ledger.metered <= dollars + late + ended_late + 1e-9

    policy = SearchPolicy(owner="t", abort=abort, kill_seconds=latency if foreseen else 0.0)
    world = World(problem, in_order(problem), fate, policy, latency, check)
    world.open()
    world.drive()
    spent = sum(run.cost for run in world.run_rows.values())
    assert world.machine.ledger.spent == pytest.approx(spent, abs=1e-9)
    assert world.machine.ledger.reserved == 0
    if foreseen:
        assert spent <= dollars + 1e-8, "the time to kill was reserved for, so nothing is overspent at all"
    assert sum(t.spent for t in world.trial_rows.values()) == pytest.approx(spent, abs=1e-9)
    ended_runs = [run for run in world.run_rows.values() if run.state.ended]
    assert len(ended_runs) == len(world.launched)
    # Each run by itself stays within its reservation, but for the unit in which it was killed.
    for run in ended_runs:
        unit = billing.unit_cost(world.trial_rows[run.trial].offer.hourly)
        assert run.cost <= run.reserved + unit + 2e-9


def test_terms_default_to_one_trial_at_a_time() -> None:
    assert StudyTerms().parallel == 1


def test_the_last_cents_are_not_spent_on_a_run_that_can_hardly_win() -> None:
    # 12 runs of 10 s; the money pays the first and a fifth of another one.
    problem = tuning()
    cost = problem.terms.billing.cost(10.0, problem.candidates.offer(0).hourly)
    world = searched(tuning(dollars=cost * 1.2), policy=SearchPolicy(owner="t"))
    assert len(world.launched) == 1
    assert world.stop is not None
    assert "do not pay another run" in world.stop.reason


class Answering(Scripted):
    """Gives whole answers, whatever was asked; after the last one it repeats it."""

    def __init__(self, problem: Problem, *answers: list[Proposal] | NothingLeft) -> None:
        super().__init__(problem, [])
        self.answers = list(answers)

    def ask(self, state: SearchState, count: int = 1) -> list[Proposal] | NothingLeft:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.mark.parametrize("answer", [[], NothingLeft("it waits for a trial", final=False)])
def test_a_searcher_that_waits_while_nothing_runs_ends_the_search(answer: list[Proposal] | NothingLeft) -> None:
    problem = tuning(parallel=2)
    one = Proposal(problem.candidates.configuration(0))
    world = World(problem, Answering(problem, [one], answer), ten_seconds)
    world.open()
    stop = world.drive(20)
    assert len(world.launched) == 1
    assert stop.reason in ("the searcher proposed nothing, and gave no reason", "it waits for a trial")


def test_more_proposals_than_were_asked_for_do_not_break_the_budget_in_trials() -> None:
    problem = tuning(parallel=3, trials=2)
    many = [Proposal(problem.candidates.configuration(i)) for i in range(6)]
    world = World(problem, Answering(problem, many), ten_seconds)
    world.open()
    world.drive(20)
    assert len(world.launched) == 2


def test_a_searcher_is_asked_again_only_after_its_answer_was_taken() -> None:
    problem = tuning(parallel=2)
    machine = SearchMachine(problem, SearchPolicy(owner="t"))
    assert [i.count for i in machine.handle(SearchOpened(), 0.0) if isinstance(i, AskSearcher)] == [2]
    first = price_proposal(problem, Proposal(problem.candidates.configuration(0)))
    out = machine.handle(ProposalsMade([first]), 0.0)
    (launch,) = [i for i in out if isinstance(i, Launch)]
    assert [i.count for i in out if isinstance(i, AskSearcher)] == [1]
    failed = replace(launch.run, state=RunState.FAILED, fault=Fault.JOB)
    assert not [i for i in machine.handle(RunChanged(failed), 0.0) if isinstance(i, AskSearcher)]
    # The answer is older than that failure: it waits for a trial that has ended meanwhile.
    out = machine.handle(NothingProposed("it waits for a trial", final=False), 0.0)
    assert [i.count for i in out if isinstance(i, AskSearcher)] == [2]
    assert machine.ending is None


@pytest.mark.parametrize("cap", [math.inf, 0.0, -1.0])
@pytest.mark.parametrize("kind", ["abort_cost", "abort_time"])
def test_odd_caps_of_a_searcher_cut_at_once_or_never(kind: str, cap: float) -> None:
    problem = tuning(dollars=1.0)
    one = Proposal(problem.candidates.configuration(0), **{kind: cap})  # type: ignore[arg-type]
    world = World(problem, Scripted(problem, [one]), ten_seconds)
    world.open()
    world.drive()
    seen = world.trial_rows[0].observation
    assert seen is not None
    assert seen.runtime == (10.0 if cap > 0 else 1.0)


def test_a_cap_that_is_no_number_is_the_searchers_error() -> None:
    problem = tuning()
    one = Proposal(problem.candidates.configuration(0), abort_cost=math.nan)
    with pytest.raises(PluginError, match=r"the searcher Scripted wants instance=.* cut short at nan"):
        World(problem, Scripted(problem, [one]), ten_seconds).open()


def test_a_token_that_expires_ends_the_search_which_goes_on_with_another_one() -> None:
    problem = tuning()

    def fate(trial: Trial, run: Run) -> Fate:
        return ten_seconds(trial, run) if trial.number < 2 else Fate(0.0, RunState.FAILED, Fault.CREDENTIALS, "expired")

    world = World(problem, in_order(problem), fate, SearchPolicy(owner="t", retries=2))
    world.open()
    stop = world.drive(100)
    assert stop.reason == "expired; the same command goes on once that is mended"
    rows = list(world.trial_rows.values())
    assert [t.state for t in rows] == [TrialState.SUCCEEDED, TrialState.SUCCEEDED, TrialState.LOST]
    resumed = World(problem, in_order(problem), ten_seconds)
    resumed.open(rows, list(world.run_rows.values()))
    resumed.drive()
    good = [t for t in resumed.trial_rows.values() if t.state is TrialState.SUCCEEDED]
    assert rows[2].key in {t.key for t in good}


def test_a_search_whose_trials_are_all_lost_ends_and_says_why() -> None:
    problem = tuning()
    world = World(problem, in_order(problem), lambda t, r: Fate(0.0, RunState.PREEMPTED, reason="no machines"))
    world.open()
    stop = world.drive(100)
    assert stop.reason == "8 trials in a row were lost, the last one: no machines"
    assert {t.state for t in world.trial_rows.values()} == {TrialState.LOST}

    resumed = World(problem, in_order(problem), ten_seconds)
    resumed.open(list(world.trial_rows.values()), list(world.run_rows.values()))
    resumed.drive()
    assert not set(resumed.told) & set(world.trial_rows), "nobody is told of lost trials, on resuming neither"
    assert len(resumed.told) == 12


def test_a_run_that_was_started_without_a_budget_gets_its_share_of_a_later_one() -> None:
    problem = tuning()
    world = World(problem, in_order(problem), ten_seconds)
    world.open()
    trial, run = world.trial_rows[0], next(iter(world.run_rows.values()))
    assert run.reserved == 0.0

    machine = SearchMachine(tuning(dollars=5.0), SearchPolicy(owner="t"))
    (launch,) = [i for i in machine.handle(SearchOpened([trial], [run]), 0.0) if isinstance(i, Launch)]
    assert launch.wall_seconds is not None
    assert launch.wall_seconds > 0
    assert machine.ledger.reserved == launch.run.reserved == 5.0
    cost = problem.terms.billing.cost(3.0, trial.offer.hourly)
    out = machine.handle(RunChanged(replace(run, state=RunState.EXECUTING, runtime=3.0, cost=cost)), 3.0)
    assert not [i for i in out if isinstance(i, CancelRun)]


def test_a_run_whose_machines_came_up_slowly_goes_on_while_the_budget_has_money() -> None:
    problem = tuning(dollars=5.0, deadline=100.0)
    world = World(problem, in_order(problem), ten_seconds)
    world.open()
    run = next(iter(world.run_rows.values()))
    assert 0 < run.reserved < 2.0
    booting = replace(run, state=RunState.BOOTING)
    out = world.machine.handle(RunChanged(replace(booting, cost=2.0)), 3.0)
    assert not [i for i in out if isinstance(i, CancelRun)]
    assert world.machine.ledger.free == 3.0
    (cancel,) = [
        i for i in world.machine.handle(RunChanged(replace(booting, cost=5.01)), 4.0) if isinstance(i, CancelRun)
    ]
    assert "the budget has no more" in cancel.reason


def test_a_run_whose_output_is_being_brought_is_not_ended_for_money_or_time() -> None:
    problem = tuning(dollars=5.0, deadline=100.0)
    problem = replace(problem, budget=replace(problem.budget, hours=1.0))
    world = World(problem, in_order(problem), ten_seconds)
    world.open()
    run = next(iter(world.run_rows.values()))
    copying = replace(run, state=RunState.COLLECTING, runtime=10.0, cost=5.01)
    out = world.machine.handle(RunChanged(copying), 20.0) + world.machine.handle(Tick(), 3601.0)
    assert not [i for i in out if isinstance(i, CancelRun)]


def test_a_run_that_was_broken_is_no_success_though_its_program_ended_well() -> None:
    problem = tuning()
    machine = SearchMachine(problem, SearchPolicy(owner="t", retries=0))
    machine.handle(SearchOpened(), 0.0)
    out = machine.handle(ProposalsMade([price_proposal(problem, Proposal(problem.candidates.configuration(0)))]), 0.0)
    (launch,) = [i for i in out if isinstance(i, Launch)]
    hook = replace(launch.run, state=RunState.FAILED, fault=Fault.INFRASTRUCTURE, exit_code=0, reason="the hook failed")
    machine.handle(RunChanged(hook), 1.0)
    assert machine.history.trials[0].state == TrialState.LOST


def test_what_the_user_wants_is_stored_at_once_and_run_before_the_searchers_proposals() -> None:
    problem = tuning(parallel=2, trials=4)
    wanted = [user_proposal(problem, {"workers": workers}) for workers in (3, 2)]
    world = World(problem, in_order(problem), ten_seconds, SearchPolicy(owner="t", abort=False))
    world.feed(SearchOpened(enqueued=[*wanted, wanted[0]]))
    assert [trial.key for trial in world.trial_rows.values()] == [one.key for one in wanted]
    assert [trial.state for trial in world.trial_rows.values()] == [TrialState.RUNNING] * 2
    third = user_proposal(problem, {"workers": 3, "nodes": 2})
    world.feed(ConfigurationEnqueued(third))
    world.feed(ConfigurationEnqueued(third))
    assert world.trial_rows[2].state is TrialState.PENDING, "it waits for a place, and is stored"
    world.drive()
    assert [trial.proposal.enqueued for trial in world.trial_rows.values()] == [True, True, True, False]
    assert world.machine.why_closed == "the budget of 4 trials is used up"
    world.feed(ConfigurationEnqueued(user_proposal(problem, {"workers": 1, "nodes": 2})))
    assert len(world.trial_rows) == 4


def test_the_searcher_is_not_asked_for_trials_that_the_user_takes() -> None:
    problem = tuning(parallel=2, trials=2)
    wanted = [user_proposal(problem, {"workers": workers}) for workers in (3, 2, 1)]
    machine = SearchMachine(problem, SearchPolicy(owner="t"))
    said = machine.handle(SearchOpened(enqueued=wanted), 0.0)
    assert [one.trial.key for one in said if isinstance(one, Launch)] == [one.key for one in wanted[:2]]
    assert not [one for one in said if isinstance(one, AskSearcher)]


def test_what_the_budget_does_not_pay_stays_for_a_larger_one() -> None:
    wanted = user_proposal(tuning(), {"workers": 3})
    poor = World(tuning(dollars=1e-6), Scripted(tuning(), []), ten_seconds)
    poor.feed(SearchOpened(enqueued=[wanted]))
    assert poor.stop is not None and "does not pay a single run" in poor.stop.reason
    assert [trial.state for trial in poor.trial_rows.values()] == [TrialState.PENDING]
    rich = World(tuning(dollars=1.0), Scripted(tuning(), []), ten_seconds)
    rich.open(list(poor.trial_rows.values()))
    rich.drive()
    assert [trial.state for trial in rich.trial_rows.values()] == [TrialState.SUCCEEDED]
