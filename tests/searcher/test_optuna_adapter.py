"""The adapter of Optuna's samplers, beyond the conformance suite."""

from __future__ import annotations

import logging
import sys
import warnings
from dataclasses import replace
from typing import Any

import pytest

from tradewind import plugins
from tradewind.errors import MissingProgramError, SpecError
from tradewind.problem import Float, Objective, Observation, Problem, Proposal, Threshold, TrialState
from tradewind.searcher.base import NothingLeft, SearchState
from tradewind.searcher.optuna_adapter import (
    OptunaSearcher,
    _silent,
    from_optuna,
    optuna_distribution,
    to_optuna,
    trial_seed,
)
from tradewind.testing import problems
from tradewind.testing.problems import KnownProblem, drive, evaluate, pending

optuna = pytest.importorskip("optuna")
from optuna.trial import TrialState as OptunaState  # noqa: E402


def make(problem: Problem, seed: int = 0, **settings: Any) -> OptunaSearcher:
    made = plugins.create("searcher", "optuna", settings, problem=problem, seed=seed)
    assert isinstance(made, OptunaSearcher)
    return made


def one(answer: list[Proposal] | NothingLeft) -> Proposal:
    assert not isinstance(answer, NothingLeft), answer
    return answer[0]


def known_study(searcher: OptunaSearcher, state: SearchState) -> Any:
    with _silent():
        return searcher._study(state).get_trials()


# ---------------------------------------------------------------------- the same as Optuna by itself


def plain(problem: KnownProblem, sampler: Any, seed: int, number: int, deadline: float | None) -> list[dict[str, Any]]:
    """Code that a user of Optuna would write for `problems.continuous_problem`, the sampler seeded for every trial."""
    found = []
    with _silent():
        study = optuna.create_study(sampler=sampler(trial_seed(seed, 0)))
        for k in range(number):
            study.sampler = sampler(trial_seed(seed, k))
            trial = study.ask()
            values = {
                "step": trial.suggest_float("step", 1e-4, 1.0, log=True),
                "share": trial.suggest_float("share", 0.0, 1.0),
                "workers": trial.suggest_int("workers", 1, 16),
            }
            found.append(values)
            seen = evaluate(problem, Proposal(problem.space.check(values))).observation
            assert seen is not None
            if deadline is not None:
                trial.set_constraint("deadline", seen.runtime / deadline - 1.0)
            study.tell(trial, seen.objective)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("deadline", [None, 180.0])
@pytest.mark.parametrize("name", ["TPESampler", "RandomSampler", "NSGAIISampler"])
def test_it_suggests_what_plain_optuna_suggests(name: str, deadline: float | None) -> None:
    problem = problems.continuous_problem(deadline=deadline)
    key = {"TPESampler": "tpe", "RandomSampler": "random", "NSGAIISampler": "nsgaii"}[name]
    options = {"population_size": 8} if key == "nsgaii" else {}
    mine = drive(make(problem, 5, sampler=key, options=options), problem, 24)
    theirs = plain(problem, lambda seed: getattr(optuna.samplers, name)(seed=seed, **options), 5, 24, deadline)
    repeats = next((i for i, values in enumerate(theirs) if values in theirs[:i]), len(theirs))
    assert repeats > 10  # by itself, Optuna may try a configuration twice; from there on the two differ
    for trial, values in zip(mine[:repeats], theirs[:repeats], strict=True):
        assert dict(trial.configuration) == pytest.approx(values, rel=1e-9)


@pytest.mark.slow
def test_quasi_random_points_are_plain_optunas_in_order() -> None:
    problem = problems.continuous_problem()
    mine = drive(make(problem, 5, sampler="qmc", options={"scramble": True}), problem, 16)
    first = optuna.samplers.RandomSampler(seed=5)
    theirs = plain(
        problem,
        lambda _seed: optuna.samplers.QMCSampler(seed=5, scramble=True, independent_sampler=first),
        5,
        16,
        None,
    )
    for trial, values in zip(mine, theirs, strict=True):
        assert dict(trial.configuration) == pytest.approx(values, rel=1e-9)


@pytest.mark.slow
def test_cma_es_moves_towards_the_best() -> None:
    problem = problems.continuous_problem()
    trials = drive(make(problem, 1, sampler="cmaes"), problem, 60)
    values = [t.observation.objective for t in trials if t.observation and t.observation.objective is not None]
    assert sum(values[-15:]) < 0.8 * sum(values[:15])


# ---------------------------------------------------------------------- the study between questions


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["tpe", "nsgaii", "qmc", "random"])
def test_a_kept_study_answers_as_one_that_is_built_anew(sampler: str) -> None:
    problem = problems.continuous_problem(deadline=180.0)
    options = {"population_size": 4} if sampler == "nsgaii" else {}
    trials = drive(make(problem, 5, sampler=sampler, options=options), problem, 16)
    searcher = make(problem, 5, sampler=sampler, options=options)
    told: list[int] = []
    for number in (0, 1, 3, 2, 4, 6, 7, 8, 5, 9, 11, 13, 10, 12, 14, 15):  # ends as they come of four at a time
        searcher.tell(trials[number])
        told.append(number)
        running = [replace(t, state=TrialState.RUNNING, observation=None) for t in trials if t.number not in told][:3]
        state = SearchState(running, proposed=len(told) + len(running))
        fresh = make(problem, 5, sampler=sampler, options=options)
        for earlier in told:
            fresh.tell(trials[earlier])
        assert searcher.ask(state, 2) == fresh.ask(state, 2)
        assert searcher.ask(state, 2) == fresh.ask(state, 2)


def test_each_trial_is_told_to_optuna_about_once(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = problems.continuous_problem()
    searcher, added = make(problem, 2, sampler="random"), list[None]()
    add = OptunaSearcher._add

    def counted(*args: Any) -> None:
        added.append(None)
        add(*args)

    monkeypatch.setattr(OptunaSearcher, "_add", counted)
    drive(searcher, problem, 60)
    assert len(added) <= 60  # and not 60 * 59 / 2


# ---------------------------------------------------------------------- how trials are told


def test_trials_are_told_as_what_they_are() -> None:
    problem = problems.table_problem(cliff="slow", deadline=900.0, thresholds=[Threshold("throughput", at_least=200.0)])
    searcher = make(problem, 1)
    trials = drive(make(problem, 1), problem, 5)
    trials[1] = replace(trials[1], state=TrialState.FAILED, observation=Observation(None, 0.1, 5.0, False))
    cut = Observation(0.3, 0.3, 450.0, False, censored=True)
    trials[2] = replace(trials[2], state=TrialState.ABORTED, observation=cut)
    for trial in trials[:4]:
        searcher.tell(trial)
    running = replace(trials[4], state=TrialState.RUNNING, observation=None)
    told = known_study(searcher, SearchState([running], proposed=5))
    assert [t.state for t in told] == [
        OptunaState.COMPLETE,
        OptunaState.FAIL,
        OptunaState.PRUNED,
        OptunaState.COMPLETE,
        OptunaState.RUNNING,
    ]
    assert trials[0].observation is not None
    assert told[0].value == trials[0].observation.objective
    late = trials[0].observation.runtime / 900.0 - 1.0
    slow = 1.0 - trials[0].observation.metrics["throughput"] / 200.0
    assert sorted(told[0].constraints.values()) == pytest.approx(sorted([late, slow]))
    assert told[2].intermediate_values == {0: 0.3}
    assert told[2].constraints["deadline"] == pytest.approx(-0.5)
    assert told[4].params.keys() == {"instance", "nodes", "partitions", "codec"}
    bound = make(problem, 1, aborted="bound")
    bound.tell(trials[2])
    assert [(t.state, t.value) for t in known_study(bound, SearchState())] == [(OptunaState.COMPLETE, 0.3)]


def test_a_trial_that_was_stopped_early_is_pruned_with_its_last_value() -> None:
    problem = replace(problems.table_problem(), objective=Objective("loss"))
    seen = Observation(None, 1.0, 2.0, feasible=False, censored=True, metrics={"loss": 0.5, "step": 7.0})
    trial = replace(pending(problem, Proposal(problem.candidates.configuration(3))), state=TrialState.ABORTED)
    searcher = make(problem)
    searcher.tell(replace(trial, observation=seen))
    told = known_study(searcher, SearchState())[0]
    assert told.state == OptunaState.PRUNED
    assert told.intermediate_values == {7: 0.5}


def test_a_metric_that_is_missing_breaks_its_bound_and_no_value_is_a_failure() -> None:
    problem = problems.table_problem(objective=Objective("score", "maximise"), thresholds=[Threshold("m", at_most=0.0)])
    searcher = make(problem, 1)
    for i, value in enumerate([3.0, None, float("nan"), float("inf")]):
        trial = evaluate(problem, Proposal(problem.candidates.configuration(i)), i)
        assert trial.observation is not None
        seen = replace(trial.observation, objective=value, metrics={"m": float("nan")})
        searcher.tell(replace(trial, state=TrialState.SUCCEEDED, observation=seen))
    told = known_study(searcher, SearchState())
    assert [t.state for t in told] == [OptunaState.COMPLETE, *[OptunaState.FAIL] * 3]
    assert max(told[0].constraints.values()) == 1.0
    trial = evaluate(problem, Proposal(problem.candidates.configuration(9)), 9)
    assert trial.observation is not None
    seen = replace(trial.observation, objective=1.0, metrics={"m": 0.5})
    searcher.tell(replace(trial, state=TrialState.SUCCEEDED, observation=seen))
    assert known_study(searcher, SearchState())[-1].constraints["0 m at most"] == 0.5  # less than a missing one


@pytest.mark.thorough
@pytest.mark.slow
def test_the_greatest_metric_is_searched_for() -> None:
    problem = problems.table_problem(objective=Objective("throughput", "maximise"), cliff="slow", deadline=None)
    best = problem.optimum()
    assert best is not None
    trials = drive(make(problem, 2), problem, 60)
    values = [t.observation.objective for t in trials if t.observation and t.observation.objective is not None]
    assert max(values) > 0.8 * best[1]


@pytest.mark.slow
def test_parameters_that_do_not_exist_are_not_suggested() -> None:
    problem = problems.conditional_problem()
    searcher = make(problem, 3)
    trials = drive(searcher, problem, 20)
    told = known_study(searcher, SearchState())
    for trial, theirs in zip(trials, told, strict=True):
        assert ("level" in theirs.params) == (trial.configuration["codec"] == "gzip")
    assert {"level" in t.params for t in told} == {True, False}


# ---------------------------------------------------------------------- lists without repeats


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["tpe", "random", "qmc", "nsgaii"])
@pytest.mark.parametrize("step", [0.05, 1e-9])
def test_real_parameters_in_steps_are_suggested_by_place(sampler: str, step: float) -> None:
    parameter = Float(name="x", low=0.1, high=1, step=step)
    assert optuna_distribution(parameter).high == parameter.count - 1  # type: ignore[attr-defined]
    problem = problems.make_problem([parameter], lambda c, _o: problems.KnownOutcome(float(c["x"])))
    searcher = make(problem, sampler=sampler)
    for trial in drive(searcher, problem, 12):
        value = trial.configuration["x"]
        assert parameter.coerce(value) == value
        assert from_optuna(parameter, to_optuna(parameter, value)) == value


def test_the_nearest_open_configuration_is_taken_where_suggestions_are_taken() -> None:
    problem = problems.conditional_problem()
    searcher, other = make(problem, 1, tries=1), make(problem, 1, tries=1)
    trials = drive(searcher, problem, 200)
    assert len({t.key for t in trials}) == len(trials) == len(problem.candidates)
    stages = [str(t.proposal.why["stage"]) for t in trials]
    assert stages[0] == "suggested by tpe"
    moved = next(i for i, stage in enumerate(stages) if stage == "nearest to the suggestion of tpe")
    for trial in trials[:moved]:
        other.tell(trial)
    state = SearchState(proposed=moved)
    with _silent():
        study = other._study(state)
        study.sampler = other._sampler(moved)
        wanted = other._suggest(study.ask())
    candidates, free = other.open_candidates(state)
    distance = ((candidates.features[free] - problem.space.encode([wanted])[0]) ** 2).sum(axis=1)
    place = candidates.index(trials[moved].configuration)
    assert distance[list(free).index(place)] == pytest.approx(distance.min(), abs=1e-9)


def test_suggestions_at_once_know_of_each_other() -> None:
    problem = problems.table_problem()
    searcher = make(problem, 1)
    for trial in drive(make(problem, 1), problem, 15):
        searcher.tell(trial)
    answer = searcher.ask(SearchState(proposed=15), 4)
    assert not isinstance(answer, NothingLeft)
    assert len({problem.trial_key(p.configuration) for p in answer}) == 4
    waiting = [pending(problem, answer[0], 15)]
    assert one(searcher.ask(SearchState(waiting, proposed=16))).configuration != answer[0].configuration


# ---------------------------------------------------------------------- the package


def test_without_optuna_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingProgramError) as refusal:
        make(problems.tiny_problem())
    assert "pip install 'tradewind[optuna]')" in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(("sampler", "package"), [("gp", "torch"), ("cmaes", "cmaes")])
def test_a_sampler_that_needs_more_says_so(monkeypatch: pytest.MonkeyPatch, sampler: str, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingProgramError, match=rf"pip install 'tradewind\[optuna\]' {package}"):
        make(problems.tiny_problem(), sampler=sampler)


def test_settings_that_the_sampler_does_not_know_are_refused() -> None:
    with pytest.raises(SpecError, match=r"TPESampler does not take them.*n_starts"):
        make(problems.tiny_problem(), options={"n_starts": 3})
    with pytest.raises(SpecError, match="seed is the study's"):
        make(problems.tiny_problem(), options={"seed": 3})
    with pytest.raises(SpecError, match="invalid"):
        make(problems.tiny_problem(), sampler="qmc", options={"qmc_type": "lattice"})


@pytest.mark.parametrize(
    ("sampler", "options", "named"),
    [
        ("tpe", {"n_startup_trials": "abc"}, "n_startup_trials: 'abc'"),
        ("tpe", {"n_ei_candidates": 0}, "n_ei_candidates: 0"),
        ("tpe", {"n_ei_candidates": 2.5, "n_startup_trials": 5000}, "n_ei_candidates: 2.5"),
        ("tpe", {"prior_weight": -1}, "prior_weight: -1"),
        ("tpe", {"gamma": 3, "multivariate": True}, "gamma: 3"),
        ("tpe", {"weights": 1}, "weights: 1"),
        ("nsgaii", {"population_size": 2.5}, "population_size: 2.5"),
        ("nsgaii", {"population_size": 1000.0}, "population_size: 1000.0"),
    ],
)
def test_options_that_fail_only_once_the_sampler_learns_are_refused_before(
    sampler: str, options: dict[str, Any], named: str
) -> None:
    with pytest.raises(SpecError, match=rf"^searcher\.options: .*Sampler cannot search with {named} \(") as refusal:
        make(problems.tiny_problem(), sampler=sampler, options=options)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("sampler", "options"),
    [
        ("tpe", {"n_startup_trials": 0, "n_ei_candidates": 1, "prior_weight": 0.5}),
        ("tpe", {"n_startup_trials": 1e9, "multivariate": True, "group": True, "constant_liar": False}),
        ("nsgaii", {"population_size": 10**9, "mutation_prob": 1.0, "crossover_prob": 0.0}),
        ("qmc", {"qmc_type": "halton", "scramble": True}),
    ],
)
def test_options_that_work_are_taken(sampler: str, options: dict[str, Any]) -> None:
    searcher = make(problems.tiny_problem(), sampler=sampler, options=options)
    assert one(searcher.ask(SearchState())).configuration


def test_optuna_stays_silent_and_is_left_as_it_was(caplog: pytest.LogCaptureFixture) -> None:
    before = optuna.logging.get_verbosity()
    problem = problems.conditional_problem()
    with warnings.catch_warnings(), caplog.at_level(logging.DEBUG):
        warnings.simplefilter("error")
        drive(make(problem, 1, options={"multivariate": True, "group": True, "n_startup_trials": 3}), problem, 12)
    assert [record for record in caplog.records if record.name.startswith("optuna")] == []
    assert optuna.logging.get_verbosity() == before


def test_seeds_of_trials_are_far_apart_and_the_first_is_the_studys() -> None:
    assert trial_seed(7, 0) == 7
    seeds = [trial_seed(7, k) for k in range(1000)]
    assert len(set(seeds)) == 1000
    assert all(0 <= seed < 2**32 for seed in seeds)
    assert 0 <= trial_seed(-1, 3) < 2**32


def test_a_trial_of_another_space_is_left_out() -> None:
    problem = problems.flat_problem()
    searcher = make(problem, 1)
    foreign = evaluate(problems.tiny_problem(), Proposal(problems.tiny_problem().candidates.configuration(0)))
    searcher.tell(foreign)
    assert known_study(searcher, SearchState()) == []
    assert one(searcher.ask(SearchState(proposed=1))).configuration
