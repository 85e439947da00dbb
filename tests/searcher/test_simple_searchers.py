"""Exhaustive, random and coordinate descent, beyond the conformance suite."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tradewind import plugins
from tradewind.errors import ConfigurationError, SpecError
from tradewind.problem import (
    Billing,
    Candidates,
    Configuration,
    Expression,
    Float,
    Integer,
    Objective,
    Offer,
    Ordinal,
    Problem,
    Proposal,
    TrialState,
    Value,
)
from tradewind.searcher.base import NothingLeft, Searcher, SearchState
from tradewind.searcher.coordinate_descent import CoordinateDescentSearcher
from tradewind.testing import problems
from tradewind.testing.problems import drive, evaluate, pending


def make(name: str, problem: Problem, seed: int = 0, **settings: Any) -> Searcher:
    made = plugins.create("searcher", name, settings, problem=problem, seed=seed)
    assert isinstance(made, Searcher)
    return made


# ---------------------------------------------------------------------- exhaustive


def test_declared_order_is_the_order_of_the_space() -> None:
    problem = problems.conditional_problem()
    trials = drive(make("exhaustive", problem), problem, 10)
    assert [t.configuration for t in trials] == [problem.candidates.configuration(i) for i in range(10)]


def test_cheapest_order_is_by_price() -> None:
    problem = problems.conditional_problem()
    hourly = [t.offer.hourly for t in drive(make("exhaustive", problem, order="cheapest"), problem, 52)]
    assert hourly == sorted(hourly)


def test_shuffled_order_depends_on_the_seed() -> None:
    problem = problems.conditional_problem()
    a, b = (drive(make("exhaustive", problem, seed, order="shuffled"), problem, 10) for seed in (1, 2))
    assert [t.key for t in a] != [t.key for t in b]


def test_repetitions_come_after_all_have_had_their_turn() -> None:
    problem = problems.flat_problem()
    trials = drive(make("exhaustive", problem, repetitions=3), problem, 200, parallel=4)
    assert set(Counter(t.key for t in trials).values()) == {3}
    by_number = sorted(trials, key=lambda t: t.number)
    assert len({t.key for t in by_number[:24]}) == 24
    assert not any(t.proposal.repeat for t in by_number[:24])
    assert all(t.proposal.repeat for t in by_number[24:])


def test_exhaustive_refuses_a_continuous_space_in_one_line() -> None:
    with pytest.raises(SpecError, match=r"continuous parameter.*random or gp") as caught:
        make("exhaustive", problems.continuous_problem())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["exhaustive", "random", "coordinate_descent", "optuna"])
def test_a_range_of_real_numbers_in_steps_is_used_up(name: str) -> None:
    parameters = [Float(name="share", low=0, high=1, step=0.05)]
    problem = problems.make_problem(parameters, lambda c, _o: problems.KnownOutcome(1.0 + float(c["share"])))
    searcher = make(name, problem)
    trials = drive(searcher, problem, 50)
    assert sorted(str(trial.configuration["share"]) for trial in trials) == sorted(
        str(round(0.05 * place, 2)) for place in range(21)
    )
    answer = searcher.ask(SearchState(proposed=21))
    assert isinstance(answer, NothingLeft)
    assert answer.reason == "every configuration has been tried"


def test_exhaustive_says_how_many_where_a_range_can_be_counted() -> None:
    for parameter in (Integer(name="x", low=0, high=10**9), Float(name="x", low=0, high=1, step=1e-8)):
        problem = problems.make_problem([parameter], lambda _c, _o: problems.KnownOutcome(1.0))
        with pytest.raises(SpecError, match=r"a space with 1e\+0[89] combinations"):
            make("exhaustive", problem)


def test_steps_along_real_parameters_stay_on_their_grid() -> None:
    def truth(configuration: Configuration, _offer: Offer) -> problems.KnownOutcome:
        return problems.KnownOutcome(1.0 + abs(float(configuration["x"]) - 0.35))

    problem = problems.make_problem([Float(name="x", low=0, high=1, step=0.05)], truth)
    trials = drive(make("coordinate_descent", problem, restarts=0), problem, 50)
    best = min(trials, key=lambda trial: trial.spent)
    assert best.configuration["x"] == 0.35
    assert len(trials) < 15
    assert all(len(str(trial.configuration["x"])) <= 4 for trial in trials)


def test_exhaustive_refuses_an_endless_list() -> None:
    parameters = [Ordinal(name=f"p{i}", values=tuple(range(100))) for i in range(4)]
    problem = problems.make_problem(parameters, lambda _c, _o: problems.KnownOutcome(1.0))
    with pytest.raises(SpecError, match="combinations"):
        make("exhaustive", problem)


# ---------------------------------------------------------------------- random


def test_a_trial_is_looked_up_among_the_candidates_once_however_long_the_study_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = problems.flat_problem(50)
    looked_up: Counter[str] = Counter()
    index = Candidates.index

    def counting(self: Candidates, configuration: Configuration) -> int | None:
        looked_up[configuration.key] += 1
        return index(self, configuration)

    monkeypatch.setattr(Candidates, "index", counting)
    trials = drive(make("random", problem), problem, 300)
    assert len({t.key for t in trials}) == len(trials) == 300
    assert set(looked_up.values()) == {1}


def test_random_is_uniform_over_what_is_open() -> None:
    problem = problems.conditional_problem()
    first = Counter()  # type: ignore[var-annotated]
    for seed in range(400):
        answer = make("random", problem, seed).ask(SearchState())
        assert not isinstance(answer, NothingLeft)
        first[answer[0].configuration.key] += 1
    assert len(first) > 48
    assert max(first.values()) < 25


def test_random_is_uniform_on_the_scale_of_each_parameter() -> None:
    problem = problems.continuous_problem()
    answer = make("random", problem, 1).ask(SearchState(), 400)
    assert not isinstance(answer, NothingLeft)
    steps = np.log10([float(p.configuration["step"]) for p in answer])
    assert abs(np.median(steps) + 2.0) < 0.4
    assert abs(np.mean([float(p.configuration["share"]) for p in answer]) - 0.5) < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_random_looks_longer_where_the_money_pays_for_little(seed: int) -> None:
    billing = Billing(minimum_seconds=60.0, granularity_seconds=1.0)
    parameters = [*problems.machine_parameters(12, (1, 2, 4, 8, 16)), Float(name="share", low=0.0, high=1.0)]
    problem = problems.make_problem(parameters, lambda _c, _o: problems.KnownOutcome(60.0), billing=billing)
    # Pays a minute of one of the two smallest machines: of two draws in sixty.
    answer = make("random", problem, seed).ask(SearchState(money_left=0.0016))
    assert not isinstance(answer, NothingLeft)
    assert answer[0].configuration["instance"] in ("c9.large", "m9.large")
    assert answer[0].configuration["nodes"] == 1


@pytest.mark.slow
def test_an_impossible_continuous_space_has_nothing_left() -> None:
    parameters = [Float(name="a", low=0.0, high=1.0), Float(name="b", low=0.0, high=1.0)]
    problem = problems.make_problem(parameters, lambda _c, _o: problems.KnownOutcome(1.0), where=["a + b > 5"])
    answer = make("random", problem).ask(SearchState())
    assert isinstance(answer, NothingLeft)
    assert "no further configuration" in answer.reason


# ---------------------------------------------------------------------- coordinate descent


def test_a_descent_walks_towards_what_keeps_the_bounds() -> None:
    """Accuracy must be 0.9 or more: by their run times alone, two of these seeds end where nothing is feasible."""
    problem = problems.training_problem(goal="cost", limit=None)
    for seed in range(8):
        trials = drive(make("coordinate_descent", problem, seed, start="random"), problem, 25, abort=True)
        kept = [t.observation.objective for t in trials if t.observation is not None and t.observation.feasible]
        assert kept, f"seed {seed}"


def test_it_finds_the_optimum_of_a_separable_problem_in_one_sweep() -> None:
    parameters = [Ordinal(name=f"p{i}", values=tuple(range(5))) for i in range(4)]
    goal = {"p0": 3, "p1": 0, "p2": 4, "p3": 2}
    problem = problems.make_problem(
        parameters, lambda c, _o: problems.KnownOutcome(1.0 + sum(abs(float(c[n]) - g) for n, g in goal.items()))
    )
    trials = drive(make("coordinate_descent", problem, restarts=0), problem, 100)
    assert dict(min(trials, key=lambda t: t.spent).configuration) == goal
    assert len(trials) <= 1 + 2 * 4 * 4


def test_without_restarts_it_ends_in_a_local_optimum() -> None:
    problem = problems.table_problem(cliff="none")
    searcher = make("coordinate_descent", problem, restarts=0)
    trials = drive(searcher, problem, 400)
    assert len(trials) < 120
    answer = searcher.ask(SearchState(proposed=len(trials)))
    assert isinstance(answer, NothingLeft)
    assert answer.final
    assert "no parameter improves" in answer.reason
    best = min((t for t in trials if t.observation and t.observation.feasible), key=lambda t: t.spent)
    for parameter in problem.space.parameters:
        assert parameter.levels is not None
        for level in parameter.levels:
            value = level.item() if isinstance(level, np.generic) else level
            other = problem.value(best.configuration.but(**{parameter.name: value}))
            assert other is None or other >= best.spent - 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("ready", [problems.huge_problem, problems.continuous_problem])
def test_no_descent_starts_where_the_money_does_not_pay(
    ready: Callable[[], problems.KnownProblem], monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = ready()
    searcher = make("coordinate_descent", problem, 1)
    trials = drive(make("coordinate_descent", problem, 1), problem, 12)
    for trial in trials:
        searcher.tell(trial)
    descents = 0
    descend = CoordinateDescentSearcher._descend

    def counted(*given: Any) -> None:
        nonlocal descents
        descents += 1
        assert descents < 20, "it walks through what the money does not pay"
        descend(*given)

    monkeypatch.setattr(CoordinateDescentSearcher, "_descend", counted)
    answer = searcher.ask(SearchState(proposed=len(trials), money_left=0.0))
    assert isinstance(answer, NothingLeft)
    assert answer.final


def test_it_walks_towards_feasible_ones() -> None:
    problem = problems.table_problem(deadline=500.0, cliff="none")
    trials = drive(make("coordinate_descent", problem, start="cheapest", restarts=0), problem, 100)
    assert not (trials[0].observation and trials[0].observation.feasible)
    assert any(t.observation and t.observation.feasible for t in trials)


@pytest.mark.slow
def test_it_maximises() -> None:
    problem = problems.table_problem(objective=Objective("throughput", "maximise"), deadline=None, cliff="none")
    trials = drive(make("coordinate_descent", problem, restarts=2), problem, 150)
    found = max(t.observation.objective for t in trials if t.observation and t.observation.objective)
    best = problem.optimum()
    assert best is not None
    assert found > 0.95 * best[1]


@pytest.mark.parametrize("start", ["cheapest", "centre", "random"])
def test_starts(start: str) -> None:
    problem = problems.table_problem()
    first = drive(make("coordinate_descent", problem, 3, start=start), problem, 1)[0]
    if start == "cheapest":
        assert first.offer.hourly == problem.candidates.hourly.min()
    if start == "centre":
        assert first.configuration["partitions"] == 64


def test_a_given_start() -> None:
    problem = problems.table_problem()
    wanted = {"instance": "m9.xlarge", "nodes": 4, "partitions": 64, "codec": "lz4"}
    trials = drive(make("coordinate_descent", problem, start=wanted), problem, 4)
    assert dict(trials[0].configuration) == wanted
    assert {t.configuration["nodes"] for t in trials} == {4}
    with pytest.raises(SpecError, match=r"^searcher\.start: .*codec"):
        make("coordinate_descent", problem, start={**wanted, "codec": "brotli"})


def test_steps_along_real_parameters_close_in() -> None:
    problem = problems.continuous_problem()
    trials = drive(make("coordinate_descent", problem, start="centre", restarts=0), problem, 120)
    best = min(trials, key=lambda t: t.spent)
    assert float(best.configuration["step"]) == pytest.approx(0.01, rel=0.2)
    assert float(best.configuration["share"]) == pytest.approx(0.3, abs=0.05)
    assert int(best.configuration["workers"]) == 6


def test_parallel_proposals_vary_one_parameter() -> None:
    problem = problems.table_problem()
    searcher = make("coordinate_descent", problem, start="centre")
    first = drive(searcher, problem, 1)[0]
    answer = searcher.ask(SearchState(proposed=1), 5)
    assert not isinstance(answer, NothingLeft)
    changed = {n for p in answer for n in p.configuration if p.configuration[n] != first.configuration[n]}
    assert changed == {"instance"}


def test_it_waits_for_the_rest_of_a_line() -> None:
    problem = problems.flat_problem()
    searcher = make("coordinate_descent", problem)
    answer = searcher.ask(SearchState())
    assert not isinstance(answer, NothingLeft)
    waiting = searcher.ask(SearchState([pending(problem, answer[0])], 1))
    assert isinstance(waiting, NothingLeft)
    assert not waiting.final


def test_a_condition_that_appears_is_filled_in() -> None:
    problem = problems.conditional_problem()
    start = {"instance": "c9.large", "nodes": 1, "codec": "none"}
    trials = drive(make("coordinate_descent", problem, start=start), problem, 20)
    gzip = [t for t in trials if t.configuration["codec"] == "gzip"]
    assert gzip
    assert all("level" in t.configuration for t in gzip)


def test_trials_of_others_are_used() -> None:
    """Trials it never asked for are known to it all the same."""
    problem = problems.flat_problem()
    searcher = make("coordinate_descent", problem)
    for number in range(24):
        searcher.tell(evaluate(problem, Proposal(problem.candidates.configuration(number)), number))
    answer = searcher.ask(SearchState(proposed=24))
    assert isinstance(answer, NothingLeft)
    assert answer.final


def test_complete_drops_and_fills() -> None:
    space = problems.conditional_problem().space
    otherwise: dict[str, Value] = {"instance": "c9.large", "nodes": 1, "codec": "none", "level": 4}
    assert "level" not in space.complete({"instance": "c9.large", "nodes": 1, "codec": "lz4", "level": 1}, otherwise)
    assert space.complete({"instance": "c9.large", "nodes": 1, "codec": "gzip"}, otherwise)["level"] == 4
    with pytest.raises(ConfigurationError, match="constraint"):
        space.complete({"nodes": 4}, otherwise)
    assert space.parameters[3].when == Expression("codec == 'gzip'")


def test_failed_and_aborted_rank_behind_slow_ones() -> None:
    problem = problems.table_problem()
    searcher = make("coordinate_descent", problem, start="cheapest")
    trials = drive(searcher, problem, 30)
    assert any(t.state == TrialState.FAILED for t in trials)
