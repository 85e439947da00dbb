"""Continuous spaces of which the constraints leave almost nothing, or nothing; and spaces of one configuration."""

from __future__ import annotations

from typing import Any

import pytest

from tradewind import plugins
from tradewind.problem import Billing, Float, Integer, Proposal
from tradewind.searcher import candidate_pool, coordinate_descent
from tradewind.searcher.base import NothingLeft, Searcher, SearchState
from tradewind.searcher.candidate_pool import CandidatePoolSearcher
from tradewind.searcher.surrogate.features import FeatureMap
from tradewind.testing.problems import KnownOutcome, KnownProblem, drive, evaluate, machine_parameters, make_problem

WITH_A_SAMPLE = ("tradewind", "gp", "cherrypick", "obol", "done", "trimtuner", "coordinate_descent")


def make(name: str, problem: KnownProblem, seed: int = 0, **settings: Any) -> Searcher:
    made = plugins.create("searcher", name, settings, problem=problem, seed=seed)
    assert isinstance(made, Searcher)
    return made


def square(where: str) -> KnownProblem:
    parameters = [Float(name="a", low=0.0, high=1.0), Float(name="b", low=0.0, high=1.0)]
    return make_problem(parameters, lambda c, _o: KnownOutcome(10.0 + float(c["a"])), where=[where])


@pytest.fixture
def short_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hopeless look for configurations takes seconds: these are the same with fewer draws."""
    monkeypatch.setattr(candidate_pool, "REFERENCE_SIZES", (8, 80))
    monkeypatch.setattr(coordinate_descent, "REFERENCE_SIZES", (8, 80))
    monkeypatch.setattr("tradewind.searcher.done.searcher._POOL", 40)
    monkeypatch.setattr("tradewind.searcher.trimtuner.searcher._POOL", 40)


@pytest.mark.slow
@pytest.mark.usefixtures("short_draws")
@pytest.mark.parametrize("name", WITH_A_SAMPLE)
def test_where_nothing_is_allowed_it_says_so(name: str) -> None:
    answer = make(name, square("a + b > 5")).ask(SearchState())
    assert isinstance(answer, NothingLeft)
    assert answer.final
    assert "give the values to try as lists" in answer.reason


@pytest.mark.usefixtures("short_draws")
@pytest.mark.parametrize("name", WITH_A_SAMPLE)
def test_where_nothing_is_sold_it_says_so(name: str) -> None:
    parameters = [*machine_parameters(3, (1, 2)), Float(name="x", low=0.0, high=1.0)]
    answer = make(name, make_problem(parameters, lambda _c, _o: KnownOutcome(60.0), sold=set())).ask(SearchState())
    assert isinstance(answer, NothingLeft)
    assert "allowed and sold" in answer.reason


@pytest.mark.usefixtures("short_draws")
def test_obol_with_a_design_and_the_features_of_machines_says_so_too() -> None:
    answer = make("obol", square("a + b > 5"), design="lhs", features="machines").ask(SearchState())
    assert isinstance(answer, NothingLeft)


@pytest.mark.slow
@pytest.mark.usefixtures("short_draws")
def test_recommendations_are_none() -> None:
    for name in ("done", "trimtuner"):
        searcher = make(name, square("a + b > 5"))
        found = searcher.recommend(3) if name == "done" else searcher.recommended()  # type: ignore[attr-defined]
        assert not found


@pytest.mark.slow
@pytest.mark.usefixtures("short_draws")
@pytest.mark.parametrize("name", WITH_A_SAMPLE)
def test_where_little_is_left_it_looks_longer_and_searches(name: str) -> None:
    """One in 2 500: the first look, of 200 times 16 draws, finds one or two, the second about seven."""
    problem = square("a + b <= 0.028")
    pooled = name in ("tradewind", "gp", "cherrypick", "obol")
    searcher = make(name, problem, **({"pool": 40} if pooled else {}))
    assert len(drive(searcher, problem, 2)) == 2
    if isinstance(searcher, CandidatePoolSearcher):
        assert len(searcher._reference) > 1


@pytest.mark.parametrize("name", ["tradewind", "gp", "cherrypick", "obol", "done", "trimtuner"])
def test_where_a_draw_finds_nothing_the_sample_is_there(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = square("a + b <= 1")
    searcher = make(name, problem)
    assert isinstance(searcher, CandidatePoolSearcher)
    monkeypatch.setattr(candidate_pool, "REFERENCE_SIZES", (5,))
    assert len(searcher._reference) == 5
    monkeypatch.setattr(type(problem.space), "sample", lambda *_given, **_named: [])
    trials = drive(searcher, problem, 4)
    assert len(trials) == 4
    assert searcher._reference.index(trials[0].configuration) is not None


def test_a_sample_of_one_shows_no_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidate_pool, "REFERENCE_SIZES", (1, 16))
    searcher = make("gp", square("a + b <= 2"))
    assert isinstance(searcher, CandidatePoolSearcher)
    assert len(searcher._reference) == 16
    assert FeatureMap(searcher.problem, searcher._reference).of_candidates(searcher._reference).shape[1] == 2


def test_a_large_finite_space_is_looked_through_where_draws_find_too_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidate_pool, "REFERENCE_SIZES", (1, 1))
    monkeypatch.setattr(candidate_pool, "MOST_LISTED", 2)
    searcher = make("gp", make_problem(machine_parameters(3, (1, 2)), lambda _c, _o: KnownOutcome(60.0)))
    assert isinstance(searcher, CandidatePoolSearcher)
    assert len(searcher._reference) == 6


@pytest.mark.parametrize("fails", ["", "exit 1"])
@pytest.mark.parametrize("name", [*WITH_A_SAMPLE, "trimtuner trees"])
def test_one_configuration_is_run_and_explained(name: str, fails: str) -> None:
    """It has no feature that varies; TrimTuner learns from five shares of the input of it."""
    problem = make_problem(machine_parameters(1, (1,)), lambda _c, _o: KnownOutcome(60.0, failed=fails))
    name, _, kind = name.partition(" ")
    settings: dict[str, Any] = {"surrogate": kind} if kind else {}
    searcher = make(name, problem, **settings)
    trials = drive(searcher, problem, 9)
    assert len(trials) == (5 if name == "trimtuner" else 1)
    said = searcher.explain(problem.candidates.configuration(0))
    if not fails and name != "coordinate_descent":
        assert said["expected_cost"] == pytest.approx(trials[-1].spent, rel=0.02)


def one_payable_in_1200() -> KnownProblem:
    """72,000 combinations; 0.0016 USD pay a minute of one of the two smallest machines, and of nothing else."""
    many = tuple(range(1, 61))
    parameters = [
        *machine_parameters(12, many),
        Integer(name="a", low=1, high=10),
        Integer(name="b", low=1, high=6),
    ]
    billing = Billing(minimum_seconds=60.0, granularity_seconds=1.0)
    return make_problem(parameters, lambda _c, _o: KnownOutcome(60.0), billing=billing)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "trials"),
    [("gp", 0), ("obol", 0), ("tradewind", 0), ("trimtuner", 0), ("trimtuner", 6)],
)
def test_little_money_finds_what_it_pays_in_a_large_space(name: str, trials: int) -> None:
    problem = one_payable_in_1200()
    known = [evaluate(problem, Proposal(problem.candidates.configuration(40_000 + i)), i) for i in range(trials)]
    for seed in range(3):
        searcher = make(name, problem, seed)
        for trial in known:
            searcher.tell(trial)
        answer = searcher.ask(SearchState(proposed=trials, money_left=0.0016))
        assert not isinstance(answer, NothingLeft), answer.reason
        assert answer[0].configuration["nodes"] == 1
        assert answer[0].configuration["instance"] in ("c9.large", "m9.large")
