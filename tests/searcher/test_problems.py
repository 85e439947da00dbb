"""The ready problems are what they say."""

from __future__ import annotations

import pytest

from tradewind import plugins
from tradewind.errors import NoOfferError
from tradewind.plugins import Settings
from tradewind.problem import Billing, Configuration, Objective, Proposal, Threshold, TrialState
from tradewind.searcher.base import NothingLeft, PricesAborts, Searcher, SearchState
from tradewind.testing import problems
from tradewind.testing.problems import drive, evaluate


def test_sizes() -> None:
    assert len(problems.table_problem().candidates) == 405
    assert len(problems.conditional_problem().candidates) == 52
    assert len(problems.flat_problem().candidates) == 24
    assert len(problems.infeasible_problem().candidates) == 27
    assert len(problems.tiny_problem().candidates) == 1
    assert problems.huge_problem().space.combinations == 10**6
    assert not problems.continuous_problem().space.enumerable


def test_the_table_has_an_optimum_a_cliff_and_a_deadline_that_binds() -> None:
    problem = problems.table_problem()
    found = problem.optimum()
    assert found is not None
    tight = problems.table_problem(deadline=500.0).optimum()
    assert tight is not None
    assert tight[1] > found[1]
    states = [evaluate(problem, Proposal(problem.candidates.configuration(i))).state for i in range(0, 405, 5)]
    assert 5 < states.count(TrialState.FAILED) < 40
    slow = problems.table_problem(cliff="slow")
    bad = next(
        problem.candidates.configuration(i)
        for i in range(405)
        if problem.truth(problem.candidates.configuration(i), problem.candidates.offer(i)).failed
    )
    assert slow.bill(bad) > problem.bill(bad)
    assert evaluate(problems.table_problem(cliff="none"), Proposal(bad)).state != TrialState.FAILED


def test_nothing_is_feasible_in_the_infeasible_problem() -> None:
    assert problems.infeasible_problem().optimum() is None


def test_an_abort_leaves_lower_bounds() -> None:
    problem = problems.table_problem(billing=Billing(granularity_seconds=1.0))
    configuration = problem.candidates.configuration(400)
    full = evaluate(problem, Proposal(configuration))
    cut = evaluate(problem, Proposal(configuration, abort_cost=full.spent / 2))
    assert cut.state == TrialState.ABORTED
    assert cut.observation is not None
    assert cut.observation.censored
    assert cut.spent <= full.spent / 2
    timed = evaluate(problem, Proposal(configuration, abort_time=10.0))
    assert timed.observation is not None
    assert timed.observation.runtime == 10.0
    late = evaluate(problems.table_problem(deadline=5.0), Proposal(configuration), abort_at_deadline=True)
    assert late.state == TrialState.ABORTED


def test_the_smallest_bill_is_owed_whatever_the_cap() -> None:
    problem = problems.table_problem(billing=Billing(minimum_seconds=60.0))
    cut = evaluate(problem, Proposal(problem.candidates.configuration(400), abort_cost=1e-9))
    assert cut.spent == pytest.approx(float(problem.candidates.hourly[400]) / 60.0)


def test_a_deadline_that_is_missed_and_a_threshold_that_is_broken() -> None:
    problem = problems.table_problem(deadline=1.0, cliff="none", thresholds=[Threshold("throughput", at_least=1e9)])
    seen = evaluate(problem, Proposal(problem.candidates.configuration(0))).observation
    assert seen is not None
    assert not seen.feasible
    assert "deadline" in seen.reason
    assert "throughput" in seen.reason


def test_a_missing_metric_is_a_failure() -> None:
    problem = problems.table_problem(objective=Objective("accuracy", "maximise"), cliff="none")
    assert evaluate(problem, Proposal(problem.candidates.configuration(0))).state == TrialState.FAILED


def test_noise_depends_on_configuration_and_number_only() -> None:
    problem = problems.table_problem(noise=0.1, cliff="none")
    proposal = Proposal(problem.candidates.configuration(7))
    assert evaluate(problem, proposal, 3).spent == evaluate(problem, proposal, 3).spent
    assert evaluate(problem, proposal, 3).spent != evaluate(problem, proposal, 4).spent
    exact = problem.value(proposal.configuration)
    assert exact == problems.table_problem(cliff="none").value(proposal.configuration)


def test_an_unsold_pair() -> None:
    sold = {("c9.large", 1)}
    problem = problems.make_problem(
        problems.machine_parameters(2, (1, 2)), lambda _c, _o: problems.KnownOutcome(1.0), sold=sold
    )
    assert len(problem.candidates) == 1
    with pytest.raises(NoOfferError, match="not sold"):
        problem.resolver.resolve(Configuration({"instance": "m9.large", "nodes": 2}))


def test_drive_keeps_the_budget_the_number_and_the_caps() -> None:
    problem = problems.table_problem(dollars=2.0)
    random = plugins.create("searcher", "random", {}, problem=problem, seed=1)
    trials = drive(random, problem, 400, parallel=3)
    assert sum(t.spent for t in trials) <= 2.0 + 1e-6
    assert len(drive(plugins.create("searcher", "random", {}, problem=problem, seed=1), problem, 5, parallel=3)) == 5
    capped = drive(
        plugins.create("searcher", "random", {}, problem=problems.table_problem(), seed=1),
        problems.table_problem(),
        60,
        abort=True,
    )
    assert any(t.state == TrialState.ABORTED for t in capped)
    best = min(t.spent for t in capped if t.observation is not None and t.observation.feasible)
    assert all(t.spent <= best + 1e-9 for t in capped[capped.index(min(capped, key=lambda t: t.spent != best)) + 1 :])


def test_drive_ends_when_told_to() -> None:
    problem = problems.table_problem()
    random = plugins.create("searcher", "random", {}, problem=problem, seed=1)
    trials = drive(random, problem, 50, until=lambda trial: trial.number == 4)
    assert len(trials) == 5


def test_drive_caps_the_runtime_objective_by_time() -> None:
    problem = problems.table_problem(objective=Objective("runtime"), cliff="none")
    trials = drive(plugins.create("searcher", "random", {}, problem=problem, seed=2), problem, 30, abort=True)
    best = float("inf")
    for trial in trials:
        assert trial.observation is not None
        assert trial.observation.runtime <= max(best, 0.001) + 1e-9 or best == float("inf")
        if trial.observation.feasible:
            best = min(best, trial.observation.runtime)


def test_ask_of_a_fresh_searcher_is_within_the_budget_of_trials() -> None:
    problem = problems.make_problem(
        problems.machine_parameters(2, (1, 2)), lambda _c, _o: problems.KnownOutcome(1.0), trials=2
    )
    searcher = plugins.create("searcher", "random", {}, problem=problem, seed=1)
    assert len(drive(searcher, problem, 10)) == 2
    assert searcher.ask(SearchState(proposed=2))


class _Once(Searcher):
    """Proposes one configuration, with a cap beyond the deadline."""

    def ask(self, state: SearchState, count: int = 1) -> list[Proposal] | NothingLeft:
        if state.proposed:
            return NothingLeft("that was all")
        return [Proposal(self.problem.candidates.configuration(0), abort_time=900.0)]


class _OncePriced(_Once, PricesAborts):
    """The same, and says that it prices its aborts."""


@pytest.mark.parametrize(
    ("kind", "runtime", "ends", "state"),
    [
        (_Once, 700.0, 600.0, TrialState.ABORTED),
        (_OncePriced, 700.0, 700.0, TrialState.SUCCEEDED),
        (_OncePriced, 1000.0, 900.0, TrialState.ABORTED),
        (_Once, 500.0, 500.0, TrialState.SUCCEEDED),
    ],
)
def test_drive_lets_a_searcher_that_prices_aborts_go_beyond_the_deadline(
    kind: type[_Once], runtime: float, ends: float, state: TrialState
) -> None:
    problem = problems.make_problem(
        problems.machine_parameters(1, (1,)), lambda _c, _o: problems.KnownOutcome(runtime), deadline=600.0
    )
    (trial,) = drive(kind(settings=Settings(), problem=problem), problem, 5, abort=True)
    assert trial.state == state
    assert trial.observation is not None
    assert trial.observation.runtime == ends
    assert trial.observation.feasible == (runtime < 600.0)
