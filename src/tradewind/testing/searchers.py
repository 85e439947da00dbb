"""The conformance suite of searchers.

An implementer inherits it and says how a searcher is made; pytest finds the checks::

    class TestMine(SearcherConformance):
        @pytest.fixture
        def make(self) -> MakeSearcher:
            return lambda problem, seed: MySearcher(settings=MySearcher.Settings(), problem=problem, seed=seed)
"""

from __future__ import annotations

import inspect
import json
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tradewind.errors import InputError, TradewindError
from tradewind.plugins import Settings
from tradewind.problem import (
    COST,
    Billing,
    Configuration,
    Instance,
    JobParameters,
    Nodes,
    Objective,
    Observation,
    PastStudy,
    Problem,
    Proposal,
    Threshold,
    Trial,
    TrialState,
)
from tradewind.searcher.base import (
    Concludes,
    ContinuousSpaces,
    Explains,
    LearnsFromPast,
    NothingLeft,
    PredictsRuns,
    Repeats,
    Searcher,
    SearchState,
)
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
    """Checks of a searcher at the edges: figures that are none, trials of elsewhere, money that pays nothing."""

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
        """Trials on a part of the input leave their configurations open for a whole run, whoever proposed them."""
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
        """Earlier studies change nothing for a searcher that does not say that it learns from them.

        One that does takes trials of any kind and space, and still proposes what is allowed and new.
        """
        problem = table_problem()
        trials = drive(make(problem, 9), problem, 8)
        odd = [ended_trial(problem, t.proposal, t.number + 50, TrialState.FAILED) for t in trials[:2]]
        odd += [replace(t, number=t.number + 70, proposal=replace(t.proposal, fidelity=0.5)) for t in trials[2:4]]
        past = (
            PastStudy("another job", JobParameters(), (*foreign(trials), *odd)),
            PastStudy("the same job", JobParameters({"size": 2.0}), tuple(trials), objective=problem.objective),
            PastStudy("without trials", JobParameters(), ()),
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
    """True if a problem is expected to be refused; then checks that it is, in one line that says what to do."""
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
    """Proposed configurations, without the predictions about them."""
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


__all__ = [
    "MakeSearcher",
    "SearcherConformance",
    "ended_trial",
    "expect_refusal",
    "first_runs",
    "full_fidelity_trials",
    "keys",
    "proposed_keys",
]

_SMALL: dict[str, Callable[[], KnownProblem]] = {
    "conditional": conditional_problem,
    "flat": flat_problem,
    "infeasible": lambda: problems.infeasible_problem(types=2),
    "tiny": problems.tiny_problem,
}

_OTHER_PROCESS = """
import pickle, sys
from tradewind.testing.searchers import driven
while sys.stdin.buffer.peek(1):
    print(*driven(*pickle.load(sys.stdin.buffer)), flush=True)
"""


class SearcherConformance(SearcherEdgeCases):
    """Checks of every searcher, whatever its algorithm. Each method is one.

    Attributes:
        trials: How many trials the longer checks run.
        seconds: Processor time that three calls for two proposals may take on a space of a million combinations.
    """

    trials = 12
    seconds = 8.0

    @pytest.fixture
    def make(self) -> MakeSearcher:
        """The one thing to override: how a searcher is made."""
        raise NotImplementedError("override the fixture 'make'")

    @pytest.fixture
    def refuses(self) -> frozenset[str]:
        """Problems that the searcher refuses in one clear line: ``flat``, ``million``, ``metrics`` (see the checks)."""
        return frozenset()

    # ------------------------------------------------------------------ a function of problem, seed and trials

    def test_equal_seeds_give_equal_proposals(self, make: MakeSearcher) -> None:
        """Two searchers of one seed propose the same, run after run."""
        for ready in (table_problem, conditional_problem):
            problem = ready()
            first, second = (keys(drive(make(problem, 7), problem, self.trials)) for _ in range(2))
            assert first == second

    @pytest.fixture(scope="class")
    @classmethod
    def another_process(cls) -> Iterator[subprocess.Popen[bytes]]:
        """A Python of its own, with hashes of its own, for all searchers that are checked."""
        with subprocess.Popen(
            [sys.executable, "-c", _OTHER_PROCESS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            yield process

    def test_another_process_proposes_the_same(
        self, make: MakeSearcher, another_process: subprocess.Popen[bytes]
    ) -> None:
        """Nothing depends on the process: no hash of a string, no clock, no global random state."""
        searcher = make(table_problem(), 3)
        if type(searcher).__module__ == "__main__":
            pytest.skip("a class of __main__ cannot be imported elsewhere")
        asked, answers = another_process.stdin, another_process.stdout
        assert asked is not None
        assert answers is not None
        question = (type(searcher), searcher.settings, 8, 3)
        pickle.dump(question, asked)
        asked.flush()
        there = answers.readline().decode().split()
        assert there, "the other process has ended: see what it wrote to its standard error"
        assert there == driven(*question)

    def test_global_random_state_is_left_alone(self, make: MakeSearcher) -> None:
        """Asking neither uses nor moves numpy's global random state."""
        problem = table_problem()
        before = np.random.get_state()[1].copy()  # type: ignore[index]
        drive(make(problem, 1), problem, 6)
        assert (np.random.get_state()[1] == before).all()  # type: ignore[index]

    def test_order_of_telling_does_not_matter(self, make: MakeSearcher) -> None:
        """Trials that end in another order lead to the same proposal."""
        problem = table_problem()
        trials = drive(make(problem, 5), problem, 9)
        forward, backward = make(problem, 5), make(problem, 5)
        for trial in trials:
            forward.tell(trial)
        for trial in reversed(trials):
            backward.tell(trial)
        state = SearchState(proposed=len(trials))
        assert proposed_keys(forward.ask(state, 2)) == proposed_keys(backward.ask(state, 2))

    def test_telling_twice_changes_nothing(self, make: MakeSearcher) -> None:
        """After a restart the engine may tell a trial again."""
        problem = table_problem()
        once, twice = make(problem, 5), make(problem, 5)
        for trial in drive(make(problem, 5), problem, 6):
            once.tell(trial)
            twice.tell(trial)
            twice.tell(trial)
        assert proposed_keys(once.ask(SearchState(proposed=6))) == proposed_keys(twice.ask(SearchState(proposed=6)))

    def test_asking_twice_gives_the_same(self, make: MakeSearcher) -> None:
        """Asking is no event: the engine may ask, crash, and ask again."""
        problem = table_problem()
        searcher = make(problem, 2)
        for trial in drive(make(problem, 2), problem, 7):
            searcher.tell(trial)
        state = SearchState(proposed=7)
        assert searcher.ask(state, 3) == searcher.ask(state, 3)

    def test_state_survives_json(self, make: MakeSearcher) -> None:
        """A searcher restored from its state and its trials goes on as the first one does."""
        problem = table_problem()
        first = make(problem, 4)
        trials = drive(first, problem, 8)
        second = make(problem, 4)
        second.restore(json.loads(json.dumps(first.state(), allow_nan=False)))
        for trial in trials:
            second.tell(trial)
        state = SearchState(proposed=8)
        assert proposed_keys(first.ask(state, 2)) == proposed_keys(second.ask(state, 2))

    def test_proposals_are_plain(self, make: MakeSearcher) -> None:
        """Predictions of a proposal can be written as JSON, and its caps are positive."""
        problem = table_problem(dollars=5.0)
        searcher = make(problem, 2)
        for trial in drive(searcher, problem, self.trials):
            json.dumps(dict(trial.proposal.why), allow_nan=False)
            json.dumps(dict(trial.configuration))
            assert all(cap is None or cap > 0 for cap in (trial.proposal.abort_cost, trial.proposal.abort_time))
            if isinstance(searcher, Explains):
                assert trial.proposal.why
            said = searcher.predict_run(trial.configuration) if isinstance(searcher, PredictsRuns) else None
            assert said is None or 0.0 <= said.chance <= 1.0

    # ------------------------------------------------------------------ what may be proposed

    @pytest.mark.parametrize("name", sorted(_SMALL))
    def test_a_finite_space_is_exhausted_exactly_once(
        self, make: MakeSearcher, name: str, refuses: frozenset[str]
    ) -> None:
        """Every candidate is tried once, then the searcher says for good that nothing is left.

        One that repeats runs may do so in between, and stops. One that concludes by itself may leave some untried, and
        tries one on the whole input. For one that runs parts of the input, only trials on the whole of it count.
        """
        problem = _SMALL[name]()
        if expect_refusal(name in refuses, make, problem):
            return
        searcher = make(problem, 1)
        trials = drive(searcher, problem, ENOUGH)
        own = first_runs(searcher, trials)
        assert len(trials) < ENOUGH
        if isinstance(searcher, Concludes):
            assert full_fidelity_trials(own)
        else:
            every = sorted(problem.candidates.key(i) for i in range(len(problem.candidates)))
            assert sorted(keys(full_fidelity_trials(own))) == every
        answer = searcher.ask(SearchState(proposed=len(trials)))
        assert isinstance(answer, NothingLeft)
        assert answer.final
        assert answer.reason

    def test_nothing_is_final_while_trials_run(self, make: MakeSearcher) -> None:
        """While all that is open is pending, the searcher waits."""
        problem = conditional_problem()
        searcher = make(problem, 1)
        trials = drive(make(problem, 1), problem, ENOUGH)
        for trial in trials[:-2]:
            searcher.tell(trial)
        running = [pending(problem, trial.proposal, trial.number) for trial in trials[-2:]]
        answer = searcher.ask(SearchState(running, proposed=len(trials)))
        assert isinstance(answer, NothingLeft)
        assert not answer.final

    def test_several_at_once_are_different(self, make: MakeSearcher) -> None:
        """Never more than asked for, never one twice, never one that is pending or ended."""
        problem = table_problem()
        searcher = make(problem, 6)
        seen: set[str] = set()
        running: list[Trial] = []
        number = 0
        for turn in range(6):
            answer = searcher.ask(SearchState(running, proposed=number), 4)
            if isinstance(answer, NothingLeft):
                assert not answer.final
            else:
                assert 1 <= len(answer) <= 4
                for proposal in answer:
                    key = problem.trial_key(proposal.configuration, proposal.fidelity)
                    assert key not in seen or (proposal.repeat and isinstance(searcher, Repeats))
                    seen.add(key)
                    running.append(pending(problem, proposal, number))
                    number += 1
            for trial in running[: 2 + turn % 2]:
                searcher.tell(evaluate(problem, trial.proposal, trial.number))
            running = running[2 + turn % 2 :]

    def test_parallel_search_exhausts_the_space(self, make: MakeSearcher) -> None:
        """With four at a time, too, every candidate is tried once, unless the searcher concludes by itself."""
        problem = conditional_problem()
        searcher = make(problem, 2)
        trials = drive(searcher, problem, ENOUGH, parallel=4)
        own = first_runs(searcher, trials)
        assert isinstance(searcher, Concludes) or len(full_fidelity_trials(own)) == len(problem.candidates)

    def test_conditions_and_constraints_are_kept(self, make: MakeSearcher) -> None:
        """Every proposal is complete and allowed, with no inactive parameter."""
        problem = conditional_problem()
        for trial in drive(make(problem, 3), problem, 14):
            assert problem.space.check(trial.configuration) == trial.configuration

    def test_unsold_configurations_are_left_out(self, make: MakeSearcher) -> None:
        """Configurations that the selector has no offer for are never proposed."""
        sold = {("c9.large", 1), ("c9.large", 2), ("r9.large", 4)}
        problem = problems.make_problem(
            problems.machine_parameters(3, (1, 2, 4)), lambda _c, _o: problems.KnownOutcome(60.0), sold=sold
        )
        trials = drive(make(problem, 1), problem, 20)
        assert {(t.configuration["instance"], t.configuration["nodes"]) for t in trials} == sold

    def test_a_million_combinations(self, make: MakeSearcher, refuses: frozenset[str]) -> None:
        """A large finite space is answered within seconds of processor time, however busy the machine is."""
        problem = problems.huge_problem()
        if expect_refusal("million" in refuses, make, problem):
            return
        searcher = make(problem, 1)
        number, started = 0, time.process_time()
        for _ in range(3):
            answer = searcher.ask(SearchState(proposed=number), 2)
            assert not isinstance(answer, NothingLeft)
            for proposal in answer:
                searcher.tell(evaluate(problem, proposal, number))
                number += 1
        assert time.process_time() - started < self.seconds

    def test_continuous_spaces(self, make: MakeSearcher) -> None:
        """Proposed within their ranges, none twice; or refused with a clear line by those that cannot."""
        problem = problems.continuous_problem()
        try:
            searcher = make(problem, 1)
        except TradewindError as error:
            assert "\n" not in str(error)
            return
        assert isinstance(searcher, ContinuousSpaces), "it takes a continuous space but does not say so"
        trials = drive(searcher, problem, self.trials)
        assert first_runs(searcher, trials)
        assert len(trials) == self.trials
        for trial in trials:
            assert problem.space.check(trial.configuration) == trial.configuration

    def test_takes_what_it_says_it_takes(self, make: MakeSearcher) -> None:
        """A searcher with the capability does not refuse a continuous space."""
        if isinstance(make(problems.tiny_problem(), 0), ContinuousSpaces):
            make(problems.continuous_problem(), 0)

    # ------------------------------------------------------------------ trials of every kind

    @pytest.mark.parametrize("state", [TrialState.FAILED, TrialState.ABORTED, TrialState.SUCCEEDED])
    def test_goes_on_when_all_end_alike(self, make: MakeSearcher, state: TrialState) -> None:
        """All failed, all cut short, all slower than the deadline: it goes on, without repeating any."""
        problem = table_problem()
        searcher = make(problem, 1)
        seen: set[str] = set()
        for number in range(self.trials):
            answer = searcher.ask(SearchState(proposed=number))
            assert not isinstance(answer, NothingLeft)
            trial = ended_trial(problem, answer[0], number, state)
            assert trial.key not in seen
            seen.add(trial.key)
            searcher.tell(trial)

    def test_a_lost_trial_teaches_nothing(self, make: MakeSearcher) -> None:
        """A trial that was lost is no reason to think ill of its configuration."""
        problem = table_problem()
        with_lost, without = make(problem, 1), make(problem, 1)
        trials = drive(make(problem, 1), problem, 5)
        for trial in trials:
            with_lost.tell(trial)
            without.tell(trial)
        answer = with_lost.ask(SearchState(proposed=5))
        assert not isinstance(answer, NothingLeft)
        with_lost.tell(replace(pending(problem, answer[0], 5), state=TrialState.LOST))
        assert proposed_keys(with_lost.ask(SearchState(proposed=6))) == proposed_keys(
            without.ask(SearchState(proposed=6))
        )

    @pytest.mark.parametrize("goal", ["minimise", "maximise"])
    def test_strange_metrics(self, make: MakeSearcher, goal: str, refuses: frozenset[str]) -> None:
        """Zero, negative, enormous and missing values of a metric, and NaN among the others, do no harm."""
        values = [0.0, -3.0, 1e12, None, -1e-9, 5.0, -1e12, 0.5, None, 2.0]
        objective = Objective("score", "minimise" if goal == "minimise" else "maximise")
        problem = table_problem(objective=objective, thresholds=[Threshold("other", at_most=1.0)])
        if expect_refusal("metrics" in refuses, make, problem):
            return
        searcher = make(problem, 1)
        for number in range(self.trials):
            answer = searcher.ask(SearchState(proposed=number))
            assert not isinstance(answer, NothingLeft)
            trial = evaluate(problem, replace(answer[0], abort_cost=None, abort_time=None), number)
            assert trial.observation is not None
            value = values[number % len(values)]
            metrics = {COST: trial.spent, "other": float("nan") if number % 3 else -0.5}
            if value is not None:
                metrics["score"] = value
            seen = replace(trial.observation, objective=value, metrics=metrics, feasible=value is not None)
            searcher.tell(replace(trial, observation=seen, state=TrialState.SUCCEEDED))

    @pytest.mark.parametrize("metric", ["runtime", "throughput"])
    def test_other_objectives(self, make: MakeSearcher, metric: str, refuses: frozenset[str]) -> None:
        """The least runtime and the greatest throughput are searched for as the least cost is."""
        objective = Objective("runtime") if metric == "runtime" else Objective("throughput", "maximise")
        problem = table_problem(objective=objective, cliff="slow")
        if expect_refusal(metric != "runtime" and "metrics" in refuses, make, problem):
            return
        searcher = make(problem, 1)
        trials = drive(searcher, problem, self.trials, parallel=2)
        assert first_runs(searcher, trials)
        assert len(trials) == self.trials

    def test_prices_of_zero(self, make: MakeSearcher) -> None:
        """Machines that cost nothing are searched over like others."""
        free = {name: replace(offer, price_per_hour=0.0) for name, offer in problems.offers(3).items()}
        parameters = [Instance(name="instance", values=tuple(free), offers=free), Nodes(name="nodes", values=(1, 2))]
        problem = problems.make_problem(parameters, lambda _c, o: problems.KnownOutcome(90.0 / o.vcpu))
        searcher = make(problem, 1)
        tried = {trial.configuration for trial in drive(searcher, problem, 40) if trial.proposal.fidelity == 1.0}
        assert len(tried) == 6 or (tried and isinstance(searcher, Concludes))

    # ------------------------------------------------------------------ form

    def test_it_is_described(self, make: MakeSearcher) -> None:
        """The first line of its docstring and every setting's description are there: the reference is made of them."""
        part = type(make(problems.tiny_problem(), 0))
        assert inspect.getdoc(part)
        assert part.__doc__ is not None
        assert part.summary().endswith((".", ","))
        for name, setting in part.Settings.model_fields.items():
            assert setting.description, f"the setting {name} has no description"
