"""Where runs are cut short, and who may say so: the engine, or a searcher that prices its aborts."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from tests.engine.searchers import Scripted
from tests.engine.simulated_runs import Fate, World

from tradewind.engine.state_machine.search_policy import SearchPolicy
from tradewind.engine.state_machine.trial_outcome import run_time_caps
from tradewind.problem import Billing, Objective, Problem, Proposal, Threshold, Trial, TrialState
from tradewind.testing.problems import KnownOutcome, machine_parameters, make_problem, pending


def problem_of(deadline: float | None = 4.0, at_most: float | None = None, metric: str = "cost") -> Problem:
    thresholds = [] if at_most is None else [Threshold("runtime", at_most=at_most)]
    return make_problem(
        machine_parameters(2, (1, 2)),
        lambda _c, _o: KnownOutcome(10.0),
        deadline=deadline,
        thresholds=thresholds,
        objective=Objective(metric),
        billing=Billing(),
    )


def trial_of(problem: Problem, **options: float) -> Trial:
    return pending(problem, Proposal(problem.candidates.configuration(0), **options))  # type: ignore[arg-type]


def seconds(problem: Problem, trial: Trial, *, priced: bool, best: float | None = None, abort: bool = True) -> float:
    """When the run is cut short; infinite for never."""
    return min((s for s, _ in run_time_caps(problem, trial, best, abort=abort, priced=priced)), default=math.inf)


@pytest.mark.parametrize(
    ("priced", "abort_time", "wanted"),
    [
        (False, None, 4.0),
        (False, 9.0, 4.0),
        (False, 2.0, 2.0),
        (True, None, 4.0),
        (True, 9.0, 9.0),
        (True, 2.0, 2.0),
        (True, math.inf, math.inf),
    ],
)
def test_only_a_cap_of_a_searcher_that_prices_aborts_stands_for_the_deadline(
    priced: bool, abort_time: float | None, wanted: float
) -> None:
    problem = problem_of()
    trial = trial_of(problem) if abort_time is None else trial_of(problem, abort_time=abort_time)
    assert seconds(problem, trial, priced=priced) == wanted
    assert seconds(problem, trial, priced=priced, abort=False) == math.inf


def test_a_cap_in_money_alone_does_not_stand_for_the_deadline() -> None:
    problem = problem_of()
    assert seconds(problem, trial_of(problem, abort_cost=1e6), priced=True) == 4.0


def test_bounds_on_the_run_time_hold_beyond_the_deadline_as_well() -> None:
    problem = problem_of(at_most=6.0)
    assert seconds(problem, trial_of(problem, abort_time=9.0), priced=True) == 6.0


@pytest.mark.parametrize("metric", ["cost", "runtime"])
def test_the_best_cuts_only_where_the_searcher_does_not(metric: str) -> None:
    problem = problem_of(None, metric=metric)
    trial = trial_of(problem, abort_time=9.0)
    best = 3.0 if metric == "runtime" else problem.terms.billing.cost(3.0, trial.offer.hourly)
    assert seconds(problem, trial, priced=False, best=best) == pytest.approx(3.0)
    assert seconds(problem, trial, priced=True, best=best) == 9.0


def test_the_reason_says_whose_cap_it_was() -> None:
    problem = problem_of()
    late = min(run_time_caps(problem, trial_of(problem, abort_time=9.0), None, abort=True, priced=True))[1]
    early = min(run_time_caps(problem, trial_of(problem, abort_time=9.0), None, abort=True, priced=False))[1]
    assert "its end not worth more money" in late
    assert "deadline" in early
    assert early != late


def carried_out(runtime: float, *, priced: bool) -> Trial:
    """A run of so many seconds, deadline 4 s, cap of the searcher 9 s."""
    problem = problem_of()
    script = [Proposal(problem.candidates.configuration(0), abort_time=9.0)]
    policy = SearchPolicy(owner="t", priced_aborts=priced)
    world = World(problem, Scripted(problem, script), lambda _trial, _run: Fate(runtime), policy)
    world.open()
    world.drive()
    assert world.machine.history.best is None or runtime <= 4.0
    return world.trial_rows[0]


def test_a_run_that_ends_beyond_the_deadline_is_whole_and_infeasible() -> None:
    trial = carried_out(7.0, priced=True)
    assert trial.state == TrialState.SUCCEEDED
    assert trial.observation is not None
    assert (trial.observation.runtime, trial.observation.censored, trial.observation.feasible) == (7.0, False, False)
    assert "deadline" in trial.observation.reason


def test_a_run_beyond_the_deadline_is_cut_at_the_cap() -> None:
    trial = carried_out(30.0, priced=True)
    assert trial.state == TrialState.ABORTED
    assert trial.observation is not None
    assert (trial.observation.runtime, trial.observation.censored) == (9.0, True)
    assert "its end not worth more money" in trial.observation.reason


def test_other_searchers_do_not_get_beyond_the_deadline() -> None:
    trial = carried_out(7.0, priced=False)
    assert trial.state == TrialState.ABORTED
    assert trial.observation is not None
    assert trial.observation.runtime == 4.0


def test_a_run_in_time_is_not_touched() -> None:
    trial = carried_out(3.0, priced=True)
    assert trial.observation is not None
    assert trial.observation.feasible
    assert replace(trial.observation, reason="") == trial.observation
