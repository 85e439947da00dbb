"""Runs that another tenant of a cluster takes: paid by whoever is named, run again, and never learned of."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.engine.searchers import in_order
from tests.engine.simulated_runs import Fate, World
from tests.engine.state_machine.test_search_machine import ten_seconds, tuning

from tradewind.engine.state_machine.events import CancelRun, Launch, RunChanged, RunPreempted, SearchOpened
from tradewind.engine.state_machine.search_policy import SearchPolicy
from tradewind.problem import Fault, Payer, Run, RunPreemption, RunState, Trial, TrialState
from tradewind.store import codec


def running(parallel: int = 1, retries: int = 0, fate: object = ten_seconds, trials: int = 3) -> World:
    problem = tuning(parallel=parallel, trials=trials)
    world = World(problem, in_order(problem), fate, SearchPolicy("t", retries=retries))  # type: ignore[arg-type]
    world.open()
    return world


def take(world: World, run_id: str, pays: Payer = "owner") -> None:
    world.feed(RunPreempted(run_id, RunPreemption("physics", pays, 5.0)))


@pytest.mark.parametrize("pays", ["owner", "taker", "cluster"])
def test_a_taken_run_is_run_again_and_is_no_attempt_that_failed(pays: Payer) -> None:
    world = running(trials=1)
    for at in (3.0, 6.0, 9.0):
        world.now = at
        take(world, next(iter(world.running)), pays)
    world.drive()
    trial = world.trial_rows[0]
    assert trial.state == TrialState.SUCCEEDED
    assert world.told == [0]
    runs = sorted(world.run_rows.values(), key=lambda run: run.attempt)
    assert [run.state for run in runs] == [RunState.CANCELLED] * 3 + [RunState.DONE]
    assert {run.reason for run in runs[:3]} == {"taken for tenant physics"}
    assert trial.observation is not None
    assert trial.observation.runtime == 10.0
    taken = [run.preemption.cost for run in runs[:3] if run.preemption]
    if pays == "owner":
        assert taken == [0.0] * 3
        assert all(run.cost > 0 for run in runs)
    else:
        assert all(cost > 0 for cost in taken)
        assert [run.cost for run in runs[:3]] == [0.0] * 3
    assert trial.spent == pytest.approx(sum(run.cost for run in runs))
    assert world.machine.ledger.spent == pytest.approx(trial.spent)
    assert world.machine.ledger.reserved == 0.0


def test_what_another_tenant_pays_leaves_the_budget_as_it_was() -> None:
    """The budget pays one run: the trial is finished though half of a run went to another tenant before."""
    problem = tuning(trials=1, dollars=0.0005)
    for pays, done in (("taker", True), ("owner", False)):
        world = World(problem, in_order(problem), lambda trial, run: Fate(10.0), SearchPolicy("t"))
        world.open()
        cost = problem.terms.billing.cost(10.0, world.trial_rows[0].offer.hourly)
        world = World(
            replace(problem, budget=replace(problem.budget, dollars=1.2 * cost)),
            in_order(problem), ten_seconds, SearchPolicy("t"),
        )  # fmt: skip
        world.open()
        world.now = 6.0
        take(world, next(iter(world.running)), pays)  # type: ignore[arg-type]
        world.drive()
        assert (world.trial_rows[0].state == TrialState.SUCCEEDED) is done


def test_the_note_is_stored_before_the_run_is_ended_and_kept_by_who_goes_on() -> None:
    world = running()
    run_id = next(iter(world.running))
    world.now = 3.0
    world.machine.handle(RunChanged(replace(world.running[run_id].run, state=RunState.EXECUTING)), 3.0)
    out = world.machine.handle(RunPreempted(run_id, RunPreemption("physics", "taker", 3.0)), 3.0)
    written = next(row for each in out if hasattr(each, "runs") for row in each.runs)
    (cancel,) = [each for each in out if isinstance(each, CancelRun)]
    assert out.index(cancel) == len(out) - 1
    assert cancel.repeats
    stored = codec.run_from_json(codec.run_to_json(written))
    assert stored.preemption == RunPreemption("physics", "taker", 3.0)

    fresh = running()
    again = fresh.machine.__class__(fresh.problem, SearchPolicy("t"))
    launches = [
        each for each in again.handle(SearchOpened([world.trial_rows[0]], [stored]), 4.0) if isinstance(each, Launch)
    ]
    assert [(each.run.run_id, each.again, each.unwanted, each.repeats) for each in launches] == [
        (run_id, True, "taken for tenant physics", True)
    ]
    ended = replace(stored, state=RunState.PREEMPTED, fault=Fault.INFRASTRUCTURE, cost=0.5, preemption=None)
    out = again.handle(RunChanged(ended), 5.0)
    row = next(run for each in out if hasattr(each, "runs") for run in each.runs if run.run_id == run_id)
    assert (row.state, row.cost, row.fault) == (RunState.CANCELLED, 0.0, None)
    assert row.preemption == RunPreemption("physics", "taker", 3.0, 0.5)


def test_losses_while_runs_are_taken_use_up_no_retries_later() -> None:
    def fate(trial: Trial, run: Run) -> Fate:
        return Fate(10.0) if run.attempt < 3 else Fate(5.0, RunState.PREEMPTED)

    world = running(retries=1, fate=fate, trials=1)
    for at in (3.0, 6.0):
        world.now = at
        take(world, next(iter(world.running)))
    again = World(world.problem, in_order(world.problem), lambda trial, run: Fate(5.0, RunState.PREEMPTED)
                  if run.attempt < 5 else Fate(1.0), SearchPolicy("t", retries=2))  # fmt: skip
    again.open(list(world.trial_rows.values()), list(world.run_rows.values()))
    again.drive()
    assert again.trial_rows[0].state == TrialState.SUCCEEDED


def test_a_run_that_ended_by_itself_keeps_its_result_and_its_bill() -> None:
    world = running(trials=1)
    run_id = next(iter(world.running))
    world.now = 10.0
    end = replace(world.running[run_id].run, state=RunState.DONE, runtime=10.0, cost=0.3, ended=10.0)
    world.machine.handle(RunPreempted(run_id, RunPreemption("physics", "taker", 9.9)), 9.9)
    world.running.clear()
    world.feed(RunChanged(end))
    assert world.trial_rows[0].state == TrialState.SUCCEEDED
    assert world.told == [0]
    assert world.run_rows[run_id].preemption is None
    assert world.run_rows[run_id].cost == 0.3


def test_a_run_that_is_being_cut_is_not_taken() -> None:
    world = running()
    run_id = next(iter(world.running))
    assert world.machine.active_runs.abort(run_id, "it is too slow")
    assert not [
        each for each in world.machine.handle(RunPreempted(run_id, RunPreemption("physics")), 3.0)
        if isinstance(each, CancelRun)
    ]  # fmt: skip
    assert world.machine.runs[run_id].preemption is None
