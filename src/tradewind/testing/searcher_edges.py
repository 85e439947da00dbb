"""Checks of searchers at the edges: figures that are none, trials of elsewhere, money that pays nothing.

`SearcherConformance` inherits them; an implementer need not name this module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tradewind.errors import InputError
from tradewind.plugins import Settings
from tradewind.problem import (
    COST,
    Billing,
    Configuration,
    JobParameters,
    Objective,
    Observation,
    PastStudy,
    Problem,
    Proposal,
    Trial,
    TrialState,
)
from tradewind.searcher.base import Concludes, LearnsFromPast, NothingLeft, Repeats, Searcher, SearchState
from tradewind.testing import problems
from tradewind.testing.problems import KnownProblem, drive, evaluate, pending

MakeSearcher = Callable[[Problem, int], Searcher]
"""Makes a searcher for a problem and a seed."""

ENOUGH = 200
"""Trials after which every configuration of a small space was tried, on several parts of the input as well."""


def table_problem(**more: Any) -> KnownProblem:
    """`tradewind.testing.problems.table_problem` with 81 configurations: a check asks a searcher many times."""
    return problems.table_problem(types=3, nodes=(1, 2, 4), **more)


def conditional_problem() -> KnownProblem:
    """`tradewind.testing.problems.conditional_problem` with 18 configurations, all of which a check tries."""
    return problems.conditional_problem(types=2, cores=4)


def flat_problem() -> KnownProblem:
    """`tradewind.testing.problems.flat_problem` with 12 configurations, likewise."""
    return problems.flat_problem(levels=2)


class SearcherEdgeCases:
    """What a searcher answers where there is little to answer. Each method is one check."""

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
    def test_figures_that_are_no_numbers(self, make: MakeSearcher, value: float, refuses: frozenset[str]) -> None:
        """An objective that is NaN or infinite is no reason to stop, and to no cap that is NaN."""
        for metric in ("cost", "score"):
            problem = table_problem(objective=Objective(metric))
            if expect_refusal(metric == "score" and "metrics" in refuses, make, problem):
                continue
            searcher = make(problem, 1)
            for trial in drive(make(problem, 1), problem, 2):
                searcher.tell(trial)
            for number in range(2, 7):
                answer = searcher.ask(SearchState(proposed=number))
                assert not isinstance(answer, NothingLeft)
                cap = answer[0].abort_cost
                assert cap is None or cap > 0
                trial = ended_trial(problem, answer[0], number, TrialState.SUCCEEDED)
                assert trial.observation is not None
                seen = replace(trial.observation, objective=value, metrics={metric: value}, feasible=True)
                searcher.tell(replace(trial, observation=seen))

    def test_parts_of_the_input_are_no_whole_runs(self, make: MakeSearcher, refuses: frozenset[str]) -> None:
        """Trials on a part of the input, told by whomever, leave their configurations open for a whole run."""
        problem = flat_problem()
        if expect_refusal("flat" in refuses, make, problem):
            return
        searcher = make(problem, 1)
        count = len(problem.candidates)
        for number in range(count):
            part = Proposal(problem.candidates.configuration(number), fidelity=0.125)
            searcher.tell(evaluate(problem, part, 1000 + number))
        tried = full_fidelity_trials(first_runs(searcher, drive(searcher, problem, ENOUGH)))
        assert len(tried) == count or (tried and isinstance(searcher, Concludes))

    def test_trials_of_another_space(self, make: MakeSearcher) -> None:
        """A trial whose configuration is not in the space does no harm."""
        problem = table_problem()
        searcher = make(problem, 1)
        trials = drive(make(problem, 1), problem, 5)
        for trial in [*trials, *foreign(trials)]:
            searcher.tell(trial)
        for number in range(5, 9):
            answer = searcher.ask(SearchState(proposed=number))
            assert not isinstance(answer, NothingLeft)
            assert problem.space.check(answer[0].configuration) == answer[0].configuration
            searcher.tell(evaluate(problem, answer[0], number))

    def test_earlier_studies(self, make: MakeSearcher) -> None:
        """What earlier studies measured changes nothing for a searcher that does not say that it learns from them.

        One that does takes trials of any kind and space, and still proposes what is allowed and new.
        """
        problem = table_problem()
        trials = drive(make(problem, 9), problem, 8)
        odd = [ended_trial(problem, t.proposal, t.number + 50, TrialState.FAILED) for t in trials[:2]]
        odd += [replace(t, number=t.number + 70, proposal=replace(t.proposal, fidelity=0.5)) for t in trials[2:4]]
        past = (
            PastStudy("another job", JobParameters(), (*foreign(trials), *odd)),
            PastStudy("the same job", JobParameters({"size": 2.0}), tuple(trials), objective=problem.objective),
            PastStudy("nothing told", JobParameters(), ()),
        )
        informed = replace(problem, past=past)
        with_past = drive(make(informed, 4), informed, 8)
        assert first_runs(make(problem, 4), with_past)
        if not isinstance(make(problem, 4), LearnsFromPast):
            assert keys(with_past) == keys(drive(make(problem, 4), problem, 8))

    # ------------------------------------------------------------------ money

    def test_a_budget_below_the_cheapest_run(self, make: MakeSearcher) -> None:
        """Money that pays no run to its end is not overspent, and the search ends in words."""
        problem = table_problem()
        every = [problem.bill(problem.candidates.configuration(i)) for i in range(len(problem.candidates))]
        problem = replace(problem, budget=replace(problem.budget, dollars=0.4 * min(every)))
        searcher = make(problem, 1)
        trials = drive(searcher, problem, ENOUGH)
        spent = sum(trial.spent for trial in trials)
        assert spent <= 0.4 * min(every) + 1e-6
        answer = searcher.ask(SearchState(proposed=len(trials), money_left=0.0))
        assert isinstance(answer, NothingLeft)
        assert answer.reason

    def test_money_that_pays_nothing(self, make: MakeSearcher) -> None:
        """Below the smallest bill of the cheapest candidate nothing is proposed, with the reason in words."""
        problem = table_problem(billing=Billing(minimum_seconds=60.0, granularity_seconds=1.0))
        least = float(problem.candidates.hourly.min()) / 60.0
        answer = make(problem, 1).ask(SearchState(money_left=0.9 * least))
        assert isinstance(answer, NothingLeft)
        assert answer.final
        assert "$" in answer.reason
        assert "\n" not in answer.reason

    def test_only_what_the_money_may_pay(self, make: MakeSearcher) -> None:
        """A candidate whose smallest bill is above the money left is not proposed."""
        problem = table_problem(billing=Billing(minimum_seconds=60.0, granularity_seconds=1.0))
        money = 3.0 * float(problem.candidates.hourly.min()) / 60.0
        searcher = make(problem, 1)
        for number in range(6):
            answer = searcher.ask(SearchState(proposed=number, money_left=money))
            assert not isinstance(answer, NothingLeft)
            offer = problem.resolver.resolve(answer[0].configuration)
            assert problem.terms.billing.cost(0.0, offer.hourly) <= money + 1e-9
            searcher.tell(evaluate(problem, answer[0], number))

    def test_a_budget_is_used_and_kept(self, make: MakeSearcher) -> None:
        """A search with a budget ends within it, after at least one trial."""
        problem = table_problem(dollars=1.0)
        trials = drive(make(problem, 1), problem, 400, parallel=2)
        assert trials
        assert sum(trial.spent for trial in trials) <= 1.0 + 1e-6


def driven(part: type[Searcher], settings: Settings, number: int, seed: int) -> list[str]:
    """The keys of the first trials of a searcher."""
    problem = table_problem()
    return keys(drive(part(settings=settings, problem=problem, seed=seed), problem, number))


def expect_refusal(expected: bool, make: MakeSearcher, problem: Problem) -> bool:
    """Whether a problem is expected to be refused; if so, that it is, in one line that says what to do."""
    if expected:
        with pytest.raises(InputError) as refusal:
            make(problem, 1)
        assert refusal.value.hint
        assert "\n" not in str(refusal.value)
    return expected


def foreign(trials: Sequence[Trial]) -> list[Trial]:
    """The same trials, of configurations that no ready problem has, on machines that nobody sells."""
    found = []
    for trial in trials:
        other = [Configuration({"depth": 3, "colour": "blue"}), Configuration({**trial.configuration, "colour": 1})]
        configuration = other[trial.number % 2]
        machine = replace(trial.offer, provider="elsewhere", instance_type="z1.mega")
        proposal = replace(trial.proposal, configuration=configuration)
        number = 500 + trial.number
        found.append(replace(trial, number=number, proposal=proposal, offer=machine, key=f"foreign-{number}"))
    return found


def full_fidelity_trials(trials: Sequence[Trial]) -> list[Trial]:
    """Those on the whole input."""
    return [trial for trial in trials if trial.proposal.fidelity == 1.0]


def first_runs(searcher: Searcher, trials: Sequence[Trial]) -> list[Trial]:
    """The trials that repeat no other one; those that do are marked so, and only by a searcher that `Repeats`."""
    seen: set[str] = set()
    found = []
    for trial in trials:
        if trial.proposal.repeat:
            assert isinstance(searcher, Repeats), "it runs a configuration again but does not say that it does so"
            assert trial.key in seen, "it calls a first run a repetition"
        else:
            assert trial.key not in seen
            found.append(trial)
        seen.add(trial.key)
    return found


def keys(trials: Sequence[Trial]) -> list[str]:
    """The trial keys in order."""
    return [trial.key for trial in trials]


def proposed_keys(answer: list[Proposal] | NothingLeft) -> list[str] | NothingLeft:
    """What was proposed, without what was said about it."""
    return answer if isinstance(answer, NothingLeft) else [proposal.configuration.key for proposal in answer]


def ended_trial(problem: KnownProblem, proposal: Proposal, number: int, state: TrialState) -> Trial:
    """A trial that ended in the given state, whatever the truth is."""
    trial = pending(problem, proposal, number)
    runtime = 1e5 if state == TrialState.SUCCEEDED else 30.0
    cost = problem.terms.billing.cost(runtime, trial.offer.hourly)
    value = None if state == TrialState.FAILED else cost
    metrics = {COST: cost, "runtime": runtime} if state == TrialState.SUCCEEDED else {}
    seen = Observation(value, cost, runtime, False, censored=state == TrialState.ABORTED, metrics=metrics, reason="so")
    return replace(trial, state=state, observation=seen, spent=cost)
