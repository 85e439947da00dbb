"""DONE, beyond the conformance suite."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from benchmarks.done.scenarios import synthetic
from tests.effort import share

from tradewind import plugins
from tradewind.problem import (
    COST,
    Configuration,
    JobParameters,
    Objective,
    Observation,
    PastStudy,
    Problem,
    Proposal,
    Threshold,
    Trial,
    TrialState,
)
from tradewind.searcher.base import NothingLeft, SearchState
from tradewind.searcher.done import DoneSearcher
from tradewind.searcher.done.model import DoneModel
from tradewind.testing import problems
from tradewind.testing.problems import (
    KnownOutcome,
    KnownProblem,
    drive,
    evaluate,
    machine_parameters,
    make_problem,
    pending,
)

Values = Mapping[str, float | str]


def make(problem: Problem, seed: int = 0, **settings: Any) -> DoneSearcher:
    made = plugins.create("searcher", "done", settings, problem=problem, seed=seed)
    assert isinstance(made, DoneSearcher)
    return made


def sized(given: Values, **more: Any) -> KnownProblem:
    """A job whose work is its ``size``; other parameters change nothing."""
    work = float(given.get("size", 1.0)) * {"a": 1.0, "b": 4.0, "c": 16.0}.get(str(given.get("data", "")), 1.0)

    def truth(_c: Configuration, offer: Any) -> KnownOutcome:
        return KnownOutcome(10.0 + 100.0 * work / (offer.vcpu * offer.nodes) + 4.0 * offer.nodes)

    problem = make_problem(machine_parameters(3, (1, 2, 4, 8)), truth, **more)
    return replace(problem, job=replace(problem.job, name="sized", parameters=JobParameters(dict(given))))


def history(
    inputs: Sequence[Values],
    problem: Callable[..., KnownProblem] = sized,
    profile: Callable[[Values], dict[str, float]] | None = None,
    **more: Any,
) -> tuple[PastStudy, ...]:
    """One random run for each of some inputs."""
    past = []
    for i, given in enumerate(inputs):
        one = problem(given, **more)
        candidates = one.candidates
        pick = int(np.random.default_rng([i, 5]).integers(len(candidates)))
        trial = evaluate(one, Proposal(candidates.configuration(pick)), i)
        if profile is not None and trial.observation is not None:
            trial = replace(trial, observation=replace(trial.observation, profile=profile(given)))
        past.append(PastStudy(one.job.name, one.job.parameters, (trial,)))
    return tuple(past)


SIZES = [{"size": float(2 ** (i % 5))} for i in range(30)]


def told(searcher: DoneSearcher, trials: Sequence[Trial]) -> DoneSearcher:
    for trial in trials:
        searcher.tell(trial)
    return searcher


def best(searcher: DoneSearcher) -> Configuration:
    return searcher.recommend(1)[0].configuration


# ---------------------------------------------------------------------- one history for all parameters


@pytest.mark.slow
@pytest.mark.parametrize("size", [1.0, 5.0, 32.0])
def test_it_answers_for_sizes_in_between_and_beyond(size: float) -> None:
    problem = replace(sized({"size": size}, objective=Objective("runtime")), past=history(SIZES))
    optimum = problem.optimum()
    value = problem.value(best(make(problem)))
    assert optimum is not None and value is not None
    assert value <= 1.1 * optimum[1]


@pytest.mark.slow
def test_the_answer_depends_on_the_parameters() -> None:
    chosen = {
        size: best(make(replace(sized({"size": size}, objective=Objective("runtime")), past=history(SIZES))))["nodes"]
        for size in (1.0, 32.0)
    }
    assert int(chosen[1.0]) < int(chosen[32.0])


def test_expectations_are_about_right_and_ranges_hold() -> None:
    problem = replace(sized({"size": 6.0}, noise=0.05), past=history(SIZES, noise=0.05))
    found = make(problem).recommend(100)
    assert len(found) == len(problem.candidates)
    within = [one.cost_low <= problem.bill(one.configuration) <= one.cost_high for one in found]
    assert np.mean(within) >= 0.8
    first = found[0]
    assert first.runtime == pytest.approx(problem.truth(first.configuration, offer(problem, first)).runtime, rel=0.25)
    assert [one.cost for one in found] == sorted(one.cost for one in found)


def offer(problem: Problem, one: Any) -> Any:
    return problem.resolver.resolve(one.configuration)


def test_a_history_makes_the_first_run_a_good_one() -> None:
    problem = sized({"size": 8.0}, objective=Objective("runtime"))
    answer = make(replace(problem, past=history(SIZES))).ask(SearchState())
    assert not isinstance(answer, NothingLeft)
    optimum, value = problem.optimum(), problem.value(answer[0].configuration)
    assert optimum is not None and value is not None
    assert value <= 1.2 * optimum[1]
    assert answer[0].why["runs"] == 30.0


def test_runs_of_other_jobs_are_not_used() -> None:
    others = tuple(replace(study, name="another") for study in history(SIZES))
    searcher = make(replace(sized({"size": 1.0}), past=others))
    assert searcher.recommend(3) == []
    assert searcher.basis() == []
    assert searcher.explain(searcher.problem.candidates.configuration(0)) == {}


def test_what_cannot_be_compared_is_left_out_and_counted() -> None:
    past = history(SIZES)
    nameless = replace(past[0], parameters=JobParameters({}))
    worded = replace(past[1], parameters=JobParameters({"size": "large"}))
    searcher = make(replace(sized({"size": 1.0}), past=(nameless, worded, *past[2:])))
    assert searcher.recommend(1)
    assert "2 runs left out" in searcher.basis()[-1]


def test_a_fraction_of_the_input_is_one_more_parameter() -> None:
    """Runs of a tenth of the input say little of the time and much of its shape."""
    past = []
    for study in history([{"size": 10.0}] * 12):
        (trial,) = study.trials
        part = replace(trial, proposal=replace(trial.proposal, fidelity=0.1))
        seen = trial.observation
        assert seen is not None
        short = replace(seen, runtime=seen.runtime / 10.0)
        past += [replace(study, trials=(replace(part, observation=short),)), study]
    searcher = make(replace(sized({"size": 10.0}), past=tuple(past)))
    assert any("(fraction of the input)" in line for line in searcher.basis())
    first = searcher.recommend(1)[0]
    truth = searcher.problem.truth(first.configuration, offer(searcher.problem, first))  # type: ignore[attr-defined]
    assert first.runtime == pytest.approx(truth.runtime, rel=0.3)


# ---------------------------------------------------------------------- parameters that do not matter


@pytest.mark.slow
def test_parameters_without_influence_are_found_and_ignored() -> None:
    rng = np.random.default_rng(3)
    inputs: list[Values] = [
        {"size": float(2 ** (i % 5)), "seed": float(rng.integers(1, 1000)), "label": "xyz"[int(rng.integers(3))]}
        for i in range(30)
    ]
    searcher = make(replace(sized({"size": 4.0, "seed": 5.0, "label": "y"}), past=history(inputs, noise=0.03)))
    lines = searcher.basis()
    assert "found not to matter: seed, label" in lines and "found to matter: size" in lines


def test_what_a_fit_that_counts_still_uses_is_not_said_to_be_found_not_to_matter() -> None:
    rng = np.random.default_rng(6)
    inputs: list[Values] = [
        {"size": float(2 ** (i % 5)), "seed": float(rng.integers(1, 1000)), "label": "xyz"[int(rng.integers(3))]}
        for i in range(10)
    ]
    problem = replace(sized({"size": 4.0, "seed": 5.0, "label": "y"}), past=history(inputs, noise=0.03))
    lines = make(problem).basis()
    assert {"found not to matter: label", "likely not to matter: seed", "found to matter: size"} <= set(lines)
    alone = make(problem, average=False).basis()
    assert "found not to matter: seed, label" in alone and not any("likely not" in line for line in alone)


def test_an_ignored_parameter_does_not_keep_runs_apart() -> None:
    rng = np.random.default_rng(4)
    inputs = [{"size": float(2 ** (i % 5)), "seed": float(rng.integers(1, 1000))} for i in range(30)]
    searcher = make(replace(sized({"size": 4.0, "seed": 0.5}), past=history(inputs, noise=0.03)))
    line = "30 runs of sized, 0 of them with these job parameters, 6 with these apart from what does not matter"
    assert line in searcher.basis()
    reasons = {one.reason.partition("x ")[2] for one in searcher.recommend(50)}
    assert "with these job parameters apart from what does not matter" in reasons
    assert "with these job parameters" not in reasons


def test_nothing_is_ignored_when_told_so() -> None:
    inputs = [{"size": float(2 ** (i % 5)), "seed": float(i * 7 % 11 + 1)} for i in range(30)]
    searcher = make(replace(sized({"size": 4.0, "seed": 5.0}), past=history(inputs)), ignore=False)
    assert "found to matter: size, seed" in searcher.basis()


# ---------------------------------------------------------------------- profiles


@pytest.mark.slow
def test_profiles_tell_what_names_do_not() -> None:
    """Many data sets, each run once or twice: the bytes that a run read say how large they are."""
    rng = np.random.default_rng(6)
    work = {f"d{i}": float(2.0 ** rng.uniform(0, 6)) for i in range(12)}

    def named(given: Values, **more: Any) -> KnownProblem:
        made = sized({"size": work[str(given["data"])]}, **more)
        return replace(made, job=replace(made.job, parameters=JobParameters(dict(given))))

    def read(given: Values) -> dict[str, float]:
        return {"bytes_read": 1e6 * work[str(given["data"])]}

    inputs = [{"data": f"d{i % 12}"} for i in range(24)]
    errors = {}
    for used in (True, False):
        found = []
        for name in work:
            problem = replace(named({"data": name}), past=history(inputs, named, read))
            searcher = make(problem, profile=used)
            for one in searcher.recommend(50):
                found.append(abs(math.log(one.runtime / problem.truth(one.configuration, offer(problem, one)).runtime)))
        errors[used] = float(np.mean(found))
        assert any("profile bytes_read" in line for line in searcher.basis()) == used
    assert errors[True] < 0.9 * errors[False]


def test_a_profile_that_says_nothing_is_not_used() -> None:
    def noise(given: Values) -> dict[str, float]:
        return {"temperature": 40.0 + float(hash(given["size"]) % 7)}

    searcher = make(replace(sized({"size": 4.0}), past=history(SIZES, sized, noise)))
    assert not any("temperature" in line for line in searcher.basis())


# ---------------------------------------------------------------------- cost, deadline and other figures


def test_the_deadline_is_kept_by_predicted_time() -> None:
    free = replace(sized({"size": 16.0}), past=history(SIZES))
    tight = replace(free, constraints=replace(free.constraints, deadline=250.0))
    cheap, quick = make(free).recommend(1)[0], make(tight).recommend(1)[0]
    assert free.truth(cheap.configuration, offer(free, cheap)).runtime > 250.0
    assert free.truth(quick.configuration, offer(free, quick)).runtime <= 250.0
    assert quick.cost > cheap.cost
    assert quick.probability_feasible >= 0.7 > make(tight).recommend(50)[-1].probability_feasible


def test_where_nothing_is_likely_to_fit_the_likeliest_comes_first() -> None:
    problem = replace(sized({"size": 16.0}, deadline=1.0), past=history(SIZES))
    chances = [one.probability_feasible for one in make(problem).recommend(50)]
    assert chances[0] < 0.5
    assert chances == pytest.approx(sorted(chances, reverse=True), abs=1e-8)


@pytest.mark.slow
def test_a_named_metric_is_the_objective() -> None:
    problem = problems.table_problem(objective=Objective("throughput", "maximise"), cliff="slow", deadline=None)
    trials = drive(make(problem, 1, spread=30), problem, 30)
    searcher = told(make(problem, 1), trials)
    optimum, value = problem.optimum(), problem.value(best(searcher))
    assert optimum is not None and value is not None
    assert value >= 0.5 * optimum[1]


@pytest.mark.slow
def test_configurations_that_fail_are_avoided() -> None:
    problem = problems.infeasible_problem()
    problem = replace(problem, constraints=replace(problem.constraints, deadline=None))
    trials = drive(make(problem, 1), problem, 18)
    assert any(trial.state == TrialState.FAILED for trial in trials)
    found = told(make(problem, 1), trials).recommend(27)
    assert {one.configuration["mode"] for one in found[-7:]} == {"broken"}
    assert "broken" not in {one.configuration["mode"] for one in found[:12]}


def test_a_bound_raises_what_is_expected_and_no_more_than_it_says() -> None:
    problem = sized({"size": 4.0})
    trials = [evaluate(problem, Proposal(problem.candidates.configuration(i)), i) for i in range(0, 10, 2)]
    place = problem.candidates.configuration(11)
    seen = make_bound(problem, place, 1e4)
    without = told(make(problem), trials).explain(place)["expected_runtime"]
    high = told(make(problem), [*trials, seen]).explain(place)["expected_runtime"]
    low = told(make(problem), [*trials, make_bound(problem, place, 0.1)]).explain(place)["expected_runtime"]
    assert float(high) > 2.0 * float(without)
    assert float(low) == pytest.approx(float(without), rel=0.2)


def make_bound(problem: KnownProblem, configuration: Configuration, seconds: float) -> Trial:
    ended = evaluate(problem, Proposal(configuration), 90)
    cost = problem.terms.billing.cost(seconds, ended.offer.hourly)
    seen = Observation(cost, cost, seconds, False, censored=True, metrics={COST: cost})
    return replace(ended, state=TrialState.ABORTED, observation=seen)


# ---------------------------------------------------------------------- the loop


@pytest.mark.slow
def test_own_runs_are_taken_in_one_by_one_where_that_is_quicker() -> None:
    """With more runs than columns the model grows; a searcher that is told all at once says the same."""
    problem = sized({"size": 4.0}, noise=0.02)
    problem = replace(problem, past=history(SIZES, noise=0.02))
    settings: dict[str, Any] = {"terms": 10, "sigma": 0.3, "penalty": 0.01, "profile": False, "law": False}
    everything = [problem.candidates.configuration(i) for i in range(len(problem.candidates))]
    trials = [evaluate(problem, Proposal(one), i) for i, one in enumerate(everything)]
    grown, fresh = make(problem, **settings), told(make(problem, **settings), trials)
    for trial in trials:
        grown.tell(trial)
        grown.ask(SearchState(proposed=99))
    assert grown._model().grows
    assert grown._base is not None and len(grown._base[1]) == len(trials) > len(grown._base[0])
    for one in everything:
        here, there = grown.explain(one), fresh.explain(one)
        assert {k: float(v) for k, v in here.items()} == pytest.approx(
            {k: float(v) for k, v in there.items()}, rel=1e-9
        )


@pytest.mark.slow
def test_growing_agrees_with_fitting_anew() -> None:
    problem = replace(sized({"size": 4.0}, noise=0.02), past=history(SIZES, noise=0.02))
    settings: dict[str, Any] = {"terms": 10, "sigma": 0.3, "penalty": 0.01, "ignore": False, "profile": False}
    configurations = [problem.candidates.configuration(i) for i in range(10)]
    trials = [evaluate(problem, Proposal(one), i) for i, one in enumerate(configurations)]
    grown = told(make(problem, **settings), trials)
    anew = grown._fitted(trials)
    places = grown._places
    assert grown._model().judge(places).seconds == pytest.approx(anew.judge(places).seconds, rel=0.01)


@pytest.mark.slow
def test_noise_falls_and_may_be_left_out() -> None:
    problem = replace(sized({"size": 4.0}), past=history(SIZES))
    asked = make(problem, noise=1.0, decay=1.0).ask(SearchState())
    assert not isinstance(asked, NothingLeft)
    assert asked[0].why["noise"] == pytest.approx(1.0 / 30.0)
    silent = [make(problem, seed, noise=0.0, optimism=0.0, terms=400).ask(SearchState()) for seed in (1, 2)]
    assert all(not isinstance(one, NothingLeft) for one in silent)
    loud = {
        str(answer[0].configuration)
        for proposed in range(8)
        if not isinstance(
            answer := make(problem, noise=2.0, decay=0.0).ask(SearchState(proposed=proposed)), NothingLeft
        )
    }
    assert len(loud) > 2


def test_the_first_runs_are_spread() -> None:
    problem = sized({"size": 4.0})
    trials = drive(make(problem, 1), problem, 4)
    assert {int(t.configuration["nodes"]) for t in trials} >= {1, 8}
    assert len({t.configuration["instance"] for t in trials}) >= 2


def spacing(searcher: DoneSearcher, proposals: Sequence[Proposal]) -> float:
    """The mean distance of proposals from each other."""
    resolve = searcher.problem.resolver.resolve
    rows = np.array([searcher._map.of(p.configuration, resolve(p.configuration)) for p in proposals])
    return float(np.sqrt(((rows[:, None] - rows[None]) ** 2).sum(-1))[np.triu_indices(len(rows), 1)].mean())


def several(searcher: DoneSearcher, known: int, count: int, *, together: bool) -> list[Proposal]:
    """Proposals none of which has ended: of one question, or of one after the other."""
    state = SearchState(proposed=known)
    if together:
        answer = searcher.ask(state, count)
        assert not isinstance(answer, NothingLeft)
        return answer
    found: list[Proposal] = []
    for number in range(known, known + count):
        running = [pending(searcher.problem, one, known + i) for i, one in enumerate(found)]
        answer = searcher.ask(SearchState(running, proposed=number))
        assert not isinstance(answer, NothingLeft)
        found.append(answer[0])
    return found


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("together", [True, False])
def test_several_at_once_take_each_other_into_account(monkeypatch: pytest.MonkeyPatch, together: bool) -> None:
    """Pending runs are fantasized: without that the next best ones are neighbours of the best."""
    problem = problems.table_problem(noise=0.05)
    before = {seed: drive(make(problem, seed), problem, 12) for seed in (1, 2)}
    apart: dict[bool, list[float]] = {True: [], False: []}
    for fantasize in (True, False):
        if not fantasize:
            monkeypatch.setattr(DoneModel, "fantasize", lambda self, _running: self)
        for seed, known in ((1, 6), (2, 6), (1, 12), (2, 12)):
            searcher = told(make(problem, seed), before[seed][:known])
            apart[fantasize].append(spacing(searcher, several(searcher, known, 6, together=together)))
    assert np.mean(apart[True]) > 1.1 * np.mean(apart[False])


@pytest.mark.parametrize("together", [True, False])
def test_first_runs_that_go_at_once_are_spread(together: bool) -> None:
    problem = problems.table_problem()
    drawn = np.random.default_rng(0)
    whole = problem.candidates
    for seed in (1, 2):
        searcher = make(problem, seed)
        by_chance = [Proposal(whole.configuration(int(i))) for i in drawn.permutation(len(whole))[:40]]
        assert spacing(searcher, several(searcher, 0, 4, together=together)) > 1.2 * spacing(searcher, by_chance)


@pytest.mark.slow
def test_fantasies_leave_what_is_expected() -> None:
    problem = problems.table_problem(thresholds=[Threshold("throughput", at_least=1.0)])
    searcher = told(make(problem, 1), drive(make(problem, 1), problem, 12))
    model, running = searcher._model(), searcher._places[np.arange(5)]
    fantasize = model.fantasize(running)
    places = searcher._places[np.arange(20)]
    before, after = model.judge(places), fantasize.judge(places)
    assert after.seconds == pytest.approx(before.seconds, rel=1e-6)
    assert (after.seconds_high[:5] < before.seconds_high[:5]).all()
    assert model.fantasize(running[np.arange(0)]) is model


@pytest.mark.slow
def test_as_published() -> None:
    """Algorithm 1 to the letter: plain time over the configuration alone, one scale, constant noise."""
    published: dict[str, Any] = {
        "target": "plain",
        "inputs": "configuration",
        "trend": 0,
        "speedup": 0,
        "sigma": 1.0,
        "penalty": 0.001,
        "decay": 0,
        "spread": 0,
        "optimism": 0,
    }
    problem = replace(sized({"size": 4.0}, objective=Objective("runtime")), past=history(SIZES))
    searcher = make(problem, **published)
    found = searcher.recommend(5)
    assert all(one.runtime > 0 for one in found)
    used = searcher._model().used
    mine = [run for run in used if run.parameters["size"] == 4.0]
    assert used[: len(mine)] == mine, "the runs with the present parameters come first"
    others = [run.trial.key for run in used[len(mine) :]]
    assert len(set(others)) == len(others), "a configuration that is known is not taken from farther away"


@pytest.mark.thorough
def test_a_descent_follows_real_valued_parameters_to_the_minimum() -> None:
    problem = problems.continuous_problem()
    trials = drive(make(problem, 1), problem, 24)
    runtimes = [t.observation.runtime for t in trials if t.observation]
    assert min(runtimes) < 102.0
    assert min(runtimes[:4]) > 104.0, "the first ones were not that good by chance"


# ---------------------------------------------------------------------- the publication's protocol


@pytest.mark.slow
@pytest.mark.parametrize("law", ["dynamic", pytest.param("static", marks=pytest.mark.thorough)])
def test_near_the_optimum_from_the_eighth_run(law: str) -> None:
    """Random parameters in a loop; distance as the publication measures it, as a share of the range."""
    scenario = synthetic(law, levels=slice(2, 5), unused=True)
    good = []
    for seed in range(share(4, 2)):
        rng = np.random.default_rng([seed, 7])
        past: list[PastStudy] = []
        near = []
        for run in range(1, 15):
            i = int(rng.integers(len(scenario.inputs)))
            problem = scenario.problem(i)
            answer = make(replace(problem, past=tuple(past)), 100 * seed + run).ask(SearchState())
            assert not isinstance(answer, NothingLeft)
            trial = evaluate(problem, answer[0], 100 * seed + run)
            past.append(PastStudy(problem.job.name, problem.job.parameters, (trial,)))
            (least, most), mine = scenario.extremes(i), problem.value(trial.configuration)
            assert mine is not None
            near.append((mine - least) / (most - least) <= 0.05)
        good.append(np.mean(near[7:]) >= 0.8)
    assert np.mean(good) >= 0.8
